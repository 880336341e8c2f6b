"""Do long jobs come many at a time, as whole batches on a schedule do?

Where they come one by one, an executor that a long job is kept off is missed by that job alone. Where they come
together the others wait for it, too: every hold then takes from the time in which a batch is done before the next one
comes, and near saturation the pool falls behind for good. Nor does an executor that frees soon make it right to let a
longer job go first: a batch waits for that one as well. No network was taught such arrivals.
"""

from __future__ import annotations

from fermata.policy._jit import kernel
from fermata.policy.board import Board

CLOSE = 0.05  # jobs of a kind come together if they come within this share of the size that is asked about
CLUMP = 0.15  # above so many jobs that came together with each one, for each executor; at random it is 0.1 at most
_DOUBT = 10.0  # jobs that came alone, beside those that were seen: few of them are little evidence


@kernel
def come_together(board: Board, size_s: float) -> bool:
    """Tell whether recent jobs of half a size or more, seconds of work, came many at a time for these executors."""
    pool, times_s, sizes_s = board.pool[0], board.recent_arrival_s, board.recent_work_s
    least_s, within_s = 0.5 * size_s, CLOSE * size_s
    # Of such jobs: all so far, those just before the one in hand (from `first` on), and the sum of the latter.
    seen, near, together, first = 0, 0, 0, pool.recent_begin
    for i in range(pool.recent_begin, pool.recent_end):
        if sizes_s[i] < least_s:
            continue
        while times_s[first] < times_s[i] - within_s:
            near -= 1 if sizes_s[first] >= least_s else 0
            first += 1
        together += near
        near += 1
        seen += 1
    return bool(together > CLUMP * len(board.executors) * (seen + _DOUBT))
