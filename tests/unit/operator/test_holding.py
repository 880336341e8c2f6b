"""Whether holding pays in a pool: estimated by replay, switched with hysteresis, and told."""

from __future__ import annotations

import asyncio
import math
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.unit.operator.objects import DONE, T0, job_fact_of, stage, workflow, workflow_fact_of
from tests.unit.operator.world import World

from fermata.operator import holding, names, reasons
from fermata.operator.estimates import Estimates
from fermata.operator.facts import PoolFact, pool_fact
from fermata.operator.hindsight import ReplayError
from fermata.operator.holding import (
    BLOCK,
    ENOUGH_BLOCKS,
    MANY_BLOCKS,
    TAIL,
    WARM,
    Block,
    Holding,
    Replayed,
    Situation,
    paused_after,
    savings,
)
from fermata.operator.metrics import Metrics
from fermata.operator.past import PastJob, PastStage, come_at, past_job, present_job, shares_cap
from fermata.operator.times import render
from fermata.operator.view import view
from fermata.policy import registry
from fermata.policy.decide import Policy
from fermata.policy.earlier_runs import LEAST_S
from fermata.policy.guardrails import Guardrails

LIMITS = Guardrails(hold_when_idle=False)
SJF = registry.load("sjf")
HOLDS = "sjf-hold:tau=3,split=4"
OWN_ORDER = f"{HOLDS} without holds"
GAUGE = "fermata_pool_hold_savings_ratio", {"pool": "pool"}


def _job(number: int, arrival_s: float, duration_s: float) -> PastJob:
    row = PastStage("a", (), 1, 1, 1, duration_s, duration_s)
    return PastJob(arrival_s, f"uid-{number:05}", f"default/w-{number}", 1.0, (row,), duration_s)


def _stream(jobs: int) -> list[PastJob]:
    """Return one executor's day: every 30 s a long job of 20 s, and 2 s later a short one of 4 s (figure 1)."""
    return [_job(i, 30.0 * (i // 2) + 2.0 * (i % 2), 4.0 if i % 2 else 20.0) for i in range(jobs)]


def _situation(policy: str) -> Situation:
    own: Policy = registry.load(policy)
    return Situation(own, SJF, SJF, LIMITS._replace(hold_when_idle=True), 1)


def test_a_block_of_figure_one_saves_what_the_figure_says() -> None:
    jobs = _stream(WARM + BLOCK + TAIL + 1)
    found = holding.compare(_situation("hold-follower:delay=4"), jobs, WARM + 1, lambda: 0.0)
    pairs = BLOCK / 2
    assert found.fresh.base_s == pytest.approx(pairs * (20 + 22))
    assert found.fresh.own_s == pytest.approx(pairs * (26 + 4))
    assert found.queued == found.fresh


@pytest.mark.parametrize("sticky", [True, False])
def test_a_replay_sees_what_came_before_its_block_and_runs_no_more_of_it_than_warms_the_pool_up(
    sticky: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, asked = _stream(300), list[tuple[Any, ...]]()

    def replay(window: list[PastJob], executors: int, policy: Policy, *_: Any, **told: Any) -> Any:
        asked.append((window, policy, told["history"], told["sticky"]))
        return np.array([job.arrival_s + 1.0 for job in window])

    monkeypatch.setattr(holding, "replay", replay)
    situation = _situation(HOLDS)._replace(sticky=sticky)
    found = holding.compare(situation, jobs, 100, lambda: 0.0)
    end, policies = 100 + BLOCK + TAIL, (situation.base, situation.policy)
    # The 75th is a short one that comes while the long one before it runs: with that one the pool was empty.
    begins = (100 - WARM, 100 - WARM - 1)
    assert asked == [(jobs[begin:end], policy, jobs[:begin], sticky) for begin in begins for policy in policies]
    assert found == (Block(BLOCK, BLOCK), Block(BLOCK, BLOCK))


@pytest.mark.parametrize(
    ("jct_s", "begins"),
    [
        ({}, 150),  # the pool was empty when the first of those came that warm it up
        ({149: 11.0}, 149),
        ({149: 10.0}, 150),  # it was done when the next one came
        ({100: 505.0}, 100),  # all that came after it came while it ran
        ({100: 505.0, 60: 450.0}, 60),
        ({60: 450.0}, 150),  # it was over by then
        ({120: math.nan}, 120),  # it is not finished
    ],
)
def test_a_block_is_replayed_again_from_where_the_pool_was_last_empty(
    jct_s: dict[int, float], begins: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [_job(number, 10.0 * number, 5.0)._replace(jct_s=jct_s.get(number, 5.0)) for number in range(300)]
    begun = []

    def replay(window: list[PastJob], *_: Any, **__: Any) -> Any:
        begun.append(jobs.index(window[0]))
        return np.array([job.arrival_s + 1.0 for job in window])

    monkeypatch.setattr(holding, "replay", replay)
    found = holding.compare(_situation(HOLDS), jobs, 150 + WARM, lambda: 0.0)
    assert begun == [150, 150] + ([begins, begins] if begins < 150 else [])
    assert found == (Block(BLOCK, BLOCK), Block(BLOCK, BLOCK))


def test_a_workflow_that_was_created_suspended_kept_its_pool_busy_only_since_it_came() -> None:
    made = _job(1, 100.0, 5.0)._replace(jct_s=86_405.0)
    assert come_at(made, 86_500.0)[0::5] == (86_500.0, 5.0)
    assert come_at(made._replace(jct_s=math.nan), 86_500.0).jct_s == 0.0, "nobody knows when it ended"


def test_a_pool_that_was_never_empty_is_replayed_from_as_far_back_as_anything_is_remembered() -> None:
    jobs = [_job(number, 10.0 * number, 5.0)._replace(jct_s=1e9) for number in range(2 * holding.REMEMBERED)]
    assert holding._busy_since(jobs, 1200) == 1200 - holding.REMEMBERED
    assert holding._busy_since(jobs, 300) == 0


def test_where_a_replay_with_the_queue_takes_too_long_the_one_without_is_all_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = [_job(number, 10.0 * number, 5.0)._replace(jct_s=1e9) for number in range(300)]
    begun = []

    def replay(window: list[PastJob], *_: Any, **__: Any) -> Any:
        begun.append(jobs.index(window[0]))
        if begun[-1] == 0 or fails:
            raise ReplayError("it takes too long")
        return np.array([job.arrival_s + 1.0 for job in window])

    monkeypatch.setattr(holding, "replay", replay)
    fails = False
    found = holding.compare(_situation(HOLDS), jobs, 100, lambda: 0.0)
    assert found == (Block(BLOCK, BLOCK), Block(BLOCK, BLOCK))
    assert begun == [100 - WARM, 100 - WARM, 0]
    fails = True
    with pytest.raises(ReplayError):
        holding.compare(_situation(HOLDS), jobs, 100, lambda: 0.0)


@pytest.mark.parametrize(
    ("losses", "counts"),
    [
        ((20.0,) * MANY_BLOCKS, True),
        ((5.0, 35.0) * (MANY_BLOCKS // 2), True),  # 20 +- 5.7
        ((0.0, 40.0) * (MANY_BLOCKS // 2), False),  # 20 +- 7.6
        ((0.5,) * MANY_BLOCKS, False),  # beyond doubt, and not worth it
        ((20.0,) * (MANY_BLOCKS - 1), False),
        ((-20.0,) * MANY_BLOCKS, False),  # what it saves in a queue does not count
    ],
)
def test_what_holding_costs_in_a_queue_counts_where_many_blocks_leave_no_doubt(
    losses: tuple[float, ...], counts: bool
) -> None:
    found = savings([Block(100.0, 90.0)], [Block(100.0, 100.0 + loss) for loss in losses])
    assert found is not None
    assert found.share == pytest.approx(-sum(losses) / len(losses) / 100.0 if counts else 0.1)


def test_a_pause_for_what_holding_costs_in_a_queue_stays_until_the_pool_or_its_policy_is_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While nothing is held there is no such queue, and what is replayed then says nothing of it."""
    jobs, told = _stream(WARM + 4 * MANY_BLOCKS * BLOCK + TAIL), []

    def compare(_: Situation, __: list[PastJob], first: int, ___: Any) -> Replayed:
        queue = first < WARM + MANY_BLOCKS * BLOCK
        return Replayed(Block(100.0, 90.0), Block(100.0, 120.0 if queue else 90.0))

    monkeypatch.setattr(holding, "FIRST_SHARE", math.inf)  # no rest between replays
    monkeypatch.setattr(holding, "SHARE", math.inf)
    monkeypatch.setattr(holding, "compare", compare)

    async def main() -> None:
        pool = Holding("pool", Metrics(), lambda _: None)
        for situation in (_situation("hold-follower:delay=4"), _situation("hold-follower:delay=5")):
            for job in jobs:
                pool.finished(job)
                pool.consider(situation, list)
                while pool.replaying:
                    await asyncio.sleep(0)
                told.append(pool.verdict(_pool()).on)

    asyncio.run(main())
    paused = np.flatnonzero(np.diff(told))
    first, second = len(jobs), told[len(jobs) :]
    assert len(paused) >= 2
    assert all(told[paused[0] + 1 : first])
    assert not second[0], "that was about another policy"


def test_savings_and_their_error() -> None:
    assert savings([]) is None
    one = savings([Block(100.0, 90.0)])
    assert one is not None
    assert (one.share, one.error, one.workflows) == (pytest.approx(0.1), math.inf, BLOCK)
    assert str(one) == f"holding saves 10.0% of the mean JCT, by replay of {BLOCK} workflows"
    two = savings([Block(80.0, 72.0), Block(120.0, 138.0)])
    assert two is not None
    assert (two.share, two.error) == (pytest.approx(-0.05), pytest.approx(0.13))
    assert str(two) == f"holding costs 5.0% (± 13.0%) of the mean JCT, by replay of {2 * BLOCK} workflows"


@pytest.mark.parametrize(
    ("gains", "paused", "expected"),
    [
        ([-9.0] * (ENOUGH_BLOCKS - 1), False, False),  # too little seen
        ([-9.0] * ENOUGH_BLOCKS, False, True),
        ([-9.0, 9.0, -9.0], False, False),  # not clear
        ([-0.5] * 5, False, False),  # clear, but not worth it
        ([0.5] * 5, True, True),  # the way back is as wide
        ([2.0] * 5, True, False),
        ([9.0, -9.0, 5.0], True, True),
    ],
)
def test_holding_is_switched_off_and_on_only_where_that_is_clear(
    gains: list[float], paused: bool, expected: bool
) -> None:
    assert paused_after(savings([Block(100.0, 100.0 - gain) for gain in gains]), paused=paused) is expected


def _pool(**changes: Any) -> PoolFact:
    raw = {"metadata": {"name": "pool", "uid": "p", "generation": 3}, "spec": {"executors": 1}, **changes}
    return pool_fact(raw)


def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no rest between replays, and none given up on a busy machine."""
    for limit in ("SHARE", "FIRST_SHARE", "LONGEST_REPLAY_S"):
        monkeypatch.setattr(holding, limit, math.inf)


def _watch(jobs: list[PastJob], policies: list[str | None], monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Feed jobs to the estimate, under one policy after the other, and return the verdict at the end of each."""
    _hurry(monkeypatch)

    async def main() -> list[tuple[Any, ...]]:
        told = []
        pool = Holding("pool", Metrics(), lambda _: None)
        for job in jobs:
            pool.finished(job)
        for policy in policies:
            situation = _situation(policy) if policy else None
            pool.consider(situation, list)
            while pool.replaying:
                await asyncio.sleep(0.001)
                pool.consider(situation, list)
            told.append((*pool.verdict(_pool())[:2], pool.savings))
        pool.close()
        return told

    return asyncio.run(main())


def test_holding_that_costs_is_paused_and_another_policy_has_its_own_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing follows within 25 s, so holding a long job that long is for nothing.
    jobs = [_job(i, 60.0 * i, 20.0 if i % 2 else 4.0) for i in range(WARM + 4 * BLOCK + TAIL)]
    bad, good = _watch(jobs, ["hold-follower:delay=25", "hold-follower:delay=0"], monkeypatch)
    assert bad[:2] == (True, reasons.HOLDING_COSTS)
    assert bad[2].share == pytest.approx(-25.0 / (20.0 + 4.0), abs=0.01)
    assert bad[2].workflows == 4 * BLOCK
    assert good[:2] == (False, reasons.HOLDING_ALLOWED)


def test_another_policy_has_its_own_chance_after_mode_off_too_and_the_same_one_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = [_job(i, 60.0 * i, 20.0 if i % 2 else 4.0) for i in range(WARM + 4 * BLOCK + TAIL)]
    costs, off, other = "hold-follower:delay=25", None, "hold-follower:delay=0"
    assert [told[0] for told in _watch(jobs, [costs, off, other], monkeypatch)] == [True, True, False]
    assert [told[0] for told in _watch(jobs, [costs, off, costs], monkeypatch)] == [True, True, True]


def test_a_pause_outlasts_an_edit_of_the_pool_and_its_estimate_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    _hurry(monkeypatch)
    jobs = [_job(i, 60.0 * i, 20.0 if i % 2 else 4.0) for i in range(WARM + 4 * BLOCK + TAIL)]
    costs = _situation("hold-follower:delay=25")

    async def main() -> list[tuple[bool, str, str]]:
        metrics = Metrics()
        pool = Holding("pool", metrics, lambda _: None)
        for job in jobs:
            pool.finished(job)
        pool.consider(costs, list)
        while pool.replaying:
            await asyncio.sleep(0.001)
            pool.consider(costs, list)
        told = [pool.verdict(_pool())]
        assert metrics.registry.get_sample_value(*GAUGE) == pytest.approx(-25.0 / 24.0, abs=0.01)
        pool.consider(costs._replace(limits=Guardrails(max_hold_s=60.0)), list)
        assert pool.savings is None
        assert metrics.registry.get_sample_value(*GAUGE) is None, "the metric says what the status does not"
        pool.close()
        return [*told, pool.verdict(_pool())]

    before, after = asyncio.run(main())
    assert before[2].startswith("holding costs ")
    assert after[:2] == before[:2]
    assert after[2] == "as it was before the operator was started again or the pool was edited"


def test_neither_pause_nor_estimate_outlasts_the_pool_that_they_are_about(monkeypatch: pytest.MonkeyPatch) -> None:
    _hurry(monkeypatch)
    jobs = [_job(i, 60.0 * i, 20.0 if i % 2 else 4.0) for i in range(WARM + 4 * BLOCK + TAIL)]
    costs = _situation("hold-follower:delay=25")

    async def watch(pool: Holding, fact: PoolFact) -> list[tuple[bool, str, str]]:
        told = [pool.verdict(fact)]
        pool.consider(costs, list)
        while pool.replaying:
            await asyncio.sleep(0.001)
            pool.consider(costs, list)
        return [*told, pool.verdict(fact)]

    async def main() -> list[tuple[bool, str, str]]:
        pool = Holding("pool", Metrics(), lambda _: None)
        for job in jobs:
            pool.finished(job)
        told = await watch(pool, _pool())
        told += await watch(pool, _pool(metadata={"name": "pool", "uid": "again", "generation": 1}))
        pool.close()
        return told

    fresh, found, again, found_again = asyncio.run(main())
    assert (fresh, again) == ((False, reasons.HOLDING_ALLOWED, ""),) * 2
    # What ran under that name is replayed for the new pool, too, as it would be after a restart.
    assert found == found_again
    assert found[:2] == (True, reasons.HOLDING_COSTS)


def test_a_pause_ends_when_what_arrives_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    _hurry(monkeypatch)
    bad = [_job(i, 60.0 * i, 20.0 if i % 2 else 4.0) for i in range(WARM + 4 * BLOCK + TAIL)]
    begin_s = bad[-1].arrival_s + 60.0
    good = [
        job._replace(arrival_s=job.arrival_s + begin_s, uid=f"later-{job.uid}", name=f"later-{job.name}")
        for job in _stream(holding.BLOCKS * BLOCK + TAIL + 1)
    ]

    async def main() -> list[bool]:
        pool, told = Holding("pool", Metrics(), lambda _: None), []
        for stream in (bad, good):
            for number, job in enumerate(stream):
                pool.finished(job)
                if number % BLOCK and job is not stream[-1]:
                    continue
                pool.consider(_situation("hold-follower:delay=4"), list)
                while pool.replaying:
                    await asyncio.sleep(0.001)
                    pool.consider(_situation("hold-follower:delay=4"), list)
            told.append(pool.verdict(_pool())[0])
        return told

    assert asyncio.run(main()) == [True, False]


def test_holding_that_pays_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = _watch(_stream(WARM + 4 * BLOCK + TAIL), ["hold-follower:delay=4"], monkeypatch)
    assert found[:2] == (False, reasons.HOLDING_ALLOWED)
    assert found[2].share == pytest.approx(1 - 30 / 42, abs=0.01)


def test_what_is_judged_after_a_long_history_is_the_latest_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    number = holding.REMEMBERED + 1
    bad = [_job(i, 60.0 * i, 20.0 if i % 2 else 4.0) for i in range(number)]
    end_s = bad[-1].arrival_s + 60.0
    good = [job._replace(arrival_s=job.arrival_s + end_s, uid=f"later-{job.uid}") for job in _stream(number)]
    (found,) = _watch(bad + good, ["hold-follower:delay=4"], monkeypatch)
    assert found[:2] == (False, reasons.HOLDING_ALLOWED)
    assert found[2].share == pytest.approx(1 - 30 / 42, abs=0.01)


@pytest.mark.parametrize(
    ("finished", "unfinished", "begin"),
    [
        (WARM + BLOCK + TAIL - 1, 0, []),
        (WARM + BLOCK + TAIL, 0, [WARM]),
        (WARM + 2 * BLOCK + TAIL, 0, [WARM, WARM + BLOCK]),
        (BLOCK - 1, WARM + TAIL + 1, []),  # too little is known of what the block really took
        (BLOCK, WARM + TAIL, [WARM]),
    ],
)
def test_a_block_is_replayed_once_so_many_have_finished_and_come_after_it(
    finished: int, unfinished: int, begin: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, begun = _stream(finished + unfinished), []

    def compare(_: Situation, __: list[PastJob], first: int, ___: Any) -> Replayed:
        begun.append(first)
        return Replayed(Block(100.0, 90.0), Block(100.0, 90.0))

    monkeypatch.setattr(holding, "FIRST_SHARE", math.inf)  # no rest between replays
    monkeypatch.setattr(holding, "compare", compare)

    async def main() -> None:
        pool = Holding("pool", Metrics(), lambda _: None)
        for job in jobs[:finished]:
            pool.finished(job)
        for _ in range(3):
            pool.consider(_situation("hold-follower:delay=4"), lambda: jobs[finished:])
            while pool.replaying:
                await asyncio.sleep(0.001)

    asyncio.run(main())
    assert begun == begin


def test_of_workflows_that_come_in_one_second_each_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = list[str]()

    def compare(_: Situation, jobs: list[PastJob], first: int, __: Any) -> Replayed:
        counted.extend(job.uid for job in jobs[first : first + BLOCK])
        return Replayed(Block(100.0, 90.0), Block(100.0, 90.0))

    monkeypatch.setattr(holding, "compare", compare)
    jobs = [_job(number, 3600.0 * (number // 200), 10.0) for number in range(600)]
    _watch(jobs, ["hold-follower:delay=4"], monkeypatch)
    blocks = (600 - WARM - TAIL) // BLOCK
    assert counted == [job.uid for job in jobs[WARM : WARM + blocks * BLOCK]]


def _replays() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == "replay-pool"]


def test_what_finishes_while_a_replay_rests_waits_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "FIRST_SHARE", 1e-9)  # rests for days
    monkeypatch.setattr(holding, "compare", lambda *_: Replayed(Block(100.0, 90.0), Block(100.0, 90.0)))

    async def main() -> None:
        pool = Holding("pool", Metrics(), lambda _: None)
        for job in _stream(WARM + 3 * BLOCK + TAIL):
            pool.finished(job)
            pool.consider(_situation("hold-follower:delay=4"), list)
        (first,) = _replays()
        while pool.savings is None:
            await asyncio.sleep(0.001)
        pool.finished(_job(9999, 99999.0, 4.0))
        pool.consider(_situation("hold-follower:delay=4"), list)
        assert _replays() == [first]
        pool.close()
        await asyncio.wait({first})
        assert first.cancelled()

    asyncio.run(main())


def test_a_pool_is_woken_for_each_verdict_and_each_next_replay_and_these_take_a_small_share_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sleep, rests_s, took_s, blocks = asyncio.sleep, list[float](), 0.25, 5
    clock = SimpleNamespace(now_s=0.0, monotonic=lambda: clock.now_s)

    def compare(*_: Any) -> Replayed:
        clock.now_s += took_s
        return Replayed(Block(100.0, 90.0), Block(100.0, 90.0))

    async def rest(seconds: float) -> None:
        rests_s.append(seconds)

    async def main() -> None:
        woken: list[str] = []
        pool = Holding("pool", Metrics(), woken.append)
        for job in _stream(WARM + blocks * BLOCK + TAIL):
            pool.finished(job)
        heard = -1
        while len(woken) < 2 * blocks:
            if len(woken) != heard:  # nothing else happens in it
                heard = len(woken)
                pool.consider(_situation("hold-follower:delay=4"), list)
            await sleep(0.001)
        assert pool.savings is not None
        assert pool.savings.workflows == blocks * BLOCK

    monkeypatch.setattr(holding, "time", clock)
    monkeypatch.setattr(holding, "compare", compare)
    monkeypatch.setattr(asyncio, "sleep", rest)
    asyncio.run(asyncio.wait_for(main(), 30.0))
    often = ENOUGH_BLOCKS - 1
    assert rests_s == [took_s / holding.FIRST_SHARE] * often + [took_s / holding.SHARE] * (blocks - often)


def test_a_replay_that_runs_when_the_policy_is_edited_is_not_about_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = threading.Event()

    def compare(*_: Any) -> Replayed:
        goes_on.wait(60)
        return Replayed(Block(100.0, 90.0), Block(100.0, 90.0))

    monkeypatch.setattr(holding, "FIRST_SHARE", math.inf)
    monkeypatch.setattr(holding, "compare", compare)

    async def main() -> None:
        pool = Holding("pool", Metrics(), lambda _: None)
        for job in _stream(WARM + BLOCK + TAIL):
            pool.finished(job)
        pool.consider(_situation("hold-follower:delay=4"), list)
        (replay,) = _replays()
        await asyncio.sleep(0.0)  # it begins
        pool.enter(_situation("hold-follower:delay=5"))
        pool.consider(_situation("hold-follower:delay=5"), list)
        (another,) = set(_replays()) - {replay}
        pool.close()
        goes_on.set()
        await asyncio.wait({replay, another})
        assert pool.savings is None

    asyncio.run(main())


def test_no_more_is_remembered_than_is_replayed_twice_over() -> None:
    pool, jobs = Holding("pool", Metrics(), lambda _: None), _stream(3 * holding.REMEMBERED)
    for job in jobs:
        pool.finished(job)
    assert holding.REMEMBERED <= len(pool._finished) <= 2 * holding.REMEMBERED
    assert pool._finished.keys() >= {job.uid for job in jobs[-holding.REMEMBERED :]}


def test_a_pool_replays_what_has_finished_in_it_and_tells_what_holding_saves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "FIRST_SHARE", math.inf)  # no rest between replays
    monkeypatch.setattr(holding, "compare", lambda *_: Replayed(Block(100.0, 90.0), Block(100.0, 90.0)))
    world = World()
    for number in range(WARM + BLOCK + TAIL):
        arrival = render(T0 - 1000 + number)
        row = {"name": "a", "state": "Succeeded", "startTime": arrival, "completionTime": arrival, "runSeconds": 1.0}
        status = {**DONE, "stages": [row], "arrivalTime": arrival, "completionTime": arrival, "jctSeconds": 1.0}
        world.feed("workflows", f"uid-{number}", workflow(str(number), stage("a"), status=status))

    async def main() -> None:
        await world.reconciler.reconcile()
        while world.reconciler._holding.replaying:
            await asyncio.sleep(0.001)
        await world.run_until(world.now_s + 10.0)  # statuses of pools are told now and then
        world.reconciler.close()

    asyncio.run(main())
    assert world.server.objects["p"]["status"]["holdSavingsPercent"] == 10.0


@pytest.mark.parametrize(
    ("mode", "give_back", "base", "sticky"),
    [("Enforce", "Stage", OWN_ORDER, True), ("Shadow", "Stage", "fifo", True), ("Enforce", "Task", OWN_ORDER, False)],
)
def test_what_is_replayed_is_what_acts_in_the_pool_and_what_would_act_without_holding(
    mode: str, give_back: str, base: str, sticky: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(mode=mode, giveBack=give_back, fallback="fifo", executors=3, maxHoldSeconds=7)
    own, asked = registry.load(HOLDS), list[Situation | None]()
    world.reconciler._seat._policy = own
    monkeypatch.setattr(world.reconciler._holding, "enter", asked.append)
    monkeypatch.setattr(world.reconciler._holding, "consider", lambda situation, _: asked.append(situation))
    asyncio.run(world.reconciler.reconcile())
    before, after = asked
    assert before is not None
    assert before == after
    assert (before.policy, before.base.name, before.fallback.name) == (own, base, OWN_ORDER)
    assert (before.limits.max_hold_s, before.executors, before.sticky) == (7.0, 3, sticky)


def test_a_policy_that_never_holds_is_not_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = _watch(_stream(WARM + 2 * BLOCK + TAIL), ["sjf"], monkeypatch)
    assert found == (False, reasons.HOLDING_ALLOWED, None)


def test_people_can_switch_holding_off_and_a_restart_forgets_no_pause() -> None:
    fresh = Holding("pool", Metrics(), lambda _: None)
    for value in ("*", ""):  # kubectl annotate takes one without a value, too
        assert fresh.verdict(_pool(metadata={"annotations": {"fermata.dev/release": value}}))[:2] == (
            True, reasons.HOLDING_RELEASED,
        )  # fmt: skip
    costs, released = reasons.HOLDING_COSTS, reasons.HOLDING_RELEASED
    for generation, reason, paused in ((3, costs, True), (2, costs, False), (3, released, False)):
        told = {
            "type": reasons.HOLDING_PAUSED, "status": "True", "reason": reason,
            "observedGeneration": generation, "lastTransitionTime": render(T0),
        }  # fmt: skip
        again = Holding("pool", Metrics(), lambda _: None)
        assert again.verdict(_pool(status={"conditions": [told]}))[0] is paused


def test_what_happened_is_read_off_a_status() -> None:
    rows = [
        {"name": "a", "state": "Succeeded", "startTime": render(T0), "runSeconds": 12.0, "parallelism": 2,
         "estimateSeconds": 5.0, "tasks": 4},
        {"name": "b", "state": "Failed", "startTime": render(T0 + 12), "runSeconds": 3.0, "parallelism": 1},
        {"name": "c", "state": "Skipped"},
    ]  # fmt: skip
    status = {"stages": rows, "jctSeconds": 15.0, "arrivalTime": render(T0)}
    fact = workflow_fact_of(
        "w", stage("a", tasks=4), stage("b", "a", estimateSeconds=None), stage("c", "b"), status=status
    )
    job = past_job(fact)
    assert job is not None
    assert (job.arrival_s, job.jct_s, job.name) == (T0, 15.0, "default/w")
    failed = PastStage("b", (0,), 1, 1, 1, 3.0, 3.0, given=False, succeeded=False)
    assert job.stages == (PastStage("a", (), 4, 1, 4, 6.0, 5.0), failed)
    assert past_job(workflow_fact_of("w", stage("a"), status={"stages": []})) is None
    unreadable = workflow_fact_of("w", stage("a"), status=status, priority="high")
    assert (unreadable.spec, past_job(unreadable)) == (None, None)


def test_what_ran_counts_with_its_own_caps_and_what_never_ran_is_nobodys_parent() -> None:
    rows = [
        {"name": "b", "state": "Succeeded", "startTime": render(T0), "runSeconds": 0.0, "tasks": 6},
        {"name": "c", "state": "Succeeded", "startTime": render(T0), "runSeconds": 8.0},
    ]
    specs = stage("a"), stage("b", "a", tasks=9, parallelism=4), stage("c", "a", "b", tasks=9, slots=2)
    job = past_job(workflow_fact_of("w", *specs, status={"stages": rows}, parallelism=5, priority=1000))
    assert job is not None
    first, second = job.stages
    # Six tasks, as the status says: the spec was edited after the start. No task takes no time at all.
    assert (first.parents, first.tasks, first.max_cap, first.duration_s) == ((), 6, 4, LEAST_S)
    assert (second.parents, second.tasks, second.max_cap, second.slots) == ((0,), 9, 5, 2)
    assert job.weight > 1.0
    assert math.isnan(job.jct_s)
    assert job.work_s == sum(row.tasks * row.slots * row.estimate_s for row in job.stages)


@pytest.mark.parametrize(
    "stages",
    [[stage("a", "b"), stage("b", "a")], [stage("a", "gone"), stage("b", "a")], [stage("a"), stage("b"), stage("a")]],
)
def test_what_an_edit_made_something_else_than_a_dag_ran_without_its_edges(stages: list[dict[str, Any]]) -> None:
    rows = [{"name": name, "state": "Succeeded", "startTime": render(T0), "runSeconds": 1.0} for name in "ab"]
    job = past_job(workflow_fact_of("w", *stages, status={"stages": rows, "jctSeconds": 2.0}, parallelism=1))
    assert job is not None
    assert sorted((row.name, row.parents) for row in job.stages) == [("a", ()), ("b", ())]
    assert shares_cap(job, 1)


def test_what_goes_on_takes_its_estimate_and_at_least_what_it_took() -> None:
    fact = workflow_fact_of("w", stage("a"), stage("b", "a", estimateSeconds=7))
    assert fact.spec is not None
    seen = view(fact, fact.spec, {}, {}, {}, Estimates(), T0)
    assert [row.duration_s for row in present_job(seen, T0 + 99).stages] == [10.0, 7.0]


def test_what_has_started_is_expected_as_it_was_then_and_takes_no_longer_than_it_took() -> None:
    fact = workflow_fact_of("w", stage("a"), stage("b", "a"), stage("c", "b"))
    assert fact.spec is not None
    believed = {names.ANNOTATION_ESTIMATE: "4"}  # since then estimateSeconds was edited
    done = job_fact_of("w", "a", T0 + 6, outcome="Complete", end_s=T0 + 6, annotations=believed)
    jobs = {"a": done, "b": job_fact_of("w", "b", T0 + 7, start_s=T0 + 6, annotations=believed)}
    seen = view(fact, fact.spec, jobs, {}, {}, Estimates(), T0 + 99)  # whose status has not been told yet
    rows = present_job(seen, T0 + 99).stages
    assert [(row.duration_s, row.estimate_s) for row in rows] == [(6.0, 4.0), (93.0, 4.0), (10.0, 10.0)]


def test_a_stage_whose_job_is_not_seen_goes_on_and_has_taken_what_it_took() -> None:
    row = {"name": "a", "state": "Running", "startTime": render(T0), "parallelism": 2, "tasks": 4}
    fact = workflow_fact_of("w", stage("a", tasks=4, estimateSeconds=7), status={"stages": [row]})
    assert fact.spec is not None
    seen = view(fact, fact.spec, {}, {}, {}, Estimates(), T0)
    assert seen.missing == {"a": (2, 1)}
    assert [present_job(seen, T0 + passed_s).stages[0].duration_s for passed_s in (1, 60)] == [7.0, 30.0]


def test_a_stage_that_was_widened_counts_with_what_its_tasks_took() -> None:
    row = {"name": "a", "state": "Succeeded", "startTime": render(T0), "completionTime": render(T0 + 13),
           "runSeconds": 13.0, "parallelism": 13, "taskSeconds": 1.0}  # fmt: skip
    fact = workflow_fact_of("w", stage("a", tasks=24), stage("b", "a"), status={"stages": [row]})
    job = past_job(fact)
    assert job is not None
    assert job.stages[0].duration_s == 1.0
    assert fact.spec is not None
    seen = view(fact, fact.spec, {}, {}, {}, Estimates(), T0 + 20)  # its Job is gone
    assert present_job(seen, T0 + 20).stages[0].duration_s == 1.0
    lanes = {names.ANNOTATION_LANES: "1@0.000 12@12.000"}
    jobs = {"a": job_fact_of("w", "a", T0 + 26, tasks=24, parallelism=13, annotations=lanes)}
    running = workflow_fact_of("w", stage("a", tasks=24, estimateSeconds=1))
    assert running.spec is not None
    seen = view(running, running.spec, jobs, {}, {}, Estimates(), T0 + 26)
    # Twelve lanes of 14 s and one of 26: two tasks on each of them is room for 24, and one on each is not.
    assert present_job(seen, T0 + 26).stages[0].duration_s == pytest.approx(7.0)


@pytest.mark.parametrize(
    ("parallelism", "stages", "shared"),
    [
        (None, [stage("a"), stage("b")], False),
        (1, [stage("a"), stage("b")], True),
        (2, [stage("a"), stage("b")], False),
        (2, [stage("a"), stage("b"), stage("c")], True),
        (1, [stage("a", tasks=9)], False),  # a cap of the stage
        (3, [stage("a", tasks=9), stage("b", "a", tasks=9), stage("c", "b", tasks=9)], False),  # never side by side
        (3, [stage("a"), stage("b", "a", tasks=2), stage("c", "a", tasks=2), stage("d", "b", "c", tasks=9)], True),
        (3, [stage("a"), stage("b", "a", tasks=2), stage("c", "a"), stage("d", "b", "c", tasks=9)], False),
        (3, [stage("a"), stage("b", "a", tasks=9, parallelism=2), stage("c", "a")], False),
    ],
)
def test_a_parallelism_that_stages_side_by_side_share(
    parallelism: int | None, stages: list[dict[str, Any]], shared: bool
) -> None:
    rows = [{"name": row["name"], "state": "Succeeded", "startTime": render(T0), "runSeconds": 1.0} for row in stages]
    job = past_job(workflow_fact_of("w", *stages, status={"stages": rows}, parallelism=parallelism))
    assert job is not None
    assert shares_cap(job, parallelism) is shared
