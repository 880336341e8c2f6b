"""`fermata hpc generate`: a log from the Lublin-Feitelson model."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from fermata.cli.options import MOST_JOBS, check_stream, location


def generate(
    out: Annotated[
        str,
        typer.Option(
            "--out", "-o", parser=location, help="Where to write it; .xz and .gz compress, - is standard output."
        ),
    ],
    jobs: Annotated[int, typer.Option(min=1, max=MOST_JOBS, help="How many jobs.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same jobs.")] = 0,
    cores: Annotated[int, typer.Option(min=2, max=10_000_000, help="Size of the machine.")] = 256,
    population: Annotated[str, typer.Option(help="whole, or types: batch and interactive jobs apart.")] = "whole",
    load: Annotated[
        float | None,
        typer.Option(help="Work over what the machine can do until the last arrival; default: as the model gives it."),
    ] = None,
) -> None:
    """Draw a log from the model of Lublin and Feitelson.

    Rigid jobs in Standard Workload Format.
    """
    check_stream(out)
    from fermata.policy.wording import counted
    from fermata.sim.files import STANDARD_STREAM, atomic_output
    from fermata.sim.hpc.lublin import generate as draw
    from fermata.sim.hpc.swf import swf_lines

    log = draw(jobs, seed, machine_cores=cores, population=population, load=load)
    with atomic_output(out) as stream:
        for line in swf_lines(log, f"Lublin-Feitelson model, seed {seed}"):
            stream.write(f"{line}\n".encode())
    # Where the log goes to standard output, nothing else does.
    print(f"{counted(jobs, 'job')} written to {out}", file=sys.stderr if out == STANDARD_STREAM else sys.stdout)
