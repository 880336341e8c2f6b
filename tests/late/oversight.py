"""What an operator must never ask for, whatever it has been told late: held against what truly runs."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.late.operator import LateOperator
from tests.late.server import Server, conditions, owner_of

from fermata.operator import names
from fermata.operator.facts import WorkflowFact
from fermata.operator.times import parse

Raw = dict[str, Any]


class Oversight:
    """Limits are those that the operator has been told; what they limit is what there is.

    Args:
        server: with what there is.
        operator: with what it was told.
    """

    def __init__(self, server: Server, operator: LateOperator) -> None:
        self.server, self.operator = server, operator
        self.made: set[tuple[str, str]] = set()  # workflows and stages that have had a Job
        self.ends: dict[str, tuple[float, ...]] = {}  # by uid of workflows: the split of their completion time

    def starts(self, job: Raw) -> None:
        key = owner_of(job), _stage_of(job)
        assert key not in self.made, "a stage was started twice"
        self.made.add(key)
        fact = self._may_go_on(job)
        (row,) = (row for row in fact.spec.stages if row.name == key[1])
        for parent in row.depends_on:
            above = self.server.named("jobs", fact.meta.namespace, names.job_name(fact.meta.name, key[0], parent))
            if above is None and key[0] not in self.server.objects["workflows"]:
                continue  # it went with its Workflow a moment ago, of which no watch has told yet
            assert above is not None, "before its parents"
            assert above["status"].get("succeeded") == above["spec"]["completions"], "before its parents have ended"
        self._has_room(job, fact, 0 if _is_gated(job) else job["spec"]["parallelism"])

    def patches(self, job: Raw, spec: Raw) -> None:
        ended = {"Complete", "Failed"} & set(conditions(job))
        if "parallelism" not in spec or ended or job["spec"].get("suspend") or _is_leaving(job):
            return
        fact = self._may_go_on(job)
        wider = {**job, "spec": {**job["spec"], **spec}}
        self._has_room(job, fact, max(self._takes(wider) - self._takes(job), 0))

    def lets_through(self, pod: Raw) -> None:
        job = self.server.objects["jobs"].get(owner_of(pod))
        if job is not None and not _is_leaving(job):
            self._has_room(job, self._may_go_on(job), 0 if self._is_asked_again(job) else 1)

    def tells(self, workflow: Raw) -> None:
        status = workflow["status"]
        if not status.get("completionTime"):
            return
        split = tuple(status[f"{part}Seconds"] for part in ("wait", "held", "run"))
        assert min(split) >= 0.0
        assert sum(split) == pytest.approx(status["jctSeconds"], abs=1e-5)
        jct_s = parse(status["completionTime"]) - parse(status["arrivalTime"])
        assert status["jctSeconds"] == pytest.approx(jct_s, abs=1e-3)
        assert self.ends.setdefault(workflow["metadata"]["uid"], split) == split, "an end is told once"

    def _is_asked_again(self, job: Raw) -> bool:
        """Whether an answer was lost: nobody knows whether a pod was let through, and that is asked until it is."""
        reconciler = self.operator.reconcilers[_pool_of(job)]
        return (owner_of(job), _stage_of(job)) in reconciler._applier.gates.failures

    def _may_go_on(self, job: Raw) -> WorkflowFact:
        """Assert that something of a workflow may begin, by what the operator knows of it and of its pool."""
        store, now_s = self.operator.store, self.server.timeline.now_s
        fact, pool = store.workflows[owner_of(job)], store.pools.get(_pool_of(job))
        assert pool is not None, "without a pool"
        assert pool.spec is not None, "in a pool that has no sound spec"
        assert not fact.meta.deleting, "while it is deleted"
        assert not fact.finished, "after its end"
        assert not fact.spec.suspend, "while it is suspended"
        assert now_s <= fact.arrival_s + (fact.spec.active_deadline_seconds or math.inf) + 0.001, "after its deadline"
        if selector := pool.spec.namespace_selector:
            namespace = store.namespaces.get(fact.meta.namespace)
            assert namespace is not None, "from a namespace that is not known"
            assert selector.selects(dict(namespace.meta.labels)), "from a namespace that the pool does not take"
        return fact

    def _has_room(self, job: Raw, fact: WorkflowFact, tasks: int) -> None:
        """Assert that so many more tasks of a Job fit into its pool and its workflow."""
        if not tasks:
            return
        pool = self.operator.store.pools[_pool_of(job)]
        assert pool.spec is not None
        assert self._used(_pool_of(job)) + tasks * _slots(job) <= pool.spec.executors, "more than there are executors"
        siblings = sum(map(self._takes, self.server.owned("jobs", fact.meta.uid)))
        assert siblings + tasks <= (fact.spec.parallelism or math.inf), "more than the workflow may have"

    def _used(self, pool: str) -> int:
        jobs = self.server.objects["jobs"]
        used = sum(self._takes(job) * _slots(job) for job in jobs.values() if _pool_of(job) == pool)
        left = [pod for pod in self.server.objects["pods"].values() if owner_of(pod) not in jobs]
        # Of a pod that was made a moment before its Job was deleted nobody can know until a watch tells of it.
        left = [pod for pod in left if self.server.has_told("pods", pod["metadata"]["uid"])]
        return used + sum(_slots(pod) for pod in left if _pool_of(pod) == pool and _holds(pod))

    def _takes(self, job: Raw) -> int:
        """How many tasks of a Job hold executors, or will without being asked again."""
        if {"Complete", "Failed"} & set(conditions(job)):
            return 0
        begun = sum(map(_holds, self.server.owned("pods", job["metadata"]["uid"])))
        if _is_gated(job) or _is_leaving(job) or job["spec"].get("suspend") or "FailureTarget" in set(conditions(job)):
            return begun
        left = job["spec"]["completions"] - job["status"].get("succeeded", 0)
        return max(begun, min(int(job["spec"]["parallelism"]), left))


def _is_gated(job: Raw) -> bool:
    return bool(job["spec"]["template"]["spec"].get("schedulingGates"))


def _is_leaving(job: Raw) -> bool:
    return bool(job["metadata"].get("deletionTimestamp"))


def _holds(pod: Raw) -> bool:
    return pod["status"]["phase"] in ("Pending", "Running") and not pod["spec"].get("schedulingGates")


def _stage_of(raw: Raw) -> str:
    return str(raw["metadata"]["labels"][names.LABEL_STAGE])


def _pool_of(raw: Raw) -> str:
    return str(raw["metadata"]["labels"][names.LABEL_POOL])


def _slots(raw: Raw) -> int:
    return int(raw["metadata"]["annotations"][names.ANNOTATION_SLOTS])
