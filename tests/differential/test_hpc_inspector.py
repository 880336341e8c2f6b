"""What an inspector of starts is told, against the same numbers from lists of who runs and who waits."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.windows import log_of

from fermata.sim.hpc import JobLog, policy, simulate
from fermata.sim.hpc.inspect import FEATURES, SAMPLE, parameters
from fermata.sim.hpc.models import InspectorModel

MACHINE, QUEUE_SCALE, INTERVAL_S = 8, 6.0, 600.0


def told(log: JobLog, now: float, job: int, running: dict[int, float], waiting: list[int]) -> list[float]:
    """Return the features of a job that fits: `running` has starts, `waiting` the job itself, too."""
    estimate, cores, submit = log.estimate_s.tolist(), log.cores.tolist(), log.submit_s.tolist()
    free = MACHINE - sum(cores[each] for each in running)
    left = {each: max(start + estimate[each] - now, 1.0) for each, start in running.items()}
    shorter = [each for each in waiting if estimate[each] < estimate[job]]
    cost = sum(INTERVAL_S / max(estimate[each], 10.0) for each in waiting)
    recent = [each for each in range(len(log)) if now - 3600.0 < submit[each] <= now]
    return [
        min((now - submit[job]) / 43_200.0, 1.0),
        estimate[job] / max(*estimate, 1.0),
        cores[job] / MACHINE,
        free / MACHINE,
        1.0,  # it fits
        0.0,  # and was never rejected
        min(cost / (INTERVAL_S / 10.0 * QUEUE_SCALE), 1.0),
        0.0,  # nobody overtakes what fits
        math.log1p(estimate[job]) / 12.0,
        math.log2(cores[job]) / math.log2(MACHINE),
        (free - cores[job]) / MACHINE,
        math.log1p(len(waiting)) / 6.0,
        math.log1p(len(shorter)) / 6.0,
        math.log1p(sum(estimate[each] * cores[each] for each in shorter) / MACHINE) / 12.0,
        math.log1p(sum(cores[each] <= free for each in shorter)) / 6.0,
        min(sum(cores[each] for each in shorter) / MACHINE, 4.0) / 4.0,
        sum(cores[each] for each in running if left[each] > estimate[job]) / MACHINE,
        math.log1p(sum(left[each] * cores[each] for each in running) / MACHINE) / 12.0,
        math.log1p(min(left.values(), default=0.0)) / 12.0,
        math.log1p(now - submit[job]) / 12.0,
        math.log1p(len(recent)) / 4.0,
    ]


# Few distinct times, so that several start at one instant; estimates that are too short or too long.
few_jobs = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.0, 1.0, 40.0, 3000.0]),
        st.sampled_from([1.0, 30.0, 2000.0]),
        st.sampled_from([0.0, 1.0, 30.0, 2000.0]),
        st.integers(1, MACHINE),
    ),
    min_size=3,
    max_size=16,
)


@given(few_jobs, st.sampled_from(["fcfs/skip", "lcfs/skip"]))
@settings(deadline=None)
def test_an_inspector_of_starts_is_told_of_who_runs_and_who_waits(
    jobs: list[tuple[float, float, float, int]], name: str
) -> None:
    gaps, runtimes, estimates, cores = zip(*jobs, strict=True)
    exact = log_of(*zip(np.cumsum(gaps), runtimes, cores, strict=True), machine=MACHINE)
    log = replace(exact, estimate_s=np.array(estimates))
    theta = np.zeros(parameters(FEATURES))
    theta[-2] = 50.0  # accepts everything
    inspector = InspectorModel("starts", FEATURES, QUEUE_SCALE, theta).inspector(log, SAMPLE, record=100)
    chosen = policy(name)
    schedule = simulate(log, chosen.order, chosen.rules, inspector)
    start, end = schedule.start_s.tolist(), schedule.end_s.tolist()
    rank = chosen.order.ranks(log).tolist()
    expected, begun = [], list[int]()
    for job in sorted(range(len(log)), key=lambda each: (start[each], rank[each])):
        now = start[job]
        running = {each: start[each] for each in begun if end[each] > now}
        waiting = [each for each in range(len(log)) if log.submit_s[each] <= now and each not in begun]
        if running or log.submit_s[-1] > now:  # else nothing can be gained by waiting, and nobody is asked
            expected.append(told(log, now, job, running, waiting))
        begun.append(job)
    assert schedule.inspections == len(expected)
    seen = inspector.seen[: len(expected)]
    np.testing.assert_allclose(seen, np.array(expected).reshape(-1, FEATURES), rtol=0.0, atol=1e-12)
