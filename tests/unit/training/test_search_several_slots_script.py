"""`scripts/search_several_slots.py` goes on where it was ended, finds what costs less, and writes what it found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.scripts import script

pytest.importorskip("torch")  # of what keeps the state
from fermata.policy.slot_weights import SLOT_WEIGHTS
from fermata.sim.world import new_world, tables_of
from fermata.training.hpc.runs import Kept, to_the_end

search_several_slots = script("search_several_slots")
EPISODE = search_several_slots.Episode(3012, 1, 20)  # two executors, and short


class Here:
    """A pool of no processes."""

    def map(self, function: Callable[..., Any], *lists: Iterable[Any], chunksize: int) -> Iterator[Any]:
        return map(function, *lists)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "EPISODES": 2,
        "PAIRS": 1,
        "JUDGE_EVERY": 1,
        "CHOSEN": range(3012, 3013),
        "SHORTENED": 20,
    }.items():
        monkeypatch.setattr(search_several_slots, name, value)


def found_in(generations: list[int], kept: Kept) -> Any:
    for until in generations:
        search = search_several_slots._Search(Here(), 3, 1)
        to_the_end(search, until, search_several_slots._State, kept, None)
    return search


@pytest.mark.usefixtures("small")
def test_a_search_goes_on_where_it_was_ended(tmp_path: Path) -> None:
    at_once, in_two = (found_in(steps, Kept(tmp_path / f"{len(steps)}.pt")) for steps in ([3], [1, 3]))
    assert at_once.best.tolist() == in_two.best.tolist()
    assert [row[:4] for row in at_once.rows] == [row[:4] for row in in_two.rows]
    assert [row.generation for row in in_two.rows] == [0, 1, 2, 3]
    assert at_once.least == min(row.cost for row in at_once.rows)


@pytest.mark.usefixtures("small")
def test_candidates_are_played_by_their_own_weights() -> None:
    begin = search_several_slots.beginning(1)
    backwards = begin.copy()
    backwards[:2] *= -1.0  # the longest first
    one, other, again = search_several_slots.logarithms(EPISODE, np.array([begin, backwards, begin]))
    assert one == again < other
    assert np.isnan(search_several_slots.logarithms(search_several_slots.Episode(3253, 1), begin[np.newaxis])).all()


def test_what_is_slower_costs_more_than_what_is_as_much_faster() -> None:
    found = np.array([[-0.1, 0.1, 0.004], [0.1, -0.1, 0.004], [math.nan, math.nan, math.nan]])
    cost = search_several_slots.costs(found)
    more = 0.5 * search_several_slots.BEHIND * (0.1 - search_several_slots.ALLOWED)
    assert cost == pytest.approx([more, more, 0.004])


def test_what_is_written_are_the_weights_as_they_were_judged() -> None:
    weights = search_several_slots.rounded(np.random.default_rng(1).standard_normal(len(SLOT_WEIGHTS)))
    read: dict[str, Any] = {}
    exec(search_several_slots.text_of(weights), read)
    assert read["SLOT_WEIGHTS"] == tuple(weights.tolist())


def test_a_board_has_the_shipped_weights() -> None:
    trace, executors = search_several_slots._trace(EPISODE)
    board = new_world(tables_of(trace, executors), executors).board
    assert list(board.slot_weights) == list(SLOT_WEIGHTS)
