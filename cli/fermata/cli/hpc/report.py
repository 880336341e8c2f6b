"""`fermata hpc report`: the results page, measured anew."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fermata.cli.options import check_output, path
from fermata.policy.errors import InputError


def report(
    data: Annotated[
        Path, typer.Option(parser=path, help="Folder with lublin_256, SDSC-SP2-recon and CTC-SP2-recon (.swf.xz).")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", parser=path, help="Where to write the page.")],
    inspectors: Annotated[
        Path | None, typer.Option(parser=path, help="Folder of inspectors and queue-*.onnx to measure.")
    ] = None,
    study: Annotated[
        Path | None, typer.Option(parser=path, help="Folder that `fermata hpc study` filled; adds its tables.")
    ] = None,
    windows: Annotated[
        Path | None, typer.Option(parser=path, help="Folder that `fermata hpc windows` filled, likewise.")
    ] = None,
) -> None:
    """Write the results page on rigid jobs.

    Every table, with intervals; takes a few minutes.
    """
    check_output(out)  # said now, not when all is measured
    if out.suffix in (".onnx", ".xz"):  # as what is read has
        raise InputError(f"--out: expected the name of a page, such as results.md, got {out.name!r}")
    for folder in (data, inspectors, study, windows):
        if folder is not None and not folder.is_dir():
            raise InputError(f"{folder}: no such folder")
    from fermata.sim.files import atomic_output
    from fermata.sim.hpc.report import results_page

    page = results_page(data, inspectors, study, windows, lambda text: print(text, file=sys.stderr))
    with atomic_output(out) as stream:
        stream.write(page.encode())
    print(f"{out} written")
