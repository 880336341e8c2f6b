"""What is started and what is held where tasks take several executors, as pods with several GPUs do.

There shortest first has a fault that it has nowhere else. A job that needs several executors is passed over while fewer
are free, and each longer one that takes those makes it wait for another whole task; where such jobs keep coming it
starves. And what goes first decides how many executors stand idle beside it. So what could be started is scored, one
stage for each width (`slot_features`), by a small network whose weights were searched for on whole episodes
(`slot_weights`, or those that a model's file has, `slot_scores`): the best one starts, unless waiting, which scores 0,
is better.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.policy._jit import kernel, part
from fermata.policy.board import Board
from fermata.policy.heuristics.kernel import is_before
from fermata.policy.slot_features import DELAYS, DUE, SIZE, describe, facts_of
from fermata.policy.slot_weights import WIDTHS

FloatArray = NDArray[np.float64]

UNITS = 8  # in the hidden layer
WEIGHTS = SIZE + UNITS * (SIZE + 1)  # of the features, then of each unit: those of its inputs, and its own
TOO_WIDE, SHORTER_DUE, OTHER = range(3)
WORDS = (
    "a job that does not fit yet would have to wait for this one, too",
    "more than its wait is worth, shorter jobs are expected soon",
    "waiting looks better than starting any of the jobs that fit",
)
_FEW = math.log(1.5)  # log1p of half a job: fewer are no reason


class Best(NamedTuple):
    """What looks best of what could be started."""

    stage: int  # -1: nothing could
    score: float  # above 0: better than waiting


@kernel
def several_slots(board: Board) -> bool:
    """Tell whether a task of a job in sight takes several executors."""
    if board.pool[0].slots <= 1:  # so it is nearly always, and there may be thousands of jobs
        return False
    for i in range(board.pool[0].active):  # noqa: SIM110 - kernels have no generators
        if board.jobs[board.active[i]].slots > 1:
            return True
    return False


@part
def _score(board: Board) -> float:
    """Return the score of the features that `board.seen` holds."""
    weights, seen, total = board.slot_weights, board.seen, 0.0
    for i in range(SIZE):
        total += weights[i] * seen[i]
    for unit in range(UNITS):
        at, value = SIZE + unit * (SIZE + 1), 0.0
        for i in range(SIZE):
            value += weights[at + i] * seen[i]
        total += weights[at + SIZE] * max(value, 0.0)
    return total


@kernel
def best_stage(board: Board) -> Best:
    """Return the best stage of those that can be started now, and its score."""
    facts = facts_of(board)
    best, most = -1, -math.inf
    for width in range(WIDTHS):
        stage = board.first[width]
        if stage < 0:
            continue
        describe(board, facts, stage)
        score = _score(board)
        if best < 0 or score > most or (score == most and is_before(board, stage, best)):
            best, most = stage, score
    return Best(best, most)


@kernel
def read_choices(board: Board, rows: FloatArray) -> int:
    """Write what is read of the stages that could be started, [WIDTHS, SIZE]; return how many of them there are."""
    facts, found = facts_of(board), 0
    for width in range(WIDTHS):
        if board.first[width] >= 0:
            describe(board, facts, board.first[width])
            for i in range(SIZE):
                rows[found, i] = board.seen[i]
            found += 1
    return found


@kernel
def why_held(board: Board, head: int) -> int:
    """Return what argues for holding a stage that could start: an index into WORDS."""
    describe(board, facts_of(board), head)
    if board.seen[DELAYS] > 0.0:
        return TOO_WIDE
    return SHORTER_DUE if board.seen[DUE] > _FEW else OTHER
