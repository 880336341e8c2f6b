"""One self-contained HTML page about schedules: of the simulator, of the demonstration, or of a real cluster.

It takes plain records and knows nothing of where they come from; it imports neither torch nor anything of Kubernetes.

Reading order: `records` (what goes in), `compare` (the numbers), `figures` and `svg` (the drawings), `page`.
"""

from __future__ import annotations

from fermata.sim.report.compare import Difference, Figures, differences, figures_of
from fermata.sim.report.page import render, write
from fermata.sim.report.records import ExecutorSpan, JobRecord, Report, Run, assign_executors

__all__ = [
    "Difference",
    "ExecutorSpan",
    "Figures",
    "JobRecord",
    "Report",
    "Run",
    "assign_executors",
    "differences",
    "figures_of",
    "render",
    "write",
]
