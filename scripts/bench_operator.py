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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fermata.operator.names import ANNOTATION_READY
from fermata.operator.times import parse, render
from fermata.sim.kube.client import Client

WORKFLOWS = "/apis/fermata.dev/v1alpha1/namespaces/default/workflows"
POOLS = "/apis/fermata.dev/v1alpha1/executorpools"
STAGES = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"], "e": ["d"]}
_STEADY_S = 40.0  # for how long the steady stream arrives
IDLE = {"annotations": {"fermata.dev/sim-seconds": "0.05"}}
Json = dict[str, Any]


def workflow(name: str, pool: str, count: int = len(STAGES)) -> Json:
    """Return a workflow of up to five stages."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox", "command": ["true"]}]}
    stages = [
        {"name": stage, "dependsOn": parents, "estimateSeconds": 1, "template": {"metadata": IDLE, "spec": pod}}
        for stage, parents in list(STAGES.items())[:count]
    ]
    return {"metadata": {"name": name}, "spec": {"poolName": pool, "stages": stages}}


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
        self.begun_s = time.monotonic()
        with (folder / "operator.log").open("ab") as log:
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
                raise SystemExit("the operator died")
            time.sleep(0.05)

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


@dataclass
class Seen:
    """What watches saw: when Jobs came, and which workflows are finished."""

    starts_s: list[float] = field(default_factory=list)
    finished: set[str] = field(default_factory=set)
    last_s: float = 0.0


async def follow(client: Client, path: str, since: str) -> AsyncIterator[tuple[str, Json]]:
    """Yield the changes of a collection."""
    while True:
        async for kind, obj in client.watch(path, since, {}):
            since = obj["metadata"]["resourceVersion"]
            yield kind, obj


async def note_jobs(client: Client, since: str, seen: Seen) -> None:
    """Note how long after its stage was ready each Job appeared."""
    async for kind, job in follow(client, "/apis/batch/v1/jobs", since):
        if kind == "ADDED" and (ready := (job["metadata"].get("annotations") or {}).get(ANNOTATION_READY)):
            seen.starts_s.append(time.time() - parse(ready))


async def note_workflows(client: Client, since: str, seen: Seen) -> None:
    """Note which workflows have finished."""
    async for _, obj in follow(client, WORKFLOWS, since):
        if (obj.get("status") or {}).get("completionTime") and obj["metadata"]["name"] not in seen.finished:
            seen.finished.add(obj["metadata"]["name"])
            seen.last_s = time.monotonic()


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


async def arrive(kubeconfig: Path, plane: int | None, folder: Path, load: Load) -> Json:
    """Let workflows arrive, and measure until the last has finished."""
    count = load.workflows
    operator = Operator(kubeconfig, folder)
    seen = Seen()
    async with Client.from_kubeconfig(kubeconfig) as client:
        try:
            operator.wait_ready()
            pool = {"metadata": {"name": load.title}, "spec": {"executors": load.executors, "policy": {"name": "sjf"}}}
            await client.create(POOLS, pool)
            since = (await client.get(WORKFLOWS))["metadata"]["resourceVersion"]
            watches = [
                asyncio.create_task(task)
                for task in (note_jobs(client, since, seen), note_workflows(client, since, seen))
            ]
            writes, own_s, plane_s = operator.writes(), operator.cpu_s(), cpu_s(plane)
            begun_s = time.monotonic()
            for number in range(count):
                await asyncio.sleep(max(begun_s + number / load.rate - time.monotonic(), 0.0))
                await client.create(WORKFLOWS, workflow(f"{load.title}-{number}", load.title, load.stages))
            submitted_s = time.monotonic() - begun_s
            while len(seen.finished) < count:
                await asyncio.sleep(0.1)
            for watch in watches:
                watch.cancel()
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
        await client.create(POOLS, {"metadata": {"name": "bench"}, "spec": {"executors": 4, "policy": {"name": "sjf"}}})
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
    # A signal ends the processes that were started, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
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
    main()
