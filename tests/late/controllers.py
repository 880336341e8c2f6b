"""What acts in a cluster beside the operator, on virtual time: Job controller, kubelet and garbage collector."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.late.server import Change, Server, conditions, owner_of

from fermata.operator import names
from fermata.operator.store import Kind
from fermata.operator.times import parse

Raw = dict[str, Any]
_BACKOFF_S = 2.0  # after a pod has failed
_UNFINISHED = ("Pending", "Running")


class Controllers:
    """They hear of every change, and act a little later.

    Args:
        server: where they look and write.
        duration_s: of a task, by namespace, workflow and stage.
        fails: how many tasks fail before others do their work, by the same.
    """

    def __init__(
        self, server: Server, duration_s: dict[tuple[str, str, str], float], fails: Counter[tuple[str, str, str]]
    ) -> None:
        self.server, self.timeline, self.rng = server, server.timeline, server.rng
        self.duration_s, self.fails = duration_s, fails
        self._counted: set[str] = set()  # uids of pods
        self._rests_s: dict[str, float] = {}  # by uid of Jobs: until when they make no pods
        server.heard.append(self._hear)

    def delete_workflow(self, uid: str, *, foreground: bool) -> None:
        """Delete a workflow as kubectl does, with what it owns: in the background, or waiting for that."""
        if foreground:
            self.server.change("workflows", uid, metadata={"deletionTimestamp": self.timeline.stamp()})
            for job in self.server.owned("jobs", uid):
                self._soon(partial(self._delete_job, job["metadata"]["uid"], foreground=True))
            self._soon(partial(self._finish_deletion, uid))
        else:
            self.server.remove("workflows", uid)

    def pods_of(self, job: str) -> list[Raw]:
        """Return the pods of a Job that have not ended."""
        return [pod for pod in self.server.owned("pods", job) if pod["status"]["phase"] in _UNFINISHED]

    def _hear(self, kind: Kind, change: Change, raw: Raw) -> None:
        uid, owner = raw["metadata"]["uid"], owner_of(raw)
        if kind == "workflows" and change == "DELETED":
            for job in self.server.owned("jobs", uid):
                self._soon(partial(self._delete_job, job["metadata"]["uid"], foreground=False))
        elif kind == "jobs" and change == "DELETED":
            for pod in self.server.owned("pods", uid):
                self._delete_pod(pod)
            self.timeline.after(0.0, partial(self._finish_deletion, owner))
        elif kind == "jobs":
            above = self.server.objects["workflows"].get(owner)
            if above is None:
                self._soon(partial(self._delete_job, uid, foreground=False))
            elif change == "ADDED" and above["metadata"].get("deletionTimestamp"):
                self._soon(partial(self._delete_job, uid, foreground=True))
            else:
                self._soon(partial(self._sync, uid))
        elif kind == "pods" and change != "DELETED" and _may_run(raw):
            self.timeline.after(0.0, partial(self._run, uid))
        elif kind == "pods":
            self._soon(partial(self._sync, owner))

    def _soon(self, what: Callable[[], object]) -> None:
        self.timeline.after(self.rng.random() * 0.3 if self.server.late else 0.0, what)

    # Kubelet

    def _run(self, uid: str) -> None:
        pod = self.server.objects["pods"].get(uid)
        if pod is None or not _may_run(pod):
            return
        self.server.change("pods", uid, status={"phase": "Running", "startTime": self.timeline.stamp()})
        took_s = self.duration_s[_stage_of(pod)] * (1.0 + 0.1 * int(_index(pod)))
        self.timeline.after(took_s, partial(self._end, uid, deleted=False))

    def _end(self, uid: str, *, deleted: bool) -> None:
        """End a pod that has not ended, well or badly, and tidy it up if nobody will ask for it."""
        pod = self.server.objects["pods"].get(uid)
        if pod is None or pod["status"]["phase"] not in _UNFINISHED:
            return
        fails = deleted or bool(pod["metadata"].get("deletionTimestamp"))
        if not fails and self.fails[_stage_of(pod)] > 0:
            self.fails[_stage_of(pod)] -= 1
            fails = True
        self.server.change("pods", uid, status={"phase": "Failed" if fails else "Succeeded"})
        if pod["metadata"].get("deletionTimestamp") or owner_of(pod) not in self.server.objects["jobs"]:
            self.server.remove("pods", uid)

    def _delete_pod(self, pod: Raw) -> None:
        """Delete a pod, which has its grace period if it runs."""
        uid = pod["metadata"]["uid"]
        if pod["status"]["phase"] not in _UNFINISHED:
            self.server.remove("pods", uid)
        elif not pod["metadata"].get("deletionTimestamp"):
            self.server.change("pods", uid, metadata={"deletionTimestamp": self.timeline.stamp()})
            grace_s = 0.0 if pod["status"]["phase"] == "Pending" else self.rng.random() * self.rng.choice([0.2, 3.0])
            self.timeline.after(grace_s, partial(self._end, uid, deleted=True))

    # Garbage collector

    def _delete_job(self, uid: str, *, foreground: bool) -> None:
        if uid not in self.server.objects["jobs"]:
            return
        if foreground:
            self.server.change("jobs", uid, metadata={"deletionTimestamp": self.timeline.stamp()})
        else:
            self.server.remove("jobs", uid)

    def _finish_deletion(self, workflow: str) -> None:
        raw = self.server.objects["workflows"].get(workflow)
        if raw and raw["metadata"].get("deletionTimestamp") and not self.server.owned("jobs", workflow):
            self.server.remove("workflows", workflow)

    # Job controller

    def _sync(self, uid: str) -> None:
        """Bring a Job's pods and status up to date."""
        job = self.server.objects["jobs"].get(uid)
        if job is not None and job["metadata"].get("deletionTimestamp"):
            self._finish_job(uid)
        elif job is not None and not {"Complete", "Failed"} & set(conditions(job)):
            self._go_on(job)

    def _finish_job(self, uid: str) -> None:
        """Take the pods of a Job that is being deleted away, and when they are gone the Job."""
        for pod in self.server.owned("pods", uid):
            self._delete_pod(pod)
        if uid in self.server.objects["jobs"] and not self.server.owned("pods", uid):
            self.server.remove("jobs", uid)

    def _go_on(self, job: Raw) -> None:
        uid = job["metadata"]["uid"]
        status = copy.deepcopy(job["status"])
        status.setdefault("conditions", [])
        self._count(uid, status)
        self._act(job, status)
        live = self.pods_of(uid)
        active = [pod for pod in live if not pod["metadata"].get("deletionTimestamp")]
        status["active"], status["terminating"] = len(active), len(live) - len(active)
        status["ready"] = sum(not pod["spec"].get("schedulingGates") for pod in active)
        if status != job["status"]:
            self.server.change("jobs", uid, status=status)

    def _count(self, uid: str, status: Raw) -> None:
        """Count the pods that have ended since."""
        for pod in self.server.owned("pods", uid):
            phase, name = pod["status"]["phase"], pod["metadata"]["uid"]
            if phase in _UNFINISHED or name in self._counted:
                continue
            self._counted.add(name)
            status[phase.lower()] = status.get(phase.lower(), 0) + 1
            if phase == "Failed":
                self._rests_s[uid] = self.timeline.now_s + _BACKOFF_S
                self.timeline.after(_BACKOFF_S, partial(self._sync, uid))

    def _act(self, job: Raw, status: Raw) -> None:
        uid, spec = job["metadata"]["uid"], job["spec"]
        why = self._why_it_fails(spec, status)
        if why:
            self._fail(uid, status, why)
        elif status.get("succeeded", 0) >= spec["completions"]:
            self._say(status, "Complete", "CompletionsReached")
        elif spec.get("suspend"):
            for pod in self.pods_of(uid):
                self._delete_pod(pod)
            if all(row["type"] != "Suspended" for row in status["conditions"]):
                self._say(status, "Suspended", "JobSuspended")
        else:
            if "startTime" not in status:
                status["startTime"] = self.timeline.stamp()
                self.timeline.after(spec.get("activeDeadlineSeconds", 0) + 0.01, partial(self._sync, uid))
            if self._rests_s.get(uid, 0.0) <= self.timeline.now_s:
                self._fill(job, status)

    def _why_it_fails(self, spec: Raw, status: Raw) -> str:
        told = next((row["reason"] for row in status["conditions"] if row["type"] == "FailureTarget"), "")
        if not told and status.get("failed", 0) > spec.get("backoffLimit", 0):
            return "BackoffLimitExceeded"
        limit_s = spec.get("activeDeadlineSeconds")
        late = limit_s and "startTime" in status and self.timeline.now_s >= parse(status["startTime"]) + limit_s
        return told or ("DeadlineExceeded" if late else "")

    def _fail(self, uid: str, status: Raw, why: str) -> None:
        """Fail a Job: first its pods end."""
        if all(row["type"] != "FailureTarget" for row in status["conditions"]):
            self._say(status, "FailureTarget", why)
        for pod in self.pods_of(uid):
            self._delete_pod(pod)
        if not self.pods_of(uid):
            self._say(status, "Failed", why)

    def _fill(self, job: Raw, status: Raw) -> None:
        """Make the pods that a Job lacks."""
        meta, spec = job["metadata"], job["spec"]
        live = self.pods_of(meta["uid"])
        done = [pod for pod in self.server.owned("pods", meta["uid"]) if pod["status"]["phase"] == "Succeeded"]
        taken = {_index(pod) for pod in [*live, *done]}
        free = [str(index) for index in range(spec["completions"]) if str(index) not in taken]
        missing = min(spec["parallelism"], spec["completions"] - status.get("succeeded", 0)) - len(live)
        for index in free[: max(missing, 0)]:
            template = copy.deepcopy(spec["template"])
            made = {"namespace": meta["namespace"], "ownerReferences": [{"uid": meta["uid"], "controller": True}]}
            notes = {**template["metadata"]["annotations"], names.ANNOTATION_INDEX: index}
            made |= {"labels": template["metadata"]["labels"], "annotations": notes}
            made["name"] = f"{meta['name']}-{index}-{self.rng.randrange(36**5)}"
            self.server.put("pods", {"metadata": made, "spec": template["spec"], "status": {"phase": "Pending"}})

    def _say(self, status: Raw, condition: str, why: str) -> None:
        row = {"type": condition, "status": "True", "reason": why, "message": why}
        status["conditions"].append({**row, "lastTransitionTime": self.timeline.stamp()})


def _may_run(pod: Raw) -> bool:
    """Whether nothing keeps a pod from a node."""
    held = pod["spec"].get("schedulingGates") or pod["metadata"].get("deletionTimestamp")
    return pod["status"]["phase"] == "Pending" and not held


def _index(pod: Raw) -> str:
    return str(pod["metadata"]["annotations"][names.ANNOTATION_INDEX])


def _stage_of(pod: Raw) -> tuple[str, str, str]:
    labels = pod["metadata"]["labels"]
    return pod["metadata"]["namespace"], labels[names.LABEL_WORKFLOW], labels[names.LABEL_STAGE]
