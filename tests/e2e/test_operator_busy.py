"""A busy stretch with everything that people and machines do to an operator, on either control plane.

Workflows come at random, the operator is killed with SIGKILL, pools grow and shrink, workflows are suspended, resumed
and deleted. Afterwards nothing is lost, nothing has started twice, and no pool ran more than it may.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.operator_rig import (
    GROUP,
    VERSION,
    Cluster,
    OperatorProcess,
    Raw,
    Starts,
    condition_of,
    control_plane,
    stage,
    stages_of,
    wait_until,
)

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]

POOLS: dict[str, Raw] = {
    "learned": {"executors": 3, "policy": {"name": "default"}},
    "holding": {"executors": 2, "policy": {"name": "sjf-hold:tau=1,split=2"}, "maxHoldSeconds": 3},
    "shadow": {"executors": 2, "policy": {"name": "default"}, "mode": "Shadow"},
}


class Stretch:
    """What is done in a busy stretch, drawn from a seed, and what has to come of it."""

    def __init__(self, kubeconfig: Path, folder: Path, seed: int) -> None:
        self.kubeconfig, self.folder, self._draw = kubeconfig, folder, random.Random(seed)
        self.cluster = Cluster(kubeconfig)
        self.operators = [OperatorProcess(kubeconfig, folder)]
        self.stages: dict[str, set[str]] = {}  # of each workflow
        self.fails: set[str] = set()
        self.deleted: set[str] = set()
        self.allowed = {name: pool["executors"] for name, pool in POOLS.items()}
        self._resume_s: dict[str, float] = {}

    def run(self, workflows: int) -> None:
        """Create workflows, and do something else between them at times."""
        doings = [self._kill] * 8 + [self._resize] * 5 + [self._suspend] * 5 + [self._delete] * 2
        for number in range(workflows):
            self._submit(f"w{number}")
            if self._draw.random() < 0.25:
                self._draw.choice(doings)()
            time.sleep(self._draw.expovariate(1.5))
            self._resume()
        time.sleep(3.0)
        self._resume()

    def _submit(self, name: str) -> None:
        stages = []
        for number in range(self._draw.choice([1, 1, 2, 3, 4])):
            parents = [f"s{before}" for before in range(number) if self._draw.random() < 0.5]
            fails = self._draw.random() < 0.03
            if fails:
                self.fails.add(name)
            seconds, tasks = self._draw.choice([0.3, 0.3, 0.5, 1.0, 4.0]), self._draw.choice([1, 1, 2, 4])
            stages.append(stage(f"s{number}", seconds, *parents, tasks=tasks, exit_code=int(fails), retries=0))
        self.stages[name] = {each["name"] for each in stages}
        self.cluster.submit(name, self._draw.choice(list(POOLS)), stages)

    def _kill(self) -> None:
        self.operators[-1].kill()
        time.sleep(self._draw.uniform(0.0, 1.5))
        self.operators.append(OperatorProcess(self.kubeconfig, self.folder))

    def _resize(self) -> None:
        pool, executors = self._draw.choice(list(POOLS)), self._draw.choice([2, 3, 4])
        self.allowed[pool] = max(self.allowed[pool], executors)  # what runs goes on when a pool shrinks
        patch = {"spec": {"executors": executors}}
        self.cluster.objects.patch_cluster_custom_object(GROUP, VERSION, "executorpools", pool, patch)

    def _suspend(self) -> None:
        name = self._draw.choice(sorted(self.stages.keys() - self.deleted))
        self._edit(name, suspend=True)
        self._resume_s[name] = time.monotonic() + 3.0

    def _resume(self) -> None:
        for name in [name for name, at_s in self._resume_s.items() if at_s < time.monotonic()]:
            self._resume_s.pop(name)
            if name not in self.deleted:
                self._edit(name, suspend=False)

    def _edit(self, name: str, **spec: Any) -> None:
        body = {"spec": spec}
        self.cluster.objects.patch_namespaced_custom_object(GROUP, VERSION, "default", "workflows", name, body)

    def _delete(self) -> None:
        name = self._draw.choice(sorted(self.stages.keys() - self.deleted))
        self.deleted.add(name)
        self.cluster.objects.delete_namespaced_custom_object(GROUP, VERSION, "default", "workflows", name)

    def ends(self) -> dict[str, Raw]:
        """Wait until all workflows that are left have finished, and return their statuses."""
        names = self.stages.keys() - self.deleted

        def open_ones() -> list[str]:
            told = {name: condition_of(self.cluster.status(name), "Running").get("reason") for name in names}
            return [name for name, reason in told.items() if reason != "Finished"]

        wait_until(lambda: not open_ones(), lambda: f"not finished: {open_ones()}")
        return {name: self.cluster.status(name) for name in names}


@contextlib.contextmanager
def stretch(kubeconfig: Path, folder: Path, seed: int) -> Iterator[Stretch]:
    """Give a stretch whose operators are stopped at its end."""
    made = Stretch(kubeconfig, folder, seed)
    try:
        made.operators[0].wait_ready()
        for name, pool in POOLS.items():
            made.cluster.pool(name, **pool)
        yield made
    finally:
        for operator in made.operators:
            operator.stop()


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_started_twice_or_beyond_the_pool_in_a_busy_stretch(tmp_path: Path, seed: int) -> None:
    with control_plane(tmp_path, slots=64) as kubeconfig, stretch(kubeconfig, tmp_path, seed) as busy:
        starts = Starts(busy.cluster)
        busy.run(80)
        ends = busy.ends()
        starts.stop()
        assert len(busy.operators) > 3, "it was killed"
        assert busy.operators[-1].stop() == 0
    assert {name for name, end in ends.items() if condition_of(end, "Succeeded")["status"] == "False"} == (
        busy.fails - busy.deleted
    )
    for name, end in ends.items():
        parts = [round(end[part] * 1000) for part in ("waitSeconds", "heldSeconds", "runSeconds")]
        assert sum(parts) == round(end["jctSeconds"] * 1000), name
        if name not in busy.fails:
            assert {row["state"] for row in stages_of(end).values()} == {"Succeeded"}
            assert {one for of, one in starts.jobs if of == name} == busy.stages[name]
    assert set(starts.jobs.values()) == {1}, "a stage was started twice"
    assert set(starts.pods.values()) == {1}, "a task was started twice"
    assert all(count <= busy.allowed[pool] for pool, count in starts.most.items()), starts.most
    assert starts.most.keys() == POOLS.keys()
