"""Bring the parts up, submit the stream at its times, follow it to its end, take everything down."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fermata.policy.errors import FermataError
from fermata.sim.demo.children import Children
from fermata.sim.demo.follow import POOLS, WORKFLOWS, Follower, Span, WorkflowView
from fermata.sim.kube.client import Client
from fermata.sim.kube.local import read_state

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from fermata.sim.demo.stream import Stream, Submission

_POLL_S = 0.05
_SHOW_S = 0.25
_START_S = 60.0
# What the last workflows may take after the stream's end, beyond all of its work done by one executor.
_GRACE_S = 30.0

Show = Callable[["Moment"], None]


@dataclass(frozen=True, slots=True)
class Moment:
    """What there is to show while the stream runs."""

    elapsed_s: float  # since the first possible arrival; below 0 while the parts come up
    submitted: dict[str, int]  # pool -> workflows
    follower: Follower


@dataclass(frozen=True, slots=True)
class Result:
    """What became of everything; times in seconds since the epoch."""

    start_s: float
    keys: dict[str, str]  # workflow -> what names it in every pool
    workflows: list[WorkflowView]
    runs: list[Span]
    holds: list[Span]
    fallbacks: dict[str, str]  # pool -> why its own policy did not decide at some time

    @property
    def succeeded(self) -> int:
        """How many workflows succeeded."""
        return sum(view.activity == "Succeeded" for view in self.workflows)


async def run(stream: Stream, pools: list[dict[str, Any]], folder: Path, show: Show) -> Result:
    """Run a stream from nothing to nothing: every process that it starts is gone when it returns or raises.

    Args:
        stream: what is submitted.
        pools: manifests of the ExecutorPools.
        folder: where state, logs and recorded decisions go.
        show: called a few times a second.

    Raises:
        FermataError: a part did not come up or ended, a pool's policy cannot be used, or the stream never ends.
    """
    async with _parts(pools, folder) as (children, client):
        follower = Follower(client)
        async with _background(informer.run() for informer in follower.informers):
            await _until(children, lambda: _policies_ready(follower, len(pools)), "pools that say who decides in them")
            start_s = time.time()
            moment = Moment(0.0, {}, follower)
            async with _background([_submit_all(client, stream, moment.submitted)]) as (submitting,):
                total = len(stream.submissions)
                limit_s = stream.span_s + stream.work_s + _GRACE_S
                while sum(view.finished for view in follower.workflows) < total:
                    children.check()
                    if submitting.done() and (error := submitting.exception()) is not None:
                        raise FermataError(f"cannot submit: {error!r}") from error
                    elapsed_s = time.time() - start_s
                    if elapsed_s > limit_s:
                        left = [view.name for view in follower.workflows if not view.finished]
                        raise FermataError(f"after {limit_s:.0f} s {len(left)} workflows are not done: {left[:5]}")
                    show(Moment(elapsed_s, moment.submitted, follower))
                    await asyncio.sleep(_SHOW_S)
            show(Moment(time.time() - start_s, moment.submitted, follower))
            keys = {submission.name: submission.key for submission in stream.submissions}
            return Result(start_s, keys, follower.workflows, follower.runs, follower.holds, follower.fallbacks)


@asynccontextmanager
async def _parts(pools: list[dict[str, Any]], folder: Path) -> AsyncIterator[tuple[Children, Client]]:
    """Start control plane and operator, as a user would, and create the pools."""
    kubeconfig = folder / "kube" / "kubeconfig"
    slots = sum(pool["spec"]["executors"] for pool in pools)
    program = ("-m", "fermata.cli")
    async with AsyncExitStack() as stack:
        children = await stack.enter_async_context(Children(folder))
        up = ("local", "up", "--foreground", "--dir", str(folder / "kube"), "--slots", str(slots))
        pid = await children.start("control-plane", *program, *up)

        def is_ready() -> bool:  # what a killed one left behind, or another demonstration's, is not ours
            state = read_state(folder / "kube")
            return state is not None and state.pid == pid

        await _until(children, is_ready, "the control plane")
        record = str(folder / "decisions.jsonl")
        await children.start("operator", *program, "operator", "--kubeconfig", str(kubeconfig), "--record", record)
        client = await stack.enter_async_context(Client.from_kubeconfig(kubeconfig))
        for pool in pools:
            await client.create(POOLS, pool)
        yield children, client


@asynccontextmanager
async def _background(work: Iterable[Any]) -> AsyncIterator[list[asyncio.Task[None]]]:
    tasks = [asyncio.create_task(item) for item in work]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _until(children: Children, condition: Callable[[], bool], what: str) -> None:
    ends_s = time.monotonic() + _START_S
    while not condition():
        children.check()
        if time.monotonic() > ends_s:
            raise FermataError(f"waited {_START_S:.0f} s for {what}")
        await asyncio.sleep(_POLL_S)


def _policies_ready(follower: Follower, pools: int) -> bool:
    views = follower.pools.values()
    for view in views:
        # A pool that falls back from the start would show another policy than the one it is named after.
        if view.policy_ready is False and not view.reason.startswith("PolicyLoading"):
            raise FermataError(f"pool {view.name} cannot use its policy: {view.reason}")
    return len(views) == pools and all(view.policy_ready for view in views)


async def _submit_all(client: Client, stream: Stream, submitted: dict[str, int]) -> None:
    """Create every workflow at its time; the pools' copies of one go out together."""
    loop = asyncio.get_running_loop()
    start_s = loop.time()

    async def submit(item: Submission) -> None:
        await client.create(WORKFLOWS, item.manifest)
        submitted[item.pool] = submitted.get(item.pool, 0) + 1

    async with asyncio.TaskGroup() as tasks:
        for item in stream.submissions:
            await asyncio.sleep(start_s + item.at_s - loop.time())
            tasks.create_task(submit(item))
