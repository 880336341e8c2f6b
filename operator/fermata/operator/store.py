"""The operator's picture of the cluster: plain dicts, fed by events, asked by pool.

Level-based: whatever order events come in, the newest version of each object stays. Every change marks its pool, and
the workflow it belongs to, as changed, so that a reconciliation costs what changed. No asyncio, no API.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

from fermata.operator import facts, names
from fermata.operator.facts import JobFact, NamespaceFact, PoolFact, WorkflowFact, is_later
from fermata.operator.pods import Place, PodFact, job_of, pod_fact
from fermata.operator.turns import Turns

Kind = Literal["workflows", "executorpools", "jobs", "pods", "namespaces"]
Raw = Mapping[str, Any]
_REMEMBERED_GONE = 5000

log = logging.getLogger(__name__)


def _nobody(_pool: str) -> None:
    """Call nobody."""


class Store:
    """Facts by kind and uid, with the few indexes that a pool needs.

    Args:
        now: the clock, seconds since the epoch.
        changed: called with the name of a pool that has something new.
    """

    def __init__(self, now: Callable[[], float], changed: Callable[[str], None]) -> None:
        self._now, self._changed = now, changed
        self.workflows: dict[str, WorkflowFact] = {}
        self.pools: dict[str, PoolFact] = {}  # by name: cluster-scoped
        self.jobs: dict[str, JobFact] = {}
        self.pods: dict[str, PodFact] = {}
        self.namespaces: dict[str, NamespaceFact] = {}  # by name
        self.pool_workflows: dict[str, dict[str, WorkflowFact]] = defaultdict(dict)
        self.workflow_jobs: dict[str, dict[str, JobFact]] = defaultdict(dict)  # by workflow uid and stage
        self.busy_jobs: dict[str, dict[str, JobFact]] = defaultdict(dict)  # that hold executors, by pool and uid
        self.job_pods: dict[str, dict[str, PodFact]] = defaultdict(dict)
        self._places: dict[str, Counter[Place]] = defaultdict(Counter)  # how many pods of a Job are where
        self.leaving: dict[str, JobFact] = {}  # by uid: deleted before their pods have ended
        self.turns = Turns()
        self._gone: dict[str, str] = {}  # by uid of what went lately, oldest first: the version that it went with
        self.touched: dict[str, set[str]] = defaultdict(set)  # workflow uids that changed, by pool
        self._unknown: set[tuple[str, str]] = set()  # fields of specs of which the log has said so, by kind

    def put(self, kind: Kind, raw: Raw) -> None:
        """Take a version of an object, unless a newer one is known or the object has gone since."""
        meta = raw.get("metadata") or {}
        uid = meta.get("uid", "")
        if uid in self._gone:
            if not is_later(str(meta.get("resourceVersion", "")), self._gone[uid]):
                return
            del self._gone[uid]  # it was not deleted: it lacked the label that it is selected by
        getattr(self, f"_put_{kind}")(raw)

    def put_own(self, kind: Kind, raw: Raw) -> None:
        """Take what the API server answered to a write of our own: its pool knows already, and is not called."""
        changed, self._changed = self._changed, _nobody
        try:
            self.put(kind, raw)
        finally:
            self._changed = changed

    def put_found(self, raw: Raw) -> None:
        """Take a Job that was asked for because no list and no watch shows it.

        How one has ended stays true; it is taken even if it seems to be older than what it went with.
        """
        if facts.job_fact(raw, self._now()).ended:
            self._gone.pop((raw.get("metadata") or {}).get("uid", ""), None)
        self.put_own("jobs", raw)

    def remove(self, kind: Kind, uid: str, name: str = "", version: str = "") -> None:
        """Forget an object; an answer to a write that comes later does not bring it back.

        `version` is the one that it went with: only what is later than that brings it back. Empty: nothing does.
        """
        if uid:
            self._gone[uid] = version
            if len(self._gone) > _REMEMBERED_GONE:
                del self._gone[next(iter(self._gone))]
        getattr(self, f"_remove_{kind}")(uid, name)

    def put_all(self, kind: Kind, raws: Iterable[Raw]) -> set[str]:
        """Take a part of a list, and return by what its objects are known."""
        listed: set[str] = set()
        for raw in raws:
            meta = raw.get("metadata") or {}
            listed.add(meta.get("name", "") if kind in ("executorpools", "namespaces") else meta.get("uid", ""))
            self.put(kind, raw)
        return listed

    def retain(self, kind: Kind, listed: Collection[str], version: str) -> None:
        """Forget what a complete list lacks, unless it is newer than the list (`version`)."""
        for key, fact in list(getattr(self, {"executorpools": "pools"}.get(kind, kind)).items()):
            if key in listed or is_later(fact.meta.resource_version, version):
                continue
            if kind == "pods":  # it may have ended long ago
                self._end_pod(fact.meta.uid, succeeded=False)
            self.remove(kind, fact.meta.uid, fact.meta.name, version)

    def knows(self, pool: str) -> bool:
        """Tell whether there is a pool of that name, or anything that names it."""
        named = self.pool_workflows[pool] or self.busy_jobs[pool] or any(self.pool_leaving(pool))
        return pool in self.pools or bool(named)

    def forget(self, pool: str) -> None:
        """Drop the indexes of a pool of which nothing is known: anybody may make up names of pools."""
        for index in (self.pool_workflows, self.busy_jobs, self.touched):
            index.pop(pool, None)

    def pool_leaving(self, pool: str) -> Iterator[tuple[JobFact, int]]:
        """Yield the Jobs of a pool that were deleted before their pods, each with how many of these have not ended."""
        return ((job, self._places[uid][Place.BEGUN]) for uid, job in self.leaving.items() if job.pool == pool)

    def give_turns(self, uid: str, tasks: int) -> None:
        """Give a gated Job so many more turns, or take some back: its pool decides that, and is not called."""
        self.turns.give(uid, tasks)
        changed, self._changed = self._changed, _nobody
        try:
            self._count_turns(uid)
        finally:
            self._changed = changed

    def owed_turns(self, pool: str) -> Iterator[JobFact]:
        """Yield the Jobs of a pool of which pods are to be let through their gates, be they made yet or not."""
        jobs = (self.jobs.get(uid) for uid in self.turns)
        return (job for job in jobs if job is not None and job.pool == pool)

    def due_turns(self, pool: str) -> Iterator[tuple[JobFact, PodFact]]:
        """Yield the pods of a pool that are to be let through their gates, each with its Job."""
        for job in self.owed_turns(pool):
            pods = self.job_pods.get(job.meta.uid, {}).values()
            yield from ((job, pod) for pod in self.turns.due(job.meta.uid, pods))

    def _mark(self, pool: str, uid: str) -> None:
        self.touched[pool].add(uid)
        self._changed(pool)

    def _put_workflows(self, raw: Raw) -> None:
        uid = (raw.get("metadata") or {}).get("uid", "")
        before = self.workflows.get(uid)
        fact = facts.workflow_fact(raw, self._now(), before)
        if before and not fact.meta.is_newer_than(before.meta):
            return
        if before and before.pool != fact.pool:
            self.pool_workflows[before.pool].pop(uid, None)
        self._tell_unknown(names.WORKFLOW, fact.unknown)
        self.workflows[uid] = self.pool_workflows[fact.pool][uid] = fact
        if fact.finished:
            for job in [job for job in self.workflow_jobs.get(uid, {}).values() if not job.occupied]:
                self._remove_jobs(job.meta.uid, "")
                self._forget_job(job)
        self._mark(fact.pool, uid)

    def _remove_workflows(self, uid: str, _name: str) -> None:
        fact = self.workflows.pop(uid, None)
        if fact:
            self.pool_workflows[fact.pool].pop(uid, None)
            for job in list(self.workflow_jobs.get(uid, {}).values()):
                if job.meta.uid not in self.jobs:
                    self._forget_job(job)
                elif job.owed:  # its pods stay at their gates until they are deleted, too
                    self.give_turns(job.meta.uid, -job.owed)
            self._mark(fact.pool, uid)

    def _put_executorpools(self, raw: Raw) -> None:
        fact = facts.pool_fact(raw)
        before = self.pools.get(fact.meta.name)
        if before and not fact.meta.is_newer_than(before.meta):
            return
        self._tell_unknown(names.POOL, fact.unknown)
        self.pools[fact.meta.name] = fact
        same = before is not None and (before.meta.generation, before.meta.uid) == (fact.meta.generation, fact.meta.uid)
        # New CRDs may change what an API server fills in, and with that whether it can be read.
        if before is None or not same or before.problem != fact.problem:
            self._touch_all(fact.meta.name)
        elif before.released != fact.released or (before.status.conditions and not fact.status.conditions):
            self._changed(fact.meta.name)  # also where somebody has taken its status away

    def _remove_executorpools(self, uid: str, name: str) -> None:
        known = self.pools.get(name)
        if known and known.meta.uid == uid:  # or it has been made again under its name
            del self.pools[name]
            self._touch_all(name)

    def _tell_unknown(self, kind: str, fields: Iterable[str]) -> None:
        """Say once of each field that this operator does not know that nothing comes of it."""
        for field in fields:
            if (kind, field) not in self._unknown:
                self._unknown.add((kind, field))
                log.warning("%s: %s: unknown to this operator, and ignored; are the CRDs newer than it?", kind, field)

    def _touch_all(self, pool: str) -> None:
        """A pool's spec changed: every workflow of it may be judged differently now."""
        self.touched[pool].update(uid for uid, workflow in self.pool_workflows[pool].items() if not workflow.finished)
        self._changed(pool)

    def _put_jobs(self, raw: Raw) -> None:
        uid = (raw.get("metadata") or {}).get("uid", "")
        before = self.jobs.get(uid)
        fact = facts.job_fact(raw, self._now(), before)
        if before and not fact.meta.is_newer_than(before.meta):
            return
        owner = self.workflows.get(fact.meta.owner_uid)
        self.leaving.pop(uid, None)
        # Without its pool's label it is in no list and no watch, which would never tell what becomes of it.
        if not fact.pool or not fact.genuine or (owner is not None and owner.meta.namespace != fact.meta.namespace):
            return
        if owner is not None and owner.pool != fact.pool:  # the label was changed; a workflow cannot move
            fact = replace(fact, pool=owner.pool)
        fact = self._with_turns(fact)
        if owner is not None and owner.finished and not fact.occupied:
            # Nobody asks for it any more, and finished workflows are many.
            self._remove_jobs(uid, "")
            return
        self._keep_job(fact)

    def _keep_job(self, fact: JobFact) -> None:
        uid = fact.meta.uid
        self.jobs[uid] = fact
        self.workflow_jobs[fact.meta.owner_uid][fact.stage] = fact
        if fact.occupied:
            self.busy_jobs[fact.pool][uid] = fact
        else:
            self.busy_jobs[fact.pool].pop(uid, None)
        self._mark(fact.pool, fact.meta.owner_uid)

    def _with_turns(self, job: JobFact) -> JobFact:
        return self.turns.told(job, self._places.get(job.meta.uid, {}), self._now()) if job.gated else job

    def _count_turns(self, uid: str) -> None:
        """Have a gated Job say anew what its pods do, which may be what its pool waits for."""
        job = self.jobs.get(uid)
        if job is not None and job.gated:
            self._keep_job(self._with_turns(job))

    def _remove_jobs(self, uid: str, _name: str) -> None:
        fact = self.jobs.pop(uid, None)
        if fact is None:
            return
        self.turns.forget(uid)
        self.busy_jobs[fact.pool].pop(uid, None)
        # A deletion takes the Job at once, unless it is asked not to, and its pods when their grace period is over.
        if not fact.outcome and uid in self.job_pods:
            self.leaving[uid] = fact
        owner = self.workflows.get(fact.meta.owner_uid)
        # How a stage ended may be in no status yet when its Job is tidied up.
        if not fact.outcome or owner is None or owner.finished:
            self._forget_job(fact)
        self._mark(fact.pool, fact.meta.owner_uid)

    def _forget_job(self, fact: JobFact) -> None:
        siblings = self.workflow_jobs[fact.meta.owner_uid]
        if siblings.get(fact.stage) is fact:
            del siblings[fact.stage]
        if not siblings:
            del self.workflow_jobs[fact.meta.owner_uid]

    def _put_pods(self, raw: Raw) -> None:
        before = self.pods.get((raw.get("metadata") or {}).get("uid", ""))
        fact = pod_fact(raw, self._now(), before)
        if before and not fact.meta.is_newer_than(before.meta):
            return
        # Only what runs now says when an executor will be free; the rest would only cost memory.
        if not fact.running:
            self._end_pod(fact.meta.uid, succeeded=fact.succeeded)
            if before is not None:  # nor does an answer bring it back that says how it was
                self.remove("pods", fact.meta.uid)
            return
        self.pods[fact.meta.uid] = fact
        job = fact.meta.owner_uid
        self.job_pods[job][fact.meta.uid] = fact
        self._places[job][fact.place] += 1
        if before is not None:
            self._places[job][before.place] -= 1
            if before.gated and not fact.gated:
                self.turns.passed(job)
        self._count_turns(job)
        # Of a Job that nobody shows, as it went before a watch told of its pods, or before this operator began to look.
        ends = fact.meta.deleting or job in self._gone
        if ends and job and job not in self.jobs and job not in self.leaving:
            self.leaving[job] = job_of(fact, self._now())
            self._changed(self.leaving[job].pool)

    def _remove_pods(self, uid: str, _name: str) -> None:
        fact = self.pods.get(uid)
        # What succeeds leaves the selection of the watch as it ran; what is deleted or evicted says so before.
        self._end_pod(uid, succeeded=fact is not None and not fact.meta.deleting)

    def _end_pod(self, uid: str, *, succeeded: bool) -> None:
        fact = self.pods.pop(uid, None)
        if fact is None:
            return
        job = self.jobs.get(fact.meta.owner_uid)
        if succeeded and job is not None and job.gated and not fact.gated and fact.start_s is not None:
            self.turns.succeeded(job.meta.uid, self._now() - fact.start_s)
        siblings = self.job_pods[fact.meta.owner_uid]
        siblings.pop(uid, None)
        self._places[fact.meta.owner_uid][fact.place] -= 1
        leaving = self.leaving.get(fact.meta.owner_uid)
        if not siblings:
            del self.job_pods[fact.meta.owner_uid], self._places[fact.meta.owner_uid]
            self.leaving.pop(fact.meta.owner_uid, None)
        if leaving is not None:
            self._changed(leaving.pool)
        self._count_turns(fact.meta.owner_uid)

    def _put_namespaces(self, raw: Raw) -> None:
        fact = NamespaceFact(facts.meta_of(raw))
        before = self.namespaces.get(fact.meta.name)
        if before and not fact.meta.is_newer_than(before.meta):
            return
        self.namespaces[fact.meta.name] = fact
        # Workflows come by another watch, and may have been judged by what the namespace was before.
        if before is None or before.meta.deleting != fact.meta.deleting:
            for workflow in self.workflows.values():
                if workflow.meta.namespace == fact.meta.name and not workflow.finished:
                    self._mark(workflow.pool, workflow.meta.uid)
        if before is None or before.meta.labels != fact.meta.labels:
            for pool, known in self.pools.items():
                if known.spec and known.spec.namespace_selector:
                    self._touch_all(pool)

    def _remove_namespaces(self, uid: str, name: str) -> None:
        known = self.namespaces.get(name)
        if known and known.meta.uid == uid:
            del self.namespaces[name]
