"""What a graph network's answer may mean: action spaces, and from scores to one action.

A choice is made in parts: a startable stage or a wait, then how much of the stage to start, and in the papers' space
for how long to hold it first. What is not allowed has a score of `IMPOSSIBLE`, so it is never the best and is drawn
with probability 0.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.policy.action import HOLD, START, WAIT, Action
from fermata.policy.graph_state import Floats, Menu

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


def action_of(menu: Menu, choice: Choice, space: Space) -> Action:
    """Return the action that a choice stands for."""
    if choice.row == WAIT_CHOICE:
        return Action(WAIT, -1, 0, menu.wake_s if space.wake_up else math.inf)
    stage = int(menu.stages[choice.row])
    if choice.delay > 0:
        until_s = menu.now_s + choice.delay * float(menu.task_s[choice.row]) / space.steps
        if until_s > menu.now_s:  # a hold below the clock's resolution is none
            return Action(HOLD, stage, 0, until_s)
    return Action(START, stage, int(menu.caps[choice.row, choice.option]), math.inf)


def draw(scores: Scores, random: np.random.Generator) -> Choice:
    """Return a choice drawn with the probabilities that the scores are the logarithms of, part by part."""
    row = _drawn(np.append(scores.stage, scores.wait), random)
    if row == len(scores.stage):
        return Choice(WAIT_CHOICE)
    return Choice(row, _drawn(scores.option[row], random), _drawn(scores.delay[row], random))


def _drawn(scores: NDArray[np.floating], random: np.random.Generator) -> int:
    """Return an index drawn from a softmax; one number is drawn even where there is no choice."""
    at = random.random()
    weight: Floats = np.exp(scores.astype(np.float64) - scores.max())
    weight[scores <= 0.5 * IMPOSSIBLE] = 0.0
    total = np.cumsum(weight)
    return int(np.searchsorted(total, at * total[-1], side="right"))
