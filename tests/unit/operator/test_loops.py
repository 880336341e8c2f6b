"""Loops, timers and Events: what runs beside each other without getting in each other's way."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.unit.operator.objects import T0, stage, workflow

from fermata.operator import loops
from fermata.operator.connection import ClusterError
from fermata.operator.events import BURST, FAILURES, REFILL_S, REPEAT_AFTER_S, Events
from fermata.operator.facts import meta_of
from fermata.operator.loops import Loops
from fermata.operator.metrics import Metrics
from fermata.operator.timers import Timers
from fermata.sim.kube import names


def test_a_burst_costs_one_reconciliation_and_nothing_is_missed() -> None:
    seen: list[str] = []
    gate = asyncio.Event()

    async def reconcile(pool: str) -> None:
        seen.append(pool)
        await gate.wait()

    async def main() -> None:
        running = Loops(reconcile, lambda _: None)
        for _ in range(50):
            running.wake("a")
        assert seen == []  # not open yet
        running.open()
        while not seen:
            await asyncio.sleep(0.001)
        running.wake("a")  # while it reconciles: once more afterwards
        assert running.pending("a")
        gate.set()
        while len(seen) < 2:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        await running.close()

    asyncio.run(main())
    assert seen == ["a", "a"]


def test_a_pool_that_is_forgotten_leaves_no_loop_and_is_taken_up_again_when_it_is_woken() -> None:
    seen: list[str] = []

    async def main() -> None:
        async def reconcile(pool: str) -> None:
            seen.append(pool)
            if len(seen) == 1:
                running.wake(pool)  # it has come back meanwhile: that is not missed
            running.forget(pool)

        async def until(count: int) -> None:
            async with asyncio.timeout(30):
                while len(seen) < count or len(asyncio.all_tasks()) > 1:
                    await asyncio.sleep(0.001)

        running = Loops(reconcile, lambda _: None)
        running.open()
        running.wake("made up")
        await until(2)
        assert not running.pending("made up")
        running.wake("made up")
        await until(3)
        await running.close()

    asyncio.run(main())
    assert seen == ["made up"] * 3


def test_a_pool_that_went_while_loops_were_closed_has_none_when_they_open_again() -> None:
    seen: list[str] = []

    async def main() -> None:
        async def reconcile(pool: str) -> None:
            seen.append(pool)

        async def until(pools: list[str]) -> None:
            async with asyncio.timeout(30):
                while seen != pools:
                    await asyncio.sleep(0.001)

        running = Loops(reconcile, lambda _: None)
        running.open()
        running.wake("gone")
        running.wake("stays")
        await until(["gone", "stays"])
        await running.close()
        running.wake("stays")
        running.open()
        assert len(asyncio.all_tasks()) == 2  # with this one
        await until(["gone", "stays", "stays"])
        await running.close()

    asyncio.run(main())


def test_a_pool_that_fails_is_tried_again_and_harms_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "_RETRY_S", (0.01,))
    failed: list[str] = []
    done = asyncio.Event()
    good = 0

    async def reconcile(pool: str) -> None:
        nonlocal good
        if pool == "bad":
            if len(failed) == 2:
                done.set()
                return
            raise KeyError("a bug")
        good += 1

    async def main() -> None:
        running = Loops(reconcile, failed.append)
        running.open()
        running.wake("bad")
        for _ in range(3):
            running.wake("good")
            await asyncio.sleep(0.02)
        await asyncio.wait_for(done.wait(), 5)
        await running.close()

    asyncio.run(main())
    assert failed == ["bad", "bad"]
    assert good == 3


def test_a_timer_wakes_its_pool_once_and_the_latest_word_counts() -> None:
    woken: list[str] = []

    async def main() -> None:
        timers = Timers(time.time, woken.append)
        timers.start()
        timers.arm("never", math.inf)
        timers.arm("put-off", time.time() + 0.05)
        timers.arm("put-off", time.time() + 3600)
        timers.arm("cancelled", time.time() + 0.05)
        timers.arm("cancelled", math.inf)
        timers.arm("past", time.time() - 10)
        timers.arm("soon", time.time() + 0.05)
        timers.arm("far", 1e18)
        while len(woken) < 2:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        timers.stop()

    asyncio.run(main())
    assert sorted(woken) == ["past", "soon"]


def test_a_wake_up_that_is_asked_for_while_the_one_before_is_told_is_not_lost() -> None:
    woken: list[threading.Thread] = []

    def wake(pool: str) -> None:
        woken.append(threading.current_thread())
        if len(woken) < 4:
            timers.arm(pool, time.time())
            time.sleep(0.03)  # a loaded machine: what was asked for is due before this one is counted as over

    timers = Timers(time.time, wake)

    async def main() -> None:
        timers.start()
        timers.arm("a", time.time())
        async with asyncio.timeout(10):
            while len(woken) < 4:
                await asyncio.sleep(0.01)
        timers.stop()

    asyncio.run(main())
    assert set(woken) == {threading.current_thread()}, "what it wakes belongs to the event loop"


@pytest.mark.parametrize("whose", ["this machine's", "the API server's"])
def test_a_clock_that_is_set_while_a_pool_waits_delays_no_wake_up(whose: str, monkeypatch: pytest.MonkeyPatch) -> None:
    set_by_s, woken = [0.0, 0.0], asyncio.Event()

    class Wall(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + timedelta(seconds=set_by_s[0])

    monkeypatch.setattr("apscheduler.schedulers.base.datetime", Wall)
    monkeypatch.setattr("fermata.operator.timers.datetime", Wall)
    monkeypatch.setattr("fermata.operator.timers._LOOK_S", 0.02)
    timers = Timers(lambda: T0 + time.monotonic() + set_by_s[1], lambda _: woken.set())

    async def main() -> None:
        timers.start()
        if whose == "this machine's":
            timers.arm("a", timers._now() + 0.1)
            set_by_s[0] = -3600.0
        else:
            timers.arm("a", timers._now() + 3600.1)
            set_by_s[1] = 3600.0
        begun_s = time.monotonic()
        await asyncio.wait_for(woken.wait(), 10)
        assert time.monotonic() - begun_s >= 0.09
        timers.stop()

    asyncio.run(main())


def test_an_api_servers_clock_that_is_set_back_has_pools_look_again_at_what_they_wait_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fermata.operator.timers._LOOK_S", 0.02)
    set_by_s, woken = 0.0, asyncio.Event()
    timers = Timers(lambda: T0 + time.monotonic() + set_by_s, lambda _: woken.set())

    async def main() -> None:
        nonlocal set_by_s
        timers.start()
        timers.arm("a", timers._now() + 60.0)
        set_by_s = -3600.0
        await asyncio.wait_for(woken.wait(), 10)
        timers.stop()

    asyncio.run(main())


class _Server:
    """Takes Events, or does not."""

    def __init__(self, *, down: bool = False) -> None:
        self.events: list[dict[str, Any]] = []
        self.down = down

    async def create_event(self, _namespace: str, event: dict[str, Any]) -> None:
        if self.down:
            raise ClusterError(503, "", "down")
        self.events.append(event)


def _tell(server: _Server, told: list[tuple[float, str]], name: str = "w") -> Metrics:
    clock, metrics = [T0], Metrics()
    meta = meta_of(workflow(name, stage("a")))

    async def main() -> None:
        events = Events(server, metrics, lambda: clock[0])  # type: ignore[arg-type]
        events.start()
        for at_s, message in told:
            clock[0] = T0 + at_s
            events.tell("Workflow", meta, "StageStarted", message)
        await events.stop()

    asyncio.run(main())
    return metrics


def test_an_event_belongs_to_its_object_and_is_not_repeated_soon() -> None:
    server = _Server()
    _tell(server, [(0, "one"), (1, "one"), (2, "two"), (REPEAT_AFTER_S + 1, "one")])
    assert [event["message"] for event in server.events] == ["one", "two", "one"]
    assert len({event["metadata"]["name"] for event in server.events}) == 3
    assert server.events[0]["involvedObject"]["uid"] == "uid-w"


@pytest.mark.parametrize("end", [".", "-", "x"])
def test_an_event_has_a_valid_name_wherever_that_of_its_object_is_cut(end: str) -> None:
    server, name = _Server(), "w" * 198 + f"a{end}b"
    _tell(server, [(0, "one")], name)
    (event,) = server.events
    assert names.wrong_subdomain(event["metadata"]["name"]) == ""
    assert event["involvedObject"]["name"] == name


def test_an_object_that_talks_too_much_is_cut_short() -> None:
    server = _Server()
    metrics = _tell(server, [(0, str(i)) for i in range(BURST + 10)] + [(REFILL_S + 1, "later")])
    assert len(server.events) == BURST + 1
    assert metrics.registry.get_sample_value("fermata_events_dropped_total") == 10


def test_an_object_says_what_it_would_have_said_when_the_clock_is_set_back() -> None:
    server, back_s = _Server(), -3600.0
    told = [(0.0, "one"), (back_s, "one"), (back_s, "two"), (back_s + 1, "one")]
    _tell(server, told)
    assert [event["message"] for event in server.events] == ["one", "one", "two"]
    many = [(0.0, str(i)) for i in range(BURST + 1)]
    server = _Server()
    _tell(server, [*many, (back_s, "cut"), (back_s + REFILL_S + 1, "later")])
    assert [event["message"] for event in server.events][BURST:] == ["later"]


def test_what_fails_and_how_it_ends_is_told_of_an_object_that_has_talked_too_much() -> None:
    server = _Server()
    meta = meta_of(workflow("w", stage("a")))

    async def main() -> None:
        events = Events(server, Metrics(), lambda: T0)  # type: ignore[arg-type]
        events.start()
        for number in range(BURST + 10):
            events.tell("Workflow", meta, "StageStarted", f"start {number}")
        for number in range(FAILURES + 10):
            events.tell("Workflow", meta, "StageFailed", f"failure {number}", "Warning")
        events.tell("Workflow", meta, "StageFailed", "the end", "Warning", last=True)
        await events.stop()

    asyncio.run(main())
    told = [event["message"] for event in server.events]
    assert len(told) == BURST + FAILURES + 1
    assert (told[BURST], told[-1]) == ("failure 0", "the end")


def test_events_that_cannot_be_written_are_counted_and_complained_of_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server, clock, metrics = _Server(down=True), [T0], Metrics()

    async def main() -> None:
        events = Events(server, metrics, lambda: clock[0])  # type: ignore[arg-type]
        events.start()
        for at_s, message in [(0.0, "one"), (1.0, "two"), (REPEAT_AFTER_S + 1, "three")]:
            clock[0] = T0 + at_s
            events.tell("Workflow", meta_of(workflow("w", stage("a"))), "StageStarted", message)
            await events._queue.join()
        await events.stop()

    asyncio.run(main())
    assert metrics.registry.get_sample_value("fermata_events_dropped_total") == 3
    assert [row.getMessage() for row in caplog.records] == ["an event was not written: 503: down"] * 2
