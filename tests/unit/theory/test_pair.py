"""The closed forms of the pair against their integrals, by quadrature, by chance and by a search over holds."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermata.policy.theory import pair

SIZES = st.floats(0.5, 200.0)
GAPS = st.floats(1.0, 400.0)


def test_figure_1() -> None:
    assert pair.mean_jct_at_once_s(20.0, 4.0, 2.0) == 21.0
    assert pair.mean_jct_held_s(20.0, 4.0, 2.0) == 15.0


@given(first=SIZES, second=SIZES, gap=GAPS)
def test_theorem_1_is_the_comparison_of_the_two_costs(first: float, second: float, gap: float) -> None:
    gain = pair.mean_jct_at_once_s(first, second, gap) - pair.mean_jct_held_s(first, second, gap)
    if abs(gain) > 1e-9:
        assert pair.hold_pays(first, second, gap) == (gain > 0.0)


def test_theorem_1_does_not_hold_on_a_tie() -> None:
    assert pair.mean_jct_at_once_s(20.0, 4.0, 8.0) == pair.mean_jct_held_s(20.0, 4.0, 8.0)
    assert not pair.hold_pays(20.0, 4.0, 8.0)
    assert pair.hold_pays(20.0, 4.0, math.nextafter(8.0, 0.0))
    assert not pair.hold_pays(20.0, 4.0, 0.0)


@pytest.mark.parametrize(("gap", "hold"), [(5.0, 12.97), (10.0, 15.53), (20.0, 10.97), (21.0, 0.0)])
def test_best_committed_hold_of_50_for_10(gap: float, hold: float) -> None:
    assert pair.committed_hold_fixed_s(1.0 / gap, 50.0, 10.0) == pytest.approx(hold, abs=0.005)


def test_the_hold_of_50_for_10_pays_below_a_mean_gap_of_20_97_s() -> None:
    low, high = 1.0, 100.0
    while high - low > 1e-6:
        middle = (low + high) / 2.0
        low, high = (middle, high) if pair.committed_hold_fixed_s(1.0 / middle, 50.0, 10.0) > 0.0 else (low, middle)
    assert low == pytest.approx(20.97, abs=0.005)


def _jct_sum(hold: float, first: float, second: float, gap: np.ndarray, *, released: bool) -> np.ndarray:
    """Play the pair out, once per gap; nothing of the formulas in it."""
    shorter_first = first if released and first < second else second
    other = first + second - shorter_first
    start_other = gap + shorter_first if released else np.maximum(hold, gap + shorter_first)
    in_time = (gap + shorter_first) + (start_other + other) - gap
    late = (hold + first) + (np.maximum(gap, hold + first) + second) - gap
    total: np.ndarray = np.where(gap < hold, in_time, late)
    return total


@pytest.mark.parametrize("released", [False, True])
@pytest.mark.parametrize(("hold", "first", "second"), [(0.0, 50.0, 10.0), (15.0, 50.0, 10.0), (7.0, 20.0, 90.0)])
def test_expected_costs_are_the_mean_of_what_happens(released: bool, hold: float, first: float, second: float) -> None:
    rate = 1.0 / 12.0
    # Midpoints of equal probability: a quadrature that needs no bounds on the gap.
    gap = -np.log1p(-(np.arange(400_000) + 0.5) / 400_000) / rate
    mean = _jct_sum(hold, first, second, gap, released=released).mean() / 2.0
    formula = pair.released_mean_jct_s if released else pair.committed_mean_jct_s
    assert formula(hold, rate, first, second) == pytest.approx(mean, rel=2e-5)
    by_chance = np.random.default_rng(7).exponential(1.0 / rate, 200_000)
    sample = _jct_sum(hold, first, second, by_chance, released=released) / 2.0
    error = sample.std() / math.sqrt(len(sample))
    assert abs(formula(hold, rate, first, second) - sample.mean()) < 5.0 * error


def _cost(hold: float, rate: float, first: float, sizes: list[float], share: list[float]) -> float:
    return sum(
        part * pair.committed_mean_jct_s(hold, rate, first, size) for size, part in zip(sizes, share, strict=True)
    )


@given(gap=GAPS, first=st.floats(10.0, 500.0), short=SIZES, factor=st.floats(1.0, 30.0), p=st.floats(0.05, 1.0))
def test_no_hold_beats_the_closed_form_for_two_points(
    gap: float, first: float, short: float, factor: float, p: float
) -> None:
    rate, sizes, share = 1.0 / gap, [short, short * factor], [p, 1.0 - p]
    best = pair.committed_hold_two_point_s(rate, first, sizes[0], sizes[1], p)
    assert best == pytest.approx(pair.committed_hold_s(rate, first, sizes, share), rel=1e-9, abs=1e-9)
    reached = _cost(best, rate, first, sizes, share)
    for other in np.linspace(0.0, 2.0 * max(best, first), 60):
        assert reached <= _cost(float(other), rate, first, sizes, share) * (1.0 + 1e-9)


@given(gap=GAPS, first=st.floats(10.0, 500.0), sizes=st.lists(SIZES, min_size=1, max_size=5))
def test_no_hold_beats_the_general_form(gap: float, first: float, sizes: list[float]) -> None:
    share = [1.0 / len(sizes)] * len(sizes)
    best = pair.committed_hold_s(1.0 / gap, first, sizes, share)
    reached = _cost(best, 1.0 / gap, first, sizes, share)
    for other in np.linspace(0.0, 2.0 * max(best, first), 60):
        assert reached <= _cost(float(other), 1.0 / gap, first, sizes, share) * (1.0 + 1e-9)


@given(gap=GAPS, first=SIZES, second=SIZES)
def test_fixed_size_is_the_two_point_form_with_one_point(gap: float, first: float, second: float) -> None:
    fixed = pair.committed_hold_fixed_s(1.0 / gap, first, second)
    assert fixed == pytest.approx(pair.committed_hold_two_point_s(1.0 / gap, first, second, second, 1.0), rel=1e-9)
    assert fixed == pytest.approx(pair.committed_hold_s(1.0 / gap, first, [second], [1.0]), rel=1e-9)


@given(gap=GAPS, first=SIZES, second=SIZES)
def test_a_hold_that_an_arrival_ends_is_all_or_nothing(gap: float, first: float, second: float) -> None:
    rate = 1.0 / gap
    never = pair.released_mean_jct_s(0.0, rate, first, second)
    always = pair.released_mean_jct_s(math.inf, rate, first, second)
    for hold in np.linspace(0.0, 5.0 * gap, 20):
        between = pair.released_mean_jct_s(float(hold), rate, first, second)
        assert min(never, always) * (1.0 - 1e-9) <= between <= max(never, always) * (1.0 + 1e-9)
    if abs(never - always) > 1e-9 * never:
        assert pair.released_hold_pays(rate, first, min(first, second)) == (always < never)


def test_release_and_order_make_the_best_hold_no_worse() -> None:
    for gap in (5.0, 10.0, 20.0):
        committed = pair.committed_mean_jct_s(pair.committed_hold_fixed_s(1.0 / gap, 50.0, 10.0), 1.0 / gap, 50.0, 10.0)
        assert pair.released_mean_jct_s(math.inf, 1.0 / gap, 50.0, 10.0) < committed


def test_closed_forms_do_not_overflow() -> None:
    assert pair.committed_hold_fixed_s(1.0, 1e5, 1e4) == pytest.approx(1e4, rel=1e-3)
    assert pair.committed_hold_two_point_s(1.0, 1e5, 1e3, 1e4, 0.5) == pytest.approx(1e3, rel=1e-2)
    assert pair.committed_hold_s(1.0, 1e5, [1e3, 1e4], [0.5, 0.5]) == pytest.approx(1e3, rel=1e-2)
