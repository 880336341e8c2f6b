"""`fermata operator`: run the operator against a cluster, or against any kubeconfig."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from fermata.cli.options import path

app = typer.Typer(add_completion=False)


@app.command()
def operator(
    kubeconfig: Annotated[
        Path | None,
        typer.Option(parser=path, help="Cluster to serve; the usual places, or the service account, if not given."),
    ] = None,
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="Serve one namespace only.")] = None,
    metrics_host: Annotated[
        str, typer.Option(help="Address of /metrics, /healthz and /readyz; * is all, of IPv4 and IPv6.")
    ] = "127.0.0.1",
    metrics_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port of these three; without it they are not served.")
    ] = None,
    record: Annotated[
        Path | None, typer.Option(parser=path, help="Append every decision to this file, as JSON lines.")
    ] = None,
    lease_namespace: Annotated[
        str | None,
        typer.Option(help="Namespace of the Lease that lets one operator act; where it runs, if not given."),
    ] = None,
    lease_seconds: Annotated[
        float, typer.Option(help="How long a standby waits for a leader that is silent, 1 to 600 s.")
    ] = 15.0,
    log_json: Annotated[bool, typer.Option(help="Write log lines as JSON.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Tell everything.")] = False,
) -> None:
    """Run the operator."""
    from fermata.cli.extras import need
    from fermata.policy.errors import InputError

    need("operator")
    if kubeconfig is not None and not kubeconfig.is_file():
        raise InputError("no such file; expected a kubeconfig", file=kubeconfig)
    from fermata.operator.options import Options

    options = Options(
        kubeconfig=str(kubeconfig) if kubeconfig else None,
        namespace=namespace,
        metrics_host=metrics_host,
        metrics_port=metrics_port,
        record=record,
        lease_namespace=lease_namespace,
        lease_s=lease_seconds,
    )
    # A decision is a few calls of small kernels: compiling them would hold up the first workflow for longer than plain
    # Python ever will. The image has no Numba either.
    os.environ.setdefault("FERMATA_NO_JIT", "1")
    from fermata.operator.main import configure_logging, run

    configure_logging(as_json=log_json, verbose=verbose)
    run(options)
