"""Why a learned policy did what it did, in one decision: which of the things that it reads argue for it.

Each group of features is set to what it typically is, one group at a time; what the action then loses of its advantage
over starting the head is what that group argues for it. Groups rather than features: those of a group follow from each
other, and a state in which only one of them changes does not exist. One run of the network, numpy and nothing else.
The same groups and typical values are those of `fermata.sim.explain`, which says what a model does in general.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fermata.policy.action import WAIT
from fermata.policy.board import Board, board_of
from fermata.policy.decide import Step
from fermata.policy.errors import ModelError
from fermata.policy.features import FEATURES, SEVERAL, WIDE, observe_board
from fermata.policy.learned import ACTIONS, EXPERTS, START_HEAD, WAIT_FOR_EVENT, expert_for
from fermata.policy.several_slots import WORDS, why_held
from fermata.policy.state import ClusterState
from fermata.policy.transition import take

Values = Mapping[str, float]  # features by name
_FIXED = (FEATURES.index("log executors"), SEVERAL, WIDE)  # what the state cannot change is no argument
_ARGUMENTS = 2  # that a sentence has
_MOST = 1.0  # mean JCTs; what a model says beyond is its distrust of a state that it was not taught
_FEW = 0.1  # an argument of less than this share of the strongest is not worth words


@runtime_checkable
class Estimator(Protocol):
    """A learned policy: it estimates costs."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What its file says of it."""
        ...

    def costs(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the costs [decisions, 3] of features [decisions, SIZE]."""
        ...

    def scored(self, board: Board) -> Board:
        """Return the same board, on which stages are scored by this policy's weights."""
        ...


class Group(NamedTuple):
    """Features that follow from each other."""

    name: str
    features: tuple[str, ...]
    words: Callable[[Values], str]  # from a state's features: what stands there

    @property
    def columns(self) -> list[int]:
        """Where the features stand in a row."""
        return [FEATURES.index(name) for name in self.features if name in FEATURES]


class Reason(NamedTuple):
    """What argues for an action; costs are in mean JCTs."""

    saves: float  # by how much the action looks cheaper than starting the head
    arguments: tuple[tuple[str, float], ...]  # group and what it adds to `saves`, the strongest first
    words: tuple[str, ...]  # of those that argue for it, the strongest first


def _times(value: float) -> str:
    """Return a ratio for people.

    >>> _times(0.056), _times(3.21), _times(250.0)
    ('6%', '3.2 times', '250 times')
    """
    return f"{100 * value:.0f}%" if value < 1.0 else f"{value:.1f} times" if value < 10.0 else f"{value:.0f} times"


def _completions(values: Values) -> str:
    ratio = math.expm1(values["next completion / unit"])
    if ratio < 0.005:
        return "the next executor frees at any moment"
    return f"the next executor frees after {_times(ratio)} of its length"


def _waiting(values: Values) -> str:
    sizes = ("up to 2 units", "of 2 to 5 units", "of 5 to 15 units", "over 15 units")
    number = round(sum(math.expm1(values[f"waiting jobs {size}"]) for size in sizes))
    return "it waits alone" if number <= 1 else f"{number} jobs wait"


def _alternative(values: Values) -> str:
    if values["alternative exists"] < 0.5:
        return "nothing longer waits"
    return f"a job of {_times(math.expm1(values['alternative / unit']))} its length waits too"


def _arrivals(values: Values) -> str:
    shorter = values["share of arrivals under half a unit"]
    if shorter < 0.1:
        return f"recent arrivals are a load of {100 * values['load by recent arrivals']:.0f}%"
    return f"{100 * shorter:.0f}% of recent arrivals are under half its length"


def _due(values: Values) -> str:
    number = math.expm1(values["arrivals of under half a unit due before the next completion"])
    told = "hardly any job" if number < 0.5 else "about one job" if number < 1.5 else f"about {number:.0f} jobs"
    return f"{told} of under half its length {'are' if number >= 1.5 else 'is'} due before the next executor frees"


def _followers(values: Values) -> str:
    share = values["arrivals like the head that one of under half a unit follows, share"]
    after = _times(math.expm1(values["time until the next arrival after one like the head / unit"]))
    return f"{100 * share:.0f}% of jobs like it were followed by one of under half its length, after {after} of it"


def _estimates(values: Values) -> str:
    factor = math.exp(values["error of recent estimates"])
    return "recent estimates were right" if factor < 1.1 else f"recent estimates were off by a factor of {factor:.1f}"


def _shape(values: Values) -> str:
    share = values["head's task / unit"]
    return "it is one task" if share > 0.995 else f"a task of it is {_times(share)} of what is left of it"


def _pool(values: Values) -> str:
    return f"{100 * values['free share']:.0f}% of {math.exp(values['log executors']):.0f} executors are free"


GROUPS: tuple[Group, ...] = (
    Group(
        "completions",
        (
            "next completion / unit",
            "second completion / unit",
            "third completion / unit",
            "mean remaining of busy executors / unit",
            "next completion / alternative",
            "next completion / head's task",
        ),
        _completions,
    ),
    Group(
        "waiting jobs",
        (
            "waiting jobs up to 2 units",
            "waiting jobs of 2 to 5 units",
            "waiting jobs of 5 to 15 units",
            "waiting jobs over 15 units",
            "waiting work up to 2 units",
            "waiting work of 2 to 5 units",
            "waiting work of 5 to 15 units",
            "waiting work over 15 units",
            "jobs before the alternative",
            "waiting jobs",
        ),
        _waiting,
    ),
    Group("alternative", ("alternative exists", "alternative / unit"), _alternative),
    Group(
        "recent arrivals",
        (
            "load by recent arrivals",
            "arrivals during the head",
            "arrivals of under half a unit during the head",
            "arrivals of under half a unit before the next completion",
            "arrivals of up to 2 units during the head",
            "arrivals of up to 2 units before the next completion",
            "share of arrivals under half a unit",
            "share of arrivals up to 2 units",
            "share of arriving work over 2 units",
            "mean arrival under half a unit / unit",
            "arrivals of under half a unit during the head's task",
        ),
        _arrivals,
    ),
    Group(
        "what is due",
        (
            "arrivals of under half a unit due before the next completion",
            "earliness of arrivals of under half a unit due before the next completion",
        ),
        _due,
    ),
    Group(
        "followers",
        (
            "time since the last arrival / unit",
            "last arrival / unit",
            "arrivals like the head that one of under half a unit follows, share",
            "time until the next arrival after one like the head / unit",
        ),
        _followers,
    ),
    Group("estimates", ("error of recent estimates", "misses of recent estimates"), _estimates),
    Group(
        "shape of the head",
        (
            "head's task / unit",
            "head's path / unit",
            "head's path / longest path left of its job",
            "head's pending tasks",
            "head's job's average width",
            "stages left of the head's job are one task",
        ),
        _shape,
    ),
    Group(
        "pool",
        (
            "log executors",
            "free share",
            "log free executors",
            "busy executors with the head's job, share",
            "busy executors with the alternative's job, share",
            "startable stages of jobs that have an executor",
            "executors held by other jobs with less left, share",
            "active jobs per executor",
            "active jobs with a stage of more than one task, share",
            "busy executors and startable stages of jobs of several tasks, share",
        ),
        _pool,
    ),
)


def typical(policy: Estimator, row: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the typical features [SIZE] of states like one: the mean of what its expert was taught.

    Raises:
        ModelError: the model's metadata do not say what that is.
    """
    try:
        means = np.array(policy.metadata.get("typical"), np.float32)
    except (TypeError, ValueError):  # of what is no number, or of lists that differ in length
        means = np.empty(0, np.float32)
    if means.shape != (len(EXPERTS), len(FEATURES)):
        raise ModelError(f"the model's metadata do not say what is typical of its {len(FEATURES)} features")
    usual: NDArray[np.float32] = means[expert_for(row)]
    return usual


def reason_of(policy: Estimator, row: NDArray[np.float32], action: int = WAIT_FOR_EVENT) -> Reason:
    """Return what argues for an action in a state.

    Args:
        policy: that decides.
        row: features of the state, [SIZE].
        action: index into `fermata.policy.learned.ACTIONS`, not that of starting the head.

    Raises:
        ModelError: the model fails or answers NaN, or does not say what it was taught.
    """
    if not START_HEAD < action < len(ACTIONS):
        raise ValueError(f"expected an action other than starting the head, got {action}")
    rows = np.repeat(row[np.newaxis], len(GROUPS) + 1, axis=0)
    usual = typical(policy, row)
    for fixed in _FIXED:
        usual[fixed] = row[fixed]
    for place, group in enumerate(GROUPS, 1):
        rows[place, group.columns] = usual[group.columns]
    costs = policy.costs(rows)
    saves = np.clip(costs[:, START_HEAD] - costs[:, action], -_MOST, _MOST)
    adds = saves[0] - saves[1:]
    order = np.argsort(-adds, kind="stable").tolist()
    values = dict(zip(FEATURES, row.tolist(), strict=True))
    least = max(_FEW * float(adds.max()), 0.0)
    return Reason(
        float(saves[0]),
        tuple((GROUPS[i].name, float(adds[i])) for i in order),
        tuple(GROUPS[i].words(values) for i in order if adds[i] > least),
    )


def words_for_wait(policy: object, state: ClusterState, steps: Sequence[Step]) -> str:
    """Return, for people, why a model left what it could have started waiting; empty where that has no such reason.

    Args:
        policy: that decided; rules have no estimates.
        state: in which it did.
        steps: what was decided there, as `fermata.policy.decide` returned it.
    """
    if (
        not isinstance(policy, Estimator)
        or not steps
        or steps[-1].proposed.kind != WAIT
        or steps[-1].action.kind != WAIT
    ):
        return ""
    board = policy.scored(board_of(state))
    for step in steps[:-1]:
        take(board, step.action)
    choice, row = observe_board(board)
    if choice.head < 0:
        return ""
    if choice.score < math.inf:
        return WORDS[why_held(board, choice.head)]
    try:
        found = reason_of(policy, row)
    except ModelError:
        return ""  # it has decided, and will be asked again; a sentence is not worth a fallback
    text = f"waiting looks {found.saves:.2g} mean JCTs cheaper than starting the shortest job"
    return f"{text}: {' and '.join(found.words[:_ARGUMENTS])}" if found.words else text
