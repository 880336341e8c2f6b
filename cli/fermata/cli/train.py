"""`fermata train`: run, or resume, a training run."""

from pathlib import Path
from typing import Annotated

import typer

from fermata.cli.interrupts import resumable

app = typer.Typer()


@app.command()
@resumable()
def train(
    out: Annotated[Path, typer.Option(help="Folder of the run; a run that is there is resumed.")],
    config: Annotated[str, typer.Option(help="YAML file, or the name of a shipped configuration.")] = "quick",
    processes: Annotated[
        int | None, typer.Option(min=1, help="Worker processes, by default one a core; does not change the result.")
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Gather experience on a Ray cluster; of graph policies, does not change the result."
        ),
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            help="Where networks learn: auto (a GPU if there is one), cpu, cuda or cuda:N; each rounds differently."
        ),
    ] = "auto",
    tpch_dir: Annotated[
        str | None, typer.Option(help="Decima's TPC-H data, for a configuration that allocates Spark's executors.")
    ] = None,
) -> None:
    """Train a policy in the simulator; the configuration says by which method."""
    from fermata.cli.extras import graph_training, spark_training, training
    from fermata.policy.errors import InputError
    from fermata.training.graph.config import GraphConfig, read_any
    from fermata.training.spark.config import AllocationConfig

    settings = read_any(config)
    if processes is not None:
        settings = settings.model_copy(update={"processes": processes})
    if isinstance(settings, AllocationConfig):
        if tpch_dir is None or ray is not None:
            raise InputError(f"{settings.name!r} needs --tpch-dir DIR, the folder with 2g/adj_mat_1.npy, and no --ray")
        if device not in ("auto", "cpu"):
            raise InputError(f"--device {device}: {settings.name!r} is searched for by playing episodes, on no GPU")
        spark_training().train(settings, out, tpch_dir)
    elif tpch_dir is not None:
        raise InputError(f"--tpch-dir is for configurations that allocate Spark's executors, not for {settings.name!r}")
    elif isinstance(settings, GraphConfig):
        graph_training().train(settings, out, ray=ray, device=device)
    elif ray is not None:
        raise InputError(f"--ray is for graph policies, and {settings.name!r} is a configuration of the teacher")
    else:
        training().train(settings, out, device=device)
    print(f"trained; next: fermata export-onnx {out} --out policy.onnx")
