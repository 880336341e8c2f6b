"""Inspectors as ONNX files: what `fermata hpc train` writes and `evaluate` reads.

The file's graph is the network; its metadata holds the same weights once more, for the compiled kernel, and says what
is inspected. Both are compared when a file is loaded, so that what is simulated is what another runtime would answer.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from fermata.policy.errors import ModelError
from fermata.policy.onnx_file import open_onnx
from fermata.policy.weights import expect_finite, expect_same, packed, unpacked
from fermata.sim.hpc.inspect import (
    ARGMAX,
    FEATURES,
    HIDDEN,
    MAX_INTERVAL_S,
    MAX_REJECTIONS,
    MOST_REJECTIONS,
    PICKS,
    STARTS,
    UNITS,
    Inspector,
    logits,
    parameters,
)
from fermata.sim.hpc.jobs import FloatArray, JobLog

KEY = "fermata-hpc-inspector"
INPUT, OUTPUT = "features", "logits"
TOLERANCE = 1e-4
SCOPES = {"picks": PICKS, "starts": STARTS}
_KINDS: dict[str, tuple[str, tuple[type, ...]]] = {
    "int": ("a whole number", (int,)),
    "float": ("a number", (int, float)),
    "str": ("text", (str,)),
}


@dataclass(frozen=True)
class InspectorModel:
    """An inspector that can be put beside any scheduler.

    Args:
        scope: `picks` as SchedInspector, or `starts`.
        features: how many of the features it reads, from the first; 7 are the published code's, 8 the paper's.
        queue_scale: jobs; sums over the queue are divided by it.
        theta: weights and biases, see `inspect.Inspector`.
        policy: the scheduler it was trained with.
        trained_on: name of the log.
        objective: what it was trained to lower.
        seed: of its training.
        max_rejections: how often a job may be rejected; after that it is not inspected.
    """

    scope: str
    features: int
    queue_scale: float
    theta: FloatArray
    policy: str = ""
    trained_on: str = ""
    objective: str = ""
    seed: int = 0
    max_rejections: int = MAX_REJECTIONS

    def inspector(self, log: JobLog, mode: int = ARGMAX, *, record: int = 0) -> Inspector:
        """Return it as the kernel wants it, for the jobs of a log; `record` is the room for decisions."""
        return Inspector(
            SCOPES[self.scope],
            mode,
            self.features,
            MAX_INTERVAL_S,
            self.max_rejections,
            max(float(log.estimate_s.max()), 1.0),
            self.queue_scale,
            self.theta,
            np.zeros((record, self.features)),
            np.zeros(record, dtype=np.int8),
            np.zeros(record),
            np.zeros(FEATURES),
            np.zeros(UNITS),
        )

    def widened(self, features: int) -> InspectorModel:
        """Return one that reads so many features and decides the same: what is new has weights of zero.

        Raises:
            ModelError: it reads more than that already.
        """
        if features < self.features:
            raise ModelError(f"an inspector of {self.features} features cannot go on with {features}")
        first = self.theta[: self.features * HIDDEN[0]].reshape(HIDDEN[0], self.features)
        new = np.zeros((HIDDEN[0], features - self.features))
        theta = np.concatenate([np.hstack([first, new]).ravel(), self.theta[self.features * HIDDEN[0] :]])
        return replace(self, features=features, theta=theta)

    def metadata(self) -> str:
        """Return what the file says about itself, as JSON; the weights as base64 of little-endian float32."""
        return json.dumps(asdict(self) | {"theta": packed(self.theta)}, sort_keys=True)


def load_model(path: str | Path) -> InspectorModel:
    """Read an inspector and check that its graph answers as its weights do.

    Raises:
        ModelError: the file is missing, is no inspector, or contradicts itself.
    """
    name = str(path)
    file = open_onnx(path)
    if (text := file.text(KEY)) is None:
        raise ModelError(f"{name}: no inspector; expected one that fermata hpc train wrote")
    model = _parsed(name, text)
    probe = np.random.default_rng(0).random((16, model.features))
    answered = file.probe(OUTPUT, {INPUT: probe.astype(np.float32)})
    units = np.zeros(UNITS)
    rows = probe.astype(np.float32).astype(np.float64)
    ours = np.array([logits(model.theta, row, model.features, units) for row in rows])
    expect_same(name, ours, answered, TOLERANCE, TOLERANCE)
    return model


def check_kinds(name: str, model: Any) -> None:
    """Refuse a model whose words and numbers are not what its dataclass says: JSON may hold anything.

    Raises:
        ModelError: one of them is not.
    """
    for field in fields(model):
        kind = _KINDS.get(str(field.type))  # text, as annotations are not evaluated
        value = getattr(model, field.name)
        if kind is not None and (isinstance(value, bool) or not isinstance(value, kind[1])):
            raise ModelError(f"{name}: expected {kind[0]} for {field.name}, found {value!r}")


def _parsed(name: str, text: str) -> InspectorModel:
    try:
        said = json.loads(text)
        said["theta"] = unpacked(said["theta"]).astype(np.float64)
        model = InspectorModel(**said)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ModelError(f"{name}: its description cannot be read ({error})") from error
    check_kinds(name, model)
    if not 1 <= model.max_rejections <= MOST_REJECTIONS:
        raise ModelError(f"{name}: expected a limit of 1 to {MOST_REJECTIONS} rejections, found {model.max_rejections}")
    if not 0.0 < model.queue_scale < math.inf:
        raise ModelError(f"{name}: expected a queue_scale above 0, found {model.queue_scale}")
    if model.scope not in SCOPES or not 1 <= model.features <= FEATURES:
        raise ModelError(f"{name}: expected a scope of {' or '.join(SCOPES)} and at most {FEATURES} features")
    expect_finite(name, model.theta, parameters(model.features))
    return model
