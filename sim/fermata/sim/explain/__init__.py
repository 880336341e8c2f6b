"""What a learned policy learned: from episodes that it runs to figures, in numbers and as part of a report.

It needs ONNX Runtime and no torch: whatever is to be known of a model is known from what it answers.

Reading order: `states` (episodes, and what was seen in them), `importance`, `distributions` and `dependence` (what
follows), `scored` (the same where scores decide), `graph` (the same of graph policies), `explanation` (all of it, for
one model), `figures` and `chapter` (the drawings and the report's part).
"""

from __future__ import annotations

from fermata.sim.explain.explanation import Explanation, explain, explain_graph
from fermata.sim.explain.states import States, Workload, collect

__all__ = ["Explanation", "States", "Workload", "collect", "explain", "explain_graph"]
