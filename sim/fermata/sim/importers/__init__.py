"""Importers of traces that people have, by the name of their format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fermata.sim.importers.alibaba import read_alibaba
from fermata.sim.importers.base import Imported, ImportOptions
from fermata.sim.importers.native import read_native
from fermata.sim.importers.swf import read_swf
from fermata.sim.importers.tpch import read_tpch
from fermata.sim.importers.wfcommons import read_wfcommons

__all__ = ["IMPORTERS", "ImportOptions", "Imported", "Importer"]


@dataclass(frozen=True)
class Importer:
    """A format that can be read."""

    name: str
    what: str
    read: Callable[[str | Path, ImportOptions | None], Imported]


IMPORTERS: dict[str, Importer] = {
    each.name: each
    for each in (
        Importer("alibaba", "batch_task.csv of Alibaba's 2018 cluster trace", read_alibaba),
        Importer("jsonl", "Fermata's own job traces", read_native),
        Importer("swf", "Standard Workload Format: logs of parallel machines", read_swf),
        Importer("tpch", "a folder of Decima's TPC-H queries, sampled", read_tpch),
        Importer("wfcommons", "WfCommons wfformat: runs of scientific workflows, one file or a folder", read_wfcommons),
    )
}
