"""`fermata policy headroom`: what a model leaves on the table, by trying every action in sampled futures."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fermata.cli.extras import need
from fermata.cli.interrupts import InterruptError
from fermata.cli.options import (
    EpisodeJobs,
    InsteadTrace,
    ItsExecutors,
    OtherEstimates,
    Processes,
    Settings,
    parameter,
    seed_range,
    trace_instead,
)
from fermata.cli.progress import progress_bar
from fermata.policy.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from fermata.sim.scenarios import Scenario
    from fermata.training.evaluate import Conditions
    from fermata.training.headroom import Found, Headroom

EAGER = "eager"


def headroom(
    model: Annotated[
        str,
        typer.Argument(help="default, an ONNX file of its kind, or eager: never holds."),
    ],
    scenarios: Annotated[
        str | None,
        typer.Option(help="Names of scenarios, separated by commas; 'all' is every random one; by default dag_pods."),
    ] = None,
    trace: InsteadTrace = None,
    executors: ItsExecutors = None,
    seeds: Annotated[str, typer.Option(help="A-B: the episodes.")] = "9000-9007",
    episode_jobs: EpisodeJobs = None,
    settings: Settings = None,
    noise: OtherEstimates = None,
    futures: Annotated[
        int, typer.Option(min=16, help="Futures that an action in doubt is tried in, at the most.")
    ] = 64,
    processes: Processes = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say how much a policy leaves on the table.

    How much sooner jobs would be done if each action were tried in sampled futures before one is taken. Of eager, which
    always starts what models put first (the job with the least work left, but of DAGs rather one that runs), that is
    what holding is worth at least, before anything is trained. The futures know nothing that a scheduler cannot:
    neither what arrives nor when tasks end. Of a trace the episodes are of its last part, as those of fermata evaluate
    are, and what arrives in the futures is of its first half. What is found is a lower bound: more futures may find
    more. Takes minutes an episode; Ctrl-C prints what is done by then, and exits 130.
    """
    need("training")
    from fermata.cli.tables import show
    from fermata.sim.experiment import over_processes
    from fermata.sim.generate.estimates import read_noise
    from fermata.sim.processes import cores
    from fermata.training.evaluate import Conditions
    from fermata.training.headroom import Effort, Unit, look_into, pooled

    numbers, path = seed_range(seeds), _file(model)
    conditions = Conditions(
        jobs=episode_jobs,
        parameters=tuple(parameter(text) for text in settings or []),
        noise=None if noise is None else read_noise(noise),
        own=trace_instead(trace, executors, scenarios),
    )
    pairs = _with_others(conditions, "dag_pods" if scenarios is None else scenarios)
    names, effort = [each.name for each, _ in pairs], Effort(futures=futures)
    units = [Unit(path, each, others, seed, effort) for each, others in pairs for seed in numbers]
    found: list[Found] = []
    with progress_bar("episodes") as progress, closing(over_processes(look_into, units, processes or cores())) as runs:
        try:
            for each in runs:
                found.append(each)
                progress(len(found) / len(units))
        except KeyboardInterrupt:
            if not found:
                raise
    done = [found[i * len(numbers) : (i + 1) * len(numbers)] for i in range(len(names))]
    rows = [pooled(name, those, conditions.interval) for name, those in zip(names, done, strict=True)]
    rows = [row for row in rows if row.seeds]
    cut = len(found) < len(units)
    if as_json:
        told = {"policy": model, "futures": futures, "scenarios": [row._asdict() for row in rows]}
        print(json.dumps(told | ({"interrupted": True} if cut else {})))
    else:
        show(_table(model, rows))
    if cut:
        raise InterruptError(f"interrupted after {len(found)} of {len(units)} episodes")


def _file(model: str) -> Path | None:
    """Return the file of a model, which can be read; of none for the policy that never holds.

    Raises:
        InputError: there is no such model, or it is of another kind.
        ModelError: it cannot be used.
    """
    from fermata.policy.model_file import load_model
    from fermata.policy.onnx_policy import OnnxPolicy
    from fermata.sim.network_file import model_path, read_network

    if model == EAGER:
        return None
    path = model_path(model)
    if not isinstance(load_model(path), OnnxPolicy):
        raise InputError(f"policy {model!r} is a model of another kind; expected eager, default, or a file of its kind")
    read_network(path)  # what is wrong with it is said before the work begins
    return path


def _with_others(conditions: Conditions, scenarios: str) -> list[tuple[Scenario, Scenario]]:
    """Return each scenario, or the trace, with what its futures are made of.

    Episodes of a trace are made of its blocks, and of the same blocks a future would know what comes.

    Raises:
        InputError: there is no such scenario, or a part of the trace makes no load. Where all jobs have come at once
            each future would have as many more to come at once, and what an action does to those would count.
    """
    from fermata.sim.workloads import workloads
    from fermata.training.own import check_load

    if conditions.own is not None:
        check_load(conditions.own, ("teach", "test"), "no future in which an action could be tried")
        name = Path(conditions.own.path).name
        return [(conditions.scenario(name), replace(conditions, part="teach").scenario(name))]
    names = dict.fromkeys(each.name for name in scenarios.split(",") for each in workloads(name.strip()))
    return [(each, each) for each in map(conditions.scenario, names)]


def _table(model: str, rows: list[Headroom]) -> Table:
    from fermata.cli.tables import plain_table, with_half

    title = f"{model}: average JCT against srwf, and what trying every action in futures adds, 95% intervals"
    figures = ("seeds", "decisions in doubt", "decided otherwise", "change %", "trying changes further %")
    table = plain_table(("scenario", *figures), title=title)
    for row in rows:
        table.add_row(
            row.scenario,
            str(row.seeds),
            f"{row.asked:,}",
            f"{row.other:,}",
            with_half(row.vs_base_pct, row.vs_base_ci95, "+.2f"),
            with_half(row.further_pct, row.further_ci95, "+.2f"),
        )
    return table
