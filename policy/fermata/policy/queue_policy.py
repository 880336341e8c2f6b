"""A policy over the whole queue through ONNX Runtime: every waiting task is scored, the best starts, or nobody.

The file takes `jobs` [tasks, FEATURES] (`fermata.policy.queue_features`) and gives `scores` [tasks], each row alone, so
that a queue may have any length and stand in any order. Waiting scores zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fermata.policy.action import START, WAIT, Action
from fermata.policy.errors import ModelError
from fermata.policy.onnx_file import OnnxFile, Session, numbers_from
from fermata.policy.queue_features import FEATURE_NAMES, FEATURES, INTERVAL_S, SCHEMA, choices_of
from fermata.policy.state import ClusterState

INPUT, OUTPUT = "jobs", "scores"


@dataclass(frozen=True)
class QueuePolicy:
    """A loaded and dry-run network; build it with `of_file`."""

    name: str
    digest: str  # sha256 of the file, hex
    metadata: Mapping[str, Any]
    session: Session

    @classmethod
    def of_file(cls, file: OnnxFile) -> QueuePolicy:
        """Return the policy of an open file.

        Raises:
            ModelError: it is not a model for this version, or fails its dry run.
        """
        metadata = file.metadata([SCHEMA])
        inputs = file.inputs
        if set(inputs) != {INPUT} or OUTPUT not in file.outputs or inputs[INPUT][-1:] != [FEATURES]:
            raise ModelError(
                f"{file.path}: expected one input {INPUT!r} [tasks, {FEATURES}] and an output {OUTPUT!r}, "
                f"got inputs {inputs} and outputs {sorted(file.outputs)}"
            )
        if metadata.get("features") != list(FEATURE_NAMES):
            raise ModelError(f"{file.path}: it reads other features than this version writes")
        policy = cls(file.path.stem, file.digest, metadata, file.session)
        with file.session.trial(file.path):
            for rows in (2, 1):
                policy.scores(np.zeros((rows, FEATURES), np.float32))
        return policy

    def scores(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the scores [tasks] of features [tasks, FEATURES].

        Raises:
            ModelError: the runtime fails, or a score is not finite.
        """
        (scores,) = numbers_from(self.session, [OUTPUT], {INPUT: rows}, self.name)
        if scores.shape != rows.shape[:1] or not np.isfinite(scores).all():
            raise ModelError(f"policy {self.name!r} answered with {scores.shape}, or with a number that is not finite")
        return scores

    def choose(self, state: ClusterState) -> Action:
        """Start one task of the stage with the highest score, or wait if none beats waiting.

        Raises:
            ModelError: the model fails or answers NaN.
        """
        choices = choices_of(state)
        scores = self.scores(choices.rows)
        best = int(np.argmax(scores))
        if scores[best] <= 0.0:
            return Action(WAIT, until_s=state.now_s + INTERVAL_S)
        stage = int(choices.stages[best])
        return Action(START, stage, int(state.stage_running[stage]) + 1)
