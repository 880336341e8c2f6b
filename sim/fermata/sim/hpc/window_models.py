"""Deep Back-Filling agents as ONNX files: what `fermata hpc train --method window` writes and `window:FILE` reads.

The file's graph scores rows, one for each job of the window that fits and one for Fwd, each row alone; its metadata
holds the same weights for the compiled kernel, and both are compared when a file is loaded.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from fermata.policy.errors import ModelError
from fermata.policy.onnx_file import open_onnx
from fermata.policy.weights import expect_finite, expect_same, packed, unpacked
from fermata.sim.files import Progress
from fermata.sim.hpc.inspect import ARGMAX
from fermata.sim.hpc.jobs import JobLog
from fermata.sim.hpc.models import TOLERANCE, check_kinds
from fermata.sim.hpc.window import (
    FEATURE_NAMES,
    FEATURES,
    FWD_ROW,
    HIDDEN,
    MOST_SEEN,
    PARAMETERS,
    Agent,
    SingleArray,
    new_agent,
    run_windowed,
    score,
)
from fermata.sim.hpc.world import Config, Jobs, World, run_on

KEY = "fermata-hpc-window"
INPUT, OUTPUT = "rows", "scores"


@dataclass(frozen=True)
class WindowModel:
    """An agent that sees a window of the queue.

    Args:
        head: jobs seen from the head of the queue, at least 1.
        tail: jobs seen from its tail; 0 is a head-only window.
        theta: weights, `[PARAMETERS]`; see `window.Agent`.
        trained_on: name of the log.
        seed: of its training.
        curve: iterations of training and the mean wait of the agent after them on the sequences that chose, in s.
        features: names of what it reads, in order.
    """

    head: int
    tail: int
    theta: SingleArray
    trained_on: str = ""
    seed: int = 0
    curve: tuple[tuple[int, float], ...] = ()
    features: tuple[str, ...] = FEATURE_NAMES

    def agent(self, mode: int = ARGMAX, *, record: int = 0) -> Agent:
        """Return it as the kernel wants it; `record` is the room for decisions."""
        return new_agent(self.head, self.tail, self.theta, mode, record=record)

    def run(self, jobs: Jobs, config: Config, world: World, log: JobLog, progress: Progress | None = None) -> None:
        """Run the jobs of a log until every one has started; see `run_on`."""
        run_on(partial(run_windowed, jobs, config, world, self.agent()), world, progress)

    def metadata(self) -> str:
        """Return what the file says about itself, as JSON; the weights as base64 of little-endian float32."""
        return json.dumps(asdict(self) | {"theta": packed(self.theta)}, sort_keys=True)


def shortest_first(head: int, tail: int) -> WindowModel:
    """Return the agent that starts the shortest job of its window that fits, and chooses Fwd if none does: a rule."""
    theta = np.zeros(PARAMETERS, dtype=np.float32)
    first, second = HIDDEN
    weights = theta[: FEATURES * first].reshape(FEATURES, first)
    weights[FEATURE_NAMES.index("log_estimate"), 0] = weights[FWD_ROW, 1] = 1.0
    place = (FEATURES + 1) * first
    theta[place : place + first * second].reshape(first, second)[[0, 1], [0, 1]] = 1.0
    place += (first + 1) * second
    theta[place : place + 2] = -1.0, -1000.0
    return WindowModel(head, tail, theta)


@lru_cache(maxsize=32)
def load_window_model(path: str) -> WindowModel:
    """Read an agent and check that its graph answers as its weights do.

    Raises:
        ModelError: the file is missing, is no window agent, or contradicts itself.
    """
    file = open_onnx(path)
    if (text := file.text(KEY)) is None:
        raise ModelError(f"{path}: no window agent; expected one that fermata hpc train --method window wrote")
    model = _parsed(path, text)
    probe = np.random.default_rng(0).random((16, FEATURES)).astype(np.float32)
    answered = file.probe(OUTPUT, {INPUT: probe})
    units = np.zeros(sum(HIDDEN), dtype=np.float32)
    ours = np.array([score(model.theta, row, units) for row in probe])
    expect_same(path, ours, answered, TOLERANCE, TOLERANCE * np.abs(model.theta).max())
    return model


def _parsed(path: str, text: str) -> WindowModel:
    try:
        said: dict[str, Any] = json.loads(text)
        said["theta"] = unpacked(said["theta"])
        said["features"] = tuple(said["features"])
        said["curve"] = tuple((int(number), float(wait_s)) for number, wait_s in said["curve"])
        model = WindowModel(**said)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ModelError(f"{path}: its description cannot be read ({error})") from error
    check_kinds(path, model)
    if model.features != FEATURE_NAMES:
        raise ModelError(f"{path}: it reads other features than this version writes")
    if not (1 <= model.head <= MOST_SEEN and 0 <= model.tail <= MOST_SEEN):
        told = f"expected a window of 1 to {MOST_SEEN} jobs and as many at most from its tail"
        raise ModelError(f"{path}: {told}, got {model.head} + {model.tail}")
    expect_finite(path, model.theta, PARAMETERS)
    return model
