"""Small traces, policies written in Python, and what must hold of any episode, whatever policy made it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest

from fermata.policy.action import HOLD, START, WAIT, Action, startable
from fermata.policy.board import Board, board_of, state_of
from fermata.policy.dag import Dag, GraphReader
from fermata.policy.decide import Policy, Step
from fermata.policy.errors import ModelError
from fermata.policy.guardrails import NO_LIMITS, Guardrails
from fermata.policy.registry import load
from fermata.policy.state import ClusterState
from fermata.policy.transition import begin
from fermata.sim.metrics import job_shapes
from fermata.sim.simulate import Episode, simulate
from fermata.sim.trace import Trace
from fermata.sim.trace_builder import StageSpec, TraceBuilder
from fermata.sim.trace_jobs import stage_work_s


def stage(name: str, duration_s: float | Sequence[float], *parents: str, tasks: int = 1, slots: int = 1) -> StageSpec:
    """A stage of `tasks` equal tasks, or of one task for each duration."""
    durations = [float(duration_s)] * tasks if isinstance(duration_s, int | float) else [*map(float, duration_s)]
    return StageSpec(name, durations, parents, slots)


def trace_of(*jobs: tuple[float, Sequence[StageSpec]]) -> Trace:
    """Jobs `j0`, `j1`, ... from their arrivals and stages."""
    builder = TraceBuilder()
    for number, (arrival_s, stages) in enumerate(jobs):
        builder.add_job(f"j{number}", arrival_s, stages)
    return builder.finish()


def one_stage_jobs(*jobs: tuple[float, float]) -> Trace:
    """Jobs of one task from (arrival, duration)."""
    return trace_of(*((arrival_s, [stage("a", duration_s)]) for arrival_s, duration_s in jobs))


@dataclass(frozen=True)
class Python:
    """A policy from a function, so that `simulate` has to ask `decide`."""

    answer: Callable[[ClusterState], Action]
    name: str = "python"

    def choose(self, state: ClusterState) -> Action:
        return self.answer(state)


class MostChildren(GraphReader):
    """Starts the stage with the most children; fails where it does not know the edges."""

    name = "most-children"

    def __init__(self, dag: Dag | None = None) -> None:
        self.dag = dag

    def knowing(self, dag: Dag) -> MostChildren:
        return MostChildren(dag)

    def act(self, board: Board) -> Action:
        if self.dag is None:
            raise ModelError("no edges")
        ready = state_of(board).ready_stages.tolist()
        return Action(START, max(ready, key=np.diff(self.dag.child_ptr).tolist().__getitem__), 1)


def startable_stages(state: ClusterState) -> list[int]:
    board = board_of(state)
    return sorted(int(each) for each in state.ready_stages if startable(board, each))


def any_legal_action(seed: int) -> Python:
    """A policy that takes any legal action, drawn from the seed and the state: deterministic and without memory."""

    def answer(state: ClusterState) -> Action:
        words = [seed, state.free, int(state.stage_pending.sum()), int(np.isfinite(state.stage_hold_until_s).sum())]
        rng = np.random.default_rng([*words, int(np.float64(state.now_s).view(np.uint64))])
        chosen = int(rng.choice(startable_stages(state)))
        later_s = state.now_s + float(rng.choice([0.5, 1.0, rng.exponential(3.0) + 1e-3]))
        draw = rng.random()
        if draw < 0.15 and state.free < state.executors:
            return Action(WAIT, until_s=math.inf)
        if draw < 0.3:
            return Action(WAIT, until_s=later_s)
        if draw < 0.45 and state.stage_cap[chosen] == 0:
            return Action(HOLD, chosen, until_s=later_s)
        lowest, highest = int(state.stage_running[chosen]) + 1, int(state.stage_max_cap[chosen])
        return Action(START, chosen, int(rng.integers(lowest, highest + 1)))

    return Python(answer, f"any legal action {seed}")


def random_trace(seed: int, executors: int) -> Trace:
    """Jobs of every kind the format knows, many of whose events fall together."""
    rng = np.random.default_rng(seed)
    builder = TraceBuilder()
    arrival_s = 0.0
    for job in range(int(rng.integers(1, 30))):
        arrival_s += float(rng.choice([0.0, 1.0, rng.exponential(4.0)]))
        stages: list[StageSpec] = []
        for number in range(int(rng.integers(1, 6))):
            parents = [each.name for each in stages if rng.random() < 0.4]
            moldable = rng.random() < 0.15
            tasks = 1 if moldable else int(rng.integers(1, 7))
            whole = rng.integers(0, 6, tasks).astype(float)
            stages.append(
                StageSpec(
                    name=f"s{number}",
                    durations_s=(whole if rng.random() < 0.5 else rng.exponential(3.0, tasks)).tolist(),
                    depends_on=parents,
                    slots=1 if moldable else int(rng.integers(1, executors + 1)) if rng.random() < 0.3 else 1,
                    estimate_s=None if rng.random() < 0.7 else float(rng.exponential(3.0)),
                    serial_fraction=float(rng.random()) if moldable else None,
                )
            )
        builder.add_job(f"j{job}", arrival_s, stages, float(rng.choice([1.0, 2.0])))
    return builder.finish()


def log_of(episode: Episode) -> list[list[float]]:
    """Everything that an episode says, bit for bit."""
    arrays = (
        episode.task_start_s,
        episode.task_end_s,
        episode.task_executor,
        episode.stage_width,
        episode.stage_ready_s,
        episode.stage_held_s,
        episode.job_start_s,
        episode.job_completion_s,
        episode.job_held_s,
        episode.job_run_s,
        np.array([episode.events, episode.decisions]),
    )
    return [array.tolist() for array in arrays]


def assert_consistent(episode: Episode) -> None:
    """What holds of every episode: computed from the tasks' times alone, without the engine's own accounts."""
    trace = episode.trace
    start_s, end_s = episode.task_start_s, episode.task_end_s
    assert np.isfinite(start_s).all()
    assert np.isfinite(end_s).all()
    _assert_durations(episode)
    _assert_executors(episode)
    for each in range(trace.stages):
        tasks = slice(int(trace.task_ptr[each]), int(trace.task_ptr[each + 1]))
        job = int(trace.stage_job[each])
        parents = trace.parent[trace.parent_ptr[each] : trace.parent_ptr[each + 1]]
        ends = [end_s[trace.task_ptr[above] : trace.task_ptr[above + 1]].max() for above in parents]
        assert episode.stage_ready_s[each] == max([trace.job_arrival_s[job], *ends])
        assert start_s[tasks].min() >= episode.stage_ready_s[each]
    for job in range(trace.jobs):
        first, last = trace.task_ptr[trace.job_stage_ptr[job]], trace.task_ptr[trace.job_stage_ptr[job + 1]]
        assert episode.job_start_s[job] == start_s[first:last].min()
        assert episode.job_completion_s[job] == end_s[first:last].max()
    np.testing.assert_allclose(episode.job_run_s, [_run_s(episode, job) for job in range(trace.jobs)], atol=1e-9)
    held_s = [_held_s(episode, job) for job in range(trace.jobs)]
    np.testing.assert_allclose(episode.job_held_s, held_s, atol=1e-9)
    accounted_s = episode.job_run_s + episode.job_held_s + episode.job_wait_s
    np.testing.assert_allclose(accounted_s, episode.job_jct_s, atol=1e-9)
    _assert_bounds(episode)


def _assert_durations(episode: Episode) -> None:
    trace = episode.trace
    of_task = np.repeat(np.arange(trace.stages), np.diff(trace.task_ptr))
    serial, width = trace.stage_serial_fraction[of_task], episode.stage_width[of_task]
    duration_s = np.where(
        np.isnan(serial), trace.task_duration_s, trace.task_duration_s * (serial + (1.0 - serial) / width)
    )
    np.testing.assert_array_equal(episode.task_end_s, episode.task_start_s + duration_s)
    moldable = ~np.isnan(trace.stage_serial_fraction)
    assert (episode.stage_width[~moldable] == trace.stage_slots[~moldable]).all()
    assert ((episode.stage_width[moldable] >= 1) & (episode.stage_width[moldable] <= episode.executors)).all()


def _assert_executors(episode: Episode) -> None:
    """Never more executors in use than there are, and none of them twice at once."""
    for executor in range(episode.executors):
        (tasks,) = np.nonzero(episode.task_executor == executor)
        order = tasks[np.lexsort((episode.task_end_s[tasks], episode.task_start_s[tasks]))]
        assert (episode.task_start_s[order[1:]] >= episode.task_end_s[order[:-1]]).all()
    for instant in episode.task_start_s:
        assert in_use(episode, instant) <= episode.executors


def in_use(episode: Episode, instant_s: float) -> int:
    """Executors in use just after an instant."""
    width = np.repeat(episode.stage_width, np.diff(episode.trace.task_ptr))
    return int(width[(episode.task_start_s <= instant_s) & (episode.task_end_s > instant_s)].sum())


def _tasks_of_job(episode: Episode, job: int) -> slice:
    ptr, stages = episode.trace.task_ptr, episode.trace.job_stage_ptr
    return slice(int(ptr[stages[job]]), int(ptr[stages[job + 1]]))


def _run_s(episode: Episode, job: int) -> float:
    """Length of the union of the job's tasks."""
    tasks = _tasks_of_job(episode, job)
    total_s, until_s = 0.0, -math.inf
    for start_s, end_s in sorted(zip(episode.task_start_s[tasks], episode.task_end_s[tasks], strict=True)):
        total_s += max(0.0, end_s - max(start_s, until_s))
        until_s = max(until_s, end_s)
    return float(total_s)


def _held_s(episode: Episode, job: int) -> float:
    """Time in which no task of the job ran, and one of its stages was ready, had tasks left, and would have fitted."""
    trace, tasks = episode.trace, _tasks_of_job(episode, job)
    instants = np.unique(np.concatenate([episode.task_start_s, episode.task_end_s, episode.stage_ready_s]))
    total_s = 0.0
    for begin_s, end_s in pairwise(instants.tolist()):
        if ((episode.task_start_s[tasks] <= begin_s) & (episode.task_end_s[tasks] > begin_s)).any():
            continue
        free = episode.executors - in_use(episode, begin_s)
        for each in range(int(trace.job_stage_ptr[job]), int(trace.job_stage_ptr[job + 1])):
            last_s = episode.task_start_s[trace.task_ptr[each] : trace.task_ptr[each + 1]].max()
            if episode.stage_ready_s[each] <= begin_s < last_s and trace.stage_slots[each] <= free:
                total_s += end_s - begin_s
                break
    return float(total_s)


def _assert_bounds(episode: Episode) -> None:
    """No schedule is shorter than the longest path, or than all work spread over all executors."""
    trace = episode.trace
    shapes = job_shapes(trace, episode.executors)
    assert (episode.job_jct_s >= shapes.critical_path_s - 1e-9).all()
    makespan_s = episode.job_completion_s.max() - trace.job_arrival_s.min()
    moldable = ~np.isnan(trace.stage_serial_fraction)
    assert makespan_s * episode.executors >= episode.busy_s - 1e-6
    # A moldable stage uses at least its work; every other stage exactly its own.
    assert episode.busy_s >= stage_work_s(trace).sum() * (1.0 - 1e-12) - 1e-9
    if not moldable.any():
        assert episode.busy_s == pytest.approx(stage_work_s(trace).sum())


def states_of(trace: Trace, executors: int, policy: Policy) -> list[ClusterState]:
    """Copies of all states of an episode in which something was decided."""
    states: list[ClusterState] = []

    def keep(state: ClusterState, _: tuple[Step, ...]) -> None:
        states.append(ClusterState(*(np.copy(field) if isinstance(field, np.ndarray) else field for field in state)))

    simulate(trace, executors, policy, observer=keep)
    return states


def first_state(trace: Trace, executors: int) -> ClusterState:
    """The state at the first arrival, with everything free."""
    return states_of(trace, executors, load("fifo"))[0]


def apart(state: ClusterState) -> ClusterState:
    """The same state as if its jobs had come one by one."""
    seen = len(state.recent_arrival_s)
    return state._replace(recent_arrival_s=state.now_s - 1e6 * np.arange(seen, 0.0, -1.0))


def started(state: ClusterState, stage: int, cap: int) -> ClusterState:
    """The state after a START; the given one stays as it is."""
    board = board_of(state)
    begin(board, stage, cap)
    return state_of(board)


def expect_the_steps_of_decide(
    trace: Trace, executors: int, policy: Policy, patch: pytest.MonkeyPatch, limits: Guardrails = NO_LIMITS
) -> None:
    """Expect an episode in which the policy is asked about the simulator's own state to be the one that `decide` makes.

    Which makes copies of all jobs so far, at every event.
    """
    observed = simulate(trace, executors, policy, limits=limits, observer=lambda state, steps: None)
    patch.delattr("fermata.sim.simulate.decide")
    alone = simulate(trace, executors, policy, limits=limits)
    for field in ("task_start_s", "task_end_s", "task_executor", "stage_held_s", "job_held_s"):
        np.testing.assert_array_equal(getattr(alone, field), getattr(observed, field))
    assert (alone.decisions, alone.events) == (observed.decisions, observed.events)
