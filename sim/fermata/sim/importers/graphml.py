"""Graphs of other programs in GraphML: each graph is one job, each of its nodes a stage, each edge a dependency.

Source: http://graphml.graphdrawing.org; read by networkx. A node's attributes `duration_s`, `durations_s` (a text, as
JSON has lists), `work_s`, `serial_fraction`, `tasks`, `slots` and `estimate_s` mean what they do in a job trace, and so
do `arrival_s` and `weight` of a graph; its `name` is the job's id. Labels, places, colours and other attributes are
left out.

What becomes of it: a graph without `arrival_s` arrives as the next one of a Poisson process with `mean_gap_s`, the
first at 0; one without a name is called after its file. A node that has no time makes its job incomplete: it is
skipped, or with `keep_incomplete` its tasks take 0 s. Of a folder all files are read that end in `.graphml`, in order
of name.
"""

from __future__ import annotations

import json
import warnings
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, ParseError

import networkx as nx

from fermata.policy.errors import InputError
from fermata.sim.files import STANDARD_STREAM, read_bytes, shown_name
from fermata.sim.importers.base import DEFAULTS, Imported, ImportOptions, JobSink, drawn_arrivals_s, runs_of
from fermata.sim.job_graph import has_times, job_fields
from fermata.sim.trace_io import job_of

_ROOT = f"{{{nx.GraphMLReader.NS_GRAPHML}}}graphml"


def read_graphml(path: str | Path, options: ImportOptions = DEFAULTS) -> Imported:
    """Read the graphs of one file, or of all files of a folder.

    Args:
        path: a file, possibly `.xz` or `.gz`, `-` for standard input, or a folder.
        options: see `ImportOptions`; of the sampling options `mean_gap_s` and `seed` apply.

    Raises:
        InputError: a file cannot be read or is no GraphML, or a graph is no job; names the file.
    """
    sink, arrivals_s = JobSink(path, options), drawn_arrivals_s(options)
    for file in runs_of(path, ".graphml", options):
        for number, graph in enumerate(_graphs(file), start=1):
            if sink.full:
                return sink.finish()
            try:
                fields = {"id": _name(file, number), "arrival_s": next(arrivals_s), **job_fields(graph)}
                if not _complete(fields["stages"], options):
                    sink.skip("a node has no duration_s, durations_s or work_s")
                    continue
                job_id, arrival_s, weight, stages = job_of(fields)
                sink.add(job_id, arrival_s, stages, weight=weight)
            except InputError as error:
                raise InputError(f"graph {number}: {error.message}", file=shown_name(file)) from error
    return sink.finish()


class _Reader(nx.GraphMLReader):  # type: ignore[misc]
    """Names the node or edge that is amiss, of which a file may have thousands."""

    def add_node(self, graph: nx.DiGraph, node_xml: Element, *others: Any) -> None:
        """Add a node; networkx would put one of an id that there is in the place of the first."""
        nodes = len(graph)
        super().add_node(graph, node_xml, *others)
        if len(graph) == nodes:
            raise nx.NetworkXError(f"node {node_xml.get('id')} is there twice")

    def decode_data_elements(self, graphml_keys: Any, obj_xml: Element) -> Any:
        try:
            return super().decode_data_elements(graphml_keys, obj_xml)
        except (KeyError, ValueError, nx.NetworkXException) as error:
            ends = (obj_xml.get("id"), obj_xml.get("source"), obj_xml.get("target"))
            name = " ".join(filter(None, (obj_xml.tag.rpartition("}")[2], *ends)))
            raise nx.NetworkXError(f"{name}: {error}") from error


def _graphs(file: str | Path) -> list[nx.DiGraph]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of ports and untyped attributes, which are nothing to us
            reader = _Reader()
            graphs = list(reader(path=BytesIO(read_bytes(file))))
            if not graphs and (root := reader.xml.getroot().tag) != _ROOT:
                raise nx.NetworkXError(f"its outermost element is {root!r}; expected {_ROOT!r}")
            return graphs
    except ParseError as error:
        raise InputError(f"no XML: {error}", file=shown_name(file)) from error
    # What a document of other types, keys, parts or encodings makes networkx raise.
    except (nx.NetworkXException, AttributeError, LookupError, TypeError, ValueError) as error:
        raise InputError(f"no GraphML that networkx can read: {error}", file=shown_name(file)) from error


def _name(file: str | Path, number: int) -> str:
    """Return what a graph without a name is called."""
    stem = "job" if str(file) == STANDARD_STREAM else Path(file).name.split(".")[0] or "job"
    return stem if number == 1 else f"{stem}-{number}"


def _complete(stages: list[dict[str, Any]], options: ImportOptions) -> bool:
    """Put the options into the stages of a job, and return whether all of them now have a time."""
    for stage in stages:
        if options.one_slot:
            stage.pop("slots", None)
        if options.exact_estimates:
            stage.pop("estimate_s", None)
        if options.keep_incomplete and not has_times(stage):
            stage["duration_s"] = 0.0
        for count in ("tasks", "slots"):
            if isinstance(number := stage.get(count), float) and number.is_integer():
                stage[count] = int(number)  # igraph knows no other numbers than doubles
        if isinstance(text := stage.get("durations_s"), str):
            stage["durations_s"] = _numbers(text, stage["name"])
    return all(has_times(stage) for stage in stages)


def _numbers(text: str, stage: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # the latter of lists in lists without end
        told = f"durations_s must be a list of numbers as JSON has it, not {text[:40]!r}"
        raise InputError(f"stage {stage!r}: {told}") from error
