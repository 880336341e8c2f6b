"""Jobs and Argo Workflows that ran in a cluster without Fermata, as `kubectl get jobs,pods -o json` prints them.

What becomes of it:
- a Job is a job of one stage; each of its pods that succeeded is a task of one slot. It takes what the pod took: from
  when it was on its node (`status.startTime`, images are pulled then) until its last container ended, as Fermata's
  operator counts. An Argo Workflow is a job with a stage for each of its steps (`fermata.sim.importers.argo`);
- it arrives when its object was made, the first at 0;
- its estimates are what Fermata would have known of it (`fermata.sim.importers.runs`);
- skipped: what has not ended, or failed; Jobs that an Argo Workflow or Fermata made, as these are parts of others; and
  Jobs of which pods are missing. With `keep_incomplete` pods that are missing took the mean of the others, or where
  there are none the Job's own time, shared by as many waves as its parallelism makes;
- attempts that failed, priorities, and how many pods of a Job may run at once are left out: a job trace has none.
"""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path

from fermata.sim.importers.argo import argo_run
from fermata.sim.importers.base import DEFAULTS, Imported, ImportOptions, JobSink
from fermata.sim.importers.kubectl import Job, Pod, is_argo, read_objects
from fermata.sim.importers.runs import NO_PODS, RanStage, Run, UnfitError, add_runs, family_of, most_at_once
from fermata.sim.trace_builder import MAX_TASKS, mean_duration_s

_STAGE = "main"  # of a Job, which has but one
_INDEX = "batch.kubernetes.io/job-completion-index"
_OURS = "fermata.dev/"


def read_kubernetes(path: str | Path, options: ImportOptions = DEFAULTS) -> Imported:
    """Read Jobs, Argo Workflows and their pods from what kubectl printed as JSON.

    Args:
        path: a file, possibly `.xz` or `.gz`; `-` for standard input.
        options: see `ImportOptions`; sampling options do not apply.

    Raises:
        InputError: it cannot be read, is not JSON, or holds no Job and no Argo Workflow.
    """
    objects = read_objects(path, options.progress)
    sink = JobSink(path, options)
    pods_of: dict[str, list[Pod]] = defaultdict(list)
    for pod in objects.pods.values():
        for owner in pod.metadata.owner_references or ():
            pods_of[owner.uid].append(pod)
    runs: list[Run] = []
    for job in objects.jobs.values():
        try:
            runs.append(_job_run(job, pods_of[job.metadata.uid], keep=options.keep_incomplete))
        except UnfitError as reason:
            sink.skip(str(reason))
    for workflow in objects.workflows.values():
        try:
            runs.append(argo_run(workflow, pods_of[workflow.metadata.uid], keep=options.keep_incomplete))
        except UnfitError as reason:
            sink.skip(str(reason))
    add_runs(sink, runs, options)
    taken = {run.meta.uid for run in runs}
    spans_s = [pod.span_s for uid in taken for pod in pods_of[uid]]
    return sink.finish(at_once=most_at_once(span_s for span_s in spans_s if span_s is not None) or None)


def _job_run(job: Job, pods: list[Pod], *, keep: bool) -> Run:
    """Return a Job as a run.

    Raises:
        UnfitError: it can be none.
    """
    owner = job.metadata.controller
    if owner is not None and owner.api_version.startswith(_OURS):
        raise UnfitError("a stage of a Workflow of Fermata; `fermata trace export --from-cluster` has those")
    if owner is not None and is_argo(owner):
        raise UnfitError("a Job that an Argo Workflow made")
    if not job.ended:
        raise UnfitError("has not ended")
    if job.phase == "Failed":
        raise UnfitError("failed")
    tasks = job.status.succeeded or 0
    if not 1 <= tasks <= MAX_TASKS:
        raise UnfitError("no pod of it succeeded")
    spans_s = _spans_s(pods)[:tasks]
    durations_s = [end_s - start_s for start_s, end_s in spans_s]
    if len(durations_s) < tasks:
        if not keep:
            raise UnfitError(NO_PODS)
        durations_s += [_missing_s(job, tasks, durations_s)] * (tasks - len(durations_s))
    end_s = job.status.completion_time.timestamp() if job.status.completion_time else spans_s[-1][1]
    maker = owner.name if owner is not None else None
    return Run(job.metadata, family_of(job.metadata, maker), [RanStage(_STAGE, _STAGE, durations_s, (), end_s)])


def _spans_s(pods: list[Pod]) -> list[tuple[float, float]]:
    """Return when the pods of a Job ran that succeeded, by their end; of several with one index the first."""
    ran = [pod for pod in pods if pod.status.phase == "Succeeded" and pod.span_s is not None]
    by_index: dict[str, tuple[float, float]] = {}
    for pod in ran:
        span_s = pod.span_s
        index = (pod.metadata.annotations or {}).get(_INDEX, pod.metadata.uid)
        if span_s is not None and (index not in by_index or span_s[1] < by_index[index][1]):
            by_index[index] = span_s
    return sorted(by_index.values(), key=lambda span_s: span_s[1])


def _missing_s(job: Job, tasks: int, known_s: list[float]) -> float:
    """Return how long a pod ran, of which there is nothing left."""
    if known_s:
        return mean_duration_s(known_s)
    started, completed = job.status.start_time, job.status.completion_time
    if started is None or completed is None:
        raise UnfitError("neither its pods nor its own times are known")
    waves = math.ceil(tasks / max(1, job.spec.parallelism or 1))
    return max(0.0, (completed - started).total_seconds()) / waves
