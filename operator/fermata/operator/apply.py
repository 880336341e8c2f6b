"""A plan carried out: Jobs created, widened and stopped, each on its own, so that one failure costs one stage.

Remembers what the API server refuses for good and what is to be tried again later. Decides nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from fermata.operator import reasons
from fermata.operator.connection import ClusterError
from fermata.operator.facts import JobFact, WorkflowFact, job_fact, meta_of
from fermata.operator.gates import Gates
from fermata.operator.inflight import InFlight
from fermata.operator.jobs import RefusedError, build_job, find, start, stop, widen
from fermata.operator.ledger import Account, Ledger, Meter
from fermata.operator.plan import Plan, unwanted
from fermata.operator.progress import Refusal, StageKey, StageView, WorkflowView
from fermata.operator.retry import MOST_S, Failure, is_due
from fermata.operator.shared import Shared
from fermata.operator.tell import Teller
from fermata.operator.tools import Tools
from fermata.operator.why import Why
from fermata.policy.wording import counted

_STARTING = Why(reasons.STARTING, "is being started: the API server takes long to take its Job")

log = logging.getLogger(__name__)


class Start(NamedTuple):
    """A stage whose Job is being created or widened, or was to be, and nobody knows whether that was done."""

    view: WorkflowView
    cap: int
    slots: int


class Narrow(NamedTuple):
    """A running stage that could not be widened: to how many tasks at once, and what the API server said."""

    cap: int
    message: str


class Applier:
    """Carries out what is decided in one pool.

    What the API server takes long to do goes on in the background, and the pool is woken when it is done. Until then
    its stages are `starting`, and so are those whose start was not answered, until it is known what became of their
    Jobs.
    """

    def __init__(self, pool: str, tools: Tools, teller: Teller, ledger: Ledger) -> None:
        self._pool, self._teller, self._ledger = pool, teller, ledger
        self._store, self._cluster, self._metrics = tools.store, tools.cluster, tools.metrics
        self._now, self._leads, self._confirm = tools.now, tools.leads, tools.confirm
        self.refused: dict[str, dict[str, Refusal]] = {}  # by workflow uid and stage
        self._failures: dict[StageKey, Failure] = {}  # of starts
        self._shared = Shared()  # what some of these have in common
        self._full: dict[str, Failure] = {}  # of starts in namespaces whose quota has no room for another Job
        self._roomy: set[str] = set()  # those of them in which a start has been taken in this round
        self._searches: dict[StageKey, Failure] = {}  # for Jobs that were not seen
        self._stops: dict[StageKey, Failure] = {}
        self._narrow: dict[StageKey, Narrow] = {}
        self.gates = Gates(pool, tools, teller)
        self._failed_again = False  # one of these starts, since the latest round began
        self._others_first = False  # in this round
        self._unanswered: set[StageKey] = set()  # of `starting`
        self._paused: set[StageKey] = set()  # after the latest decision
        self.starting: dict[StageKey, Start] = {}
        self._requests = InFlight(lambda: tools.wake(pool))

    def close(self) -> None:
        """Let go of what is in flight."""
        self._requests.close()

    def forget(self, uid: str) -> None:
        """Drop what is kept of a workflow."""
        self.refused.pop(uid, None)
        for kept in (self._failures, self._searches, self._stops, self._narrow, self.gates.failures):
            for key in [key for key in kept if key[0] == uid]:
                del kept[key]
        self._shared.forget(uid)
        for key in [key for key in self._unanswered if key[0] == uid]:
            self._answered(key)

    def edited(self, uid: str) -> None:
        """Try the stages of a workflow each by itself: an edit may have mended some of them."""
        self._shared.forget(uid)

    def begin(self, now_s: float) -> None:
        """Begin a round: what is known of a quota of which nobody has asked lately is forgotten.

        If a start that had failed before failed again in the last one, others come first in this one.
        There may be very many such starts, as where a webhook denies them, and always some of them due.
        """
        self._others_first, self._failed_again = self._failed_again, False
        self._shared.tidy()
        known = ((name, full) for name, full in self._full.items() if now_s < full.until_s + MOST_S)
        self._full, self._roomy = {name: full for name, full in known if name not in self._roomy}, set()

    def unseen(self, uid: str) -> dict[str, str]:
        """Return why Jobs of a workflow's stages are not seen, by stage."""
        return {name: search.message for (owner, name), search in self._searches.items() if owner == uid}

    def unchanged(self, view: WorkflowView) -> dict[str, str]:
        """Return why the Jobs of running stages are not as they are to be, by stage."""
        told = {}
        for stage in view.stages:
            job, key = stage.job, (view.fact.meta.uid, stage.spec.name)
            if stage.phase != "Running" or job is None:
                continue
            wide = self._narrow.get(key)
            if shut := self.gates.why_shut(key):
                told[stage.spec.name] = shut
            if key in self._stops:
                told[stage.spec.name] = f"not stopped, tried again: {self._stops[key].message}"
            elif wide and stage.pending and job.parallelism < wide.cap:
                at_once = f"{counted(job.parallelism, 'task')} at once instead of {wide.cap}"
                told[stage.spec.name] = f"stays at {at_once}, tried again: {wide.message}"
        return told

    def paused(self, views: Mapping[str, WorkflowView], now_s: float) -> set[StageKey]:
        """Return the stages not to be started now: that are put off, or have failed and let others go first."""
        put_off = self._put_off(views, now_s)
        return put_off | (self._failures.keys() - self._narrowed(views)) if self._others_first else put_off

    def _put_off(self, views: Mapping[str, WorkflowView], now_s: float) -> set[StageKey]:
        """Return the stages that failed a moment ago, or take long, or beside which another one did so.

        Beside is in the same workflow if that has a parallelism of its own, or in a namespace without quota.
        """
        put_off = {key for key, failure in self._failures.items() if not is_due(failure, now_s)}
        able = [key for key in self._failures if _may_be_tried(views.get(key[0]), key[1])]
        put_off |= self._shared.behind(self._failures, able, self._under_way(), now_s)
        put_off = put_off.difference(self._narrowed(views)) | self.gates.shut(now_s)
        put_off.update(self.starting)
        for uid, name in self.starting:
            view = views.get(uid)  # as an edit has left it
            if view and view.spec.parallelism is not None and not view.has_ended(name):
                put_off.update((uid, stage.spec.name) for stage in view.stages)  # what may begin now counts towards it
        full = self._without_quota(now_s)
        for uid, view in views.items() if full else ():
            if view.fact.meta.namespace in full:
                put_off.update((uid, stage.spec.name) for stage in view.stages if stage.phase == "Ready")
        return put_off

    def _narrowed(self, views: Mapping[str, WorkflowView]) -> set[StageKey]:
        """Return the stages that could not be widened, and can go on as they are: with pods that are at their gates."""
        return {key for key in self._failures if _has_gates(views.get(key[0]), key[1])}

    def _without_quota(self, now_s: float) -> set[str]:
        """Return the namespaces in which no stage is to be started now: a single start shows whether there is room."""
        if not self._full:
            return set()
        tried = self._roomy.union(self.starting[key].view.fact.meta.namespace for key in self._under_way())
        return {name for name, full in self._full.items() if name in tried or not is_due(full, now_s)}

    def _under_way(self) -> Iterator[StageKey]:
        """Yield the stages whose starts have not been answered yet, but may be."""
        return (key for key in self.starting if key not in self._unanswered)

    def why_paused(self, view: WorkflowView, name: str) -> Why:
        """Return why a stage that is paused is not to be started."""
        key = (view.fact.meta.uid, name)
        if shut := self.gates.why_shut(key):
            return Why(reasons.CHANGE_RETRYING, shut)
        failure = self._failures.get(key) or self._full.get(view.fact.meta.namespace)
        return Why(reasons.START_RETRYING, f"not started, tried again: {failure.message}") if failure else _STARTING

    def retries_s(self, now_s: float) -> Iterable[float]:
        """Return when stages are to be tried again, of those that were left alone at a time, or let others go first."""
        kept = (self._failures, self._full, self._searches, self._stops, self.gates.failures)
        failures: list[Failure] = [failure for each in kept for failure in each.values()]
        times_s = [failure.until_s for failure in failures] + list(self._shared.retries_s())
        times_s = [until_s for until_s in times_s if until_s > now_s]
        if self._others_first and any(is_due(failure, now_s) for failure in self._failures.values()):
            times_s.append(now_s)
        return times_s

    async def carry_out(self, plan: Plan, views: dict[str, WorkflowView], policy: str, now_s: float) -> None:
        """Start and widen what a plan says, and note its holds.

        Args:
            plan: what to do.
            views: workflows by uid.
            policy: that decided.
            now_s: the time of the decision.
        """
        for (uid, name), until_s in plan.holds.items():
            self._ledger.accounts[uid].hold_until_s[name] = until_s
            self._teller.mark(uid)
        await self._requests.send(
            {key: partial(self._start, views[key[0]], key, cap, policy, now_s) for key, cap in plan.starts.items()}
        )
        # That it lets others go first for a round is nothing to be told.
        before, self._paused = self._paused, self._put_off(views, now_s)
        for uid, _ in before ^ self._paused:  # why it waits from now on, if it does, is something else
            self._teller.mark(uid)

    async def let_through(self, views: Mapping[str, WorkflowView], now_s: float) -> None:
        """Let the pods through their gates whose turn it is."""
        await self._requests.send(self.gates.requests(views, now_s))

    async def find_missing(self, views: Iterable[WorkflowView], now_s: float) -> None:
        """Look for the Jobs of stages that run and are not seen: they were deleted, or have lost their labels.

        A watch tells both in the same way, and only one of them is a failure. Look, too, for those whose creation or
        widening was not answered: until it is known whether they run, nothing else may have their executors.
        """
        missing = {(view.fact.meta.uid, name): view.fact for view in views for name in view.missing}
        missing |= {key: self.starting[key].view.fact for key in self._unanswered}
        await self._requests.send(
            {
                key: partial(self._find, fact, key)
                for key, fact in missing.items()
                if is_due(self._searches.get(key), now_s)
            }
        )

    async def stop_unwanted(self, views: Iterable[WorkflowView], now_s: float) -> None:
        """Stop what runs of workflows that have failed, and of stages that are not in their workflow any more."""
        stops = [(view.fact, job, reason) for view in views for job, reason in unwanted(view, now_s)]
        await self._requests.send(
            {
                job.meta.uid: partial(self._stop, fact, job, reason)
                for fact, job, reason in stops
                if is_due(self._stops.get((fact.meta.uid, job.stage)), now_s)
            }
        )

    async def _start(self, view: WorkflowView, key: StageKey, cap: int, policy: str, now_s: float) -> None:
        """Start or widen one stage."""
        if not self._leads():  # this process was frozen, and others may have started what it was about to start
            self._teller.come_back(self._now())
            return
        (uid, name), namespace = key, view.fact.meta.namespace
        stage = next(stage for stage in view.stages if stage.spec.name == name)
        account, before = self._ledger.accounts[uid], stage.occupied
        if stage.job is not None and stage.job.gated:
            before = max(min(cap, stage.job.parallelism), before)
            self._store.give_turns(stage.job.meta.uid, before - stage.occupied)  # its pods are there, or will be
            if cap == before:
                return
        is_full = stage.job is None and namespace in self._without_quota(self._now())
        is_early = key in self._failures and (self._others_first or not is_due(self._failures[key], now_s))
        if is_full or is_early or self._shared.waits(key, self._under_way(), self._now()):  # since it was decided
            self._teller.come_back(self._now())
            return
        self.starting[key] = Start(view, cap, stage.slots)
        try:
            made = await self._request(view, stage, cap, account, policy, now_s)
        except (RefusedError, ClusterError) as error:
            if uid in self._ledger.accounts:  # or it was deleted meanwhile
                self._note_failure(view, key, error)
            return
        finally:
            if key not in self._unanswered:
                del self.starting[key]
            self._store.touched[self._pool].add(uid)
        if stage.job is None:
            self._metrics.start_delay.labels(self._pool).observe(max(self._now() - now_s, 0.0))
            if namespace in self._full:
                self._roomy.add(namespace)
                self._teller.come_back(self._now())
        for each in (key, *self._shared.over(key)):
            self._failures.pop(each, None)
        self._narrow.pop(key, None)
        # Also if its labels were taken off at once, by which it would be seen.
        job = account.started[name] = job_fact(made, self._now())
        # Assume what the API server answered, so that the next decision does not wait for the event to come back.
        self._store.put_own("jobs", made)
        if job.gated:
            self._store.give_turns(job.meta.uid, cap - before)
        if name not in self._store.workflow_jobs.get(uid, {}):
            self._teller.come_back(self._now())  # to look for it: no event will say what becomes of it
        self._teller.started(view, stage, job.parallelism, account, policy, now_s)

    def _answered(self, key: StageKey) -> None:
        """Count a stage whose start was not answered as what its Job says, if there is one."""
        self._unanswered.discard(key)
        self.starting.pop(key, None)

    def _note_failure(self, view: WorkflowView, key: StageKey, error: RefusedError | ClusterError) -> None:
        """Keep in mind that a stage can never be started, or not now."""
        (uid, name), now_s = key, self._now()
        self._shared.note(key, view.fact.meta.namespace, error, now_s)
        if isinstance(error, RefusedError):
            self.refused.setdefault(uid, {})[name] = error.refusal
            self._teller.come_back(now_s)  # the executors that it was given are free, and no event will say so
            log.warning("%s: stage %s: %s", view.fact.title, name, error.refusal.message)
            return
        if error.quota:
            self._failures.pop(key, None)
            self._note_full(view.fact.meta.namespace, error, now_s)
            return
        before = self._failures.get(key)
        self._failed_again |= before is not None
        failure = self._failures[key] = Failure.after(before, str(error), now_s, busy=error.is_trouble)
        if error.is_unsure:
            self._unanswered.add(key)
        if error.is_unsure or not error.is_trouble:  # another start may be taken, and this one is left alone for now
            self._teller.come_back(now_s)
        self._teller.mark(uid)
        again_s, known = failure.until_s - now_s, view.stage(name)
        done = "started"
        if known is not None and known.job is not None:
            done, self._narrow[key] = "widened", Narrow(self.starting[key].cap, str(error))
        log.warning("%s: stage %s: not %s, again in %g s: %s", view.fact.title, name, done, again_s, error)

    def _note_full(self, namespace: str, error: ClusterError, now_s: float) -> None:
        """Keep in mind that a namespace has no quota for another Job; of starts at once the first one says so."""
        before, message = self._full.get(namespace), f"{error.reason}: {error.quota[:300]}"
        if before is None or is_due(before, now_s):
            self._full[namespace] = Failure.after(before, message, now_s, busy=False)
        if before is None or before.message != message:
            log.warning("namespace %s: no stage is started, tried again: %s", namespace, message)
        self._teller.come_back(now_s)

    async def _request(
        self, view: WorkflowView, stage: StageView, cap: int, account: Account, policy: str, now_s: float
    ) -> dict[str, Any]:
        if stage.job is not None:
            return await widen(self._cluster, stage, cap, now_s)
        held_s = account.stages.get(stage.spec.name, Meter()).total(now_s)
        pool = self._store.pools.get(self._pool)
        by_task = pool is not None and pool.spec is not None and pool.spec.give_back == "Task"
        gated = by_task and stage.spec.tasks > 1  # with the last task the stage gives its executors back in any case
        made = build_job(view, stage, cap, start_s=now_s, held_s=held_s, policy=policy, gated=gated)
        return await start(self._cluster, made)

    async def _find(self, fact: WorkflowFact, key: StageKey) -> None:
        (uid, name), found, trouble, refusal = key, None, None, None
        try:
            answer = await find(self._cluster, fact, name, self._now())
            if isinstance(answer, Refusal):  # nor is what was begun since a backup in what was restored from that
                await self._confirm()
                refusal = answer
            else:
                found = answer
        except ClusterError as error:
            trouble = error
        if uid not in self._ledger.accounts:  # it was deleted or has ended meanwhile, and its Job may have, too
            return
        if found is not None:
            self._store.put_found(found)
        self._store.touched[self._pool].add(uid)
        if trouble is None and key in self._unanswered:
            self._answered(key)
            return
        if refusal is not None:
            self.refused.setdefault(uid, {})[name] = refusal
            return
        # Also of one that was found: whoever takes its labels off again and again is not to be outrun.
        lost = "owner" if found is not None and not meta_of(found).owner_uid else "labels"
        message = f"its Job is not seen: {trouble or f'somebody takes off the {lost} that it is given'}"
        busy = trouble is not None and trouble.is_trouble
        self._searches[key] = Failure.after(self._searches.get(key), message, self._now(), busy=busy)
        told = message
        if key in self._unanswered:
            told = f"what became of its start is not known: {trouble}"
        elif name in self._store.workflow_jobs.get(uid, {}):
            told = "its Job had lost its labels or its owner, and has them again"
        log.warning("%s: stage %s: %s", fact.title, name, told)

    async def _stop(self, fact: WorkflowFact, job: JobFact, reason: str) -> None:
        key, now_s = (fact.meta.uid, job.stage), self._now()
        try:
            await self._confirm()  # it is stopped for good, and a backup that was restored may say otherwise
            self._store.put_own("jobs", await stop(self._cluster, job, reason))
            self._stops.pop(key, None)
            self._teller.come_back(now_s)  # its executors are free, and the pool was not called
        except ClusterError as error:
            if fact.meta.uid not in self._ledger.accounts:  # it was deleted meanwhile
                return
            failure = Failure.after(self._stops.get(key), str(error), now_s, busy=error.is_trouble)
            self._stops[key] = failure
            self._store.touched[self._pool].add(fact.meta.uid)
            again_s = failure.until_s - now_s
            log.warning("%s: stage %s: not stopped, again in %g s: %s", fact.title, job.stage, again_s, error)


def _may_be_tried(view: WorkflowView | None, name: str) -> bool:
    """Tell whether a stage may be started or widened, as far as it and its workflow go."""
    stage = view.stage(name) if view is not None and not view.blocked else None
    return stage is not None and stage.phase in ("Ready", "Running")


def _has_gates(view: WorkflowView | None, name: str) -> bool:
    """Tell whether a stage may have pods at their gates: not all that it may run at once has its turn."""
    stage = view.stage(name) if view is not None else None
    return stage is not None and stage.gated and stage.job is not None and stage.occupied < stage.job.parallelism
