"""The search of `scripts/windows_in_hindsight.py`: its schedules are the engine's, and it finds what is there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.scripts import script

from fermata.sim.hpc import policy, simulate
from fermata.sim.hpc.lublin import generate

hindsight = script("windows_in_hindsight")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_shortest_first_waits_as_in_the_engine(seed: int) -> None:
    drawn = generate(300, seed, load=1.1)
    runtime_s = drawn.runtime_s + 1e-3 * np.arange(len(drawn))  # no two alike: ties are not what is compared
    log = replace(drawn, runtime_s=runtime_s, estimate_s=runtime_s)
    skip = policy("sjf/skip")
    schedule = simulate(log, skip.order, skip.rules)
    start_s, submit_s = np.zeros(len(log)), log.submit_s - log.submit_s[0]
    wait_s = hindsight.mean_wait_s(submit_s, runtime_s, log.cores, log.machine_cores, runtime_s, submit_s, start_s)
    assert wait_s == pytest.approx(float((schedule.start_s - log.submit_s).mean()))
    np.testing.assert_allclose(start_s + log.submit_s[0], schedule.start_s)


def test_it_finds_a_hold_that_pays() -> None:
    # A job that takes the whole machine for 1,000 s comes a second before ten of a second each.
    submit_s = np.array([0.0, *np.arange(1.0, 11.0)])
    runtime_s, cores = np.array([1000.0, *[1.0] * 10]), np.array([4, *[1] * 10])
    first_s, least_s = hindsight.anneal(submit_s, runtime_s, cores, 4, 20_000, 1)
    # Started at once it keeps ten waiting for 1,000 - 1 to 1,000 - 10 s, and then four for one more and two for two;
    # held, it waits for 11 s alone.
    assert first_s == pytest.approx((sum(1000.0 - at for at in range(1, 11)) + 4.0 + 4.0) / 11)
    assert least_s == pytest.approx(1.0, abs=0.2)


def test_a_job_starts_no_sooner_than_it_may() -> None:
    submit_s, start_s = np.array([0.0, 1.0]), np.zeros(2)
    not_before_s = np.array([5.0, 1.0])
    wait_s = hindsight.mean_wait_s(
        submit_s, np.array([2.0, 2.0]), np.array([1, 1]), 1, np.array([0.0, 1.0]), not_before_s, start_s
    )
    assert (wait_s, start_s.tolist()) == (2.5, [5.0, 1.0])
