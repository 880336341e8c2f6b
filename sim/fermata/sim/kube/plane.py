"""One embedded control plane: API server, Job controller, scheduler and kubelet in one process, on loopback."""

from __future__ import annotations

import asyncio
import copy
import logging
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from fermata.policy.errors import InputError
from fermata.sim.kube.access import ADMIN_MANIFESTS
from fermata.sim.kube.api import Api
from fermata.sim.kube.controllers.jobs import JobController
from fermata.sim.kube.controllers.kubelet import Kubelet
from fermata.sim.kube.controllers.scheduler import Scheduler
from fermata.sim.kube.errors import ApiError
from fermata.sim.kube.inside import InsideClient
from fermata.sim.kube.janitor import Janitor
from fermata.sim.kube.kubeconfig import write_kubeconfig
from fermata.sim.kube.options import WriteOptions
from fermata.sim.kube.requests import sized_request
from fermata.sim.kube.server import Server
from fermata.sim.kube.store import Store

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from types import TracebackType
    from typing import Any, Self

    from fermata.sim.kube.resources import Obj

log = logging.getLogger(__name__)

_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


@dataclass(frozen=True, slots=True)
class Options:
    """How a control plane is set up.

    Args:
        slots: executor slots of each node.
        nodes: how many nodes.
        port: where to listen on loopback; 0 takes a free one.
        time_scale: how many simulated seconds of a pod pass in one real second.
        default_s: how long a pod runs that says nothing, in simulated seconds.
        job_backoff_s: the pause before a Job replaces a failed pod, in real seconds; doubles with each failure.
        allow_local_commands: whether pods annotated `fermata.dev/run-local` may run their command on this machine.
        history: how many changes of each kind a watch can resume over.
        bookmark_every_s: how often a quiet watch is told the present resourceVersion.
        event_ttl_s: how long Events are kept, in seconds.
        controllers: whether Jobs, scheduler and kubelet run; without them only the API server does.
    """

    slots: int = 4
    nodes: int = 1
    port: int = 0
    time_scale: float = 1.0
    default_s: float = 1.0
    job_backoff_s: float = 10.0
    allow_local_commands: bool = False
    history: int = 4096
    bookmark_every_s: float = 60.0
    event_ttl_s: float = 3600.0
    controllers: bool = True


class ControlPlane:
    """An embedded control plane, up inside `async with`.

    Args:
        options: how it is set up.
        folder: where the kubeconfig and the output of local commands go; a temporary one by default.
        manifests: objects, such as CustomResourceDefinitions, that are there from the start.

    Raises:
        OSError: for a port that is taken.
        InputError: for a manifest that cannot be installed.
    """

    def __init__(
        self, options: Options | None = None, *, folder: Path | None = None, manifests: Sequence[Obj] = ()
    ) -> None:
        self.options = options or Options()
        self._folder, self._manifests = folder, manifests
        self.store = Store(self.options.history)
        self.api = Api(self.store)
        self.server = Server(self.api, bookmark_every_s=self.options.bookmark_every_s)
        self._stack = AsyncExitStack()
        self._runner: web.ServerRunner | None = None
        self._port = self.options.port

    @property
    def url(self) -> str:
        """The server's URL."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def folder(self) -> Path:
        """Where the kubeconfig lies."""
        if self._folder is None:
            raise RuntimeError("the control plane is not up")
        return self._folder

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig that leads here."""
        return self.folder / "kubeconfig"

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            if self._folder is None:
                self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fermata-kube-")))
            self._populate()
            await self._listen(stack)
            write_kubeconfig(self.kubeconfig, self.url)
            janitor = Janitor(self.api, event_ttl_s=self.options.event_ttl_s)
            self._background(stack, janitor.run())
            if self.options.controllers:
                await self._start_controllers(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def _populate(self) -> None:
        spaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in _NAMESPACES]
        for obj in (*spaces, *copy.deepcopy([*ADMIN_MANIFESTS, *self._manifests])):
            self._install(obj)

    def _install(self, obj: Obj) -> None:
        """Store an object that is there from the start; definitions come before what they define."""
        version, kind = obj.get("apiVersion"), obj.get("kind")
        served = (item for item in self.api.resources if (item.group_version, item.kind) == (version, kind))
        resource = next(served, None)
        if resource is None:
            raise InputError(f"cannot install a {kind} of {version}: expected a kind that is served")
        namespace = (obj.get("metadata") or {}).get("namespace") or "default"
        try:
            self.api.create(resource, namespace if resource.namespaced else "", obj, WriteOptions.plain())
        except ApiError as error:
            raise InputError(f"cannot install: {error}") from error

    def kubeconfig_of(self, namespace: str, service_account: str) -> Path:
        """Write a kubeconfig with a new token of a service account, and return where it lies.

        Raises:
            ApiError: 404 where there is no such account.
        """
        token, _ = self.server.tokens.issue(namespace, service_account, 24 * 3600)
        path = self.folder / f"kubeconfig-{namespace}-{service_account}"
        write_kubeconfig(path, self.url, token)
        return path

    async def interrupt(self) -> None:
        """Stop answering: connections are cut and new ones refused, while everything stored stays."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            # A stopped server takes its watches with it.
            for connection in runner.server.connections if runner.server is not None else []:
                if connection.transport is not None:
                    connection.transport.abort()
            await runner.cleanup()

    async def resume(self) -> None:
        """Answer again, at the same address."""
        if self._runner is None:
            self._runner = await self._run_server()

    async def _listen(self, stack: AsyncExitStack) -> None:
        stack.push_async_callback(self.interrupt)
        stack.push_async_callback(self.server.close)
        self._runner = await self._run_server()

    async def _run_server(self) -> web.ServerRunner:
        # Cancelled handlers let a watch end with its client, rather than with the next change.
        listener = web.Server(
            self.server.handle, request_factory=sized_request, handler_cancellation=True, access_log=None
        )
        runner = web.ServerRunner(listener, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", self._port).start()
        except OSError:
            await runner.cleanup()
            raise
        self._port = runner.addresses[0][1]
        return runner

    async def _start_controllers(self, stack: AsyncExitStack) -> None:
        inside = InsideClient(self.url, self.server, lambda: self._runner is not None)
        client = await stack.enter_async_context(inside)
        nodes = {f"local-{number + 1}": self.options.slots for number in range(self.options.nodes)}
        kubelet = Kubelet(
            client,
            nodes,
            time_scale=self.options.time_scale,
            default_s=self.options.default_s,
            local_dir=self.folder / "pods" if self.options.allow_local_commands else None,
        )
        for controller in (JobController(client, backoff_s=self.options.job_backoff_s), Scheduler(client), kubelet):
            self._background(stack, controller.run())

    def _background(self, stack: AsyncExitStack, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(_tell_end)

        async def stop() -> None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        stack.push_async_callback(stop)


def _tell_end(task: asyncio.Task[None]) -> None:
    """Say that a part died; all run until they are cancelled."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("a part of the control plane died", exc_info=error)
