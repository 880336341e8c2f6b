"""Generated workloads keep their promises: load, shape, seed; and wrong estimates are wrong as told."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fermata.policy.errors import InputError
from fermata.sim.generate import GENERATORS
from fermata.sim.generate.arrivals import Arrivals, Bursty, Periodic, Piecewise, Poisson
from fermata.sim.generate.estimates import class_flips, class_means, lognormal_noise, read_noise
from fermata.sim.generate.sizes import BoundedPareto, Classes, Hyperexponential, Lognormal, Sizes
from fermata.sim.generate.weights import read_weights
from fermata.sim.scenarios import SCENARIOS, scenario
from fermata.sim.trace import Trace
from fermata.sim.trace_builder import one_stage_trace
from fermata.sim.trace_io import job_lines
from fermata.sim.trace_jobs import job_work_s

ALL = {**SCENARIOS, **GENERATORS}


def lines(trace: Trace) -> list[str]:
    return list(job_lines(trace))


@pytest.mark.parametrize("name", ALL)
def test_a_seed_is_an_episode_and_another_seed_another(name: str) -> None:
    small = ALL[name].with_(jobs=60)
    assert lines(small.generate(7)) == lines(small.generate(7))
    if name != "fig1":
        assert lines(small.generate(7)) != lines(small.generate(8))


@pytest.mark.parametrize(
    "arrivals", [Poisson(), Bursty(), Periodic(), Piecewise()], ids=lambda each: type(each).__name__
)
def test_arrivals_do_not_fall_and_keep_their_mean_gap(arrivals: Arrivals) -> None:
    times = arrivals.draw(np.random.default_rng(1), 40_000, 3.0)
    assert len(times) == 40_000
    assert (np.diff(times) >= 0.0).all()
    assert times[0] >= 0.0
    # Bursts of about 20 make the error of the mean about 5 times that of a Poisson process.
    assert times[-1] / len(times) == pytest.approx(3.0, rel=0.06)


def test_arrivals_follow_their_pattern() -> None:
    pattern = Piecewise(shares=(0.25, 0.75), rates=(3.0, 1.0), cycle_jobs=100.0)
    times = pattern.draw(np.random.default_rng(2), 50_000, 1.0)
    assert np.mean(times % 100.0 < 25.0) == pytest.approx(0.5, abs=0.01)
    night = Piecewise(rates=(1.0, 0.0), cycle_jobs=100.0).draw(np.random.default_rng(2), 5_000, 1.0)
    assert (night % 100.0 <= 50.0 + 1e-6).all()


@pytest.mark.parametrize(
    "sizes", [Lognormal(30.0, 0.8), BoundedPareto(), BoundedPareto(alpha=1.0), Hyperexponential(), Classes()], ids=repr
)
def test_sizes_have_the_mean_they_say(sizes: Sizes) -> None:
    drawn = sizes.draw(np.random.default_rng(3), 400_000)
    assert (drawn > 0.0).all()
    assert drawn.mean() == pytest.approx(sizes.mean_s, rel=0.03)


def test_the_load_is_what_was_asked_for() -> None:
    for name, tolerance in (("synthetic", 0.03), ("layered", 0.12), ("mix", 0.1), ("k8s_poisson", 0.05)):
        varied = ALL[name].with_(load=0.5, executors=7, jobs=8000)
        trace = varied.generate(11)
        load = job_work_s(trace).sum() / trace.job_arrival_s[-1] / 7
        assert load == pytest.approx(0.5, rel=tolerance), name


def test_a_mix_takes_alpha_of_its_jobs_from_the_second_workload() -> None:
    for alpha in (0.0, 0.25, 1.0):
        trace = GENERATORS["mix"].with_(alpha=alpha, jobs=2000).generate(5)
        dags = np.diff(trace.task_ptr)[trace.job_stage_ptr[:-1]] > 1
        one_stage = np.isin(job_work_s(trace), (10.0, 50.0))
        assert trace.jobs == 2000
        assert 1.0 - one_stage.mean() == pytest.approx(alpha, abs=0.03)
        assert bool(dags.any()) == (alpha > 0.0)


def test_tasks_take_as_many_executors_as_the_shares_say_and_the_load_is_exact() -> None:
    gpus = GENERATORS["gpus"].with_(jobs=20_000, slots=(1, 3), shares=(0.75, 0.25), means_s=(10.0, 40.0), sigma=0.5)
    trace = gpus.generate(3)
    wide = trace.stage_slots == 3
    assert set(trace.stage_slots.tolist()) == {1, 3}
    assert wide.mean() == pytest.approx(0.25, abs=0.01)
    assert trace.task_duration_s[wide].mean() == pytest.approx(40.0, rel=0.03)
    assert trace.task_duration_s[~wide].mean() == pytest.approx(10.0, rel=0.03)
    assert np.log(trace.task_duration_s[wide]).std() == pytest.approx(0.5, rel=0.03)
    gap_s = job_work_s(trace).mean() / 0.7 / 16
    assert np.diff(trace.job_arrival_s).mean() == pytest.approx(gap_s, rel=0.03)
    assert gpus.with_(executors=2).generate(3).stage_slots.max() == 2


def parameters(recipe: Any, prefix: str = "") -> Iterator[str]:
    """The names of all parameters of a recipe, those of its parts with a dot."""
    for each in dataclasses.fields(recipe):
        yield prefix + each.name
        part = getattr(recipe, each.name)
        if dataclasses.is_dataclass(part):
            yield from parameters(part, f"{prefix}{each.name}.")


NUMBERS = (0, -1, 2, 0.5, 1e-320, 1e-12, 1e-9, 1e12, 1e308, 10**24, math.nan, math.inf, -math.inf)
LISTS = ((), (1,), (1, 2), (-1, 2), (0, 0), (0.5, 0.5), (1e-320, 1), (1e12, 1e12), (math.nan, 1), ("a", 1), (None, 1))
ODD = (*NUMBERS, *LISTS, ([1],), None, True, "x", {})


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ALL)
def test_whatever_a_parameter_is_set_to_gives_an_episode_or_one_line(name: str) -> None:
    small = ALL[name].with_(jobs=20, warm=0)
    for key in [*parameters(small.recipe), "executors", "jobs", "warm"]:
        refused = 0
        for value in ODD:
            try:
                trace = small.with_(**{key: value}).generate(1)
            except InputError:
                refused += 1
                continue
            times = np.concatenate([trace.job_arrival_s, trace.task_duration_s, trace.stage_estimate_s])
            assert (np.isfinite(times) & (times >= 0.0)).all(), (key, value)
        assert refused >= 10, key


def test_variations_are_refused_when_they_make_no_sense() -> None:
    bursty = GENERATORS["bursty"]
    for changes, words in (
        ({"lod": 0.5}, "did you mean 'load'"),
        ({"load": "high"}, "must be a number"),
        ({"load": True}, "must be a number"),
        ({"load": math.nan}, "must be a number from 1e-12 to 1e[+]12, or 0, not nan"),
        ({"jobs": 10_000_001}, "jobs must be at most 10,000,000, not 10000001"),
        ({"executors": 0}, "executors must be a whole number of at least 1"),
        ({"jobs": 2.5}, "jobs must be a whole number"),
        ({"arrivals": 3.0}, r"set in parts: arrivals.burst_factor"),
        ({"arrivals.burst": 3.0}, "has no parameter 'burst'"),
        ({"arrivals.jobs": 3}, "'arrivals' .* has no parameter 'jobs'; it has: burst_factor, burst_share, burst_jobs$"),
        ({"load.x": 3.0}, "has no parts"),
        ({"sizes.shares": 0.5}, "must be a list"),
        ({"base": "fifo"}, "has no parameter 'base'"),
    ):
        with pytest.raises(InputError, match=words):
            bursty.with_(**changes)
    with pytest.raises(InputError, match="load must be above 0"):
        bursty.with_(load=0.0).generate(1)
    with pytest.raises(InputError, match="classes need"):
        bursty.with_(**{"sizes.shares": (0.5,)})
    for changes, words in (
        ({"slots": (1, 2)}, "slots, shares and means_s must be as many"),
        ({"shares": (0.5, 0.5, 0.5, 0.5)}, "shares must add to 1"),
        ({"slots": (0, 2, 4, 8)}, "slots of at least 1"),
        ({"means_s": (1.0, 2.0, 0.0, 8.0)}, "means above 0 s"),
    ):
        with pytest.raises(InputError, match=words):
            GENERATORS["gpus"].with_(**changes)
    with pytest.raises(InputError, match="burst_share"):
        bursty.with_(**{"arrivals.burst_share": 1.0}).generate(1)
    with pytest.raises(InputError, match=r"serial_fraction must be in \[0, 1\], not 2.0"):
        SCENARIOS["mold_80"].with_(serial_fraction=2.0).generate(1)
    with pytest.raises(InputError, match="exceed a load"):
        SCENARIOS["k8s_cron"].with_(load=0.01).generate(1)
    with pytest.raises(InputError, match="seed must be 0 or more"):
        bursty.generate(-1)
    with pytest.raises(InputError, match="no scenario 'x'; there are: fig1"):
        scenario("x")


def test_parameters_that_belong_together_change_together() -> None:
    three = GENERATORS["bursty"].with_(**{"sizes.shares": (0.5, 0.3, 0.2), "sizes.sizes_s": (1.0, 10.0, 100.0)})
    assert set(three.generate(1).task_duration_s.tolist()) == {1.0, 10.0, 100.0}


def test_a_variation_leaves_the_original_alone() -> None:
    before = dataclasses.asdict(GENERATORS["bursty"])
    varied = GENERATORS["bursty"].with_(**{"arrivals.burst_factor": 3, "load": 0.9}, executors=2)
    assert varied.parameters["arrivals"].burst_factor == 3
    assert (varied.parameters["load"], varied.executors) == (0.9, 2)
    assert dataclasses.asdict(GENERATORS["bursty"]) == before


def test_estimates_are_wrong_as_told_and_durations_stay() -> None:
    sizes = np.where(np.arange(4000) % 10 == 0, 200.0, 10.0)
    trace = one_stage_trace(np.arange(4000.0), sizes)
    noisy = lognormal_noise(trace, 0.7, seed=1)
    assert np.log(noisy.stage_estimate_s / sizes).std() == pytest.approx(0.7, rel=0.05)
    assert np.median(noisy.stage_estimate_s / sizes) == pytest.approx(1.0, rel=0.05)
    flipped = class_flips(trace, 0.2, seed=1)
    wrong = flipped.stage_estimate_s != sizes
    assert wrong.mean() == pytest.approx(0.2, abs=0.02)
    np.testing.assert_array_equal(flipped.stage_estimate_s[wrong], 210.0 - sizes[wrong])
    for changed in (noisy, flipped):
        np.testing.assert_array_equal(changed.task_duration_s, sizes)
    np.testing.assert_array_equal(class_flips(trace, 0.2, 1).stage_estimate_s, flipped.stage_estimate_s)


def test_errors_do_not_depend_on_sizes_that_are_drawn_with_the_same_seed() -> None:
    drawn = GENERATORS["classes"].with_(jobs=4000)
    trace = drawn.generate(5)
    wrong = class_flips(trace, 0.2, seed=5).stage_estimate_s != trace.stage_estimate_s
    long = trace.task_duration_s > np.median(trace.task_duration_s)
    assert 0.05 < long.mean() < 0.6
    assert wrong[long].mean() == pytest.approx(wrong[~long].mean(), abs=0.06)
    factor = np.log(lognormal_noise(trace, 0.7, seed=5).stage_estimate_s / trace.stage_estimate_s)
    assert abs(np.corrcoef(factor, trace.task_duration_s)[0, 1]) < 0.05
    gaps_s = np.diff(trace.job_arrival_s, prepend=0.0)
    assert abs(np.corrcoef(factor, gaps_s)[0, 1]) < 0.05


def test_exact_estimates_are_what_will_happen() -> None:
    trace = SCENARIOS["dag_wide"].with_(jobs=50).generate(3)
    exact = read_noise("exact")(trace, 3)
    for stage in range(trace.stages):
        durations_s = trace.task_duration_s[trace.task_ptr[stage] : trace.task_ptr[stage + 1]]
        assert exact.stage_estimate_s[stage] == pytest.approx(durations_s.mean())
    assert (trace.stage_estimate_s != exact.stage_estimate_s).mean() > 0.9
    np.testing.assert_array_equal(exact.task_duration_s, trace.task_duration_s)


def test_weights_are_of_the_tenth_with_the_most_work_or_of_any_and_jobs_stay() -> None:
    trace = SCENARIOS["dag_wide"].with_(jobs=400).generate(3)
    work_s = job_work_s(trace)
    long, any_ = (read_weights(text)(trace, 3) for text in ("long=4", "any=0.5"))
    heavy = long.job_weight == 4.0
    assert (heavy.sum(), (long.job_weight == 1.0).sum()) == (40, 360)
    assert work_s[heavy].min() >= work_s[~heavy].max()
    light = any_.job_weight == 0.5
    assert light.mean() == pytest.approx(0.2, abs=0.06)
    assert abs(np.corrcoef(light, work_s)[0, 1]) < 0.12
    np.testing.assert_array_equal(any_.job_weight, read_weights("any=0.5")(trace, 3).job_weight)
    assert (any_.job_weight != read_weights("any=0.5")(trace, 4).job_weight).any()
    for weighed in (long, any_):
        np.testing.assert_array_equal(weighed.task_duration_s, trace.task_duration_s)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("long", "--weights expects long=W or any=W, not 'long'"),
        ("any=x", "--weights expects long=W or any=W, not 'any=x'"),
        ("wide=2", "--weights wide=2: no weights 'wide'; expected long=W or any=W"),
        ("any=0", r"--weights any=0: a weight must be from 2\^-100 to 2\^100, not 0"),
        ("any=nan", r"a weight must be from 2\^-100 to 2\^100, not nan"),
        ("any=1e31", r"a weight must be from 2\^-100 to 2\^100, not 1e\+31"),
    ],
)
def test_weights_that_make_no_sense_are_refused(text: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        read_weights(text)


def test_class_means_tell_only_short_from_long() -> None:
    trace = one_stage_trace(np.arange(6.0), [9.0, 11.0, 10.0, 190.0, 210.0, 10.0])
    assert class_means(trace).stage_estimate_s.tolist() == [10.0, 10.0, 10.0, 200.0, 200.0, 10.0]
    alike = one_stage_trace(np.arange(3.0), [5.0, 5.0, 5.0])
    assert class_means(alike).stage_estimate_s.tolist() == [5.0, 5.0, 5.0]
    with pytest.raises(InputError, match=r"share must be in \[0, 1\], not 1.2"):
        class_flips(trace, 1.2, 0)
    for sigma in (-1.0, 11.0, math.nan):
        with pytest.raises(InputError, match=rf"sigma must be in \[0, 10\], not {sigma}"):
            lognormal_noise(trace, sigma, 0)
