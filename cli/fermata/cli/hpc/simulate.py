"""`fermata hpc simulate`: the figures of one policy on a log, or on consecutive jobs of it."""

from __future__ import annotations

import json
import math
from typing import Annotated

import typer

from fermata.cli.hpc.options import AsJson, CleaningName, Estimates, Kill, Log, PolicyName, Seed, Stretch, load
from fermata.cli.options import check_apart, check_stream, location, model_file
from fermata.cli.progress import progress_bar
from fermata.policy.errors import InputError


def simulate(
    log: Log,
    policy: PolicyName,
    start: Annotated[int, typer.Option(min=0, help="Index of the first job, from 0.")] = 0,
    jobs: Annotated[int | None, typer.Option(min=1, help="How many jobs; default: all from there.")] = None,
    cleaning: CleaningName = "archive",
    estimates: Estimates = "user",
    stretch: Stretch = 1.0,
    kill: Kill = False,
    seed: Seed = 0,
    per_job: Annotated[str | None, typer.Option(parser=location, help="Write the times of every job, as CSV.")] = None,
    as_json: AsJson = False,
) -> None:
    """Simulate a scheduler of rigid jobs on an idle machine.

    Prints slowdown, wait, utilisation and the queue.
    """
    if per_job == "-":
        raise InputError("--per-job: standard output has the figures; expected the name of a file")
    check_apart({"--log": log, "--policy": model_file(policy), "--per-job": per_job})
    if per_job is not None:
        check_stream(per_job)
    from fermata.sim.files import atomic_output
    from fermata.sim.hpc import policy as named
    from fermata.sim.hpc import simulate as run
    from fermata.sim.hpc.metrics import FIGURES, figures
    from fermata.sim.json_values import only_finite

    chosen = named(policy, kill_at_estimate=kill)
    given = load(log, cleaning, estimates, seed, stretch)
    wanted = given.sequence(start, max(len(given) - start, 1) if jobs is None else jobs)
    with progress_bar("simulating") as progress:
        schedule = run(wanted, chosen.order, chosen.rules, None, chosen.model, progress)
    if per_job is not None:
        with atomic_output(per_job) as stream:
            stream.write(b"id,submit_s,start_s,end_s,wait_s,cores\n")
            columns = (schedule.log.ids, schedule.log.submit_s, schedule.start_s, schedule.end_s, schedule.wait_s)
            rows = zip(*(column.tolist() for column in (*columns, schedule.log.cores)), strict=True)
            stream.write("".join(",".join(map(str, row)) + "\n" for row in rows).encode())
    values = figures(schedule) | {"jobs": len(schedule.log), "events": schedule.events}
    if as_json:
        print(json.dumps({"log": schedule.log.name, "policy": policy} | only_finite(values)))
        return
    from rich.table import Table

    from fermata.cli.tables import show
    from fermata.policy.wording import counted

    size = f"{counted(len(schedule.log), 'job')}, {counted(given.machine_cores, 'core')}"
    table = Table(title=f"{policy} on {schedule.log.name}, {size}")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for key, label in FIGURES.items():
        value = values[key]
        table.add_row(label, "\N{EN DASH}" if math.isnan(value) else f"{value:,.3f}")  # of a class without jobs
    show(table)
