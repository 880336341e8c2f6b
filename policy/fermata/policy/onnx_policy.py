"""A learned policy through ONNX Runtime: one file, checked before it is used, that runs no code of its own.

The file takes `features` [decisions, SIZE] and gives `cost` [decisions, 3] (`fermata.policy.learned`); its metadata
says which feature schema it was trained for, its margin, and where it comes from.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from fermata.policy.action import Action
from fermata.policy.board import Board
from fermata.policy.decide import BoardPolicy
from fermata.policy.errors import ModelError
from fermata.policy.features import SCHEMA, SIZE, observe_board
from fermata.policy.learned import ACTIONS, cheapest

MAX_MODEL_BYTES = 64 * 1024 * 1024  # a policy is a few hundred kilobytes; more is a mistake or an attack
INPUT, OUTPUT = "features", "cost"
ACTION_SPACE = "wait"

# What ONNX Runtime raises for a file that it cannot read or run; it has no public base class for these.
_RUNTIME_ERRORS = (
    ort_errors.Fail,
    ort_errors.InvalidArgument,
    ort_errors.InvalidGraph,
    ort_errors.InvalidProtobuf,
    ort_errors.NoSuchFile,
    ort_errors.NotImplemented,
    ort_errors.RuntimeException,
    ValueError,
)


@dataclass(frozen=True)
class OnnxPolicy(BoardPolicy):
    """A loaded and dry-run model; build it with `load`."""

    name: str
    digest: str  # sha256 of the file, hex
    margin: float  # mean JCTs
    metadata: Mapping[str, Any]
    session: ort.InferenceSession

    @classmethod
    def load(cls, path: str | Path, sha256: str | None = None) -> OnnxPolicy:
        """Read a model, check its digest, schema, inputs and outputs, and run it once.

        Raises:
            ModelError: the file is missing, too large, not the one that was asked for, not a model for this
                version, or fails its dry run.
        """
        path = Path(path)
        content = _read(path)
        digest = hashlib.sha256(content).hexdigest()
        if sha256 is not None and digest != sha256.lower().removeprefix("sha256:"):
            raise ModelError(f"{path}: sha256 is {digest}, expected {sha256}")
        session = _session(path, content)
        metadata = _metadata(path, session)
        margin = float(metadata.get("margin", 0.0))
        policy = cls(path.stem, digest, margin, metadata, session)
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
        """Return the costs [decisions, 3] of features [decisions, SIZE].

        Raises:
            ModelError: the runtime fails, or a cost is not finite.
        """
        try:
            (answer,) = self.session.run([OUTPUT], {INPUT: rows})
            costs = np.asarray(answer, dtype=np.float64)  # an output may be no tensor at all
        except (*_RUNTIME_ERRORS, TypeError) as error:
            raise ModelError(f"policy {self.name!r} failed: {_first_line(error)}") from error
        if not np.isfinite(costs).all():
            raise ModelError(f"policy {self.name!r} answered with a number that is not finite")
        return costs

    def act(self, board: Board) -> Action:
        """Return the cheapest action by the model.

        Raises:
            ModelError: the model fails or answers NaN.
        """
        choice, row = observe_board(board)
        costs = self.costs(row[np.newaxis])[0]
        return Action(*cheapest(board, choice, costs, self.margin))


def _read(path: Path) -> bytes:
    try:
        size = path.stat().st_size
        if size > MAX_MODEL_BYTES:
            raise ModelError(f"{path}: {size} bytes is too large for a policy (at most {MAX_MODEL_BYTES})")
        return path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from error


def _session(path: Path, content: bytes) -> ort.InferenceSession:
    options = ort.SessionOptions()
    # One decision is a few microseconds of arithmetic: threads would cost more than they bring.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        # The fallback is another attempt with the same provider, and a notice on standard output.
        session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"], enable_fallback=0)
        inputs = {node.name: node.shape for node in session.get_inputs()}
        outputs = {node.name for node in session.get_outputs()}
    except _RUNTIME_ERRORS as error:
        raise ModelError(f"{path}: not an ONNX model that can be run: {_first_line(error)}") from error
    if set(inputs) != {INPUT} or OUTPUT not in outputs or inputs[INPUT][-1:] != [SIZE]:
        raise ModelError(
            f"{path}: expected one input {INPUT!r} [decisions, {SIZE}] and an output {OUTPUT!r}, "
            f"got inputs {inputs} and outputs {sorted(outputs)}"
        )
    return session


def _metadata(path: Path, session: ort.InferenceSession) -> dict[str, Any]:
    try:
        raw = session.get_modelmeta().custom_metadata_map.get("fermata")
    except UnicodeDecodeError as error:
        raise ModelError(f"{path}: its metadata is not text: {error}") from error
    if raw is None:
        raise ModelError(f"{path}: has no 'fermata' metadata; expected a file written by fermata export-onnx")
    try:
        metadata = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: its 'fermata' metadata is not JSON: {error}") from error
    if not isinstance(metadata, dict) or metadata.get("schema") != SCHEMA:
        found = metadata.get("schema") if isinstance(metadata, dict) else type(metadata).__name__
        raise ModelError(f"{path}: feature schema is {found!r}, this version reads {SCHEMA!r}")
    margin = metadata.get("margin", 0.0)
    if not isinstance(margin, int | float) or not abs(margin) < math.inf:
        raise ModelError(f"{path}: margin {margin!r} in its metadata is not a finite number")
    return metadata


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
