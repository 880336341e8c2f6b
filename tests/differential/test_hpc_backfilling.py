"""The compiled engine of rigid jobs against one in plain Python: orders, starts, backfilling, reservations, kills."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.windows import log_of

from fermata.sim.hpc import JobLog, policy, simulate

ORDERS: dict[str, Callable[[JobLog, int, float], tuple[float, ...]]] = {
    "fcfs": lambda log, job, now: (log.submit_s[job],),
    "lcfs": lambda log, job, now: (-log.submit_s[job],),
    "sjf": lambda log, job, now: (log.estimate_s[job], log.cores[job]),
    "smallest": lambda log, job, now: (log.cores[job], log.submit_s[job]),
    "saf": lambda log, job, now: (log.estimate_s[job] * log.cores[job],),
    "srf": lambda log, job, now: (log.estimate_s[job] / log.cores[job],),
    "p2q": lambda log, job, now: (log.estimate_s[job] ** 2 * log.cores[job],),
    "f1": lambda log, job, now: (
        math.log10(log.estimate_s[job] or 0.1) * log.cores[job] + 870.0 * math.log10(log.submit_s[job] or 0.1),
    ),
    "wfp3": lambda log, job, now: (
        -(((now - log.submit_s[job]) / max(log.estimate_s[job], 1.0)) ** 3) * log.cores[job],
    ),
    # A job on one core divides by log2(1) = 0: it is first, but for others as narrow that have waited for more.
    "unicep": lambda log, job, now: (
        -(now - log.submit_s[job] + 1e-15) / (math.log2(log.cores[job] + 1e-15) * max(log.estimate_s[job], 1.0)),
    ),
}
RESERVES = {"": (math.inf, 0), "+reserve:over_s=2,share=0.25": (2.0, 2), "+reserve:over_s=0,share=1": (0.0, 8)}


class Reference:
    """A machine on which a queue is served in an order.

    Args:
        reserve: which estimates are long (s), and how many cores such a job leaves free when it starts.
        kill: jobs end at their estimates, if not before.
    """

    def __init__(
        self, log: JobLog, order: str, backfill: str, start: str, reserve: tuple[float, int], *, kill: bool
    ) -> None:
        self.log, self.order, self.backfill, self.rule = log, order, backfill, start
        self.reserve, self.kill = reserve, kill
        self.coming = list(range(len(log)))
        self.queue: list[int] = []
        self.running: list[int] = []
        self.picked: int | None = None
        self.start = [np.nan] * len(log)
        self.now = 0.0

    def end(self, job: int) -> float:
        runtime, estimate = float(self.log.runtime_s[job]), float(self.log.estimate_s[job])
        return self.start[job] + (min(runtime, estimate) if self.kill else runtime)

    def expected_end(self, job: int) -> float:
        """One that is overdue is expected to end in a second."""
        return max(self.start[job] + float(self.log.estimate_s[job]), self.now + 1.0)

    def free(self) -> int:
        return self.log.machine_cores - sum(int(self.log.cores[job]) for job in self.running)

    def needed(self, job: int) -> int:
        over_s, left_free = self.reserve
        cores = int(self.log.cores[job])
        return min(cores + left_free, self.log.machine_cores) if self.log.estimate_s[job] > over_s else cores

    def fits(self, job: int) -> bool:
        return self.needed(job) <= self.free()

    def run(self) -> list[float]:
        while self.coming or self.queue or self.picked is not None:
            self.now = min([float(self.log.submit_s[job]) for job in self.coming[:1]] + [*map(self.end, self.running)])
            while self.coming and self.log.submit_s[self.coming[0]] <= self.now:
                self.queue.append(self.coming.pop(0))
            self.running = [job for job in self.running if self.end(job) > self.now]
            self.sort()
            self.schedule()
        return self.start

    def sort(self) -> None:
        self.queue.sort(key=lambda job: (*ORDERS[self.order](self.log, job, self.now), job))

    def schedule(self) -> None:
        if self.rule == "skip" and self.backfill == "none":
            self.begin_where(self.fits)
            return
        while self.picked is not None or self.queue:
            head = self.queue.pop(0) if self.picked is None else self.picked
            self.picked = None
            if not self.fits(head):
                {"none": lambda _: None, "easy": self.easy, "conservative": self.conservative}[self.backfill](head)
                if self.rule == "commit":
                    self.picked = head
                else:
                    self.queue.append(head)
                return
            self.begin(head)

    def begin(self, job: int) -> None:
        self.start[job] = self.now
        self.running.append(job)

    def begin_where(self, may: Callable[[int], bool]) -> None:
        for job in list(self.queue):
            if may(job):
                self.queue.remove(job)
                self.begin(job)

    def easy(self, head: int) -> None:
        """Start what ends before the head can start, or leaves it the cores that it needs then."""
        cores = self.log.cores
        for at in sorted(map(self.expected_end, self.running)):
            extra = self.free() + sum(int(cores[job]) for job in self.running if self.expected_end(job) <= at)
            extra -= self.needed(head)
            if extra >= 0:
                break

        def may(job: int) -> bool:
            nonlocal extra
            if not self.fits(job):
                return False
            if self.now + self.log.estimate_s[job] <= at:
                return True
            if cores[job] > extra:
                return False
            extra -= int(cores[job])
            return True

        self.begin_where(may)

    def conservative(self, head: int) -> None:
        """Reserve for every job, the head first, the earliest time at which it delays no reservation before it."""
        used = [(self.now, self.expected_end(job), int(self.log.cores[job])) for job in self.running]
        planned: dict[int, float] = {}
        for job in [head, *self.queue]:
            length, cores = max(float(self.log.estimate_s[job]), 1.0), int(self.log.cores[job])
            for at in sorted({self.now, *(end for _, end, _ in used)}):
                steps = [at, *(begin for begin, _, _ in used if at < begin < at + length)]
                taken = [sum(many for begin, end, many in used if begin <= step < end) for step in steps]
                if max(taken) + self.needed(job) <= self.log.machine_cores:
                    break
            used.append((at, at + length, cores))
            planned[job] = at
        self.begin_where(lambda job: planned[job] == self.now and self.fits(job))


class Slurm(Reference):
    """The same, served by Slurm's priority; usage is summed over all that has run, and not carried along."""

    WEIGHTS = "age=300,max_age_s=20,fairshare=500,half_life_s=10,size=200,favor_small=0,partition=400,dampening=2"

    def used(self, user: int) -> float:
        """Core-seconds, each of which counts half after ten seconds."""
        rate, total = math.log(2.0) / 10.0, 0.0
        for job in range(len(self.log)):
            if self.log.user[job] == user and self.start[job] <= self.now:
                ago = self.now - min(self.end(job), self.now), self.now - self.start[job]
                total += self.log.cores[job] * (math.exp(-rate * ago[0]) - math.exp(-rate * ago[1])) / rate
        return total

    def sort(self) -> None:
        log = self.log
        usage = [self.used(user) for user in range(int(log.user.max()) + 1)]
        shares = [each / (sum(usage) or 1.0) for each in usage]
        priority = {
            job: 300.0 * min((self.now - log.submit_s[job]) / 20.0, 1.0)
            + 500.0 * 2.0 ** (-shares[log.user[job]] * len(usage) / 2.0)
            + 200.0 * log.cores[job] / log.machine_cores
            + 400.0 * log.partition[job] / max(int(log.partition.max()), 1)
            for job in self.queue
        }
        close = pairwise(sorted(priority.values()))
        assume(not any(0.0 < above - below < 1e-6 for below, above in close))  # which is first is then a rounding's
        self.queue.sort(key=lambda job: (-priority[job], job))


# Few distinct times, so that events fall together; jobs that take no time; estimates that are too short or too long.
few_jobs = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.0, 1.0, 3.0]),
        st.sampled_from([0.0, 1.0, 2.0, 3.0, 6.0]),
        st.sampled_from([0.0, 1.0, 2.0, 3.0, 6.0]),
        st.integers(1, 8),
    ),
    min_size=10,
    max_size=16,
)


@given(few_jobs, st.sampled_from(sorted(RESERVES)), st.booleans())
@settings(deadline=None, max_examples=20)
def test_jobs_start_when_they_do_in_plain_python(
    jobs: list[tuple[float, float, float, int]], reserve: str, kill: bool
) -> None:
    gaps, runtimes, estimates, cores = zip(*jobs, strict=True)
    exact = log_of(*zip(np.cumsum(gaps), runtimes, cores, strict=True), machine=8)
    log = replace(exact, estimate_s=np.array(estimates))
    for order, backfill, start in product(ORDERS, ("none", "easy", "conservative"), ("commit", "strict", "skip")):
        name = f"{order}{'' if backfill == 'none' else f'+{backfill}'}/{start}{reserve}"
        chosen = policy(name, kill_at_estimate=kill)
        ours = simulate(log, chosen.order, chosen.rules).start_s.tolist()
        assert ours == Reference(log, order, backfill, start, RESERVES[reserve], kill=kill).run(), name


@given(few_jobs, st.sampled_from(["", "+easy", "+conservative"]), st.sampled_from(["commit", "strict", "skip"]))
@settings(deadline=None)
def test_so_do_those_that_slurm_sorts(jobs: list[tuple[float, float, float, int]], backfill: str, start: str) -> None:
    gaps, runtimes, estimates, cores = zip(*jobs, strict=True)
    exact = log_of(*zip(np.cumsum(gaps), runtimes, cores, strict=True), machine=8)
    number = np.arange(len(jobs))
    log = replace(exact, estimate_s=np.array(estimates), user=number % 3, partition=number // 2 % 3)
    chosen = policy(f"multifactor:{Slurm.WEIGHTS}{backfill}/{start}")
    expected = Slurm(log, "", backfill[1:] or "none", start, RESERVES[""], kill=False).run()
    assert simulate(log, chosen.order, chosen.rules).start_s.tolist() == expected
