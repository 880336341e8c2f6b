"""What a graph network's answer may mean: action spaces, and from scores to one action.

A choice is made in parts: a startable stage or a wait, then how much of the stage to start, and in the papers' space
for how long to hold it first. What is not allowed has a score of `IMPOSSIBLE`, so it is never the best
and is drawn with probability 0.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.policy.action import HOLD, START, WAIT, Action
from fermata.policy.dag import Positions
from fermata.policy.graph_rows import Mask
from fermata.policy.graph_state import Menu

WAIT_SPACE, PAPER_SPACE, NO_IDLING = "wait", "paper", "none"
SPACES = (WAIT_SPACE, PAPER_SPACE, NO_IDLING)
IMPOSSIBLE = -1e9
WAIT_CHOICE = -1


class Space(NamedTuple):
    """An action space.

    `wait`: a stage with a cap, or nothing until the next event. `paper`: each stage may be held once, for r * l / g
    seconds with r = 0..g and l the expected length of one of its tasks, by a timer that is kept whatever happens.
    `none`: a stage with a cap, always.
    """

    kind: str = WAIT_SPACE
    steps: int = 4  # g of `paper`
    wake_up: bool = True  # a wait of `wait` is reconsidered after a part of the time to the next completion

    @property
    def delays(self) -> int:
        """How many delays a stage has to choose between, none included; 1 but in `paper`."""
        return self.steps + 1 if self.kind == PAPER_SPACE else 1


class Scores(NamedTuple):
    """A network's answer for one state; impossible choices are at `IMPOSSIBLE` or below."""

    stage: NDArray[np.floating]  # [c]
    option: NDArray[np.floating]  # [c, OPTIONS]
    delay: NDArray[np.floating]  # [c, delays]
    wait: float


class Choice(NamedTuple):
    """What was chosen: a row of the menu (or WAIT_CHOICE), an option and a delay of it."""

    row: int
    option: int = 0
    delay: int = 0


def best(scores: Scores) -> Choice:
    """Return the choice with the highest scores, part by part; ties go to the lower index, and to a start."""
    row = int(np.argmax(scores.stage))
    if scores.wait > scores.stage[row]:
        return Choice(WAIT_CHOICE)
    return Choice(row, int(np.argmax(scores.option[row])), int(np.argmax(scores.delay[row])))


def action_of(menu: Menu, choice: Choice, space: Space, state: int = 0) -> Action:
    """Return the action that a choice in one of the menu's states stands for."""
    if choice.row == WAIT_CHOICE:
        return Action(WAIT, -1, 0, float(menu.wake_s[state]) if space.wake_up else math.inf)
    stage = int(menu.stages[choice.row])
    if choice.delay > 0:
        now_s = float(menu.now_s[state])
        until_s = now_s + choice.delay * float(menu.task_s[choice.row]) / space.steps
        if until_s > now_s:  # a hold below the clock's resolution is none
            return Action(HOLD, stage, 0, until_s)
    return Action(START, stage, int(menu.caps[choice.row, choice.option]), math.inf)


class BatchScores(NamedTuple):
    """A network's answer for `s` states with `c` choices in all; see `Scores`."""

    stage: NDArray[np.floating]  # [c]
    option: NDArray[np.floating]  # [c, OPTIONS]
    delay: NDArray[np.floating]  # [c, delays]
    wait: NDArray[np.floating]  # [s]
    first: Positions  # [s + 1] where the choices of each state begin; each has at least one


class Choices(NamedTuple):
    """What was chosen in each state: a row of the choices of all (or WAIT_CHOICE), an option and a delay of it."""

    row: Positions  # [s]
    option: Positions  # [s]
    delay: Positions  # [s]


def choices_of(row: Positions, waits: Mask, option: Positions, delay: Positions) -> Choices:
    """Return choices in which a wait has no parts."""
    return Choices(np.where(waits, WAIT_CHOICE, row), np.where(waits, 0, option), np.where(waits, 0, delay))


def best_choices(scores: BatchScores) -> Choices:
    """Return the choices with the highest scores, part by part; ties go to the lower index, and to a start."""
    begin = scores.first[:-1]
    highest = np.maximum.reduceat(scores.stage, begin)
    is_highest = np.flatnonzero(scores.stage == np.repeat(highest, np.diff(scores.first)))
    row = is_highest[np.searchsorted(is_highest, begin)]
    option, delay = scores.option[row].argmax(axis=1), scores.delay[row].argmax(axis=1)
    return choices_of(row, scores.wait > highest, option, delay)
