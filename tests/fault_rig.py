"""A busy operator on an embedded control plane that can be hurt, and the count of what was lost.

The control plane runs in a thread, so that a test can reach into it: cut it off, let requests fail, take nodes away.
The operator is its own process, with the rights that ship.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

from tests.kube_fixtures import PlaneThread
from tests.operator_rig import Cluster, OperatorProcess, Raw, give_rights, stage, stages_of

from fermata.operator.crds import manifests
from fermata.operator.names import LABEL_STAGE, LABEL_WORKFLOW
from fermata.sim.kube import ControlPlane, Options
from fermata.sim.kube.faults import Fault
from fermata.sim.kube.kinds.job import COMPLETION_INDEX
from fermata.sim.kube.store import Change, Selection, Table

OPERATOR_USER = "system:serviceaccount:fermata:fermata"
T = TypeVar("T")


class Bench:
    """One control plane, one operator (or more), and what a user sees."""

    def __init__(self, plane: ControlPlane, loop: asyncio.AbstractEventLoop, folder: Path) -> None:
        self.plane, self.folder, self._loop = plane, folder, loop
        give_rights(plane.kubeconfig)
        self.cluster = Cluster(plane.kubeconfig)
        #: Jobs ever created by (workflow, stage), and pods by (workflow, stage, index): counted where they are stored.
        self.jobs: Counter[tuple[str, str]] = Counter()
        self.pods: Counter[tuple[str, str, str]] = Counter()
        self.inside(lambda: plane.api.store.listeners.append(self._count))
        self.operators: list[OperatorProcess] = []

    def _count(self, table: Table, change: Change) -> None:
        if change.type != "ADDED" or table.key not in (("batch", "jobs"), ("", "pods")):
            return
        labels = change.entry.labels
        if LABEL_STAGE in labels:
            key = (labels[LABEL_WORKFLOW], labels[LABEL_STAGE])
            if table.key == ("", "pods"):
                self.pods[(*key, labels[COMPLETION_INDEX])] += 1
            else:
                self.jobs[key] += 1

    def operator(self, *arguments: str, **more: Any) -> OperatorProcess:
        """Start an operator and wait until it decides."""
        self.operators.append(OperatorProcess(self.plane.kubeconfig, self.folder, *arguments, **more))
        self.operators[-1].wait_ready()
        return self.operators[-1]

    def inside(self, work: Callable[[], T]) -> T:
        """Call something in the control plane's own thread."""

        async def call() -> T:
            return work()

        return self.wait(call())

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the control plane's own loop, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    @contextlib.contextmanager
    def fault(self, **fields: Any) -> Iterator[Fault]:
        """Let requests of the operator meet a fault for as long as the block lasts."""
        fault = Fault(user=OPERATOR_USER, **fields)
        self.inside(lambda: self.plane.server.faults.add(fault))
        try:
            yield fault
        finally:
            self.inside(lambda: self.plane.server.faults.remove(fault))

    def asked(self, verb: str, resource: str) -> int:
        """Return how often the operator asked for something."""
        calls = self.inside(lambda: dict(self.plane.server.calls))
        return sum(n for key, n in calls.items() if (key[0], key[1], key[3]) == (OPERATOR_USER, verb, resource))

    def close_watches(self, *, forget: bool = False) -> None:
        """End all watches; with `forget`, what they missed cannot be watched any more (410)."""

        def close() -> None:
            for table in self.plane.api.store.tables():
                if forget:
                    table.compact()
                table.close_watches()

        self.inside(close)

    def submit_busy(self, pool: str, count: int, seconds: float = 0.3, prefix: str = "w") -> list[str]:
        """Create workflows of three stages and five tasks or more, and return their names."""
        names = [f"{prefix}{number}" for number in range(count)]
        for number, name in enumerate(names):
            stages = [
                stage("a", seconds, tasks=1 + number % 3),
                stage("b", seconds, "a"),
                stage("c", seconds, tasks=2),
            ]
            self.cluster.submit(name, pool, stages)
        return names

    def check_nothing_lost(self, names: list[str], stages: str = "abc", *, failures: bool = False) -> None:
        """Wait for workflows, and check that every stage ran, once, after its parents, within the pool.

        Args:
            names: of the workflows.
            stages: of each.
            failures: pods were taken away, so tasks may have started more than once.
        """
        final = {name: self.cluster.wait_for(name) for name in names}
        expected = {(name, one) for name in names for one in stages}
        assert {key for key in self.jobs if key[0] in names} == expected
        assert {self.jobs[key] for key in expected} == {1}, "a stage was started twice"
        if not failures:
            again = {key: count for key, count in self.pods.items() if count > 1 and key[0] in names}
            assert not again, f"tasks were started twice: {again}"
        for name, status in final.items():
            told = {row["state"] for row in stages_of(status).values()}
            assert told == {"Succeeded"}, f"{name}: {told}"
            split = sum(status[part] for part in ("waitSeconds", "heldSeconds", "runSeconds"))
            assert abs(split - status["jctSeconds"]) < 0.01, f"{name}: {status}"

    def objects(self, plural: str) -> list[Raw]:
        """Return all objects of a built-in kind, as stored."""
        resource = next(item for item in self.plane.api.resources if item.plural == plural and not item.from_storage)

        def read() -> list[Raw]:
            return [entry.load() for entry in self.plane.api.table(resource).select(Selection())]

        return self.inside(read)

    def close(self) -> None:
        """Stop all operators."""
        for operator in self.operators:
            operator.stop()


@contextlib.contextmanager
def bench(folder: Path, **options: Any) -> Iterator[Bench]:
    """Give a control plane that can be hurt; see `fermata.sim.kube.Options`."""
    chosen = Options(**{"slots": 16, "job_backoff_s": 0.1, **options})
    thread = PlaneThread(chosen, folder / "kube", manifests())
    with thread:
        made = Bench(thread.plane, thread.loop, folder)
        try:
            yield made
        finally:
            made.close()


@contextlib.contextmanager
def busy_bench(folder: Path, **options: Any) -> Iterator[Bench]:
    """Give the same with one operator, which has to survive whatever happens in the block."""
    with bench(folder, **options) as made:
        operator = made.operator()
        yield made
        assert made.operators == [operator]
        assert operator.process.poll() is None, "the operator died"
        assert "Traceback" not in operator.log.read_text()
