"""Policies over the whole queue as ONNX files: what `fermata hpc train --method queue` writes, and what ships.

A file is one that `fermata.policy.queue_policy` runs, the operator too; its metadata holds the same weights for the
compiled kernel, and both are compared when a file is loaded.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from fermata.policy.errors import InputError, ModelError
from fermata.policy.onnx_file import open_onnx
from fermata.policy.queue_features import FEATURE_NAMES, FEATURES, SCHEMA
from fermata.policy.queue_policy import QueuePolicy
from fermata.policy.registry import LEARNED, shipped_model
from fermata.policy.weights import expect_finite, expect_same, packed, unpacked
from fermata.sim.files import Progress
from fermata.sim.hpc.jobs import FloatArray, JobLog
from fermata.sim.hpc.models import TOLERANCE, check_kinds
from fermata.sim.hpc.scoring import HIDDEN_UNITS, PARAMETERS, Scorer, run_scored, score
from fermata.sim.hpc.world import Config, Jobs, World, run_on

# What ships: the policies over the queue among the built-in ones.
SHIPPED = tuple(name for name in LEARNED if name.startswith("queue-"))


@dataclass(frozen=True)
class QueueModel:
    """A network that scores every waiting job.

    Args:
        theta: weights, `[PARAMETERS]`; see `scoring.Scorer`.
        trained_on: name of the log.
        wait_price: what waiting as long as the yardstick of its training does cost there, in logarithms of slowdown.
        seed: of its training.
        features: names of what it reads, in order.
    """

    theta: FloatArray
    trained_on: str = ""
    wait_price: float = float("nan")
    seed: int = 0
    features: tuple[str, ...] = FEATURE_NAMES

    def scorer(self, log: JobLog) -> Scorer:
        """Return it as the kernel wants it, for one run of the jobs of a log."""
        return Scorer(
            self.theta,
            np.zeros(FEATURES),
            np.zeros(FEATURES),
            np.zeros(HIDDEN_UNITS),
            np.log1p(log.estimate_s),
            np.full(1, np.inf),
        )

    def run(self, jobs: Jobs, config: Config, world: World, log: JobLog, progress: Progress | None = None) -> None:
        """Run the jobs of a log until every one has started; see `run_on`."""
        run_on(partial(run_scored, jobs, config, world, self.scorer(log)), world, progress)

    def metadata(self) -> str:
        """Return what the file says about itself, as JSON; the weights as base64 of little-endian float32."""
        return json.dumps(asdict(self) | {"schema": SCHEMA, "theta": packed(self.theta)}, sort_keys=True)


@lru_cache(maxsize=16)
def load_queue_model(name: str) -> QueueModel:
    """Read one that ships, or a file, and check that its graph answers as its weights do.

    Raises:
        InputError: the name is none of `SHIPPED` and no .onnx file's.
        ModelError: the file is missing, is no policy over the queue, or contradicts itself.
    """
    if name not in SHIPPED and not name.endswith(".onnx"):
        raise InputError(f"no policy over the queue {name!r}; expected one of {', '.join(SHIPPED)}, or an .onnx file")
    path = str(shipped_model(name)) if name in SHIPPED else name
    policy = QueuePolicy.of_file(open_onnx(path))
    model = _parsed(path, dict(policy.metadata))
    probe = np.random.default_rng(0).random((16, FEATURES)).astype(np.float32)
    answered = policy.scores(probe)
    hidden = np.zeros(HIDDEN_UNITS)
    ours = np.array([score(model.theta, row, hidden) for row in probe.astype(np.float64)])
    expect_same(path, ours, answered, TOLERANCE, TOLERANCE * np.abs(model.theta).max())
    return model


def _parsed(name: str, said: dict[str, Any]) -> QueueModel:
    try:
        said["theta"] = unpacked(said["theta"]).astype(np.float64)
        said["features"] = tuple(said["features"])
        del said["schema"]
        model = QueueModel(**said)
    except (ValueError, TypeError, KeyError) as error:
        raise ModelError(f"{name}: its description cannot be read ({error})") from error
    check_kinds(name, model)
    expect_finite(name, model.theta, PARAMETERS)
    return model
