"""A Lease that is not what it was: all that its holder knows may be as wrong."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fermata.operator.connection import ClusterError
from fermata.operator.lease import Lease


class _Server:
    """An API server with one Lease, which can be put back to what it was."""

    def __init__(self) -> None:
        self.raw: dict[str, Any] | None = None
        self.version, self.made = 0, 0

    def _write(self, body: dict[str, Any], uid: str) -> dict[str, Any]:
        self.version += 1
        self.raw = {**body, "metadata": {**body["metadata"], "uid": uid, "resourceVersion": str(self.version)}}
        return self.raw

    async def get(self, _path: str) -> dict[str, Any]:
        raw = self.raw
        await asyncio.sleep(0)  # others have their turn
        if raw is None:
            raise ClusterError(404, "NotFound", "there is none")
        return raw

    async def create(self, _path: str, body: dict[str, Any]) -> dict[str, Any]:
        if self.raw is not None:
            raise ClusterError(409, "AlreadyExists", "it exists")
        self.made += 1
        return self._write(body, f"uid-{self.made}")

    async def replace(self, _path: str, body: dict[str, Any]) -> dict[str, Any]:
        now = (await self.get(_path))["metadata"]
        if (now["uid"], now["resourceVersion"]) != (body["metadata"]["uid"], body["metadata"]["resourceVersion"]):
            raise ClusterError(409, "Conflict", "it was changed")
        return self._write(body, now["uid"])


@pytest.mark.parametrize("how", ["deleted", "begun anew", "restored"])
def test_it_is_lost_where_it_is_another_one_or_an_earlier_one_and_had_again(how: str) -> None:
    async def body() -> None:
        server = _Server()
        lease = Lease(server, "test", "me", ("default",), 0.5)  # type: ignore[arg-type]
        await lease.acquire()
        backup = server.raw
        keeping = asyncio.create_task(lease.keep())
        await asyncio.sleep(0.3)
        assert (server.version > 1, keeping.done()) == (True, False), "it is renewed"
        server.raw = backup if how == "restored" else None
        server.version = server.version if how == "deleted" else 1
        async with asyncio.timeout(5.0):
            await keeping
            assert not lease.held
            await lease.acquire()
        assert lease.held
        again = asyncio.create_task(lease.keep())
        await asyncio.sleep(0.5)
        assert not again.done(), "it is lost again for the same"
        again.cancel()

    asyncio.run(body())


def test_who_finds_that_it_was_deleted_acts_no_more_from_that_moment_on() -> None:
    """And has made it again by then, so that nobody else takes it."""
    seen = asyncio.Event()

    class Told(_Server):
        async def replace(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
            if self.raw is None:
                seen.set()
            return await super().replace(path, body)

    async def body() -> None:
        server = Told()
        lease = Lease(server, "test", "me", ("default",), 1.5)  # type: ignore[arg-type]
        await lease.acquire()
        keeping = asyncio.create_task(lease.keep())
        server.raw = None
        async with asyncio.timeout(5.0):
            await seen.wait()
            for _ in range(9):
                await asyncio.sleep(0)
        assert (lease.held, keeping.done()) == (False, True)
        assert server.raw is not None
        assert server.raw["spec"]["holderIdentity"] == "me"

    asyncio.run(body())


def test_a_standby_does_not_make_one_that_was_deleted_while_its_holder_may_act() -> None:
    clock_s = 0.0

    async def tries(lease: Lease) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.3):
                await lease.acquire()
        return lease.held

    async def body() -> None:
        nonlocal clock_s
        server = _Server()
        spec = {"holderIdentity": "other", "leaseDurationSeconds": 4, "renewTime": "2026-01-01T00:00:00.000000Z"}
        await server.create("", {"metadata": {"name": "test", "namespace": "default"}, "spec": spec})
        lease = Lease(server, "test", "me", ("default",), 0.5, clock=lambda: clock_s)  # type: ignore[arg-type]
        assert not await tries(lease)
        server.raw = None
        clock_s = 3.9
        assert not await tries(lease)
        assert server.raw is None
        clock_s = 4.0
        assert await tries(lease)

    asyncio.run(body())


def test_of_two_that_find_none_at_once_one_has_it_and_the_other_stands_by(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        server = _Server()
        both = [Lease(server, "test", name, ("default",), 1.5) for name in ("first", "second")]  # type: ignore[arg-type]
        trying = [asyncio.create_task(lease.acquire()) for lease in both]
        await asyncio.sleep(0.1)
        assert [lease.held for lease in both] == [True, False]
        trying[1].cancel()

    with caplog.at_level("INFO"):
        asyncio.run(body())
    assert caplog.messages == ["lease test is ours (first)", "lease test: first holds the lease; standing by"]


class _Clock(asyncio.SelectorEventLoop):
    """A loop in which nobody waits: its time goes on to when the next one is due."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        select = self._selector.select  # type: ignore[attr-defined]

        def passed(timeout: float | None) -> Any:
            self.now_s += timeout or 0.0
            return select(0)

        self._selector.select = passed  # type: ignore[attr-defined]

    def time(self) -> float:
        return self.now_s


def timeless(body: Callable[[Callable[[], float]], Coroutine[Any, Any, None]]) -> None:
    """Run what is given a clock."""
    with asyncio.Runner(loop_factory=_Clock) as runner:
        loop = runner.get_loop()
        runner.run(body(loop.time))


class _Slow(_Server):
    """Each of its answers takes a while to come and to go."""

    def __init__(self, answer_s: float) -> None:
        super().__init__()
        self.answer_s, self.reads = answer_s, 0

    async def get(self, path: str) -> dict[str, Any]:
        self.reads += 1
        await asyncio.sleep(self.answer_s / 2)
        raw = await super().get(path)
        await asyncio.sleep(self.answer_s / 2)
        return raw

    async def replace(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(self.answer_s / 2)
        now = self.raw
        if now is None or now["metadata"] != body["metadata"]:
            raise ClusterError(409, "Conflict", "it was changed")
        raw = self._write(body, now["metadata"]["uid"])
        await asyncio.sleep(self.answer_s / 2)
        return raw


def test_what_was_read_is_confirmed_unless_the_state_went_back() -> None:
    async def body(clock: Callable[[], float]) -> None:
        server = _Slow(0.1)
        lease = Lease(server, "test", "me", ("default",), 15.0, clock=clock)  # type: ignore[arg-type]
        await lease.acquire()
        backup, keeping = server.raw, asyncio.create_task(lease.keep())
        await asyncio.sleep(3.0)
        reads, writes = server.reads, server.version
        await asyncio.gather(*(lease.confirm() for _ in range(20)))
        assert (server.reads - reads, server.version) == (1, writes), "all ask at once"
        server.raw = backup
        for _ in range(2):
            with pytest.raises(ClusterError, match="restored from a backup"):
                await lease.confirm()
            assert not lease.held
        await keeping
        assert server.raw == backup, "it is renewed on a state that nobody has read"
        await lease.acquire()
        await lease.confirm()
        assert lease.held

    timeless(body)


@pytest.mark.parametrize("answer_s", [0.5, 2.0, 2.5, 3.0])
def test_who_confirms_all_the_time_keeps_the_lease_of_a_slow_api_server(answer_s: float) -> None:
    async def body(clock: Callable[[], float]) -> None:
        server = _Slow(answer_s)
        lease = Lease(server, "test", "me", ("default",), 15.0, clock=clock)  # type: ignore[arg-type]
        await lease.acquire()
        keeping, confirmed = asyncio.create_task(lease.keep()), 0
        while clock() < 300.0:
            await asyncio.gather(lease.confirm(), lease.confirm())
            confirmed += 2
            asking = asyncio.create_task(lease.confirm())
            await asyncio.sleep(0.3 * answer_s)
            asking.cancel()
        assert (keeping.done(), lease.held) == (False, True)
        assert confirmed > 50
        keeping.cancel()

    timeless(body)


class _Mute(_Slow):
    """While `lost` says so, renewals are not done (`before`) or done (`after`), and never answered."""

    lost = ""

    async def replace(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        raw = {} if self.lost == "before" else await super().replace(path, body)
        if self.lost:
            raise ClusterError(0, "ServerDisconnectedError", "Server disconnected")
        return raw


@pytest.mark.parametrize("lost", ["before", "after"])
def test_a_renewal_that_is_not_answered_puts_nothing_in_doubt(lost: str) -> None:
    async def body(clock: Callable[[], float]) -> None:
        server = _Mute(0.1)
        lease = Lease(server, "test", "me", ("default",), 15.0, clock=clock)  # type: ignore[arg-type]
        await lease.acquire()
        first, keeping = server.raw, asyncio.create_task(lease.keep())
        server.lost = lost
        await asyncio.sleep(3.0)
        assert (server.raw is not first) == (lost == "after"), "it has been tried"
        for _ in range(3):
            await lease.confirm()
        server.lost = ""
        await asyncio.sleep(60.0)
        assert (keeping.done(), lease.held) == (False, True)
        server.lost = lost
        await asyncio.sleep(3.0)
        server.lost = ""
        await lease.release()
        assert server.raw is not None
        assert server.raw["spec"]["holderIdentity"] == "", "it is given back"
        keeping.cancel()

    timeless(body)


@pytest.mark.parametrize("lost", ["", "before", "after"])
def test_who_missed_that_another_one_acted_acts_no_more_whatever_became_of_the_renewal_before(lost: str) -> None:
    async def body(clock: Callable[[], float]) -> None:
        server = _Mute(0.1)
        frozen, other = (Lease(server, "test", name, ("default",), 15.0, clock=clock) for name in ("me", "other"))  # type: ignore[arg-type]
        await frozen.acquire()
        server.lost, keeping = lost, asyncio.create_task(frozen.keep())
        await asyncio.sleep(3.0)
        keeping.cancel()
        server.lost = ""
        await other.acquire()
        await other.release()
        with pytest.raises(ClusterError, match="the lease changed meanwhile"):
            await frozen.confirm()
        async with asyncio.timeout(30.0):
            await frozen.keep()
        assert not frozen.held
        await frozen.acquire()
        await frozen.confirm()
        assert frozen.held

    timeless(body)


def test_it_is_held_from_the_request_that_renews_it_on_however_long_it_took_to_be_read() -> None:
    clock_s = 0.0

    class Slow(_Server):
        async def get(self, path: str) -> dict[str, Any]:
            nonlocal clock_s
            clock_s += 4.0
            return await super().get(path)

    async def body() -> None:
        nonlocal clock_s
        server = Slow()
        await server.create("", {"metadata": {"name": "test", "namespace": "default"}, "spec": {}})
        lease = Lease(server, "test", "me", ("default",), 15.0, clock=lambda: clock_s)  # type: ignore[arg-type]
        await lease.acquire()
        assert clock_s == 8.0, "when it had been read, and written, for which this server reads it again"
        clock_s = 18.9
        assert lease.held
        clock_s = 19.0
        assert not lease.held

    asyncio.run(body())


def test_an_api_server_that_does_not_answer_is_told_as_that(caplog: pytest.LogCaptureFixture) -> None:
    class Silent(_Server):
        async def get(self, _path: str) -> dict[str, Any]:
            await asyncio.Event().wait()
            raise AssertionError

    async def body() -> None:
        waiting = asyncio.create_task(Lease(Silent(), "test", "me", ("default",), 0.1).acquire())  # type: ignore[arg-type]
        async with asyncio.timeout(5.0):
            while not caplog.messages:
                await asyncio.sleep(0.01)
        waiting.cancel()

    asyncio.run(body())
    assert caplog.messages[0] == "lease test: the lease cannot be had: no answer"


def test_a_standby_says_once_that_it_stands_by_and_not_as_a_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fermata.operator.lease._REMIND_S", 0.0)
    looked: list[str] = []
    enough = asyncio.Event()

    class Held(_Server):
        async def get(self, path: str) -> dict[str, Any]:
            looked.append(path)
            if len(looked) > 5:
                enough.set()
            return await super().get(path)

    async def body() -> None:
        server = Held()
        spec = {"holderIdentity": "other", "leaseDurationSeconds": 3600, "renewTime": "2026-01-01T00:00:00.000000Z"}
        await server.create("", {"metadata": {"name": "test", "namespace": "default"}, "spec": spec})
        waiting = asyncio.create_task(Lease(server, "test", "me", ("default",), 0.1).acquire())  # type: ignore[arg-type]
        async with asyncio.timeout(30.0):
            await enough.wait()
        waiting.cancel()

    with caplog.at_level("INFO"):
        asyncio.run(body())
    told = [(record.levelname, record.message) for record in caplog.records]
    assert told == [("INFO", "lease test: other holds the lease; standing by")]
