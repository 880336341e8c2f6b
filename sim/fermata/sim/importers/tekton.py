"""Runs of Tekton that ended, as runs of a cluster.

Sources: https://tekton.dev/docs/pipelines/pipelines/ and the fields at https://tekton.dev/docs/pipelines/pipeline-api/.

What becomes of them:
- a PipelineRun is a job with a stage for each task of its pipeline that ran, and the TaskRuns of a matrix are tasks of
  one stage. A task depends on those that its `runAfter` names and whose results it uses, `$(tasks.NAME.results.R)`;
  where one of these did not run, on what that one depends on. What is under `finally` depends on all the rest;
- a TaskRun of no PipelineRun is a job of one stage;
- each takes what its pod took; with `keep_incomplete`, where the pod is gone, what the TaskRun did, which counts its
  wait for a node, too;
- skipped: what has not ended, or failed, and runs within others; and a PipelineRun one of whose children is no TaskRun,
  or of whose TaskRuns one is not in the file.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fermata.sim.importers.cluster_objects import PipelineRun, Pod, TaskRun
from fermata.sim.importers.runs import NO_PODS, NOT_A_POD, RanStage, Run, UnfitError, family_of, reached
from fermata.sim.kube.pod_requests import Requests, most_of

_PIPELINE, _TASK, _STEP = "tekton.dev/pipeline", "tekton.dev/task", "tekton.dev/pipelineTask"
_USES = re.compile(r"\$\(tasks\.([^.()]+)\.(?:results|outputs)\b")


def task_run(run: TaskRun, pods: Sequence[Pod], *, keep: bool) -> Run:
    """Return a TaskRun of no PipelineRun as a run.

    Raises:
        UnfitError: it can be none.
    """
    _check(run)
    stage = _stage("main", [_span_s(run, pods, keep=keep)], (), most_of(pod.spec.requests for pod in pods))
    return Run(run.metadata, family_of(run.metadata, run.metadata.label(_TASK)), [stage])


def pipeline_run(
    run: PipelineRun, task_runs: Iterable[TaskRun], pods_of: Mapping[str, Sequence[Pod]], *, keep: bool
) -> Run:
    """Return a PipelineRun as a run.

    Args:
        run: as it was last.
        task_runs: those that it owns, as far as there are any.
        pods_of: pods by the uid of what owns them.
        keep: take TaskRuns' own times where a pod is gone.

    Raises:
        UnfitError: it can be none.
    """
    _check(run)
    children = run.status.child_references or []
    if any(child.kind != "TaskRun" for child in children):
        raise UnfitError(NOT_A_POD)
    expected = Counter(child.pipeline_task_name for child in children)
    found: dict[str, list[TaskRun]] = defaultdict(list)
    for each in task_runs:
        found[each.metadata.label(_STEP) or ""].append(each)
    if any(len(found[name]) < count for name, count in expected.items()):
        raise UnfitError(NO_PODS)
    spans_s: dict[str, list[tuple[float, float]]] = defaultdict(list)
    requests: dict[str, list[Requests]] = defaultdict(list)
    for name in expected:
        for each in found[name]:
            if each.status.succeeded:
                pods = pods_of.get(each.metadata.uid, ())
                spans_s[name].append(_span_s(each, pods, keep=keep))
                requests[name] += [pod.spec.requests for pod in pods]
    if not spans_s:
        raise UnfitError("no pod of it succeeded")
    parents = _parents(run, spans_s)
    stages = [_stage(name, sorted(spans_s[name]), parents[name], most_of(requests[name])) for name in spans_s]
    return Run(run.metadata, family_of(run.metadata, run.metadata.label(_PIPELINE)), stages)


def _stage(name: str, spans_s: Sequence[tuple[float, float]], parents: Iterable[str], requests: Requests) -> RanStage:
    durations_s = [end_s - begin_s for begin_s, end_s in spans_s]
    return RanStage(name, name, durations_s, sorted(parents), max(end_s for _, end_s in spans_s), requests)


def _check(run: TaskRun | PipelineRun) -> None:
    owner = run.metadata.controller
    if owner is not None and owner.kind == "PipelineRun":
        raise UnfitError("a part of a PipelineRun")
    if not run.ended:
        raise UnfitError("has not ended")
    if not run.status.succeeded:
        raise UnfitError("failed")


def _span_s(run: TaskRun, pods: Iterable[Pod], *, keep: bool) -> tuple[float, float]:
    """Return from when to when a TaskRun that succeeded ran, seconds since the epoch.

    Raises:
        UnfitError: that is not known.
    """
    spans_s = [pod.span_s for pod in pods if pod.status.phase == "Succeeded"]
    known_s = [span_s for span_s in spans_s if span_s is not None]
    if known_s:
        return max(known_s)
    started, completed = run.status.start_time, run.status.completion_time
    if not keep or started is None or completed is None:
        raise UnfitError(NO_PODS)
    return started.timestamp(), max(started, completed).timestamp()


def _parents(run: PipelineRun, ran: Mapping[str, object]) -> dict[str, set[str]]:
    """Return on which tasks that ran each of them depends, directly."""
    spec = run.status.pipeline_spec
    tasks, at_the_end = (spec.tasks or [], spec.finally_ or []) if spec else ([], [])
    above = {str(task.get("name")): _needs(task) for task in tasks}
    parents = {name: reached(name, above, ran) for name in ran}
    after = {str(task.get("name")) for task in at_the_end} & ran.keys()
    inner = {parent for name in ran if name not in after for parent in parents[name]}
    last = ran.keys() - after - inner
    return parents | {name: set(last) for name in after}


def _needs(task: Mapping[str, Any]) -> set[str]:
    """Return the names of the tasks that one waits for."""
    named = task.get("runAfter")
    return {str(name) for name in (named if isinstance(named, list) else ())} | set(_USES.findall(json.dumps(task)))
