"""For how much longer a workflow with a deadline of its own may be held.

A hold lets others end sooner, which is no comfort to a workflow that fails because it was held. So nothing is held any
more of one whose activeDeadlineSeconds leave no more time than what is left of it may take: with a pool to itself that
is no longer than its longest path and its work over the pool's executors (Graham, "Bounds on multiprocessing timing
anomalies", 1969); both by estimate.
"""

from __future__ import annotations

import math

import numpy as np

from fermata.operator.build_state import remaining_work_s
from fermata.operator.facts import WorkflowFact
from fermata.operator.progress import WorkflowView
from fermata.operator.resources import StageStatus
from fermata.policy.graph import compressed, path_lengths

_TO_COME = ("Pending", "Waiting", "Held", "Running")
_BLANK = StageStatus(name="", state="Pending")


def slack_s(view: WorkflowView, executors: int, now_s: float) -> dict[str, float]:
    """Return for how many more seconds each stage that waits may be held: negative where it is late, inf for ever."""
    left_s = view.deadline_s - now_s - remaining_work_s(view) / executors
    return {stage.spec.name: left_s - stage.path_s for stage in view.stages if stage.waits}


def told_slack_s(workflow: WorkflowFact, stage: str, executors: int, now_s: float) -> float:
    """Return `slack_s` of a stage by what the API has: inf where that does not bound for how long it may be held."""
    spec, rows = workflow.spec, {row.name: row for row in workflow.status.stages}
    # The spec may be newer than the rows, and nobody may have looked yet whether it is sound.
    index = {each.name: i for i, each in enumerate(spec.stages)} if spec else {}
    if spec is None or spec.active_deadline_seconds is None or stage not in index:
        return math.inf
    parents = [[index[parent] for parent in each.depends_on if parent in index] for each in spec.stages]
    told = [rows.get(each.name, _BLANK) for each in spec.stages]
    length_s = np.array([row.estimate_seconds or 0.0 for row in told])
    tasks = np.array([row.tasks - row.succeeded if row.state in _TO_COME else 0 for row in told])
    work_s = float((np.maximum(tasks, 0) * [each.slots for each in spec.stages]) @ length_s)
    path_s, _ = path_lengths(*compressed(parents), length_s)
    deadline_s = workflow.arrival_s + spec.active_deadline_seconds
    return deadline_s - now_s - work_s / executors - float(path_s[index[stage]])
