"""The empirical forecast of short arrivals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.episodes import first_state, one_stage_jobs

from fermata.policy.board import Board, board_of
from fermata.policy.forecast import forecast

DOUBT = 10.0


def seen(arrivals: list[tuple[float, float]], now_s: float) -> Board:
    """A board whose recent arrivals are these (time, work)."""
    arrival_s, work_s = np.array(arrivals, float).reshape(-1, 2).T
    state = first_state(one_stage_jobs((0.0, 1.0)), 1)
    return board_of(state._replace(now_s=now_s, recent_arrival_s=arrival_s, recent_work_s=work_s))


def since_last(arrivals: list[tuple[float, float]], now_s: float, below: float) -> float:
    """How long ago the last short one came."""
    return now_s - max((time for time, work in arrivals if work < below), default=-np.inf)


def by_hand(
    arrivals: list[tuple[float, float]], now_s: float, below: float, horizon_s: float, rate: float
) -> tuple[float, float]:
    """The same from the definition: every short arrival, and what followed it."""
    times = [time for time, work in arrivals if work < below]
    counts, early = [], []
    since_s = now_s - times[-1] if times else np.inf
    for i, time in enumerate(times[:-1]):
        end_s = time + since_s + horizon_s
        if times[i + 1] - time > since_s and end_s <= now_s:
            after = [each for each in times[i + 1 :] if each <= end_s]
            counts.append(len(after))
            early.append(sum(end_s - each for each in after) / horizon_s if horizon_s else 0.0)
    mean = rate * horizon_s
    weight = len(counts) + DOUBT
    return (sum(counts) + DOUBT * mean) / weight, (sum(early) + 0.5 * DOUBT * mean) / weight


# Sixteenths of a second are exact in binary, so sums in another order are the same.
times = st.integers(0, 1600).map(lambda k: k / 16.0)


@settings(deadline=None)  # the first call compiles
@given(
    st.lists(st.tuples(times, st.sampled_from([1.0, 5.0])), min_size=1, max_size=60),
    st.integers(0, 400).map(lambda k: k / 16.0),
    st.integers(0, 480).map(lambda k: k / 16.0),
    st.floats(0.0, 3.0),
)
def test_it_is_what_followed_like_moments(
    arrivals: list[tuple[float, float]], later_s: float, horizon_s: float, rate: float
) -> None:
    arrivals = sorted(arrivals)
    now_s = arrivals[-1][0] + later_s
    found = forecast(seen(arrivals, now_s), 2.0, since_last(arrivals, now_s, 2.0), horizon_s, rate)
    assert tuple(found) == pytest.approx(by_hand(arrivals, now_s, 2.0, horizon_s, rate), rel=1e-9, abs=1e-9)


def test_a_batch_on_a_schedule_is_due_when_it_is() -> None:
    batches = [(100.0 * k + offset, 1.0) for k in range(100) for offset in (0.0, 0.25, 0.5, 0.75)]
    rate, horizon_s = 0.04, 20.0

    def expected(since_s: float) -> float:
        return forecast(seen(batches, batches[-1][0] + since_s), 2.0, since_s, horizon_s, rate).arrivals

    at_random = rate * horizon_s
    assert expected(10.0) < 0.2 * at_random
    assert expected(90.0) > 0.8 * 4
    assert expected(500.0) == pytest.approx(at_random)  # that late there never was one


def test_the_sooner_they_come_the_more_of_the_horizon_is_left() -> None:
    batches = [(100.0 * k, 1.0) for k in range(200)]
    board = seen(batches, batches[-1][0] + 90.0)
    soon, late = (forecast(board, 2.0, 90.0, horizon_s, 0.0) for horizon_s in (40.0, 11.0))
    assert soon.arrivals == pytest.approx(late.arrivals, rel=0.01)
    assert soon.earliness / soon.arrivals == pytest.approx(0.75)
    assert late.earliness / late.arrivals == pytest.approx(1.0 / 11.0)
