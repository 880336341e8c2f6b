"""Decisions written to a file as they are made, each with the state that it was made in.

A line replays anywhere (`fermata.policy.record`), so what happened in a cluster can be asked again in a simulator. The
label `role` tells what was done from what a policy that was only asked (mode Shadow, holding paused) would have done.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO

from fermata.operator.build_state import Keys
from fermata.operator.seat import Decision
from fermata.policy.errors import InputError
from fermata.policy.graph_state import Dag
from fermata.policy.record import Record, dumps
from fermata.policy.state import ClusterState

ACTED, ADVISED = "acted", "advised"


class Recorder:
    """Appends records to a file; without a path it does nothing.

    Raises:
        InputError: the file cannot be written.
    """

    def __init__(self, path: Path | None) -> None:
        self._file: IO[str] | None = None
        if path is not None:
            try:
                self._file = path.open("a", encoding="utf-8")
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
        self._file.write(dumps(Record(state, decision.steps, decision.policy, decision.limits, acted, edges)) + "\n")
        if decision.shadow is not None:
            shadow = decision.shadow
            advised = labels | {"role": [ADVISED]}
            self._file.write(dumps(Record(state, shadow.steps, shadow.policy, decision.limits, advised, edges)) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
