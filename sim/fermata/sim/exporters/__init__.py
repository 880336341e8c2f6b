"""Formats that traces can be written in, by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fermata.sim.exporters.graphml import write_graphml
from fermata.sim.exporters.swf import write_swf
from fermata.sim.exporters.wfformat import write_wfformat
from fermata.sim.trace import Trace
from fermata.sim.trace_io import write_trace

__all__ = ["EXPORTERS", "write_swf"]

EXPORTERS: dict[str, Callable[[Trace, str | Path], None]] = {
    "graphml": write_graphml,
    "jsonl": write_trace,
    "swf": write_swf,
    "wfcommons": write_wfformat,
}
