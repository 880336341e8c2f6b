"""`fermata evaluate`: a policy against the base of each scenario, with intervals."""

import json
import math
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
        int | None,
        typer.Option("--jobs", min=1, help="Processes, by default one a core; same figures."),
    ] = None,
    episode_jobs: Annotated[
        int | None, typer.Option(min=1, help="Jobs of an episode; by default the scenario's own number.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a parameter of every scenario, such as load=0.9.")
    ] = None,
    later: Annotated[
        list[str] | None, typer.Option(help="Change a parameter from the middle of each episode on, like --set.")
    ] = None,
    noise: Annotated[
        str | None, typer.Option(help="Other estimates: class-flips=SHARE, lognormal=SIGMA, class-means or exact.")
    ] = None,
    max_hold: Annotated[float, typer.Option(min=0, help="Longest time for which a stage may be held, seconds.")] = (
        math.inf
    ),
    max_wait: Annotated[float, typer.Option(min=0, help="Time after which a ready stage is held no more, seconds.")] = (
        math.inf
    ),
    tpch_dir: Annotated[
        str | None, typer.Option(help="Decima's TPC-H data, for tpch_a, tpch_c, tpch_e1 or tpch_e2.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare a policy with the base of each scenario, seed by seed.

    Ctrl-C prints the scores of what is done by then, and exits 130.
    """
    from rich.console import Console
    from rich.progress import Progress

    from fermata.cli.options import parameter, seed_range
    from fermata.cli.tables import scores_table, show
    from fermata.policy.guardrails import Guardrails
    from fermata.sim.generate.estimates import read_noise
    from fermata.sim.processes import cores
    from fermata.training.evaluate import Conditions, as_dict, names_of
    from fermata.training.evaluate import evaluate as run

    names, numbers = names_of(scenarios), seed_range(seeds)
    conditions = Conditions(
        episode_jobs,
        tuple(parameter(text) for text in settings or []),
        None if noise is None else read_noise(noise),
        tuple(parameter(text, "--later") for text in later or []),
        Guardrails(max_hold, max_wait),
        tpch_dir,
    )
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("episodes", total=len(names) * len(numbers))
        scores = run(
            policy,
            names,
            numbers,
            processes or min(cores(), len(names) * len(numbers)),
            lambda done, _: progress.update(task, completed=done),
            conditions,
        )
    done, total = sum(score.seeds for score in scores), len(names) * len(numbers)
    if as_json:
        print(json.dumps(as_dict(policy, numbers, scores) | ({"interrupted": True} if done < total else {})))
    else:
        show(scores_table(policy, scores))
    if done < total:
        print(f"fermata: interrupted after {done} of {total} episodes; the scores are of these", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
