"""Measure `fermata local up`: how soon it answers, how many requests it serves, what ten thousand pods take.

    make bench-local [BENCH_ARGS="--pods 10000 --json"]

The asking side runs beside the server on this machine and is written to cost little; rates are given by the clock
and by the server's own CPU time, which says what it would do on a core of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from fermata.cli.interrupts import ended_in_a_line

PODS = "/api/v1/namespaces/default/pods"
MERGE = "application/merge-patch+json"
Json = dict[str, Any]


class Server:
    """`fermata local up` as a process that is measured."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        command = [sys.executable, "-m", "fermata.cli", "local", "up", "--foreground", "--dir", str(folder)]
        begun_s = time.monotonic()
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen([*command, *arguments], stdout=log, stderr=log)
        while not (folder / "state.json").exists():
            if self.process.poll() is not None:
                raise SystemExit((folder / "log").read_text())
            time.sleep(0.002)
        self.start_s = time.monotonic() - begun_s
        self.port = int(json.loads((folder / "state.json").read_text())["url"].rpartition(":")[2])

    def cpu_s(self) -> float:
        """Return the CPU time it has used, in seconds."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mb(self, field: str = "VmRSS") -> float:
        """Return its present (VmRSS) or peak (VmHWM) memory, in MB."""
        found = re.search(rf"{field}:\s+(\d+)", Path(f"/proc/{self.process.pid}/status").read_text())
        return int(found[1]) / 1000 if found else 0.0

    def stop(self) -> None:
        """Stop it."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def served(folder: Path, *arguments: str) -> Iterator[Server]:
    """Run a control plane."""
    server = Server(folder, *arguments)
    try:
        yield server
    finally:
        server.stop()


class Connection:
    """One connection that asks and waits for the answer, with as little work as may be."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, method: str, path: str, body: bytes = b"", kind: str = "application/json") -> bytes:
        """Send a request and return the answer's body.

        Raises:
            RuntimeError: for an answer that is no success.
        """
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
        self._writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        found = re.search(r"Content-Length: (\d+)", answer, re.IGNORECASE)
        data = await self._reader.readexactly(int(found[1]) if found else 0)
        if not answer.startswith("HTTP/1.1 2"):
            raise RuntimeError(f"{method} {path}: {data[:300].decode()}")
        return data


Work = Callable[[Connection, int], Awaitable[object]]


async def rate(server: Server, work: Work, count: int, connections: int = 8) -> Json:
    """Do one thing many times over a few connections, and return how fast it went."""
    numbers = iter(range(count))

    async def worker() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 26)
        try:
            connection = Connection(reader, writer)
            for number in numbers:
                await work(connection, number)
        finally:
            writer.close()

    begun_s, cpu_s = time.monotonic(), server.cpu_s()
    await asyncio.gather(*(worker() for _ in range(connections)))
    answered_s, answered_cpu_s = time.monotonic() - begun_s, server.cpu_s() - cpu_s
    await quiet(server)
    return {
        "a_second": count / answered_s,
        "a_cpu_second": count / answered_cpu_s,
        # With what scheduler, Job controller and kubelet make of it afterwards.
        "a_cpu_second_settled": count / (server.cpu_s() - cpu_s),
    }


async def quiet(server: Server) -> None:
    """Wait until the server has nothing left to do."""
    still = 0
    while still < 4:
        cpu_s = server.cpu_s()
        await asyncio.sleep(0.1)
        still = still + 1 if server.cpu_s() - cpu_s < 0.02 else 0


def pod(name: str) -> bytes:
    """Return a pod as a Job's template would make it, which no node here has room for."""
    container = {
        "name": "main",
        "image": "busybox:1",
        "command": ["sh", "-c", "true"],
        "resources": {"requests": {"cpu": "1k"}},
    }
    meta = {"name": name, "labels": {"app": "bench", "team": "a"}, "annotations": {"fermata.dev/sim-seconds": "60"}}
    spec = {"restartPolicy": "Never", "containers": [container]}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}).encode()


async def requests(server: Server, pods: int) -> Json:
    """Create pods, read them, patch them."""
    before_mb = server.memory_mb()
    patch = json.dumps({"metadata": {"annotations": {"seen": "yes"}}}).encode()
    created = await rate(server, lambda ask, n: ask.ask("POST", PODS, pod(f"p-{n}")), pods)
    full_mb = server.memory_mb()
    read = await rate(server, lambda ask, n: ask.ask("GET", f"{PODS}/p-{n % pods}"), pods)
    patched = await rate(server, lambda ask, n: ask.ask("PATCH", f"{PODS}/p-{n % pods}", patch, MERGE), min(pods, 5000))
    begun_s = time.monotonic()
    await rate(server, lambda ask, n: ask.ask("GET", "/api/v1/pods"), 1, 1)
    return {
        "pods": pods,
        **{f"creates_{key}": value for key, value in created.items()},
        **{f"reads_{key}": value for key, value in read.items()},
        **{f"patches_{key}": value for key, value in patched.items()},
        "list_of_all_s": time.monotonic() - begun_s,
        "empty_mb": before_mb,
        "full_mb": full_mb,
        "peak_mb": server.memory_mb("VmHWM"),
    }


def start(folder: Path, times: int) -> Json:
    """Start it a few times, and return the medians."""
    wall_s, cpu_s, memory_mb = [], [], []
    for number in range(times):
        with served(folder / f"start-{number}") as server:
            wall_s.append(server.start_s)
            cpu_s.append(server.cpu_s())
            memory_mb.append(server.memory_mb())
    return {
        "start_s": statistics.median(wall_s),
        "start_cpu_s": statistics.median(cpu_s),
        "start_mb": statistics.median(memory_mb),
    }


def main() -> None:
    """Run all, and print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fermata-bench-") as name:
        rows = start(Path(name), given.starts) | {"load": os.getloadavg()[0]}
        with served(Path(name) / "kube") as server:
            rows |= asyncio.run(requests(server, given.pods))
    if given.json:
        print(json.dumps(rows))
        return
    for key, value in rows.items():
        print(f"  {key:30} {value:,.4g}" if isinstance(value, float) else f"  {key:30} {value:,}", flush=True)


if __name__ == "__main__":
    with ended_in_a_line("bench_local.py"):
        main()
