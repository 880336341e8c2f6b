"""What people do in the middle, on virtual time: at random times a pool and its workflows are edited and deleted."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.operator.objects import T0, stage, workflow
from tests.virtual_cluster import VirtualCluster

from fermata.operator import names

EAGER = ("fifo", "sjf", "srwf")
HOLDING = ("sjf-hold:tau=3,split=4", "sjf-hold:tau=20,split=4", "pair-committed:split=10", "default")
ENOUGH = 6  # executors
Raw = dict[str, Any]
Edit = tuple[float, str, str, Any]  # when, of which object, field, value


class Watched(VirtualCluster):
    """Holds everything that the operator does against what the objects say at that moment."""

    def __init__(self, *args: Any, **pool: Any) -> None:
        self.seen_s, self.ran_s, self.ending = T0, Counter[str](), False
        super().__init__(*args, **pool)

    async def create_job(self, job: Raw) -> Raw:
        assert job["metadata"]["name"] not in {each["metadata"]["name"] for each in self.jobs}, "created once"
        if not _is_gated(job):
            self._has_room(job, job["spec"]["parallelism"])
        self._may_be_as_wide(job, job["spec"]["parallelism"])
        return await super().create_job(job)

    async def patch_job(self, ns: str, name: str, patch: Raw) -> Raw:
        job, cap = self.objects[name], patch["spec"].get("parallelism", 0)
        if cap > job["spec"]["parallelism"]:
            self._may_be_as_wide(job, cap)
            if not _is_gated(job):
                self._has_room(job, min(cap, _left(job)) - self._takes(job))
        return await super().patch_job(ns, name, patch)

    async def patch_pod(self, ns: str, name: str, patch: Raw) -> Raw:
        job = self.objects[self.pods[name]["metadata"]["ownerReferences"][0]["uid"]]
        self._has_room(job, 1)
        self._may_be_as_wide(job, self._takes(job) + 1)
        return await super().patch_pod(ns, name, patch)

    async def patch_workflow_status(self, ns: str, name: str, version: str, status: Raw) -> Raw:
        if status.get("completionTime"):
            wait_s, held_s, run_s = (status[f"{part}Seconds"] for part in ("wait", "held", "run"))
            assert min(wait_s, held_s, run_s) >= 0.0
            assert wait_s + held_s + run_s == pytest.approx(status["jctSeconds"])
            assert run_s == pytest.approx(self.ran_s[name], abs=0.01)
        return await super().patch_workflow_status(ns, name, version, status)

    async def _end_due(self) -> None:
        for name in {self.pods[each]["metadata"]["labels"][names.LABEL_WORKFLOW] for _, each in self.running}:
            self.ran_s[name] += self.now_s - self.seen_s
        self.seen_s, self.ending = self.now_s, True
        await super()._end_due()
        self.ending = False

    async def _settle(self) -> float:
        wake_s, spec = await super()._settle(), self.objects["p"]["spec"]
        # What an annotation says is cut to microseconds: the operator may come back for it.
        if not self.ending and wake_s > self.now_s + 0.001:
            eager = spec.get("mode", "Enforce") != "Enforce" or spec["policy"]["name"] in EAGER
            idle = [row for row, slots in self._waiting() if self._in_use() + slots <= spec["executors"]]
            assert not (eager and idle), "executors are free for it"
            rows = [row for raw in self._workflows() for row in raw["status"]["stages"]]
            assert not (eager and any(row.get("heldSince") for row in rows)), "held by a policy that does not decide"
            assert self.objects["p"]["status"]["busy"] == self._in_use()
        return wake_s

    def _workflows(self) -> list[Raw]:
        return [self.objects[f"uid-{name}"] for name in self.unfinished()]

    def _jobs(self, owner: str = "") -> list[Raw]:
        jobs = [raw for raw in self.objects.values() if raw.get("kind") == "Job"]
        return [job for job in jobs if not owner or job["metadata"]["ownerReferences"][0]["uid"] == owner]

    def _takes(self, job: Raw) -> int:
        """Return how many tasks of a Job hold executors."""
        if not _is_gated(job):
            return 0 if job["spec"].get("suspend") else min(job["spec"]["parallelism"], _left(job))
        return sum(name.startswith(f"{job['metadata']['uid']}-") for _, name in self.running)

    def _in_use(self) -> int:
        return sum(self._takes(job) * _slots(job) for job in self._jobs())

    def _has_room(self, job: Raw, tasks: int) -> None:
        """Assert that so many more tasks of a Job may begin."""
        owner = job["metadata"]["ownerReferences"][0]["uid"]
        spec, running = self.objects[owner]["spec"], sum(self._takes(each) for each in self._jobs(owner))
        assert self._in_use() + tasks * _slots(job) <= self.objects["p"]["spec"]["executors"]
        assert running + tasks <= (spec.get("parallelism") or math.inf)
        assert not spec.get("suspend")

    def _may_be_as_wide(self, job: Raw, cap: int) -> None:
        stages = self.objects[job["metadata"]["ownerReferences"][0]["uid"]]["spec"]["stages"]
        (row,) = (row for row in stages if row["name"] == job["metadata"]["labels"][names.LABEL_STAGE])
        assert cap <= min(row.get("parallelism") or math.inf, job["spec"]["completions"])

    def _waiting(self) -> Iterator[tuple[Raw, int]]:
        """Yield the stages that could be given executors, and how many a task of each takes."""
        for raw in self._workflows():
            spec, uid, room = raw["spec"], raw["metadata"]["uid"], raw["spec"].get("parallelism") or math.inf
            jobs = {job["metadata"]["labels"][names.LABEL_STAGE]: job for job in self._jobs(uid)}
            accepted = next(row["status"] for row in raw["status"]["conditions"] if row["type"] == "Accepted")
            if spec.get("suspend") or accepted != "True" or sum(map(self._takes, jobs.values())) >= room:
                continue
            done = {name for name, job in jobs.items() if not _left(job)}
            for row in spec["stages"]:
                job = jobs.get(row["name"])
                if job is None and done.issuperset(row["dependsOn"]):
                    yield row, row["slots"]
                elif job is not None and self._takes(job) < min(row.get("parallelism") or math.inf, _left(job)):
                    yield row, _slots(job)


def _left(job: Raw) -> int:
    return int(job["spec"]["completions"]) - int(job.get("status", {}).get("succeeded", 0))


def _slots(job: Raw) -> int:
    return int(job["metadata"]["annotations"][names.ANNOTATION_SLOTS])


def _is_gated(job: Raw) -> bool:
    return bool(job["spec"]["template"]["spec"].get("schedulingGates"))


CAPS = st.sampled_from([2, 1, 3, None])
OF_POOL = st.one_of(
    st.tuples(st.just("executors"), st.integers(1, 5)),
    st.tuples(st.just("giveBack"), st.sampled_from(["Stage", "Task"])),
    st.tuples(st.just("policy"), st.sampled_from([*EAGER, *HOLDING]).map(lambda name: {"name": name})),
    st.tuples(st.just("mode"), st.sampled_from(["Enforce", "Shadow", "Off"])),
    st.tuples(st.sampled_from(["maxHoldSeconds", "maxWaitSeconds"]), st.sampled_from([0, 5, None])),
    st.tuples(st.just("restart"), st.none()),
)
OF_WORKFLOW = st.one_of(
    st.tuples(st.just("suspend"), st.just(True)),
    st.tuples(st.just("suspend"), st.just(False)),
    st.tuples(st.just("priority"), st.sampled_from([-100, 0, 100])),
    st.tuples(st.just("parallelism"), CAPS),
    st.tuples(st.sampled_from(["a", "b"]), CAPS),  # parallelism of that stage
    st.tuples(st.just("delete"), st.none()),
)


@st.composite
def edits(draw: st.DrawFn, workflows: int) -> list[Edit]:
    made: list[Edit] = []
    for number in range(draw(st.integers(2, 9))):
        at_s = T0 + draw(st.integers(0, 60)) + (number + 1) / 103
        if draw(st.booleans()):
            made.append((at_s, "p", *draw(OF_POOL)))
        else:
            made.append((at_s, f"uid-j{draw(st.integers(0, workflows - 1))}", *draw(OF_WORKFLOW)))
    return made


def _carry_out(cluster: Watched, uid: str, field: str, value: Any) -> None:
    """Do what an edit says."""
    if field == "restart":
        cluster.restart()
    elif field == "delete":
        cluster.delete(uid)
    elif field in ("a", "b") and uid in cluster.objects:
        rows = cluster.objects[uid]["spec"]["stages"]
        cluster.edit(uid, stages=[row | {"parallelism": value} if row["name"] == field else row for row in rows])
    elif field not in ("a", "b"):
        cluster.edit(uid, **{field: value})


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), workflows=st.integers(2, 5), slow=st.booleans())
def test_whatever_people_edit_in_the_middle_nothing_is_started_beyond_it_and_all_ends(
    data: st.DataObject, workflows: int, slow: bool
) -> None:
    draw, arrivals, took_s = data.draw, [], {}
    for number in range(workflows):
        at_s, rows = draw(st.integers(0, 30)) + (number + 1) / 97, []
        for index, name in enumerate("ab"):
            seconds, above = draw(st.integers(1, 30)), ["a"] if index and draw(st.booleans()) else []
            took_s[f"j{number}", name] = seconds + math.sqrt(2 + 2 * number + index) / 1009
            fields = {"tasks": draw(st.integers(1, 5)), "slots": draw(st.integers(1, 2)), "estimateSeconds": seconds}
            rows.append(stage(name, *above, parallelism=draw(CAPS), **fields))
        made = workflow(f"j{number}", *rows, arrival_s=T0 + math.floor(at_s), parallelism=draw(CAPS))
        arrivals.append((T0 + at_s, {**made, "status": {}}))
    policy = draw(st.sampled_from([*EAGER, *HOLDING]))
    pool = {
        "executors": 3,
        "policy": {"name": policy},
        "decisionDeadlineSeconds": 60,
        "giveBack": draw(st.sampled_from(["Task", "Stage"])),
    }
    cluster = Watched(T0, took_s, slow=slow, **pool)
    last = [(500.0, "p", "executors", ENOUGH), *((501.0, f"uid-j{n}", "suspend", False) for n in range(workflows))]
    done = draw(edits(workflows)) + [(T0 + at_s, *rest) for at_s, *rest in last]
    asyncio.run(cluster.run(arrivals, edits=[(at_s, partial(_carry_out, cluster, *rest)) for at_s, *rest in done]))
