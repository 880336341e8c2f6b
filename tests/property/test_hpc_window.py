"""Whatever arrives, and whatever a window agent's weights are: cores are never overdrawn, and every job ends."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.windows import log_of, random_theta

from fermata.sim.hpc import Rules, Start, simulate
from fermata.sim.hpc.inspect import SAMPLE, seed_sampling
from fermata.sim.hpc.orders import order
from fermata.sim.hpc.window import run_windowed
from fermata.sim.hpc.window_models import WindowModel
from fermata.sim.hpc.world import DECISIONS, config_of, jobs_of, new_world

MACHINE = 8
# Few distinct times, so that events fall together; and jobs that take no time at all.
jobs = st.tuples(
    st.sampled_from([0.0, 1.0, 5.0, 60.0]), st.sampled_from([0.0, 1.0, 7.0, 500.0]), st.integers(1, MACHINE)
)


@settings(max_examples=60, deadline=None)
@given(st.lists(jobs, min_size=1, max_size=25), st.integers(1, 4), st.integers(0, 4), st.integers(0, 1000))
def test_no_core_is_used_twice_and_every_job_ends(
    drawn: list[tuple[float, float, int]], head: int, tail: int, seed: int
) -> None:
    submit = np.cumsum([gap for gap, _, _ in drawn])
    log = log_of(*((at, run, cores) for at, (_, run, cores) in zip(submit, drawn, strict=True)), machine=MACHINE)
    rules, model = Rules(start=Start.SKIP), WindowModel(head, tail, random_theta(seed))
    likeliest = simulate(log, order("fcfs"), rules, None, model).start_s
    arrival, agent = order("fcfs"), model.agent(SAMPLE)
    world = new_world(len(log), 1, MACHINE)
    seed_sampling(seed)
    assert run_windowed(jobs_of(log, arrival, rules), config_of(log, arrival, rules), world, agent)
    for start in (likeliest, world.start):
        assert (start >= log.submit_s).all()  # NaN if one had never started
        for instant in start:
            used = log.cores[(start <= instant) & (instant < start + log.runtime_s)].sum()
            assert used <= MACHINE
    # A decision starts a job, or is one Fwd at an instant at which something happened.
    assert world.counts[DECISIONS] <= 3 * len(log)
