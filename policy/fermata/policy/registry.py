"""Policies by name: what `--policy` and a pool's `spec.policy` accept.

A policy is written `name`, `name:parameter=value,...` or as the path of an ONNX file. A new heuristic is one file in
`heuristics/` and one line here.
"""

from __future__ import annotations

import math
from importlib import resources
from pathlib import Path

from fermata.policy.decide import Policy
from fermata.policy.errors import InputError
from fermata.policy.heuristics.base import WITHOUT_HOLDS, Heuristic
from fermata.policy.heuristics.critical_path import SJF_CP
from fermata.policy.heuristics.divided import SJF_DIVIDED
from fermata.policy.heuristics.fair import FAIR, WEIGHTED_FAIR
from fermata.policy.heuristics.fifo import FIFO
from fermata.policy.heuristics.follower import HOLD_FOLLOWER
from fermata.policy.heuristics.lcfs import LCFS
from fermata.policy.heuristics.lookahead import SJF_HOLD, SJF_SWITCH
from fermata.policy.heuristics.packing import PACKING
from fermata.policy.heuristics.pair import PAIR_HOLD_COMMITTED, PAIR_HOLD_RELEASED
from fermata.policy.heuristics.shares import SRWF_EQUAL_SHARE, SRWF_WORK_SHARE
from fermata.policy.heuristics.sjf import SJF
from fermata.policy.heuristics.srwf import SRWF

HEURISTICS: dict[str, Heuristic] = {
    policy.name: policy
    for policy in (
        FIFO,
        LCFS,
        SJF,
        SRWF,
        SJF_CP,
        SJF_DIVIDED,
        FAIR,
        WEIGHTED_FAIR,
        PACKING,
        SJF_HOLD,
        SJF_SWITCH,
        HOLD_FOLLOWER,
        PAIR_HOLD_COMMITTED,
        PAIR_HOLD_RELEASED,
        SRWF_WORK_SHARE,
        SRWF_EQUAL_SHARE,
    )
}
LEARNED = {  # models that ship with the package
    "default": "three actions around the shortest job: a network for single tasks, rules for DAGs",
    "queue-full": "over a queue of multi-slot tasks; a machine as busy as shortest first keeps it, at no more wait",
    "queue-swift": "over a queue of multi-slot tasks; as little wait for less slowdown, on a less busy machine",
    "queue-busy": "over a queue of multi-slot tasks; utilisation near that of EASY backfilling",
    "queue-prompt": "over a queue of multi-slot tasks; waits about as long as EASY backfilling, slowdown far below it",
    "queue-even": "over a queue of multi-slot tasks; waits a sixth longer than queue-prompt for less slowdown",
    "queue-patient": "over a queue of multi-slot tasks; slowdown above all",
    "queue-robust": "over a queue of multi-slot tasks; for estimates that users type",
}


def shipped_model(name: str = "default") -> Path:
    """Return the path of a model that ships with the package, a name of `LEARNED`."""
    return Path(str(resources.files("fermata.policy") / "models" / f"{name}.onnx"))


def names() -> list[str]:
    """Return the names of all built-in policies."""
    return sorted((*HEURISTICS, *LEARNED))


def load(spec: str | Path, *, or_file: str = "the path of an .onnx file") -> Policy:
    """Return the policy that `spec` names.

    Args:
        spec: a name, a name with parameters, or the path of a model.
        or_file: how a model that does not ship is named where this comes from, for whoever names what there is not.

    Raises:
        InputError: no such policy or parameter.
        ModelError: the file is missing, or is not a model that this version can run.
    """
    text = str(spec)
    if text.endswith(WITHOUT_HOLDS):  # the name of what acts where a heuristic may not hold
        policy = load(text.removesuffix(WITHOUT_HOLDS), or_file=or_file)
        if not isinstance(policy, Heuristic):
            raise InputError(f"no policy {text!r}: only heuristics have an order without holds")
        return policy.eager()
    if text.endswith(".onnx") or text in LEARNED:
        from fermata.policy.model_file import load_model

        return load_model(shipped_model(text) if text in LEARNED else Path(text))
    name, _, rest = text.partition(":")
    if name in LEARNED:
        raise InputError(f"policy {name!r} is a model, which has no parameters; got {text!r}")
    if name not in HEURISTICS:
        raise InputError(f"no policy {name!r}; expected one of {', '.join(names())}, or {or_file}")
    return HEURISTICS[name].with_parameters(_parameters(name, rest)) if rest else HEURISTICS[name]


def _parameters(name: str, text: str) -> dict[str, float]:
    """Parse `key=value,key=value`."""
    values: dict[str, float] = {}
    for part in text.split(","):
        key, _, number = part.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if math.isnan(value):
            raise InputError(f"policy {name!r}: expected parameter=number, got {part!r}")
        if (known := key.strip()) in values:
            raise InputError(f"policy {name!r}: {known!r} is there twice")
        values[known] = value
    return values
