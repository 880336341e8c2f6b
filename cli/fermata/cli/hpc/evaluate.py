"""`fermata hpc evaluate`: several policies on the same sequences of a log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fermata.cli.hpc.options import (
    AsJson,
    CleaningName,
    Count,
    Estimates,
    JobCount,
    Kill,
    Log,
    Part,
    Seed,
    Stretch,
    Warm,
    draw,
    inspector,
    load,
)
from fermata.cli.progress import progress_bar
from fermata.policy.errors import InputError


def evaluate(
    log: Log,
    policies: Annotated[list[str], typer.Option("--policy", help="A policy, as for simulate; may be repeated.")],
    sequences: Count = 50,
    jobs: JobCount = 256,
    seed: Seed = 1,
    part: Part = "test",
    warm: Warm = 0,
    published_draws: Annotated[
        bool, typer.Option(help="Sequences as SchedInspector's evaluation draws them; needs --part all.")
    ] = False,
    cleaning: CleaningName = "archive",
    estimates: Estimates = "user",
    stretch: Stretch = 1.0,
    kill: Kill = False,
    inspectors: Annotated[
        list[str] | None,
        typer.Option(
            "--inspector",
            help="An .onnx file, or reject-blocked[:LIMIT] (72): each policy with it, too; may be repeated.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare policies on sequences of jobs of a log.

    Means and 95% intervals; bounded slowdown never without wait.
    """
    from fermata.sim.hpc import policy as named
    from fermata.sim.hpc.experiment import pooled, run_sequences
    from fermata.sim.json_values import only_finite

    chosen = [named(text, kill_at_estimate=kill) for text in policies]
    if inspectors and (alone := [each.name for each in chosen if each.model is not None]):
        raise InputError(f"--inspector: {alone[0]} holds jobs by itself; expected no inspector beside it")
    given = load(log, cleaning, estimates, seed, stretch)
    drawn = draw(given, sequences, jobs, seed, part, warm, published=published_draws)
    beside = inspectors or []
    helpers = [
        ("", None),
        *((f" & {name}", inspector(text, given)) for name, text in zip(_shown(beside), beside, strict=True)),
    ]
    results: list[tuple[str, dict[str, float], dict[str, float]]] = []
    with progress_bar("sequences") as progress:

        def tell(share: float) -> None:
            progress((len(results) + share) / (len(chosen) * len(helpers)))

        for each in chosen:
            for suffix, helper in helpers:
                results.append((each.name + suffix, *pooled(run_sequences(given, each, drawn, helper, tell))))
    if as_json:
        rows = [
            {"policy": name} | only_finite(means) | {"ci95": only_finite(halves)} for name, means, halves in results
        ]
        print(json.dumps({"log": given.name, "part": part, "starts": drawn.starts, "jobs": jobs, "policies": rows}))
        return
    from rich.table import Table

    from fermata.cli.tables import show, with_half
    from fermata.policy.wording import counted

    means_of = ", mean ± 95%" if sequences > 1 else ""  # a single one has no interval
    table = Table(title=f"{given.name}, {part}: {counted(sequences, 'sequence')} of {counted(jobs, 'job')}{means_of}")
    table.add_column("policy", no_wrap=True)
    for title in ("bsld", "wait s", "max bsld", "utilisation"):
        table.add_column(title, justify="right", no_wrap=True)
    for name, means, halves in results:
        table.add_row(
            name,
            with_half(means["bsld"], halves["bsld"], ",.2f"),
            with_half(means["wait_s"], halves["wait_s"], ",.0f"),
            f"{means['mbsld']:,.0f}",
            f"{means['utilization']:.3f}",
        )
    show(table)


def _shown(inspectors: list[str]) -> list[str]:
    """Return what they are called: a file by its name alone, unless files of several folders have the same."""
    names = [Path(text).name for text in inspectors]
    return [name if names.count(name) == 1 else text for name, text in zip(names, inspectors, strict=True)]
