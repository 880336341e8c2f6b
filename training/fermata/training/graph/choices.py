"""From scores to drawn choices, of many states at once; see `fermata.policy.graph_actions` for the likeliest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fermata.policy.graph_actions import IMPOSSIBLE, BatchScores, Choices, choices_of


def drawn_choices(scores: BatchScores, random: np.random.Generator) -> Choices:
    """Return choices drawn with the probabilities that the scores are the logarithms of, part by part."""
    begin, end = scores.first[:-1], scores.first[1:]
    at = random.random((3, len(begin)))
    highest = np.maximum(np.maximum.reduceat(scores.stage, begin), scores.wait).astype(np.float64)
    weight = np.exp(scores.stage - np.repeat(highest, end - begin))
    idle = np.where(scores.wait > 0.5 * IMPOSSIBLE, np.exp(scores.wait - highest), 0.0)
    total = np.cumsum(weight)
    before = total[begin] - weight[begin]
    row = np.searchsorted(total, before + at[0] * (total[end - 1] - before + idle), side="right")
    # Rounding may lead one row beyond what is there.
    waits = (row >= end) & (idle > 0.0)
    row = np.minimum(np.maximum(row, begin), end - 1)
    option, delay = _drawn(scores.option[row], at[1]), _drawn(scores.delay[row], at[2])
    return choices_of(row, waits, option, delay)


def _drawn(scores: NDArray[np.floating], at: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return for each row an index drawn from a softmax by a number in [0, 1)."""
    weight = np.exp((scores - scores.max(axis=1, keepdims=True)).astype(np.float64))
    weight[scores <= 0.5 * IMPOSSIBLE] = 0.0
    total = np.cumsum(weight, axis=1)
    drawn: NDArray[np.int64] = (total > (at * total[:, -1])[:, np.newaxis]).argmax(axis=1)
    return drawn
