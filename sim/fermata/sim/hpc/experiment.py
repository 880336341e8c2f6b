"""Sequences of jobs cut from a log, and the means of a policy's figures over them with their intervals."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fermata.policy.errors import InputError
from fermata.policy.wording import counted
from fermata.sim.files import Progress
from fermata.sim.hpc.inspect import Inspector
from fermata.sim.hpc.jobs import FloatArray, JobLog
from fermata.sim.hpc.metrics import figures
from fermata.sim.hpc.policies import Policy
from fermata.sim.hpc.simulate import Schedule, simulate
from fermata.sim.metrics import student_t975

TRAIN_SHARE = 0.2
_LOOKED_AT = 100  # sequences
_MANY = 30  # sequences from which on a mean is about normal


@dataclass(frozen=True)
class Sequences:
    """Where sequences are cut from a log.

    Args:
        starts: index of the first job of every sequence.
        jobs: length of each.
        warm: jobs before each sequence that are simulated with it but not counted, so that it meets a busy machine.
    """

    starts: tuple[int, ...]
    jobs: int
    warm: int = 0


def split(log: JobLog, part: str) -> tuple[int, int]:
    """Return the first index of a part of the log and the one after its last: `all`, `train` or `test`.

    By time: the first fifth of the jobs is for training and tuning, the rest for tests; no job is in both.

    Raises:
        InputError: no such part.
    """
    border = round(len(log) * TRAIN_SHARE)
    parts = {"all": (0, len(log)), "train": (0, border), "test": (border, len(log))}
    if part not in parts:
        raise InputError(f"no part {part!r} of a log; expected one of {', '.join(parts)}")
    return parts[part]


def draw_sequences(log: JobLog, count: int, jobs: int, seed: int, *, part: str, warm: int = 0) -> Sequences:
    """Draw sequences from a part of a log, the same for the same seed; they may overlap.

    Raises:
        InputError: the part is too short, or fewer than one sequence.
    """
    first, end = split(log, part)
    if count < 1 or jobs < 1 or warm < 0:
        raise InputError(f"expected at least 1 sequence of at least 1 job, got {count} of {jobs} after {warm}")
    if end - first < jobs + warm:
        raise InputError(f"{part} of {log.name} has {counted(end - first, 'job')}; expected at least {jobs + warm}")
    starts = np.random.default_rng(seed).integers(first + warm, end - jobs + 1, count)
    return Sequences(tuple(int(each) for each in starts), jobs, warm)


def published_sequences(log: JobLog, count: int, jobs: int, seed: int) -> Sequences:
    """Return the sequences that SchedInspector's published evaluation draws, with 256 jobs for the same seed.

    They are drawn from the whole log, parts of which its training may have seen. Source: `seeding.np_random` of OpenAI
    Gym, which hashes the seed, and numpy's legacy generator.

    Raises:
        InputError: the log is too short; its last sequence is never drawn.
    """
    if len(log) <= jobs:
        raise InputError(f"{log.name} has {counted(len(log), 'job')}; expected more than {jobs}")
    words = np.frombuffer(hashlib.sha512(str(seed).encode()).digest()[:8], dtype="<u4").tolist()
    random = np.random.RandomState(words)
    return Sequences(tuple(int(random.randint(0, len(log) - jobs)) for _ in range(count)), jobs)


def run_sequence(
    log: JobLog, policy: Policy, start: int, jobs: int, warm: int = 0, inspector: Inspector | None = None
) -> Schedule:
    """Run one sequence after its warm-up jobs, which stand first in the result."""
    schedule = simulate(log.sequence(start - warm, jobs + warm), policy.order, policy.rules, inspector, policy.model)
    return replace(schedule, warm=warm)


def run_sequences(
    log: JobLog,
    policy: Policy,
    sequences: Sequences,
    inspector: Inspector | None = None,
    progress: Progress | None = None,
) -> list[dict[str, float]]:
    """Return the figures of every sequence; `progress` is told the share of them that is done, 0 to 1."""
    rows = []
    for start in sequences.starts:
        rows.append(figures(run_sequence(log, policy, start, sequences.jobs, sequences.warm, inspector)))
        if progress is not None:
            progress(len(rows) / len(sequences.starts))
    return rows


def expect_queue(log: JobLog, policy: Policy, jobs: int, part: str, warm: int = 0) -> None:
    """Refuse to learn where there is nothing to decide: what comes out of such a training is as it began, at random.

    Raises:
        InputError: no job waits in any of a hundred sequences, or the part is too short.
    """
    drawn = draw_sequences(log, _LOOKED_AT, jobs, 0, part=part, warm=warm)
    if not any(run_sequence(log, policy, start, jobs, warm).wait_s.any() for start in drawn.starts):
        raise InputError(
            f"{part} of {log.name}: no job waits under {policy.name}; expected a queue to learn from, "
            "which jobs that take longer would make (--stretch)"
        )


def expect_decisions(many: int, log: JobLog, part: str) -> None:
    """Refuse to learn from sequences in which nobody is asked; the mean of no decision would be no number.

    Raises:
        InputError: there is no decision.
    """
    if not many:
        raise InputError(
            f"{part} of {log.name}: nothing can be held in any sequence; expected jobs that start while others run "
            "or before others come"
        )


def pooled(rows: Sequence[dict[str, float]]) -> tuple[dict[str, float], dict[str, float]]:
    """Return the mean of every figure over sequences, and half of its 95% interval: normal, or Student's of few."""
    means: dict[str, float] = {}
    halves: dict[str, float] = {}
    for key in rows[0]:
        values = np.array([row[key] for row in rows])
        values = values[~np.isnan(values)]  # a class of jobs that a sequence does not have
        means[key] = float(values.mean()) if len(values) else math.nan
        halves[key] = _half_width(values)
    return means, halves


def _half_width(values: FloatArray) -> float:
    many = len(values)
    if many < 2:
        return math.nan
    quantile = 1.96 if many >= _MANY else student_t975(many - 1)
    return float(quantile * values.std(ddof=1) / math.sqrt(many))
