"""A decision and what it was made on: what the policy saw, what it left, and what is left free."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from fermata.operator.build_state import Keys
from fermata.operator.plan import Plan
from fermata.operator.progress import StageKey
from fermata.operator.seat import Decision
from fermata.operator.why import Elsewhere
from fermata.policy.action import START, Action
from fermata.policy.board import board_of, state_of
from fermata.policy.reason import words_for_wait
from fermata.policy.state import ClusterState
from fermata.policy.transition import take


class Left(NamedTuple):
    """Stages that are not started: held by the policy, or paused by what became of starts."""

    held: set[StageKey]
    paused: set[StageKey]


@dataclass(frozen=True)
class Asked:
    """A decision, and what it was made on."""

    state: ClusterState
    keys: Keys
    decision: Decision
    plan: Plan
    elsewhere: Elsewhere

    @property
    def waiting(self) -> int:
        """Stages that are ready, none of whose tasks runs, and were not started, held or not."""
        idle = int((self.state.stage_running[self.state.ready_stages] == 0).sum())
        return idle - sum(int(self.state.stage_running[self.keys.stage_index[key]]) == 0 for key in self.plan.starts)

    def counts(self, key: StageKey) -> bool:
        """Tell whether a stage that has not been started is one of `waiting`."""
        i = self.keys.stage_index.get(key)
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
            take(board, Action(START, self.keys.stage_index[key], cap))
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
        fits = (state.stage_running[rows] == 0) & (state.stage_slots[rows] <= self.free)
        return [self.keys.stages[i] for i in rows[fits].tolist()]

    def lacks_executors(self, key: StageKey) -> bool:
        """Tell whether too few executors were left free for a stage that could have been started on others."""
        i, state = self.keys.stage_index.get(key), self.state
        return i is not None and bool(state.stage_ready_s[i] <= state.now_s) and int(state.stage_slots[i]) > self.free

    def left(self, key: StageKey, committed_s: float | None) -> bool:
        """Tell whether the policy could have started a stage and did not.

        Args:
            key: a stage that is ready and not started.
            committed_s: until when it is held, if it is.
        """
        i, state = self.keys.stage_index.get(key), self.state
        if i is None or not state.stage_ready_s[i] <= state.now_s or state.stage_slots[i] > self.free:
            return False
        if committed_s is not None and committed_s > state.now_s:
            return True
        return self.plan.waits and state.stage_running[i] < state.stage_max_cap[i]
