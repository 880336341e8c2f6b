"""One look at one Job: count the pods that ended, judge, make or stop pods, and write the status if it changed.

One that is being deleted is counted and judged as any other: a finalizer may keep it for long. Only what its spec asks
for is not done any more: no pod is made, and none is stopped for its parallelism or because it is suspended.

Source: `syncJob` of Kubernetes' Job controller, which then leaves out `manageJob`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from fermata.sim.kube.clock import age_s, now, parse, stamp
from fermata.sim.kube.controllers.indexes import format_indexes, parse_indexes
from fermata.sim.kube.controllers.job_views import PodView, job_path
from fermata.sim.kube.controllers.pods import new_pod
from fermata.sim.kube.controllers.work import reference
from fermata.sim.kube.failure_policy import Judgement, judge
from fermata.sim.kube.success_policy import rule_met

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fermata.sim.kube.controllers.jobs import JobController
    from fermata.sim.kube.resources import Obj

_LONGEST_BACKOFF_S = 600.0
#: How many pods one look at a Job makes at most, so that a huge Job does not keep a worker from the others.
_BATCH = 500
_KEPT_ZEROS = ("ready", "terminating", "uncountedTerminatedPods", "failedIndexes")


class JobLook:
    """One look at one Job: count, judge, make or stop pods, write the status if it changed."""

    def __init__(self, controller: JobController, key: str, job: Obj, pods: list[PodView]) -> None:
        self._controller, self._key, self._job, self._pods = controller, key, job, pods
        self._spec: Obj = job["spec"]
        self._status: Obj = orjson.loads(orjson.dumps(job.get("status") or {}))
        self._deleting = bool(job["metadata"].get("deletionTimestamp"))
        self._indexed = self._spec["completionMode"] == "Indexed"
        self._completed = self._indexes("completedIndexes")
        self._index_limit: int | None = self._spec.get("backoffLimitPerIndex")
        self._failed = self._indexes("failedIndexes")
        self._counted: list[PodView] = []
        self._resting: list[PodView] = []  # that have failed and stay until the next pod of their index says so
        self._failed_by = ""  # the pod whose failure fails the Job, and why

    def _indexes(self, field: str) -> set[int]:
        """Return what the status says of indexes, but for those that a smaller number of completions has cut off."""
        most = self._spec.get("completions") or 0
        return {index for index in parse_indexes(self._status.get(field) or "") if index < most}

    def _judged(self, pod: PodView) -> Judgement:
        policy = self._spec.get("podFailurePolicy")
        if not policy or not pod.ending:
            return Judgement("Count")
        return judge(policy, orjson.loads(pod.ending), f"{pod.namespace}/{pod.name}")

    async def take(self) -> None:
        """Bring the Job one step on."""
        self._count()
        suspended = bool(self._spec.get("suspend"))
        if not self._deleting:
            self._set_suspended(suspended)
        target = None if suspended else self._verdict()
        active = [pod for pod in self._pods if pod.active]
        if target is not None:
            self._count_failures(self._resting)
            self._add_condition(*target)
            await self._controller.stop(self._job, active, counted=target[0] == "FailureTarget")
            self._finish(target)
        elif suspended and not self._deleting:
            await self._controller.stop(self._job, active, counted=False)
        await self._write_status()
        await self._controller.release(self._counted)
        if target is None and not suspended and not self._deleting:
            await self._manage(active)

    # Counting -----------------------------------------------------------------------------------------------------

    def _count(self) -> None:
        """Take finished pods into the status: first by uid, and into the totals once their finalizer is off."""
        status = self._status
        waiting: Obj = status.get("uncountedTerminatedPods") or {}
        status["uncountedTerminatedPods"] = waiting
        tracked = {pod.uid: pod for pod in self._pods if pod.tracked}
        for outcome in ("succeeded", "failed"):
            listed = list(waiting.get(outcome) or [])
            left = [uid for uid in listed if uid in tracked]
            status[outcome] = int(status.get(outcome) or 0) + len(listed) - len(left)
            waiting[outcome] = left
        self._count_successes(pod for pod in tracked.values() if pod.phase == "Succeeded")
        failed = [pod for pod in tracked.values() if pod.phase != "Succeeded" and (pod.finished or pod.deleting)]
        self._fail_indexes(failed)
        self._resting = self._latest_of_resting_indexes(pod for pod in failed if pod.uid not in waiting["failed"])
        staying = {pod.uid for pod in self._resting}
        self._count_failures(pod for pod in failed if pod.uid not in staying)
        status["active"] = sum(pod.active for pod in self._pods)
        status["ready"] = sum(pod.active and pod.ready for pod in self._pods)
        status["terminating"] = sum(pod.deleting and not pod.finished for pod in self._pods)

    def _count_successes(self, pods: Iterable[PodView]) -> None:
        for pod in pods:
            if not self._indexed:
                self._count_once("succeeded", pod)
            elif pod.index is not None and pod.index < self._spec["completions"]:
                self._completed.add(pod.index)
            self._counted.append(pod)
        if self._indexed:
            self._status["completedIndexes"] = format_indexes(self._completed)
            self._status["succeeded"] = len(self._completed)

    def _count_failures(self, pods: Iterable[PodView]) -> None:
        for pod in pods:
            if self._judged(pod).action != "Ignore":
                self._count_once("failed", pod)
            self._counted.append(pod)

    def _count_once(self, outcome: str, pod: PodView) -> None:
        uids = self._status["uncountedTerminatedPods"][outcome]
        if pod.uid not in uids:
            uids.append(pod.uid)

    def _fail_indexes(self, failed: Iterable[PodView]) -> None:
        """Tell which indexes have failed for good, and whether the Job has."""
        for pod in failed:
            action, message = self._judged(pod)
            if action == "FailJob":
                self._failed_by = self._failed_by or message
            if self._index_limit is None or pod.index is None or action == "Ignore":
                continue
            if action == "FailIndex" or pod.failures >= self._index_limit:
                self._failed.add(pod.index)
        if self._index_limit is not None:
            self._failed -= self._completed
            self._status["failedIndexes"] = format_indexes(self._failed)

    def _latest_of_resting_indexes(self, failed: Iterable[PodView]) -> list[PodView]:
        """Return the latest of the pods of each index that waits for another one.

        How often an index has failed is written on its latest pod alone: whoever deletes that must not undo it.
        """
        if self._index_limit is None or self._deleting:
            return []
        settled = self._completed | self._failed | {pod.index for pod in self._pods if pod.active}
        latest: dict[int, PodView] = {}
        for pod in failed:
            if pod.index is not None and pod.index not in settled:
                latest[pod.index] = max(latest.get(pod.index, pod), pod, key=lambda each: each.failures)
        return list(latest.values())

    def _total(self, outcome: str) -> int:
        waiting = self._status["uncountedTerminatedPods"].get(outcome) or []
        return int(self._status.get(outcome) or 0) + len(waiting)

    # Judging ------------------------------------------------------------------------------------------------------

    def _verdict(self) -> tuple[str, str, str] | None:
        """Return (condition, reason, message) when the Job is decided."""
        for condition in self._status.get("conditions") or []:
            if condition["type"] in ("FailureTarget", "SuccessCriteriaMet") and condition["status"] == "True":
                return condition["type"], condition["reason"], condition["message"]
        limit_s = self._spec.get("activeDeadlineSeconds")
        running_s = age_s(self._status.get("startTime"))
        if self._failed_by:
            return "FailureTarget", "PodFailurePolicy", self._failed_by
        resting = sum(self._judged(pod).action != "Ignore" for pod in self._resting)
        if self._total("failed") + resting > self._spec["backoffLimit"] or self._restarted_too_often():
            return "FailureTarget", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        if limit_s is not None and running_s is not None and running_s >= limit_s:
            return "FailureTarget", "DeadlineExceeded", "Job was active longer than specified deadline"
        wanted, succeeded = self._spec.get("completions"), self._total("succeeded")
        if wanted is None:
            done = succeeded > 0 and self._status["active"] == 0
        else:
            done = succeeded >= wanted
        most = self._spec.get("maxFailedIndexes")
        if most is not None and len(self._failed) > most:
            message = "Job has exceeded the specified maximal number of failed indexes"
            return "FailureTarget", "MaxFailedIndexesExceeded", message
        if self._failed and len(self._failed) + succeeded >= (wanted or 0):
            return "FailureTarget", "FailedIndexes", "Job has failed indexes"
        rule = rule_met(self._spec.get("successPolicy"), self._completed)
        if rule is not None:
            return "SuccessCriteriaMet", "SuccessPolicy", f"Matched rules at index {rule}"
        if done:
            return "SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods"
        if limit_s is not None and running_s is not None:
            self._controller.queue.add_after(self._key, limit_s - running_s)
        return None

    def _restarted_too_often(self) -> bool:
        """Tell whether containers have been started again, in pods that go on, as often as tasks may fail.

        Source: `pastBackoffLimitOnFailure` of Kubernetes' Job controller.
        """
        if self._spec["template"]["spec"].get("restartPolicy") != "OnFailure":
            return False
        restarts = sum(pod.restarts for pod in self._pods if not pod.finished)
        return restarts >= max(int(self._spec["backoffLimit"]), 1)

    def _finish(self, target: tuple[str, str, str]) -> None:
        """Set the final condition once no pod runs and every finished one is in the totals."""
        uncounted = any(self._status["uncountedTerminatedPods"].values())
        unsettled = uncounted or any(not pod.finished for pod in self._pods)
        if unsettled:
            return
        succeeded = target[0] == "SuccessCriteriaMet"
        self._add_condition("Complete" if succeeded else "Failed", *target[1:])
        if succeeded:
            self._status["completionTime"] = stamp()
        recorder = self._controller.recorder
        if succeeded:
            recorder.record(reference(self._job), "Completed", "Job completed")
        else:
            recorder.record(reference(self._job), target[1], target[2], "Warning")

    def _set_suspended(self, suspended: bool) -> None:
        conditions = self._status.get("conditions") or []
        was = any(item["type"] == "Suspended" and item["status"] == "True" for item in conditions)
        if suspended and not was:
            self._status.pop("startTime", None)
            self._add_condition("Suspended", "JobSuspended", "Job suspended")
            self._controller.recorder.record(reference(self._job), "Suspended", "Job suspended")
        elif not suspended and was:
            self._add_condition("Suspended", "JobResumed", "Job resumed", "False")
            self._controller.recorder.record(reference(self._job), "Resumed", "Job resumed")
        if not suspended and not self._status.get("startTime"):
            self._status["startTime"] = stamp()

    def _add_condition(self, type_: str, reason: str, message: str, status: str = "True") -> None:
        conditions: list[Obj] = self._status.setdefault("conditions", [])
        if any(item["type"] == type_ and item["status"] == status for item in conditions):
            return
        self._status["conditions"] = [item for item in conditions if item["type"] != type_]
        self._status["conditions"].append(
            {
                "type": type_,
                "status": status,
                "reason": reason,
                "message": message,
                "lastProbeTime": stamp(),
                "lastTransitionTime": stamp(),
            }
        )

    async def _write_status(self) -> None:
        uncounted = {key: uids for key, uids in self._status["uncountedTerminatedPods"].items() if uids}
        told = {**self._status, "uncountedTerminatedPods": uncounted}
        status = {key: value for key, value in told.items() if value or key in _KEPT_ZEROS}
        if status == self._job.get("status"):
            return
        cleared = {key: None for key in self._job.get("status") or {} if key not in status}
        status["uncountedTerminatedPods"] = {"succeeded": None, "failed": None, **uncounted}
        patch = {"metadata": {"uid": self._job["metadata"]["uid"]}, "status": {**status, **cleared}}
        answer = await self._controller.client.patch(f"{job_path(self._job)}/status", patch)
        self._controller.jobs.note(answer)

    # Pods ---------------------------------------------------------------------------------------------------------

    async def _manage(self, active: list[PodView]) -> None:
        """Make the pods that are missing, or stop those that are too many."""
        parallelism, completions = self._spec["parallelism"], self._spec.get("completions")
        if completions is None:
            wanted = parallelism if self._total("succeeded") == 0 else min(parallelism, len(active))
        else:
            wanted = min(parallelism, completions - self._total("succeeded") - len(self._failed))
        if len(active) > wanted:
            # Pods that have not begun go first.
            excess = sorted(active, key=lambda pod: (pod.ready, pod.phase == "Running", -(pod.index or 0)))
            await self._controller.stop(self._job, excess[: len(active) - wanted], counted=False)
            return
        missing = min(wanted - len(active), _BATCH)
        if missing <= 0:
            return
        failures, resting = self._failures(), set[int]()
        if self._index_limit is not None:
            resting = self._resting_indexes(failures)
        elif (pause_s := self._backoff_left_s(self._total("failed"), self._pods)) > 0:
            self._controller.queue.add_after(self._key, pause_s)
            return
        indexes = self._next_indexes(active, missing, resting)
        await self._controller.write_all(
            self._create(index, 0 if index is None else failures.get(index, 0)) for index in indexes
        )
        if missing == _BATCH:
            self._controller.queue.add(self._key)

    def _failures(self) -> dict[int, int]:
        """Return how often pods of each index have failed, where that is limited."""
        failures: dict[int, int] = {}
        for pod in self._pods if self._index_limit is not None else ():
            if pod.index is not None:
                deleted = pod.deleting and pod.tracked and not pod.finished  # by others: what is stopped here is let go
                counts = (deleted or pod.phase == "Failed") and self._judged(pod).action != "Ignore"
                failures[pod.index] = max(failures.get(pod.index, 0), pod.failures + counts)
        return failures

    def _resting_indexes(self, failures: dict[int, int]) -> set[int]:
        """Return the indexes whose next pod has to wait; as soon as one need not, the Job is looked at again."""
        ended: dict[int, list[PodView]] = {}
        for pod in self._pods:
            if pod.index is not None and pod.index not in self._failed:
                ended.setdefault(pod.index, []).append(pod)
        left_s = {index: self._backoff_left_s(failures[index], pods) for index, pods in ended.items()}
        resting = {index: pause_s for index, pause_s in left_s.items() if pause_s > 0}
        if resting:
            self._controller.queue.add_after(self._key, min(resting.values()))
        return set(resting)

    def _next_indexes(self, active: list[PodView], count: int, resting: set[int]) -> list[int | None]:
        if not self._indexed:
            return [None] * count
        taken = self._completed | self._failed | resting | {pod.index for pod in active if pod.index is not None}
        if self._spec.get("podReplacementPolicy") == "Failed":
            taken |= {pod.index for pod in self._pods if pod.deleting and not pod.finished and pod.index is not None}
        free = (index for index in range(self._spec["completions"]) if index not in taken)
        return [index for index, _ in zip(free, range(count), strict=False)]

    def _backoff_left_s(self, failed: int, pods: Iterable[PodView]) -> float:
        """Return how long to wait before replacing failed pods; where none has failed there is no wait."""
        last = max((pod.finished_at for pod in pods if pod.phase == "Failed"), default="")
        if not failed or not last:
            return 0.0
        pause_s = min(self._controller.backoff_s * 2.0 ** min(failed - 1, 20), _LONGEST_BACKOFF_S)
        return pause_s - (now() - parse(last)).total_seconds()

    async def _create(self, index: int | None, failures: int) -> None:
        controller, namespace = self._controller, self._job["metadata"]["namespace"]
        made = new_pod(self._job, index, failures)
        pod = await controller.client.create(f"/api/v1/namespaces/{namespace}/pods", made)
        controller.pods.note(pod)
        message = f"Created pod: {pod['metadata']['name']}"
        controller.recorder.record(reference(self._job), "SuccessfulCreate", message)
