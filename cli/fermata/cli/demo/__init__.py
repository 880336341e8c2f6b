"""`fermata demo`: three pools side by side on an embedded control plane, and a report of what came of it."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fermata.cli.extras import need
from fermata.cli.options import path

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from fermata.cli.demo.examples import Setup
    from fermata.sim.demo import Result

app = typer.Typer(add_completion=False)

_TERMINATED = 143
# A few dozen workflows say little, and seeds differ by more than policies do. scripts/demo_streams.py says what the
# shipped model gains on average over many such streams, and on how many it gains nothing; this one is near the average
# of both, the model and first come first served.
TYPICAL_SEED = 66


@app.command()
def demo(
    workflows: Annotated[int, typer.Option(min=2, max=2000, help="Workflows for each pool, beside one DAG.")] = 80,
    load: Annotated[float, typer.Option(min=0.05, max=0.95, help="Their work over what the executors can do.")] = 0.8,
    seed: Annotated[int, typer.Option(min=0, help="Of arrival times and order.")] = TYPICAL_SEED,
    policy: Annotated[
        str | None, typer.Option(help="What the learned pool runs instead of the shipped model, by name.")
    ] = None,
    report: Annotated[Path, typer.Option(parser=path, help="Where the report goes.")] = Path("report.html"),
    folder: Annotated[
        Path | None, typer.Option("--dir", parser=path, help="Keep state, logs and recorded decisions in this folder.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, as the last line.")] = False,
) -> None:
    """Give three pools of different policies the same workflows.

    First come first served, shortest first, and learned. Everything is real but the containers: an API server on
    loopback, the operator, Jobs and pods that take their time.
    """
    need("operator", "report", "sim")
    from fermata.cli.demo.examples import setup
    from fermata.cli.options import check_folder, check_output
    from fermata.policy.errors import FermataError

    check_output(report)
    if folder is not None:
        check_folder(folder)
    plan = setup(workflows, load, seed, policy)
    keep = folder is not None
    folder = folder or Path(tempfile.mkdtemp(prefix="fermata-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        result = _watch(plan, folder.resolve())
        _tell(plan, result, report, as_json=as_json)
    except FermataError:
        keep = True
        raise
    else:
        keep = keep or result.succeeded < len(result.workflows)
        if result.succeeded < len(result.workflows):
            raise typer.Exit(1)
    finally:
        if keep:
            print(f"state and logs: {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _watch(plan: Setup, folder: Path) -> Result:
    """Run the stream with a live table on standard error."""
    from fermata.cli.demo.screen import screen
    from fermata.sim.demo import run

    with screen(plan.stream, list(plan.executors)) as show:
        return _until_told(run(plan.stream, plan.pools, folder, show))


def _until_told(work: Coroutine[Any, Any, Result]) -> Result:
    """Run to the end; SIGTERM and a closed terminal cancel it, as Ctrl-C does, so that it cleans up after itself."""
    import asyncio
    import signal

    async def main() -> Result:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, task.cancel)  # type: ignore[union-attr]
        return await work

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        raise typer.Exit(_TERMINATED) from None


def _tell(plan: Setup, result: Result, report: Path, *, as_json: bool) -> None:
    from fermata.cli.demo.outcome import finished, means_s, report_of, tell
    from fermata.sim.report import write

    page = report_of(plan, result)
    if finished(page):
        write(page, report)
    # With --json nothing else stands on standard output.
    tell(result, page, report, sys.stderr if as_json else sys.stdout)
    if as_json:
        rounded = {name: round(seconds, 3) for name, seconds in means_s(page).items()}
        print(json.dumps({"workflows": len(result.workflows), "succeeded": result.succeeded, "avg_jct_s": rounded}))
