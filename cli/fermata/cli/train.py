"""`fermata train`: run, or resume, a training run."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command()
def train(
    out: Annotated[Path, typer.Option(help="Folder of the run; a run that is there is resumed.")],
    config: Annotated[str, typer.Option(help="YAML file, or the name of a shipped configuration.")] = "quick",
    processes: Annotated[int | None, typer.Option(min=1, help="Worker processes; does not change the result.")] = None,
) -> None:
    """Train a policy in the simulator."""
    from fermata.cli.extras import training
    from fermata.training.config import read_config

    settings = read_config(config)
    if processes is not None:
        settings = settings.model_copy(update={"processes": processes})
    training().train(settings, out)
    print(f"trained; next: fermata export-onnx {out} --out policy.onnx")
