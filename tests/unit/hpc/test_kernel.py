"""Schedules of a handful of jobs, worked by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fermata.policy.errors import InputError
from fermata.sim.hpc import JobLog, policy, simulate
from fermata.sim.hpc.inspect import (
    PICKS,
    REJECT_IF_BLOCKED,
    STARTS,
    Inspector,
    no_inspector,
    parameters,
    rule_inspector,
)
from fermata.sim.hpc.kernel import run
from fermata.sim.hpc.lublin import generate
from fermata.sim.hpc.models import InspectorModel
from fermata.sim.hpc.window_models import shortest_first
from fermata.sim.hpc.world import INSTANTS, config_of, jobs_of, new_world

Row = tuple[float, float, float, int]  # submit, runtime, estimate, cores


def log_of(*rows: Row, machine: int = 4, users: tuple[int, ...] = (), partitions: tuple[int, ...] = ()) -> JobLog:
    submit, runtime, estimate, cores = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    none = np.zeros(len(rows), dtype=np.int64)
    return JobLog(
        "test",
        machine,
        np.arange(1, len(rows) + 1),
        submit,
        runtime,
        estimate,
        cores.astype(np.int64),
        np.array(users) if users else none,
        np.array(partitions) if partitions else none,
    )


def starts(log: JobLog, name: str, **options: bool) -> list[float]:
    chosen = policy(name, **options)
    return simulate(log, chosen.order, chosen.rules).start_s.tolist()


# One job on 3 of 4 cores until 100; then one that needs all, and small ones behind it.
BLOCKED = log_of((0, 100, 100, 3), (1, 50, 50, 4), (2, 90, 90, 1), (3, 200, 200, 1))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fcfs", [0, 100, 150, 150]),
        ("fcfs/strict", [0, 100, 150, 150]),
        ("fcfs+easy", [0, 100, 2, 150]),  # 90 s end before the shadow time 100, 200 s do not
        ("fcfs+published", [0, 100, 2, 150]),
        ("fcfs+conservative", [0, 100, 2, 150]),
        ("fcfs/skip", [0, 292, 2, 92]),  # nobody keeps cores for the wide one
    ],
)
def test_who_overtakes_a_blocked_head(name: str, expected: list[float]) -> None:
    assert starts(BLOCKED, name) == expected


def test_easy_lets_a_long_job_use_the_extra_cores_and_the_published_rule_does_not() -> None:
    log = log_of((0, 100, 100, 2), (1, 50, 50, 3), (2, 500, 500, 1), (3, 500, 500, 1))
    assert starts(log, "fcfs+easy") == [0, 100, 2, 150]
    assert starts(log, "fcfs+published") == [0, 100, 100, 150]


def test_a_picked_job_stays_picked_and_a_strict_head_does_not() -> None:
    log = log_of((0, 100, 100, 3), (1, 50, 50, 4), (2, 10, 10, 4))
    assert starts(log, "sjf") == [0, 100, 150]
    assert starts(log, "sjf/strict") == [0, 110, 100]


def test_the_shadow_time_follows_jobs_that_end_early() -> None:
    # The first job is believed to run to 1000 and ends at 20: the head starts then, and the 500 s job, started as a
    # backfill at 2, was in time for the shadow of its day. At 20 the fourth may not delay the head any more.
    log = log_of((0, 20, 1000, 3), (1, 50, 50, 4), (2, 10, 500, 1), (15, 400, 400, 1))
    assert starts(log, "fcfs+easy") == [0, 415, 2, 15]
    late = log_of((0, 20, 1000, 2), (0, 60, 60, 1), (1, 50, 50, 4), (25, 500, 500, 1))
    assert starts(late, "fcfs+easy") == [0, 0, 60, 110], "the shadow time moved from 1000 to 60 when job 1 ended"
    assert starts(late, "fcfs+published") == [0, 0, 525, 25], "the published one did not"


def test_a_job_that_outlives_its_estimate_is_expected_to_end_any_moment() -> None:
    log = log_of((0, 100, 10, 4), (5, 10, 10, 4), (20, 1, 1, 1))
    assert starts(log, "fcfs+easy") == [0, 100, 110]
    assert starts(log, "fcfs+conservative") == [0, 100, 110]


def test_killing_at_the_estimate_frees_the_cores_there() -> None:
    log = log_of((0, 100, 10, 4), (5, 3, 10, 4), (6, 1, 1, 4))
    assert starts(log, "fcfs", kill_at_estimate=True) == [0, 10, 13]


def test_what_a_schedule_tells_by_hand() -> None:
    log, chosen = log_of((0, 100, 10, 4), (5, 3, 10, 4)), policy("fcfs", kill_at_estimate=True)
    schedule = simulate(log, chosen.order, chosen.rules)
    assert (schedule.wait_s.tolist(), schedule.end_s.tolist()) == ([0, 5], [10, 13])
    assert (schedule.events, schedule.inspections) == (3, 0), "two submissions, and the end that the second waited for"
    rejected = replace(schedule, rejected=np.array([2, 5]))
    assert (rejected.rejections, replace(rejected, warm=1).rejections) == (7, 5)


def test_what_decides_as_published_sees_one_event_at_a_time() -> None:
    log = log_of((0, 100, 100, 4), (0, 1, 1, 4))
    assert starts(log, "sjf") == [1, 0]
    assert starts(log, "published-sjf") == [0, 100], "the long one is all there is when it is started"


@pytest.mark.parametrize("name", ["published-sjf", "published-saf-backfill"])
def test_what_decides_as_published_kills_at_the_estimate_where_asked(name: str) -> None:
    log = log_of((0, 100, 10, 4), (5, 10, 10, 4))
    assert starts(log, name) == [0, 100]
    assert starts(log, name, kill_at_estimate=True) == [0, 10]


def test_conservative_keeps_the_second_reservation_and_easy_does_not() -> None:
    # 1 takes two cores to 100. 2 needs all: reserved at 100. 3 needs three: reserved at 150. 4 (one core, to 162)
    # would not delay 2 on the extra core of EASY, as there is none; 5 fits before 100 in both.
    log = log_of((0, 100, 100, 2), (1, 50, 50, 3), (2, 100, 100, 4), (3, 190, 190, 1))
    assert starts(log, "fcfs+easy") == [0, 100, 193, 3], "the extra core delays the third"
    assert starts(log, "fcfs+conservative") == [0, 100, 150, 250]


def test_long_jobs_leave_the_reserved_cores_free_unless_the_machine_is_idle() -> None:
    log = log_of((0, 1000, 1000, 3), (1, 1000, 1000, 1), (2, 10, 10, 1), (3000, 1000, 1000, 4))
    assert starts(log, "fcfs/skip+reserve:over_s=100,share=0.25") == [0, 1000, 2, 3000]
    # Who overtakes by the published rule does, too: 3 would take the last core.
    assert starts(BLOCKED, "fcfs+published+reserve:over_s=80,share=0.25") == [0, 100, 150, 150]


@pytest.mark.parametrize(("share", "cores"), [(0.3, 1), (0.4, 2)])
def test_a_share_of_the_machine_is_rounded_to_cores(share: float, cores: int) -> None:
    chosen = policy(f"fcfs/skip+reserve:over_s=100,share={share}")
    assert config_of(BLOCKED, chosen.order, chosen.rules).reserve_cores == cores


@pytest.mark.parametrize(("numbers", "shares"), [((0, 1), [0.0, 1.0]), ((1, 4), [0.25, 1.0]), ((0, 0), [0.0, 0.0])])
def test_a_partition_is_its_share_of_the_highest_number(numbers: tuple[int, ...], shares: list[float]) -> None:
    chosen = policy("fcfs")
    jobs = jobs_of(log_of((0, 1, 1, 1), (0, 1, 1, 1), partitions=numbers), chosen.order, chosen.rules)
    assert jobs.partition.tolist() == shares


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("fcfs", 1), ("lcfs", 4), ("sjf", 2), ("smallest", 3), ("saf", 2), ("srf", 4), ("p2q", 2), ("f1", 1),
        ("wfp3", 2), ("unicep", 2),
    ],
)  # fmt: skip
def test_which_waiting_job_an_order_starts_first(name: str, first: int) -> None:
    rows = ((0, 1000, 1000, 8), (100, 300, 300, 7), (200, 50, 50, 6), (400, 400, 400, 5), (500, 60, 60, 8))
    began = starts(log_of(*rows, machine=8), f"{name}/strict")  # one at a time
    assert min(range(1, 5), key=lambda job: (began[job], job)) == first


def test_slurm_prefers_who_used_less_and_forgets_with_time() -> None:
    rows = ((0, 1000, 1000, 4), (10, 100, 100, 4), (20, 100, 100, 4))
    fair = "multifactor:age=0,size=0,partition=0"
    assert starts(log_of(*rows, users=(0, 0, 1)), f"{fair}/strict") == [0, 1100, 1000]
    aged = "multifactor:fairshare=0,size=0/strict"
    assert starts(log_of(*rows, users=(0, 0, 1)), aged) == [0, 1000, 1100]
    wide = "multifactor:age=0,fairshare=0,favor_small=0/strict"
    rows = ((0, 1000, 1000, 4), (10, 100, 100, 1), (20, 100, 100, 4))
    assert starts(log_of(*rows), wide) == [0, 1100, 1000]
    queues = "multifactor:age=0,fairshare=0,size=0,partition=10/strict"
    assert starts(log_of(*rows, partitions=(0, 1, 3)), queues) == [0, 1100, 1000]


@pytest.mark.parametrize("wrong", ["half_life_s=0", "max_age_s=0", "dampening=0", "half_life_s=inf", "age=nan"])
def test_slurms_parameters_are_finite_and_what_divides_is_above_zero(wrong: str) -> None:
    with pytest.raises(InputError, match=f"multifactor: {wrong.partition('=')[0]} must be"):
        policy(f"multifactor:{wrong}+easy/skip")


@pytest.mark.parametrize("number", ["1e+06", "1E+6", "+1000000", "+.1e7"])
def test_a_plus_in_a_number_begins_no_backfilling(number: str) -> None:
    for rest in ("", "/skip", "+easy", "+easy/skip", "+easy+reserve:over_s=1e+06,share=0.4"):
        chosen, plain = (policy(f"multifactor:half_life_s={each}{rest}") for each in (number, "1000000"))
        assert (chosen.order, chosen.rules) == (plain.order, plain.rules)


def test_rejecting_a_blocked_head_undoes_its_commitment() -> None:
    log = log_of((0, 100, 100, 3), (1, 50, 50, 4), (2, 10, 10, 4))
    chosen = policy("sjf")
    for scope in (PICKS, STARTS):
        schedule = simulate(log, chosen.order, chosen.rules, rule_inspector(scope, REJECT_IF_BLOCKED))
        assert schedule.start_s.tolist() == [0, 110, 100]
        assert schedule.rejections > 0


def test_a_job_is_rejected_so_often_and_no_more() -> None:
    # Rejected every 600 s: after 72 times it is committed to, and the job that came later has to wait.
    hour = 3600.0
    log = log_of((0, 20 * hour, 20 * hour, 4), (1, 10, 10, 3), (15 * hour, 1, 1, 1))
    chosen = policy("fcfs")
    schedule = simulate(log, chosen.order, chosen.rules, rule_inspector(PICKS, REJECT_IF_BLOCKED))
    assert schedule.rejections == 72
    assert schedule.start_s.tolist() == [0, 20 * hour, 20 * hour]


def test_a_wide_job_or_a_time_that_runs_backwards_is_refused() -> None:
    with pytest.raises(InputError, match="job 1 needs 5 cores, the machine has 4"):
        log_of((0, 1, 1, 5))
    with pytest.raises(InputError, match="job 2: expected at least 1 core and no negative time"):
        log_of((0, 1, 1, 1), (1, 1, 1, -1))
    with pytest.raises(InputError, match="job 1: expected at least 1 core and no negative time"):
        log_of((-1, 1, 1, 1), (1, 1, 1, 1))  # it would wait for the clock to begin
    with pytest.raises(InputError, match="expected a machine of at most 2147483647 cores"):
        log_of((0, 1, 1, 1), machine=10**20)
    with pytest.raises(InputError, match="job 2 is submitted before"):
        log_of((5, 1, 1, 1), (4, 1, 1, 1))
    with pytest.raises(InputError, match="cannot take 9 from index 0"):
        replace(BLOCKED, name="x").sequence(0, 9)


def rejecting_starts(log: JobLog) -> Inspector:
    theta = np.zeros(parameters(8))
    theta[-1] = 1.0
    return InspectorModel("starts", 8, 128.0, theta).inspector(log)


@pytest.mark.parametrize("name", ["fcfs+easy", "fcfs+conservative", "fcfs+published", "published-fcfs-backfill"])
def test_an_inspector_of_starts_is_asked_about_who_overtakes(name: str) -> None:
    theta = np.zeros(parameters(8))
    for place in (2, 9 * 32, 9 * 32 + 33 * 16, -18):  # one path through the network: the share of the machine
        theta[place] = 1.0
    theta[-1] = 0.5  # less than half of it is rejected
    chosen, narrow = policy(name), InspectorModel("starts", 8, 128.0, theta).inspector(BLOCKED)
    schedule = simulate(BLOCKED, chosen.order, chosen.rules, narrow)
    assert schedule.start_s.tolist() == [0, 100, 150, 240], "held until nothing runs and nothing more will come"
    assert schedule.rejections > 0


@pytest.mark.parametrize("name", ["fcfs", "fcfs/skip", "fcfs+easy/skip", "published-sjf"])
def test_a_held_start_is_looked_at_again_after_a_job_that_takes_no_time(name: str) -> None:
    # 2 is held while 1 runs, which ends at the same instant; then nothing runs and nothing more will come.
    log = log_of((0, 0, 1, 1), (0, 50, 50, 1))
    chosen = policy(name)
    assert simulate(log, chosen.order, chosen.rules, rejecting_starts(log)).start_s.tolist() == [0, 0]
    # A third one comes much later: 2 is rejected every 600 s, as if 1 had not ended in between.
    log = log_of((0, 0, 1, 1), (0, 50, 50, 1), (90_000, 1, 1, 1))
    assert simulate(log, chosen.order, chosen.rules, rejecting_starts(log)).start_s[1] == 72 * 600.0


@pytest.mark.parametrize(("gap_s", "held_s"), [(600.0, 72 * 600.0), (599.0, 71 * 1198.0 + 599.0)])
def test_an_inspector_of_starts_holds_for_half_a_day_or_nearly_a_whole_one(gap_s: float, held_s: float) -> None:
    """By hand: asked every 600 s every rejection counts; every 599 s each second one does, and the 72nd is the last."""
    log = log_of(*((number * gap_s, 1, 1, 1) for number in range(200)), machine=200)
    chosen = policy("fcfs/skip")
    schedule = simulate(log, chosen.order, chosen.rules, rejecting_starts(log))
    assert schedule.start_s[0] == held_s < 24 * 3600.0
    assert schedule.rejected[0] == held_s / gap_s, "also those that do not count"


@pytest.mark.parametrize("name", ["sjf+conservative", "queue-prompt", "window"])
def test_a_long_run_comes_back_now_and_then_so_that_ctrl_c_is_heard(name: str) -> None:
    log = generate(2 * INSTANTS, 1, machine_cores=256, load=0.9)
    chosen = policy("fcfs/skip" if name == "window" else name)
    model, told = shortest_first(5, 0) if name == "window" else chosen.model, list[float]()
    schedule = simulate(log, chosen.order, chosen.rules, model=model, progress=told.append)
    assert len(told) >= 3, "each job arrives and ends"
    assert 0.0 < told[0] < told[-1] < 1.0
    assert np.isfinite(schedule.start_s).all()


def test_a_run_that_plans_a_long_queue_comes_back_sooner() -> None:
    log, chosen = log_of(*((0, 1, 1, 1) for _ in range(1000)), machine=4), policy("fcfs+conservative/strict")
    world = new_world(len(log), 1, log.machine_cores)
    jobs, config = jobs_of(log, chosen.order, chosen.rules), config_of(log, chosen.order, chosen.rules)
    assert not run(jobs, config, world, no_inspector())
    # By hand: after n instants 1000 - 4 n jobs wait, and the squares of these pass 5e7 where n is 67.
    assert np.isfinite(world.start).sum() == 4 * 67
    while not run(jobs, config, world, no_inspector()):
        pass
    assert world.start.tolist() == [job // 4 for job in range(1000)]
