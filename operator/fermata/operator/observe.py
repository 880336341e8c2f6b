"""What is known of a pool's workflows: where each is, what is wrong with it, and what was learned from it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from dataclasses import replace

from fermata.operator import reasons
from fermata.operator.acceptance import Acceptance
from fermata.operator.apply import Applier
from fermata.operator.arrivals import RecentArrivals, came_s
from fermata.operator.build_state import Arrival, Rows, weight
from fermata.operator.estimates import Estimates, family_of, is_guess
from fermata.operator.expiry import Expiry
from fermata.operator.facts import NOT_READY_S, WorkflowFact
from fermata.operator.holding import Holding
from fermata.operator.ledger import Ledger
from fermata.operator.past import come_at, past_job
from fermata.operator.progress import WorkflowView
from fermata.operator.tell import Teller
from fermata.operator.times import parse_or_none
from fermata.operator.tools import Tools
from fermata.operator.validate import Problem
from fermata.operator.view import view, without_edges

_UNSOUND = (reasons.DUPLICATE_STAGE, reasons.UNKNOWN_PARENT, reasons.CYCLE)  # its stages are no DAG
_AT_A_TIME = 200  # workflows that are looked at before others have their turn
_TELLING_LESSONS = (1, 2, 4, 8, 16)  # so many known runs change the estimate of a stage noticeably


class Observer:
    """Keeps what is known of the workflows of one pool up to date.

    All of it can be read from the API server again.
    """

    def __init__(
        self,
        pool: str,
        tools: Tools,
        ledger: Ledger,
        applier: Applier,
        teller: Teller,
        holding: Holding,
        expiry: Expiry,
    ) -> None:
        self._pool, self._tools, self._ledger = pool, tools, ledger
        self._applier, self._teller, self._holding, self._expiry = applier, teller, holding, expiry
        self.acceptance = Acceptance(pool, tools.store)
        self.views: dict[str, WorkflowView] = {}  # of the unfinished workflows that can be read, by uid
        self.rows: dict[str, Rows] = {}  # of the states, as long as a view stays
        self.problems: dict[str, Problem] = {}  # of the workflows that cannot run
        self.dues_s: dict[str, float] = {}  # when they are to be looked at again, of those that need no event for that
        self.released: dict[str, frozenset[str]] = {}  # stages that people do not want held
        self.metering: set[str] = set()  # workflows of which something is held
        self.estimates = Estimates()
        self._ripeness = self.estimates.ripeness
        self.recent = RecentArrivals(tools.now())

    async def observe(self, now_s: float, *, whole: bool = False) -> None:
        """Take in what changed, and what changes meanwhile."""
        store = self._tools.store
        changed = {uid for uid, due_s in self.dues_s.items() if due_s <= now_s}
        if whole:
            changed |= set(store.pool_workflows[self._pool])
        changed |= store.touched.pop(self._pool, set())
        known = store.pool_workflows[self._pool]
        while changed:
            # What fades as it is learned wants the oldest first, also after a restart.
            in_order = sorted(changed, key=lambda uid: known[uid].meta.created_s if uid in known else math.inf)
            starting: dict[str, list[str]] = {}
            for uid, name in self._applier.starting:
                starting.setdefault(uid, []).append(name)
            for number, uid in enumerate(in_order, start=1):
                self._take_in(uid, now_s, starting.get(uid, ()))
                if number % _AT_A_TIME == 0:
                    await asyncio.sleep(0)  # other pools, the Lease and the probes wait for this one
            changed = store.touched.pop(self._pool, set())
            if self.estimates.ripeness != self._ripeness:
                # Or of two alike the one that came before that was learned would be expected to take longer, or less.
                self._ripeness = self.estimates.ripeness
                changed |= self.views.keys()

    def has_ended(self, uid: str, name: str) -> bool:
        """Tell whether a stage has ended, as of a workflow that has: no task of it begins any more."""
        known, fact = self.views.get(uid), self._tools.store.workflows.get(uid)
        return known.has_ended(name) if known is not None else fact is not None and fact.finished

    def shut_out(self) -> int:
        """Return how many stages are ready and kept from starting by nothing but their pool's own specification."""
        shut = {uid for uid, problem in self.problems.items() if problem.reason == reasons.POOL_INVALID}
        views = [self.views[uid] for uid in shut & self.views.keys()]
        kept = [each for each in views if not (each.spec.suspend or each.fact.meta.deleting)]
        return sum(stage.waits for each in kept if each.blocked == reasons.REJECTED for stage in each.stages)

    def _take_in(self, uid: str, now_s: float, starting: Iterable[str]) -> None:
        fact = self._tools.store.pool_workflows[self._pool].get(uid)
        if fact is None:
            self._forget(uid)
            self.estimates.forget(uid)
        elif fact.finished:
            self._close(fact, now_s)
        else:
            self._judge(fact, now_s, starting)

    def _forget(self, uid: str) -> None:
        for kept in (self.views, self.rows, self.problems, self.dues_s, self.released):
            kept.pop(uid, None)
        self.metering.discard(uid)
        self._applier.forget(uid)
        self.acceptance.forget(uid)
        self._teller.forget(uid)
        self._ledger.close(uid)

    def _close(self, fact: WorkflowFact, now_s: float) -> None:
        """Keep of a finished workflow what others can learn from it."""
        uid = fact.meta.uid
        self._teller.ended(uid)
        self._forget(uid)
        if fact.status.observed_generation != fact.meta.generation and not fact.meta.deleting:
            self._teller.mark(uid)
        self.estimates.learn_all(fact)
        begun_s = parse_or_none(fact.status.start_time)
        past = past_job(fact)
        if past is not None:
            self._holding.finished(come_at(past, came_s(fact, begun_s, now_s)))
        if fact.spec is None:
            return
        guessed = ((stage, self.estimates.of(fact.meta, stage).seconds) for stage in fact.spec.stages)
        work_s = sum(seconds * stage.tasks * stage.slots for stage, seconds in guessed)
        if begun_s is not None or fact.status.suspended_time is None:  # else it never came
            arrival = Arrival(came_s(fact, begun_s, now_s), work_s, weight(fact.spec.priority))
            self.recent.note(uid, arrival, fact.kept_s)
        self._expiry.note(fact)

    def _judge(self, fact: WorkflowFact, now_s: float, starting: Iterable[str]) -> None:
        """Validate one workflow and read off where it is; its stages that are `starting` may run in a moment."""
        uid = fact.meta.uid
        self._teller.mark(uid)
        namespace = self._tools.store.namespaces.get(fact.meta.namespace)
        if namespace is not None and namespace.meta.deleting:  # and with it all that is in it, Jobs first or last
            fact = replace(fact, meta=replace(fact.meta, deleting=True))
        self.problems.pop(uid, None)
        problem = self.acceptance.problem(fact)
        if problem is not None:
            self.problems[uid] = problem
        account = self._ledger.open(fact)
        if fact.spec is None:  # nothing can be told of it but that
            account.stop(now_s)
            self.views.pop(uid, None)
            self.dues_s.pop(uid, None)
            return
        if account.counting:  # also what an earlier operator left counting
            self.metering.add(uid)
        jobs = self._tools.store.workflow_jobs.get(uid, {})
        refused, before = self._applier.refused.get(uid, {}), self.views.get(uid)
        if before is not None and before.fact.meta.generation != fact.meta.generation:
            self._applier.edited(uid)
        # What runs of a workflow that is not accepted goes on, and so does its deadline.
        unsound = problem is not None and problem.reason in _UNSOUND
        spec = without_edges(fact.spec) if unsound else fact.spec
        seen = view(fact, spec, jobs, refused, account.started, self.estimates, now_s, before)
        if problem is not None and seen.blocked not in (reasons.DEADLINE_EXCEEDED, reasons.STAGE_FAILED):
            seen = seen.stopped(reasons.REJECTED)
        if seen.missing:
            seen = seen.unseen(self._applier.unseen(uid))
        if unchanged := self._applier.unchanged(seen):
            seen = seen.unchanged(unchanged)
        if not all(seen.has_ended(name) for name in starting):
            seen = seen.going_on()
        self.views[uid] = seen
        self.dues_s.pop(uid, None)
        due_s = _due_s(seen)
        if due_s < math.inf:
            self.dues_s[uid] = due_s
        self.released.pop(uid, None)
        if fact.released:
            self.released[uid] = fact.released
        # What waited for its turn may have ended by its deadline, and long ago.
        account.gap.turn(on=seen.in_gap, now_s=min(now_s, seen.goes_on_until_s))
        self._learn(seen)
        self._ledger.catch_up(seen, now_s)
        if problem is None and seen.has_come:
            arrival = Arrival(came_s(fact, seen.start_s, now_s), seen.work_s, weight(seen.spec.priority))
            self.recent.note(uid, arrival, fact.kept_s)

    def _learn(self, seen: WorkflowView) -> None:
        """Learn from the stages that have finished, and measure how wrong the estimates were."""
        for stage in seen.stages:
            if stage.phase != "Succeeded" or stage.start_s is None or stage.end_s is None or stage.job is None:
                continue
            spec, job = stage.spec, stage.job
            duration_s = stage.took_s(stage.end_s - stage.start_s)
            if not self.estimates.learn(
                seen.fact.meta, spec.name, stage.slots, duration_s, stage.end_s, spec.estimate_seconds, stage.tasks
            ):
                continue
            if job.estimate_s:
                if not is_guess(job.estimate_s, given=spec.estimate_seconds is not None):
                    self.estimates.measure(duration_s, job.estimate_s, stage.tasks)
                source = "learned"
                if spec.estimate_seconds is not None:
                    source = "given" if abs(job.estimate_s - spec.estimate_seconds) < 0.001 else "corrected"
                self._tools.metrics.estimate.labels(self._pool, source).observe(duration_s / job.estimate_s)
            # The first few runs change an estimate; looking at the whole family after each one would not scale.
            if self.estimates.lessons(seen.fact.meta, spec.name) in _TELLING_LESSONS:
                self._reestimate(seen)

    def _reestimate(self, seen: WorkflowView) -> None:
        """Have the other unfinished workflows of a family looked at again."""
        meta = seen.fact.meta
        family = meta.namespace, family_of(meta)
        self._tools.store.touched[self._pool].update(
            uid
            for uid, known in self.views.items()
            if uid != meta.uid and (known.fact.meta.namespace, family_of(known.fact.meta)) == family
        )


def _due_s(seen: WorkflowView) -> float:
    """Return when the view of a workflow changes without an event; inf: never.

    Its deadline passes, or a Job has lacked pods that are ready for so long that it is told.
    """
    told = (reasons.NO_POD_READY, reasons.PODS_NOT_READY)
    running = (stage for stage in seen.stages if stage.phase == "Running" and stage.reason not in told)
    idle_s = [stage.job.idle_s + NOT_READY_S for stage in running if stage.job is not None]
    return min([math.inf if seen.blocked == reasons.DEADLINE_EXCEEDED else seen.deadline_s, *idle_s])
