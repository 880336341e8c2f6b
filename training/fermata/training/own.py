"""A trace of one's own: what a policy is taught on, chosen by and judged on are different parts of it.

A recorded trace is one episode. Others like it are made of its blocks of consecutive jobs (`TraceBlocks`), and time
parts what is learned from what is shown: the first half teaches, what follows chooses between networks, and the rest is
for `fermata evaluate`, so a score is of jobs that came after all that a policy was made from.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np

from fermata.policy.errors import InputError
from fermata.policy.heuristics.srwf import SRWF
from fermata.policy.learned import EXPERTS
from fermata.sim.files import is_pipe_or_device, open_raw
from fermata.sim.scenarios import Scenario
from fermata.sim.scenarios.blocks import TraceBlocks, offered_load
from fermata.sim.simulate import simulate
from fermata.sim.trace import Trace, check_fits
from fermata.sim.trace_io import read_trace
from fermata.sim.trace_jobs import select_jobs
from fermata.training.config import OwnTrace, TrainConfig, Workloads
from fermata.training.files import check_text
from fermata.training.slots.config import ScoresConfig

Part = Literal["teach", "choose", "test", "all"]
SHARES: dict[Part, tuple[float, float]] = {
    "teach": (0.0, 0.5),
    "choose": (0.5, 0.7),
    "test": (0.7, 1.0),
    "all": (0.0, 1.0),
}
LEAST_JOBS = 200  # of a trace: fewer say too little, in one part or in several
_SIZES = 5  # of the pool, from least to most, at which is looked who decides
_LEAST_BLOCKS = 5  # in an episode to judge on: of a part in one block every other would be the same jobs, as if known


def own_trace(path: str, executors: tuple[int, int]) -> OwnTrace:
    """Return a trace of one's own as it is now, checked.

    Args:
        path: of a job trace.
        executors: of the pool, from and to.

    Raises:
        InputError: it cannot be read, breaks the format, has too few jobs, or none that takes any time, or a task needs
            more than the least number of executors.
    """
    if path == "-" or is_pipe_or_device(Path(path)):
        raise InputError("expected a file: a trace is read more than once", file=path)
    absolute, sha256 = str(Path(path).resolve()), _digest(path)
    try:
        trace = _read(absolute, sha256)
    except InputError as error:
        raise InputError(error.message, file=path, line=error.line) from error
    if trace.jobs < LEAST_JOBS:
        few = f"expected {LEAST_JOBS} jobs or more, not {trace.jobs}: fewer are too few to judge by"
        raise InputError(f"{few} (`fermata compare --trace` plays them as they are)", file=path)
    if not trace.task_duration_s.any():
        raise InputError("no job takes any time: nothing to compare", file=path)
    check_fits(trace, executors[0], path)
    kind = kind_of(_share_of(trace, "teach"))  # of jobs that come only later nothing can be learned
    return OwnTrace(path=absolute, sha256=sha256, kind=kind, executors=executors)


def kind_of(trace: Trace) -> int:
    """Return what jobs are, as an index into EXPERTS."""
    return 2 if trace.tasks > trace.stages else 1 if trace.stages > trace.jobs else 0


def deciders(trace: Trace, executors: int) -> list[float]:
    """Return who decides when jobs come: of each of EXPERTS, and then of scores, the share of the arrivals.

    That hangs on all that is in sight, which are the jobs that have not ended under srwf: one wide job that runs for
    long outweighs many short ones, and one that is soon over does not.
    """
    arrival_s = trace.job_arrival_s
    end_s = simulate(trace, executors, SRWF).job_jct_s + arrival_s
    stages, tasks = np.diff(trace.job_stage_ptr), np.diff(trace.task_ptr[trace.job_stage_ptr])
    slots = np.maximum.reduceat(trace.stage_slots, trace.job_stage_ptr[:-1])
    kind = np.select([slots > 1, tasks > stages, stages > 1], [3, 2, 1], 0)
    decides = np.zeros(trace.jobs, np.int64)
    for each in (1, 2, 3):
        mine = kind == each
        come = np.searchsorted(np.sort(arrival_s[mine]), arrival_s, "right")
        gone = np.searchsorted(np.sort(end_s[mine]), arrival_s, "right")
        decides[come > gone] = each
    return [float(share) for share in np.bincount(decides, minlength=4) / trace.jobs]


def shares_of(own: OwnTrace) -> list[float]:
    """Return the `deciders` of the jobs that teach, their mean over sizes of the pool.

    Raises:
        InputError: as `part_of`.
    """
    trace, sizes = part_of(own, "teach"), np.linspace(*own.executors, _SIZES)
    found = [deciders(trace, executors) for executors in sorted({round(each) for each in sizes})]
    return [float(share) for share in np.mean(found, axis=0)]


def with_kind(own: OwnTrace, shares: Sequence[float]) -> OwnTrace:
    """Return a trace that teaches whoever decides most often, by `shares_of`; scores are no kind of jobs."""
    of_experts = shares[: len(EXPERTS)]
    return own.model_copy(update={"kind": int(np.argmax(of_experts))}) if any(of_experts) else own


def check_teaches(own: OwnTrace) -> None:
    """Check that a policy can be taught on a trace, and chosen on it.

    Raises:
        InputError: the jobs of a part come all at once or take no time, so that they make no load, or the trace's name
            is no text, which a run's configuration has to hold.
    """
    check_text(Path(own.path))
    check_load(own, ("teach", "choose"), "no load to teach at")


def check_load(own: OwnTrace, parts: Sequence[Part], otherwise: str) -> None:
    """Check that the jobs of parts of a trace make a load.

    Args:
        own: the trace.
        parts: of it.
        otherwise: what there is not where they make none.

    Raises:
        InputError: the jobs of a part come all at once or take no time.
    """
    for part in parts:
        if not 0.0 < offered_load(part_of(own, part), own.executors[0]) < math.inf:
            first, last = SHARES[part]
            told = f"from {first:.0%} to {last:.0%} of the jobs they come all at once or take no time"
            raise InputError(f"{told}: {otherwise}", file=own.path)


def takes_several(own: OwnTrace) -> bool:
    """Tell whether tasks of the jobs that teach take several executors.

    Raises:
        InputError: as `part_of`.
    """
    return bool(part_of(own, "teach").stage_slots.max(initial=1) > 1)


def check_learns(config: TrainConfig | ScoresConfig) -> None:
    """Check that a configuration learns something from the trace that it is given, if it is given one.

    Raises:
        InputError: its jobs are DAGs, and there is no search for a rule for their kind; or scores are what is searched
            for, and no task takes several executors.
    """
    own = config.workloads.own
    if isinstance(config, ScoresConfig):
        if own is not None and not takes_several(own):
            told = "no task of the first half takes several executors"
            raise InputError(f"{told}, so {config.name!r} would learn nothing here; --config own does", file=own.path)
    elif own is not None and own.kind > 0 and config.generations(own.kind) == 0:
        told = f"{config.name!r} searches for no rule for {EXPERTS[own.kind]} (search.generations)"
        raise InputError(f"{told}, so it would learn nothing here; --config own does", file=own.path)


def part_of(own: OwnTrace, part: Part) -> Trace:
    """Return the jobs of a part of a trace, in order of arrival.

    Raises:
        InputError: the file is gone, or is not what it was.
    """
    return _share_of(_read(own.path, own.sha256), part)


def _share_of(trace: Trace, part: Part) -> Trace:
    first, last = (round(share * trace.jobs) for share in SHARES[part])
    return select_jobs(trace, np.arange(first, last))


def only_for(ranges: Workloads, kind: int) -> Workloads:
    """Return the workloads for what is to be taught a kind of jobs: random ones where one's own are of another."""
    if ranges.own is None or ranges.own.kind == kind:
        return ranges
    return ranges.model_copy(update={"own": None})


def draw_own(rng: np.random.Generator, own: OwnTrace, jobs: int, part: Part) -> Scenario:
    """Draw an episode's scenario: executors, and a load around the trace's own.

    Raises:
        InputError: as `part_of`.
    """
    executors = int(rng.integers(own.executors[0], own.executors[1] + 1))
    trace = part_of(own, part)
    load = float(rng.uniform(*own.load)) * offered_load(trace, executors)
    return Scenario("own", executors, jobs, 0, "SRWF", TraceBlocks(trace, load))


def as_scenario(own: OwnTrace, part: Part) -> Scenario:
    """Return a part of a trace as a scenario on the least number of executors: as many jobs, at the trace's own load.

    Raises:
        InputError: as `part_of`.
    """
    trace = part_of(own, part)
    blocks = TraceBlocks(trace, block=min(TraceBlocks.block, trace.jobs // _LEAST_BLOCKS))
    return Scenario(Path(own.path).name, own.executors[0], trace.jobs, trace.jobs // 10, "SRWF", blocks)


def _digest(path: str) -> str:
    with open_raw(path) as raw:
        return hashlib.sha256(raw.read()).hexdigest()


@lru_cache(maxsize=4)
def _read(path: str, sha256: str) -> Trace:
    """Read a trace, once a process."""
    if _digest(path) != sha256:
        raise InputError("is not the trace that this run began with; use another --out", file=path)
    return read_trace(path)
