"""The kubelet of simulated nodes: pods take the time that their annotations say, or run a command on this machine.

It registers its nodes, follows the pods bound to them and reports what becomes of each. Nothing runs in a container:
a pod is a timer, or with leave given at the start a plain local process.

Annotations of a pod:
    fermata.dev/sim-seconds    how long it runs, in seconds; by completion index when a comma-separated list
    fermata.dev/sim-exit-code  how it ends, 0 by default; by completion index when a list
    fermata.dev/sim-failures   how many runs of the same task fail (exit code 1) before the code above holds
    fermata.dev/run-local      "true": run the first container's command here, where that is allowed
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import aiohttp

from fermata.sim.kube.client import Informer, key_of
from fermata.sim.kube.clock import age_s, stamp
from fermata.sim.kube.controllers.kubelet_http import LogServer
from fermata.sim.kube.controllers.nodes import node_manifest
from fermata.sim.kube.controllers.runtime import RUN_LOCAL, Exit, LocalRuns, PlanError, plan_of, wait_for_stop
from fermata.sim.kube.controllers.work import Recorder, reference
from fermata.sim.kube.errors import ApiError
from fermata.sim.kube.kinds.job import COMPLETION_INDEX
from fermata.sim.kube.patch import STRATEGIC_PATCH

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from fermata.sim.kube.client import Client
    from fermata.sim.kube.controllers.runtime import Plan
    from fermata.sim.kube.resources import Obj

log = logging.getLogger(__name__)

#: The pause before a container is started again in its pod; doubles up to five minutes, as in Kubernetes.
_RESTART_S = 10.0
_LONGEST_RESTART_S = 300.0


@dataclass(frozen=True, slots=True)
class _Bound:
    """A pod on one of our nodes, as far as following it goes; the pod itself is read when its run starts."""

    uid: str
    owner: str
    deleting: bool


@dataclass(frozen=True, slots=True)
class _Run:
    task: asyncio.Task[None]
    stop: asyncio.Event


class Kubelet:
    """Runs the pods of some nodes.

    Args:
        client: the API server to work for.
        nodes: node name -> executor slots on it.
        time_scale: how many simulated seconds pass in one real second.
        default_s: how long a pod runs that says nothing, in simulated seconds.
        local_dir: where local commands run and their output goes; None forbids local commands.
    """

    def __init__(
        self,
        client: Client,
        nodes: dict[str, int],
        *,
        time_scale: float = 1.0,
        default_s: float = 1.0,
        local_dir: Path | None = None,
    ) -> None:
        self._client, self._node_slots = client, nodes
        self._time_scale, self._default_s = time_scale, default_s
        self._local = None if local_dir is None else LocalRuns(local_dir)
        self._pods = Informer(client, "/api/v1/pods", self._view, self._on_pod, {"fieldSelector": "spec.nodeName!="})
        self._recorder = Recorder(client, "kubelet")
        self._runs: dict[str, _Run] = {}
        #: Pods whose end is reported, and that the informer may still show as they were before.
        self._ended: set[str] = set()
        #: Runs of tasks that were to fail at first, by the uid of what owns their pods, and by completion index.
        self._failures: dict[str, Counter[str]] = {}
        self._logs = LogServer(self._local)

    async def run(self) -> None:
        """Run pods until cancelled; local processes end with it."""
        try:
            port = await self._logs.start()
            await self._register(port)
            await self._pods.run()
        finally:
            tasks = [run.task for run in self._runs.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._recorder.close()
            await self._logs.close()

    async def _register(self, port: int) -> None:
        for name, slots in self._node_slots.items():
            manifest = node_manifest(name, slots, port)
            await self._insist(partial(self._ensure_node, manifest))

    async def _ensure_node(self, manifest: Obj) -> None:
        try:
            await self._client.create("/api/v1/nodes", manifest)
        except ApiError as error:
            if error.code != 409:
                raise
        path = f"/api/v1/nodes/{manifest['metadata']['name']}/status"
        await self._client.patch(path, {"status": manifest["status"]}, STRATEGIC_PATCH)

    @staticmethod
    async def _insist(step: Callable[[], Awaitable[None]]) -> None:
        """Repeat a write until the server takes it: what a node reports must not be lost to an outage."""
        pause_s = 0.05
        while True:
            try:
                await step()
            except ApiError as error:
                if error.code in (404, 422):
                    return
                log.info("kubelet: %s; again", error)
            except (aiohttp.ClientError, TimeoutError) as error:
                log.info("kubelet: %s; again", error)
            else:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, 5.0)

    # Following ----------------------------------------------------------------------------------------------------

    def _view(self, pod: Obj) -> _Bound | None:
        if pod["spec"].get("nodeName") not in self._node_slots:
            return None
        done = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        bound = _Bound(pod["metadata"]["uid"], _owner(pod), bool(pod["metadata"].get("deletionTimestamp")))
        if done:
            self._ended.discard(bound.uid)
        elif bound.uid not in self._runs and bound.uid not in self._ended:
            # Taken up here, where the whole pod is at hand: nothing of it is kept in the cache.
            self._start(pod)
        return bound

    def _on_pod(self, key: str, before: _Bound | None, after: _Bound | None) -> None:
        if before is not None and (after is None or after.uid != before.uid):
            self._ended.discard(before.uid)
            self._tidy(key)
            if before.owner in self._failures and all(pod.owner != before.owner for pod in self._pods.cache.values()):
                del self._failures[before.owner]  # a failed pod stays for as long as its Job
        if before is not None and (after is None or after.uid != before.uid or after.deleting):
            run = self._runs.get(before.uid)
            if run is not None:
                run.stop.set()

    def _tidy(self, key: str) -> None:
        """Take away what a pod that is gone has left on this machine; while its process still ends, that waits."""
        if self._local is not None:
            self._local.forget(*key.split("/", 1))

    def _start(self, pod: Obj) -> None:
        uid, stop = pod["metadata"]["uid"], asyncio.Event()
        task = asyncio.create_task(self._live(pod, stop))
        self._runs[uid] = _Run(task, stop)

        def ended(task: asyncio.Task[None]) -> None:
            self._runs.pop(uid, None)
            if key_of(pod) not in self._pods.cache:
                self._tidy(key_of(pod))
            if not task.cancelled() and (error := task.exception()) is not None:
                log.error("pod %s: %r", key_of(pod), error)
            else:
                self._ended.add(uid)

        task.add_done_callback(ended)

    # One pod ------------------------------------------------------------------------------------------------------

    async def _live(self, pod: Obj, stop: asyncio.Event) -> None:
        """Take a pod from its binding to its end, or to its deletion."""
        taken_up = (pod.get("status") or {}).get("startTime")
        started, restarts = taken_up or stamp(), 0
        # A kubelet that was started again takes up where the pod is; whole seconds are all that its status says.
        ran_s = age_s(taken_up) or 0.0
        if pod["metadata"].get("deletionTimestamp"):
            stop.set()
        else:
            await self._insist(partial(self._report, pod, "Running", started, None, 0))
            self._recorder.record(reference(pod), "Started", f"Started container {_first(pod)}")
            if self._local is None and self._is_local(pod):
                why = "Simulated, its command is not run: that takes `fermata local up --allow-local-commands`"
                self._recorder.record(reference(pod), "CommandNotRun", why, "Warning")
        policy = pod["spec"].get("restartPolicy", "Always")
        while True:
            outcome = await self._run(pod, stop, started, ran_s)
            ran_s = 0.0
            if outcome is None or policy == "Never" or (policy == "OnFailure" and outcome.code == 0):
                break
            if outcome.reason == "DeadlineExceeded":
                break
            restarts += 1
            pause_s = min(_RESTART_S * 2.0 ** (restarts - 1), _LONGEST_RESTART_S) / self._time_scale
            if await wait_for_stop(stop, pause_s):
                outcome = None
                break
            await self._insist(partial(self._report, pod, "Running", started, None, restarts))
        final = outcome or Exit(137 if self._is_local(pod) else 143, "Error", "stopped")
        phase = "Succeeded" if final.code == 0 else "Failed"
        await self._insist(partial(self._report, pod, phase, started, final, restarts))
        if outcome is None:
            await self._insist(partial(self._confirm_deletion, pod))

    async def _run(self, pod: Obj, stop: asyncio.Event, started: str, ran_s: float) -> Exit | None:
        """Run a pod's container once, of which it has run so long already; None when the pod was deleted meanwhile."""
        limit_s = pod["spec"].get("activeDeadlineSeconds")
        left_s = None if limit_s is None else max(limit_s - (age_s(started) or 0.0), 0.0)
        if self._local is not None and self._is_local(pod):
            return await self._local.run(pod, stop, left_s)
        try:
            plan = plan_of(pod, self._default_s)
        except PlanError as error:
            return Exit(128, "StartError", str(error))
        seconds = plan.seconds / self._time_scale - ran_s
        if left_s is not None and left_s < seconds:
            return None if await wait_for_stop(stop, left_s) else Exit(137, "DeadlineExceeded")
        if await wait_for_stop(stop, max(seconds, 0.0)):
            return None
        return Exit(1 if self._fails_again(pod, plan) else plan.code)

    def _fails_again(self, pod: Obj, plan: Plan) -> bool:
        """Return whether this run is among the first ones of its task, which are to fail."""
        if not plan.failures:
            return False
        index = (pod["metadata"].get("annotations") or {}).get(COMPLETION_INDEX, "")
        runs = self._failures.setdefault(_owner(pod), Counter())
        runs[index] += 1
        return runs[index] <= plan.failures

    def _is_local(self, pod: Obj) -> bool:
        return (pod["metadata"].get("annotations") or {}).get(RUN_LOCAL) == "true"

    async def _report(self, pod: Obj, phase: str, started: str, outcome: Exit | None, restarts: int) -> None:
        status = pod_status(pod, phase, started, outcome, restarts)
        patch = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        await self._client.patch(f"{_path(pod)}/status", patch, STRATEGIC_PATCH)

    async def _confirm_deletion(self, pod: Obj) -> None:
        """Tell the API that a deleted pod has stopped, upon which it is removed."""
        preconditions = {"uid": pod["metadata"]["uid"]}
        try:
            await self._client.delete(_path(pod), gracePeriodSeconds=0, preconditions=preconditions)
        except ApiError as error:
            if error.code not in (404, 409):
                raise


def pod_status(pod: Obj, phase: str, started: str, outcome: Exit | None, restarts: int) -> Obj:
    """Return the status that a kubelet reports.

    Args:
        pod: the pod.
        phase: `Running`, `Succeeded` or `Failed`.
        started: when it was taken up.
        outcome: how it ended, None while it runs.
        restarts: how often its container was started again.
    """
    at, running = stamp(), outcome is None
    conditions = [
        {
            "type": kind,
            "status": "True" if running or kind == "Initialized" else "False",
            "reason": None if running else "PodCompleted" if phase == "Succeeded" else "PodFailed",
            "lastProbeTime": None,
            "lastTransitionTime": started if running or kind == "Initialized" else at,
        }
        for kind in ("Initialized", "Ready", "ContainersReady")
    ]
    state: Obj = {"running": {"startedAt": started}}
    if outcome is not None:
        state = {
            "terminated": {
                "exitCode": outcome.code,
                "reason": outcome.told_reason,
                "startedAt": started,
                "finishedAt": at,
                **({"message": outcome.message} if outcome.message else {}),
            }
        }
    containers = [
        {
            "name": container["name"],
            "image": container.get("image", ""),
            "imageID": "",
            "ready": running,
            "started": running,
            "restartCount": restarts,
            "state": state,
            "lastState": {},
        }
        for container in pod["spec"]["containers"]
    ]
    status: Obj = {
        "phase": phase,
        "startTime": started,
        "conditions": conditions,
        "containerStatuses": containers,
        "hostIP": "127.0.0.1",
        "podIP": "127.0.0.1",
    }
    if outcome is not None and outcome.reason == "DeadlineExceeded":
        status.update(reason=outcome.reason, message="Pod was active on the node longer than the specified deadline")
    return status


def _owner(pod: Obj) -> str:
    """Return the uid of what owns a pod, or its own."""
    meta = pod["metadata"]
    return str(next((item["uid"] for item in meta.get("ownerReferences") or []), meta["uid"]))


def _first(pod: Obj) -> str:
    return str(pod["spec"]["containers"][0]["name"])


def _path(pod: Obj) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
