"""A job of a trace as a graph of networkx, and back: what other programs draw, measure and make.

Nodes are stages, under their names, and edges go from parents to children. Attributes are the keys of the job trace
format: of a node those of a stage, of the graph `arrival_s`, `weight` and, for the job's id, networkx's own `name`.
"""

from __future__ import annotations

from typing import Any

import networkx as nx

from fermata.policy.errors import InputError
from fermata.sim.trace import Trace
from fermata.sim.trace_io import STAGE_KEYS, TIME_FORMS, stage_fields


def graph_of(trace: Trace, job: int) -> nx.DiGraph:
    """Return a job as a graph, stages in their order.

    >>> from fermata.sim.trace_builder import StageSpec, TraceBuilder
    >>> builder = TraceBuilder()
    >>> builder.add_job("etl", 5.0, [StageSpec("load", [2.0]), StageSpec("report", [1.0], depends_on=["load"])])
    >>> graph = graph_of(builder.finish(), 0)
    >>> graph.graph, list(graph.nodes(data="duration_s")), list(graph.edges)
    ({'name': 'etl', 'arrival_s': 5.0, 'weight': 1.0}, [('load', 2.0), ('report', 1.0)], [('load', 'report')])
    """
    weight = float(trace.job_weight[job])
    graph = nx.DiGraph(name=trace.job_ids[job], arrival_s=float(trace.job_arrival_s[job]), weight=weight)
    edges: list[tuple[str, str]] = []
    for stage in range(int(trace.job_stage_ptr[job]), int(trace.job_stage_ptr[job + 1])):
        fields = stage_fields(trace, stage)
        name = fields.pop("name")
        edges += [(parent, name) for parent in fields.pop("depends_on")]
        graph.add_node(name, **fields)
    graph.add_edges_from(edges)  # last, as they would add nodes that are not there yet, out of order
    return graph


def job_fields(graph: nx.DiGraph) -> dict[str, Any]:
    """Describe a graph by the keys of the job trace format, as far as it has them; other attributes are left out.

    Nodes are named by what `str` makes of them. The types of values are not looked at; `trace_io.job_of` does that.

    Raises:
        InputError: the edges have no direction.

    >>> job_fields(nx.DiGraph([(1, 2)]))["stages"]
    [{'name': '1', 'depends_on': []}, {'name': '2', 'depends_on': ['1']}]
    """
    if not graph.is_directed():
        raise InputError("the edges have no direction; expected them to go from parents to children")
    fields = {key: graph.graph[key] for key in ("arrival_s", "weight") if key in graph.graph}
    if "name" in graph.graph:
        fields["id"] = graph.graph["name"]
    fields["stages"] = [
        {
            **{key: value for key, value in attributes.items() if key in STAGE_KEYS},
            "name": str(node),
            "depends_on": [str(parent) for parent in graph.predecessors(node)],
        }
        for node, attributes in graph.nodes(data=True)
    ]
    return fields


def has_times(stage: dict[str, Any]) -> bool:
    """Return whether the fields of a stage say how long its tasks take."""
    return any(form in stage for form in TIME_FORMS)
