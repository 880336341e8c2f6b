"""Write jobs as GraphML, one graph each, for programs that draw and measure graphs: Gephi, yEd, networkx, igraph.

Source: http://graphml.graphdrawing.org. Its attributes are single values, so the durations of unequal tasks are a text,
as JSON has lists.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import networkx as nx

from fermata.policy.errors import InputError
from fermata.sim.files import atomic_output
from fermata.sim.job_graph import graph_of
from fermata.sim.trace import Trace

# What XML cannot hold, and what its readers turn into another kind of space.
_NO_XML = re.compile("[\x00-\x1f\ufffe\uffff]")


def write_graphml(trace: Trace, path: str | Path) -> None:
    """Write the jobs of a trace, in order.

    Raises:
        InputError: a name has a character that XML cannot hold.
    """
    writer = nx.GraphMLWriter()
    for job in range(trace.jobs):
        writer.add_graph_element(_plain(graph_of(trace, job)))
        writer.attributes.clear()  # what is left there, networkx would write into its elements anew with every graph
    with atomic_output(path) as stream:
        writer.dump(stream)


def _plain(graph: nx.DiGraph) -> nx.DiGraph:
    """Turn lists into text."""
    for name in (graph.name, *graph.nodes):
        if odd := _NO_XML.search(name):
            raise InputError(f"the name {name!r} has the character {odd.group()!r}, which XML cannot hold")
    for _, attributes in graph.nodes(data=True):
        if "durations_s" in attributes:
            attributes["durations_s"] = json.dumps(attributes["durations_s"])
    return graph
