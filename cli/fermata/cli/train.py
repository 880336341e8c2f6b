"""`fermata train`: run, or resume, a training run."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fermata.cli.interrupts import resumable
from fermata.cli.options import check_folder, location, path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fermata.training.config import TrainConfig
    from fermata.training.graph.config import GraphConfig
    from fermata.training.slots.config import ScoresConfig
    from fermata.training.spark.config import AllocationConfig

    Settings = TrainConfig | GraphConfig | AllocationConfig | ScoresConfig

app = typer.Typer(add_completion=False)


@app.command()
@resumable()
def train(
    out: Annotated[Path, typer.Option(parser=path, help="Folder of the run; a run that is there is resumed.")],
    config: Annotated[
        str | None,
        typer.Option(
            help="YAML file, or a shipped configuration's name; by default quick, or with --trace own, or own-slots "
            "where tasks of several executors are in sight at every second arrival."
        ),
    ] = None,
    trace: Annotated[
        str | None, typer.Option(help="A job trace of one's own to be good on, instead of random scenarios.")
    ] = None,
    executors: Annotated[
        str | None,
        typer.Option(metavar="K|A-B", help="Size of the pool for that trace, or the least and the greatest."),
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Worker processes, by default one a core; does not change the result.")
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Gather experience on a Ray cluster (graph policies only); does not change the result.",
        ),
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            help="Where networks learn: auto (a GPU if there is one), cpu, cuda or cuda:N; each rounds differently."
        ),
    ] = "auto",
    tpch_dir: Annotated[
        str | None,
        typer.Option(
            parser=location, help="Decima's TPC-H data, for a configuration that allocates Spark's executors."
        ),
    ] = None,
) -> None:
    """Train a policy in the simulator.

    The configuration says by which method.
    """
    from fermata.cli.extras import need
    from fermata.policy.errors import InputError

    need("training", *(() if ray is None else ("ray",)))
    from fermata.training.graph.config import GraphConfig
    from fermata.training.slots.config import ScoresConfig
    from fermata.training.spark.config import AllocationConfig

    # What trains imports torch, for seconds: what is wrong is said before.
    check_folder(out)
    settings = _settings(config, trace, executors)
    if processes is not None:
        settings = settings.model_copy(update={"processes": processes})
    if isinstance(settings, AllocationConfig):
        if tpch_dir is None or ray is not None:
            raise InputError(f"{settings.name!r} needs --tpch-dir DIR, the folder with 2g/adj_mat_1.npy, and no --ray")
        _check_played(settings, ray, device)
        from fermata.training.spark.train import train as search_allocation

        search_allocation(settings, out, tpch_dir)
    elif tpch_dir is not None:
        raise InputError(f"--tpch-dir is for configurations that allocate Spark's executors, not for {settings.name!r}")
    elif isinstance(settings, GraphConfig):
        from fermata.training.graph.train import train as learn_on_graphs

        learn_on_graphs(settings, out, ray=ray, device=device)
    elif isinstance(settings, ScoresConfig):
        _check_played(settings, ray, device)
        if config is None:
            told = "tasks take several executors there: scores for them are searched for (--config own-slots)"
            print(f"{trace}: {told}", file=sys.stderr)
        from fermata.training.slots.train import train as search_scores

        search_scores(settings, out)
    elif ray is not None:
        raise InputError(f"--ray is for graph policies, and {settings.name!r} is a configuration of the teacher")
    else:
        from fermata.training.train import train as learn_from_teacher

        learn_from_teacher(settings, out, device=device)
    print(f"trained; next: fermata export-onnx {shlex.quote(str(out))} --out policy.onnx")


def _check_played(settings: AllocationConfig | ScoresConfig, ray: str | None, device: str) -> None:
    """Check that nothing is asked of a search on episodes that only networks have.

    Raises:
        InputError: it is.
    """
    from fermata.policy.errors import InputError

    if ray is not None:
        raise InputError(f"--ray is for graph policies, and {settings.name!r} is searched for by playing episodes")
    if device not in ("auto", "cpu"):
        raise InputError(f"--device {device}: {settings.name!r} is searched for by playing episodes, on no GPU")


def _settings(config: str | None, trace: str | None, executors: str | None) -> Settings:
    """Return the configuration that is meant, whose episodes are of one's own trace if one is given.

    Raises:
        InputError: it cannot be read, an option is missing, it takes no trace, or the trace cannot be used.
    """
    from fermata.cli.options import span
    from fermata.policy.errors import InputError
    from fermata.training.config import TrainConfig
    from fermata.training.graph.config import read_any
    from fermata.training.own import check_learns, check_teaches, own_trace, shares_of, with_kind
    from fermata.training.slots.config import ScoresConfig
    from fermata.training.spark.config import AllocationConfig

    given = None if config is None else read_any(config)
    if trace is None:
        if executors is not None:
            raise InputError("--executors is of a --trace; a configuration has its own")
        return given or read_any("quick")
    if executors is None:
        raise InputError("--trace needs --executors, the size of the pool, or from and to")
    own = own_trace(trace, span(executors, "--executors"))
    check_teaches(own)
    shares = shares_of(own)
    own = with_kind(own, shares)
    settings = given or read_any("own-slots" if shares[-1] >= 0.5 else "own")
    if isinstance(settings, AllocationConfig) or getattr(settings, "scenario", None) is not None:
        raise InputError(f"--trace is for configurations of random scenarios; {settings.name!r} has jobs of its own")
    taught = settings.model_copy(update={"workloads": settings.workloads.model_copy(update={"own": own})})
    if isinstance(taught, TrainConfig | ScoresConfig):
        check_learns(taught)
    if isinstance(taught, TrainConfig) and max(shares) < 1.0:
        print(f"{trace}: {_mixture(shares, own.kind)}", file=sys.stderr)
    return taught


def _mixture(shares: Sequence[float], learned: int) -> str:
    """Say what is in sight when the jobs that teach come, and what of it is learned."""
    from fermata.policy.learned import EXPERTS

    kinds = (*EXPERTS, "tasks of several executors")
    found = ", ".join(f"{kind} {share:.1%}" for kind, share in zip(kinds, shares, strict=True) if share >= 0.0005)
    return f"in sight when jobs come: {found}; learned from the trace: {kinds[learned]}"
