"""What commands that talk to a cluster have in common: one connection, and errors that say what to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from fermata.cli.extras import need
from fermata.cli.options import path

if TYPE_CHECKING:
    from fermata.operator.cluster import Cluster

Kubeconfig = Annotated[Path | None, typer.Option(parser=path, help="Cluster to ask; the usual places if not given.")]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Its namespace; that of the kubeconfig's context if not given.")
]
Answer = TypeVar("Answer")
_PATIENCE = 10  # as kubectl's
_NAMED = 10  # stages that a message names
_ATTEMPTS = 5  # to write what others write, too


def ask(kubeconfig: Path | None, what: Callable[[Cluster], Awaitable[Answer]]) -> Answer:
    """Run `what` with a connection to a cluster.

    Raises:
        InputError: no usable configuration, or the API server refuses.
        MissingExtraError: the operator's dependencies are not installed.
    """
    need("operator")

    async def connected() -> Answer:
        async with _connection(kubeconfig) as cluster:
            return await what(cluster)

    return asyncio.run(connected())


@asynccontextmanager
async def _connection(kubeconfig: Path | None) -> AsyncIterator[Cluster]:
    from fermata.operator.cluster import Cluster
    from fermata.operator.connection import ClusterError
    from fermata.policy.errors import InputError

    cluster = await Cluster.connect(str(kubeconfig) if kubeconfig else None, patience=_PATIENCE)
    try:
        yield cluster
    except ClusterError as error:
        raise InputError(f"{cluster.server}: {error}") from error
    finally:
        await cluster.close()


async def find(cluster: Cluster, path: str, what: str) -> dict[str, Any]:
    """Return the object at a path.

    Raises:
        InputError: there is none, or the API server does not know what that is.
    """
    from fermata.operator.connection import ClusterError
    from fermata.policy.errors import InputError

    try:
        return await cluster.get(path)
    except ClusterError as error:
        if error.status != 404:
            raise
        await _expect_crds(cluster)
        raise InputError(f"no {what} on {cluster.server}") from error


async def set_release(
    cluster: Cluster, path: str, what: str, value: Callable[[dict[str, Any]], str | None]
) -> dict[str, Any]:
    """Set the annotation by which people release what is held, anew where the object is written meanwhile.

    Args:
        cluster: where.
        path: of the object.
        what: it is, for errors.
        value: of the annotation for the object as it is; None takes it off.

    Returns:
        The object as it was before.

    Raises:
        InputError: as `find`.
        ClusterError: the API server refuses.
    """
    from fermata.operator.connection import ClusterError
    from fermata.operator.names import ANNOTATION_RELEASE

    for attempt in range(_ATTEMPTS):
        raw = await find(cluster, path, what)
        try:
            await cluster.annotate(path, raw["metadata"]["resourceVersion"], {ANNOTATION_RELEASE: value(raw)})
        except ClusterError as error:
            if error.status != 409 or attempt == _ATTEMPTS - 1:
                raise
        else:
            break
    return raw


async def pool_names(cluster: Cluster) -> list[str]:
    """Return the names of all ExecutorPools, at least one.

    Raises:
        InputError: there is none, or the API server does not know what that is.
    """
    from fermata.operator.connection import ClusterError
    from fermata.policy.errors import InputError

    try:
        rows = await cluster.list_all("executorpools")
    except ClusterError as error:
        if error.status == 404:
            await _expect_crds(cluster)
        raise
    if not rows:
        raise InputError(f"no ExecutorPool on {cluster.server}")
    return sorted(row["metadata"]["name"] for row in rows)


async def _expect_crds(cluster: Cluster) -> None:
    """Check that an API server has our resources.

    Raises:
        InputError: it has not.
    """
    from fermata.policy.errors import InputError

    if missing := await cluster.missing_crds():
        raise InputError(f"{missing} on {cluster.server}")


def namespace_of(given: str | None, kubeconfig: Path | None) -> str:
    """Return the namespace that a command is about, as kubectl would take it."""
    from fermata.operator.access import namespace

    return given or namespace(str(kubeconfig) if kubeconfig else None)


def expect_stage(raw: Mapping[str, Any], stage: str, title: str) -> None:
    """Check that a workflow has a stage.

    Args:
        raw: the workflow.
        stage: name of the stage.
        title: what the workflow is called.

    Raises:
        InputError: it has none of that name; the message has those that it has, of many only the most similar.
    """
    from fermata.operator.explain import stage_names
    from fermata.policy.errors import InputError

    names = stage_names(raw)
    if stage in names:
        return
    told = ", ".join(names if len(names) <= _NAMED else get_close_matches(stage, names, n=_NAMED, cutoff=0.0))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    raise InputError(f"workflow {title} has no stage {stage!r}; it has: {told}{more}")
