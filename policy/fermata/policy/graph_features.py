"""The features of a graph network: their names, and what they are of the rows that were read of some boards.

Times and work are divided by the head's remaining work (`fermata.policy.features`), counts by the pool or put through
a logarithm, so one network serves seconds and hours, one executor and a thousand. The features of the pool are those
of `fermata.policy.features`, as they are.

A change of meaning, order or number of any column is a new `SCHEMA`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.policy.dag import Positions
from fermata.policy.features import FEATURES
from fermata.policy.graph_rows import Floats, Mask, Read, Seen, spread
from fermata.policy.rows import numbers

SCHEMA = "fermata.graph/2"

Floats32 = NDArray[np.float32]

STAGE_FEATURES: tuple[str, ...] = (
    "executors of its job, share",
    "its job last used a free executor",
    "free executors, share",
    "work left / unit",
    "tasks left",
    "task / unit",
    "task / remaining work of its job",
    "running tasks",
    "slots / executors",
    "ready",
    "startable",
    "executors that it could take now, share",
    "next completion / task",
    "arrivals of under half its job's rest during a task",
    "moldable",
    "serial fraction",
    "children",
    "path from it / unit",
    "path from it / longest path of its job",
    "average width of its job",
)
JOB_FEATURES: tuple[str, ...] = (
    "remaining work / unit",
    "log of remaining work over unit",
    "longest remaining path / unit",
    "average width",
    "executors, share",
    "stages left",
    "tasks left",
    "share of the jobs with less left",
    "work of the jobs with less left / its own",
    "arrivals of under half its rest during it",
    "next completion / remaining work",
    "log of weight",
    "has a startable stage",
)
STATE_FEATURES: tuple[str, ...] = FEATURES
OPTION_FEATURES: tuple[str, ...] = (
    "share of what it could begin",
    "executors taken / free",
    "executors of its job then, share",
    "waves left",
    "time for the rest of the stage / unit",
)
# Decima's own five, and what the idle-slots papers add to them.
DECIMA_FEATURES = STAGE_FEATURES[:5]
CRITICAL_PATH_FEATURES = (
    "path from it / unit",
    "path from it / longest path of its job",
    "longest remaining path / unit",
    "head's path / unit",
)
WIDTH_FEATURES = ("average width of its job", "average width", "head's job's average width")
PRIOR_COLUMN = JOB_FEATURES.index("log of remaining work over unit")
SMALLER_COLUMN = STATE_FEATURES.index("share of arrivals under half a unit")

# A start may take what the stage could begin now, or a half of it, a quarter, ...: so a cap is a choice of few at any
# size of pool.
OPTIONS = 8
_FAR = 1e4  # ratios above this say no more
_HALVINGS = np.arange(OPTIONS)
# Rows of which log(1 + x) is taken, all at once: a call of numpy costs more than what it does here.
_STAGE_LOGS = np.array([3, 4, 5, 7, 12, 13, 17, 19])
_JOB_LOGS = np.array([0, 2, 3, 5, 6, 8, 9, 10])


def _log1p(value: Floats) -> Floats:
    """Turn values into log(1 + value), bounded for very large values; 0 for negative ones."""
    np.maximum(value, 0.0, out=value)
    np.minimum(value, _FAR, out=value)
    return np.log1p(value, out=value)


class Common(NamedTuple):
    """What several groups of features need, by state."""

    now_s: Floats
    free: Floats
    executors: Floats
    unit_s: Floats  # the head's remaining work


def smaller_arrivals(read: Read, seen: Sequence[Seen], work_s: Floats) -> Floats:
    """Return for each job how many jobs of under half of its remaining work arrive a second."""
    ends = read.job_first.tolist()
    rate = np.zeros(len(work_s))
    for i, (each, pool) in enumerate(zip(seen, read.pools, strict=True)):
        begin, end, own = pool.recent_begin, pool.recent_end, slice(ends[i], ends[i + 1])
        count = end - begin
        span_s = pool.now_s - each.board.recent_arrival_s[begin] if count > 1 else 0.0
        # One arrival more than intervals: the first one opens the window.
        if span_s > 0.0:
            recent_s = np.sort(numbers(each.board.recent_work_s, begin, end))
            rate[own] = recent_s.searchsorted(0.5 * work_s[own]) * ((count - 1) / (count * span_s))
    return rate


def job_features(read: Read, common: Common, left_s: Floats, longest_s: Floats, smaller: Floats) -> Floats:
    """Return [JOB_FEATURES, j] but "has a startable stage", which the caller knows."""
    jobs, state, n = read.jobs, read.job_state, len(read.jobs)
    unit_s = spread(common.unit_s, state)
    alone = len(read.pools) == 1
    order = left_s.argsort(kind="stable") if alone else np.lexsort((left_s, state))
    before = np.empty((2, n))  # how many jobs and how much work, of all states
    before[0, order] = np.arange(n)
    sorted_s = left_s[order]
    before[1, order] = sorted_s.cumsum() - sorted_s
    if not alone:
        before -= before[:, order[read.job_first[state]]]
    out = np.empty((len(JOB_FEATURES), n))
    ratio = left_s / unit_s
    out[0] = ratio
    out[1] = np.maximum(np.minimum(np.log(ratio), 10.0), -10.0)
    out[2] = longest_s / unit_s
    out[3] = jobs["width"]
    out[4] = jobs["running"] / spread(common.executors, state)
    out[5] = np.bincount(read.stage_job, minlength=n)
    out[6] = np.bincount(read.stage_job, read.stages["pending"], minlength=n)
    out[7] = before[0] / (n if alone else np.bincount(state)[state])
    out[8] = before[1] / left_s
    out[9] = smaller * left_s
    out[10] = spread(read.next_s, state) / left_s
    out[11] = np.log(jobs["weight"])
    out[12] = 0.0
    out[_JOB_LOGS] = _log1p(out[_JOB_LOGS])
    return out


def stage_features(read: Read, common: Common, left_s: Floats, longest_s: Floats, smaller: Floats) -> Floats:
    """Return [STAGE_FEATURES, n] but "startable" and "children", which the caller knows."""
    rows, state, job = read.stages, read.stage_state, read.stage_job
    now_s, free, executors, unit_s = (spread(each, state) for each in common)
    pending, running, slots = (rows[name].astype(np.float64) for name in ("pending", "running", "slots"))
    serial, path_s = rows["serial_fraction"], rows["path_s"]
    task_s = np.maximum(rows["estimate_s"], 1e-9)
    fixed, waits = np.isnan(serial), pending > 0
    room = np.minimum(pending, np.floor(free / slots)) * slots
    out = np.empty((len(STAGE_FEATURES), len(rows)))
    out[14], out[15] = 0.0, 1.0
    if not fixed.all():
        moldable = ~fixed
        room = np.where(moldable & waits, free, room)
        out[14] = moldable
        out[15] = np.where(moldable, serial, 1.0)
    out[0] = read.jobs["running"][job] / executors
    out[1] = read.last_used[job]
    out[2] = free / executors
    own = slots * task_s
    out[3] = (pending + running) * own / unit_s
    out[4] = pending
    out[5] = task_s / unit_s
    out[6] = np.minimum(own / left_s[job], 2.0)
    out[7] = running
    out[8] = slots / executors
    out[9] = (rows["ready_s"] <= now_s) & waits
    out[10] = 0.0
    out[11] = room / executors
    out[12] = spread(read.next_s, state) / task_s
    out[13] = smaller[job] * task_s
    out[16] = 0.0
    out[17] = path_s / unit_s
    out[18] = path_s / longest_s[job]
    out[19] = read.jobs["width"][job]
    out[_STAGE_LOGS] = _log1p(out[_STAGE_LOGS])
    return out


def options(read: Read, choice: Positions, rows: NDArray[Any], common: Common) -> tuple[Floats32, Mask, Positions]:
    """Return features [c, OPTIONS, OPTION_FEATURES], mask and caps [c, OPTIONS] of the starts of some stages."""
    state = read.stage_state[choice]
    running, pending, slots = (rows[name].astype(np.int64) for name in ("running", "pending", "slots"))
    _, free, executors, unit_s = (spread(each, state)[:, np.newaxis] for each in common)
    serial, left, each_takes = rows["serial_fraction"], pending[:, np.newaxis], slots
    most = np.minimum(pending, np.floor(free[:, 0] / slots))
    fixed = np.isnan(serial)
    if not fixed.all():
        most, each_takes = np.where(fixed, most, free[:, 0]), np.where(fixed, slots, 1)
    most = np.minimum(most, rows["max_cap"] - running).astype(np.int64)[:, np.newaxis]
    count = -(-most >> _HALVINGS)  # the most, and rounded up its half, its quarter, ...
    mask = np.empty(count.shape, np.bool_)
    mask[:, 0] = True
    np.less(count[:, 1:], count[:, :-1], out=mask[:, 1:])
    caps = running[:, np.newaxis] + count
    rest_s = left / caps
    if not fixed.all():
        fraction = np.where(fixed, 1.0, serial)[:, np.newaxis]
        rest_s = np.where(fixed[:, np.newaxis], rest_s, fraction + (1.0 - fraction) / count)
    taken = count * each_takes[:, np.newaxis]
    held = read.jobs["running"][read.stage_job[choice]][:, np.newaxis]
    out = np.empty((len(OPTION_FEATURES), *count.shape))
    np.divide(count, most, out=out[0])
    np.divide(taken, free, out=out[1])
    np.divide(held + taken, executors, out=out[2])
    np.divide(left, count, out=out[3])
    np.multiply(rest_s, rows["estimate_s"][:, np.newaxis] / unit_s, out=out[4])
    _log1p(out[3:])
    return as_rows(out), mask, caps


def as_rows(features: Floats) -> Floats32:
    """Return features that were computed one under another as the rows that a network takes."""
    return features.transpose(*range(1, features.ndim), 0).astype(np.float32, order="C")
