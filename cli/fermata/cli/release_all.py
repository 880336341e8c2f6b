"""`fermata release-all`: the kill switch, for one pool or for all of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from fermata.cli.clusters import Kubeconfig, ask, pool_names, set_release
from fermata.policy.errors import InputError
from fermata.policy.wording import printable

if TYPE_CHECKING:
    from fermata.operator.cluster import Cluster

app = typer.Typer(add_completion=False)


@app.command("release-all")
def release_all(
    pools: Annotated[list[str] | None, typer.Argument(help="Only these ExecutorPools; all of them if none.")] = None,
    undo: Annotated[bool, typer.Option(help="Let the policies hold again.")] = False,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Release all that is held; hold nothing more until --undo.

    Pools go on without idling on purpose. Sets the annotation fermata.dev/release of the ExecutorPools.
    """
    switched, refused = ask(kubeconfig, lambda cluster: _release_all(cluster, pools or [], undo=undo))
    said = "may hold again" if undo else "holds nothing any more; what was held starts as executors get free"
    for name in switched:
        print(f"pool {name}: {said}")
    for error in refused:
        print(f"fermata: {printable(str(error))}", file=sys.stderr)
    if refused:
        raise typer.Exit(InputError.exit_code)


async def _release_all(cluster: Cluster, pools: list[str], *, undo: bool) -> tuple[list[str], list[InputError]]:
    """Return the pools that were switched, and why others were not: one that says no must not keep the rest held."""
    from fermata.operator.cluster import pool_path
    from fermata.operator.connection import ClusterError

    switched: list[str] = []
    refused: list[InputError] = []
    for name in pools or await pool_names(cluster):
        try:
            await set_release(cluster, pool_path(name), f"ExecutorPool {name!r}", lambda _: None if undo else "*")
        except ClusterError as error:
            refused.append(InputError(f"pool {name}: {cluster.server}: {error}"))
        except InputError as error:
            refused.append(error)
        else:
            switched.append(name)
    return switched, refused
