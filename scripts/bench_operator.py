"""Measure the operator: many workflows at once, and a restart with many finished ones.

    make bench-operator [BENCH_ARGS="--workflows 1000 --rate 50 --stages 5 --steady 5 --finished 10000 --json"]

Three measurements: a burst that arrives faster than anything could run it, a steady stream, and a restart. The control
plane is an embedded one in a process of its own, or the cluster of `--kubeconfig` (whose pods must then finish by
themselves). Operator, control plane and this script share the machine, and the CPU time of each is told; what is
published of others is workloads of one Job each, which is `--stages 1`. As in its image, the operator has no Numba.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fermata.cli.interrupts import ended_in_a_line
from fermata.operator.names import ANNOTATION_READY, GROUP, LABEL_WORKFLOW, VERSION
from fermata.operator.times import parse, render
from fermata.sim.kube.client import Client, Informer

WORKFLOWS = "/apis/fermata.dev/v1alpha1/namespaces/default/workflows"
POOLS = "/apis/fermata.dev/v1alpha1/executorpools"
STAGES = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"], "e": ["d"]}
_STEADY_S = 40.0  # for how long the steady stream arrives
_STALLED_S = 120.0  # without a workflow that finishes
_SAY_S = 10.0
IDLE = {"annotations": {"fermata.dev/sim-seconds": "0.05"}}
Json = dict[str, Any]


def workflow(name: str, pool: str, count: int = len(STAGES)) -> Json:
    """Return a workflow of up to five stages."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox", "command": ["true"]}]}
    stages = [
        {"name": stage, "dependsOn": parents, "estimateSeconds": 1, "template": {"metadata": IDLE, "spec": pod}}
        for stage, parents in list(STAGES.items())[:count]
    ]
    return custom("Workflow", name, {"poolName": pool, "stages": stages})


def custom(kind: str, name: str, spec: Json) -> Json:
    """Return an object of ours."""
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": {"name": name}, "spec": spec}


@contextlib.contextmanager
def control_plane(folder: Path, slots: int) -> Iterator[tuple[Path, int]]:
    """Run an embedded control plane in a process of its own and give its kubeconfig and its process."""
    command = [sys.executable, "-m", "fermata.cli", "local", "up", "--foreground", "--dir", str(folder)]
    with (folder.parent / "plane.log").open("wb") as log:
        process = subprocess.Popen([*command, "--slots", str(slots)], stdout=log, stderr=log)
    try:
        while not (folder / "state.json").exists():
            if process.poll() is not None:
                raise SystemExit((folder.parent / "plane.log").read_text())
            time.sleep(0.02)
        yield folder / "kubeconfig", process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def cpu_s(pid: int | None) -> float:
    """Return the CPU time that a process has used, in seconds; NaN where there is none to look at."""
    if pid is None:
        return math.nan
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Operator:
    """An operator as a process that is measured."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [sys.executable, "-m", "fermata.cli", "operator", "--kubeconfig", str(kubeconfig)]
        self.begun_s, self._log = time.monotonic(), folder / "operator.log"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--metrics-port", str(self.port)],
                stdout=log,
                stderr=log,
                env={**os.environ, "POD_NAME": "bench", "FERMATA_NO_JIT": "1"},
            )

    def wait_ready(self) -> float:
        """Wait until it decides, and return after how many seconds it did."""
        while True:
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                if self.read("/readyz") == "ok\n":
                    return time.monotonic() - self.begun_s
            if self.process.poll() is not None:
                raise SystemExit(f"the operator died: {self.log_tail()}")
            time.sleep(0.05)

    def log_tail(self) -> str:
        """Return the last lines of its log."""
        return "\n".join(self._log.read_text().splitlines()[-5:])

    def read(self, path: str) -> str:
        """Read a path of its metrics port."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            return str(answer.read().decode())

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric over all series with these labels."""
        total = 0.0
        for line in self.read("/metrics").splitlines():
            found = re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line)
            if found and all(f'{key}="{value}"' in (found[1] or "") for key, value in labels.items()):
                total += float(found[2])
        return total

    def writes(self) -> float:
        """Return how many writes it asked for."""
        return sum(self.metric("fermata_api_requests_total", verb=verb) for verb in ("POST", "PATCH", "PUT", "DELETE"))

    def cpu_s(self) -> float:
        """Return the CPU time it has used, in seconds."""
        return cpu_s(self.process.pid)

    def memory_mb(self, field: str = "VmHWM") -> float:
        """Return its peak (VmHWM) or present (VmRSS) memory, in MB."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"{field}:\s+(\d+)", text)
        return int(found[1]) / 1000 if found else 0.0

    def stop(self) -> None:
        """Stop it."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()


class Seen:
    """What a load's informers saw: when its Jobs came, and which of its workflows are finished.

    Args:
        client: to look with; a watch that is cut off or falls behind is begun anew.
        title: of the load, with which the names of its workflows begin.
    """

    def __init__(self, client: Client, title: str) -> None:
        self.starts_s: list[float] = []
        self.finished: set[str] = set()
        self.last_s = time.monotonic()
        self._title, mine = title, f"{title}-"

        def ready(job: Json) -> float | None:
            meta = job["metadata"]
            text = (meta.get("annotations") or {}).get(ANNOTATION_READY)
            named = (meta.get("labels") or {}).get(LABEL_WORKFLOW, "")
            return parse(text) if text and named.startswith(mine) else None

        def done(workflow: Json) -> bool | None:
            named = workflow["metadata"]["name"]
            return bool((workflow.get("status") or {}).get("completionTime")) if named.startswith(mine) else None

        self._jobs = Informer(client, "/apis/batch/v1/jobs", ready, self._note_job)
        self._workflows = Informer(client, WORKFLOWS, done, self._note_workflow)

    def _note_job(self, _: str, before: float | None, ready_s: float | None) -> None:
        if before is None and ready_s is not None:
            self.starts_s.append(time.time() - ready_s)

    def _note_workflow(self, key: str, before: bool | None, after: bool | None) -> None:
        if after and not before:
            self.finished.add(key)
            self.last_s = time.monotonic()

    async def _say(self) -> None:
        """Say now and then how far it is: on a loaded machine this takes minutes."""
        while True:
            await asyncio.sleep(_SAY_S)
            print(f"{self._title}: {len(self.finished)} workflows have finished", file=sys.stderr, flush=True)

    @contextlib.asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        """Look for as long as the block lasts, from after the first list on."""
        work = (self._jobs.run(), self._workflows.run(), self._say())
        tasks = [asyncio.create_task(coroutine) for coroutine in work]
        try:
            await asyncio.gather(self._jobs.synced.wait(), self._workflows.synced.wait())
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def wait_for(self, count: int, operator: Operator) -> None:
        """Wait until so many workflows have finished.

        Raises:
            SystemExit: the operator is gone, or nothing has finished for long.
        """
        while len(self.finished) < count:
            await asyncio.sleep(0.1)
            if operator.process.poll() is not None:
                raise SystemExit(f"the operator died: {operator.log_tail()}")
            if time.monotonic() - self.last_s > _STALLED_S:
                told = f"{len(self.finished)} of {count} workflows have finished, and none for {_STALLED_S:g} s"
                raise SystemExit(f"{told}; the operator's last words: {operator.log_tail()}")


def quantile(values: list[float], share: float) -> float:
    """Return a quantile of some values."""
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


class Load(NamedTuple):
    """Workflows that arrive at a rate."""

    title: str
    workflows: int
    rate: float  # arrivals a second
    stages: int  # of each
    executors: int


async def submit(client: Client, load: Load, begun_s: float) -> None:
    """Create the workflows of a load at its rate, however long each request takes."""

    async def one(number: int) -> None:
        await client.create(WORKFLOWS, workflow(f"{load.title}-{number}", load.title, load.stages))

    async with asyncio.TaskGroup() as group:
        for number in range(load.workflows):
            await asyncio.sleep(max(begun_s + number / load.rate - time.monotonic(), 0.0))
            group.create_task(one(number))


async def arrive(kubeconfig: Path, plane: int | None, folder: Path, load: Load) -> Json:
    """Let workflows arrive, and measure until the last has finished."""
    count = load.workflows
    operator = Operator(kubeconfig, folder)
    async with Client.from_kubeconfig(kubeconfig) as client:
        seen = Seen(client, load.title)
        try:
            operator.wait_ready()
            pool = custom("ExecutorPool", load.title, {"executors": load.executors, "policy": {"name": "sjf"}})
            await client.create(POOLS, pool)
            writes, own_s, plane_s = operator.writes(), operator.cpu_s(), cpu_s(plane)
            async with seen.looking():
                begun_s = time.monotonic()
                await submit(client, load, begun_s)
                submitted_s = time.monotonic() - begun_s
                await seen.wait_for(count, operator)
            await asyncio.sleep(3.0)
            told = await client.get("/api/v1/events", fieldSelector="reportingComponent=fermata.dev/operator")
            events = sum(event["involvedObject"]["name"].startswith(load.title) for event in told["items"])
            stages = count * load.stages
            took_s = seen.last_s - begun_s
            leases = (time.monotonic() - begun_s) / 2
            written = operator.writes() - writes - leases
            decisions = operator.metric("fermata_decision_seconds_count")
            return {
                "workflows": count,
                "stages": stages,
                "submitted_s": submitted_s,
                "all_finished_s": took_s,
                "workflows_a_second": count / took_s,
                "stages_a_second": stages / took_s,
                "ready_to_job_p50_s": quantile(seen.starts_s, 0.5),
                "ready_to_job_p99_s": quantile(seen.starts_s, 0.99),
                "writes": written,
                "writes_a_workflow": written / count,
                "events_a_workflow": events / count,
                "allowed_writes_a_workflow": 4 * load.stages + 3,
                "operator_cpu_s": operator.cpu_s() - own_s,
                "control_plane_cpu_s": cpu_s(plane) - plane_s,
                "cpu_s_a_stage": (operator.cpu_s() - own_s) / stages,
                "peak_mb": operator.memory_mb(),
                "decisions": decisions,
                "decision_mean_ms": 1000 * operator.metric("fermata_decision_seconds_sum") / max(decisions, 1.0),
                "reconcile_failures": operator.metric("fermata_reconcile_failures_total"),
            }
        finally:
            operator.stop()


async def restart(kubeconfig: Path, folder: Path, finished: int) -> Json:
    """Start an operator where many workflows have finished, and measure how long it takes to its first start."""
    first = Operator(kubeconfig, folder)
    first.wait_ready()
    empty_mb = first.memory_mb("VmRSS")
    first.stop()
    now_s = time.time()
    condition = {"status": "True", "lastTransitionTime": render(now_s), "reason": "AllStagesSucceeded", "message": ""}
    stages = [
        {"name": name, "state": "Succeeded", "readyTime": render(now_s - 9), "startTime": render(now_s - 8),
         "completionTime": render(now_s - 7), "heldSeconds": 0.0, "estimateSeconds": 1.0, "tasks": 1, "succeeded": 1}
        for name in STAGES
    ]  # fmt: skip
    status = {
        "observedGeneration": 1,
        "conditions": [{"type": "Accepted", **condition}, {"type": "Succeeded", **condition}],
        "arrivalTime": render(now_s - 10),
        "completionTime": render(now_s - 5),
        "jctSeconds": 5.0,
        "stages": stages,
    }
    async with Client.from_kubeconfig(kubeconfig) as client:
        await client.create(POOLS, custom("ExecutorPool", "bench", {"executors": 4, "policy": {"name": "sjf"}}))
        gate = asyncio.Semaphore(16)

        async def one(number: int) -> None:
            async with gate:
                made = await client.create(WORKFLOWS, workflow(f"past-{number}", "bench"))
                await client.patch(f"{WORKFLOWS}/{made['metadata']['name']}/status", {"status": status})

        await asyncio.gather(*(one(number) for number in range(finished)))
        await client.create(WORKFLOWS, workflow("present", "bench"))
        operator = Operator(kubeconfig, folder)
        try:
            ready_s = operator.wait_ready()
            while not (await client.get("/apis/batch/v1/jobs", labelSelector="fermata.dev/workflow=present"))["items"]:
                if time.monotonic() - operator.begun_s > _STALLED_S:
                    raise SystemExit(f"nothing is started after a restart; the operator says: {operator.log_tail()}")
                await asyncio.sleep(0.05)
            first_s = time.monotonic() - operator.begun_s
            await asyncio.sleep(2.0)
            full_mb = operator.memory_mb("VmRSS")
            return {
                "finished_workflows": finished,
                "restart_to_ready_s": ready_s,
                "restart_to_first_start_s": first_s,
                "operator_cpu_s": operator.cpu_s(),
                "memory_mb": full_mb,
                "peak_mb": operator.memory_mb(),
                "memory_mb_a_1000_workflows": (full_mb - empty_mb) / finished * 1000,
            }
        finally:
            operator.stop()


def main() -> None:
    """Run all, and print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workflows", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=50.0, help="arrivals a second")
    parser.add_argument("--stages", type=int, default=len(STAGES), choices=range(1, len(STAGES) + 1))
    parser.add_argument("--steady", type=float, default=5.0, help="arrivals a second of the steady stream; 0: none")
    parser.add_argument("--executors", type=int, default=200)
    parser.add_argument("--finished", type=int, default=10_000, help="finished workflows at the restart; 0: no restart")
    parser.add_argument("--kubeconfig", type=Path, help="a cluster to use; an embedded control plane by default")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fermata-bench-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        kubeconfig, plane = given.kubeconfig, None
        if kubeconfig is None:
            kubeconfig, plane = stack.enter_context(control_plane(folder / "kube", given.executors))
        loads = [Load("burst", given.workflows, given.rate, given.stages, given.executors)]
        if given.steady:
            loads.append(
                Load("steady", math.ceil(_STEADY_S * given.steady), given.steady, given.stages, given.executors)
            )
        for load in loads:
            tell(load.title, asyncio.run(arrive(kubeconfig, plane, folder, load)), given.json)
        if given.finished:
            tell("restart", asyncio.run(restart(kubeconfig, folder, given.finished)), given.json)


def tell(title: str, rows: Json, as_json: bool) -> None:
    """Print what was measured."""
    if as_json:
        print(json.dumps({title: rows}), flush=True)
        return
    print(title)
    for key, value in rows.items():
        print(f"  {key:30} {value:,.4g}" if isinstance(value, float) else f"  {key:30} {value:,}", flush=True)


if __name__ == "__main__":
    with ended_in_a_line("bench_operator.py"):
        main()
