"""Episodes in blocks of a trace: every job whole, what follows what, and the load that was asked for."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fermata.policy.errors import InputError
from fermata.sim.scenarios import scenario
from fermata.sim.scenarios.blocks import TraceBlocks, gaps_s, offered_load
from fermata.sim.trace import Trace
from fermata.sim.trace_builder import specs_of
from fermata.sim.trace_jobs import select_jobs

DAGS = scenario("dag_wide").with_(jobs=60, warm=0).generate(3)


def numbers_of(drawn: Trace) -> list[int]:
    """Where in the trace each job of an episode is from."""
    at = {name: number for number, name in enumerate(DAGS.job_ids)}
    return [at[re.sub(r"^\d+-", "", name)] for name in drawn.job_ids]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, DAGS.jobs - 1), min_size=1, max_size=100))
def test_copies_of_a_job_are_all_whole(chosen: list[int]) -> None:
    copies = select_jobs(DAGS, chosen)
    assert copies.jobs == len(chosen)
    for copy, job in enumerate(chosen):
        assert specs_of(copies, copy) == specs_of(DAGS, job)
        assert set(copies.stage_job[copies.job_stage_ptr[copy] : copies.job_stage_ptr[copy + 1]]) == {copy}


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000), jobs=st.integers(1, 200), block=st.integers(1, 80))
def test_an_episode_is_blocks_of_consecutive_jobs(seed: int, jobs: int, block: int) -> None:
    drawn = TraceBlocks(DAGS, block=block).draw(np.random.default_rng(seed), jobs, 10)
    numbers, length = numbers_of(drawn), min(block, DAGS.jobs)
    assert drawn.jobs == jobs == len(set(drawn.job_ids))
    gaps = np.diff(drawn.job_arrival_s, prepend=0.0)
    np.testing.assert_allclose(gaps, gaps_s(DAGS)[numbers], atol=1e-6)
    for first in range(0, jobs, length):
        here = numbers[first : first + length]
        assert here == [(here[0] + k) % DAGS.jobs for k in range(len(here))]
    for job, number in enumerate(numbers):
        assert specs_of(drawn, job) == specs_of(DAGS, number)


@pytest.mark.parametrize("load", [0.2, 0.9])
def test_a_load_is_what_was_asked_for(load: float) -> None:
    drawn = TraceBlocks(DAGS, load=load, block=1).draw(np.random.default_rng(1), 20_000, 10)
    assert offered_load(drawn, 10) == pytest.approx(load, rel=0.05)


def test_jobs_that_all_arrive_at_once_have_no_other_load() -> None:
    together = replace(DAGS, job_arrival_s=np.zeros(DAGS.jobs))
    assert TraceBlocks(together).draw(np.random.default_rng(1), 10, 10).job_arrival_s.max() == 0.0
    with pytest.raises(InputError, match="no other load"):
        TraceBlocks(together, load=0.5).draw(np.random.default_rng(1), 10, 10)
    with pytest.raises(InputError, match="block must be 1 job or more"):
        TraceBlocks(DAGS, block=0).draw(np.random.default_rng(1), 10, 10)
    with pytest.raises(InputError, match="load must be above 0"):
        TraceBlocks(DAGS, load=-1.0).draw(np.random.default_rng(1), 10, 10)
