"""What the demonstration submits: one stream of workflows, the same for every pool.

The express kind: many pods of half a second, a few of ten, so that one long pod in the way costs the short ones a lot.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from fermata.policy.errors import InputError

Manifest = dict[str, Any]

SHORT_S, LONG_S = 0.5, 10.0
LONG_SHARE = 0.1
_DAG_AT = 0.1  # of the stream's span
# Less than a second cannot be said in a specification, so the operator learns how long a short one is from the first.
_FIRST_ALONE_S = 1.0


@dataclass(frozen=True, slots=True)
class Submission:
    """One workflow for one pool."""

    at_s: float  # after the start of the stream
    pool: str
    key: str  # names the workflow in every pool, to pair them
    manifest: Manifest

    @property
    def name(self) -> str:
        """Name of the object."""
        return str(self.manifest["metadata"]["name"])

    @property
    def work_s(self) -> float:
        """Executor-seconds that it is meant to take."""
        work_s = 0.0
        for stage in self.manifest["spec"]["stages"]:
            task_s = float(stage["template"]["metadata"]["annotations"]["fermata.dev/sim-seconds"])
            work_s += int(stage.get("tasks", 1)) * task_s
        return work_s


@dataclass(frozen=True, slots=True)
class Stream:
    """Everything that is submitted, in order of time."""

    submissions: tuple[Submission, ...]
    work_s: float  # of one pool, in executor-seconds
    long: int  # long workflows of one pool

    @property
    def span_s(self) -> float:
        """When the last workflow is submitted."""
        return self.submissions[-1].at_s


def express(pools: dict[str, int], workflows: int, load: float, seed: int, dag: Manifest) -> Stream:
    """Return a stream of the express kind, and one DAG early on, for every pool.

    Arrivals are a Poisson process given how many there are, after one short workflow from which the length of short
    ones is learned; one in ten of the workflows is long, in random order.

    Args:
        pools: name -> executors, the same number in all.
        workflows: single-stage workflows for each pool, at least 2.
        load: their work over what the executors could do while they arrive, above 0.
        seed: of times and order.
        dag: manifest of a Workflow that each pool gets as well; its work is not part of the load.

    Raises:
        InputError: pools of different sizes.
    """
    sizes = set(pools.values())
    if len(sizes) != 1:
        raise InputError(f"expected pools of one size, to compare them; got {pools}")
    long = max(round(LONG_SHARE * workflows), 1)
    work_s = long * LONG_S + (workflows - long) * SHORT_S
    span_s = work_s / (load * sizes.pop())
    random = np.random.default_rng(seed)
    times_s = [0.0, *(_FIRST_ALONE_S + np.sort(random.uniform(0.0, span_s, workflows - 1))).tolist()]
    is_long = [False, *(random.permutation(workflows - 1) < long).tolist()]
    jobs = [
        (at_s, f"{'long' if slow else 'short'}-{number:03d}", _pod_workflow(LONG_S if slow else SHORT_S))
        for number, (at_s, slow) in enumerate(zip(times_s, is_long, strict=True), 1)
    ]
    jobs.append((_FIRST_ALONE_S + _DAG_AT * span_s, str(dag["metadata"]["name"]), dag))
    jobs.sort(key=lambda job: job[0])
    made = [
        Submission(at_s, pool, key, _for_pool(manifest, pool, f"{pool}-{key}"))
        for at_s, key, manifest in jobs
        for pool in pools
    ]
    return Stream(tuple(made), work_s, long)


def _pod_workflow(seconds: float) -> Manifest:
    """Return a workflow of one pod that takes so long, on a simulated executor or on a real one."""
    stage: Manifest = {
        "name": "main",
        "template": {
            "metadata": {"annotations": {"fermata.dev/sim-seconds": f"{seconds:g}"}},
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "main", "image": "busybox:1.37", "command": ["sleep", f"{seconds:g}"]}],
            },
        },
    }
    if seconds >= 1.0:
        stage["estimateSeconds"] = round(seconds)
    return {
        "apiVersion": "fermata.dev/v1alpha1",
        "kind": "Workflow",
        "metadata": {},
        "spec": {"stages": [stage]},
    }


def _for_pool(manifest: Manifest, pool: str, name: str) -> Manifest:
    made = copy.deepcopy(manifest)
    made["metadata"]["name"], made["spec"]["poolName"] = name, pool
    return made
