"""The experts for DAGs: piecewise linear rules for waiting, found by trying them on whole episodes.

What one task more or less does to a job of many is lost in the noise of a rollout, and a network fitted to such labels
waits for nothing, again and again. But the rule is simple: wait while more short jobs are expected before the next
completion than a threshold, which grows with what waits. So its weights are searched for directly, by what they do to
the mean JCT of random scenarios. What bends the rule where pools and mixes differ are two linear functions more: one
is added where it is above zero, one taken away. For DAGs of single tasks the rule that the search would begin with is
as good as what it finds (docs/adr/0015-a-rule-for-pods.md).

Source: the cross-entropy method (de Boer et al., "A tutorial on the cross-entropy method", 2005).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from fermata.policy.features import FEATURES, SIZE
from fermata.policy.learned import BOUND, START_ALTERNATIVE, WAIT_FOR_EVENT, Network, expert_for
from fermata.sim.processes import Workers
from fermata.sim.trace import FloatArray
from fermata.training.config import TrainConfig
from fermata.training.files import read_arrays, unfitting, write_arrays
from fermata.training.network import CostNetwork, Expert
from fermata.training.play import log_ratio, seen_states
from fermata.training.search_episodes import STREAM, cost_of, numbered_case, plan_of

PARTS = 3  # linear functions a, b, c; the score of a wait is a + max(b, 0) - max(c, 0)
# Where no second or third executor is busy, the time until it is free is as far as a feature goes: a case apart.
NO_SUCH = ("second completion / unit", "third completion / unit")
_NO_SUCH_ABOVE = 7.0  # of those features, which are logarithms and end at 9.2
# Weights of a part: of the features less their means, of how far those exceed that, and a constant. Were they not less
# their means, a step in a weight would move the constant, too, and a search would look for that all the time.
WIDTH = SIZE + len(NO_SUCH) + 1
HIDDEN = (2 * PARTS + len(NO_SUCH) + 1, PARTS + 2)
_BEFORE_NEXT = "arrivals of under half a unit before the next completion"
_DURING_TASK = "arrivals of under half a unit during the head's task"


class Start(NamedTuple):
    """The rule that a search begins with; what it leaves out is 0."""

    constants: tuple[float, float, float]  # of the parts
    weights: tuple[dict[str, float], ...]  # of the first parts, by feature


_OUT = -0.2  # a constant that leaves a part just out of action
# By index into EXPERTS: what did well on seeds 1000 to 1019 and from 3000 on of `dag_pods` and `dag_wide`, the only
# thing here that comes from named scenarios, and on random ones. Of pods those short jobs count that are expected
# before the next completion, but not more than while the head's task runs: the second part takes away what is more.
START = {
    1: Start(
        (0.87, 0.0, _OUT),
        (
            {
                _BEFORE_NEXT: -1.0,
                "waiting jobs": 0.8,
                "log free executors": 4.0,
                "log executors": -0.45,
                # MISS_MARGIN asks for 20 units more where all estimates missed; pods are worth three quarters of it.
                "misses of recent estimates": -15.0,
            },
            {_BEFORE_NEXT: 1.0, _DURING_TASK: -1.0},
        ),
    ),
    2: Start(
        (-0.4, _OUT, _OUT),
        (
            {
                _BEFORE_NEXT: -1.0,
                _DURING_TASK: -0.4,
                "second completion / unit": -0.3,
                "waiting jobs": 0.8,
                "log free executors": 4.0,
                "head's path / longest path left of its job": 1.6,
                "busy executors with the head's job, share": 1.0,
            },
        ),
    ),
}
# The other features that the rule may read.
ALSO = (
    "log executors",
    "next completion / unit",
    "third completion / unit",
    "load by recent arrivals",
    "arrivals of under half a unit during the head",
    "arrivals of up to 2 units before the next completion",
    "mean arrival under half a unit / unit",
    "head's task / unit",
    "head's path / unit",
    "executors held by other jobs with less left, share",
    "active jobs per executor",
    "active jobs with a stage of more than one task, share",
    "error of recent estimates",
    "misses of recent estimates",
    "startable stages of jobs that have an executor",
    "share of arrivals under half a unit",
    "share of arrivals up to 2 units",
    "share of arriving work over 2 units",
)
_STARTS = {name for start in START.values() for part in start.weights for name in part}
_READ = np.array([name in ALSO or name in _STARTS for name in FEATURES])
_COST = 0.1  # mean JCTs that a wait is said to cost, or to save, for each unit of the rule's score
_NEVER = 9.0  # mean JCTs: what is not worth looking at
_IDLE, _STEEP = 0.95, 40.0  # share of the executors above which a wait costs this much a share
_LEAST_SCALE = 0.1  # of a feature, in what a step of its weight is
_KEEP, _MOVE = 0.8, 0.7  # of the spread, and towards the elite, each generation
_SEEN = 100  # scenarios whose states say what features are like


class State(NamedTuple):
    """Where a search is: the weights of a rule's parts, and how far it still looks around them."""

    history: FloatArray  # [generations] mean log ratio of the centre on each generation's episodes
    centre: FloatArray  # [PARTS, WIDTH]
    spread: FloatArray  # [PARTS, WIDTH]
    mean: FloatArray  # [SIZE] of the features
    scale: FloatArray  # [SIZE]

    @property
    def generation(self) -> int:
        """How many generations are done."""
        return len(self.history)


def under_margin(expert: Expert, margin: float, other: float) -> Expert:
    """Return an expert, changed in place, that decides under another margin as it did under one."""
    with torch.no_grad():
        expert.layers[-1].bias[WAIT_FOR_EVENT - 1] += margin - other
    return expert


def expert_of(centre: FloatArray, mean: FloatArray, scale: FloatArray) -> Expert:
    """Return the expert whose wait costs what a rule `[PARTS, WIDTH]` says, in units of `_COST`.

    A rectified unit keeps half of a number, so each part goes through the first layer as two, and so does the rule's
    own through the second; beside them are how far there is no such completion, and a unit that keeps an idle pool from
    waiting.
    """
    expert = Expert(HIDDEN)
    first, second, last = (expert.layers[index] for index in (0, 2, 4))
    beyond, idle = 2 * PARTS, HIDDEN[0] - 1
    with torch.no_grad():
        for parameter in expert.parameters():
            parameter.zero_()
        expert.mean, expert.scale = torch.from_numpy(mean).float(), torch.from_numpy(scale).float()
        for part, weights in enumerate(centre):
            linear, constant = weights[:SIZE] * scale, weights[-1]
            for unit, sign in ((2 * part, 1.0), (2 * part + 1, -1.0)):
                first.weight[unit], first.bias[unit] = torch.from_numpy(sign * linear), sign * constant
        above = [(beyond + k, FEATURES.index(name), _NO_SUCH_ABOVE) for k, name in enumerate(NO_SUCH)]
        for unit, index, limit in [*above, (idle, FEATURES.index("free share"), _IDLE)]:
            first.weight[unit, index], first.bias[unit] = float(scale[index]), float(mean[index]) - limit
        for unit, (part, sign) in enumerate([(0, 1.0), (0, -1.0), *((part, 1.0) for part in range(1, PARTS))]):
            second.weight[unit, 2 * part], second.weight[unit, 2 * part + 1] = sign, -sign
            second.weight[unit, beyond:idle] = torch.from_numpy(sign * centre[part, SIZE:-1])
        second.weight[-1, idle] = 1.0
        last.weight[WAIT_FOR_EVENT - 1] = torch.tensor([_COST, -_COST, _COST, -_COST, _STEEP])
        last.bias[START_ALTERNATIVE - 1] = _NEVER
    return expert


def _with(network: CostNetwork, index: int, expert: Expert, margin: float) -> Network:
    """Return a network, compiled, with one expert in place of its own."""
    other = copy.deepcopy(network)
    other.experts[index] = expert
    return other.compiled(margin)


class Task(NamedTuple):
    """What is searched for: an expert beside the others of a network."""

    config: TrainConfig
    which: int  # index into EXPERTS
    network: CostNetwork

    @property
    def generations(self) -> int:
        """How many there are to be."""
        return self.config.generations(self.which)

    def path(self, run: Path) -> Path:
        """Return where the state of the search is kept."""
        return run / f"threshold-{self.which}.npz"


def _begin(task: Task) -> State:
    """Return where the search begins; what features are like is seen in episodes of the rule that it begins with."""
    config, index, network = task
    search = plan_of(config)
    centre = np.zeros((PARTS, WIDTH))
    centre[:, -1] = START[index].constants
    for part, weights in enumerate(START[index].weights):
        for name, weight in weights.items():
            centre[part, FEATURES.index(name)] = weight
    first = _with(network, index, expert_of(centre, np.zeros(SIZE), np.full(SIZE, 1e9)), config.margin)
    count = min(_SEEN, search.scenarios)
    x = np.concatenate([seen_states(first, numbered_case(config, index, number), 200) for number in range(count)])
    of_kind = [expert_for(row) == index for row in x]
    mine = x[of_kind] if any(of_kind) else x  # jobs of this kind may be too rare in a trace to have been met
    mean, spread = mine.mean(0), np.maximum(mine.std(0), 1e-3)
    # What was seen is not strange, however rare: in a small pool a share of the executors has few values.
    scale = np.maximum(spread, np.abs(mine - mean).max(0) / BOUND)
    # A step in any weight is to change the score about as much.
    units = np.concatenate([_READ / np.maximum(spread, _LEAST_SCALE), np.full(len(NO_SUCH), 0.5), [1.0]])
    centre[:, -1] += centre[:, :SIZE] @ mean
    return State(np.zeros(0), centre, search.spread * np.tile(units, (PARTS, 1)), mean, scale)


def _step(task: Task, state: State, workers: Workers) -> State:
    """Try a generation of weights on a batch of episodes, and move to the best of them."""
    config, search = task.config, plan_of(task.config)
    rng = np.random.default_rng([config.seed, STREAM, task.which, search.scenarios, state.generation])
    numbers = rng.choice(search.scenarios, min(search.batch, search.scenarios), replace=False).tolist()
    tried = state.centre + state.spread * rng.standard_normal((search.population, PARTS, WIDTH))
    tried[0] = state.centre
    experts = (expert_of(each, state.mean, state.scale) for each in tried)
    networks = [_with(task.network, task.which, each, config.margin) for each in experts]
    cost = partial(cost_of, config=config, index=task.which, numbers=numbers)
    costs = np.array(list(workers.map(cost, networks, chunksize=max(1, search.population // (4 * config.processes)))))
    elite = tried[np.argsort(costs, kind="stable")[: max(2, search.population // 4)]]
    spread = _KEEP * state.spread + (1.0 - _KEEP) * np.sqrt(((elite - state.centre) ** 2).mean(0))
    centre = state.centre + _MOVE * (elite.mean(0) - state.centre)
    return state._replace(history=np.append(state.history, costs[0]), centre=centre, spread=spread)


def search_threshold(task: Task, run: Path, on_generation: Callable[[FloatArray], object]) -> Expert:
    """Run, or go on with, a search and return the expert that it ends with.

    Args:
        task: what is searched for.
        run: folder in which the search's state is kept.
        on_generation: told the mean log ratio of each generation so far.
    """
    path = task.path(run)
    if not path.exists():
        write_arrays(path, _begin(task)._asdict())
    state = _read(path)
    with Workers(task.config.processes) as workers:
        while state.generation < task.generations:
            on_generation(state.history)
            state = _step(task, state, workers)
            write_arrays(path, state._asdict())
    on_generation(state.history)
    return expert_of(state.centre, state.mean, state.scale)


def finished_expert(task: Task, run: Path) -> Expert | None:
    """Return what a search ended with, or None if it has not."""
    path = task.path(run)
    state = _read(path) if path.exists() else None
    if state is None or state.generation < task.generations:
        return None
    return expert_of(state.centre, state.mean, state.scale)


def judged_pct(task: Task, expert: Expert, cases: int) -> tuple[float, float]:
    """Return how an expert does on episodes that no search saw: mean and worst change of the mean JCT, in percent."""
    config, index, network = task
    compiled, first = _with(network, index, expert, config.margin), plan_of(config).scenarios
    ratios = [log_ratio(compiled, numbered_case(config, index, first + number)) for number in range(cases)]
    return 100.0 * math.expm1(float(np.mean(ratios))), 100.0 * math.expm1(max(ratios))


def _read(path: Path) -> State:
    state = State(**read_arrays(path, State._fields))
    if [array.shape for array in state[1:]] != [(PARTS, WIDTH), (PARTS, WIDTH), (SIZE,), (SIZE,)]:
        raise unfitting(path)
    return state
