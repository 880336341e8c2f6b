"""For how much longer a workflow with a deadline of its own may be held.

A hold lets others end sooner, which is no comfort to a workflow that fails because it was held. So nothing is held any
more of one whose activeDeadlineSeconds leave no more time than what is left of it may take.
"""

from __future__ import annotations

from fermata.operator.build_state import remaining_work_s
from fermata.operator.progress import WorkflowView


def slack_s(view: WorkflowView, executors: int, now_s: float) -> dict[str, float]:
    """Return for how many more seconds each stage that waits may be held: negative where it is late, inf for ever.

    With a pool of `executors` to itself what is left of a workflow takes no longer than its longest path and its work
    over the executors (Graham, "Bounds on multiprocessing timing anomalies", 1969); both by estimate.
    """
    left_s = view.deadline_s - now_s - remaining_work_s(view) / executors
    return {stage.spec.name: left_s - stage.path_s for stage in view.stages if stage.waits}
