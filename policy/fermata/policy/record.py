"""Recorded decisions: a state and what was decided in it, as one line of JSON that replays bit for bit.

The operator and the simulator write the same lines, and `replay` asks a policy again. Floats are written by `repr`,
which reads back to the same bits; numbers that JSON lacks are the strings "inf", "-inf" and "nan". The edges between
stages stand beside the state, which holds none, for policies that read them.
"""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

import numpy as np

from fermata.policy.action import Action
from fermata.policy.dag import Dag, knowing
from fermata.policy.decide import Policy, Step, decide
from fermata.policy.errors import InputError
from fermata.policy.guardrails import Guardrails
from fermata.policy.state import IDLE, ClusterState

SCHEMA = "fermata.record/1"

_INDEX_FIELDS = frozenset(
    name
    for name, kind in ClusterState.__annotations__.items()
    if "IndexArray" in (kind if isinstance(kind, str) else getattr(kind, "__forward_arg__", str(kind)))
)
_SCALARS = ("now_s", "free", "estimate_error", "estimate_misses")
# What the indices in an array are of, and the least of them.
_INDICES_OF = {
    "executor_stage": ("stage", IDLE),
    "executor_job": ("job", IDLE),
    "stage_job": ("job", 0),
    "free_executors": ("executor", 0),
    "active_jobs": ("job", 0),
    "ready_stages": ("stage", 0),
}
_COUNTS = ("job_running", "stage_pending", "stage_running", "stage_cap")
_AMOUNTS = (
    "job_work_s",
    "job_remaining_work_s",
    "job_critical_path_s",
    "job_width",
    "stage_estimate_s",
    "stage_path_s",
)


class Record(NamedTuple):
    """One recorded decision. `labels` names jobs and stages for people; nothing depends on it."""

    state: ClusterState
    steps: tuple[Step, ...]
    policy: str
    limits: Guardrails
    labels: dict[str, list[str]]
    edges: tuple[tuple[int, int], ...] | None = None  # (parent, child) of the state's stages; None: not known


def _out(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return repr(float(value))  # numpy's numbers have a longer repr
    return value


def _state_out(state: ClusterState) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in state._asdict().items():
        fields[name] = value.tolist() if name not in _SCALARS else value if name == "free" else _out(float(value))
    for name, value in fields.items():
        if isinstance(value, list) and name not in _INDEX_FIELDS:
            fields[name] = [_out(number) for number in value]
    return fields


def _step_out(step: Step) -> dict[str, Any]:
    return {
        "action": [_out(part) for part in step.action],
        "proposed": [_out(part) for part in step.proposed],
        "override": step.override,
    }


def dumps(record: Record) -> str:
    """Return the record as one line of JSON."""
    line = {
        "schema": SCHEMA,
        "policy": record.policy,
        "limits": [_out(part) for part in record.limits],
        "state": _state_out(record.state),
        "steps": [_step_out(step) for step in record.steps],
        "labels": record.labels,
    }
    return json.dumps(
        line if record.edges is None else line | {"edges": record.edges},
        allow_nan=False,
        separators=(",", ":"),
        default=_plain,
    )


def _plain(value: Any) -> Any:
    """Turn numpy scalars into Python's."""
    if isinstance(value, np.generic):
        return _out(value.item())
    raise TypeError(f"cannot record a {type(value).__name__}")


def loads(line: str) -> Record:
    """Read a record back.

    Raises:
        InputError: the line is not a record of this version.
    """
    try:
        raw = json.loads(line)
        if "schema" not in raw:
            raise InputError(f"not a recorded decision: expected schema {SCHEMA!r}, as --record writes it")
        if raw["schema"] != SCHEMA:
            raise InputError(f"expected a record of schema {SCHEMA!r}, got {raw['schema']!r}")
        state = _state_in(raw["state"])
        return Record(
            state=state,
            steps=tuple(
                Step(_action_in(step["action"]), _action_in(step["proposed"]), int(step["override"]))
                for step in raw["steps"]
            ),
            policy=str(raw["policy"]),
            limits=Guardrails(float(raw["limits"][0]), float(raw["limits"][1]), bool(raw["limits"][2])),
            labels=dict(raw["labels"]),
            edges=_edges_in(raw.get("edges"), len(state.stage_job)),
        )
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, RecursionError) as error:
        raise InputError(f"not a recorded decision: {type(error).__name__}: {error}") from error


def _state_in(raw: dict[str, Any]) -> ClusterState:
    fields: dict[str, Any] = {"now_s": float(raw["now_s"]), "free": int(raw["free"])}
    # Lines that were written before states carried them have none.
    fields |= {name: float(raw.get(name, 0.0)) for name in ("estimate_error", "estimate_misses")}
    raw = {"recent_weight": [1.0] * len(raw["recent_work_s"])} | raw  # nor these, which they all took for 1
    for name in ClusterState._fields:
        if name not in _SCALARS:
            kind = np.int32 if name in _INDEX_FIELDS else np.float64
            values = np.array([float(value) for value in raw[name]], dtype=np.float64)
            if kind is np.int32 and not (np.abs(values) <= np.iinfo(kind).max).all():
                raise ValueError(f"{name}: expected whole numbers of 32 bits")
            fields[name] = values.astype(kind)
    state = ClusterState(**fields)
    _check(state)
    return state


def _check(state: ClusterState) -> None:
    """Refuse a state that no scheduler can be in: kernels check nothing, and would be led out of its arrays.

    Raises:
        ValueError: an array is not as long as those beside it, or holds what cannot be.
    """
    sizes = {"executor": state.executors, "job": len(state.job_arrival_s), "stage": len(state.stage_job)}
    for name, values in state._asdict().items():
        size = sizes.get(name.partition("_")[0])
        if size is not None and len(values) != size:
            raise ValueError(f"{name} has {len(values)} entries, expected {size}")
    for name, (of, least) in _INDICES_OF.items():
        indices = getattr(state, name)
        if ((indices < least) | (indices >= sizes[of])).any():
            raise ValueError(f"{name}: expected {least} to {sizes[of] - 1}")
    for name in ("active_jobs", "ready_stages"):
        if len(np.unique(getattr(state, name))) < len(getattr(state, name)):
            raise ValueError(f"{name}: an index is there twice")
    for name in (*_COUNTS, *_AMOUNTS):
        if not ((getattr(state, name) >= 0) & np.isfinite(getattr(state, name))).all():
            raise ValueError(f"{name}: expected finite numbers of 0 or more")
    for name in ("job_weight", "recent_weight", "stage_slots"):
        if not (getattr(state, name) > 0).all():
            raise ValueError(f"{name}: expected numbers above 0")
    if not np.isfinite(state.executor_free_at_s[state.executor_stage != IDLE]).all():
        raise ValueError("executor_free_at_s: expected finite numbers for what is busy")
    if not np.array_equal(np.sort(state.free_executors), np.flatnonzero(state.executor_stage == IDLE)):
        raise ValueError("free_executors are not those whose executor_stage is -1")
    if state.free != len(state.free_executors):
        raise ValueError(f"free is {state.free}, but free_executors names {len(state.free_executors)}")
    if not len(state.recent_work_s) == len(state.recent_weight) == len(state.recent_arrival_s):
        raise ValueError("recent_arrival_s, recent_work_s and recent_weight are not of as many arrivals")


def _edges_in(raw: list[list[int]] | None, stages: int) -> tuple[tuple[int, int], ...] | None:
    if raw is None:  # lines that were written before they carried edges
        return None
    edges = tuple((int(parent), int(child)) for parent, child in raw)
    for edge in edges:
        if min(edge) < 0 or max(edge) >= stages:
            raise ValueError(f"an edge between stages {edge[0]} and {edge[1]}, expected stages 0 to {stages - 1}")
    return edges


def _action_in(raw: list[Any]) -> Action:
    return Action(int(raw[0]), int(raw[1]), int(raw[2]), float(raw[3]))


def replay(record: Record, policy: Policy, fallback: Policy) -> tuple[Step, ...]:
    """Ask a policy again in the recorded state, under the recorded limits."""
    edges = record.edges
    if edges is not None:
        policy = knowing(policy, lambda: Dag.of_edges(len(record.state.stage_job), edges))
    return decide(record.state, policy, record.limits, fallback)
