"""`fermata explain`: why a workflow is where it is, with numbers, from what the operator wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fermata.cli.clusters import Kubeconfig, Namespace, ask, expect_stage, find, namespace_of
from fermata.policy.wording import printable

if TYPE_CHECKING:
    from fermata.operator.cluster import Cluster

_NO_POOL = {403: "you may not see it (it takes the ClusterRole fermata-view)", 404: "does not exist"}

app = typer.Typer(add_completion=False)


@app.command()
def explain(
    workflow: Annotated[str, typer.Argument(help="Name of the Workflow.")],
    stage: Annotated[str | None, typer.Argument(help="Only this stage.")] = None,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Tell why each stage waits, is held, or was started.

    Asks the cluster for the numbers of now: since when, until when at the latest, and what the alternative is.
    """
    for line in ask(kubeconfig, lambda cluster: _story(cluster, workflow, stage, namespace_of(namespace, kubeconfig))):
        print(printable(line))  # a message may quote what any user wrote into an annotation


async def _story(cluster: Cluster, workflow: str, stage: str | None, namespace: str) -> list[str]:
    from fermata.operator.cluster import pool_path, workflow_path
    from fermata.operator.connection import ClusterError
    from fermata.operator.explain import explain as tell
    from fermata.operator.facts import pool_fact, workflow_fact

    raw = await find(cluster, workflow_path(namespace, workflow), f"workflow {workflow!r} in namespace {namespace!r}")
    if stage is not None:
        expect_stage(raw, stage, f"{namespace}/{workflow}")
    fact = workflow_fact(raw, cluster.now())  # its times are the API server's
    try:
        return tell(fact, pool_fact(await cluster.get(pool_path(fact.pool))), stage, cluster.now())
    except ClusterError as error:
        if error.status not in _NO_POOL:
            raise
        return tell(fact, _NO_POOL[error.status], stage, cluster.now())
