"""Estimates corrected by what finished stages took: what it learns, when it counts, and what it forgets."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fermata.policy.correction import Correction, Lessons, corrected_s, learn, learn_order, new_correction, pays
from fermata.policy.rows import new_rows, peek

SECONDS = st.floats(1e-3, 1e9)


def _learned(pairs: Iterable[tuple[float, float]]) -> Correction:
    past = new_correction()
    for estimate_s, duration_s in pairs:
        learn(past, float(estimate_s), float(duration_s))
    return past


def _two_sizes(seed: int, stages: int, sigma: float) -> tuple[np.ndarray, np.ndarray]:
    """Estimates and durations of stages of 10 s and, one in ten, of 200 s."""
    rng = np.random.default_rng(seed)
    duration_s = np.where(rng.random(stages) < 0.1, 200.0, 10.0)
    return duration_s * rng.lognormal(0.0, sigma, stages), duration_s


def test_without_lessons_an_estimate_is_what_it_is() -> None:
    past = new_correction()
    assert corrected_s(past, 42.0) == pytest.approx(42.0)
    assert not pays(past)


def test_one_lesson_by_hand() -> None:
    # One stage of 10 s took 30: it counts 400/399, and the estimate itself 0.3 of that.
    assert corrected_s(_learned([(10.0, 30.0)]), 10.0) == pytest.approx((0.3 * 10.0 + 30.0) / 1.3)
    # Four entries away, on either side, it counts exp(-2), five entries away nothing.
    near = math.exp(-2.0)
    for away_s in (5.0, 20.0):
        expected_s = (0.3 * away_s + near * 30.0) / (0.3 + near)
        assert corrected_s(_learned([(10.0, 30.0)]), away_s) == pytest.approx(expected_s)
    assert corrected_s(_learned([(10.0, 30.0)]), 10.0 * 2.0**1.25) == pytest.approx(10.0 * 2.0**1.25)


def test_an_estimate_belongs_to_the_nearest_entry_and_a_lesson_fades_by_hand() -> None:
    # 1.15 is 0.81 entries above 1.
    near = math.exp(-0.125)
    assert corrected_s(_learned([(1.0, 3.0)]), 1.15) == pytest.approx((0.3 * 1.15 + near * 3.0) / (0.3 + near))
    before = 399.0 / 400.0
    expected_s = (0.3 * 10.0 + before * 30.0 + 10.0) / (0.3 + before + 1.0)
    assert corrected_s(_learned([(10.0, 30.0), (10.0, 10.0)]), 10.0) == pytest.approx(expected_s, rel=1e-9)


def test_what_takes_no_time_counts_as_a_thousandth_of_a_second() -> None:
    past = _learned([(10.0, 0.0)])
    assert corrected_s(past, 10.0) == pytest.approx((0.3 * 10.0 + 0.001) / 1.3)
    assert peek(past.lessons).given_error == pytest.approx(math.log(1e4))
    assert peek(_learned([(1e-6, 0.0)]).lessons).given_error == 0.0, "and so does an estimate"


def test_how_far_estimates_missed_fades_over_a_hundred_stages() -> None:
    lessons = peek(_learned([(10.0, 30.0)] * 150 + [(10.0, 10.0)]).lessons)
    assert lessons.given_error == pytest.approx(0.99 * math.log(3.0))


def test_how_far_estimates_and_their_correction_missed_by_hand() -> None:
    lessons = peek(_learned([(10.0, 30.0), (10.0, 10.0)]).lessons)
    expected_s = (0.3 * 10.0 + 30.0) / 1.3  # of the second stage, after the first
    assert lessons.given_error == pytest.approx(math.log(3.0) / 2.0)
    assert lessons.corrected_error == pytest.approx((math.log(3.0) + math.log(expected_s / 10.0)) / 2.0)


def test_what_a_wrong_order_would_cost_by_hand() -> None:
    past = new_correction()
    # 10 and 30 s of work: both have the longer first, all that can be wrong. Then 20 s, by 10 s from either: the
    # given estimate has it longer than both, the expected one is wrong of both.
    for job in ((5.0, 9.0, 10.0), (4.0, 1.0, 30.0), (8.0, 5.0, 20.0)):
        learn_order(past, *job)
    lessons = peek(past.lessons)
    assert (lessons.given_disorder, lessons.corrected_disorder) == (pytest.approx((1.0 + 0.5) / 2.0), 1.0)
    # Longer by estimate than the one of 30 s, which is wrong; about as long as the one of 10 s, which is half wrong.
    learn_order(past, 6.0, 9.0, 20.0)
    assert lessons.given_disorder == pytest.approx((1.0 + 0.5 + (10.0 + 0.5 * 10.0) / 20.0) / 3.0)


def test_an_order_is_that_among_the_last_fifty_jobs_by_hand() -> None:
    past = new_correction()
    learn_order(past, 1.0, 1.0, 100.0)
    for _ in range(49):
        learn_order(past, 10.0, 10.0, 10.0)  # in the wrong order with the first one, which took 90 s longer
    assert peek(past.lessons).given_disorder == pytest.approx(1.0)
    learn_order(past, 10.0, 10.0, 20.0)  # so is this, by 80 s; with the others, by 10 s each, it is half wrong
    after = (49.0 + (80.0 + 0.5 * 490.0) / 570.0) / 50.0
    assert peek(past.lessons).given_disorder == pytest.approx(after)
    learn_order(past, 10.0, 10.0, 20.0)  # the first one is forgotten
    assert peek(past.lessons).given_disorder == pytest.approx((50.0 * after + 0.5) / 51.0)


def test_jobs_that_took_the_same_say_nothing_of_their_order() -> None:
    past = new_correction()
    for given_s in (1.0, 2.0, 3.0):
        learn_order(past, given_s, given_s, 5.0)
    assert peek(past.lessons).given_disorder == 0.0


@pytest.mark.parametrize(
    ("errors", "disorders", "expected"),
    [
        ((1.0, 0.89), (0.4, 0.4), True),
        ((1.0, 0.91), (0.4, 0.4), False),  # a tenth less is what it takes
        ((1.0, 0.5), (0.4, 0.449), True),
        ((1.0, 0.5), (0.4, 0.451), False),  # a twentieth more, and 0.03
    ],
)
def test_a_correction_counts_as_long_as_it_is_clearly_better_and_not_clearly_worse_in_order(
    errors: tuple[float, float], disorders: tuple[float, float], expected: bool
) -> None:
    known = {"seen": 40, "given_error": errors[0], "corrected_error": errors[1]}
    known |= {"given_disorder": disorders[0], "corrected_disorder": disorders[1]}
    assert pays(new_correction()._replace(lessons=new_rows(Lessons, 1, known))) == expected


def test_a_correction_that_puts_jobs_in_a_worse_order_does_not_count() -> None:
    past = _learned(zip(*_two_sizes(1, 400, 0.7), strict=True))
    rng = np.random.default_rng(5)
    for took_s in rng.lognormal(3.0, 1.0, 60).tolist():
        learn_order(past, took_s, took_s, took_s)
    assert pays(past)
    for took_s in rng.lognormal(3.0, 1.0, 60).tolist():
        learn_order(past, took_s, 1.0 / took_s, took_s)
    assert not pays(past)
    for took_s in rng.lognormal(3.0, 1.0, 600).tolist():  # it is forgotten
        learn_order(past, took_s, took_s, took_s)
    assert pays(past)


def test_a_bias_is_taken_out() -> None:
    rng = np.random.default_rng(1)
    duration_s = rng.lognormal(3.0, 1.0, 400)
    past = _learned(zip(3.0 * duration_s, duration_s, strict=True))
    assert pays(past)
    assert corrected_s(past, 60.0) == pytest.approx(20.0, rel=0.15)


def test_sizes_that_differ_by_more_than_estimates_miss_are_told_apart() -> None:
    past = _learned(zip(*_two_sizes(1, 400, 0.7), strict=True))
    assert pays(past)
    assert corrected_s(past, 5.0) == pytest.approx(10.0, rel=0.1)
    assert corrected_s(past, 20.0) == pytest.approx(10.0, rel=0.2)
    assert corrected_s(past, 400.0) == pytest.approx(200.0, rel=0.1)


def test_right_estimates_are_left_alone() -> None:
    assert not pays(_learned(zip(*_two_sizes(1, 2000, 0.0), strict=True)))


def test_estimates_that_miss_by_less_than_a_twentieth_are_left_alone() -> None:
    assert not pays(_learned([(10.0, 10.5)] * 400))  # ln 1.05 is 0.049
    assert pays(_learned([(10.0, 10.52)] * 400))


def test_chance_that_nobody_can_know_is_left_alone() -> None:
    rng = np.random.default_rng(2)
    estimate_s = rng.lognormal(3.0, 1.5, 2000)
    past = new_correction()
    for each, error in zip(estimate_s, rng.lognormal(-0.02, 0.2, 2000), strict=True):
        learn(past, each, each * error)
        assert not pays(past)


def test_the_same_estimate_for_short_and_long_stages_is_left_alone() -> None:
    _, duration_s = _two_sizes(3, 2000, 0.0)
    flipped = np.random.default_rng(3).random(2000) < 0.2
    estimate_s = np.where(flipped, np.where(duration_s > 100.0, 10.0, 200.0), duration_s)
    assert not pays(_learned(zip(estimate_s, duration_s, strict=True)))


def test_it_takes_some_lessons_before_any_estimate_is_corrected() -> None:
    assert not pays(_learned([(10.0, 30.0)] * 39))
    assert pays(_learned([(10.0, 30.0)] * 40))


def test_what_was_learned_long_ago_fades() -> None:
    past = _learned([(10.0, 30.0)] * 1000 + [(10.0, 10.0)] * 2000)
    assert corrected_s(past, 10.0) == pytest.approx(10.0, rel=0.02)
    assert not pays(past)


def test_a_very_long_history_overflows_nothing() -> None:
    past = _learned([(10.0, 30.0)] * 93_000)
    assert corrected_s(past, 10.0) == pytest.approx(30.0, rel=0.01)
    assert 1.0 <= peek(past.lessons).weight < 1e101
    # What comes after it was scaled down counts as what came before did.
    for _ in range(2_000):
        learn(past, 10.0, 10.0)
    assert corrected_s(past, 10.0) == pytest.approx(10.0, rel=0.02)


@pytest.mark.parametrize("estimate_s", [0.0, -1.0, math.nan])
def test_an_estimate_that_says_nothing_teaches_nothing(estimate_s: float) -> None:
    past = _learned([(estimate_s, 5.0)])
    assert peek(past.lessons).seen == 0


@given(st.lists(st.tuples(SECONDS, SECONDS), max_size=60), SECONDS)
@settings(max_examples=50, deadline=None)
def test_it_stays_between_what_was_seen_and_what_is_said(pairs: list[tuple[float, float]], estimate_s: float) -> None:
    seen_s = [estimate_s, *(duration_s for _, duration_s in pairs)]
    corrected = corrected_s(_learned(pairs), estimate_s)
    assert min(seen_s) * (1.0 - 1e-9) <= corrected <= max(seen_s) * (1.0 + 1e-9)


@pytest.mark.parametrize(("estimate_s", "duration_s"), [(1e-15, 7.0), (1e-12, 7.0), (1e12, 2e12), (1e15, 2e15)])
def test_estimates_off_the_table_count_as_its_ends(estimate_s: float, duration_s: float) -> None:
    past = _learned([(estimate_s, duration_s)] * 50)
    assert corrected_s(past, estimate_s) == pytest.approx(duration_s, rel=0.01)
