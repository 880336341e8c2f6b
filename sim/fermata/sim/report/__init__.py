"""One self-contained HTML page about schedules: of the simulator, of the demonstration, or of a real cluster.

It takes plain arrays and knows nothing of where they come from; it imports neither torch nor anything of Kubernetes.

Reading order: `schedule` and `records` (what goes in), `numbers` and `holds` (what follows), `drawing`, `figures` and
`timelines` (the drawings), `page`.
"""

from __future__ import annotations

from fermata.sim.report.drawing import Drawing
from fermata.sim.report.holds import HoldEffect, HoldSummary, effects_of, summary_of
from fermata.sim.report.numbers import Difference, difference, figures_of, run_figures
from fermata.sim.report.page import render, view_of, views_of, write, write_figures
from fermata.sim.report.records import Bound, Chapter, Report, Run, Section, Sweep, Table
from fermata.sim.report.schedule import Holds, Schedule, Tasks, held_intervals, only

__all__ = [
    "Bound",
    "Chapter",
    "Difference",
    "Drawing",
    "HoldEffect",
    "HoldSummary",
    "Holds",
    "Report",
    "Run",
    "Schedule",
    "Section",
    "Sweep",
    "Table",
    "Tasks",
    "difference",
    "effects_of",
    "figures_of",
    "held_intervals",
    "only",
    "render",
    "run_figures",
    "summary_of",
    "view_of",
    "views_of",
    "write",
    "write_figures",
]
