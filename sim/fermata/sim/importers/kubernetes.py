"""What ran in a cluster without Fermata, as kubectl prints it: Jobs, Argo Workflows, and runs of Tekton.

What becomes of it:
- a Job is a job of one stage; each of its pods that succeeded is a task of one slot. It takes what the pod took: from
  when it was on its node (`status.startTime`, images are pulled then) until its last container ended, as Fermata's
  operator counts. An Argo Workflow is a job with a stage for each of its steps (`fermata.sim.importers.argo`), a
  PipelineRun of Tekton one with a stage for each of its tasks (`fermata.sim.importers.tekton`);
- it arrives when its object was made, the first at 0;
- its estimates are what Fermata would have known of it (`fermata.sim.importers.runs`);
- skipped: what has not ended, or failed; Jobs that an Argo Workflow or Fermata made, as these are parts of others; and
  Jobs of which pods are missing. With `keep_incomplete` pods that are missing took the mean of the others, or where
  there are none the Job's own time, shared by as many waves as its parallelism makes;
- a task takes one slot, or with `executor` as many as its pod requests of that resource; then jobs are skipped of which
  no pod requests any;
- attempts that failed, priorities, and how many pods of a Job may run at once are left out: a job trace has none.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TypeVar

from fermata.sim.importers.argo import argo_run
from fermata.sim.importers.base import DEFAULTS, AsItRan, Imported, ImportOptions, JobSink
from fermata.sim.importers.cluster_objects import Job, Pod, TaskRun, is_argo
from fermata.sim.importers.executor_size import ExecutorSize
from fermata.sim.importers.kubectl import Objects, read_objects
from fermata.sim.importers.runs import NO_PODS, RanStage, Run, UnfitError, add_runs, family_of, most_at_once
from fermata.sim.importers.tekton import pipeline_run, task_run
from fermata.sim.kube.pod_requests import Requests, most_of
from fermata.sim.trace_builder import MAX_TASKS, mean_duration_s

_STAGE = "main"  # of a Job, which has but one
_INDEX = "batch.kubernetes.io/job-completion-index"
_OURS = "fermata.dev/"
_Owned = TypeVar("_Owned", Pod, TaskRun)


def read_kubernetes(path: str | Path, options: ImportOptions = DEFAULTS) -> Imported:
    """Read Jobs, Argo Workflows, runs of Tekton and their pods from what kubectl printed as JSON.

    Args:
        path: a file, possibly `.xz` or `.gz`; `-` for standard input.
        options: see `ImportOptions`; sampling options do not apply.

    Raises:
        InputError: it cannot be read, is not JSON, or holds nothing of these but pods.
    """
    objects = read_objects(path, options.progress)
    sink = JobSink(path, options)
    pods_of, whole_of = _by_owner(objects.pods.values()), _wholes(objects)
    runs: list[Run] = []
    for make in _makers(objects, pods_of, whole_of, keep=options.keep_incomplete):
        try:
            runs.append(_fit(make(), options.executor))
        except UnfitError as reason:
            sink.skip(str(reason))
    jcts_s = add_runs(sink, runs, options)
    known = objects.jobs.keys() | objects.workflows.keys() | objects.task_runs.keys()
    pods = [pod for uid in known for pod in pods_of.get(uid, ())]
    at_once = most_at_once(
        (*pod.span_s, options.executor.slots(pod.spec.requests) if options.executor is not None else 1)
        for uid in known
        if whole_of.get(uid, uid) in jcts_s
        for pod in pods_of.get(uid, ())
        if pod.span_s is not None
    )
    if not jcts_s:
        return sink.finish()
    of_executors = options.executor is not None
    return sink.finish(as_it_ran=AsItRan(fmean(jcts_s.values()), at_once, of_executors, devices=_devices(pods)))


def _fit(run: Run, executor: ExecutorSize | None) -> Run:
    """Return a run that takes executors.

    Raises:
        UnfitError: it takes none.
    """
    if executor is not None and not any(stage.requests.get(executor.resource) for stage in run.stages):
        raise UnfitError(f"no pod of it requests any {executor.resource}")
    return run


def _wholes(objects: Objects) -> dict[str, str]:
    """Return of which PipelineRun each TaskRun is a part, by uid."""
    owners = ((uid, run.metadata.controller) for uid, run in objects.task_runs.items())
    return {uid: owner.uid for uid, owner in owners if owner is not None and owner.uid in objects.pipeline_runs}


def _devices(pods: Iterable[Pod]) -> Requests:
    """Return the most that a pod requests of each kind of device.

    These are the resources that vendors name, as `nvidia.com/gpu`.
    """
    return {name: most for name, most in most_of(pod.spec.requests for pod in pods).items() if "/" in name}


def _makers(
    objects: Objects, pods_of: Mapping[str, list[Pod]], whole_of: Mapping[str, str], *, keep: bool
) -> Iterator[Callable[[], Run]]:
    """Yield what makes a run of each object that may be one, or says why it is none."""
    for uid, job in objects.jobs.items():
        yield partial(_job_run, job, pods_of.get(uid, []), keep=keep)
    for uid, workflow in objects.workflows.items():
        yield partial(argo_run, workflow, pods_of.get(uid, []), keep=keep)
    parts = _by_owner(objects.task_runs.values())
    for uid, whole in objects.pipeline_runs.items():
        yield partial(pipeline_run, whole, parts.get(uid, []), pods_of, keep=keep)
    for uid, alone in objects.task_runs.items():
        if uid not in whole_of:
            yield partial(task_run, alone, pods_of.get(uid, []), keep=keep)


def _by_owner(objects: Iterable[_Owned]) -> dict[str, list[_Owned]]:
    """Return objects by the uid of what owns them."""
    found: dict[str, list[_Owned]] = defaultdict(list)
    for each in objects:
        for owner in each.metadata.owner_references or ():
            found[owner.uid].append(each)
    return dict(found)


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
    succeeded = [pod for pod in pods if pod.status.phase == "Succeeded"]
    spans_s = _spans_s(succeeded)[:tasks]
    durations_s = [end_s - start_s for start_s, end_s in spans_s]
    if len(durations_s) < tasks:
        if not keep:
            raise UnfitError(NO_PODS)
        durations_s += [_missing_s(job, tasks, durations_s)] * (tasks - len(durations_s))
    end_s = job.status.completion_time.timestamp() if job.status.completion_time else spans_s[-1][1]
    maker = owner.name if owner is not None else None
    requests = most_of([pod.spec.requests for pod in succeeded] or [job.spec.template.spec.requests])
    stage = RanStage(_STAGE, _STAGE, durations_s, (), end_s, requests)
    return Run(job.metadata, family_of(job.metadata, maker), [stage])


def _spans_s(pods: list[Pod]) -> list[tuple[float, float]]:
    """Return when pods of a Job ran that succeeded, by their end; of several with one index the first."""
    by_index: dict[str, tuple[float, float]] = {}
    for pod in pods:
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
