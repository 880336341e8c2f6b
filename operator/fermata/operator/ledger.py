"""How long each stage and each workflow has been held: meters that run, stop, and survive a restart.

A meter's settled seconds and the start of its running stretch are written to the status, so that a new operator picks
it up where the killed one left it: while no operator runs nothing is started, so what was held stays held.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fermata.operator.build_state import HoldTimes
from fermata.operator.facts import JobFact, WorkflowFact
from fermata.operator.progress import StageKey, WorkflowView
from fermata.operator.times import parse_or_none


@dataclass(slots=True)
class Meter:
    """Seconds counted so far, and since when it is counting, if it is."""

    settled_s: float = 0.0
    since_s: float | None = None

    def total(self, now_s: float) -> float:
        """Return the seconds counted until now."""
        return self.settled_s + (max(now_s - self.since_s, 0.0) if self.since_s is not None else 0.0)

    def turn(self, *, on: bool, now_s: float) -> bool:
        """Let it count or not from now on; tell whether that was a change."""
        if on == (self.since_s is not None):
            return False
        self.settled_s, self.since_s = self.total(now_s), now_s if on else None
        return True


@dataclass(slots=True)
class Account:
    """What is counted of one workflow, and what must never happen twice."""

    held: Meter = field(default_factory=Meter)
    stages: dict[str, Meter] = field(default_factory=dict)
    hold_until_s: dict[str, float] = field(default_factory=dict)
    # Of stages that were held for a committed time and are no more: until when. A policy may hold each once.
    over_s: dict[str, float] = field(default_factory=dict)
    started: dict[str, JobFact] = field(default_factory=dict)  # the latest that was seen of each stage's Job
    gap: Meter = field(default_factory=Meter)  # it had begun, and all its tasks waited for their turn

    @property
    def counting(self) -> bool:
        """Whether any of its meters counts now."""
        return self.held.since_s is not None or any(meter.since_s is not None for meter in self.stages.values())

    def stop(self, now_s: float) -> None:
        """Count nothing any more."""
        self.hold_until_s.clear()
        self.over_s.clear()
        for meter in (self.held, self.gap, *self.stages.values()):
            meter.turn(on=False, now_s=now_s)

    def end_hold(self, name: str, now_s: float) -> None:
        """Let a committed hold be over by now."""
        self.over_s[name] = min(self.hold_until_s.pop(name), now_s)


def _held_until_s(view: WorkflowView) -> dict[str, float]:
    """Return until when at the latest the gated stages were held that have ended: of one that succeeded a task ran."""
    return {
        stage.spec.name: stage.end_s - ((stage.job.task_s or 0.0) if stage.phase == "Succeeded" else 0.0)
        for stage in view.stages
        if stage.end_s is not None and stage.job is not None and stage.job.gated
    }


class Ledger:
    """The accounts of one pool's unfinished workflows, by uid."""

    def __init__(self) -> None:
        self.accounts: dict[str, Account] = {}

    def open(self, fact: WorkflowFact) -> Account:
        """Return the account of a workflow, read from its status when it is first asked for."""
        uid = fact.meta.uid
        if uid not in self.accounts:
            status = fact.status
            account = Account(
                held=Meter(status.held_seconds or 0.0, parse_or_none(status.held_since)),
                gap=Meter(status.gap_seconds or 0.0, parse_or_none(status.gap_since)),
            )
            for stage in status.stages:
                if stage.state in ("Waiting", "Held", "Running"):
                    account.stages[stage.name] = Meter(stage.held_seconds or 0.0, parse_or_none(stage.held_since))
                until_s = parse_or_none(stage.hold_until)
                if until_s is not None:
                    account.hold_until_s[stage.name] = until_s
            self.accounts[uid] = account
        return self.accounts[uid]

    def close(self, uid: str) -> None:
        """Forget a workflow."""
        self.accounts.pop(uid, None)

    def catch_up(self, view: WorkflowView, now_s: float) -> None:
        """Stop the meters of what is not ready any more: at its start, if that was unseen (the operator was killed)."""
        account = self.accounts[view.fact.meta.uid]
        account.started |= {stage.spec.name: stage.job for stage in view.stages if stage.job is not None}
        account.started |= {job.stage: job for job in view.removed}
        # An edit may also have given a held stage a parent, or taken it out: if it is ready again, it begins anew.
        ready = {stage.spec.name for stage in view.stages if stage.phase == "Ready"}
        for committed in (account.hold_until_s, account.over_s):
            for name in committed.keys() - ready:
                committed.pop(name)
        # A gated stage may be held between its tasks, too, and all that counts together.
        gated = {stage.spec.name: stage.held_s for stage in view.stages if stage.gated}
        over = _held_until_s(view)  # until its status says so, what a stage that has ended was held is known here alone
        counted = {*ready, *gated, *over}
        account.stages = {name: meter for name, meter in account.stages.items() if name in counted}
        for name, held_s in gated.items():
            account.stages.setdefault(name, Meter(held_s))
        for name in over.keys() & account.stages.keys():
            account.stages[name].turn(on=False, now_s=min(over[name], now_s))
        since_s = account.held.since_s
        if since_s is None:
            return
        # What started unseen may have ended unseen, too.
        starts_s = [stage.start_s for stage in view.stages if stage.start_s is not None and stage.start_s >= since_s]
        running = [stage for stage in view.stages if stage.phase == "Running" and not stage.rests]
        if starts_s or running:
            # One that had begun before, and whose pods wait for their turn, goes on now.
            goes_on = any(stage.gated and stage.start_s is not None and stage.start_s < since_s for stage in running)
            account.held.turn(on=False, now_s=min(starts_s, default=now_s if goes_on else since_s))

    def follow_clock(self, uids: Iterable[str], now_s: float) -> set[str]:
        """Let what is held since later than now, for the clock was set back, be held since now; tell whose that is.

        For how long they had been held by then is lost; committed holds end as much earlier.

        Args:
            uids: of the workflows of which something is held.
            now_s: the time.
        """
        moved = set()
        for uid in uids:
            account = self.accounts[uid]
            for name, meter in [("", account.held), *account.stages.items()]:
                if meter.since_s is not None and meter.since_s > now_s:
                    if name in account.hold_until_s:
                        account.hold_until_s[name] -= meter.since_s - now_s
                    meter.since_s = now_s
                    moved.add(uid)
        return moved

    def stage_holds(self, now_s: float) -> dict[StageKey, HoldTimes]:
        """Return the hold times of all stages that have any."""
        times: dict[StageKey, HoldTimes] = {}
        for uid, account in self.accounts.items():
            for name, meter in account.stages.items():
                times[uid, name] = HoldTimes(meter.total(now_s))
            # Were the clock set back, what is over must not begin again.
            over_s = {name: min(until_s, now_s) for name, until_s in account.over_s.items()}
            for name, until_s in (over_s | account.hold_until_s).items():
                held_s = times[uid, name].held_s if (uid, name) in times else 0.0
                times[uid, name] = HoldTimes(held_s, until_s)
        return times

    def committed(self) -> list[tuple[str, str, float]]:
        """Return all committed holds that go on: workflow uid, stage, and until when."""
        return [
            (uid, name, until_s)
            for uid, account in self.accounts.items()
            for name, until_s in account.hold_until_s.items()
        ]

    def workflow_held_s(self, now_s: float) -> dict[str, float]:
        """Return the held seconds of all workflows that were ever held."""
        return {
            uid: account.held.total(now_s)
            for uid, account in self.accounts.items()
            if account.held.settled_s or account.held.since_s is not None
        }
