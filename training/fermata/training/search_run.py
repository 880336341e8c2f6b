"""A training run that is an evolution strategy: its state, in a file after each generation, and the way to its end.

Random numbers are to follow from the seed and the generation: then a run that was killed goes on as if it had not been.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from rich.progress import Progress

from fermata.sim.trace import FloatArray
from fermata.training.files import read_arrays, unfitting, write_arrays
from fermata.training.hpc.evolution import Evolution

STATE_FILE = "search.npz"
_AVERAGE = 0.9  # of the mean centre, a generation


@dataclass(frozen=True)
class State:
    """Where a run is; what a subclass adds is kept in its file, too."""

    generation: int
    search: Evolution
    mean: FloatArray
    best: FloatArray
    least: float  # what the best costs on the episodes that choose

    def after(self, costs: FloatArray, rate: float) -> Self:
        """Return the state after a generation whose candidates cost so much, and whose step has this rate."""
        self.search.learn(costs, rate)
        mean = _AVERAGE * self.mean + (1.0 - _AVERAGE) * self.search.centre
        return replace(self, generation=self.generation + 1, mean=mean)


S = TypeVar("S", bound=State)


def to_the_end(
    state: S, run: Path, total: int, judge_every: int, judge: Callable[[S], S], step: Callable[[S], S], bar: Progress
) -> S:
    """Return the last state of a run.

    Args:
        state: where the run is.
        run: its folder.
        total: generations of the whole run.
        judge_every: generations between two looks; there is one at the beginning and at the end, too.
        judge: looks at a state, and keeps the best so far.
        step: plays a generation.
        bar: shows how far it is.
    """
    task = bar.add_task("generations", total=total, completed=state.generation)
    while True:
        if state.generation % judge_every == 0 or state.generation == total:
            state = judge(state)
            write_arrays(run / STATE_FILE, _saved(state))
        if state.generation == total:
            return state
        state = step(state)
        write_arrays(run / STATE_FILE, _saved(state))
        bar.advance(task)


def read_state(begun: S, run: Path, total: int) -> S:
    """Return the state in which a run was left, or if there is none that in which it begins.

    Raises:
        InputError: the file is damaged, or of another search.
    """
    path = run / STATE_FILE
    if not path.exists():
        return begun
    expected = _saved(begun)
    found = read_arrays(path, tuple(expected))
    fitting = all(found[name].shape == np.shape(value) for name, value in expected.items())
    if not fitting or not 0 <= found["generation"] <= total:
        raise unfitting(path)
    centre, moment, spread = (found.pop(name) for name in ("centre", "moment", "spread"))
    begun.search.resume(centre, moment, spread, int(found["generation"]))
    values: dict[str, Any] = {name: value if value.ndim else value.item() for name, value in found.items()}
    return replace(begun, **values)


def _saved(state: State) -> dict[str, Any]:
    """Return what is kept of a state, by name."""
    centre, moment, spread = state.search.state()
    saved = {"generation": state.generation, "centre": centre, "moment": moment, "spread": spread}
    return saved | {name: value for name, value in vars(state).items() if name != "search"}
