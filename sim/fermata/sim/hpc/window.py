"""Compiled: Deep Back-Filling, an agent that sees a split window of the queue and starts one of its jobs, or moves on.

The queue is in the order of arrival. The agent sees its first `head` and its last `tail` jobs, so that every job is
seen when it arrives, however long the queue is; with `tail` = 0 it sees the head alone, whose window goes stale: it
fills with jobs that cannot start, and what could start stands behind it. At one instant the agent is asked again after
every start, on a window that has been filled up from the queue (schedule cycling), until it chooses `Fwd` or nothing
in the window fits; then time moves to the next submission or end.
Source: Wang, Harwood and Rodriguez, "Deep Back-Filling: a Split Window Technique for Deep Online Cluster Job
Scheduling", HPCC 2022, arXiv 2401.09910. Its formulas of the running jobs' state (sigma, eta) have elapsed for
remaining time and jobs for cores; this follows its text.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.policy._jit import kernel
from fermata.sim.hpc.events import advance, start_job, take
from fermata.sim.hpc.inspect import SAMPLE
from fermata.sim.hpc.shadow import expected_end
from fermata.sim.hpc.world import (
    DECISIONS,
    FREE,
    INSTANTS,
    MACHINE,
    NEXT,
    NOBODY,
    NOW,
    RECORDED,
    RUNNING,
    WAITING,
    Config,
    Jobs,
    World,
)

FloatArray = NDArray[np.float64]
SingleArray = NDArray[np.float32]
IntArray = NDArray[np.int64]

# What a row of the window says: of a job that fits (zeros in the row of Fwd), then of the machine and the queue.
JOB_FEATURES = ("log_estimate", "log_cores", "cores", "log_wait", "free_after", "log_before", "free_at_end", "fwd")
COMMON_FEATURES = (
    "eta",  # cores in use
    "sigma",  # remaining core-seconds of running jobs, logarithmic
    "log_next_end",
    "log_waiting",
    "log_unseen",
    "log_window_work",
    "fitting",
    "log_shortest",
    "widest",
    "free_in_10min",
    "free_in_1h",
    "free_in_4h",
)
FEATURE_NAMES = (*JOB_FEATURES, *COMMON_FEATURES)
OF_JOB, FEATURES = len(JOB_FEATURES), len(FEATURE_NAMES)
MOST_SEEN = 10_000  # jobs, from the head and from the tail each
FWD_ROW = JOB_FEATURES.index("fwd")
HIDDEN = (32, 16)
PARAMETERS = (FEATURES + 1) * HIDDEN[0] + (HIDDEN[0] + 1) * HIDDEN[1] + HIDDEN[1] + 1
LOG_SECONDS, LOG_JOBS = 12.0, 6.0  # what logarithms of times and counts are divided by
AHEAD_S = (600.0, 3600.0, 14_400.0)

# Places in Agent.spent; integrals over time since the first submission
WAITED, IDLED, STALE = range(3)


class Agent(NamedTuple):
    """An agent as numbers and arrays."""

    head: int  # jobs seen from the head of the queue
    tail: int  # and from its tail
    mode: int  # `inspect.ARGMAX` or `inspect.SAMPLE`
    theta: SingleArray  # [PARAMETERS] layer by layer: weights by input, then biases
    slots: IntArray  # [head + tail] places in `World.queue`, in the order of arrival
    choices: IntArray  # [head + tail + 1] place in the queue that a row stands for; NOBODY: Fwd
    seen: SingleArray  # [head + tail + 1, FEATURES] rows of what may be done now
    common: SingleArray  # [FEATURES] what they share
    units: SingleArray  # [sum of HIDDEN]
    scores: SingleArray  # [head + tail + 1]
    spent: FloatArray  # [3] job-seconds waited, core-seconds idle while jobs waited, seconds with a stale window
    rows: SingleArray  # [room for decisions * (head + tail + 1), FEATURES] recorded, decision by decision, no gaps
    sizes: IntArray  # [room for decisions] rows of each; room 0 records nothing
    acted: IntArray  # [room for decisions] which of them
    log_chance: SingleArray  # [room for decisions]
    marks: FloatArray  # [room for decisions, 3] time, and `spent` until then (job-seconds, core-seconds)
    filled: IntArray  # [1] rows recorded


def new_agent(head: int, tail: int, theta: SingleArray, mode: int, *, record: int = 0) -> Agent:
    """Return an agent with room for `record` decisions."""
    slots = head + tail
    return Agent(
        head,
        tail,
        mode,
        theta,
        np.zeros(slots, dtype=np.int64),
        np.zeros(slots + 1, dtype=np.int64),
        np.zeros((slots + 1, FEATURES), dtype=np.float32),
        np.zeros(FEATURES, dtype=np.float32),
        np.zeros(sum(HIDDEN), dtype=np.float32),
        np.zeros(slots + 1, dtype=np.float32),
        np.zeros(3),
        np.empty((record * (slots + 1), FEATURES), dtype=np.float32),  # most of it is never touched
        np.zeros(record, dtype=np.int64),
        np.zeros(record, dtype=np.int64),
        np.zeros(record, dtype=np.float32),
        np.zeros((record, 3)),
        np.zeros(1, dtype=np.int64),
    )


@kernel
def run_windowed(jobs: Jobs, config: Config, world: World, agent: Agent) -> bool:
    """Run on for at most `INSTANTS` and tell whether every job has started; starts are in `world.start`.

    `jobs.rank` must be the order of arrival.
    """
    for _ in range(INSTANTS):
        if not _move(jobs, config, world, agent):
            return True
        while world.counts[WAITING] > 0 and _start_one(jobs, config, world, agent):
            pass
        if world.counts[NEXT] == len(jobs.submit) and world.counts[WAITING] == 0:
            return True
    return False


@kernel
def _move(jobs: Jobs, config: Config, world: World, agent: Agent) -> bool:
    """Move to the next instant at which something happens, and count what passed; False if nothing ever will."""
    waiting, free, before = world.counts[WAITING], world.counts[FREE], world.clock[NOW]
    stale = _is_stale(jobs, world, agent)
    if not advance(jobs, config, world):
        return False
    passed = world.clock[NOW] - before
    if waiting > 0:
        agent.spent[WAITED] += waiting * passed
        agent.spent[IDLED] += free * passed
    if stale:
        agent.spent[STALE] += passed
    return True


@kernel
def compose(world: World, agent: Agent) -> int:
    """Write the places of the window's jobs into `agent.slots`, in the order of arrival; returns how many."""
    size = world.counts[WAITING]
    from_head = min(agent.head, size)
    from_tail = min(agent.tail, size - from_head)
    for slot in range(from_head):  # the queue is in descending order
        agent.slots[slot] = size - 1 - slot
    for slot in range(from_tail):
        agent.slots[from_head + slot] = from_tail - 1 - slot
    return int(from_head + from_tail)


@kernel
def _is_stale(jobs: Jobs, world: World, agent: Agent) -> bool:
    """Return whether nothing in the window fits, but something that waits and is not in it does."""
    many, free = compose(world, agent), world.counts[FREE]
    if many == world.counts[WAITING]:
        return False
    seen, waiting = world.counts[MACHINE] + 1, world.counts[MACHINE] + 1  # the narrowest jobs
    for slot in range(many):
        seen = min(seen, jobs.cores[world.queue[agent.slots[slot]]])
    for place in range(world.counts[WAITING]):
        waiting = min(waiting, jobs.cores[world.queue[place]])
    return bool(waiting <= free < seen)


@kernel
def _start_one(jobs: Jobs, config: Config, world: World, agent: Agent) -> bool:
    """Start the job of the window that the agent chooses; returns False if it chooses Fwd, or nothing fits.

    Fwd is not offered when nothing runs and nothing more will come: time would never move.
    """
    many = compose(world, agent)
    may_wait = world.counts[RUNNING] > 0 or world.counts[NEXT] < len(jobs.submit)
    rows = describe(jobs, world, agent, many)
    if rows == 0:
        return False
    if may_wait:
        _describe_fwd(agent, rows)
        rows += 1
    world.counts[DECISIONS] += 1
    for row in range(rows):
        agent.scores[row] = score(agent.theta, agent.seen[row], agent.units)
    chosen, log_chance = _choose(agent, rows)
    if may_wait:
        _record(world, agent, rows, chosen, log_chance)
    place = agent.choices[chosen]
    if place == NOBODY:
        return False
    job = world.queue[place]
    take(world, place)
    start_job(jobs, config, world, job)
    return True


@kernel
def describe(jobs: Jobs, world: World, agent: Agent, many: int) -> int:
    """Write a row for each of the window's `many` jobs that fits; returns how many rows."""
    free = world.counts[FREE]
    fitting = 0
    for slot in range(many):
        if jobs.cores[world.queue[agent.slots[slot]]] <= free:
            fitting += 1
    if fitting == 0:
        return 0
    _describe_common(jobs, world, agent, many, fitting)
    size, row = world.counts[WAITING], 0
    for slot in range(many):
        place = agent.slots[slot]
        job = world.queue[place]
        if jobs.cores[job] <= free:
            _describe_job(jobs, world, agent, row, job, size - 1 - place)
            agent.choices[row] = place
            row += 1
    return fitting


@kernel
def _describe_common(jobs: Jobs, world: World, agent: Agent, many: int, fitting: int) -> None:
    """Write what all rows of a decision have in common into `agent.common`."""
    machine, free, now, said = world.counts[MACHINE], world.counts[FREE], world.clock[NOW], agent.common
    remaining, next_end = 0.0, 0.0
    freed_0, freed_1, freed_2 = 0, 0, 0
    for place in range(world.counts[RUNNING] - 1, -1, -1):
        other = world.expected[place]
        left, cores = expected_end(jobs, world, other) - now, jobs.cores[other]
        remaining += left * cores
        if place == world.counts[RUNNING] - 1:
            next_end = left
        if left <= AHEAD_S[2]:
            freed_2 += cores
            if left <= AHEAD_S[1]:
                freed_1 += cores
                if left <= AHEAD_S[0]:
                    freed_0 += cores
    work, shortest, widest = 0.0, np.inf, 0
    for slot in range(many):
        job = world.queue[agent.slots[slot]]
        work += jobs.estimate[job] * jobs.cores[job]
        shortest = min(shortest, jobs.estimate[job])
        widest = max(widest, jobs.cores[job])
    said[OF_JOB] = 1.0 - free / machine
    said[OF_JOB + 1] = np.log1p(remaining / machine) / LOG_SECONDS
    said[OF_JOB + 2] = np.log1p(next_end) / LOG_SECONDS
    said[OF_JOB + 3] = np.log1p(world.counts[WAITING]) / LOG_JOBS
    said[OF_JOB + 4] = np.log1p(world.counts[WAITING] - many) / LOG_JOBS
    said[OF_JOB + 5] = np.log1p(work / machine) / LOG_SECONDS
    said[OF_JOB + 6] = fitting / many
    said[OF_JOB + 7] = np.log1p(shortest) / LOG_SECONDS
    said[OF_JOB + 8] = widest / machine
    said[OF_JOB + 9] = (free + freed_0) / machine
    said[OF_JOB + 10] = (free + freed_1) / machine
    said[OF_JOB + 11] = (free + freed_2) / machine


@kernel
def _describe_job(jobs: Jobs, world: World, agent: Agent, row: int, job: int, before: int) -> None:
    """Write the row of a job with `before` jobs ahead of it in the queue."""
    machine, now, seen = world.counts[MACHINE], world.clock[NOW], agent.seen[row]
    cores, estimate = jobs.cores[job], jobs.estimate[job]
    after = world.counts[FREE] - cores
    at_end = after
    for place in range(world.counts[RUNNING] - 1, -1, -1):
        other = world.expected[place]
        if expected_end(jobs, world, other) - now > estimate:
            break
        at_end += jobs.cores[other]
    seen[0] = np.log1p(estimate) / LOG_SECONDS
    seen[1] = np.log2(cores) / np.log2(max(machine, 2))
    seen[2] = cores / machine
    seen[3] = np.log1p(now - jobs.submit[job]) / LOG_SECONDS
    seen[4] = after / machine
    seen[5] = np.log1p(before) / LOG_JOBS
    seen[6] = at_end / machine
    seen[FWD_ROW] = 0.0
    for each in range(OF_JOB, FEATURES):
        seen[each] = agent.common[each]


@kernel
def _describe_fwd(agent: Agent, row: int) -> None:
    """Write the row of Fwd."""
    seen = agent.seen[row]
    for each in range(OF_JOB):
        seen[each] = 0.0
    seen[FWD_ROW] = 1.0
    for each in range(OF_JOB, FEATURES):
        seen[each] = agent.common[each]
    agent.choices[row] = NOBODY


@kernel
def score(theta: SingleArray, seen: SingleArray, units: SingleArray) -> float:
    """Return the network's output for one row: two hidden layers of rectified units.

    Args:
        theta: `[PARAMETERS]`.
        seen: `[FEATURES]`.
        units: `[sum of HIDDEN]` room to work in.
    """
    first, second = HIDDEN
    place = FEATURES * first
    for unit in range(first):
        units[unit] = theta[place + unit]
    for each in range(FEATURES):
        told, row = seen[each], each * first
        for unit in range(first):
            units[unit] += theta[row + unit] * told
    weights = place + first
    place = weights + first * second
    for unit in range(second):
        units[first + unit] = theta[place + unit]
    for each in range(first):
        told, row = max(units[each], np.float32(0.0)), weights + each * second
        for unit in range(second):
            units[first + unit] += theta[row + unit] * told
    place += second
    value = theta[place + second]
    for unit in range(second):
        value += theta[place + unit] * max(units[first + unit], np.float32(0.0))
    return float(value)


@kernel
def _choose(agent: Agent, rows: int) -> tuple[int, float]:
    """Return the row with the highest score, or one drawn by the softmax, and the logarithm of its chance."""
    best = 0
    for row in range(1, rows):
        if agent.scores[row] > agent.scores[best]:
            best = row
    total = 0.0
    for row in range(rows):
        total += np.exp(float(agent.scores[row] - agent.scores[best]))
    chosen = best
    if agent.mode == SAMPLE:
        left = np.random.random() * total
        for row in range(rows):
            left -= np.exp(float(agent.scores[row] - agent.scores[best]))
            if left < 0.0:
                chosen = row
                break
    return chosen, float(agent.scores[chosen] - agent.scores[best]) - np.log(total)


@kernel
def _record(world: World, agent: Agent, rows: int, chosen: int, log_chance: float) -> None:
    """Keep a decision, if there is room."""
    place, first = world.counts[RECORDED], agent.filled[0]
    if place >= len(agent.sizes):
        return
    for row in range(rows):
        for each in range(FEATURES):
            agent.rows[first + row, each] = agent.seen[row, each]
    agent.sizes[place] = rows
    agent.acted[place] = chosen
    agent.log_chance[place] = log_chance
    agent.marks[place, 0] = world.clock[NOW]
    agent.marks[place, 1] = agent.spent[WAITED]
    agent.marks[place, 2] = agent.spent[IDLED]
    world.counts[RECORDED] = place + 1
    agent.filled[0] = first + rows
