"""The seat of a pool's policy: who sits in it, who decides when it cannot, and what is said about that.

Asks the policy within a deadline, in a thread where it is a learned one, and lets the fallback decide whenever the
answer is late, illegal or an error. Knows modes; knows neither Jobs nor statuses.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from fermata.operator import reasons
from fermata.operator.builtin import UnusablePolicyError, fallback_of, without_holds
from fermata.operator.clock import is_put_off
from fermata.operator.cluster import Cluster
from fermata.operator.envelope import Envelope
from fermata.operator.metrics import Metrics
from fermata.operator.model import Loaded, load_policy
from fermata.operator.resources import MAX_SECONDS, ExecutorPoolSpec, PolicySource
from fermata.operator.validate import Problem
from fermata.policy.dag import Dag, knowing
from fermata.policy.decide import Policy, Step, decide
from fermata.policy.errors import FermataError
from fermata.policy.guardrails import Guardrails
from fermata.policy.heuristics.base import Heuristic
from fermata.policy.heuristics.sjf import SJF
from fermata.policy.state import ClusterState

FIRST_LOAD_S = 5.0
RETRY_LOAD_S = 15.0
REMIND_S = 3600.0  # a policy that stays unusable for the same reason is a line of the log so often
# What a policy can fail with: its own errors, and what numpy and Python raise in arithmetic on a strange state.
_FAILURES = (FermataError, ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)

log = logging.getLogger(__name__)


class Verdict(NamedTuple):
    """Whether the pool's own policy decides, and what is wrong with its fallback, if anything is."""

    ready: bool
    reason: str
    message: str
    fallback: str = ""

    @property
    def condition(self) -> Verdict:
        """What the condition says: that a fallback is missing is told before it is needed."""
        if not self.fallback:
            return self
        reason = reasons.FALLBACK_UNKNOWN if self.ready else self.reason
        return Verdict(self.ready, reason, f"{self.message}; {self.fallback}")


_NOT_LOADED = Verdict(False, reasons.POLICY_LOADING, "not loaded yet")


class Advice(NamedTuple):
    """What a policy that was asked but does not act would have done."""

    steps: tuple[Step, ...]
    policy: str


class Decision(NamedTuple):
    """What to do, who decided, and under which limits.

    `shadow` is what the pool's policy said where it was only asked, `trouble` why it was replaced where it failed, `by`
    the policy of that name.
    """

    steps: tuple[Step, ...]
    policy: str
    limits: Guardrails
    shadow: Advice | None = None
    trouble: Verdict | None = None
    by: Policy | None = None


class Seat:
    """One pool's policy, and its substitutes."""

    def __init__(
        self,
        pool: str,
        cluster: Cluster,
        metrics: Metrics,
        wake: Callable[[str], None],
    ) -> None:
        self._pool, self._cluster, self._metrics, self._wake = pool, cluster, metrics, wake
        self._wanted: PolicySource | None = None
        self._loading: asyncio.Task[Loaded] | None = None
        self._unusable = False
        self._wait_until_s = 0.0  # decisions wait until then for a policy that is being loaded
        self._retry_at_s = 0.0
        self._said: tuple[PolicySource | None, str] | None = None  # which policy the log said is unusable, and why
        self._said_s = 0.0
        self._policy: Policy | None = None
        self._envelope: Envelope | None = None  # what the policy was taught
        self._fallback: Policy = SJF
        self._fallback_name = ""
        self._thread: ThreadPoolExecutor | None = None
        self._asked: Future[tuple[Step, ...]] | None = None
        self._acting = ""
        self._verdict = _NOT_LOADED
        self._no_fallback = ""  # what is wrong with the one that the spec asks for

    @property
    def verdict(self) -> Verdict:
        """Whether the pool's own policy decides, and what is wrong with its fallback."""
        return self._verdict._replace(fallback=self._no_fallback)

    @property
    def name(self) -> str:
        """Name of the policy that decides now."""
        return self._acting or self._fallback.name

    @property
    def policy(self) -> Policy | None:
        """The pool's own policy, if it has passed its checks."""
        return self._policy

    @property
    def fallback(self) -> Policy:
        """What decides where the pool's own policy cannot."""
        return self._fallback

    @property
    def substitute(self) -> Policy:
        """What acts where the pool's own policy may not hold, as in the simulator: its own order, or the fallback."""
        return without_holds(self._policy) if isinstance(self._policy, Heuristic) else self._fallback

    async def seat(self, spec: ExecutorPoolSpec, now_s: float) -> float | None:
        """Bring the policy that the spec asks for into the seat; return when to try again, or None.

        The one that sits there keeps deciding until a new one has passed its checks.
        """
        if spec.fallback != self._fallback_name:
            self._seat_fallback(spec.fallback)
        if spec.mode == "Off":
            self._empty(Verdict(False, reasons.POLICY_OFF, "spec.mode is Off"))
            return None
        put_off = is_put_off(self._retry_at_s, now_s, RETRY_LOAD_S)
        if spec.policy != self._wanted or (self._unusable and not put_off):
            self._drop_loading()
            if spec.policy != self._wanted and self._policy is None:
                self._wait_until_s = now_s + FIRST_LOAD_S
                message = f"still loading; {self._fallback.name} decides"
                self._verdict = Verdict(False, reasons.POLICY_LOADING, message)
            self._wanted, self._unusable = spec.policy, False
            self._loading = asyncio.create_task(load_policy(spec.policy, self._cluster), name=f"load-{self._pool}")
            self._loading.add_done_callback(lambda _: self._wake(self._pool))
        if self._loading is not None:
            await self._await_loading(self._loading, now_s)
        return self._retry_at_s if self._unusable else None

    def _seat_fallback(self, name: str) -> None:
        self._fallback_name = name
        self._fallback, self._no_fallback = fallback_of(name)
        if self._no_fallback:
            log.warning("pool %s: %s", self._pool, self._no_fallback)

    async def _await_loading(self, loading: asyncio.Task[Loaded], now_s: float) -> None:
        """Take a loaded policy into the seat; wait a little for it where the seat is empty, but not at every decision.

        Without that wait the fallback would start, right after every restart, what the policy holds.
        """
        left_s = self._wait_until_s - now_s if self._policy is None else 0.0
        await asyncio.wait({loading}, timeout=max(left_s, 0.0))
        if not loading.done():
            return
        self._loading = None
        error = loading.exception()
        if error is not None:
            # Whatever went wrong, the fallback decides and it is tried again.
            reason, message, known = reasons.MODEL_UNUSABLE, repr(error), False
            if isinstance(error, UnusablePolicyError):
                reason, message, known = error.reason, error.message, True
            self._policy, self._unusable, self._retry_at_s = None, True, now_s + RETRY_LOAD_S
            self._verdict = Verdict(False, reason, f"{message}; {self._fallback.name} decides")
            self._say_unusable(message, None if known else error, now_s)
            return
        self._policy, self._envelope = loading.result()
        log.info("pool %s: policy %s is loaded", self._pool, self._policy.name)
        self._drop_thread()  # the policy before may be stuck in it
        self._approve()

    def _say_unusable(self, message: str, bug: BaseException | None, now_s: float) -> None:
        """Log why the policy cannot be used when that is new, and now and then afterwards."""
        said = self._wanted, message
        if said != self._said or now_s - self._said_s >= REMIND_S:
            self._said, self._said_s = said, now_s
            log.warning("pool %s: its policy is unusable: %s", self._pool, message, exc_info=bug)

    def _drop_loading(self) -> None:
        if self._loading is not None:
            self._loading.cancel()
            self._loading = None

    def _approve(self) -> None:
        name = self._policy.name if self._policy else ""
        self._verdict = Verdict(True, reasons.POLICY_LOADED, f"{name} passed its checks")

    async def decide(
        self,
        state: ClusterState,
        spec: ExecutorPoolSpec,
        limits: Guardrails,
        *,
        may_hold: bool,
        dag: Callable[[], Dag],
    ) -> Decision:
        """Return what to do in a state; the fallback answers wherever the policy does not.

        Args:
            state: of the pool.
            spec: of the pool.
            limits: on its holding.
            may_hold: if False, the policy is asked as in mode Shadow, and its substitute acts.
            dag: gives the edges between the state's stages, to a policy that reads them.
        """
        decision = await self._decide(state, spec, limits, may_hold=may_hold, dag=dag)
        self._acting = decision.policy
        self._metrics.note_policy(self._pool, decision.policy)
        return decision

    async def _decide(
        self,
        state: ClusterState,
        spec: ExecutorPoolSpec,
        limits: Guardrails,
        *,
        may_hold: bool,
        dag: Callable[[], Dag],
    ) -> Decision:
        policy = self._policy
        if policy is None:
            answer = self._answer(self._fallback, state, limits)
            if spec.mode != "Off" and answer.steps:
                self._metrics.fallbacks.labels(self._pool, self._verdict.reason).inc()
            return answer
        steps, trouble = await self._ask(knowing(policy, dag), state, limits, spec.decision_deadline_seconds)
        if steps is None:
            answer = self._answer(self._fallback, state, limits)
            if trouble is None or not answer.steps:  # there was nothing to decide
                return answer
            self._verdict = trouble
            self._metrics.fallbacks.labels(self._pool, trouble.reason).inc()
            return answer._replace(trouble=trouble)
        if steps and not self._verdict.ready:  # where there was nothing to decide, it has not shown that it can
            self._approve()
        if may_hold and spec.mode == "Enforce":
            return Decision(steps, policy.name, limits, by=policy)
        acted = self._answer(self._fallback if spec.mode == "Shadow" else self.substitute, state, limits)
        if [step.action for step in steps] != [step.action for step in acted.steps]:
            self._metrics.disagreements.labels(self._pool).inc()
        return acted._replace(shadow=Advice(steps, policy.name))

    def _answer(self, policy: Policy, state: ClusterState, limits: Guardrails) -> Decision:
        return Decision(decide(state, policy, limits, self._fallback), policy.name, limits)

    async def _ask(
        self, policy: Policy, state: ClusterState, limits: Guardrails, deadline_s: float
    ) -> tuple[tuple[Step, ...] | None, Verdict | None]:
        """Ask a policy; return its answer, or None and what was wrong with it."""
        if self._asked is not None and not self._asked.done():
            return None, Verdict(False, reasons.DECISION_LATE, f"{policy.name} is still busy with an earlier decision")
        try:
            strange = self._envelope.outside(state) if self._envelope is not None else ""
            if strange:
                message = f"{policy.name} was not taught such a state: {strange}"
                return None, Verdict(False, reasons.OUT_OF_DISTRIBUTION, message)
            return await self._steps_of(policy, state, limits, deadline_s), None
        except TimeoutError:
            return None, Verdict(False, reasons.DECISION_LATE, f"{policy.name} took over {deadline_s:g} s")
        except _FAILURES as error:
            return None, Verdict(False, reasons.DECISION_FAILED, f"{policy.name}: {type(error).__name__}: {error}")

    async def _steps_of(
        self, policy: Policy, state: ClusterState, limits: Guardrails, deadline_s: float
    ) -> tuple[Step, ...]:
        counted = self._metrics.decisions(self._pool, policy.name)
        begun_s, steps = time.perf_counter(), None
        try:
            if isinstance(policy, Heuristic):  # microseconds: a thread would cost more than it guards
                steps = decide(state, policy, limits, self.substitute)
            else:
                if self._thread is None:
                    self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"policy-{self._pool}")
                self._asked = self._thread.submit(decide, state, policy, limits, self.substitute)
                # shield: a late answer is dropped, but the thread cannot be stopped and must not be taken for free.
                steps = await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(self._asked)), deadline_s)
            return steps
        finally:
            if steps != ():  # else there was nothing to ask it, as in most rounds of a busy pool
                counted.observe(time.perf_counter() - begun_s)

    def _drop_thread(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
        self._thread = self._asked = None

    def close(self) -> None:
        """Let go of the thread and of what is being loaded."""
        self._drop_loading()
        self._drop_thread()

    def clear(self, problem: Problem | None = None) -> None:
        """Let go of the policy, too, where there is no pool to decide for; should it come back, `seat` begins anew.

        Args:
            problem: why nothing is decided in a pool that there is.
        """
        message = "nothing is decided; see Ready"
        self._empty(Verdict(False, problem.reason, message) if problem else _NOT_LOADED)

    def _empty(self, verdict: Verdict) -> None:
        self.close()
        self._wanted = self._policy = self._envelope = None
        self._verdict = verdict


# No limit of the resources is longer, so this one changes nothing but that it can be exceeded.
FOREVER_S = float(MAX_SECONDS)


def limits_of(spec: ExecutorPoolSpec) -> Guardrails:
    """Return the guardrails of a pool."""
    unlimited = float("inf")
    return Guardrails(
        max_hold_s=unlimited if spec.max_hold_seconds is None else float(spec.max_hold_seconds),
        max_wait_s=unlimited if spec.max_wait_seconds is None else float(spec.max_wait_seconds),
        hold_when_idle=spec.hold_when_idle,
    )
