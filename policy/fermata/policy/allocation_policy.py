"""A network that allocates executors (`fermata.policy.allocation`), through ONNX Runtime.

The graph takes `options` [rows, SIZE] and gives `answer` [rows, 2], each row alone. It stands in a file of its own, or
beside the network of the shipped model in one file (`CombinedPolicy`). The metadata holds the same weights for the
compiled kernel, and both are compared when a file is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fermata.policy.action import Action
from fermata.policy.allocation import (
    ANSWERS,
    FEATURES,
    HIDDEN,
    PARAMETERS,
    SCHEMA,
    SIZE,
    allocate,
    allocator,
    answer_row,
    describe,
)
from fermata.policy.board import Board
from fermata.policy.decide import BoardPolicy
from fermata.policy.errors import ModelError
from fermata.policy.features import SIZE as HOLD_SIZE
from fermata.policy.onnx_file import OnnxFile, Session, numbers_from
from fermata.policy.onnx_policy import INPUT as HOLD_INPUT
from fermata.policy.onnx_policy import OnnxPolicy
from fermata.policy.state import FloatArray
from fermata.policy.weights import expect_finite, unpacked

INPUT, OUTPUT = "options", "answer"
PART = "allocation"  # where a combined file's metadata says about this network what a file of its own says at the top
ACTION_SPACES = ("none", "wait")
TOLERANCE = 1e-5  # between graph and weights, absolute and relative


@dataclass(frozen=True)
class AllocationPolicy(BoardPolicy):
    """A loaded and compared network; build it with `of_file`."""

    name: str
    digest: str  # sha256 of the file, hex
    metadata: Mapping[str, Any]
    session: Session
    theta: FloatArray  # [PARAMETERS]
    may_wait: bool
    others: Mapping[str, NDArray[np.float32]]  # what else the graph must be given

    @classmethod
    def of_file(cls, file: OnnxFile) -> AllocationPolicy:
        """Return the policy of an open file of its own.

        Raises:
            ModelError: it is not a model for this version, or its graph and its weights give different answers.
        """
        return cls._of(file, file.metadata([SCHEMA]), {})

    @classmethod
    def part_of(cls, file: OnnxFile, metadata: Mapping[str, Any]) -> AllocationPolicy:
        """Return the policy in a combined file, given what that says about it; raises what `of_file` does."""
        return cls._of(file, metadata, {HOLD_INPUT: np.zeros((1, HOLD_SIZE), np.float32)})

    @classmethod
    def _of(
        cls, file: OnnxFile, metadata: Mapping[str, Any], others: Mapping[str, NDArray[np.float32]]
    ) -> AllocationPolicy:
        path = file.path
        if metadata.get("schema") != SCHEMA or metadata.get("features") != list(FEATURES):
            raise ModelError(f"{path}: its allocation reads other features than this version writes ({SCHEMA})")
        if metadata.get("action_space") not in ACTION_SPACES:
            raise ModelError(f"{path}: action space {metadata.get('action_space')!r}; expected one of {ACTION_SPACES}")
        if OUTPUT not in file.outputs:
            raise ModelError(f"{path}: has no output {OUTPUT!r} [rows, {ANSWERS}]")
        waits = metadata["action_space"] == "wait"
        policy = cls(path.stem, file.digest, metadata, file.session, _weights(path.name, metadata), waits, others)
        with file.session.trial(path):
            policy.compare(path.name)
        return policy

    def compare(self, what: str) -> float:
        """Return the largest difference between graph and weights on random rows.

        Raises:
            ModelError: it is above `TOLERANCE`.
        """
        rows = np.random.default_rng(0).uniform(-1.0, 2.0, (64, SIZE)).astype(np.float32)
        expected, hidden = np.zeros((len(rows), ANSWERS)), np.zeros(HIDDEN)
        for row, answer in zip(rows.astype(np.float64), expected, strict=True):
            answer_row(self.theta, row, hidden, answer)
        for count in (len(rows), 1):
            difference = np.abs(self.answers(rows[:count]) - expected[:count])
            if not (difference <= TOLERANCE * (1.0 + np.abs(self.theta).max() + np.abs(expected[:count]))).all():
                raise ModelError(f"{what}: its graph and its weights differ by {difference.max():.3g}")
        return float(np.abs(self.answers(rows) - expected).max())

    def answers(self, rows: NDArray[np.float32]) -> FloatArray:
        """Return scores and logarithms of caps [rows, 2] of features [rows, SIZE].

        Raises:
            ModelError: the runtime fails, or an answer is not finite.
        """
        (answers,) = numbers_from(self.session, [OUTPUT], {INPUT: rows, **self.others}, self.name)
        if answers.shape != (len(rows), ANSWERS) or not np.isfinite(answers).all():
            raise ModelError(f"policy {self.name!r} answered with {answers.shape}, or a number that is not finite")
        return answers

    def act(self, board: Board) -> Action:
        """Return the action with the best score.

        Raises:
            ModelError: the model fails or answers NaN.
        """
        to = allocator(self.theta, self.may_wait, len(board.jobs), len(board.stages))
        count = describe(board, to)
        to.answers[:count] = self.answers(to.rows[:count].astype(np.float32))
        kind, stage, cap, until_s = allocate(board, to, count)
        return Action(int(kind), int(stage), int(cap), float(until_s))


@dataclass(frozen=True, eq=False)
class CombinedPolicy(OnnxPolicy):
    """The shipped model: when to hold, and beside it the allocation where executors belong to jobs, in one file."""

    allocation: AllocationPolicy

    @classmethod
    def of_file(cls, file: OnnxFile) -> CombinedPolicy:
        """Return the policy of an open file; raises what `OnnxPolicy.load` does."""
        hold = OnnxPolicy.of_file(file)
        said = hold.metadata.get(PART)
        if not isinstance(said, dict):
            raise ModelError(f"{file.path}: takes {INPUT!r}, but its metadata says nothing of its {PART!r}")
        parts = {each.name: getattr(hold, each.name) for each in fields(hold)}
        return cls(**parts, allocation=AllocationPolicy.part_of(file, said))


def is_combined(file: OnnxFile) -> bool:
    """Tell whether a file that asks for features of a hold can also be given options."""
    return INPUT in {node.name for node in file.session.loaded.get_overridable_initializers()}


def _weights(what: str, metadata: Mapping[str, Any]) -> FloatArray:
    try:
        theta = unpacked(metadata.get("theta", "")).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ModelError(f"{what}: the weights in its metadata cannot be read ({error})") from error
    expect_finite(what, theta, PARAMETERS)
    return theta
