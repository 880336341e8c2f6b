"""`fermata ablate`: the papers' ablation, trained and evaluated by one command."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fermata.cli.interrupts import resumable
from fermata.cli.options import path

app = typer.Typer(add_completion=False)


@app.command()
@resumable()
def ablate(
    out: Annotated[Path, typer.Option(parser=path, help="Folder of the runs; what is done is not done again.")],
    config: Annotated[
        str, typer.Option(help="What the agents have in common: a shipped configuration of a graph policy, or a file.")
    ] = "graph-paper",
    scenarios: Annotated[
        str, typer.Option(help="Names separated by commas, at a load of their own as in mixed@0.8.")
    ] = "syn_60,syn_80",
    seeds: Annotated[str, typer.Option(help="A-B, of the evaluation's episodes.")] = "2000-2004",
    training_seeds: Annotated[str, typer.Option(help="A-B; one agent of each kind for each.")] = "1-1",
    episode_jobs: Annotated[
        int | None, typer.Option(min=1, help="Jobs of an evaluation's episode; by default the scenario's own.")
    ] = 1000,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Worker processes, by default one a core; does not change the result.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure what the papers' features and idling are worth.

    Trains agents with and without them, and compares these. Rows are (features, idling): features are the critical path
    and the average width, 0.5 one of them. (0,0) has Decima's features and actions. Small by default; the papers' five
    seeds are --training-seeds 1-5.
    """
    from rich.table import Table

    from fermata.cli.extras import need
    from fermata.cli.options import check_folder, seed_range
    from fermata.cli.tables import half, show
    from fermata.policy.errors import InputError

    need("training")
    check_folder(out)
    from fermata.training.graph.config import GraphConfig, read_any

    base = read_any(config)
    if not isinstance(base, GraphConfig):
        raise InputError(f"{config!r} is no configuration of a graph policy; expected one with method reinforce or ppo")
    if base.network.space.kind == "none":
        raise InputError(f"{config!r} never holds (network.space.kind is none), so there is no idling to measure")
    if processes is not None:
        base = base.model_copy(update={"processes": processes})
    from fermata.training.graph.ablation import ablate as run

    names = list(dict.fromkeys(name.strip() for name in scenarios.split(",")))  # named twice, it counts once
    found = run(base, out, names, seed_range(seeds), seed_range(training_seeds), jobs=episode_jobs)
    if as_json:
        lists = {name: [each._asdict() for each in rows] for name, rows in found._asdict().items()}
        print(json.dumps({"config": base.name} | lists))
        return
    title = f"{base.name}: mean JCT, %; negative is better; 95% over training seeds / over episodes"
    table = Table("(features, idling)", *names, title=title)
    for rows, field in ((found.cells, "variant"), (found.effects, "part")):
        for which in dict.fromkeys(getattr(each, field) for each in rows):
            row = [each for each in rows if getattr(each, field) == which]
            table.add_row(
                which,
                *(f"{each.change_pct:+.2f} ± {half(each.ci95_training)} / {half(each.ci95_episodes)}" for each in row),
            )
        table.add_section()
    show(table)
