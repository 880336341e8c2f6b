"""`fermata evaluate`: a policy against the base of each scenario, with intervals."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fermata.cli.interrupts import InterruptError
from fermata.cli.options import (
    EpisodeJobs,
    InsteadTrace,
    ItsExecutors,
    MaxHold,
    MaxWait,
    OtherEstimates,
    OtherWeights,
    Processes,
    Settings,
    Sticky,
    TpchDir,
    check_limits,
)

if TYPE_CHECKING:
    from fermata.training.config import OwnTrace
    from fermata.training.own import Part

app = typer.Typer(add_completion=False)


@app.command()
def evaluate(
    policy: Annotated[str, typer.Argument(help="An ONNX file, or the name of a built-in policy.")],
    scenarios: Annotated[
        str | None, typer.Option(help="Names separated by commas; 'all', the default, is every random one.")
    ] = None,
    trace: InsteadTrace = None,
    executors: ItsExecutors = None,
    part: Annotated[
        str | None,
        typer.Option(help="Part of that trace: test (default), which fermata train --trace leaves out, or all."),
    ] = None,
    seeds: Annotated[str, typer.Option(help="A-B; the default seeds are seen by no training and no tuning.")] = (
        "2000-2019"
    ),
    processes: Processes = None,
    episode_jobs: EpisodeJobs = None,
    settings: Settings = None,
    later: Annotated[
        list[str] | None, typer.Option(help="Change a parameter from the middle of each episode on, like --set.")
    ] = None,
    noise: OtherEstimates = None,
    weights: OtherWeights = None,
    max_hold: MaxHold = math.inf,
    max_wait: MaxWait = math.inf,
    sticky: Sticky = False,
    tpch_dir: TpchDir = None,
    base: Annotated[str | None, typer.Option(help="Compare with this policy; by default the scenario's own.")] = None,
    corrections: Annotated[
        str,
        typer.Option(
            help="Who gets estimates corrected by what stages took: policy (a model of the shipped kind), all, or none."
        ),
    ] = "policy",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare a policy with a simple one, on the same jobs.

    Seed by seed with the base that each scenario names, or on one's own trace with srwf. Where jobs have weights, the
    mean by weight is compared, too. Ctrl-C prints the scores of what is done by then, and exits 130.
    """
    from fermata.cli.options import parameter, seed_range
    from fermata.cli.progress import progress_bar
    from fermata.cli.tables import scores_table, show
    from fermata.policy.guardrails import Guardrails
    from fermata.sim.generate.estimates import read_noise
    from fermata.sim.generate.weights import read_weights
    from fermata.sim.processes import cores
    from fermata.training.evaluate import Conditions, as_dict, names_of, read_corrections
    from fermata.training.evaluate import evaluate as run

    check_limits(max_hold, max_wait)
    own, chosen_part = _own(trace, executors, part, scenarios)
    names = names_of("all" if scenarios is None else scenarios) if own is None else [Path(own.path).name]
    numbers = seed_range(seeds)
    conditions = Conditions(
        episode_jobs,
        tuple(parameter(text) for text in settings or []),
        None if noise is None else read_noise(noise),
        tuple(parameter(text, "--later") for text in later or []),
        Guardrails(max_hold, max_wait),
        tpch_dir,
        own,
        chosen_part,
        base,
        read_corrections(corrections),
        sticky,
        None if weights is None else read_weights(weights),
    )
    with progress_bar("episodes") as progress:
        progress(0.0)

        def on_done(done: int, total: int) -> None:
            progress(done / total)

        scores = run(
            policy,
            names,
            numbers,
            processes or min(cores(), len(names) * len(numbers)),
            on_done,
            conditions,
        )
    done, total = sum(score.seeds for score in scores), len(names) * len(numbers)
    if as_json:
        told = as_dict(policy, numbers, scores)
        # Scores of other conditions are none of the scenario's own, wherever these are kept.
        others: dict[str, object] = {"part": part, "episode_jobs": episode_jobs, "set": settings, "later": later}
        others |= {"sticky": sticky or None, "weights": weights}
        others |= {"noise": noise, "max_hold": max_hold, "max_wait": max_wait, "base": base, "corrections": corrections}
        if own is not None:  # whose name says neither what is in it nor how large the pool is
            told["trace"] = {"executors": executors, "sha256": own.sha256}
        if changed := {name: value for name, value in others.items() if value not in (None, [], math.inf, "policy")}:
            told["conditions"] = changed
        print(json.dumps(told | ({"interrupted": True} if done < total else {})))
    else:
        show(scores_table(policy, scores, "" if own is None else _jobs_of(chosen_part)))
    if done < total:
        raise InterruptError(f"interrupted after {done} of {total} episodes; the scores are of these")


def _jobs_of(part: Part) -> str:
    """Say which jobs of a trace are judged on: `fermata compare` plays them all."""
    from fermata.training.own import SHARES

    first, _ = SHARES[part]
    return "all jobs of the trace" if first == 0.0 else f"last {1.0 - first:.0%} of its jobs"


def _own(
    trace: str | None, executors: int | None, part: str | None, scenarios: str | None
) -> tuple[OwnTrace | None, Part]:
    """Return the trace that was asked for, if one was, and which part of it.

    Raises:
        InputError: an option is missing or goes without the others, or the trace cannot be used.
    """
    from fermata.cli.options import trace_instead
    from fermata.policy.errors import InputError

    if trace is None and part is not None:
        raise InputError("--part is of a --trace")
    if part not in (None, "test", "all"):
        raise InputError(f"--part: expected test or all, got {part!r}")
    return trace_instead(trace, executors, scenarios), "all" if part == "all" else "test"
