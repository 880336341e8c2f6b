"""`fermata hpc train`: an inspector for a scheduler, trained on a log and written as ONNX."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fermata.cli.hpc.options import AsJson, CleaningName, Estimates, Log, Part, Seed, load
from fermata.cli.options import parameter
from fermata.cli.progress import progress_bar
from fermata.policy.errors import InputError


def train(
    log: Log,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the inspector (.onnx).")],
    policy: Annotated[str, typer.Option(help="The scheduler that is inspected.")] = "sjf",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help='Change an option, such as epochs=20 or reward="native".')
    ] = None,
    part: Part = "train",
    cleaning: CleaningName = "archive",
    estimates: Estimates = "user",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Train an inspector that accepts or rejects what a scheduler does, with PPO, and export it."""
    from pydantic import ValidationError

    from fermata.cli.extras import hpc_training

    trainer = hpc_training()
    from fermata.training.hpc.config import InspectorConfig
    from fermata.training.hpc.export import export_inspector

    try:
        config = InspectorConfig(policy=policy, seed=seed, **dict(parameter(text) for text in settings or []))
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"--set {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    if not out.parent.is_dir():
        raise InputError(f"{out.parent}: no such folder", file=out)
    given = load(log, cleaning, estimates, seed)
    epochs = []
    with progress_bar("epochs") as progress:

        def on_epoch(epoch: Any) -> None:
            epochs.append(epoch)
            progress(len(epochs) / config.epochs)

        model = trainer.train_inspector(given, config, part=part, on_epoch=on_epoch)
    export_inspector(model, out)
    least = min(epoch.selected for epoch in epochs)
    if as_json:
        rows = [vars(epoch) for epoch in epochs]
        print(json.dumps({"out": str(out), "policy": policy, "log": given.name, "best": least, "epochs": rows}))
        return
    print(f"{out}: {config.objective} {least:.2f} on the sequences that chose the epoch")
    print(f"next: fermata hpc evaluate --log LOG --policy {policy} --inspector {out}")
