"""`fermata explain`: why a workflow is where it is, with numbers, from what the operator wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def explain(
    workflow: Annotated[str, typer.Argument(help="Name of the Workflow.")],
    stage: Annotated[str | None, typer.Argument(help="Only this stage.")] = None,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Its namespace.")] = "default",
    kubeconfig: Annotated[Path | None, typer.Option(help="Cluster to ask; the usual places if not given.")] = None,
) -> None:
    """Tell why each stage waits, is held, or was started when it was."""
    import asyncio

    from fermata.policy.errors import MissingExtraError

    try:
        for line in asyncio.run(_story(workflow, stage, namespace, str(kubeconfig) if kubeconfig else None)):
            print(line)
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(error.name), "operator") from error


async def _story(workflow: str, stage: str | None, namespace: str, kubeconfig: str | None) -> list[str]:
    import time

    from fermata.operator.cluster import Cluster, ClusterError
    from fermata.operator.explain import explain as tell
    from fermata.operator.explain import stage_names
    from fermata.operator.facts import pool_fact, workflow_fact
    from fermata.operator.names import API_VERSION, POOLS, WORKFLOWS
    from fermata.policy.errors import InputError

    cluster = await Cluster.connect(kubeconfig)
    try:
        raw = await cluster.get(f"/apis/{API_VERSION}/namespaces/{namespace}/{WORKFLOWS}/{workflow}")
        if stage is not None and stage not in stage_names(raw):
            known = ", ".join(stage_names(raw))
            raise InputError(f"workflow {namespace}/{workflow} has no stage {stage!r}; it has: {known}")
        fact = workflow_fact(raw, time.time())
        try:
            pool = pool_fact(await cluster.get(f"/apis/{API_VERSION}/{POOLS}/{fact.pool}"))
        except ClusterError as error:
            if error.status != 404:
                raise
            pool = None
        return tell(fact, pool, stage, time.time())
    except ClusterError as error:
        if error.status == 404:
            raise InputError(f"no workflow {workflow!r} in namespace {namespace!r} on {cluster.server}") from error
        raise InputError(f"{cluster.server}: {error}") from error
    finally:
        await cluster.close()
