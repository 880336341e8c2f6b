"""One pool, brought from what is to what should be: seat, observe, decide, apply, settle, tell, look back, arm.

Level-based: `reconcile` may be called at any time and any number of times, and what it does depends on what the API
server holds, not on what happened. All that it keeps can be read from there again. One instance for each pool, so a
pool's trouble stays its own.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from functools import partial

from fermata.operator.acceptance import pool_problem
from fermata.operator.apply import Applier
from fermata.operator.arrivals import came_s
from fermata.operator.asked import Asked, Left
from fermata.operator.build_state import HoldTimes, build_state, dag_of, takes_part
from fermata.operator.census import Census
from fermata.operator.clock import is_put_off
from fermata.operator.expiry import Expiry
from fermata.operator.facts import PoolFact
from fermata.operator.freed import Freed
from fermata.operator.holding import Holding, Pause, Situation
from fermata.operator.ledger import Ledger, Meter
from fermata.operator.observe import Observer
from fermata.operator.past import PastJob, present_job
from fermata.operator.plan import plan
from fermata.operator.progress import StageKey, WorkflowView
from fermata.operator.resources import ExecutorPoolSpec
from fermata.operator.seat import FOREVER_S, Decision, Seat, limits_of
from fermata.operator.slack import slack_s
from fermata.operator.tell import Teller, Whys
from fermata.operator.tools import Tools
from fermata.operator.why import PARALLELISM_REACHED, why_held, why_waiting
from fermata.policy.decide import corrects_estimates
from fermata.policy.guardrails import Guardrails

_QUIET_S = 1.0  # after statuses that found the API server in trouble


class PoolReconciler:
    """Reconciles the workflows of one pool."""

    def __init__(self, pool: str, tools: Tools) -> None:
        self.pool, self._tools = pool, tools
        self._ledger = Ledger()
        self._seat = Seat(pool, tools.cluster, tools.metrics, tools.wake)
        self._holding = Holding(pool, tools.metrics, tools.wake)
        self._expiry = Expiry(pool, tools)
        self._teller = Teller(pool, tools)
        self._applier = Applier(pool, tools, self._teller, self._ledger)
        self._observer = Observer(pool, tools, self._ledger, self._applier, self._teller, self._holding, self._expiry)
        self._census = Census(pool, tools.store, self._observer, self._applier)
        self._freed = Freed()
        self._by: tuple[str, Guardrails] | None = None  # the policy that acts, and its limits, as people are told
        self._quiet_until_s = -math.inf  # no workflow is told of, as the API server was in trouble
        self._whole = True  # take in every workflow, not only those that changed

    async def reconcile(self) -> float:
        """Do all that can be done now and return when to come back without being called, seconds since the epoch."""
        self._teller.next_s = math.inf
        # 1. Seat: is there a pool, and which policy decides in it?
        fact = self._fact()
        problem = pool_problem(fact) if fact else None
        spec = fact.spec if fact and problem is None else None
        retry_s = await self._seat.seat(spec, self._tools.now()) if spec else None
        if spec is None:
            self._seat.clear(problem)
        # 2. Observe: take in what changed, and what became due. Should this round fail, the next one takes in all.
        begun_s = now_s = self._tools.now()
        whole, self._whole = self._corrects_otherwise(spec) or self._whole, True
        self._applier.begin(now_s)
        await self._observer.observe(now_s, whole=whole)
        await self._applier.find_missing(self._observer.views.values(), now_s)
        have = spec.executors if spec else 0
        self._applier.gates.take_back(self._observer.views, lambda: self._census.busy() - have)
        await self._observer.observe(now_s)
        now_s = self._tools.now()  # a history of 100,000 workflows takes a while
        # 3. Decide.
        self._holding.enter(self._situation(spec) if spec else None)
        paused = self._holding.verdict(fact) if fact else None
        may_hold = paused is not None and not paused.on
        asked = await self._decide(spec, now_s, may_hold=may_hold) if spec else None
        # 4. Apply.
        await self._applier.stop_unwanted(self._observer.views.values(), now_s)
        if asked:
            await self._applier.carry_out(asked.plan, self._observer.views, asked.decision.policy, now_s)
        await self._applier.let_through(self._observer.views, now_s)
        await self._observer.observe(now_s)
        # 5. Settle: who is held from now on?
        left = self._settle(asked, now_s)
        # 6. Tell: statuses, Events, metrics.
        await self._tell_workflows(asked, left, now_s)
        await self._observer.observe(now_s)  # what has ended by its status is none of the pool's any more
        await self._tell_pool(fact, asked, left, paused)
        await self._expiry.delete_due(now_s)
        self._whole = False
        # 7. Look back: what is holding worth here?
        self._holding.consider(self._situation(spec) if spec else None, lambda: self._unfinished(now_s))
        # 8. Arm: when does something happen without an event?
        return self._next_wake(asked, retry_s, begun_s)

    def _fact(self) -> PoolFact | None:
        """Return the pool, if there is one and it is this operator's."""
        ours = self._observer.acceptance.serves(self._tools.namespace)
        return self._tools.store.pools.get(self.pool) if ours else None

    def _corrects_otherwise(self, spec: ExecutorPoolSpec | None) -> bool:
        """Follow the pool's policy in whether estimates are corrected; tell whether that has changed.

        A policy that is only asked changes nothing, so what acts in its place gets estimates as they are given.
        """
        policy = self._seat.policy if spec is not None and spec.mode == "Enforce" else None
        corrects = policy is not None and corrects_estimates(policy)
        changed = corrects != self._observer.estimates.corrects
        self._observer.estimates.corrects = corrects
        return changed

    def close(self) -> None:
        """Let go of what the policy holds, and of what is being replayed."""
        self._seat.close()
        self._holding.close()
        self._applier.close()
        self._teller.close()
        self._expiry.close()

    async def _decide(self, spec: ExecutorPoolSpec, now_s: float, *, may_hold: bool) -> Asked:
        allowed = limits = limits_of(spec)
        for uid in self._ledger.follow_clock(self._observer.metering, now_s):
            self._teller.mark(uid)
        rooms = self._rooms(spec.executors, now_s)
        self._bound_commitments(limits, rooms, now_s, may_hold=may_hold and spec.mode == "Enforce")
        holds = self._ledger.stage_holds(now_s)
        if rooms:
            # What may be held for so much longer has been held for so much less than any stage may be.
            limits = limits._replace(max_hold_s=min(limits.max_hold_s, FOREVER_S))
            for key, room_s in rooms.items():
                known = holds.get(key, HoldTimes())
                holds[key] = known._replace(held_s=max(known.held_s, limits.max_hold_s - room_s))
        views = list(self._observer.views.values())
        elsewhere = self._census.elsewhere()
        state, keys = build_state(
            views,
            max(spec.executors - sum(elsewhere), 0),
            self._tools.store.job_pods,
            holds,
            self._ledger.workflow_held_s(now_s),
            self._observer.recent.arrivals,
            now_s,
            self._applier.paused(self._observer.views, now_s),
            self._observer.rows,
            self._observer.estimates.trust,
        )
        state, edges = self._freed.told(state, keys), partial(dag_of, views, keys)
        decision = await self._seat.decide(state, spec, limits, may_hold=may_hold, dag=edges)
        self._retell(decision, allowed)
        self._tools.recorder.write(self.pool, self._seat.substitute.name, state, keys, decision, edges)
        made = plan(decision.steps, keys, self._observer.views, state.free)
        return Asked(state, keys, decision, made, elsewhere)

    def _retell(self, decision: Decision, limits: Guardrails) -> None:
        """Have it told anew who decides, and for how long something may be held, where that has changed.

        Not for a decision that a policy failed at: it decides again in a moment. What an earlier operator told is told
        anew where the pool was edited since.
        """
        before, fact = self._by, self._fact()
        if decision.trouble is None or before is None:
            self._by = decision.policy, limits
        edited = fact is not None and fact.status.observed_generation != fact.meta.generation
        if before == self._by or (before is None and not edited):
            return
        for uid in self._observer.metering if before and before[0] == decision.policy else self._observer.views:
            self._teller.retell(uid)

    def _rooms(self, executors: int, now_s: float) -> dict[StageKey, float]:
        """Return for how many more seconds stages may be held that are released, or whose workflow has a deadline."""
        rooms: dict[StageKey, float] = {}
        for uid, known in self._observer.views.items():
            if known.spec.active_deadline_seconds is not None:
                rooms |= {(uid, name): room_s for name, room_s in slack_s(known, executors, now_s).items()}
        for uid, stages in self._observer.released.items():
            rooms |= {(uid, name): -FOREVER_S for name in stages}
        return rooms

    def _bound_commitments(
        self, limits: Guardrails, rooms: Mapping[StageKey, float], now_s: float, *, may_hold: bool
    ) -> None:
        """Shorten committed holds to what the limits leave by now, and end those that must not be.

        A hold was within the limits when it was committed to. Since then the pool may have been edited, its holding
        switched off, the stage released, or the last running task of the pool have ended.
        """
        idle = not limits.hold_when_idle and not self._tools.store.busy_jobs[self.pool]
        for uid, account in self._ledger.accounts.items():
            for name, until_s in list(account.hold_until_s.items()):
                known = self._observer.views.get(uid)
                stage = known.stage(name) if known else None
                room_s = 0.0
                if may_hold and not idle and stage is not None:
                    held_s = account.stages.get(name, Meter()).total(now_s)
                    room_s = min(limits.max_hold_s - held_s, stage.ready_s + limits.max_wait_s - now_s)
                    room_s = min(room_s, rooms.get((uid, name), math.inf))
                if min(until_s, now_s + room_s) <= now_s:
                    account.end_hold(name, now_s)
                    self._teller.mark(uid)
                elif now_s + room_s < until_s:
                    account.hold_until_s[name] = now_s + room_s
                    self._teller.mark(uid)

    def _situation(self, spec: ExecutorPoolSpec) -> Situation | None:
        """Return what the estimate of the savings is to be about, if the pool's policy can be asked."""
        policy = self._seat.policy
        if policy is None:
            return None
        base = self._seat.fallback if spec.mode == "Shadow" else self._seat.substitute
        sticky = spec.give_back == "Stage"
        return Situation(policy, base, self._seat.substitute, limits_of(spec), spec.executors, sticky)

    def _unfinished(self, now_s: float) -> list[PastJob]:
        return [
            present_job(known, now_s)._replace(arrival_s=came_s(known.fact, known.start_s, now_s))
            for uid, known in self._observer.views.items()
            if uid not in self._observer.problems and known.has_come
        ]

    def _settle(self, asked: Asked | None, now_s: float) -> Left:
        """Let each meter count or not from now on, and return the stages that are held, or paused.

        Held is what the policy saw, could have started, and left: not what became ready since it was asked.
        """
        paused = self._applier.paused(self._observer.views, now_s)
        held = {key for key in self._untaken(asked) if key not in paused}
        names: dict[str, set[str]] = {}
        for uid, name in held:
            names.setdefault(uid, set()).add(name)
        for uid in self._observer.metering | names.keys():
            self._meter(uid, names.get(uid, set()), now_s)
        self._observer.metering = set(names)
        return Left(held, paused)

    def _untaken(self, asked: Asked | None) -> Iterable[StageKey]:
        """Return the stages that are ready, not started, and left by the policy although they would fit."""
        if asked is None:
            return
        committed = {(uid, name): until_s for uid, name, until_s in self._ledger.committed()}
        for key in asked.unstarted() if asked.plan.waits else committed:
            known = self._observer.views.get(key[0])
            if known is None or known.room == 0:
                continue  # by now its workflow keeps it, not the policy
            stage = known.stage(key[1])
            if stage is not None and stage.waits and asked.left(key, committed.get(key)):
                yield key

    def _meter(self, uid: str, held: Collection[str], now_s: float) -> None:
        """Let the meters of one workflow count or not."""
        known, account = self._observer.views.get(uid), self._ledger.accounts.get(uid)
        if known is None or account is None:
            return
        for stage in known.stages:
            name = stage.spec.name
            if not (stage.phase == "Ready" or stage.gated) or (name not in held and name not in account.stages):
                continue
            if account.stages.setdefault(name, Meter()).turn(on=name in held, now_s=now_s):
                self._teller.mark(uid)
                self._tools.metrics.holds.labels(self.pool).inc(name in held)
        running = any(stage.phase == "Running" and not stage.rests for stage in known.stages)
        if account.held.turn(on=bool(held) and not running and known.outcome is None, now_s=now_s):
            self._teller.mark(uid)

    def _waiting(self, asked: Asked | None, paused: set[StageKey]) -> int:
        """Return how many stages are ready and not started, held or not: also those that the API server did not take.

        The policy is not asked about them before they are tried again, and yet they wait. So do all of a pool in which
        nobody is asked.
        """
        if asked is None:
            return self._observer.shut_out()
        return asked.waiting + sum(self._may_start(*key) for key in paused if not asked.counts(key))

    def _may_start(self, uid: str, name: str) -> bool:
        known = self._observer.views.get(uid)
        stage = known.stage(name) if known and not known.blocked else None
        return stage is not None and stage.waits

    async def _tell_workflows(self, asked: Asked | None, left: Left, now_s: float) -> None:
        if is_put_off(self._quiet_until_s, now_s, _QUIET_S):
            self._teller.come_back(self._quiet_until_s)
            return
        # What has ended comes first: people wait for that, and until it is written each decision looks at it again.
        stale = sorted(self._teller.take_stale(), key=self._goes_on)
        while stale and self._teller.room:
            some, stale = stale[: self._teller.room], stale[self._teller.room :]
            before = self._teller.troubles
            await self._teller.write({uid: partial(self._tell_workflow, uid, asked, left, now_s) for uid in some})
            # An API server in trouble is not helped by being asked for each of hundreds of statuses, round for round.
            if self._teller.troubles - before > len(some) / 2:
                self._quiet_until_s = self._tools.now() + _QUIET_S
                break
            # Something happened: deciding comes before telling, and the next round tells the rest.
            if self._tools.pending(self.pool):
                break
        self._teller.put_back(stale)

    async def _tell_pool(self, fact: PoolFact | None, asked: Asked | None, left: Left, paused: Pause | None) -> None:
        latest = self._fact()
        if fact is None or paused is None or latest is None:
            self._tools.metrics.withdraw(self.pool)
            return
        if (latest.meta.uid, latest.meta.generation) != (fact.meta.uid, fact.meta.generation):
            return  # what was decided by an earlier spec; the next round, which is due, tells of this one
        fact = latest
        counts = {
            "busy": self._census.busy(),
            "waiting": self._waiting(asked, left.paused) - len(left.held),
            "held": len(left.held),
            "workflows": len(self._observer.views.keys() - self._observer.problems.keys()),
        }
        if asked and asked.decision.trouble:
            self._teller.fallback(fact, asked.decision.trouble)
        found = self._holding.savings
        await self._teller.pool(
            fact,
            self._seat.verdict,
            self._seat.name,
            counts,
            pool_problem(fact),
            paused,
            found.share if found else None,
        )

    def _goes_on(self, uid: str) -> bool:
        known = self._observer.views.get(uid)
        return known is None or known.outcome is None

    async def _tell_workflow(self, uid: str, asked: Asked | None, left: Left, now_s: float) -> None:
        fact, known = self._tools.store.workflows.get(uid), self._observer.views.get(uid)
        if fact is None:
            return
        if fact.finished:
            await self._teller.edited(fact, now_s)
            return
        problem = self._observer.problems.get(uid)
        if known is None:
            if problem is not None:  # else it is unfinished again since it was looked at
                await self._teller.unreadable(fact, self._ledger.accounts[uid], problem, now_s)
            return
        came = asked is not None and problem is None and uid not in asked.jobs and takes_part(known, left.paused)
        if came and self._tools.pending(self.pool):
            # It came while the policy was asked: the next round decides on it, and tells what was decided.
            self._teller.mark(uid)
            return
        policy = asked.decision.policy if asked else ""
        whys = self._whys(known, asked, left)
        await self._teller.workflow(known, self._ledger.accounts[uid], whys, policy, now_s, problem)

    def _whys(self, known: WorkflowView, asked: Asked | None, left: Left) -> Whys:
        """Return why ready stages of a workflow do not run."""
        whys = Whys({}, {})
        if asked is None or known.blocked:
            return whys
        for stage in known.stages:
            name = stage.spec.name
            key = (known.fact.meta.uid, name)
            if not stage.waits:
                continue
            if key in left.paused:
                whys.waiting[name] = self._applier.why_paused(known, name)
            elif known.room == 0:  # whatever is free: else it would have to be told again whenever that changes
                whys.waiting[name] = PARALLELISM_REACHED
            elif key in left.held:
                # As it was committed to, now or before, and shortened since; else until the policy is asked again.
                until_s = self._ledger.accounts[key[0]].hold_until_s.get(name, asked.plan.wake_s)
                limits = asked.decision.limits
                whys.held[name] = why_held(
                    asked.after, asked.keys.stage_index[key], asked.elsewhere, limits, until_s, asked.argument
                )
            elif asked.lacks_executors(key):  # else it will be decided on in a moment
                whys.waiting[name] = why_waiting(asked.after, asked.keys.stage_index[key], asked.elsewhere)
        return whys

    def _next_wake(self, asked: Asked | None, retry_s: float | None, begun_s: float) -> float:
        """Return when to come back: what was not due when the round began may be by now, and nobody else says so."""
        times_s = [self._teller.next_s, self._expiry.next_s, *self._observer.dues_s.values()]
        times_s += self._applier.retries_s(begun_s)
        times_s += [until_s for _, _, until_s in self._ledger.committed() if until_s > begun_s]
        if asked is not None:
            times_s.append(begun_s if asked.plan.cut else asked.plan.wake_s)
            times_s.append(asked.next_ready_s)
        if retry_s is not None:
            times_s.append(retry_s)
        return min(times_s)
