"""Decisions written to a file as they are made, each with the state that it was made in.

A line replays anywhere (`fermata.policy.record`), so what happened in a cluster can be asked again in a simulator. The
label `role` tells what was done from what a policy that was only asked (mode Shadow, holding paused) would have done.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO

from fermata.operator.build_state import Keys
from fermata.operator.seat import Decision
from fermata.policy.dag import Dag
from fermata.policy.errors import InputError
from fermata.policy.record import Record, dumps
from fermata.policy.state import ClusterState

ACTED, ADVISED = "acted", "advised"

log = logging.getLogger(__name__)


class Recorder:
    """Appends records to a file; without a path it does nothing.

    A decision counts, its record is a courtesy: what cannot be written, as on a full disk, is left out.

    Raises:
        InputError: the file cannot be written.
    """

    def __init__(self, path: Path | None) -> None:
        self._file: IO[bytes] | None = None
        self._lost = 0  # decisions since the last one that was written
        if path is not None:
            try:
                self._file = path.open("ab", buffering=0)
            except OSError as error:
                raise InputError(f"cannot record there: {error.strerror}", file=path) from error

    def write(
        self, pool: str, fallback: str, state: ClusterState, keys: Keys, decision: Decision, dag: Callable[[], Dag]
    ) -> None:
        """Append one decision, if there is a file and something was decided; `dag` gives the state's edges."""
        if self._file is None or not decision.steps:
            return
        edges = dag().edges
        labels = {
            "pool": [pool],
            "fallback": [fallback],
            "jobs": list(keys.jobs),
            "stages": [f"{uid}/{stage}" for uid, stage in keys.stages],
        }
        acted = labels | {"role": [ACTED]}
        lines = [dumps(Record(state, decision.steps, decision.policy, decision.limits, acted, edges))]
        if decision.shadow is not None:
            shadow = decision.shadow
            advised = labels | {"role": [ADVISED]}
            lines.append(dumps(Record(state, shadow.steps, shadow.policy, decision.limits, advised, edges)))
        self._append(self._file, "".join(f"{line}\n" for line in lines).encode())

    def _append(self, file: IO[bytes], text: bytes) -> None:
        """Append whole lines, or nothing of them."""
        begin = os.fstat(file.fileno()).st_size
        try:
            while text:
                text = text[file.write(text) :]
        except OSError as error:
            with suppress(OSError):  # no file of a disk, and so no lines to keep whole
                file.truncate(begin)
            if not self._lost:
                log.warning("decisions are not recorded in %s: %s", file.name, error.strerror)
            self._lost += 1
        else:
            if self._lost:
                log.warning("decisions are recorded in %s again; %d are missing", file.name, self._lost)
            self._lost = 0

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
