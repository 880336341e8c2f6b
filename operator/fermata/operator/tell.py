"""What a pool's reconciliation tells the world: statuses, Events and metrics, written only when something changed.

Holds nothing that matters: what was told is in the statuses, and what is told too often is told a little later. Nobody
waits for long for a status to be written: a decision may start something, and a status only says so.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from fermata.operator import names, reasons, status
from fermata.operator.clock import is_put_off
from fermata.operator.connection import ClusterError
from fermata.operator.events import Level
from fermata.operator.facts import PoolFact, WorkflowFact
from fermata.operator.holding import Pause
from fermata.operator.inflight import AT_ONCE, InFlight
from fermata.operator.ledger import Account, Meter
from fermata.operator.progress import StageView, WorkflowView
from fermata.operator.retry import Failure, is_due
from fermata.operator.seat import Verdict
from fermata.operator.split import split, workflow_split
from fermata.operator.tools import Tools
from fermata.operator.validate import Problem
from fermata.operator.why import Why
from fermata.policy.wording import counted

STATUS_INTERVAL_S = 2.0  # between two writes of one status, unless it is the first or the last one
_RETRY_S = 1.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Whys:
    """Why ready stages of one workflow are held, and why others wait, by stage name."""

    held: dict[str, Why]
    waiting: dict[str, Why]


class Teller:
    """Writes what one pool has to say.

    A workflow whose status may have to be written is stale; `next_s` is when to come back for what was put off.
    """

    def __init__(self, pool: str, tools: Tools) -> None:
        self._pool, self._store, self._cluster = pool, tools.store, tools.cluster
        self._events, self._metrics, self._now = tools.events, tools.metrics, tools.now
        self._stale: dict[str, None] = {}  # in the order in which they became so
        self.next_s = math.inf
        self.troubles = 0  # statuses of workflows that the API server did not take because it was in trouble
        self._written_s: dict[str, float] = {}
        self._refusals: dict[str, Failure] = {}  # of statuses that the API server said no to
        self._amiss: dict[str, int] = {}  # how many stages of a workflow do not get on, by its latest status
        self._anew: set[str] = set()  # workflows of which it is to be told as of now why their stages wait
        self._ends: dict[str, Callable[[], None]] = {}  # how workflows ended whose status may say so by now
        self._without_stages: dict[str, int] = {}  # generations of workflows whose whole status finds no room
        self._pool_written_s = -math.inf
        self._shut: Problem | None = None  # why the pool takes no workflows, as told
        self._pool_refusal: Failure | None = None  # of the pool's own status, where the API server says no to it
        self._writes = InFlight(lambda: tools.wake(pool))  # of statuses, by uid

    def close(self) -> None:
        """Let go of what is being written."""
        self._writes.close()

    def forget(self, uid: str) -> None:
        """Drop what is kept of a workflow."""
        for kept in (self._written_s, self._stale, self._refusals, self._amiss, self._ends, self._without_stages):
            kept.pop(uid, None)
        self._anew.discard(uid)

    def mark(self, uid: str) -> None:
        """Note that the status of a workflow may have to be written."""
        self._stale[uid] = None

    def retell(self, uid: str) -> None:
        """Note that why stages of a workflow wait is to be told again: it may be for other numbers since."""
        self._anew.add(uid)
        self.mark(uid)

    def take_stale(self) -> list[str]:
        """Return the stale workflows, longest first, and count them as told; not those that are being told of now."""
        stale = [uid for uid in self._stale if uid not in self._writes]
        for uid in stale:
            del self._stale[uid]
        return stale

    def put_back(self, uids: list[str]) -> None:
        """Count workflows as stale for longer than any other."""
        self._stale = dict.fromkeys([*uids, *self._stale])

    @property
    def room(self) -> int:
        """How many more statuses may be written at once; those that are late have their part of it."""
        return max(AT_ONCE - len(self._writes), 0)

    async def write(self, tellings: Mapping[str, Callable[[], Coroutine[Any, Any, None]]]) -> None:
        """Tell of some workflows, by uid, and return when all statuses are written or late."""
        await self._writes.send(tellings)

    def come_back(self, at_s: float) -> None:
        """Ask for another reconciliation at a time."""
        self.next_s = min(self.next_s, at_s)

    async def unreadable(self, fact: WorkflowFact, account: Account, problem: Problem, now_s: float) -> None:
        """Tell that the spec of a workflow cannot be read."""
        if await self._write(fact, status.rejected_status(fact, account, problem, now_s), now_s, urgent=True):
            self._rejected(fact, problem)

    async def edited(self, fact: WorkflowFact, now_s: float) -> None:
        """Tell that an edit of a finished workflow was seen, which nothing comes of: `kubectl wait` waits for that."""
        await self._write(fact, status.edited_status(fact, now_s), now_s, urgent=True)

    def _rejected(self, fact: WorkflowFact, problem: Problem) -> None:
        """Write once that a workflow is not accepted; `fact` is from before that stood in its status."""
        before = fact.status.condition(reasons.ACCEPTED)
        if before is None or (before.reason, before.message) != (problem.reason, problem.message):
            self._events.tell(names.WORKFLOW, fact.meta, problem.reason, problem.message, "Warning")
            log.warning("%s: not accepted: %s: %s", fact.title, problem.reason, problem.message)

    async def workflow(
        self,
        view: WorkflowView,
        account: Account,
        whys: Whys,
        policy: str,
        now_s: float,
        problem: Problem | None = None,
    ) -> None:
        """Tell where a workflow is.

        Args:
            view: where it is.
            account: its meters.
            whys: why its ready stages do not run.
            policy: that decides in its pool.
            now_s: the time.
            problem: why it is not accepted, or None.
        """
        if view.fact.meta.uid not in self._amiss:  # nothing has been told of it since this operator began
            self._recall(view.fact)
        anew = view.fact.meta.uid in self._anew
        body = status.workflow_status(view, account, whys.held, whys.waiting, policy, now_s, problem, anew=anew)
        self._amiss[view.fact.meta.uid] = sum(row["reason"] in reasons.AMISS for row in body["stages"])
        accepted = view.fact.status.condition(reasons.ACCEPTED)
        urgent = view.outcome is not None or accepted is None or (accepted.status == "True") != (problem is None)
        if view.outcome is not None:
            self._ends[view.fact.meta.uid] = partial(self._finished, view, account, str(body["policy"]))
        written = await self._write(view.fact, body, now_s, urgent=urgent)
        if not self._is_brief(view.fact):  # what was told of stages is known by their rows
            self._stages(view, whys)
        if written and problem is not None:
            self._rejected(view.fact, problem)

    def _is_brief(self, fact: WorkflowFact) -> bool:
        """Tell whether the status of a workflow is to be written without its stages: an edit makes room, perhaps."""
        return self._without_stages.get(fact.meta.uid) == fact.meta.generation

    def _shorten(self, fact: WorkflowFact, error: ClusterError) -> None:
        """Write the status of a workflow without its stages from now on: with them the object is too large."""
        self._without_stages[fact.meta.uid] = fact.meta.generation
        text = reasons.MEANING[reasons.STAGES_NOT_TOLD]
        self._events.tell(names.WORKFLOW, fact.meta, reasons.STAGES_NOT_TOLD, text, "Warning")
        log.warning("%s: %s (%s)", fact.title, text, error)
        self.mark(fact.meta.uid)
        self.come_back(self._now())

    def ended(self, uid: str) -> None:
        """Tell how a workflow ended whose status says so, once: it may have been written without an answer."""
        tell = self._ends.pop(uid, None)
        if tell is not None:
            tell()

    def started(
        self, view: WorkflowView, stage: StageView, cap: int, account: Account, policy: str, now_s: float
    ) -> None:
        """Tell that a stage was started, or may run more tasks at once."""
        name = stage.spec.name
        if stage.job is not None:
            text = f"stage {name} may now run {counted(cap, 'task')} at once"
        else:
            held_s = account.stages.get(name, Meter()).total(now_s)
            _, wait_s, held_s, _ = split(now_s - stage.ready_s, held_s, 0.0).seconds
            text = (
                f"stage {name} started by {policy}: {cap} of {counted(stage.tasks, 'task')} at once, "
                f"after {wait_s:.1f} s of wait and {held_s:.1f} s held"
            )
        self._events.tell(names.WORKFLOW, view.fact.meta, reasons.STAGE_STARTED, text, key=f"{name}/{cap}")

    async def pool(
        self,
        fact: PoolFact,
        verdict: Verdict,
        policy: str,
        counts: Mapping[str, int],
        problem: Problem | None,
        paused: Pause,
        saved: float | None,
    ) -> None:
        """Tell what a pool does.

        Args:
            fact: the pool.
            verdict: whether its own policy decides, and its fallback could.
            policy: that decides.
            counts: busy, waiting, held, workflows.
            problem: why it takes no workflows, or None.
            paused: whether nothing may be held.
            saved: share of the mean JCT that holding saves, if that is known.
        """
        now_s = self._now()
        self._metrics.announce(self._pool, policy)
        executors = fact.spec.executors if fact.spec else 0
        self._metrics.observe_pool(self._pool, executors, counts, sum(self._amiss.values()))
        self._metrics.observe_policy(self._pool, None if verdict.reason == reasons.POLICY_OFF else verdict.ready)
        self._metrics.holding_paused.labels(self._pool).set(paused.on)
        self._pool_shut(fact, problem)
        body = status.pool_status(fact, verdict.condition, policy, counts, problem, paused, saved, now_s)
        before = fact.status.model_dump(by_alias=True)
        if not status.changed(before, before | body):
            return
        if self._pool_refusal is not None and not is_due(self._pool_refusal, now_s):
            self.come_back(self._pool_refusal.until_s)
            return
        # A policy that fails now and then must not make a status that is written all the time.
        next_s = self._pool_written_s + STATUS_INTERVAL_S
        if fact.status.condition(reasons.POLICY_READY) is not None and is_put_off(next_s, now_s, STATUS_INTERVAL_S):
            self.come_back(next_s)
            return
        told = partial(self._pool_told, fact, verdict, problem, paused, now_s)
        await self._writes.send({fact.meta.uid: partial(self._write_pool, fact, body, now_s, told)})

    def _pool_shut(self, fact: PoolFact, problem: Problem | None) -> None:
        """Tell once why a pool takes no workflows: of what the API server would refuse by now it may take no status."""
        if problem is not None and problem != self._shut:
            log.warning("pool %s: takes no workflows: %s: %s", self._pool, problem.reason, problem.message)
            known = fact.status.condition(reasons.READY)
            if known is None or (known.reason, known.message) != (problem.reason, problem.message):
                self._events.tell(names.POOL, fact.meta, problem.reason, problem.message, "Warning")
        self._shut = problem

    async def _write_pool(
        self, fact: PoolFact, body: Mapping[str, Any], now_s: float, told: Callable[[], None]
    ) -> None:
        self._pool_written_s = now_s
        try:
            version = fact.meta.resource_version
            made = await self._cluster.patch_pool_status(fact.meta.name, version, status.merge_patch(body))
        except ClusterError as error:
            level = logging.INFO if error.status == 409 else logging.WARNING  # changed meanwhile, which is on its way
            log.log(level, "pool %s: status not written: %s", self._pool, error)
            again_s = self._now() + _RETRY_S
            if not error.is_trouble:
                refusal = Failure.after(self._pool_refusal, str(error), self._now(), busy=False)
                self._pool_refusal, again_s = refusal, refusal.until_s
            self.come_back(again_s)
            return
        self._pool_refusal = None
        self._store.put_own("executorpools", made)
        told()

    def _pool_told(
        self, fact: PoolFact, verdict: Verdict, problem: Problem | None, paused: Pause, now_s: float
    ) -> None:
        """Write the Events of what is new in the status of a pool; `fact` is from before."""
        known, held = fact.status.condition(reasons.POLICY_READY), fact.status.condition(reasons.HOLDING_PAUSED)
        told = verdict.condition
        news = known is None or known.reason != told.reason or known.message != told.message
        if news and verdict.ready:
            self._events.tell(names.POOL, fact.meta, reasons.POLICY_LOADED, verdict.message)
        elif news and problem is None and verdict.reason not in (reasons.POLICY_OFF, reasons.POLICY_LOADING):
            self.fallback(fact, verdict)
        if news and verdict.fallback:
            self._events.tell(names.POOL, fact.meta, reasons.FALLBACK_UNKNOWN, verdict.fallback, "Warning")
        if (held is not None and held.status == "True") != paused.on:
            reason = reasons.HOLDING_PAUSED if paused.on else reasons.HOLDING_RESUMED
            text = reasons.MEANING[paused.reason]
            self._events.tell(names.POOL, fact.meta, reason, f"{text} {paused.message}".strip(), key=str(now_s))

    def fallback(self, fact: PoolFact, trouble: Verdict) -> None:
        """Tell that a decision was made by the fallback: by the time a status is written that may be over."""
        text = f"{trouble.reason}: {trouble.message}"
        self._events.tell(names.POOL, fact.meta, reasons.POLICY_FALLBACK, text, "Warning", key=trouble.reason)

    async def _write(self, fact: WorkflowFact, body: dict[str, Any], now_s: float, *, urgent: bool) -> bool:
        """Write a status if it changed and is not written too often; tell whether it was written."""
        uid = fact.meta.uid
        if "stages" in body and self._is_brief(fact):
            body = status.without_stages(body)
        before = fact.status.model_dump(by_alias=True)
        if not status.changed(before, before | body):
            self._anew.discard(uid)
            return False
        refusal = self._refusals.get(uid)
        if refusal is not None and not is_due(refusal, now_s):
            self._put_off(uid, refusal.until_s)
            return False
        next_s = self._written_s.get(uid, -math.inf) + STATUS_INTERVAL_S
        if not urgent and is_put_off(next_s, now_s, STATUS_INTERVAL_S):
            self._put_off(uid, next_s)
            return False
        try:
            made = await self._cluster.patch_workflow_status(
                fact.meta.namespace, fact.meta.name, fact.meta.resource_version, status.merge_patch(body)
            )
        except ClusterError as error:
            if error.is_too_large and body.get("stages"):
                self._shorten(fact, error)
            elif error.reason != "NotFound":  # deleted meanwhile: the event is on its way
                self._not_written(fact, error)
            return False
        self._refusals.pop(uid, None)
        self._anew.discard(uid)
        if uid in self._store.workflows:  # or it was deleted meanwhile
            self._written_s[uid] = now_s
        self._store.put_own("workflows", made)
        return True

    def _not_written(self, fact: WorkflowFact, error: ClusterError) -> None:
        """Have a status written later; where the API server is not in trouble but says no, less and less often."""
        # One of 409 says that it was changed, or made again, and that event is on its way too.
        level = logging.INFO if error.status == 409 else logging.WARNING
        log.log(level, "%s: status not written: %s", fact.title, error)
        uid, now_s = fact.meta.uid, self._now()
        if error.is_trouble and not error.is_too_large:
            self.troubles += error.status != 409
            self._put_off(uid, now_s + _RETRY_S)
        elif uid in self._store.workflows:  # or it was deleted meanwhile
            refusal = Failure.after(self._refusals.get(uid), str(error), now_s, busy=False)
            self._refusals[uid] = refusal
            self._put_off(uid, refusal.until_s)

    def _put_off(self, uid: str, until_s: float) -> None:
        self.mark(uid)
        self.come_back(until_s)

    def _recall(self, fact: WorkflowFact) -> None:
        """Count as told why stages wait, as far as their status says it: there may be thousands of them."""
        for row in fact.status.stages:
            if row.state == "Held":
                self._events.recall(fact.meta.uid, reasons.STAGE_HELD, row.name)
            elif row.state == "Waiting" and row.message:
                key = _waiting_key(row.name, row.reason, row.message)
                self._events.recall(fact.meta.uid, reasons.STAGE_WAITING, key)

    def _stages(self, view: WorkflowView, whys: Whys) -> None:
        """Write the Events of stages that changed since the last status."""
        meta = view.fact.meta
        before = {stage.name: stage.state for stage in view.fact.status.stages}
        told = {stage.name: stage.reason for stage in view.fact.status.stages}
        for stage in view.stages:
            name = stage.spec.name
            if name in whys.held:
                text = f"stage {name} {whys.held[name].message}"
                self._events.tell(names.WORKFLOW, meta, reasons.STAGE_HELD, text, key=name)
            elif name in whys.waiting:
                why = whys.waiting[name]
                text, key = f"stage {name} {why.message}", _waiting_key(name, why.reason, why.message)
                level: Level = "Warning" if why.reason == reasons.START_RETRYING else "Normal"
                self._events.tell(names.WORKFLOW, meta, reasons.STAGE_WAITING, text, level, key=key)
            elif stage.reason in reasons.AMISS and stage.reason != told.get(name):
                text = f"stage {name}: {stage.message or reasons.MEANING[stage.reason]}"
                self._events.tell(names.WORKFLOW, meta, stage.reason, text, "Warning", key=name)
            elif stage.phase == "Succeeded" and before.get(name) != "Succeeded":
                run_s = (stage.end_s or 0.0) - (stage.start_s or 0.0)
                text = f"stage {name} succeeded: {counted(stage.tasks, 'task')} in {run_s:.1f} s"
                self._events.tell(names.WORKFLOW, meta, reasons.STAGE_SUCCEEDED, text, key=name)
            elif stage.phase == "Failed" and before.get(name) != "Failed":
                text = f"stage {name} failed: {stage.reason}: {stage.message}"
                self._events.tell(names.WORKFLOW, meta, reasons.STAGE_FAILED, text, "Warning", key=name)

    def _finished(self, view: WorkflowView, account: Account, policy: str) -> None:
        outcome = view.outcome
        if outcome is None:
            return
        parts = workflow_split(view, outcome, account)
        self._metrics.observe_finished(view, policy, parts)
        text = f"{outcome.message}; {parts.told}"
        level: Level = "Normal" if outcome.succeeded else "Warning"
        self._events.tell(names.WORKFLOW, view.fact.meta, outcome.reason, text, level, last=True)
        log.info("%s: %s: %s", view.fact.title, outcome.reason, text)


def _waiting_key(stage: str, reason: str, message: str) -> str:
    """Return what makes a wait the same one as before: another answer of the API server is another Event."""
    return f"stage {stage} {message}" if reason == reasons.START_RETRYING else f"{stage}/{reason}"
