"""How much longer a running task takes: against samples, and at its limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermata.policy.remaining import expected_left_s


@pytest.mark.parametrize("sigma", [0.1, 0.2, 0.7])
@pytest.mark.parametrize("passed_s", [10.0, 80.0, 100.0, 120.0])
def test_it_is_the_mean_of_what_is_left_of_longer_ones(sigma: float, passed_s: float) -> None:
    sample = 100.0 * np.random.default_rng(1).lognormal(-0.5 * sigma**2, sigma, 1_000_000)
    longer = sample[sample > passed_s]
    error = sigma * math.sqrt(2.0 / math.pi)
    expected = float((longer - passed_s).mean())
    assert expected_left_s(100.0 - passed_s, 100.0, error) == pytest.approx(expected, rel=0.02)


@given(st.floats(-1e6, 1e3), st.floats(1e-3, 1e3), st.floats(0.0, 5.0))
def test_it_is_never_less_than_the_estimate_leaves(left_s: float, estimate_s: float, error: float) -> None:
    left_s = min(left_s, estimate_s)
    found = expected_left_s(left_s, estimate_s, error)
    assert math.isfinite(found)
    assert found >= max(left_s, 0.0)


@pytest.mark.parametrize("unit_s", [1e-6, 1e-3, 1e3, 1e6])
@pytest.mark.parametrize("passed", [0.5, 1.0, 1.5, 30.0])
def test_it_is_the_same_in_any_unit(passed: float, unit_s: float) -> None:
    expected = unit_s * expected_left_s(1.0 - passed, 1.0, 0.5)
    assert expected_left_s((1.0 - passed) * unit_s, unit_s, 0.5) == pytest.approx(expected, rel=1e-9)


def test_exact_estimates_are_taken_at_their_word() -> None:
    assert expected_left_s(7.0, 10.0, 0.0) == 7.0
    assert expected_left_s(-3.0, 10.0, 0.0) == 0.0


def test_a_task_far_beyond_its_estimate_is_expected_to_take_a_share_of_what_it_took() -> None:
    for passed_s in (1e3, 1e6, 1e12):
        found = expected_left_s(10.0 - passed_s, 10.0, 0.16)
        assert 0.0 < found < 0.5 * passed_s


def test_far_beyond_its_estimate_a_task_takes_the_tails_own_slope() -> None:
    error = 0.5 * math.sqrt(2.0 / math.pi)  # a spread of 0.5: exp(2) times the estimate is 4.25 of it beyond the mean
    passed_s = 10.0 * math.exp(2.0)
    assert expected_left_s(10.0 - passed_s, 10.0, error) == pytest.approx(passed_s * 0.5 / 4.25)


def test_an_estimate_of_next_to_nothing_says_nothing_compiled_or_not() -> None:
    plain = getattr(expected_left_s, "py_func", expected_left_s)
    assert plain(-1e12, 1e-320, 0.5) == expected_left_s(-1e12, 1e-320, 0.5) == 0.0
