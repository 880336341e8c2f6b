"""`fermata hpc train`: an inspector for a scheduler, trained on a log and written as ONNX."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from fermata.cli.hpc.options import AsJson, CleaningName, Estimates, Log, Part, Seed, load
from fermata.cli.options import parameter
from fermata.cli.progress import progress_bar
from fermata.policy.errors import InputError


def train(
    log: Log,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the inspector (.onnx).")],
    policy: Annotated[str, typer.Option(help="The scheduler that is inspected.")] = "sjf",
    method: Annotated[str, typer.Option(help="ppo as SchedInspector, or search: our own.")] = "ppo",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help='Change an option, such as epochs=20 or reward="native".')
    ] = None,
    part: Part = "train",
    cleaning: CleaningName = "archive",
    estimates: Estimates = "user",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Train an inspector that accepts or rejects what a scheduler does, and export it as ONNX.

    `ppo` is SchedInspector's training; `search` imitates a tuned reservation and then searches around it, with a bound
    on the wait. The options of --set are those of `InspectorConfig` and `SearchConfig`.
    """
    from fermata.cli.extras import hpc_training

    hpc_training()
    from fermata.training.hpc.config import InspectorConfig
    from fermata.training.hpc.export import export_inspector
    from fermata.training.hpc.search import SearchConfig, search_inspector
    from fermata.training.hpc.train import train_inspector

    if method not in ("ppo", "search"):
        raise InputError(f"--method: expected ppo or search, got {method!r}")
    if not out.parent.is_dir():
        raise InputError(f"{out.parent}: no such folder")
    chosen = {"policy": policy, "seed": seed} | dict(parameter(text) for text in settings or [])
    rows: list[Any] = []
    try:
        config = InspectorConfig(**chosen) if method == "ppo" else SearchConfig(**chosen)
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"--set {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    given = load(log, cleaning, estimates, seed)
    with progress_bar("training") as progress:

        def tell(row: Any) -> None:
            rows.append(row)
            progress(row.number / (config.epochs if isinstance(config, InspectorConfig) else config.generations))

        if isinstance(config, InspectorConfig):
            model = train_inspector(given, config, part=part, on_epoch=tell)
        else:
            model = search_inspector(given, config, part=part, on_generation=tell)
    export_inspector(model, out)
    if as_json:
        print(
            json.dumps(
                {"out": str(out), "log": given.name, "config": config.model_dump(), "rows": list(map(vars, rows))}
            )
        )
        return
    print(f"{out} written; next: fermata hpc evaluate --log LOG --policy {policy} --inspector {out}")
