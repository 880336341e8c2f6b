"""Formats that traces can be written in, by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fermata.sim.exporters.swf import write_swf
from fermata.sim.exporters.wfformat import write_wfformat
from fermata.sim.trace import Trace
from fermata.sim.trace_io import write_trace

__all__ = ["EXPORTERS", "write_swf"]


def _write_graphml(trace: Trace, path: str | Path) -> None:
    """Write GraphML; networkx is loaded for nothing else, and whoever writes other formats need not have it."""
    from fermata.sim.exporters.graphml import write_graphml

    write_graphml(trace, path)


EXPORTERS: dict[str, Callable[[Trace, str | Path], None]] = {
    "graphml": _write_graphml,
    "jsonl": write_trace,
    "swf": write_swf,
    "wfcommons": write_wfformat,
}
