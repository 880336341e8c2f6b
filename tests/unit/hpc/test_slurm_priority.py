"""Slurm's multifactor priority, factor by factor, against its documentation and numbers worked by hand.

Source: https://slurm.schedmd.com/priority_multifactor.html, https://slurm.schedmd.com/classic_fair_share.html and
`set_priority_factors` of Slurm's priority/multifactor plugin.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.hpc.test_kernel import log_of

from fermata.sim.hpc.orders import order
from fermata.sim.hpc.policies import policy
from fermata.sim.hpc.priority import drain_usage, sort_queue
from fermata.sim.hpc.world import NOW, USAGE_AT, WAITING, config_of, jobs_of, new_world

_DAY_S = 86_400.0
_NONE = {"age": 0.0, "fairshare": 0.0, "size": 0.0, "partition": 0.0}

# (submitted, run time, estimate, cores), users and partitions of three jobs that wait on a machine of 8 cores at 50 s.
_ROWS = ((0.0, 1.0, 1.0, 2), (30.0, 1.0, 1.0, 8), (50.0, 1.0, 1.0, 1))
_USERS, _PARTITIONS = (0, 1, 0), (10, 20, 0)
_USAGE = (300.0, 100.0)  # core-seconds


def _priorities(**changed: float) -> list[float]:
    log = log_of(*_ROWS, machine=8, users=_USERS, partitions=_PARTITIONS)
    chosen = order("multifactor").with_parameters(_NONE | changed)
    rules = policy("fcfs").rules
    jobs, config, world = jobs_of(log, chosen, rules), config_of(log, chosen, rules), new_world(3, 2, 8)
    world.usage[:], world.queue[:] = _USAGE, (0, 1, 2)
    world.counts[WAITING], world.clock[NOW], world.clock[USAGE_AT] = 3, 50.0, 50.0
    sort_queue(jobs, config, world)
    return [-float(key) for key in world.key]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"age": 1000, "max_age_s": 100}, [500.0, 200.0, 0.0]),
        ({"age": 1000, "max_age_s": 40}, [1000.0, 500.0, 0.0]),  # at most 1
        # F = 2^(-U / S): the users had 3/4 and 1/4 of what was used, and half is due to each.
        ({"fairshare": 1000}, [1000 * 2**-1.5, 1000 * 2**-0.5, 1000 * 2**-1.5]),
        ({"fairshare": 1000, "dampening": 3}, [1000 * 2**-0.5, 1000 * 2 ** (-1 / 6), 1000 * 2**-0.5]),
        ({"size": 1000, "favor_small": 0}, [250.0, 1000.0, 125.0]),  # all of the machine is 1
        ({"size": 1000, "favor_small": 1}, [750.0, 0.0, 875.0]),  # what the job leaves of it
        ({"partition": 5000}, [2500.0, 5000.0, 0.0]),  # the documentation's example: 10 and 20
        ({"age": 1, "max_age_s": 100, "size": 1, "favor_small": 0, "partition": 1}, [1.25, 2.2, 0.125]),
    ],
)
def test_a_factor_is_what_slurm_makes_of_it(changed: dict[str, float], expected: list[float]) -> None:
    assert _priorities(**changed) == pytest.approx(expected, rel=1e-12)


def _drained(half_life_s: float, usage: float, cores: int, passed_s: float) -> float:
    log = log_of(*_ROWS, machine=8)
    chosen = order("multifactor").with_parameters({"half_life_s": half_life_s})
    config = config_of(log, chosen, policy("fcfs").rules)
    world = new_world(3, 1, 8)
    world.usage[0], world.rate[0], world.clock[NOW] = usage, cores, passed_s
    drain_usage(config, world)
    return float(world.usage[0])


def test_usage_halves_in_a_half_life() -> None:
    assert _drained(100.0, 400.0, 0, 100.0) == pytest.approx(200.0)
    assert _drained(100.0, 400.0, 0, 250.0) == pytest.approx(400 * 2**-2.5)
    assert _drained(100.0, 0.0, 4, 100.0) == pytest.approx(4 * 100 / np.log(2) / 2)  # the integral of 4 * 2^(-t / 100)


def test_usage_is_what_slurms_loop_makes_of_it_every_five_minutes() -> None:
    # decay_factor = 1 - 0.693 / half-life for each second; a period's usage is decayed by the whole period.
    period_s, usage = 300, 5000.0
    decay = (1 - 0.693 / (7 * _DAY_S)) ** period_s
    for _ in range(int(7 * _DAY_S) // period_s):
        usage = usage * decay + 4 * period_s * decay
    assert _drained(7 * _DAY_S, 5000.0, 4, 7 * _DAY_S) == pytest.approx(usage, rel=5e-4)
