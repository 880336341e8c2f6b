"""One pool, brought from what is to what should be: seat, observe, decide, apply, settle, tell, arm.

Level-based: `reconcile` may be called at any time and any number of times, and what it does depends on what the API
server holds, not on what happened. All that it keeps can be read from there again. One instance for each pool, so a
pool's trouble stays its own.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
from bisect import insort
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial

from fermata.operator import reasons
from fermata.operator.apply import RETRY_S, Applier
from fermata.operator.build_state import Arrival, HoldTimes, Keys, Rows, build_state, dag_of
from fermata.operator.cluster import Cluster, ClusterError
from fermata.operator.estimates import UNKNOWN_S, Estimates, family_of
from fermata.operator.events import Events
from fermata.operator.facts import JobFact, PoolFact, WorkflowFact
from fermata.operator.holding import Holding, Situation
from fermata.operator.inflight import AT_ONCE, InFlight
from fermata.operator.lanes import task_duration_s
from fermata.operator.ledger import Ledger, Meter
from fermata.operator.metrics import Metrics
from fermata.operator.past import PastJob, past_job, present_job
from fermata.operator.plan import Plan, StageKey, plan
from fermata.operator.progress import WorkflowView, view, without_edges
from fermata.operator.recorder import Recorder
from fermata.operator.resources import ExecutorPoolSpec
from fermata.operator.seat import FOREVER_S, Decision, Seat, limits_of
from fermata.operator.store import Store
from fermata.operator.tell import Teller, Whys
from fermata.operator.validate import Problem, pool_problems, workflow_problems
from fermata.operator.why import Elsewhere, why_held, why_waiting
from fermata.policy.action import START, Action
from fermata.policy.board import board_of, state_of
from fermata.policy.decide import corrects_estimates
from fermata.policy.guardrails import Guardrails
from fermata.policy.reason import words_for_wait
from fermata.policy.state import RECENT_ARRIVALS, ClusterState
from fermata.policy.transition import take

_UNSOUND = (reasons.DUPLICATE_STAGE, reasons.UNKNOWN_PARENT, reasons.CYCLE)  # its stages are no DAG
_AT_A_TIME = 200  # workflows that are looked at before others have their turn
_TELLING_LESSONS = (1, 2, 4, 8, 16)  # so many known runs change the estimate of a stage noticeably

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Tools:
    """What all pools share."""

    store: Store
    cluster: Cluster
    events: Events
    metrics: Metrics
    recorder: Recorder
    now: Callable[[], float]
    wake: Callable[[str], None]
    pending: Callable[[str], bool]  # has a pool been woken since its reconciliation began?


@dataclass(frozen=True)
class Asked:
    """A decision, and what it was made on."""

    state: ClusterState
    keys: Keys
    decision: Decision
    plan: Plan
    index: dict[StageKey, int]  # of stages in the state
    elsewhere: Elsewhere

    @property
    def waiting(self) -> int:
        """Stages that are ready and were not started, held or not."""
        unstarted = int((self.state.stage_cap[self.state.ready_stages] == 0).sum())
        return unstarted - sum(int(self.state.stage_cap[self.index[key]]) == 0 for key in self.plan.starts)

    def counts(self, key: StageKey) -> bool:
        """Tell whether a stage that has not been started is one of `waiting`."""
        i = self.index.get(key)
        return i is not None and bool(self.state.stage_ready_s[i] < math.inf) and key not in self.plan.starts

    @cached_property
    def jobs(self) -> frozenset[str]:
        """Uids of the workflows that the decision was about."""
        return frozenset(self.keys.jobs)

    @cached_property
    def after(self) -> ClusterState:
        """The state as what is started leaves it: what people are told is of then."""
        if not self.plan.starts:
            return self.state
        board = board_of(self.state)
        for key, cap in self.plan.starts.items():
            take(board, Action(START, self.index[key], cap))
        return state_of(board)

    @property
    def free(self) -> int:
        """Executors that were left free."""
        return self.after.free

    @property
    def next_ready_s(self) -> float:
        """When the next stage may start that could not yet: another clock said that its time has come. inf: none."""
        ready_s = self.state.stage_ready_s[self.state.ready_stages]
        return float(ready_s[ready_s > self.state.now_s].min(initial=math.inf))

    @cached_property
    def argument(self) -> str:
        """What a model weighed when it left the rest waiting; empty where a rule decided."""
        return words_for_wait(self.decision.by, self.state, self.decision.steps)

    def unstarted(self) -> list[StageKey]:
        """Return the stages that could have been started on what was left free."""
        state, rows = self.state, self.state.ready_stages
        fits = (state.stage_cap[rows] == 0) & (state.stage_slots[rows] <= self.free)
        return [self.keys.stages[i] for i in rows[fits].tolist()]

    def left(self, key: StageKey, committed_s: float | None) -> bool:
        """Tell whether the policy could have started a stage and did not.

        Args:
            key: a stage that is ready and not started.
            committed_s: until when it is held, if it is.
        """
        i, state = self.index.get(key), self.state
        if i is None or not state.stage_ready_s[i] <= state.now_s or state.stage_slots[i] > self.free:
            return False
        if committed_s is not None and committed_s > state.now_s:
            return True
        return self.plan.waits and state.stage_running[i] < state.stage_max_cap[i]


class PoolReconciler:
    """Reconciles the workflows of one pool."""

    def __init__(self, pool: str, tools: Tools) -> None:
        self.pool, self._tools = pool, tools
        self._views: dict[str, WorkflowView] = {}
        self._rows: dict[str, Rows] = {}  # of the states, as long as a view stays
        self._deadlines_s: dict[str, float] = {}  # of the workflows that have one
        self._metering: set[str] = set()  # workflows of which something is held
        self._released: dict[str, frozenset[str]] = {}  # stages that people do not want held
        self._problems: dict[str, Problem] = {}
        self._ledger = Ledger()
        self._estimates = Estimates()
        self._seat = Seat(pool, tools.cluster, tools.metrics, tools.wake)
        self._holding = Holding(pool, tools.metrics, tools.wake)
        self._arrivals: list[tuple[float, str, float]] = []  # arrival, uid, work; oldest first
        self._arrived: dict[str, tuple[float, str, float]] = {}  # the same by uid
        self._expiring: list[tuple[float, str]] = []  # heap of finished workflows with a time to live
        self._deletions = InFlight(lambda: tools.wake(pool))
        self._teller = Teller(pool, tools.store, tools.cluster, tools.events, tools.metrics, tools.now)
        self._applier = Applier(
            pool, tools.store, tools.cluster, tools.metrics, self._teller, self._ledger, tools.now, tools.wake
        )
        self._whole = True  # take in every workflow, not only those that changed
        self._checked: dict[str, tuple[int, ExecutorPoolSpec | None, Problem | None]] = {}

    async def reconcile(self) -> float:
        """Do all that can be done now and return when to come back without being called, seconds since the epoch."""
        self._teller.next_s = math.inf
        # 1. Seat: is there a pool, and which policy decides in it?
        fact = self._tools.store.pools.get(self.pool)
        problem = self._pool_problem(fact) if fact else None
        spec = fact.spec if fact and problem is None else None
        retry_s = await self._seat.seat(spec, self._tools.now()) if spec else None
        if spec is None:
            self._seat.clear(problem)
        # 2. Observe: take in what changed, and what became due. Should this round fail, the next one takes in all.
        begun_s = now_s = self._tools.now()
        whole, self._whole = self._corrects_otherwise(spec) or self._whole, True
        await self._observe(now_s, whole=whole)
        await self._applier.find_missing(self._views.values(), now_s)
        await self._observe(now_s)
        now_s = self._tools.now()  # a history of 100,000 workflows takes a while
        # 3. Decide.
        self._holding.enter(self._situation(spec) if spec else None)
        may_hold = fact is not None and not self._holding.verdict(fact)[0]
        asked = await self._decide(spec, now_s, may_hold=may_hold) if spec else None
        # 4. Apply.
        await self._applier.stop_unwanted(self._views.values(), now_s)
        if asked:
            await self._applier.carry_out(asked.plan, self._views, asked.decision.policy, now_s)
        await self._observe(now_s)
        # 5. Settle: who is held from now on?
        held = self._settle(asked, now_s)
        # 6. Tell: statuses, Events, metrics.
        await self._tell(fact, asked, held, now_s)
        await self._observe(now_s)
        await self._delete_expired(now_s)
        self._whole = False
        # 7. Look back: what is holding worth here?
        self._holding.consider(self._situation(spec) if spec else None, lambda: self._unfinished(now_s))
        # 8. Arm: when does something happen without an event?
        return self._next_wake(asked, retry_s, begun_s)

    def _corrects_otherwise(self, spec: ExecutorPoolSpec | None) -> bool:
        """Follow the pool's policy in whether estimates are corrected; tell whether that has changed.

        A policy that is only asked changes nothing, so what acts in its place gets estimates as they are given.
        """
        policy = self._seat.policy if spec is not None and spec.mode == "Enforce" else None
        corrects = policy is not None and corrects_estimates(policy)
        changed = corrects != self._estimates.corrects
        self._estimates.corrects = corrects
        return changed

    def close(self) -> None:
        """Let go of what the policy holds, and of what is being replayed."""
        self._seat.close()
        self._holding.close()
        self._applier.close()
        self._deletions.close()

    async def _observe(self, now_s: float, *, whole: bool = False) -> None:
        """Take in what changed, and what changes meanwhile."""
        store = self._tools.store
        changed = {uid for uid, deadline_s in self._deadlines_s.items() if deadline_s <= now_s}
        if whole:
            changed |= set(store.pool_workflows[self.pool])
        changed |= store.touched.pop(self.pool, set())
        known = store.pool_workflows[self.pool]
        while changed:
            # What fades as it is learned wants the oldest first, also after a restart.
            in_order = sorted(changed, key=lambda uid: known[uid].meta.created_s if uid in known else math.inf)
            for number, uid in enumerate(in_order, start=1):
                self._take_in(uid, now_s)
                if number % _AT_A_TIME == 0:
                    await asyncio.sleep(0)  # other pools, the Lease and the probes wait for this one
            changed = store.touched.pop(self.pool, set())

    def _take_in(self, uid: str, now_s: float) -> None:
        fact = self._tools.store.pool_workflows[self.pool].get(uid)
        if fact is None:
            self._forget(uid)
        elif fact.finished:
            self._close(fact)
        else:
            self._judge(fact, now_s)

    def _forget(self, uid: str) -> None:
        self._views.pop(uid, None)
        for kept in (self._rows, self._deadlines_s, self._released):
            kept.pop(uid, None)
        self._metering.discard(uid)
        self._problems.pop(uid, None)
        self._applier.forget(uid)
        self._checked.pop(uid, None)
        self._teller.forget(uid)
        self._ledger.close(uid)

    def _close(self, fact: WorkflowFact) -> None:
        """Keep of a finished workflow what others can learn from it."""
        uid = fact.meta.uid
        self._forget(uid)
        if fact.status.observed_generation != fact.meta.generation and not fact.meta.deleting:
            self._teller.mark(uid)
        self._estimates.learn_all(fact)
        past = past_job(fact)
        if past is not None:
            self._holding.finished(past)
        if fact.spec is None:
            return
        self._note_arrival(fact, sum(
            self._estimates.of(fact.meta, stage).seconds * stage.tasks * stage.slots for stage in fact.spec.stages
        ))  # fmt: skip
        expiry_s = fact.expiry_s
        if expiry_s < math.inf:
            heapq.heappush(self._expiring, (expiry_s, uid))

    def _judge(self, fact: WorkflowFact, now_s: float) -> None:
        """Validate one workflow and read off where it is."""
        uid = fact.meta.uid
        self._teller.mark(uid)
        namespace = self._tools.store.namespaces.get(fact.meta.namespace)
        if namespace is not None and namespace.meta.deleting:  # and with it all that is in it, Jobs first or last
            fact = replace(fact, meta=replace(fact.meta, deleting=True))
        self._problems.pop(uid, None)
        problem = self._problem(fact)
        if problem is not None:
            self._problems[uid] = problem
        if fact.spec is None:  # nothing can be told of it but that
            self._views.pop(uid, None)
            self._deadlines_s.pop(uid, None)
            return
        account = self._ledger.open(fact)
        if account.counting:  # also what an earlier operator left counting
            self._metering.add(uid)
        jobs = self._tools.store.workflow_jobs.get(uid, {})
        refused, before = self._applier.refused.get(uid, {}), self._views.get(uid)
        # What runs of a workflow that is not accepted goes on, and so does its deadline.
        unsound = problem is not None and problem.reason in _UNSOUND
        spec = without_edges(fact.spec) if unsound else fact.spec
        seen = view(fact, spec, jobs, refused, account.started, self._estimates, now_s, before)
        if problem is not None and seen.blocked not in (reasons.DEADLINE_EXCEEDED, reasons.STAGE_FAILED):
            seen = seen.stopped(reasons.REJECTED)
        if seen.missing:
            seen = seen.unseen(self._applier.unseen(uid))
        if any(starting == uid for starting, _ in self._applier.starting):  # it may run in a moment
            seen = seen.going_on()
        self._views[uid] = seen
        self._deadlines_s.pop(uid, None)
        if seen.deadline_s < math.inf and seen.blocked != reasons.DEADLINE_EXCEEDED:
            self._deadlines_s[uid] = seen.deadline_s
        self._released.pop(uid, None)
        if fact.released:
            self._released[uid] = fact.released
        self._learn(seen)
        self._ledger.catch_up(seen)
        if problem is None:
            self._note_arrival(fact, seen.work_s)

    def _learn(self, seen: WorkflowView) -> None:
        """Learn from the stages that have finished, and measure how wrong the estimates were."""
        for stage in seen.stages:
            if stage.phase != "Succeeded" or stage.start_s is None or stage.end_s is None or stage.job is None:
                continue
            spec, job = stage.spec, stage.job
            duration_s = task_duration_s(stage.end_s - stage.start_s, stage.tasks, job.lanes)
            if not self._estimates.learn(
                seen.fact.meta, spec.name, stage.slots, duration_s, stage.end_s, spec.estimate_seconds
            ):
                continue
            if job.estimate_s:
                # What was no more than a guess says nothing of how far estimates can be trusted.
                if spec.estimate_seconds is not None or job.estimate_s != UNKNOWN_S:
                    self._estimates.measure(duration_s, job.estimate_s)
                source = "learned"
                if spec.estimate_seconds is not None:
                    source = "given" if abs(job.estimate_s - spec.estimate_seconds) < 0.001 else "corrected"
                self._tools.metrics.estimate.labels(self.pool, source).observe(duration_s / job.estimate_s)
            # The first few runs change an estimate; looking at the whole family after each one would not scale.
            if self._estimates.lessons(seen.fact.meta, spec.name) in _TELLING_LESSONS:
                self._reestimate(seen)

    def _reestimate(self, seen: WorkflowView) -> None:
        """Have the other unfinished workflows of a family looked at again."""
        meta = seen.fact.meta
        family = meta.namespace, family_of(meta)
        self._tools.store.touched[self.pool].update(
            uid
            for uid, known in self._views.items()
            if uid != meta.uid and (known.fact.meta.namespace, family_of(known.fact.meta)) == family
        )

    def _note_arrival(self, fact: WorkflowFact, work_s: float) -> None:
        uid = fact.meta.uid
        before = self._arrived.get(uid)
        row = (before[0] if before else fact.arrival_s, uid, work_s)
        if row == before:
            return
        if before is not None:
            self._arrivals.remove(before)
        insort(self._arrivals, row)
        self._arrived[uid] = row
        while len(self._arrivals) > RECENT_ARRIVALS:
            del self._arrived[self._arrivals.pop(0)[1]]

    def _pool_problem(self, fact: PoolFact) -> Problem | None:
        if fact.spec is None:
            return Problem(reasons.INVALID_SPEC, fact.problem)
        return next(iter(pool_problems(fact.spec)), None)

    def _problem(self, fact: WorkflowFact) -> Problem | None:
        """Return why a workflow cannot run, or None."""
        if fact.spec is None:
            return Problem(reasons.INVALID_SPEC, fact.problem)
        pool = self._tools.store.pools.get(self.pool)
        checked = self._checked.get(fact.meta.uid)
        if checked is None or checked[:2] != (fact.meta.generation, pool and pool.spec):
            problem = next(iter(workflow_problems(fact.spec, pool.spec if pool else None)), None)
            checked = self._checked[fact.meta.uid] = (fact.meta.generation, pool.spec if pool else None, problem)
        if checked[2] is not None:
            return checked[2]
        if pool is None:
            return Problem(reasons.POOL_NOT_FOUND, f"no ExecutorPool is named {self.pool!r}")
        selector = pool.spec.namespace_selector if pool.spec else None
        namespace = self._tools.store.namespaces.get(fact.meta.namespace)
        # A namespace that is newer than what is known of it may have the label for which it is left out.
        if selector is not None and (namespace is None or not selector.selects(dict(namespace.meta.labels))):
            message = f"pool {self.pool!r} does not take workflows of namespace {fact.meta.namespace!r}"
            return Problem(reasons.NAMESPACE_NOT_ALLOWED, message)
        return None

    async def _decide(self, spec: ExecutorPoolSpec, now_s: float, *, may_hold: bool) -> Asked:
        limits = limits_of(spec)
        self._bound_commitments(limits, now_s, may_hold=may_hold and spec.mode == "Enforce")
        holds = self._ledger.stage_holds(now_s)
        if self._released:
            # A stage that is released has been held for as long as any stage may be: it is due.
            limits = limits._replace(max_hold_s=min(limits.max_hold_s, FOREVER_S))
            for uid, stages in self._released.items():
                holds |= {(uid, name): HoldTimes(FOREVER_S) for name in stages}
        # Of a workflow that is not accepted nothing can start; all that counts is what it keeps busy.
        views = [
            known
            for uid, known in self._views.items()
            if uid not in self._problems or any(stage.occupied for stage in known.stages)
        ]
        elsewhere = Elsewhere(self._unshown(), self._starting(), self._looked_for())
        state, keys = build_state(
            views,
            max(spec.executors - sum(elsewhere), 0),
            self._tools.store.job_pods,
            holds,
            self._ledger.workflow_held_s(now_s),
            [Arrival(arrival_s, work_s) for arrival_s, _, work_s in self._arrivals],
            now_s,
            self._applier.paused(now_s),
            self._rows,
            self._estimates.trust,
        )
        edges = partial(dag_of, views, keys)
        decision = await self._seat.decide(state, spec, limits, may_hold=may_hold, dag=edges)
        self._tools.recorder.write(self.pool, self._seat.fallback.name, state, keys, decision, edges)
        index = {key: i for i, key in enumerate(keys.stages)}
        return Asked(state, keys, decision, plan(decision.steps, keys, self._views), index, elsewhere)

    def _bound_commitments(self, limits: Guardrails, now_s: float, *, may_hold: bool) -> None:
        """Shorten committed holds to what the limits leave by now, and end those that must not be.

        A hold was within the limits when it was committed to. Since then the pool may have been edited, its holding
        switched off, the stage released, or the last running task of the pool have ended.
        """
        idle = not limits.hold_when_idle and not self._tools.store.busy_jobs[self.pool]
        for uid, account in self._ledger.accounts.items():
            for name, until_s in list(account.hold_until_s.items()):
                known = self._views.get(uid)
                stage = known.stage(name) if known else None
                room_s = 0.0
                if may_hold and not idle and stage is not None and name not in self._released.get(uid, ()):
                    held_s = account.stages.get(name, Meter()).total(now_s)
                    room_s = min(limits.max_hold_s - held_s, stage.ready_s + limits.max_wait_s - now_s)
                if min(until_s, now_s + room_s) <= now_s:
                    del account.hold_until_s[name]
                    self._teller.mark(uid)
                elif now_s + room_s < until_s:
                    account.hold_until_s[name] = now_s + room_s
                    self._teller.mark(uid)

    def _unshown(self) -> int:
        """Return the executors under Jobs that are no stage of an unfinished workflow.

        Their workflow cannot be read, lacks the stage since an edit, has ended, or was deleted without them.
        """
        names: dict[str, set[str]] = {}
        unshown = 0
        for job in self._tools.store.busy_jobs[self.pool].values():
            uid = job.meta.owner_uid
            if uid not in names:
                known = self._views.get(uid)
                names[uid] = {stage.spec.name for stage in known.stages} if known else set()
            if job.stage not in names[uid]:
                unshown += job.occupied * self._slots(job)
        return unshown

    def _starting(self) -> int:
        """Return the executors of tasks that may begin at any moment: their Jobs are being created or widened."""
        executors = 0
        for (uid, name), start in self._applier.starting.items():
            known = self._views.get(uid)
            stage = known.stage(name) if known else None
            executors += max(start.cap - (stage.occupied if stage else 0), 0) * start.slots
        return executors

    def _looked_for(self) -> int:
        """Return the executors of stages whose Jobs are not seen, while nobody says that they were deleted."""
        return sum(most.tasks * most.slots for known in self._views.values() for most in known.missing.values())

    def _situation(self, spec: ExecutorPoolSpec) -> Situation | None:
        """Return what the estimate of the savings is to be about, if the pool's policy can be asked."""
        policy = self._seat.policy
        if policy is None or spec.mode == "Off":
            return None
        base = self._seat.fallback if spec.mode == "Shadow" else self._seat.substitute
        return Situation(policy, base, self._seat.fallback, limits_of(spec), spec.executors)

    def _unfinished(self, now_s: float) -> list[PastJob]:
        return [present_job(known, now_s) for uid, known in self._views.items() if uid not in self._problems]

    def _settle(self, asked: Asked | None, now_s: float) -> set[StageKey]:
        """Let each meter count or not from now on, and return the stages that are held.

        Held is what the policy saw, could have started, and left: not what became ready since it was asked.
        """
        paused = self._applier.paused(now_s)
        held = {key for key in self._left(asked) if key not in paused}
        names: dict[str, set[str]] = {}
        for uid, name in held:
            names.setdefault(uid, set()).add(name)
        for uid in self._metering | names.keys():
            self._meter(uid, names.get(uid, set()), now_s)
        self._metering = set(names)
        return held

    def _left(self, asked: Asked | None) -> Iterable[StageKey]:
        """Return the stages that are ready, not started, and left by the policy although they would fit."""
        if asked is None:
            return
        committed = {(uid, name): until_s for uid, name, until_s in self._ledger.committed()}
        candidates = asked.unstarted() if asked.plan.waits else [key for key in committed if key in asked.index]
        for key in candidates:
            known = self._views.get(key[0])
            stage = known.stage(key[1]) if known else None
            if stage is not None and stage.phase == "Ready" and asked.left(key, committed.get(key)):
                yield key

    def _meter(self, uid: str, held: Collection[str], now_s: float) -> None:
        """Let the meters of one workflow count or not."""
        known, account = self._views.get(uid), self._ledger.accounts.get(uid)
        if known is None or account is None:
            return
        for stage in known.stages:
            name = stage.spec.name
            if stage.phase != "Ready" or (name not in held and name not in account.stages):
                continue
            if account.stages.setdefault(name, Meter()).turn(on=name in held, now_s=now_s):
                self._teller.mark(uid)
                self._tools.metrics.holds.labels(self.pool).inc(name in held)
        running = any(stage.phase == "Running" for stage in known.stages)
        if account.held.turn(on=bool(held) and not running and known.outcome is None, now_s=now_s):
            self._teller.mark(uid)

    def _waiting(self, asked: Asked | None) -> int:
        """Return how many stages are ready and not started, held or not: also those that the API server did not take.

        The policy is not asked about them before they are tried again, and yet they wait.
        """
        if asked is None:
            return 0
        paused = [key for key in self._applier.paused(asked.state.now_s) if not asked.counts(key)]
        return asked.waiting + sum(self._may_start(*key) for key in paused)

    def _may_start(self, uid: str, name: str) -> bool:
        known = self._views.get(uid)
        stage = known.stage(name) if known and not known.blocked else None
        return stage is not None and stage.phase == "Ready"

    def _busy(self) -> int:
        """Return the executors that stages hold."""
        jobs = self._tools.store.pool_jobs(self.pool)
        return sum(job.occupied * self._slots(job) for job in jobs)

    def _slots(self, job: JobFact) -> int:
        """Return the executors that a task of a Job takes; one that does not say is looked up in its workflow."""
        if job.slots is not None:
            return job.slots
        fact = self._tools.store.workflows.get(job.meta.owner_uid)
        stages = fact.spec.stages if fact and fact.spec else []
        return next((stage.slots for stage in stages if stage.name == job.stage), 1)

    async def _tell(self, fact: PoolFact | None, asked: Asked | None, held: set[StageKey], now_s: float) -> None:
        # What has ended comes first: people wait for that, and until it is written each decision looks at it again.
        stale = sorted(self._teller.take_stale(), key=self._goes_on)
        while stale:
            some, stale = stale[:AT_ONCE], stale[AT_ONCE:]
            before = self._teller.troubles
            await asyncio.gather(*(self._tell_workflow(uid, asked, held, now_s) for uid in some))
            # Something happened: deciding comes before telling, and the next round tells the rest. So it does where the
            # API server is in trouble: to be asked for each of hundreds of statuses would not help it.
            if self._tools.pending(self.pool) or self._teller.troubles - before > len(some) / 2:
                self._teller.put_back(stale)
                break
        if fact is None:
            self._tools.metrics.withdraw(self.pool)
            return
        counts = {
            "busy": self._busy() + self._looked_for(),
            "waiting": self._waiting(asked) - len(held),
            "held": len(held),
            "workflows": len(self._views.keys() - self._problems.keys()),
        }
        if asked and asked.decision.trouble:
            self._teller.fallback(fact, asked.decision.trouble)
        found = self._holding.savings
        await self._teller.pool(
            fact,
            self._seat.verdict,
            self._seat.name,
            counts,
            self._pool_problem(fact),
            self._holding.verdict(fact),
            found.share if found else None,
        )

    def _goes_on(self, uid: str) -> bool:
        known = self._views.get(uid)
        return known is None or known.outcome is None

    async def _tell_workflow(self, uid: str, asked: Asked | None, held: set[StageKey], now_s: float) -> None:
        fact, known = self._tools.store.workflows.get(uid), self._views.get(uid)
        if fact is None:
            return
        if fact.finished:
            await self._teller.edited(fact, now_s)
            return
        problem = self._problems.get(uid)
        if known is None:
            await self._teller.unreadable(fact, problem or Problem(reasons.INVALID_SPEC, fact.problem), now_s)
            return
        if asked is not None and problem is None and uid not in asked.jobs and self._tools.pending(self.pool):
            # It came while the policy was asked: the next round decides on it, and tells what was decided.
            self._teller.mark(uid)
            return
        policy = asked.decision.policy if asked else ""
        whys = self._whys(known, asked, held)
        await self._teller.workflow(known, self._ledger.accounts[uid], whys, policy, now_s, problem)

    def _whys(self, known: WorkflowView, asked: Asked | None, held: set[StageKey]) -> Whys:
        """Return why ready stages of a workflow do not run."""
        whys = Whys({}, {})
        if asked is None or known.blocked:
            return whys
        paused = self._applier.paused(asked.state.now_s)
        for stage in known.stages:
            name = stage.spec.name
            key = (known.fact.meta.uid, name)
            index = asked.index.get(key)
            if stage.phase != "Ready" or index is None:
                continue
            if key in paused:
                whys.waiting[name] = paused[key]
            elif key in held:
                until_s = asked.plan.holds.get(key, asked.plan.wake_s)
                limits = asked.decision.limits
                whys.held[name] = why_held(asked.after, index, asked.elsewhere, limits, until_s, asked.argument)
            elif asked.state.stage_ready_s[index] <= asked.state.now_s:  # else it has become so since the decision
                whys.waiting[name] = why_waiting(asked.after, index, asked.elsewhere)
        return whys

    async def _delete_expired(self, now_s: float) -> None:
        """Delete finished workflows whose time to live is over, a few at once; the rest is for the next rounds."""
        due: dict[str, WorkflowFact] = {}
        while len(due) < AT_ONCE and self._expiring and self._expiring[0][0] <= now_s:
            _, uid = heapq.heappop(self._expiring)
            fact = self._tools.store.workflows.get(uid)
            # An edit may have given it more time, and been noted with its own time.
            if fact is not None and not fact.meta.deleting and fact.expiry_s <= now_s:
                due[uid] = fact
        await self._deletions.send({uid: partial(self._delete, fact) for uid, fact in due.items()})

    async def _delete(self, fact: WorkflowFact) -> None:
        meta = fact.meta
        try:
            await self._tools.cluster.delete_workflow(meta.namespace, meta.name, meta.uid)
        except ClusterError as error:
            if error.status != 404:
                log.warning("%s: not deleted: %s", fact.title, error)
                heapq.heappush(self._expiring, (self._tools.now() + RETRY_S[-1], meta.uid))

    def _next_wake(self, asked: Asked | None, retry_s: float | None, begun_s: float) -> float:
        """Return when to come back: what was not due when the round began may be by now, and nobody else says so."""
        times_s = [self._teller.next_s, *self._deadlines_s.values()]
        times_s += self._applier.retries_s(begun_s)
        times_s += [until_s for _, _, until_s in self._ledger.committed() if until_s > begun_s]
        if asked is not None:
            times_s.append(begun_s if asked.plan.cut else asked.plan.wake_s)
            times_s.append(asked.next_ready_s)
        if retry_s is not None:
            times_s.append(retry_s)
        if self._expiring:
            times_s.append(self._expiring[0][0])
        return min(times_s)
