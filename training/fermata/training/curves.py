"""What a run is like while it learns, as scalars that TensorBoard shows.

torch's own writer leaves them to a thread: a process that is killed loses those of up to two minutes, and a full disk
is told by that thread, in a traceback that names no file.
"""

from __future__ import annotations

import io
import os
import socket
import threading
import time
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from fermata.sim.files import unwritable

_VERSION = "brain.Event:2"


class Curves:
    """Scalars in the folder of a run; each is in the file before the next line is executed. Threads may share one.

    Args:
        run: the folder.
        purge_step: what an earlier process wrote of this step and later ones is shown no more.
        part: of the run, whose steps are its own; what is shown no more is of it alone.

    Raises:
        InputError: the file cannot be written; all methods do.
    """

    def __init__(self, run: Path, purge_step: int | None = None, part: str = "") -> None:
        folder = run / "tensorboard" / part
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"events.out.tfevents.{time.time():010.0f}.{socket.gethostname()}.{os.getpid()}"
        self._lock = threading.Lock()
        self._write(Event(wall_time=time.time(), file_version=_VERSION))
        if purge_step is not None:
            self._write(Event(step=purge_step, file_version=_VERSION))
            self._write(Event(step=purge_step, session_log=SessionLog(status=SessionLog.START)))

    def add_scalar(self, name: str, value: float, step: int) -> None:
        """Write a point of a curve."""
        summary = Summary(value=[Summary.Value(tag=name, simple_value=value)])
        self._write(Event(wall_time=time.time(), step=step, summary=summary))

    def _write(self, event: Event) -> None:
        record = io.BytesIO()
        RecordWriter(record).write(event.SerializeToString())
        try:
            with self._lock, self._path.open("ab") as file:
                file.write(record.getvalue())
        except OSError as error:
            raise unwritable(error, self._path) from error
