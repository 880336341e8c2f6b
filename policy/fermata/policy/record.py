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
from fermata.policy.state import ClusterState

SCHEMA = "fermata.record/1"

_INDEX_FIELDS = frozenset(
    name
    for name, kind in ClusterState.__annotations__.items()
    if "IndexArray" in (kind if isinstance(kind, str) else getattr(kind, "__forward_arg__", str(kind)))
)
_SCALARS = ("now_s", "free", "estimate_error", "estimate_misses")


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
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise InputError(f"not a recorded decision: {type(error).__name__}: {error}") from error


def _state_in(raw: dict[str, Any]) -> ClusterState:
    fields: dict[str, Any] = {"now_s": float(raw["now_s"]), "free": int(raw["free"])}
    # Lines that were written before states carried them have none.
    fields |= {name: float(raw.get(name, 0.0)) for name in ("estimate_error", "estimate_misses")}
    for name in ClusterState._fields:
        if name not in _SCALARS:
            kind = np.int32 if name in _INDEX_FIELDS else np.float64
            fields[name] = np.array([float(value) for value in raw[name]], dtype=np.float64).astype(kind)
    return ClusterState(**fields)


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
