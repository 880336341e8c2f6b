"""What a training run shows while it works: bars at a terminal, and lines, one a minute at the most, in a log."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from fermata.sim.ticking import LINE_EVERY_S, TICK_S, every

_SPEED_OVER_S = 600.0  # by default a bar goes by 30 s, and a generation of a search takes as long


def shown(console: Console) -> Progress:
    """Return the progress of a run, for a `with`: bars where lines of the console can be written anew, else lines."""
    columns: tuple[ProgressColumn, ...] = (
        TextColumn("{task.description}", markup=False),  # a configuration's name may have brackets
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    kind = Progress if console.is_interactive else _Lines
    return kind(*columns, console=console, speed_estimate_period=_SPEED_OVER_S)


class _Lines(Progress):
    """Progress in a file or a pod's log, where a bar would be seen only when all is over.

    A task is told when it begins, when it ends, and in between once in `LINE_EVERY_S`, also if nothing was done: what
    compiles, or searches for long, is not to look as if it hung.
    """

    def __init__(self, *columns: ProgressColumn, **settings: Any) -> None:
        super().__init__(*columns, **settings, disable=True)
        self._told: dict[TaskID, tuple[float, float]] = {}  # when, s, and how much was done
        self._ticking = ExitStack()

    def start(self) -> None:
        super().start()
        self._ticking.enter_context(every(TICK_S, self.tick))

    def add_task(self, *args: Any, **settings: Any) -> TaskID:
        task_id = super().add_task(*args, **settings)
        self._tell(task_id)
        return task_id

    def update(self, task_id: TaskID, **changes: Any) -> None:
        super().update(task_id, **changes)
        self._tell(task_id)

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        super().advance(task_id, advance)
        self._tell(task_id)

    def stop(self) -> None:
        """Tell where each task that did not end is left."""
        self._ticking.close()
        for task_id in self.task_ids:
            self._tell(task_id, at_last=True)
        super().stop()

    def tick(self) -> None:
        """Tell of the task that was told of last of those that go on, if that was long ago."""
        with self._lock:
            going_on = [task_id for task_id in self._told if self._tasks[task_id].remaining]
            if going_on:
                self._tell(max(going_on, key=lambda task_id: self._told[task_id][0]), goes_on=True)

    def _tell(self, task_id: TaskID, at_last: bool = False, goes_on: bool = False) -> None:
        with self._lock:  # fits run in threads
            task, now = self._tasks[task_id], self.get_time()
            when, completed = self._told.get(task_id, (-LINE_EVERY_S, -1.0))
            is_due = at_last or task.finished or now - when >= LINE_EVERY_S
            if not task.visible or not is_due or (task.completed == completed and not goes_on):
                return
            self._told[task_id] = (now, task.completed)
            line = f"{task.description}: {task.completed:.0f} of {task.total:.0f}, {_clock(task.elapsed)} passed"
            if task.time_remaining:
                line += f", {_clock(task.time_remaining)} to go"
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)


def _clock(seconds: float | None) -> str:
    """Say a time as H:MM:SS."""
    return str(timedelta(seconds=round(seconds or 0.0)))
