"""`fermata policy explain`: what a model learned, as a table, an HTML page or JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fermata.cli.extras import need
from fermata.cli.options import (
    MaxHold,
    MaxWait,
    check_apart,
    check_least,
    check_limits,
    check_output,
    model_file,
    path,
    seed_range,
)
from fermata.cli.progress import progress_bar
from fermata.cli.provenance import command, versions
from fermata.policy.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from fermata.policy.graph_policy import GraphPolicy
    from fermata.policy.onnx_policy import OnnxPolicy
    from fermata.sim.explain import Explanation
    from fermata.sim.metrics import Interval
    from fermata.sim.scenarios import Scenario

_SHOWN = ("express_k2", "k8s_poisson", "dag_pods")  # holding pays in them, and none takes long
_MOST_STATES = 100_000  # of an episode; 20 MB, and more are too many to look at
_ROWS = 10  # of a table at the terminal
_GRAPH_JOBS = 500  # of an episode under a graph policy, at the most


def explain(
    model: Annotated[str, typer.Argument(help="default, or an ONNX file of its kind or of a graph policy.")],
    scenario: Annotated[
        list[str] | None,
        typer.Option(help="Where it decides: scenarios, or 'all'; default: a few in which holding pays."),
    ] = None,
    seeds: Annotated[str, typer.Option(help="A-B, or one seed; intervals are over them.")] = "7000-7004",
    out: Annotated[Path | None, typer.Option(parser=path, help="Write it as an HTML page.")] = None,
    top: Annotated[
        int,
        typer.Option(
            help="How many features, and all groups, whole episodes also do without (0: none); not of graph policies."
        ),
    ] = 6,
    states: Annotated[int, typer.Option(help="States that are kept of each episode.")] = 500,
    max_hold: MaxHold = math.inf,
    max_wait: MaxWait = math.inf,
    as_json: Annotated[bool, typer.Option("--json", help="Print all numbers as one JSON object.")] = False,
) -> None:
    """Say what a model learned.

    What its decisions depend on, where it holds, and what it would do elsewhere: importance of every feature by
    permutation, and what the mean JCT does without it; distributions of the states in which it holds against all
    states; partial dependence of the hold on the next completion and on the waiting longs; how often it does what. All
    with 95% intervals over seeds.
    """
    from fermata.policy.graph_policy import GraphPolicy
    from fermata.policy.guardrails import Guardrails
    from fermata.sim.explain import Workload, explain_graph
    from fermata.sim.explain import explain as look_into

    if out is not None:
        need("report")
    check_least(0, {"--top": top})
    if not 1 <= states <= _MOST_STATES:
        raise InputError(f"--states: expected 1 to {_MOST_STATES:,}, got {states}")
    check_limits(max_hold, max_wait)
    if out is not None:
        check_output(out)
        check_apart({"the model": model_file(model), "--out": out})
    policy, numbers = _model(model), seed_range(seeds)
    drawn = _scenarios(scenario or list(_SHOWN))
    if isinstance(policy, GraphPolicy):  # a decision of it takes a hundred times as long
        drawn = [each.with_(jobs=min(each.jobs, _GRAPH_JOBS), warm=min(each.warm, _GRAPH_JOBS // 10)) for each in drawn]
    chosen = [Workload(each.name, each.executors, each.generate, each.warm) for each in drawn]
    limits = Guardrails(max_hold, max_wait)
    with progress_bar(f"looking into {policy.name}") as progress:
        if isinstance(policy, GraphPolicy):
            found = explain_graph(policy, chosen, numbers, limits=limits, most=states, progress=progress)
        else:
            found = look_into(policy, chosen, numbers, limits=limits, most=states, top=top, progress=progress)
    if out is not None:
        _write_page(found, seeds, out)
    if as_json:
        print(json.dumps(found.as_dict() | {"report": None if out is None else str(out)}))
    else:
        _tell(found, out)


def _model(spec: str) -> OnnxPolicy | GraphPolicy:
    from fermata.policy.graph_policy import GraphPolicy
    from fermata.policy.heuristics.base import Heuristic
    from fermata.policy.onnx_policy import OnnxPolicy
    from fermata.policy.registry import load

    policy = load(spec)
    if not isinstance(policy, OnnxPolicy | GraphPolicy):
        what = "is a rule, not a model" if isinstance(policy, Heuristic) else "is a model of another kind"
        raise InputError(f"policy {spec!r} {what}; expected default, or an .onnx file of its kind")
    return policy


def _scenarios(names: list[str]) -> list[Scenario]:
    from fermata.sim.workloads import workloads

    wanted = (part.strip() for text in names for part in text.split(","))
    return list({each.name: each for name in wanted for each in workloads(name)}.values())


def _write_page(found: Explanation, seeds: str, out: Path) -> None:
    from fermata.sim.explain.chapter import chapter_of
    from fermata.sim.report import Report, write

    facts = {
        "command": command(),
        "seeds": seeds,
        f"model {found.name}": f"sha256 {found.digest}",
        "versions": versions("numpy", "onnxruntime"),
    }
    chapter = chapter_of(found)
    report = Report(f"Fermata: {chapter.name}", "", [], (), facts, [chapter])
    with progress_bar("drawing") as progress:
        write(report, out, progress)


def _tell(found: Explanation, out: Path | None) -> None:
    from fermata.cli.tables import show

    show(_importance_table(found), _behaviour_table(found))
    if found.distributions:
        names = ", ".join(f"{each.name} ({each.distance:.2f})" for each in found.distributions[:3])
        print(f"\nwhat sets the states in which it holds apart the most: {names}")
    if out is not None:
        print(f"report: {out}")


def _importance_table(found: Explanation) -> Table:
    from fermata.cli.tables import plain_table

    table = plain_table(("what the decisions depend on", "changed %", "JCT % without it"))
    for each in (*found.groups, *found.features[:_ROWS]):
        without = "" if each.jct_percent is None else _number(each.jct_percent, 1.0, "+.2f")
        name = f"{each.name} (all)" if each.group else each.name
        table.add_row(name, _number(each.changed, 100.0, ".2f"), without)
    return table


def _behaviour_table(found: Explanation) -> Table:
    from fermata.cli.tables import plain_table
    from fermata.policy.learned import ACTIONS

    table = plain_table(("scenario", "decisions", *(f"{name} %" for name in ACTIONS), "mean JCT s"))
    for each in found.behaviour:
        shares = [_number(share, 100.0, ".1f") for share in each.shares]
        table.add_row(each.name, f"{each.decisions:,}", *shares, _number(each.avg_jct_s, 1.0, ",.2f"))
    return table


def _number(found: Interval, scale: float, form: str) -> str:
    from fermata.cli.tables import with_half

    return with_half(scale * found.mean, scale * found.ci95, form)
