"""How the time of a workflow or a stage divides into wait, hold and run."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import NamedTuple

from fermata.operator.ledger import Account
from fermata.operator.progress import Outcome, WorkflowView

SLOWDOWN_THRESHOLD_S = 10.0


class Split(NamedTuple):
    """A JCT in milliseconds, so that wait + held + run is exactly the whole."""

    jct_ms: int
    wait_ms: int
    held_ms: int
    run_ms: int

    @property
    def seconds(self) -> tuple[float, float, float, float]:
        """JCT, wait, held and run in seconds."""
        return self.jct_ms / 1000, self.wait_ms / 1000, self.held_ms / 1000, self.run_ms / 1000

    @property
    def told(self) -> str:
        """JCT, wait, held and run to a tenth of a second, of which the sum is right, too.

        >>> Split(1250, 150, 150, 950).told
        'JCT 1.2 s = wait 0.2 + held 0.1 + run 0.9'
        """
        ends = [round(each / 100) for each in accumulate((0, self.wait_ms, self.held_ms, self.run_ms))]
        wait, held, run = ((end - begin) / 10 for begin, end in pairwise(ends))
        return f"JCT {ends[-1] / 10:.1f} s = wait {wait:.1f} + held {held:.1f} + run {run:.1f}"

    @property
    def slowdown(self) -> float:
        """JCT over run time, both at least the threshold, at least 1."""
        jct_s, _, _, run_s = self.seconds
        return max(jct_s / max(run_s, SLOWDOWN_THRESHOLD_S), 1.0)


def split(whole_s: float, held_s: float, run_s: float) -> Split:
    """Return how a stretch of time divides; what was neither run nor held was waited.

    An end is told late: what was counted until then may be longer than the stretch, and what is taken off the run time
    longer than that.

    >>> split(10.0, 2.5, 4.0).seconds, split(10.0, 0.0, -0.5).seconds
    ((10.0, 3.5, 2.5, 4.0), (10.0, 10.0, 0.0, 0.0))
    """
    whole_ms = max(round(whole_s * 1000), 0)
    run_ms = min(max(round(run_s * 1000), 0), whole_ms)
    held_ms = min(round(held_s * 1000), whole_ms - run_ms)
    return Split(whole_ms, whole_ms - run_ms - held_ms, held_ms, run_ms)


def workflow_split(view: WorkflowView, outcome: Outcome, account: Account) -> Split:
    """Return how the JCT of a finished workflow divides."""
    end_s = outcome.end_s
    return split(end_s - view.arrival_s, account.held.total(end_s), view.run_s - account.gap.total(end_s))
