"""An ONNX file as every learned policy opens it: read whole, checked against its digest, and run by one thread.

Nothing of a file is executed but the operators of ONNX; its metadata is JSON under the key `fermata`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any, NamedTuple

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from fermata.policy.errors import ModelError

MAX_MODEL_BYTES = 64 * 1024 * 1024  # a policy is a few hundred kilobytes; more is a mistake or an attack
TRIAL_S = 20.0  # for what takes well under a second; an operator gives up on a model after a minute
KEY = "fermata"  # of the metadata
_DIGITS = 18

# What ONNX Runtime raises for a file that it cannot read or run; it has no public base class for these.
RUNTIME_ERRORS = (
    ort_errors.Fail,
    ort_errors.InvalidArgument,
    ort_errors.InvalidGraph,
    ort_errors.InvalidProtobuf,
    ort_errors.NoSuchFile,
    ort_errors.NotImplemented,
    ort_errors.RuntimeException,
    ValueError,
)


class Session:
    """What ONNX Runtime runs of a file. A run can be ended: neither Ctrl-C nor another thread could do that.

    Args:
        loaded: the file, as ONNX Runtime has it.
    """

    def __init__(self, loaded: ort.InferenceSession) -> None:
        self.loaded = loaded
        self._options = ort.RunOptions()
        self._options.log_severity_level = 4

    def run(self, outputs: Sequence[str], inputs: Mapping[str, NDArray[Any]]) -> list[Any]:
        """Return the outputs of these names; raises `RUNTIME_ERRORS`."""
        answers: list[Any] = self.loaded.run(outputs, inputs, self._options)
        return answers

    @contextmanager
    def trial(self, path: Path) -> Iterator[None]:
        """Within it runs are ended when the time is over: a file may hold a loop without end.

        Raises:
            ModelError: it was over; the session is of no more use.
        """
        ended = ModelError(f"{path}: gives no answer within {TRIAL_S:g} s")
        timer = Timer(TRIAL_S, setattr, (self._options, "terminate", True))
        timer.start()
        try:
            yield
        except ModelError as error:
            if self._options.terminate:
                raise ended from error
            raise
        finally:
            timer.cancel()
            timer.join()
        if self._options.terminate:
            raise ended


class OnnxFile(NamedTuple):
    """A file that ONNX Runtime has accepted."""

    path: Path
    digest: str  # sha256, hex
    content: bytes
    session: Session

    @property
    def inputs(self) -> dict[str, Sequence[int | str | None]]:
        """Shapes by name; a name stands for a size that may vary."""
        return {node.name: node.shape for node in self.session.loaded.get_inputs()}

    @property
    def outputs(self) -> set[str]:
        """Names."""
        return {node.name for node in self.session.loaded.get_outputs()}

    def text(self, key: str = KEY) -> str | None:
        """Return what the file says of itself under this key, as it stands there; None: nothing.

        Raises:
            ModelError: it is not text.
        """
        try:
            said: str | None = self.session.loaded.get_modelmeta().custom_metadata_map.get(key)
        except UnicodeDecodeError as error:
            raise ModelError(f"{self.path}: its metadata is not text: {error}") from error
        return said

    def probe(self, output: str, inputs: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        """Return an output, for who has to know what a file answers.

        Raises:
            ModelError: it does not, not in time, or with no array.
        """
        with self.session.trial(self.path):
            try:
                return np.asarray(self.session.run([output], inputs)[0])
            except RUNTIME_ERRORS as error:
                raise ModelError(f"{self.path}: cannot be run: {first_line(error)}") from error

    def metadata(self, schemas: Sequence[str]) -> dict[str, Any]:
        """Return what the file says of itself.

        Raises:
            ModelError: it says nothing, or is of none of these schemas.
        """
        path, raw = self.path, self.text()
        if raw is None:
            expected = "a file written by fermata export-onnx or fermata hpc train --method queue"
            raise ModelError(f"{path}: has no 'fermata' metadata; expected {expected}")
        try:
            metadata = json.loads(raw, parse_int=_whole)
        except (ValueError, RecursionError) as error:
            raise ModelError(f"{path}: its 'fermata' metadata is not JSON: {error}") from error
        if not isinstance(metadata, dict) or metadata.get("schema") not in schemas:
            found = metadata.get("schema") if isinstance(metadata, dict) else type(metadata).__name__
            known = " or ".join(repr(schema) for schema in schemas)
            raise ModelError(f"{path}: feature schema is {found!r}, expected {known}")
        return metadata


def _whole(digits: str) -> int | float:
    """Return a whole number, as a float where it has too many digits for one of 64 bits; inf is what many are."""
    return int(digits) if len(digits) <= _DIGITS else float(digits)


def open_onnx(path: str | Path, sha256: str | None = None) -> OnnxFile:
    """Read a model and check its digest.

    Raises:
        ModelError: the file is missing, too large, not the one that was asked for, or nothing that can be run.
    """
    path = Path(path)
    content = _read(path)
    digest = hashlib.sha256(content).hexdigest()
    if sha256 is not None and digest != sha256.lower().removeprefix("sha256:"):
        raise ModelError(f"{path}: sha256 is {digest}, expected {sha256}")
    options = ort.SessionOptions()
    # One decision is a few microseconds of arithmetic: threads would cost more than they bring.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    # No digest covers weights that lie in other files. ONNX Runtime looks for them here, where nothing can be, and
    # refuses whole paths as of 1.24.
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", os.devnull)
    try:
        # The fallback is another attempt with the same provider, and a notice on standard output.
        session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"], enable_fallback=0)
        file = OnnxFile(path, digest, content, Session(session))
        file.inputs, file.outputs  # noqa: B018 - names that are no text fail here
    except RUNTIME_ERRORS as error:
        raise ModelError(f"{path}: not an ONNX model that can be run: {first_line(error)}") from error
    return file


def _read(path: Path) -> bytes:
    try:
        size = path.stat().st_size
        if size > MAX_MODEL_BYTES:
            raise ModelError(f"{path}: {size} bytes is too large for a policy (at most {MAX_MODEL_BYTES})")
        return path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from error


def numbers_from(
    session: Session, outputs: Sequence[str], inputs: Mapping[str, NDArray[Any]], policy: str
) -> list[NDArray[np.float64]]:
    """Return outputs, by their names, as numbers; `policy` is the name of the one that asks.

    Raises:
        ModelError: the file cannot be run, or an output is no tensor of numbers.
    """
    try:
        return [np.asarray(answer, np.float64) for answer in session.run(outputs, inputs)]
    except (*RUNTIME_ERRORS, TypeError) as error:
        raise ModelError(f"policy {policy!r} failed: {first_line(error)}") from error


def first_line(error: Exception) -> str:
    """Return the first line of an error of ONNX Runtime, which may have many."""
    return str(error).strip().partition("\n")[0]
