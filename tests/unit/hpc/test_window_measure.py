"""What window agents are measured by: intervals of means and of their ratios, and how an agent uses its window."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.windows import log_of, theta_of

from fermata.sim.hpc import policy
from fermata.sim.hpc.experiment import Sequences
from fermata.sim.hpc.lublin import generate
from fermata.sim.hpc.window_measure import change, habits, half_width, measure
from fermata.sim.hpc.window_models import WindowModel, shortest_first

WAITS = st.lists(st.tuples(st.floats(1.0, 1e5), st.floats(1.0, 1e5)), min_size=3, max_size=12)


def test_an_interval_is_students_and_leaves_out_what_is_not_known() -> None:
    # Standard deviation 2, so 4.303 (two degrees of freedom) times 2 by the root of three.
    assert half_width(np.array([1.0, np.nan, 3.0, 5.0])) == pytest.approx(4.3027 * 2.0 / np.sqrt(3.0), rel=1e-4)


def test_a_change_that_every_pair_has_is_certain_and_one_that_few_have_is_not() -> None:
    before = np.array([10.0, 10.0, 10.0, 100.0])
    assert change(before, 0.6 * before) == pytest.approx((-40.0, 0.0))
    mean, half = change(before, np.array([10.0, 10.0, 10.0, 35.0]))
    assert mean == pytest.approx(-50.0)
    assert half > 40.0


@given(WAITS, st.floats(0.1, 10.0))
def test_a_change_does_not_depend_on_the_unit(pairs: list[tuple[float, float]], unit: float) -> None:
    before, after = np.array(pairs).T
    np.testing.assert_allclose(change(unit * before, unit * after), change(before, after), rtol=1e-6, atol=1e-6)


def test_the_interval_of_a_change_holds_the_truth_as_often_as_it_says() -> None:
    random, held = np.random.default_rng(3), 0
    for _ in range(400):
        before = random.gamma(2.0, 5.0, 40)
        after = 0.5 * before * random.uniform(0.5, 1.5, 40)
        mean, half = change(before, after)
        held += abs(mean + 50.0) <= half
    assert 0.90 < held / 400 < 0.98


def test_habits_count_stale_time_and_moves_on() -> None:
    # Two cores of four run until 10; the head of one is a job of four, and the job of two behind it is unseen. It
    # starts when the head has ended, at 15. Stale from 2 to 10, of 20 s; every decision starts a job.
    log = log_of((0.0, 10.0, 2), (1.0, 5.0, 4), (2.0, 5.0, 2))
    stale, fwd = habits(log, shortest_first(1, 0), Sequences((0,), 3))
    assert stale.tolist() == [8.0 / 20.0]
    assert fwd.tolist() == [0.0]
    # One that rather moves on does so at 0 and 1; at 2 it must start one, and moves on with a second that fits; at 12
    # and at 17 it must start one again.
    never = WindowModel(3, 0, theta_of(fwd=900.0))
    stale, fwd = habits(log, never, Sequences((0,), 3))
    assert stale.tolist() == [0.0]
    assert fwd[0] == pytest.approx(3.0 / 6.0)


def test_what_several_trainings_do_is_their_mean() -> None:
    log, drawn = generate(600, 3, load=1.3), Sequences((0, 200, 400), 200)
    chosen = [policy(name) for name in ("sjf/skip", "fcfs+easy/skip")]
    both = measure(log, "two", chosen, drawn)
    alone = [measure(log, "one", [each], drawn).figures["wait_s"] for each in chosen]
    np.testing.assert_allclose(both.figures["wait_s"], np.mean(alone, axis=0))
    np.testing.assert_array_equal([each["wait_s"] for each in both.trainings], alone)
    assert both.cell("wait_s", 1).startswith(f"{np.mean(alone):.1f} ± ")
    assert "stale" not in both.figures
