"""What a graph policy learned: the same questions as for the models of three actions, as far as they have a meaning.

A graph policy gives scores, not costs, so nothing is said of what a hold saves; and it chooses among all stages, so an
action is told by what it starts: the head (a stage of the job with the least remaining work), another, or nothing now
(a wait, or a hold of the papers' space). Inputs stand on four levels, and one is dealt out anew among all rows of its
level: stages, jobs, states or options. Its own number of waiting jobs cannot be changed without other jobs in the
graph, so dependence is shown on the next completion alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fermata.policy.action import HOLD, WAIT, Action
from fermata.policy.board import Board
from fermata.policy.dag import Dag, GraphReader
from fermata.policy.features import FEATURES
from fermata.policy.graph_actions import WAIT_CHOICE, Choices, action_of, best, best_choices
from fermata.policy.graph_features import JOB_FEATURES, OPTION_FEATURES, PRIOR_COLUMN, STAGE_FEATURES, STATE_FEATURES
from fermata.policy.graph_policy import GraphPolicy
from fermata.policy.graph_state import GraphState, graph_state, join
from fermata.policy.guardrails import Guardrails
from fermata.policy.learned import ACTIONS, START_ALTERNATIVE, START_HEAD, WAIT_FOR_EVENT
from fermata.sim.explain.dependence import NEXT, Curve, Dependence, a_long_is_the_head, with_next
from fermata.sim.explain.importance import Importance
from fermata.sim.explain.states import Outcome, Place, States, Workload, places_of, possible_by, something_runs
from fermata.sim.metrics import Interval
from fermata.sim.simulate import simulate
from fermata.sim.trace import FloatArray

LEVELS = {
    "stage": ("stage_x", STAGE_FEATURES),
    "job": ("job_x", JOB_FEATURES),
    "state": ("state_x", STATE_FEATURES),
    "option": ("option_x", OPTION_FEATURES),
}
_UNKNOWN = Interval(float("nan"), float("nan"))
_NEXT_OF_STAGE = STAGE_FEATURES.index("next completion / task")
_NEXT_OF_JOB = JOB_FEATURES.index("next completion / remaining work")
_TOGETHER = 256  # states that the network is asked about at once
_DEALS = 2  # permutations of each input, averaged


@dataclass
class _Watched(GraphReader):
    """A graph policy that keeps an even sample of what it was asked, and counts what it answered."""

    policy: GraphPolicy
    most: int
    random: np.random.Generator
    kept: list[GraphState] = field(default_factory=list)
    taken: NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(ACTIONS), np.int64))

    @property
    def name(self) -> str:
        """Name of the policy that is watched."""
        return self.policy.name

    def knowing(self, dag: Dag) -> _Watched:
        """Return the same policy for states whose stages have these edges."""
        return replace(self, policy=self.policy.knowing(dag))

    def act(self, board: Board) -> Action:
        """Return the policy's action."""
        graph, menu = graph_state(board, self.policy.dag_of(board))
        choice = best(self.policy.scores(graph))
        action = action_of(menu, choice, self.policy.space)
        self.taken[_kind(graph, choice.row, action.kind in (WAIT, HOLD))] += 1
        seen = int(self.taken.sum())
        if seen <= self.most:
            self.kept.append(graph)
        elif (at := int(self.random.integers(seen))) < self.most:
            self.kept[at] = graph
        return action


def _kind(graph: GraphState, row: int, later: bool) -> int:
    if later:
        return WAIT_FOR_EVENT
    jobs = graph.stage_job[graph.choice_stage]
    smallest = graph.job_x[jobs, PRIOR_COLUMN].min()
    return START_HEAD if graph.job_x[jobs[row], PRIOR_COLUMN] == smallest else START_ALTERNATIVE


@dataclass(frozen=True)
class GraphStates:
    """States in which a graph policy decided; `states.rows` are the pool's inputs."""

    states: States
    graphs: tuple[GraphState, ...]


def collect_graphs(
    policy: GraphPolicy,
    workloads: Sequence[Workload],
    seeds: Sequence[int],
    limits: Guardrails,
    most: int,
    progress: Callable[[float], object],
) -> GraphStates:
    """Run episodes under a graph policy and keep at most `most` states of each, every one as likely as any other.

    Raises:
        InputError, ModelError, StuckError: as `places_of` and `simulate`.
    """
    places = places_of(workloads, seeds)
    graphs: list[GraphState] = []
    picked, numbers, taken, outcomes = [], [], [], []
    for done, place in enumerate(places, 1):
        watched, outcome = _watch(policy, place, limits, most)
        graphs += watched.kept
        picked.append(_picked(policy, watched.kept))
        numbers.append(len(watched.kept))
        taken.append(watched.taken)
        outcomes.append(outcome)
        progress(done / len(places))
    rows = np.concatenate([graph.state_x for graph in graphs])
    possible = possible_by(rows)
    possible[:, WAIT_FOR_EVENT] = something_runs(rows)  # no crowd keeps a graph policy from it
    states = States(
        workloads=tuple(each.name for each in workloads),
        seeds=tuple(seeds),
        rows=rows,
        costs=np.full((len(rows), len(ACTIONS)), np.nan),
        possible=possible,
        picked=np.concatenate(picked),
        workload=np.repeat([each.workload for each in places], numbers),
        seed=np.repeat([each.seed for each in places], numbers),
        taken=np.array(taken).reshape(len(workloads), len(seeds), len(ACTIONS)),
        outcomes=tuple(tuple(outcomes[row * len(seeds) : (row + 1) * len(seeds)]) for row in range(len(workloads))),
    )
    return GraphStates(states, tuple(graphs))


def _watch(policy: GraphPolicy, place: Place, limits: Guardrails, most: int) -> tuple[_Watched, Outcome]:
    trace = place.trace
    watched = _Watched(policy.knowing(Dag.of_parents(trace.parent_ptr, trace.parent)), most, np.random.default_rng(0))
    episode = simulate(trace, place.executors, watched, limits=limits, sticky=place.sticky)
    jct_s, held_s = episode.job_jct_s[place.warm :], episode.job_held_s[place.warm :]
    return watched, Outcome(float(jct_s.mean()), float(held_s.mean()))


def _choices(policy: GraphPolicy, graph: GraphState) -> Choices:
    """Return what a policy chooses in some states next to each other."""
    state = graph.job_state[graph.stage_job[graph.choice_stage]]
    return best_choices(policy.answers(graph, np.searchsorted(state, np.arange(len(graph.can_wait) + 1))))


def _picked(policy: GraphPolicy, graphs: Sequence[GraphState]) -> NDArray[np.intp]:
    """Return the kind of what a policy does in each state."""
    found = []
    for first in range(0, len(graphs), _TOGETHER):
        some = list(graphs[first : first + _TOGETHER])
        choices = _choices(policy, join(some))
        begins = np.cumsum([0, *(len(graph.choice_stage) for graph in some[:-1])])
        later = (choices.row == WAIT_CHOICE) | (choices.delay > 0)
        rows = np.where(later, 0, choices.row - begins)
        found += [_kind(*each) for each in zip(some, rows.tolist(), later.tolist(), strict=True)]
    return np.array(found, np.intp)


def read_inputs(policy: GraphPolicy) -> list[tuple[str, int]]:
    """Return level and column of every input that a model reads, by its metadata."""
    told = policy.metadata.get("features")
    known = told if isinstance(told, dict) else {level: names for level, (_, names) in LEVELS.items()}
    return [
        (level, column)
        for level, (_, names) in LEVELS.items()
        for column, name in enumerate(names)
        if name in known.get(level, ())
    ]


def permuted_inputs(policy: GraphPolicy, found: GraphStates, progress: Callable[[float], object]) -> list[Importance]:
    """Return the importance of every input that a model reads: how many choices change where it is dealt out anew.

    Nothing is exchanged between workloads.
    """
    states, inputs = found.states, read_inputs(policy)
    changed = np.zeros((len(inputs), len(states.rows)))
    random = np.random.default_rng(0)
    done, total = 0, len(states.rows)
    for number in range(len(states.workloads)):
        where = np.flatnonzero(states.workload == number)
        # Dealt among the states that are asked together, of all seeds: enough for an input to lose its meaning.
        for some in np.array_split(random.permutation(where), max(1, -(-len(where) // _TOGETHER))):
            graph = join([found.graphs[i] for i in some])
            before = _choices(policy, graph)
            for row, (level, column) in enumerate(inputs):
                for _ in range(_DEALS):
                    after = _choices(policy, _dealt(graph, level, column, random))
                    differ = np.any([a != b for a, b in zip(before, after, strict=True)], axis=0)
                    changed[row, some] += differ / _DEALS
            done += len(some)
            progress(done / total)
    names = [f"{level}: {LEVELS[level][1][column]}" for level, column in inputs]
    told = [
        Importance(name, (), False, states.over_seeds(values), _UNKNOWN)
        for name, values in zip(names, changed, strict=True)
    ]
    return sorted(told, key=lambda each: -each.changed.mean)


def _dealt(graph: GraphState, level: str, column: int, random: np.random.Generator) -> GraphState:
    """Return states in which one input is dealt out anew among all rows that have it."""
    name, _ = LEVELS[level]
    x = getattr(graph, name).copy()
    if level == "option":
        there = graph.option_mask
        x[there, column] = random.permutation(x[there, column])
    else:
        x[:, column] = random.permutation(x[:, column])
    return graph._replace(**{name: x})


def dependence_on_next(policy: GraphPolicy, found: GraphStates) -> Dependence:
    """Return the share of states held over the next completion; see `fermata.sim.explain.dependence`.

    Every input that follows from the next completion is changed with it: of the pool, of jobs and of stages.
    """
    states = found.states
    where = np.flatnonzero(a_long_is_the_head(states))
    if not len(where):
        return Dependence(0)
    held = np.full((len(NEXT), len(states.rows)), np.nan)
    for some in np.array_split(where, max(1, -(-len(where) // _TOGETHER))):
        graph = join([found.graphs[i] for i in some])
        for point, ratio in enumerate(NEXT):
            choices = _choices(policy, _with_next(graph, ratio))
            held[point, some] = (choices.row == WAIT_CHOICE) | (choices.delay > 0)
    curve = Curve(float("nan"), np.array(NEXT), tuple(states.over_seeds(values) for values in held), ())
    return Dependence(len(where), (curve,))


def _with_next(graph: GraphState, ratio: float) -> GraphState:
    column = FEATURES.index("next completion / unit")
    before: FloatArray = np.maximum(np.expm1(graph.state_x[:, column].astype(np.float64)), 1e-6)
    scale = ratio / before
    job_x, stage_x = graph.job_x.copy(), graph.stage_x.copy()
    for x, at, state in (
        (job_x, _NEXT_OF_JOB, graph.job_state),
        (stage_x, _NEXT_OF_STAGE, graph.job_state[graph.stage_job]),
    ):
        x[:, at] = np.log1p(np.expm1(x[:, at].astype(np.float64)) * scale[state])
    return graph._replace(state_x=with_next(graph.state_x, ratio), job_x=job_x, stage_x=stage_x)
