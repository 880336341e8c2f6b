"""Whether a pool may hold now, and what holding is worth there: a running estimate that switches it off where it costs.

Every so many arrivals, the latest block of workflows is replayed twice, with the durations that they really had: under
the pool's policy, and under what would act without it. The difference of the two is what the policy's holding saves.
Replaying both, rather than comparing a replay with what happened, keeps the estimate free of what a replay leaves out
(pods that start slowly, nodes that are full), and gives one while holding is off, which is the way back.

Blocks are short, so one says little: holding is paused when several of them say clearly that it costs, and resumed when
they say that it pays. Each is replayed twice over: in a pool that begins empty, and in one that begins where the real
one was last empty. What is held in a queue is paid for by workflows of later blocks, and only the second sees that; but
blocks share a queue then, so it counts where many of them leave no doubt. While nothing is held the queue is another
one, so a pause that this was the reason of stays. Decides nothing about stages; knows no API.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from fermata.operator import reasons
from fermata.operator.facts import PoolFact
from fermata.operator.hindsight import ReplayError, replay
from fermata.operator.metrics import Metrics
from fermata.operator.past import PastJob, fitting
from fermata.policy.decide import Policy
from fermata.policy.errors import FermataError
from fermata.policy.guardrails import Guardrails
from fermata.policy.heuristics.base import Heuristic

# One replay runs WARM + BLOCK + TAIL arrivals and counts the block: a pool is not empty before it, and what is held at
# its end is held for arrivals to come.
WARM, BLOCK, TAIL = 25, 50, 25
BLOCKS = 16  # what the estimate is made of
ENOUGH_BLOCKS = 3  # before these nothing is switched
COSTS, PAYS = -0.01, 0.01  # share of the mean JCT: the hysteresis
NO_DOUBT, MANY_BLOCKS = 3.0, 8  # standard errors, and of how many blocks with their queue at least
REMEMBERED = WARM + BLOCKS * BLOCK + TAIL
# A replay takes at most so long, and so does the one that begins earlier; of all the time at most this share. The first
# ones, without which holding cannot be judged at all, may take more.
LONGEST_REPLAY_S = 5.0
SHARE = 0.02
FIRST_SHARE = 0.2

_NONE = (-math.inf, "")  # before all workflows

log = logging.getLogger(__name__)


class Block(NamedTuple):
    """Summed JCTs of one block of workflows, in seconds: without holding, and under the pool's policy."""

    base_s: float
    own_s: float


class Replayed(NamedTuple):
    """A block in a pool that was empty shortly before it, and in one that has its queue."""

    fresh: Block
    queued: Block


class Savings(NamedTuple):
    """What holding saves, as a share of the mean JCT; negative where it costs."""

    share: float
    error: float  # standard error; inf of a single block
    workflows: int

    def __str__(self) -> str:
        verb = "saves" if self.share >= 0 else "costs"
        spread = "" if math.isinf(self.error) else f" (± {self.error:.1%})"
        return f"holding {verb} {abs(self.share):.1%}{spread} of the mean JCT, by replay of {self.workflows} workflows"


class Situation(NamedTuple):
    """What an estimate is valid for: with another one it begins anew."""

    policy: Policy
    base: Policy
    fallback: Policy
    limits: Guardrails
    executors: int
    sticky: bool = True  # stages keep their executors until their tasks run out


class Pause(NamedTuple):
    """Whether nothing may be held now, with reason and message for the condition HoldingPaused."""

    on: bool
    reason: str
    message: str


def savings(fresh: Sequence[Block], queued: Sequence[Block] = ()) -> Savings | None:
    """Return the estimate from some blocks, or None from none.

    Args:
        fresh: blocks in a pool that was empty shortly before.
        queued: those with the queue that was there when the policy was allowed to hold.

    >>> savings([Block(100.0, 90.0), Block(100.0, 80.0)]).share
    0.15
    """
    if len(queued) >= MANY_BLOCKS:
        found = _savings(queued)
        if found.share < COSTS and found.share + NO_DOUBT * found.error < 0:
            return found
    return _savings(fresh) if fresh else None


def _savings(blocks: Sequence[Block]) -> Savings:
    base_s, own_s = (np.array(column) for column in zip(*blocks, strict=True))
    total_s = max(float(base_s.sum()), 1e-9)
    gains = (base_s - own_s) / (total_s / len(blocks))
    error = float(gains.std(ddof=1) / math.sqrt(len(blocks))) if len(blocks) > 1 else math.inf
    return Savings(float((base_s - own_s).sum()) / total_s, error, len(blocks) * BLOCK)


def paused_after(found: Savings | None, *, paused: bool) -> bool:
    """Return whether holding is to be off, given whether it was.

    It is switched off where it costs by more than the estimate's error, and on again where it pays by more than that.
    """
    if found is None or found.workflows < ENOUGH_BLOCKS * BLOCK:
        return paused
    if paused:
        return not (found.share > PAYS and found.share - found.error > 0)
    return found.share < COSTS and found.share + found.error < 0


class Holding:
    """The estimate of one pool, and the switch.

    Args:
        pool: its name.
        metrics: of the operator.
        wake: called when a replay has changed something.
    """

    def __init__(self, pool: str, metrics: Metrics, wake: Callable[[str], None]) -> None:
        self._pool, self._metrics, self._wake = pool, metrics, wake
        self._finished: dict[str, PastJob] = {}
        self._situation: Situation | None = None
        self._judged: object = None  # the policy that the pause is about
        self._uid = ""  # of the pool that it is about
        self._fresh: deque[Block] = deque(maxlen=BLOCKS)
        self._queued: deque[Block] = deque(maxlen=BLOCKS)
        self._done = _NONE  # what has been replayed: up to this one, and many may have come in its second
        self._replays = 0  # of this situation
        self._news = False  # has a workflow finished, or the situation changed, since it was last looked at?
        self._running: asyncio.Task[None] | None = None
        self._paused: bool | None = None  # None: not known yet, the status says

    @property
    def savings(self) -> Savings | None:
        """The estimate so far."""
        return savings(self._fresh, self._queued)

    @property
    def replaying(self) -> bool:
        """Whether a replay runs, or rests from the one before."""
        return self._running is not None and not self._running.done()

    def finished(self, job: PastJob) -> None:
        """Remember a finished workflow."""
        self._finished[job.uid] = job
        self._news = True
        if len(self._finished) > 2 * REMEMBERED:
            kept = sorted(self._finished.values())[-REMEMBERED:]
            self._finished = {row.uid: row for row in kept}

    def verdict(self, fact: PoolFact) -> Pause:
        """Return whether nothing may be held in a pool now, and why."""
        if fact.meta.uid != self._uid:
            self._begin_anew(fact.meta.uid)
        if self._paused is None:  # after a restart: as it was, for the same specification
            told = fact.status.condition(reasons.HOLDING_PAUSED)
            same = told is not None and told.observed_generation == fact.meta.generation
            self._paused = bool(same and told and told.reason == reasons.HOLDING_COSTS)
        found = self.savings
        estimate = "" if found is None else str(found)
        if fact.released:
            return Pause(True, reasons.HOLDING_RELEASED, estimate)
        if self._paused:
            before = "as it was before the operator was started again or the pool was edited"
            return Pause(True, reasons.HOLDING_COSTS, estimate or before)
        return Pause(False, reasons.HOLDING_ALLOWED, estimate)

    def _begin_anew(self, uid: str) -> None:
        """Go on as after a restart where another pool was made under the name: what was found is not about that one."""
        before, self._uid = self._uid, uid
        if before:
            self.enter(None)
            self._paused = self._judged = None

    def consider(self, situation: Situation | None, unfinished: Callable[[], list[PastJob]]) -> None:
        """Start a replay in the background, if there is something new to replay and time for it.

        Args:
            situation: of the pool; None where no policy of its own is asked.
            unfinished: returns the workflows that have arrived and are not finished.
        """
        self.enter(situation)
        if situation is None or not _may_ever_hold(situation.policy):
            return
        if self.replaying or not self._news:
            return
        self._news = False
        if sum(_place(job) > self._done for job in self._finished.values()) < BLOCK:
            return
        # Not only finished ones: those that are held for long would be missing, and with them what holding costs.
        jobs = fitting([*self._finished.values(), *unfinished()], situation.executors)
        first = sum(_place(job) <= self._done for job in jobs)
        first = max(first, min(WARM, len(jobs)), len(jobs) - REMEMBERED)
        if len(jobs) - first >= BLOCK + TAIL:
            self._running = asyncio.create_task(self._replay(situation, jobs, first), name=f"replay-{self._pool}")

    def close(self) -> None:
        """Stop what is being replayed."""
        if self._running is not None:
            self._running.cancel()
            self._running = None

    def enter(self, situation: Situation | None) -> None:
        """Begin anew where what the estimate was about has changed; a pause ends with the policy that it was about."""
        if situation == self._situation:
            return
        self._situation = situation
        self.close()
        self._news = True
        self._fresh.clear()
        self._queued.clear()
        self._metrics.observe_savings(self._pool, None)
        self._done, self._replays = _NONE, 0
        if situation is None:  # the same policy may come back, from mode Off or from a file that could not be read
            return
        judged, self._judged = self._judged, _identity(situation.policy)
        if judged is not None and judged != self._judged:
            self._paused = False  # that was about another policy

    async def _replay(self, situation: Situation, jobs: list[PastJob], first: int) -> None:
        begun_s = time.monotonic()
        try:
            block = await asyncio.to_thread(compare, situation, jobs, first, time.monotonic)
        except FermataError as error:
            log.info("pool %s: recent workflows were not replayed: %s", self._pool, error)
        else:
            self._fresh.append(block.fresh)
            if not self._paused:
                self._queued.append(block.queued)
            self._judge()
        self._done = _place(jobs[first + BLOCK - 1])
        self._wake(self._pool)
        # The next one has to wait until this one is a small share of the time.
        self._replays += 1
        share = SHARE if self._replays >= ENOUGH_BLOCKS else FIRST_SHARE
        await asyncio.sleep((time.monotonic() - begun_s) / share)
        self._news, self._running = True, None
        self._wake(self._pool)

    def _judge(self) -> None:
        found = self.savings
        if found is not None:
            self._metrics.observe_savings(self._pool, found.share)
        paused = paused_after(found, paused=bool(self._paused))
        if paused != self._paused:
            log.info("pool %s: holding is %s: %s", self._pool, "paused" if paused else "allowed again", found)
        self._paused = paused


def compare(situation: Situation, jobs: Sequence[PastJob], first: int, clock: Callable[[], float]) -> Replayed:
    """Replay one block with and without holding.

    Args:
        situation: whose policy and base are compared.
        jobs: in the order of their arrival.
        first: of the block; what is before it warms the pool up, or is at least seen.
        clock: seconds, for the time that it may take.

    Raises:
        ReplayError: it takes too long.
        FermataError: the policy fails.
    """
    warm = max(first - WARM, 0)
    fresh, busy = _compare(situation, jobs, warm, first, clock), _busy_since(jobs, warm)
    if busy < warm:
        try:
            return Replayed(fresh, _compare(situation, jobs, busy, first, clock))
        except ReplayError as error:
            log.info("recent workflows were not replayed with the %d before them: %s", warm - busy, error)
    return Replayed(fresh, fresh)


def _busy_since(jobs: Sequence[PastJob], index: int) -> int:
    """Return with which job the time began in which the pool was never empty until another one arrived."""
    end_s = np.array([job.arrival_s + job.jct_s for job in jobs[:index]])
    busy_until_s = np.maximum.accumulate(np.where(np.isnan(end_s), math.inf, end_s))
    least = max(index - REMEMBERED, 0)
    while index > least and busy_until_s[index - 1] > jobs[index].arrival_s:
        index -= 1
    return index


def _compare(
    situation: Situation, jobs: Sequence[PastJob], begin: int, first: int, clock: Callable[[], float]
) -> Block:
    policy, base, fallback, limits, executors, sticky = situation
    window = jobs[begin : first + BLOCK + TAIL]
    end_s = clock() + LONGEST_REPLAY_S
    counted = slice(first - begin, first - begin + BLOCK)
    arrivals_s = np.array([job.arrival_s for job in window])
    sums = []
    for chosen in (base, policy):
        completion_s = replay(
            window,
            executors,
            chosen,
            limits,
            fallback,
            history=jobs[:begin],
            sticky=sticky,
            give_up=lambda: clock() > end_s,
        )
        sums.append(float((completion_s - arrivals_s)[counted].sum()))
    return Block(*sums)


def _place(job: PastJob) -> tuple[float, str]:
    """Return where a workflow stands among others, in their order."""
    return job.arrival_s, job.uid


def _identity(policy: Policy) -> object:
    """Return what makes a policy the same one when it is loaded again: of a model the digest of its file."""
    return getattr(policy, "digest", policy)


def _may_ever_hold(policy: Policy) -> bool:
    return not isinstance(policy, Heuristic) or policy.rule != policy.eager().rule
