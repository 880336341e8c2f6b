"""`fermata evaluate`: a policy against the base of each scenario, with intervals."""

import json
import os
import sys
from typing import Annotated

import typer

app = typer.Typer()

INTERRUPTED = 130


@app.command()
def evaluate(
    policy: Annotated[str, typer.Argument(help="An ONNX file, or the name of a built-in policy.")],
    scenarios: Annotated[str, typer.Option(help="'all', or names separated by commas.")] = "all",
    seeds: Annotated[str, typer.Option(help="A-B; the default seeds are seen by no training and no tuning.")] = (
        "2000-2019"
    ),
    processes: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Processes; the figures do not depend on it.")
    ] = None,
    episode_jobs: Annotated[
        int | None, typer.Option(min=1, help="Jobs of an episode; by default the scenario's own number.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare a policy with the base of each scenario, seed by seed.

    Ctrl-C prints the scores of what is done by then, and exits 130.
    """
    from rich.console import Console
    from rich.progress import Progress

    from fermata.cli.options import seed_range
    from fermata.cli.tables import scores_table
    from fermata.training.evaluate import as_dict, names_of
    from fermata.training.evaluate import evaluate as run

    names, numbers = names_of(scenarios), seed_range(seeds)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("episodes", total=len(names) * len(numbers))
        scores = run(
            policy,
            names,
            numbers,
            processes or min(os.cpu_count() or 1, len(names) * len(numbers)),
            lambda done, _: progress.update(task, completed=done),
            episode_jobs,
        )
    done, total = sum(score.seeds for score in scores), len(names) * len(numbers)
    if as_json:
        print(json.dumps(as_dict(policy, numbers, scores) | ({"interrupted": True} if done < total else {})))
    else:
        Console().print(scores_table(policy, scores))
    if done < total:
        print(f"fermata: interrupted after {done} of {total} episodes; the scores are of these", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
