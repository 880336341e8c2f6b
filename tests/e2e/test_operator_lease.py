"""Operators that are started twice: the Lease lets one act, and the other goes on where it left."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.operator_rig import Cluster, OperatorProcess, Starts, control_plane, stage, wait_until

from fermata.operator.cluster import Cluster as OperatorCluster
from fermata.operator.lease import Lease
from fermata.sim.kube import ControlPlane, Options

pytestmark = pytest.mark.e2e

PATH = "/apis/coordination.k8s.io/v1/namespaces/default/leases/test"


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def with_cluster(test: Callable[[ControlPlane, OperatorCluster], Awaitable[None]]) -> None:
    async def body() -> None:
        async with ControlPlane(Options(controllers=False)) as plane:
            cluster = await OperatorCluster.connect(str(plane.kubeconfig))
            try:
                await test(plane, cluster)
            finally:
                await cluster.close()

    asyncio.run(body())


def candidate(cluster: OperatorCluster, holder: str, clock: Clock, duration_s: float = 15.0) -> Lease:
    return Lease(cluster, "test", holder, ("nowhere", "default"), duration_s, now=clock, clock=clock)


async def gets_it(lease: Lease, within_s: float = 10.0) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await lease.acquire()
            return True
    return False


def test_one_of_two_has_it_until_it_is_silent_for_long() -> None:
    async def body(_plane: ControlPlane, cluster: OperatorCluster) -> None:
        clock = Clock()
        first, second = (candidate(cluster, name, clock) for name in ("first", "second"))
        assert await gets_it(first)
        assert not await gets_it(second, 0.3)
        clock.now_s += 14.9
        assert first.held
        assert not await gets_it(second, 0.3)
        clock.now_s += 0.2
        assert not first.held, "it stops to act before another begins"
        assert await gets_it(second)
        spec = (await cluster.get(PATH))["spec"]
        assert (spec["holderIdentity"], spec["leaseTransitions"], spec["leaseDurationSeconds"]) == ("second", 1, 15)

    with_cluster(body)


def test_a_clock_of_another_machine_does_not_matter() -> None:
    async def body(_plane: ControlPlane, cluster: OperatorCluster) -> None:
        late, early = Clock(), Clock()
        early.now_s += 90
        assert await gets_it(candidate(cluster, "late", late))
        assert not await gets_it(candidate(cluster, "early", early), 0.3), "its renewal looks 90 s old, and is not"

    with_cluster(body)


def test_nobody_takes_over_while_the_holder_may_act() -> None:
    async def body(_plane: ControlPlane, cluster: OperatorCluster) -> None:
        clock = Clock()
        first, second = (candidate(cluster, name, clock, 1.4) for name in ("first", "second"))
        assert await gets_it(first)
        assert not await gets_it(second, 1.0)
        clock.now_s += 1.3
        assert first.held
        assert not await gets_it(second, 1.0), "a Lease's duration is in whole seconds, and 1 would be too short"

    with_cluster(body)


def test_one_that_is_given_back_is_free_at_once() -> None:
    async def body(_plane: ControlPlane, cluster: OperatorCluster) -> None:
        clock = Clock()
        first, second = (candidate(cluster, name, clock) for name in ("first", "second"))
        assert await gets_it(first)
        await first.release()
        assert not first.held
        assert await gets_it(second)
        await first.release()
        assert second.held
        assert (await cluster.get(PATH))["spec"]["holderIdentity"] == "second"

    with_cluster(body)


def test_a_restarted_holder_does_not_wait_for_itself() -> None:
    async def body(_plane: ControlPlane, cluster: OperatorCluster) -> None:
        clock = Clock()
        assert await gets_it(candidate(cluster, "pod-1", clock))
        assert await gets_it(candidate(cluster, "pod-1", clock))
        assert (await cluster.get(PATH))["spec"]["leaseTransitions"] == 0

    with_cluster(body)


def test_it_is_lost_to_an_outage_and_had_again_after_it() -> None:
    async def body(plane: ControlPlane, cluster: OperatorCluster) -> None:
        lease = Lease(cluster, "test", "me", ("default",), 1.0)
        await lease.acquire()
        keeping = asyncio.create_task(lease.keep())
        await asyncio.sleep(1.5)
        assert lease.held, "it is renewed"
        assert not keeping.done()
        await plane.interrupt()
        await keeping
        assert not lease.held
        await plane.resume()
        assert await gets_it(lease)
        stolen = {"spec": {"holderIdentity": "thief", "renewTime": "2026-01-01T00:00:00.000000Z"}}
        keeping = asyncio.create_task(lease.keep())
        known = await cluster.get(PATH)
        await cluster.replace(PATH, {**known, "spec": {**known["spec"], **stolen["spec"]}})
        await keeping
        assert not lease.held

    with_cluster(body)


def test_one_in_a_namespace_of_last_resort_gives_way_to_one_that_is_deployed_later() -> None:
    async def body(_plane: ControlPlane, cluster: OperatorCluster) -> None:
        first, second = (Lease(cluster, "test", name, ("nowhere", "default"), 4.0) for name in ("first", "second"))
        assert await gets_it(first)
        keeping = asyncio.create_task(first.keep())
        await cluster.create("/api/v1/namespaces", {"metadata": {"name": "nowhere"}})
        await asyncio.sleep(1.2)
        assert not keeping.done(), "nobody else is there"
        assert await gets_it(second)
        async with asyncio.timeout(30.0):
            await keeping
        assert not first.held
        assert not (await cluster.get(PATH))["spec"]["holderIdentity"], "it is given back"
        assert not await gets_it(first, 0.5), "it stands by"
        await second.release()
        assert await gets_it(first)
        keeping = asyncio.create_task(first.keep())
        await asyncio.sleep(1.2)
        assert not keeping.done(), "it has its Lease where it is looked for first"
        keeping.cancel()

    with_cluster(body)


def test_two_operators_by_mistake_one_acts_and_the_other_takes_over(tmp_path: Path) -> None:
    with control_plane(tmp_path) as kubeconfig:
        cluster = Cluster(kubeconfig)
        starts = Starts(cluster)
        first = OperatorProcess(kubeconfig, tmp_path, "--lease-seconds", "2", pod="first")
        operators = [first]
        try:
            first.wait_ready()
            second, other = (
                OperatorProcess(kubeconfig, tmp_path, "--lease-seconds", "2", pod=pod) for pod in ("second", "other")
            )
            operators += [second, other]
            for standby in (second, other):
                said = "first holds the lease"
                wait_until(lambda log=standby.log, said=said: said in log.read_text(), "it does not stand by")
                assert standby.get("/readyz") == "standing by\n"
            assert other.stop() == 0, "a standby stops when it is told to"
            cluster.pool("p", executors=2, policy={"name": "fifo"})
            for number in range(4):
                cluster.submit(f"w{number}", "p", [stage("a", 0.5), stage("b", 0.3, "a")])
            # That it runs may be over before it is seen; that it was accepted stays.
            cluster.wait_for("w0", "Accepted", "True")
            first.kill()
            second.wait_ready()
            for number in range(4):
                cluster.wait_for(f"w{number}")
            third = OperatorProcess(kubeconfig, tmp_path, "--lease-seconds", "60", pod="third")
            operators.append(third)
            wait_until(lambda: "second holds the lease" in third.log.read_text(), "the third does not stand by")
            begun_s = time.monotonic()
            assert second.stop() == 0
            third.wait_ready()
            assert time.monotonic() - begun_s < 30, "a lease that was given back was waited for"
            third.process.send_signal(signal.SIGTERM)
            assert third.process.wait(20) == 0
        finally:
            for operator in operators:
                operator.stop()
            starts.stop()
        assert set(starts.jobs.values()) == {1}, "a stage was started twice"
        assert len(starts.jobs) == 8
