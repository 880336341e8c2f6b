"""`fermata hpc windows`: Deep Back-Filling's evaluation; agents that are there are not trained again."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fermata.cli.hpc.options import configured, load, telling
from fermata.cli.interrupts import resumable
from fermata.cli.options import check_folder, parameter, path
from fermata.cli.progress import progress_bar
from fermata.policy.errors import InputError

if TYPE_CHECKING:
    from fermata.training.hpc.window_config import WindowConfig


@resumable()
def windows(
    out: Annotated[
        Path, typer.Option("--out", "-o", parser=path, help="Folder for the agents and the tables; it is made.")
    ],
    log: Annotated[
        str | None, typer.Option(help="lublin_256, on which they are judged; without it they are only trained.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change an option of training, such as iterations=20.")
    ] = None,
) -> None:
    """Train Deep Back-Filling's agents, and compare them.

    Those of its figures, on jobs of the model, one file each. Run it again to go on where it was ended. The tables are
    FOLDER/windows.md; `fermata hpc report --windows FOLDER` puts them into the page of all results.
    """
    from fermata.cli.extras import need

    need("training")
    check_folder(out)
    from fermata.sim.files import atomic_output
    from fermata.sim.hpc.report import markdown_table
    from fermata.sim.hpc.window_study import CASES, WINDOW_JOBS, WINDOWS, windows_section
    from fermata.training.hpc.window_config import WindowConfig

    chosen = dict(parameter(text) for text in settings or [])
    for own in ("head", "tail", "seed"):
        if own in chosen:
            raise InputError(f"--set {own}: every agent has its own")
    shapes = [{"head": case.head, "tail": case.tail, "seed": case.seed} for case in CASES]
    configs = [configured(WindowConfig, shape | chosen) for shape in shapes]
    judged = None if log is None else load(log, "schedinspector", "exact", 0)
    if judged is not None:
        judged.sequence(0, WINDOWS * WINDOW_JOBS)  # too short a log is said now, not when all is trained
    out.mkdir(parents=True, exist_ok=True)
    _keep_to(chosen, out / "settings.json")
    if not all((out / f"{case.name}.onnx").is_file() for case in CASES):
        _train_missing(out, configs)
    print(f"{len(CASES)} agents in {out}")
    if judged is None:
        return
    with atomic_output(str(out / "windows.md")) as stream:
        stream.write("\n".join(windows_section(judged, out, markdown_table)).encode())
    print(f"{out / 'windows.md'} written")


def _train_missing(out: Path, configs: list[WindowConfig]) -> None:
    """Train the agents that are not there, on jobs that are the same for all."""
    from fermata.sim.hpc.lublin import generate
    from fermata.sim.hpc.window_study import CASES, TRAINING_JOBS, TRAINING_LOAD, TRAINING_SEED

    # Which import torch, for seconds: what is wrong has been said by now.
    from fermata.training.hpc.export import export_window_model
    from fermata.training.hpc.runs import Trained, kept_beside
    from fermata.training.hpc.window_train import train_window

    jobs = generate(TRAINING_JOBS, TRAINING_SEED, load=TRAINING_LOAD)
    for number, (case, config) in enumerate(zip(CASES, configs, strict=True), 1):
        path = out / f"{case.name}.onnx"
        if path.is_file():
            continue
        print(f"{number} of {len(CASES)}: {case.name}", file=sys.stderr)
        trained = Trained.of("window", jobs, "all", config)
        with kept_beside(path, trained) as kept, progress_bar(case.name) as progress:
            tell = telling(progress, config.iterations)
            export_window_model(train_window(jobs, config, part="all", on_iteration=tell, kept=kept), path)


def _keep_to(settings: dict[str, Any], path: Path) -> None:
    """Note what the agents of a folder are trained with, or check that it is the same.

    Raises:
        InputError: those that are there, or begun, were trained with something else; tables of both would compare
            nothing.
    """
    from fermata.sim.files import atomic_output, read_bytes

    now = json.dumps(settings, sort_keys=True)
    if not path.is_file() or not any([*path.parent.glob("*.onnx"), *path.parent.glob("*.onnx.run")]):
        with atomic_output(str(path)) as stream:
            stream.write(now.encode())
        return
    before = read_bytes(path).decode(errors="replace")
    if before != now:
        raise InputError(f"{path.parent} has agents trained with --set {before}, not {now}; use another --out")
