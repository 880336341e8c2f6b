"""Importers of traces that people have, by the name of their format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fermata.sim.importers.alibaba import read_alibaba
from fermata.sim.importers.base import Imported, ImportOptions
from fermata.sim.importers.kubernetes import read_kubernetes
from fermata.sim.importers.native import read_native
from fermata.sim.importers.swf import read_swf
from fermata.sim.importers.tables import read_table
from fermata.sim.importers.tpch import read_tpch
from fermata.sim.importers.wfcommons import read_wfcommons

__all__ = ["IMPORTERS", "OPTIONS_OF_SOME", "ImportOptions", "Imported", "Importer"]

OPTIONS_OF_SOME = frozenset(
    {"column", "where", "executor", "keep_incomplete", "jobs", "mean_gap_s", "seed", "sequence"}
)


@dataclass(frozen=True)
class Importer:
    """A format that can be read.

    Args:
        name: what it is called.
        what: what it is.
        read: reads it.
        takes: those of `OPTIONS_OF_SOME` that change what is read of it; the other options are of every format.
    """

    name: str
    what: str
    read: Callable[[str | Path, ImportOptions], Imported]
    takes: frozenset[str]


def _read_graphml(path: str | Path, options: ImportOptions) -> Imported:
    """Read GraphML; networkx is loaded for nothing else, and whoever reads other formats need not have it."""
    from fermata.sim.importers.graphml import read_graphml

    return read_graphml(path, options)


_LOG, _RUNS = frozenset({"keep_incomplete"}), frozenset({"keep_incomplete", "mean_gap_s", "seed"})
_SAMPLED = frozenset({"jobs", "mean_gap_s", "seed", "sequence"})
_PODS, _TABLE = _LOG | {"executor"}, _LOG | {"column", "where"}

IMPORTERS: dict[str, Importer] = {
    each.name: each
    for each in (
        Importer("alibaba", "batch_task.csv of Alibaba's 2018 cluster trace", read_alibaba, _LOG),
        Importer("csv", "a table of jobs, one row each: as of Slurm's sacct, or a database", read_table, _TABLE),
        Importer("graphml", "GraphML: graphs of other programs, one file or a folder", _read_graphml, _RUNS),
        Importer("jsonl", "Fermata's own job traces", read_native, frozenset()),
        Importer("kubernetes", "Jobs, Argo Workflows and Tekton runs, as kubectl prints them", read_kubernetes, _PODS),
        Importer("swf", "Standard Workload Format: logs of parallel machines", read_swf, _LOG),
        Importer("tpch", "a folder of Decima's TPC-H queries, sampled", read_tpch, _SAMPLED),
        Importer(
            "wfcommons", "WfCommons wfformat: runs of scientific workflows, one file or a folder", read_wfcommons, _RUNS
        ),
    )
}
