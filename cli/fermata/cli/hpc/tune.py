"""`fermata hpc tune`: the reservation rule, tuned on one part of a log and judged on another."""

from __future__ import annotations

import json
import math
from typing import Annotated

import typer

from fermata.cli.hpc.options import AsJson, CleaningName, Count, Estimates, JobCount, Kill, Log, Seed, Stretch, load
from fermata.cli.progress import progress_bar


def tune(
    log: Log,
    sequences: Count = 50,
    jobs: JobCount = 256,
    seed: Seed = 1,
    max_wait_ratio: Annotated[
        float, typer.Option(min=0.0, help="Longest mean wait allowed, relative to saf+easy/skip.")
    ] = math.inf,
    cleaning: CleaningName = "archive",
    estimates: Estimates = "user",
    stretch: Stretch = 1.0,
    kill: Kill = False,
    as_json: AsJson = False,
) -> None:
    """Tune which jobs are held, on the first fifth of a log.

    Who counts as long and what they leave free; judged on the rest of the log.
    """
    from fermata.sim.hpc.experiment import draw_sequences, pooled, run_sequences
    from fermata.sim.hpc.tune import best_reservation, try_reservations
    from fermata.sim.json_values import only_finite

    given = load(log, cleaning, estimates, seed, stretch)
    training = draw_sequences(given, sequences, jobs, seed, part="train")
    testing = draw_sequences(given, sequences, jobs, seed, part="test")
    with progress_bar("reservations") as progress:
        tried = try_reservations(given, training, kill_at_estimate=kill, progress=progress)
    tuned = best_reservation(tried, max_wait_ratio)
    means, halves = pooled(run_sequences(given, tuned.policy, testing))
    if as_json:
        train = {"bsld": tuned.bsld, "wait_s": tuned.wait_s}
        test = {"bsld": means["bsld"], "wait_s": means["wait_s"]}
        ci95 = {"bsld": halves["bsld"], "wait_s": halves["wait_s"]}
        told = {"policy": tuned.policy.name, "tried": tuned.tried, "train": train, "test": test, "ci95": ci95}
        print(json.dumps(only_finite(told)))
        return
    from fermata.cli.tables import with_half

    print(f"{tuned.policy.name}: the best of {tuned.tried}")
    print(f"train: bsld {tuned.bsld:,.2f}, wait {tuned.wait_s:,.0f} s")
    bsld, wait = (with_half(means[key], halves[key], form) for key, form in (("bsld", ",.2f"), ("wait_s", ",.0f")))
    print(f"test: bsld {bsld}, wait {wait} s")
