"""What running a pod means here: waiting for as long as its annotations say, or a local process.

Knows no API: it is given a pod, and says how its run ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fermata.sim.kube.kinds.job import COMPLETION_INDEX, number_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from fermata.sim.kube.resources import Obj

SIM_SECONDS = "fermata.dev/sim-seconds"
SIM_EXIT_CODE = "fermata.dev/sim-exit-code"
SIM_FAILURES = "fermata.dev/sim-failures"
RUN_LOCAL = "fermata.dev/run-local"

_FIELD = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
_VARIABLE = re.compile(r"\$\$|\$\(([-._A-Za-z0-9]+)\)")


@dataclass(frozen=True, slots=True)
class Exit:
    """How a run ended."""

    code: int
    reason: str = ""
    message: str = ""

    @property
    def told_reason(self) -> str:
        """The reason in the container's status."""
        return self.reason or ("Completed" if self.code == 0 else "Error")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a simulated run will do."""

    seconds: float
    code: int
    failures: int


class PlanError(ValueError):
    """An annotation that says no number."""


def plan_of(pod: Obj, default_s: float) -> Plan:
    """Read a pod's annotations.

    Raises:
        PlanError: for a value that is not a number, or negative.
    """
    annotations = pod["metadata"].get("annotations") or {}
    index = number_of(pod["metadata"], COMPLETION_INDEX) or 0
    return Plan(
        seconds=_number(annotations, SIM_SECONDS, index, default_s),
        code=int(_number(annotations, SIM_EXIT_CODE, index, 0)),
        failures=int(_number(annotations, SIM_FAILURES, index, 0)),
    )


def _number(annotations: dict[str, str], key: str, index: int, default: float) -> float:
    text = annotations.get(key)
    if text is None:
        return default
    items = text.split(",")
    item = items[min(index, len(items) - 1)].strip()
    try:
        value = float(item)
    except ValueError as error:
        raise PlanError(f"annotation {key}: expected a number, got {item!r}") from error
    if not 0 <= value < float("inf"):
        raise PlanError(f"annotation {key}: expected a number that is finite and not negative, got {item!r}")
    return value


async def wait_for_stop(stop: asyncio.Event, seconds: float | None) -> bool:
    """Wait until a run is to stop, at most so long; return whether it is to."""
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return False
    return True


class LocalRuns:
    """Runs containers' commands as processes of this machine, each in its own process group and folder.

    Args:
        folder: where pods get their folders.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: set[tuple[str, str]] = set()

    def log_file(self, namespace: str, name: str) -> Path:
        """Return the file that holds a pod's output."""
        return self._folder / namespace / f"{name}.log"

    def is_running(self, namespace: str, name: str) -> bool:
        """Return whether a pod's process may still write."""
        return (namespace, name) in self._running

    def forget(self, namespace: str, name: str) -> None:
        """Take away what a pod has left, its folder and its output, unless its process may still write."""
        if not self.is_running(namespace, name):
            shutil.rmtree(self._folder / namespace / name, ignore_errors=True)
            self.log_file(namespace, name).unlink(missing_ok=True)

    async def run(self, pod: Obj, stop: asyncio.Event, limit_s: float | None) -> Exit | None:
        """Run the first container's command to its end; None when it was stopped.

        Args:
            pod: the pod.
            stop: set when the pod is deleted: the process group gets SIGTERM, after the grace period SIGKILL.
            limit_s: seconds after which it is stopped too.
        """
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        if unknown := _unknown_source(pod):
            return Exit(128, "StartError", f"a local run does not know variables of {unknown}")
        environment = environment_of(pod)
        container = pod["spec"]["containers"][0]
        command = [*(container.get("command") or []), *(container.get("args") or [])]
        command = [expanded(part, environment) for part in command]
        if not command:
            return Exit(128, "StartError", "a local run needs the container's command")
        folder = self._folder / namespace / name
        folder.mkdir(parents=True, exist_ok=True)
        self._running.add((namespace, name))
        try:
            with self.log_file(namespace, name).open("ab") as output:
                try:
                    process = await asyncio.create_subprocess_exec(
                        *command,
                        cwd=container.get("workingDir") or folder,
                        env={**os.environ, **environment},
                        stdin=asyncio.subprocess.DEVNULL,
                        stdout=output,
                        stderr=output,
                        start_new_session=True,
                    )
                except OSError as error:
                    return Exit(128, "StartError", str(error))
            return await self._attend(process, pod, stop, limit_s)
        finally:
            self._running.discard((namespace, name))

    async def _attend(
        self, process: asyncio.subprocess.Process, pod: Obj, stop: asyncio.Event, limit_s: float | None
    ) -> Exit | None:
        ended = asyncio.create_task(process.wait())
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({ended, stopped}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                _signal(process, signal.SIGTERM)
                grace_s = float(pod["spec"].get("terminationGracePeriodSeconds", 30))
                await asyncio.wait({ended}, timeout=grace_s)
                return None if stop.is_set() else Exit(137, "DeadlineExceeded")
            code = ended.result()
            return Exit(code if code >= 0 else 128 - code)
        finally:
            # Also what the process started and left behind.
            _signal(process, signal.SIGKILL)
            stopped.cancel()
            await asyncio.shield(ended)


def _signal(process: asyncio.subprocess.Process, which: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, which)


def environment_of(pod: Obj) -> dict[str, str]:
    """Return the variables of a pod's first container: literal values and references to the pod's own metadata."""
    meta = pod["metadata"]
    plain = {
        "metadata.name": meta["name"],
        "metadata.namespace": meta["namespace"],
        "metadata.uid": meta["uid"],
        "spec.nodeName": pod["spec"].get("nodeName") or "",
        "status.hostIP": "127.0.0.1",
        "status.podIP": "127.0.0.1",
    }
    found: dict[str, str] = {"HOSTNAME": pod["spec"].get("hostname") or meta["name"], "PYTHONUNBUFFERED": "1"}
    found["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    for variable in pod["spec"]["containers"][0].get("env") or []:
        path = ((variable.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath")
        if path is None:
            value = str(variable.get("value") or "")
        elif label := _FIELD.fullmatch(path):
            value = (meta.get(label[1]) or {}).get(label[2], "")
        else:
            value = plain.get(path, "")
        found[variable["name"]] = expanded(value, found)
    return found


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """Return a text with `$(NAME)` replaced by what a variable is, if there is one; `$$` is a dollar.

    Source: https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/

    >>> expanded("$(A) $$(A) $(B)", {"A": "1"})
    '1 $(A) $(B)'
    """
    return _VARIABLE.sub(lambda found: "$" if found[0] == "$$" else variables.get(found[1], found[0]), text)


def _unknown_source(pod: Obj) -> str:
    """Return where variables of a pod's first container come from that are not known here; empty if nowhere."""
    container = pod["spec"]["containers"][0]
    if container.get("envFrom"):
        return "envFrom"
    sources = (variable.get("valueFrom") or {"fieldRef": {}} for variable in container.get("env") or [])
    return next((kind for source in sources for kind in source if kind != "fieldRef"), "")
