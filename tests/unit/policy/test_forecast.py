"""The empirical forecast of short arrivals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fermata.policy.forecast import Forecast, forecast
from fermata.policy.rows import new_values

DOUBT = 10.0


def of(times_s: list[float], now_s: float, horizon_s: float, rate: float) -> Forecast:
    """The forecast from when jobs came."""
    return forecast(new_values(np.array(times_s, float)), len(times_s), now_s, horizon_s, rate)


def by_hand(times: list[float], now_s: float, horizon_s: float, rate: float) -> tuple[float, float]:
    """The same from the definition: every arrival, and what followed it."""
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
    st.lists(times, max_size=60),
    st.integers(0, 400).map(lambda k: k / 16.0),
    st.integers(0, 480).map(lambda k: k / 16.0),
    st.floats(0.0, 3.0),
)
def test_it_is_what_followed_like_moments(arrivals: list[float], later_s: float, horizon_s: float, rate: float) -> None:
    arrivals = sorted(arrivals)
    now_s = max(arrivals, default=0.0) + later_s
    found = of(arrivals, now_s, horizon_s, rate)
    assert tuple(found) == pytest.approx(by_hand(arrivals, now_s, horizon_s, rate), rel=1e-9, abs=1e-9)


def test_a_batch_on_a_schedule_is_due_when_it_is() -> None:
    batches = [100.0 * k + offset for k in range(100) for offset in (0.0, 0.25, 0.5, 0.75)]
    rate, horizon_s = 0.04, 20.0

    def expected(since_s: float) -> float:
        return of(batches, batches[-1] + since_s, horizon_s, rate).arrivals

    at_random = rate * horizon_s
    assert expected(10.0) < 0.2 * at_random
    assert expected(90.0) > 0.8 * 4
    assert expected(500.0) == pytest.approx(at_random)  # that late there never was one


def test_the_sooner_they_come_the_more_of_the_horizon_is_left() -> None:
    batches = [100.0 * k for k in range(200)]
    soon, late = (of(batches, batches[-1] + 90.0, horizon_s, 0.0) for horizon_s in (40.0, 11.0))
    assert soon.arrivals == pytest.approx(late.arrivals, rel=0.01)
    assert soon.earliness / soon.arrivals == pytest.approx(0.75)
    assert late.earliness / late.arrivals == pytest.approx(1.0 / 11.0)
