"""Requests that are late: nobody waits for them, none is sent twice, and their end is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from fermata.operator import inflight
from fermata.operator.inflight import InFlight


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflight, "PATIENCE_S", 0.02)


def with_requests(test: Callable[[InFlight, list[str]], Awaitable[None]]) -> None:
    async def body() -> None:
        landed: list[str] = []
        requests = InFlight(lambda: landed.append("landed"))
        async with asyncio.timeout(5.0):
            await test(requests, landed)

    asyncio.run(body())


def test_what_is_answered_soon_is_waited_for_and_its_error_raised() -> None:
    async def body(requests: InFlight, landed: list[str]) -> None:
        done: list[str] = []

        async def soon(name: str) -> None:
            await asyncio.sleep(0)
            done.append(name)

        async def wrong() -> None:
            raise ValueError("wrong")

        await requests.send({name: lambda name=name: soon(name) for name in "ab"})
        assert (done, landed) == (["a", "b"], [])
        with pytest.raises(ValueError, match="wrong"):
            await requests.send({"a": wrong})
        await requests.send({"a": lambda: soon("c")})
        assert done == ["a", "b", "c"]

    with_requests(body)


def test_one_that_fails_leaves_none_to_be_sent_behind_the_next_calls_back() -> None:
    async def body(requests: InFlight, landed: list[str]) -> None:
        sent: list[int] = []

        async def one(key: int) -> None:
            sent.append(key)
            await asyncio.sleep(0)
            if key == 0:
                raise ValueError("wrong")

        many = {key: lambda key=key: one(key) for key in range(3 * inflight.AT_ONCE)}
        with pytest.raises(ValueError, match="wrong"):
            await requests.send(many)
        assert sorted(sent) == list(many)
        await requests.send({1: many[1]})
        assert len(sent) == len(many) + 1

    with_requests(body)


def test_late_ones_keep_nobody_waiting_and_are_not_sent_again(caplog: pytest.LogCaptureFixture) -> None:
    async def body(requests: InFlight, landed: list[str]) -> None:
        answer, sent = asyncio.Event(), 0

        async def late() -> None:
            nonlocal sent
            sent += 1
            await answer.wait()
            raise RuntimeError("late and wrong")

        many = dict.fromkeys(range(3 * inflight.AT_ONCE), late)
        await requests.send(many)
        await requests.send(many)
        assert (sent, landed, len(requests)) == (len(many), [], len(many))
        answer.set()
        while len(landed) < len(many):
            await asyncio.sleep(0.001)
        assert 0 not in requests
        answer.clear()
        await requests.send({0: late})
        assert 0 in requests
        assert sent == len(many) + 1, "what has been answered may be asked again"
        requests.close()
        await asyncio.sleep(0.01)
        assert len(landed) == len(many), "nobody is told of what was let go"

    with_requests(body)
    assert "late and wrong" in caplog.text
    assert {record.name for record in caplog.records} == {"fermata.operator.inflight"}, "and none by asyncio"


def test_what_is_let_go_does_not_go_on() -> None:
    async def body(requests: InFlight, landed: list[str]) -> None:
        ends: list[str] = []

        async def endless(name: str) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ends.append(name)

        await requests.send({name: lambda name=name: endless(name) for name in "ab"})
        assert ends == []
        requests.close()
        await asyncio.sleep(0.01)
        assert (sorted(ends), landed) == (["a", "b"], [])

    with_requests(body)
