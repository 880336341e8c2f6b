"""A learned policy through ONNX Runtime: one file, checked before it is used, that runs no code of its own.

The file takes `features` [decisions, SIZE] and gives `cost` [decisions, 3] (`fermata.policy.learned`); its metadata
says which feature schema it was trained for, its margin, for how many executors at most it is, where it comes from, and
may have scores of its own for tasks of several executors (`slot_scores`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fermata.policy.action import Action
from fermata.policy.board import Board
from fermata.policy.decide import BoardPolicy
from fermata.policy.errors import ModelError
from fermata.policy.features import SCHEMA, SIZE, observe_board
from fermata.policy.learned import ACTIONS, EXECUTORS, START_HEAD, cheapest, dearer, reach_of
from fermata.policy.onnx_file import MAX_MODEL_BYTES, OnnxFile, Session, numbers_from, open_onnx
from fermata.policy.rows import Values, new_values
from fermata.policy.slot_scores import weights_in

INPUT, OUTPUT = "features", "cost"
ACTION_SPACE = "wait"
TAUGHT_EXECUTORS = "taught_executors"  # in the metadata
_UNASKED = np.zeros(len(ACTIONS))

__all__ = ["ACTION_SPACE", "INPUT", "MAX_MODEL_BYTES", "OUTPUT", "OnnxPolicy"]


@dataclass(frozen=True, eq=False)
class OnnxPolicy(BoardPolicy):
    """A loaded and dry-run model; build it with `load`."""

    name: str
    digest: str  # sha256 of the file, hex
    margin: float  # mean JCTs
    taught_executors: float  # the most that it was taught on; inf: any
    metadata: Mapping[str, Any]
    slot_weights: Values = field(repr=False)  # of the scores where tasks take several executors
    content: bytes = field(repr=False)  # of the file
    session: Session
    corrects_estimates: ClassVar[bool] = True  # a hold is a bet on lengths

    @classmethod
    def load(cls, path: str | Path, sha256: str | None = None) -> OnnxPolicy:
        """Read a model, check its digest, schema, inputs and outputs, and run it once.

        Raises:
            ModelError: the file is missing, too large, not the one that was asked for, not a model for this
                version, or fails its dry run.
        """
        return cls.of_file(open_onnx(path, sha256))

    @classmethod
    def of_file(cls, file: OnnxFile) -> OnnxPolicy:
        """Return the policy of an open file; raises what `load` does."""
        # First what it is: of an inspector, or of a model of before, shapes say nothing to who gave its file.
        metadata = file.metadata([SCHEMA])
        path, inputs, outputs = file.path, file.inputs, file.outputs
        if set(inputs) != {INPUT} or OUTPUT not in outputs or inputs[INPUT][-1:] != [SIZE]:
            raise ModelError(
                f"{path}: expected one input {INPUT!r} [decisions, {SIZE}] and an output {OUTPUT!r}, "
                f"got inputs {inputs} and outputs {sorted(outputs)}"
            )
        margin = metadata.get("margin", 0.0)
        if not isinstance(margin, int | float) or not abs(margin) < math.inf:
            raise ModelError(f"{path}: margin {margin!r} in its metadata is not a finite number")
        taught = metadata.get(TAUGHT_EXECUTORS, math.inf)
        if not isinstance(taught, int | float) or not taught >= 1:
            raise ModelError(f"{path}: {TAUGHT_EXECUTORS} {taught!r} in its metadata is not a number of at least 1")
        weights = new_values(weights_in(str(path), metadata))
        policy = cls(
            path.stem, file.digest, float(margin), float(taught), metadata, weights, file.content, file.session
        )
        with file.session.trial(path):
            policy.dry_run(path)
        return policy

    def dry_run(self, path: Path) -> None:
        """Ask for two decisions at once and for one; every cost must be a finite number.

        Raises:
            ModelError: it fails, or answers with something else.
        """
        for rows in (2, 1):
            costs = self.costs(np.zeros((rows, SIZE), np.float32))
            if costs.shape != (rows, len(ACTIONS)):
                raise ModelError(f"{path}: expected {OUTPUT} of shape ({rows}, {len(ACTIONS)}), got {costs.shape}")

    def costs(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the costs [decisions, 3] of features [decisions, SIZE], dearer on more executors than were taught.

        Raises:
            ModelError: the runtime fails, or a cost is not finite.
        """
        costs = self.answers(rows)
        reach = reach_of(self.taught_executors)
        if (rows[:, EXECUTORS] > reach).any():
            costs[:, START_HEAD + 1 :] += dearer(rows, reach)
        return costs

    def answers(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return what the file says that costs [decisions, 3] are.

        Raises:
            ModelError: the runtime fails, or a cost is not finite.
        """
        (costs,) = numbers_from(self.session, [OUTPUT], {INPUT: rows}, self.name)
        if not np.isfinite(costs).all():
            raise ModelError(f"policy {self.name!r} answered with a number that is not finite")
        return costs

    def scored(self, board: Board) -> Board:
        """Return the same board, on which stages are scored by this model's weights."""
        return board._replace(slot_weights=self.slot_weights)

    def act(self, board: Board) -> Action:
        """Return the cheapest action by the model, or where tasks take several executors what its scores say.

        Raises:
            ModelError: the model fails or answers NaN.
        """
        board = self.scored(board)
        choice, row = observe_board(board, always=False)
        costs = self.costs(row[np.newaxis])[0] if choice.score == math.inf else _UNASKED
        return Action(*cheapest(board, choice, costs, self.margin))
