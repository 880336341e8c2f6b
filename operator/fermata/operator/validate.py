"""What is wrong with a Workflow or an ExecutorPool, beyond what a schema can say.

Pure and shared: the operator turns a problem into `Accepted=False`, `fermata validate` into one line with file and
line number, so both say the same. Knows nothing of a cluster; the pool is an argument.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

from pydantic import ValidationError

from fermata.operator import reasons
from fermata.operator.names import API_VERSION, POOL, WORKFLOW
from fermata.operator.resources import LABEL_KEY, MAX_NAME, ExecutorPoolSpec, LabelSelector, WorkflowSpec
from fermata.policy.wording import cycle

_LABEL_KEY = re.compile(LABEL_KEY)
_WANTS_TEXT = ("literal_error", "string_type")  # all literals of the resources are text


class Problem(NamedTuple):
    """One thing that is wrong: a documented reason, a sentence, and where in the object it stands."""

    reason: str
    message: str
    path: tuple[str | int, ...] = ("spec",)


def object_problems(raw: Any) -> list[Problem]:
    """Return what is wrong with a whole object of our group as a user wrote it; [] if nothing is.

    Args:
        raw: a parsed document of a manifest.
    """
    if not isinstance(raw, Mapping):
        return [Problem(reasons.INVALID_SPEC, f"expected an object, got {type(raw).__name__}", ())]
    if raw.get("apiVersion") != API_VERSION:
        expected = f"expected apiVersion {API_VERSION}, got {raw.get('apiVersion')!r}"
        return [Problem(reasons.INVALID_SPEC, expected, ("apiVersion",))]
    if raw.get("kind") not in (WORKFLOW, POOL):
        expected = f"expected kind {WORKFLOW} or {POOL}, got {raw.get('kind')!r}"
        return [Problem(reasons.INVALID_SPEC, expected, ("kind",))]
    problems = _metadata_problems(raw.get("metadata"))
    unknown = [key for key in raw if key not in ("apiVersion", "kind", "metadata", "spec", "status")]
    problems += [Problem(reasons.INVALID_SPEC, f"unknown key {key!r}", (key,)) for key in unknown]
    workflow = raw["kind"] == WORKFLOW
    body = raw.get("spec")
    if workflow and isinstance(body, Mapping) and body.get("stages") == []:
        return [*problems, Problem(reasons.NO_STAGES, "expected at least one stage", ("spec", "stages"))]
    try:
        spec = WorkflowSpec.model_validate(body) if workflow else ExecutorPoolSpec.model_validate(body)
    except ValidationError as error:
        return problems + [_schema_problem(detail) for detail in error.errors(include_url=False)]
    if isinstance(spec, WorkflowSpec):
        return problems + workflow_problems(spec)
    return problems + pool_problems(spec)


def workflow_problems(spec: WorkflowSpec, pool: ExecutorPoolSpec | None = None) -> list[Problem]:
    """Return what is wrong with a workflow; [] if it can run.

    Args:
        spec: as the schema admits it.
        pool: the pool that it names, to check that its tasks fit; None to leave that out.
    """
    problems = _duplicates(spec) + _unknown_parents(spec)
    if not problems:
        problems = _cycles(spec)
    for index, stage in enumerate(spec.stages):
        if pool and stage.slots > pool.executors:
            problems.append(too_many_slots(index, stage.name, stage.slots, pool))
        problems += _template_problems(stage.name, stage.template, ("spec", "stages", index, "template"))
    return problems


def is_dag(spec: WorkflowSpec) -> bool:
    """Tell whether the stages of a workflow are one: edits can make something else of what was accepted."""
    return not (_duplicates(spec) or _unknown_parents(spec) or _cycles(spec))


def too_many_slots(index: int, stage: str, slots: int, pool: ExecutorPoolSpec) -> Problem:
    """Return that no task of a stage, the one of that index, fits into a pool."""
    message = f"stage {stage!r} needs {slots} executors a task, the pool has {pool.executors}"
    return Problem(reasons.TOO_MANY_SLOTS, message, ("spec", "stages", index, "slots"))


def pool_problems(spec: ExecutorPoolSpec) -> list[Problem]:
    """Return what is wrong with a pool; [] if it can decide."""
    problems = []
    if (spec.policy.name is None) == (spec.policy.model is None):
        problems.append(Problem(reasons.INVALID_SPEC, "expected exactly one of name and model", ("spec", "policy")))
    model = spec.policy.model
    if model and (model.path is None) == (model.config_map is None):
        problems.append(
            Problem(reasons.INVALID_SPEC, "expected exactly one of path and configMap", ("spec", "policy", "model"))
        )
    return problems + selector_problems(spec.namespace_selector or LabelSelector())


def selector_problems(selector: LabelSelector) -> list[Problem]:
    """Return where a selector asks for what no namespace can have: it would take all namespaces, or none."""
    path, problems = ("spec", "namespaceSelector"), []
    keys: list[tuple[tuple[str | int, ...], str]] = [
        ((*path, "matchLabels", key), key) for key in selector.match_labels
    ]
    for index, requirement in enumerate(selector.match_expressions):
        where = (*path, "matchExpressions", index)
        keys.append(((*where, "key"), requirement.key))
        if (requirement.operator in ("In", "NotIn")) != bool(requirement.values):
            expected = "one value or more" if requirement.operator in ("In", "NotIn") else "no values"
            message = f"{_dotted(where)}: {requirement.operator}: expected {expected}, got {requirement.values}"
            problems.append(Problem(reasons.INVALID_SPEC, message, where))
    return problems + [
        Problem(reasons.INVALID_SPEC, f"{_dotted(where)}: expected the key of a label, got {key!r}", where)
        for where, key in keys
        if not _LABEL_KEY.fullmatch(key) or len(key.rpartition("/")[0]) > MAX_NAME
    ]


def _metadata_problems(metadata: Any) -> list[Problem]:
    if not isinstance(metadata, Mapping):
        return [Problem(reasons.INVALID_SPEC, "expected metadata with a name", ("metadata",))]
    key = "name" if metadata.get("name") not in (None, "") else "generateName"
    name = metadata.get(key)
    if name in (None, ""):
        return [Problem(reasons.INVALID_SPEC, "expected a name, got none", ("metadata", "name"))]
    if not isinstance(name, str):
        expected = f"metadata.{key}: expected a name, got {name!r}{_quotes(name)}"
        return [Problem(reasons.INVALID_SPEC, expected, ("metadata", key))]
    return []


def _schema_problem(detail: Any) -> Problem:
    """Turn one complaint of pydantic into a sentence that says what was expected."""
    path = ("spec", *(part for part in detail["loc"]))
    kind, given = detail["type"], detail["input"]
    message = str(detail["msg"])
    if kind == "extra_forbidden":
        message = f"unknown key {str(path[-1])!r}"
    elif kind == "missing":
        message = f"{path[-1]!r} is required"
    elif isinstance(given, str | int | float | bool):
        message = f"{message[:1].lower()}{message[1:]}, got {given!r}"
        if kind in _WANTS_TEXT:
            message += _quotes(given)
    return Problem(reasons.INVALID_SPEC, f"{_dotted(path)}: {message}", path)


def _quotes(given: Any) -> str:
    """Say how to write as text what YAML does not take for text, as in `mode: Off` or `name: 20261127`."""
    if isinstance(given, bool):
        return ", a boolean: in YAML such a word has to be in quotes"
    return ", a number: in YAML it has to be in quotes" if isinstance(given, int | float) else ""


def _dotted(path: tuple[str | int, ...]) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _duplicates(spec: WorkflowSpec) -> list[Problem]:
    first: dict[str, int] = {}
    problems = []
    for index, stage in enumerate(spec.stages):
        if stage.name in first:
            message = f"stage name {stage.name!r} is used twice; expected unique names"
            problems.append(Problem(reasons.DUPLICATE_STAGE, message, ("spec", "stages", index, "name")))
        first.setdefault(stage.name, index)
    return problems


def _unknown_parents(spec: WorkflowSpec) -> list[Problem]:
    known = {stage.name for stage in spec.stages}
    return [
        Problem(
            reasons.UNKNOWN_PARENT,
            f"stage {stage.name!r} depends on {parent!r}, which is not a stage of this workflow",
            ("spec", "stages", index, "dependsOn", position),
        )
        for index, stage in enumerate(spec.stages)
        for position, parent in enumerate(stage.depends_on)
        if parent not in known
    ]


def _cycles(spec: WorkflowSpec) -> list[Problem]:
    try:
        TopologicalSorter({stage.name: stage.depends_on for stage in spec.stages}).prepare()
    except CycleError as error:
        circle = error.args[1]  # from parent to child, the first one again at the end
        index = next(i for i, stage in enumerate(spec.stages) if stage.name == circle[0])
        message = f"stages depend on each other in a circle: {cycle(circle)}"
        return [Problem(reasons.CYCLE, message, ("spec", "stages", index, "dependsOn"))]
    return []


def _template_problems(stage: str, template: Mapping[str, Any], path: tuple[str | int, ...]) -> list[Problem]:
    """Check only what no Job can do without; the API server knows the rest."""
    body = template.get("spec")
    containers = body.get("containers") if isinstance(body, Mapping) else None
    if not isinstance(body, Mapping) or not isinstance(containers, list) or not containers:
        message = f"stage {stage!r}: template.spec.containers: expected at least one container"
        return [Problem(reasons.INVALID_SPEC, message, path)]
    if body.get("restartPolicy", "Never") not in ("Never", "OnFailure"):
        message = f"stage {stage!r}: restartPolicy {body['restartPolicy']!r}: expected Never or OnFailure"
        return [Problem(reasons.INVALID_SPEC, message, (*path, "spec", "restartPolicy"))]
    return []
