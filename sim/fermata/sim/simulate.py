"""One episode: a trace, a number of executors and a policy in; times of every job and task out.

A heuristic runs inside the compiled loop, a network beside it; a policy that reads boards, and one over the whole
queue, is asked about the loop's own state. Any other policy, and any episode that is observed, is asked through
`fermata.policy.decide`, exactly as the operator asks. All give the same episode; tests compare them. The compiled loop
runs in slices, between which Python can report progress and hear Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fermata.policy._jit import kernel
from fermata.policy.action import WAIT, any_startable, check
from fermata.policy.decide import BoardPolicy, Policy, Step, corrects_estimates, decide
from fermata.policy.errors import FermataError, InputError
from fermata.policy.features import ORDER
from fermata.policy.guardrails import IDLE_POOL, NO_LIMITS, Guardrails, admit, bound
from fermata.policy.heuristics.base import Heuristic
from fermata.policy.heuristics.kernel import Rule, choose, choose_eager
from fermata.policy.heuristics.sjf import SJF
from fermata.policy.rows import peek
from fermata.policy.state import ClusterState
from fermata.policy.wording import counted
from fermata.sim.engine import DECIDE, DONE, STUCK, advance, apply
from fermata.sim.failures import Failures
from fermata.sim.learned_loop import DECISIONS_A_REPORT, run_network
from fermata.sim.trace import MAX_EXECUTORS, Trace, check_fits
from fermata.sim.trace_jobs import select_jobs
from fermata.sim.world import Tables, World, board_view, new_world, results, tables_of, view

if TYPE_CHECKING:
    from fermata.policy.onnx_policy import OnnxPolicy

FloatArray = NDArray[np.float64]
Observer = Callable[[ClusterState, tuple[Step, ...]], None]
Progress = Callable[[float], object]

SLICE_EVENTS = 10_000  # some milliseconds of a compiled episode
MOST_IDLE_WAITS = 10_000  # in a row, of a pool to which no job comes any more: of a network some seconds


class StuckError(FermataError):
    """A policy left jobs waiting although nothing runs and nothing more will happen, or only time passes."""


@dataclass(frozen=True)
class Episode:
    """What happened: arrays by job, by stage and by task in the trace's order; times in seconds."""

    trace: Trace
    executors: int
    job_start_s: FloatArray
    job_completion_s: FloatArray
    job_held_s: FloatArray  # no task ran, a stage was ready and enough executors were free
    job_run_s: FloatArray  # some task ran
    job_failed: NDArray[np.bool_]  # a stage of it failed more often than it may
    job_critical_path_s: FloatArray  # by estimate
    stage_ready_s: FloatArray
    stage_held_s: FloatArray  # likewise, of the stage's own tasks
    task_start_s: FloatArray
    task_end_s: FloatArray
    task_executor: NDArray[np.int32]
    stage_width: NDArray[np.int32]  # executors that each task took: its slots; moldable: what it was given
    events: int
    decisions: int

    @property
    def job_jct_s(self) -> FloatArray:
        """Completion minus arrival."""
        return self.job_completion_s - self.trace.job_arrival_s

    @property
    def busy_s(self) -> float:
        """Executor-seconds in use by all tasks."""
        width = np.repeat(self.stage_width, np.diff(self.trace.task_ptr))
        # Tasks of a failed job may never have run.
        return float(np.nansum((self.task_end_s - self.task_start_s) * width))

    @property
    def job_wait_s(self) -> FloatArray:
        """JCT that is neither run nor held: some stage was ready and too few executors were free."""
        return np.maximum(self.job_jct_s - self.job_run_s - self.job_held_s, 0.0)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C came in the middle of an episode.

    Attributes:
        episode: the jobs that are done, at least one, in a trace of their own.
        jobs: how many there would have been.
        figures: of the episode, added by `fermata.sim.experiment`; None if all its jobs belong to the warm-up.
    """

    def __init__(self, episode: Episode, jobs: int) -> None:
        super().__init__()
        self.episode, self.jobs = episode, jobs
        self.figures: dict[str, float] | None = None


@kernel
def _run_slice(world: World, rule: Rule, limits: Guardrails, until_event: int) -> int:
    """Run an episode under a heuristic; returns what the last `advance` said, or DECIDE if it is to be gone on with."""
    board, clock = world.board, world.clock[0]
    while True:
        if clock.events >= until_event:
            return DECIDE
        outcome = advance(world)
        if outcome != DECIDE:
            return int(outcome)
        while board.pool[0].free > 0 and board.pool[0].ready > 0:
            kind, stage, cap, until_s = choose(board, rule)
            if kind == WAIT and not any_startable(board):
                break
            kind, stage, cap, until_s, why = bound(board, kind, stage, cap, until_s, limits)
            if why == IDLE_POOL:
                kind, stage, cap, until_s = choose_eager(board, rule)
            apply(world, kind, stage, cap, until_s)
            if kind == WAIT:
                break


def run_rule(world: World, rule: Rule, limits: Guardrails, report: Callable[[], object] = lambda: None) -> int:
    """Run an episode under a heuristic, with a moment for Python after every so many events.

    Returns:
        What the last `advance` said.
    """
    until_event, outcome = 0, DECIDE
    while outcome == DECIDE:
        until_event += SLICE_EVENTS
        outcome = int(_run_slice(world, rule, limits, until_event))
        report()
    return outcome


def _run_policy(world: World, act: Callable[[], bool], report: Callable[[], object]) -> int:
    """Run an episode in which `act` takes the actions of a decision and tells whether the last one is a wait."""
    idle_waits = 0
    for asked in count():
        if asked % DECISIONS_A_REPORT == 0:
            report()
        outcome = int(advance(world))
        if outcome != DECIDE:
            break
        waits = act()
        # A timed wait is allowed on an idle pool, so a policy could ask for one after the other without end.
        clock = peek(world.clock)
        idle_waits = idle_waits + 1 if waits and clock.runs == 0 and clock.arrived == clock.jobs else 0
        if idle_waits > MOST_IDLE_WAITS:
            return STUCK
    return outcome


def _by_decide(
    world: World, policy: Policy, limits: Guardrails, fallback: Policy, observer: Observer | None
) -> Callable[[], bool]:
    """Return what asks `decide`, as the operator does."""

    def act() -> bool:
        state = view(world)
        steps = decide(state, policy, limits, fallback)
        if observer is not None and steps:
            observer(state, steps)
        for step in steps:
            apply(world, *step.action)
        return bool(steps) and steps[-1].action.kind == WAIT

    return act


def _in_place(world: World, policy: Policy, limits: Guardrails, fallback: Policy) -> Callable[[], bool]:
    """Return what takes the same steps as `decide` on the world's own board: a copy grows with the jobs so far."""

    def act() -> bool:
        ask = policy.acting_on(board_view(world)) if isinstance(policy, BoardPolicy) else None
        while any_startable(world.board):
            proposed = policy.choose(view(world)) if ask is None else ask()
            action, override = admit(world.board, proposed, limits)
            if override == IDLE_POOL:
                action = fallback.choose(view(world))
            check(world.board, action)
            apply(world, *action)
            if action.kind == WAIT:
                return True
        return False

    return act


def _network(policy: Policy) -> OnnxPolicy | None:
    """Return the policy if it is a network; ONNX Runtime takes long to import, and nobody else needs it."""
    if isinstance(policy, Heuristic):
        return None
    from fermata.policy.onnx_policy import OnnxPolicy

    return policy if isinstance(policy, OnnxPolicy) else None


def _is_over_the_queue(policy: Policy) -> bool:
    """Tell whether a policy is one over the whole queue; ONNX Runtime, as above, is not imported for others."""
    if isinstance(policy, Heuristic):
        return False
    from fermata.policy.queue_policy import QueuePolicy

    return isinstance(policy, QueuePolicy)


def simulate(
    trace: Trace,
    executors: int,
    policy: Policy,
    *,
    limits: Guardrails = NO_LIMITS,
    fallback: Policy = SJF,
    sticky: bool = False,
    failures: Failures | None = None,
    caps: NDArray[np.int32] | None = None,
    mute: NDArray[np.bool_] | None = None,
    corrects: bool | None = None,
    observer: Observer | None = None,
    progress: Progress | None = None,
) -> Episode:
    """Run one episode to the completion of every job.

    Args:
        trace: what arrives, and the true durations.
        executors: size of the pool, 1 to `MAX_EXECUTORS`.
        policy: a heuristic (compiled) or any other policy.
        limits: bounds on its holding.
        fallback: asked where the limits forbid to wait; a heuristic falls back to itself without its hold.
        sticky: a started stage keeps its executors, up to its cap, until its tasks run out (as a Kubernetes Job
            does), and is expected to; else every task's end gives its executors back to the scheduler.
        failures: of tasks; none by default.
        caps: [stages] the most tasks of each stage that run at once, at least 1; all of them by default.
        mute: [stages] whether nothing is learned of estimates from what its tasks take, as of a stage that failed in
            a cluster, where it may have ended at once; none by default.
        corrects: estimates are corrected by what finished stages took; by default if the policy is one that
            `corrects_estimates`.
        observer: called with every state and the steps decided in it; the state is a view that changes afterwards.
        progress: called now and then with the share of the jobs that are done, 0 to 1.

    Raises:
        InputError: no or too many executors, or a task that needs more executors than there are.
        Interrupted: on Ctrl-C, once a job is done; KeyboardInterrupt before.
        StuckError: the policy waits although nothing will happen any more.
    """
    if executors < 1:
        raise InputError(f"expected at least 1 executor, got {executors}")
    if executors > MAX_EXECUTORS:
        raise InputError(f"expected at most {MAX_EXECUTORS:,} executors, got {executors}")
    check_fits(trace, executors)
    tables = tables_of(trace, executors, sticky=sticky, failures=failures, caps=caps, mute=mute)
    world = new_world(tables, executors, corrects=corrects_estimates(policy) if corrects is None else corrects)

    def report() -> None:
        if progress is not None:
            progress(peek(world.clock).finished / max(trace.jobs, 1))

    try:
        if isinstance(policy, Heuristic) and observer is None:
            outcome = run_rule(world, policy.rule, limits, report)
        elif (network := _network(policy)) and isinstance(fallback, Heuristic) and observer is None:
            outcome = run_network(world, ORDER, network, limits, fallback.rule, report)
        else:
            base = policy.eager() if isinstance(policy, Heuristic) else fallback
            if observer is None and (isinstance(policy, BoardPolicy) or _is_over_the_queue(policy)):
                act = _in_place(world, policy, limits, base)
            else:
                act = _by_decide(world, policy, limits, base, observer)
            outcome = _run_policy(world, act, report)
    except KeyboardInterrupt:
        part = _finished_part(_episode(trace, executors, tables, world))
        if not part.trace.jobs:
            raise
        raise Interrupted(part, trace.jobs) from None
    if outcome != DONE:
        left = len(trace.job_ids) - int(peek(world.clock).finished)
        told = f"policy {policy.name!r} left {counted(left, 'job')} unfinished at {peek(world.board.pool).now_s:g} s"
        raise StuckError(f"{told}: it waits, and nothing will happen any more; --max-hold or --max-wait bounds that")
    return _episode(trace, executors, tables, world)


def _episode(trace: Trace, executors: int, tables: Tables, world: World) -> Episode:
    told = results(world)
    cap, failed = told.pop("stage_cap"), told.pop("job_failed")
    return Episode(
        trace=trace,
        executors=executors,
        job_failed=failed.astype(np.bool_),
        job_critical_path_s=tables.job_critical_path_s,
        stage_width=np.where(np.isnan(tables.stage_serial_fraction), tables.stage_slots, cap).astype(np.int32),
        events=int(peek(world.clock).events),
        decisions=int(peek(world.clock).decisions),
        **told,
    )


def _finished_part(episode: Episode) -> Episode:
    """Return what an episode that was cut short says of the jobs that are done."""
    jobs = ~np.isnan(episode.job_completion_s)
    stages = jobs[episode.trace.stage_job]
    tasks = np.repeat(stages, np.diff(episode.trace.task_ptr))
    kept = {"job": jobs, "stage": stages, "task": tasks}
    columns = {name: getattr(episode, name) for name in (each.name for each in fields(episode))}
    parts = {name: column[kept[name.partition("_")[0]]] for name, column in columns.items() if "_" in name}
    return replace(episode, trace=select_jobs(episode.trace, np.flatnonzero(jobs)), **parts)
