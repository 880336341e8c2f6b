"""Episodes of a policy over many seeds, and the figures that they give: what every comparison is made of.

An episode is named by scenario, seed and setting and drawn where it is run, so processes can share the work and the
figures cannot depend on how many there are. Nothing here knows files, tables or the command line.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from fermata.policy import dag
from fermata.policy.decide import Policy
from fermata.policy.guardrails import NO_LIMITS, Guardrails
from fermata.policy.registry import load
from fermata.sim.failures import Failures
from fermata.sim.metrics import job_shapes, mean_ci95, summarize
from fermata.sim.processes import Workers
from fermata.sim.scenarios import Scenario
from fermata.sim.simulate import Episode, Interrupted, Observer, Progress, simulate
from fermata.sim.trace import Trace

Figures = dict[str, float]
U = TypeVar("U")
R = TypeVar("R")

# Figures that say how much was simulated; over several seeds they add up, and the others are averaged.
TOTALS = ("jobs", "failed_jobs", "decisions", "events", "wall_s")


@dataclass(frozen=True)
class Setting:
    """What an episode is run with, apart from its jobs.

    Args:
        policy: what `fermata.policy.registry.load` accepts.
        executors: size of the pool, at least 1.
        warm: jobs, by arrival, that the means leave out.
        limits: bounds on the policy's holding.
        sticky: a started stage keeps its executors until its tasks run out.
        failures: of tasks.
    """

    policy: str
    executors: int
    warm: int = 0
    limits: Guardrails = NO_LIMITS
    sticky: bool = False
    failures: Failures | None = None

    def of(self, seed: int) -> Setting:
        """Return the same for the episode of a seed: other tasks fail in it."""
        return self if self.failures is None else replace(self, failures=replace(self.failures, seed=seed))


class Run(NamedTuple):
    """One episode with its figures."""

    seed: int
    figures: Figures
    episode: Episode


def figures_of(episode: Episode, warm: int = 0) -> Figures:
    """Return the figures of one episode, as `fermata simulate --json` prints them, but for `wall_s`.

    A job's wait is its JCT without the time in which some task of it ran and without the time for which it was held;
    for a job of one stage under a policy that never holds this is its start minus its arrival.

    Raises:
        InputError: the warm-up leaves no job.
    """
    trace = episode.trace
    figures = summarize(
        arrival_s=trace.job_arrival_s,
        start_s=episode.job_start_s,
        completion_s=episode.job_completion_s,
        held_s=episode.job_held_s,
        ideal_s=job_shapes(trace, episode.executors).critical_path_s,
        busy_s=episode.busy_s,
        executors=episode.executors,
        warm=warm,
        wait_s=episode.job_wait_s,
    )
    return {**figures, "decisions": episode.decisions, "events": episode.events}


def knowing(policy: Policy, trace: Trace) -> Policy:
    """Return a policy that knows the DAGs of a trace, if it is one that reads them."""
    return dag.knowing(policy, lambda: dag.Dag.of_parents(trace.parent_ptr, trace.parent))


def run_trace(
    trace: Trace,
    setting: Setting,
    *,
    policy: Policy | None = None,
    observer: Observer | None = None,
    progress: Progress | None = None,
) -> tuple[Figures, Episode]:
    """Simulate one trace and return its figures, the time that it took included.

    Args:
        trace: the jobs.
        setting: everything else.
        policy: used instead of loading the setting's.
        observer: called with every state and the steps decided in it.
        progress: called now and then with the share of the jobs that are done, 0 to 1.

    Raises:
        InputError: no such policy, a task that does not fit, or a warm-up that leaves no job.
        ModelError: the policy's file cannot be used.
        StuckError: the policy waits although nothing will happen any more.
        Interrupted: on Ctrl-C, with the figures of the jobs that are done.
    """
    chosen = knowing(load(setting.policy) if policy is None else policy, trace)
    began = time.perf_counter()
    try:
        episode = simulate(
            trace,
            setting.executors,
            chosen,
            limits=setting.limits,
            sticky=setting.sticky,
            failures=setting.failures,
            observer=observer,
            progress=progress,
        )
    except Interrupted as cut:
        if cut.episode.trace.jobs > setting.warm:
            cut.figures = _all_figures(cut.episode, setting, time.perf_counter() - began)
        raise
    return _all_figures(episode, setting, time.perf_counter() - began), episode


def _all_figures(episode: Episode, setting: Setting, wall_s: float) -> Figures:
    figures = {**figures_of(episode, setting.warm), "wall_s": wall_s}
    if setting.failures is not None:
        figures["failed_jobs"] = int(episode.job_failed[setting.warm :].sum())
    return figures


def run_seed(seed: int, scenario: Scenario, setting: Setting) -> Run:
    """Draw and simulate one episode of a scenario; raises what `run_trace` does."""
    return Run(seed, *run_trace(scenario.generate(seed), setting.of(seed)))


def run_seeds(
    scenario: Scenario, seeds: Sequence[int], setting: Setting, processes: int = 1
) -> Generator[Run, None, None]:
    """Yield the episodes of a scenario in the order of `seeds`, each as soon as it and those before it are done.

    Closing the iterator, as an interrupt does, drops the episodes that are not done.

    Args:
        scenario: draws the jobs.
        seeds: of the episodes.
        setting: everything else.
        processes: how many share the work; the figures do not depend on it.
    """
    yield from over_processes(partial(run_seed, scenario=scenario, setting=setting), seeds, processes)


def over_processes(run: Callable[[U], R], units: Sequence[U], processes: int) -> Generator[R, None, None]:
    """Yield `run(unit)` for each unit of work in order, computed by fresh processes if there are to be several.

    Closing the iterator, as an interrupt does, drops the units that are not done.
    """
    processes = min(processes, len(units))
    if processes <= 1:
        yield from map(run, units)
        return
    waiting: deque[Future[R]] = deque()
    with Workers(processes) as pool:
        for unit in units:
            waiting.append(pool.submit(run, unit))
            if len(waiting) > 2 * processes:  # enough to keep all busy; each may hold an episode
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def pooled(by_seed: Mapping[int, Figures]) -> dict[str, Any]:
    """Return the figures over several seeds: means, but sums for `TOTALS`.

    Args:
        by_seed: figures of each seed's episode, at least one.

    Returns:
        Beside the figures, `per_seed`: a list of each seed's figures with its `seed`; and `ci95`: for each mean the
        half width of its 95% interval (Student's t over the seeds; None for one seed, whose spread is unknown).
    """
    runs = list(by_seed.values())
    columns = {name: [figures[name] for figures in runs] for name in runs[0]}
    means = {name: mean_ci95(column) for name, column in columns.items() if name not in TOTALS}
    return {
        **{name: means[name].mean if name in means else sum(column) for name, column in columns.items()},
        "per_seed": [{"seed": seed, **figures} for seed, figures in by_seed.items()],
        "ci95": {name: interval.ci95 if len(runs) > 1 else None for name, interval in means.items()},
    }
