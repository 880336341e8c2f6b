"""An episode of the simulator as a Gymnasium environment: one step is one decision.

The engine is the one that `fermata simulate` runs, so the return of an agent can be compared with any policy's figures
on the same seeds, and with `fermata compare`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from fermata.policy.action import START
from fermata.policy.errors import InputError
from fermata.policy.rows import column
from fermata.policy.state import ClusterState
from fermata.policy.wording import counted
from fermata.sim.engine import DECIDE, advance, apply
from fermata.sim.gym.observation import Choices, choices, observation_space, observe, startable_stages
from fermata.sim.scenarios import Scenario
from fermata.sim.simulate import StuckError
from fermata.sim.trace import MAX_EXECUTORS, Trace, check_fits
from fermata.sim.trace_io import read_trace
from fermata.sim.workloads import workload
from fermata.sim.world import World, new_world, tables_of, view

_MOST_SEED = 2**31


class SchedulingEnv(gymnasium.Env[dict[str, Any], np.int64]):
    """Start stages or wait, until every job is done.

    Actions: `Discrete(rows * len(shares) + 1)`. Action `row * len(shares) + share` starts the stage of a row with a
    parallelism cap, the last action waits until the next event. Only some are allowed at a time: see `action_masks`,
    which is also in `info["action_mask"]`. An action that is not allowed counts as the wait, or, where nothing runs, as
    the first that is allowed; `info["allowed"]` is then False.

    Observation: see `fermata.sim.gym.observation`; `state` has all of it.

    Reward: minus the integral, over the time that passes in the step, of the number of jobs in the system, divided by
    the number of jobs of the episode. The return of an episode is therefore minus the average JCT in seconds.

    Args:
        scenario: one, or its name.
        parameters: of the scenario, to change: `{"jobs": 500, "load": 0.9}`.
        trace: a job trace or its file, instead of a scenario: every episode is then the same.
        executors: size of the pool; by default the scenario's. A trace needs it.
        rows: how many stages are shown at the most.
        shares: what parts of a stage can be started: 1 is as much as fits.
        sticky: a started stage keeps its executors until its tasks run out.
        render_mode: None or "ansi".

    Raises:
        InputError: no such scenario or parameter, parameters of a trace, a trace that cannot be read, or a task that
            needs too many executors.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(
        self,
        scenario: str | Scenario = "express_k2",
        *,
        parameters: Mapping[str, Any] | None = None,
        trace: Trace | str | Path | None = None,
        executors: int | None = None,
        rows: int = 16,
        shares: Sequence[float] = (1.0, 0.5, 0.25),
        sticky: bool = False,
        render_mode: str | None = None,
    ) -> None:
        if rows < 1 or not shares or not all(0.0 < share <= 1.0 for share in shares):
            raise InputError(f"expected rows of 1 or more and shares above 0 up to 1, got {rows} and {list(shares)}")
        if trace is not None and executors is None:
            raise InputError("a trace needs executors")
        if trace is not None and parameters:
            raise InputError(f"parameters are those of a scenario, and a trace has none; got {sorted(parameters)}")
        self._scenario = workload(scenario) if isinstance(scenario, str) else scenario
        self._scenario = self._scenario.with_(**(parameters or {}))
        self.executors = self._scenario.executors if executors is None else executors
        if not 1 <= self.executors <= MAX_EXECUTORS:
            raise InputError(f"expected 1 to {MAX_EXECUTORS:,} executors, got {self.executors}")
        self._trace = read_trace(trace, executors=self.executors) if isinstance(trace, str | Path) else trace
        self._shares, self._rows, self._sticky = tuple(shares), rows, sticky
        self.render_mode = render_mode
        self.observation_space = observation_space(self.executors, rows)
        self.action_space = spaces.Discrete(rows * len(self._shares) + 1)
        self._world: World
        self._state: ClusterState | None = None  # until the first reset
        self._known: Choices | None = None

    @property
    def state(self) -> ClusterState:
        """All that a scheduler may see now, as `fermata.policy` policies read it; valid until the next step.

        Raises:
            ResetNeeded: no episode has begun.
        """
        if self._state is None:
            raise _not_begun()
        return self._state

    @property
    def choices(self) -> Choices:
        """What the actions mean now.

        Raises:
            ResetNeeded: no episode has begun.
        """
        if self._known is None:
            raise _not_begun()
        return self._known

    def action_masks(self) -> NDArray[np.bool_]:
        """Return which actions are allowed now, [actions]; the name is that which sb3-contrib looks for."""
        return self.choices.mask.astype(np.bool_)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode, at its first decision.

        Args:
            seed: draws the episode of this seed, the same as `fermata simulate --seeds` does; without one the seed is
                drawn from the environment's own generator.
            options: none are known.
        """
        super().reset(seed=seed)
        self._seed = int(self.np_random.integers(_MOST_SEED)) if seed is None else seed
        trace = self._scenario.generate(self._seed) if self._trace is None else self._trace
        check_fits(trace, self.executors)
        self._world = new_world(tables_of(trace, self.executors, sticky=self._sticky), self.executors)
        self._jobs, self._jct_s, self._in_system = trace.jobs, 0.0, np.empty(0, np.int64)
        self._now_s, self._arrived = 0.0, 0
        self._to_next_decision()
        return observe(self.state, self.choices), self._info()

    def step(self, action: np.int64 | int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Take one action and go on to the next decision, which may be at the same instant.

        Raises:
            InputError: there is no such action.
            ResetNeeded: no episode has begun, or it is over.
        """
        chosen, allowed = index(action), True
        known = self.choices
        mask = known.mask
        if not 0 <= chosen < len(mask):
            raise InputError(f"expected an action from 0 to {len(mask) - 1}, got {chosen}")
        if not mask.any():
            raise gymnasium.error.ResetNeeded("the episode is over: reset() begins the next")
        if not mask[chosen]:
            allowed = False
            chosen = len(mask) - 1 if mask[-1] else int(np.argmax(mask))
        before_s = self._jct_s
        if chosen == len(mask) - 1:  # a wait ends with the next event, and asks the engine for nothing
            terminated = self._to_next_decision()
        else:
            row, share = divmod(chosen, len(self._shares))
            stage, cap = int(known.stages[row]), int(known.caps[row, share])
            apply(self._world, START, stage, cap, np.inf)
            terminated = self._nothing_left() and self._to_next_decision()
        reward = (before_s - self._jct_s) / self._jobs
        info = self._info() | {"allowed": allowed}
        if terminated:
            info["avg_jct_s"] = self._jct_s / self._jobs
        return observe(self.state, self.choices), reward, terminated, False, info

    def _nothing_left(self) -> bool:
        """Look at what can be started at the same instant; tell whether that is nothing."""
        state = self._state = view(self._world)
        if not len(startable_stages(state)):
            return True
        self._known = choices(state, self._rows, self._shares)
        return False

    def _to_next_decision(self) -> bool:
        """Run until some stage can be started; tell whether the episode is over."""
        while True:
            outcome = int(advance(self._world))
            state = self._state = view(self._world)
            self._count_jct(state)
            if outcome != DECIDE or len(startable_stages(state)):
                break
        self._known = choices(state, self._rows, self._shares)
        if outcome == DECIDE:
            return False
        if len(state.active_jobs):
            raise StuckError(f"{len(state.active_jobs)} jobs are left at {state.now_s:g} s, and nothing will happen")
        return True

    def _count_jct(self, state: ClusterState) -> None:
        """Add the time that jobs have spent in the system since the last call."""
        arrived = len(state.job_arrival_s)
        jobs = np.concatenate([self._in_system, np.arange(self._arrived, arrived)])
        completion_s = column(self._world.job_progress, "completion_s")[jobs]
        until_s = np.fmin(completion_s, state.now_s)  # NaN where it is not finished
        self._jct_s += float((until_s - np.maximum(state.job_arrival_s[jobs], self._now_s)).sum())
        self._in_system, self._arrived, self._now_s = np.sort(state.active_jobs).astype(np.int64), arrived, state.now_s

    def _info(self) -> dict[str, Any]:
        known = self.choices
        return {
            "action_mask": known.mask.copy(),
            "stages": known.stages.copy(),
            "caps": known.caps.copy(),
            "hidden": known.hidden,
            "now_s": float(self._now_s),
            "seed": self._seed,
        }

    def render(self) -> str | None:
        """Return the decision in words, if the mode is "ansi"."""
        if self.render_mode != "ansi":
            return None
        state, known = self.state, self.choices
        jobs = counted(len(state.active_jobs), "job")
        lines = [f"{state.now_s:.1f} s: {state.free} of {counted(self.executors, 'executor')} free, {jobs}"]
        for row, stage in enumerate(known.stages[known.stages >= 0].tolist()):
            lines.append(
                f"  row {row}: stage {stage} of job {state.stage_job[stage]}, {state.stage_pending[stage]} tasks of "
                f"{state.stage_estimate_s[stage]:.1f} s, {state.job_remaining_work_s[state.stage_job[stage]]:.1f} s "
                "of work left in the job"
            )
        if known.hidden:
            lines.append(f"  and {known.hidden} more that are not shown")
        return "\n".join(lines)


def _not_begun() -> gymnasium.error.ResetNeeded:
    return gymnasium.error.ResetNeeded("no episode has begun: reset() begins the first")
