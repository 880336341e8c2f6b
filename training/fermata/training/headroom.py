"""What a policy leaves on the table: how much sooner jobs would be done if each action were tried before one is taken.

At every decision that is in doubt each of the policy's actions is tried in the same sampled futures, with the policy
itself taking over behind it. A future knows nothing that a scheduler cannot: which jobs arrive is cut from another
episode, and how long each task takes that runs or waits is drawn anew, by how far estimates are off there, given what
has passed. Where another action does better by more than its noise, it is taken, and what it saves is measured once
more, in futures that had no say in choosing it. These savings add up to the difference between the two policies, with
far less noise than the two mean JCTs have. They are what this search finds, and so a lower bound: what is better by
less than its noise is not taken, and many such decisions can add up.

Source: rollouts (Bertsekas); the performance difference lemma (Kakade and Langford, "Approximately optimal approximate
reinforcement learning", 2002).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.policy._jit import kernel
from fermata.policy.action import WAIT, any_startable
from fermata.policy.features import FEATURES, ORDER, SIZE, candidates
from fermata.policy.heuristics.kernel import Rule
from fermata.policy.heuristics.srwf import SRWF
from fermata.policy.learned import (
    ACTIONS,
    START_HEAD,
    WAIT_FOR_EVENT,
    Network,
    action_of,
    forward,
    pick_in_use,
)
from fermata.policy.onnx_policy import OnnxPolicy
from fermata.policy.rows import column, peek
from fermata.policy.transition import moldable_duration
from fermata.sim.engine import DECIDE, advance, apply
from fermata.sim.metrics import Interval, mean_ci95, paired_percent
from fermata.sim.network_file import read_network
from fermata.sim.networks import eager
from fermata.sim.scenarios import Scenario
from fermata.sim.simulate import simulate
from fermata.sim.trace import Trace
from fermata.sim.world import World, new_world, scored_by, tables_of
from fermata.training.fork import fork_for, splice
from fermata.training.play import decide_all, play
from fermata.training.teacher import arrivals_of, look, moment_of

FloatArray = NDArray[np.float64]

_LIBRARY_JOBS = 20_000
_STREAM = 4_000_000  # apart from what any training draws
_FIRST = 16  # futures that every action in doubt is tried in
_SHORTS = FEATURES.index("arrivals of under half a unit during the head's task")
_FEW = math.log1p(0.1)  # of that feature: where hardly a shorter job comes while the head runs, waiting is no question
_DRAWS = 4096  # random numbers a future; where a state needs more they are used again
_LATE = 0.1  # a task that outlived all that was ever seen takes up to that much longer yet, as a share


class Effort(NamedTuple):
    """How hard to look.

    Args:
        futures: that an action is tried in at the most, at least 16.
        again: futures in which what another action saves is measured.
        horizon: arrivals a future.
        errors: standard errors by which another action must be better.
    """

    futures: int = 64
    again: int = 200
    horizon: int = 200
    errors: float = 1.5


class Unit(NamedTuple):
    """Which episode is looked into, and how."""

    model: Path | None  # None: always starts the head
    scenario: Scenario
    others: Scenario  # what arrives in a future is of an episode of this one; of random jobs it is the same
    seed: int
    effort: Effort


class Found(NamedTuple):
    """What was found in one episode."""

    asked: int  # decisions in doubt
    other: int  # of those, in which another action was taken
    saved_s: float  # of the mean JCT
    jct_s: float  # mean JCT under the policy
    base_jct_s: float  # mean JCT under shortest remaining work first


class Headroom(NamedTuple):
    """What was found in the episodes of a scenario; percentages of the mean JCT under shortest remaining work first."""

    scenario: str
    seeds: int
    asked: int
    other: int
    vs_base_pct: float
    vs_base_ci95: float | None  # of a single episode there is none
    further_pct: float  # of what trying would change more
    further_ci95: float | None


class _Chance(NamedTuple):
    """What is left to chance in a future."""

    ratios: FloatArray  # ascending: durations of the library's tasks over their estimates
    draws: FloatArray  # uniform numbers
    arrivals: int


@kernel
def _draw_durations(world: World, chance: _Chance) -> None:
    """Draw anew how long each task takes that has not ended, of the jobs that are there."""
    ratios, draws = chance.ratios, chance.draws
    at, now_s = 0, world.board.pool[0].now_s
    for job in range(world.clock[0].jobs - chance.arrivals):
        progress = world.job_progress[job]
        for stage in range(progress.first_stage, progress.end_stage):
            row, given = world.board.stages[stage], world.stage_progress[stage]
            for task in range(given.end_task - row.pending, given.end_task):
                world.tasks[task].duration_s = given.given_s * ratios[int(draws[at % len(draws)] * len(ratios))]
                at += 1
    for i in range(world.clock[0].runs):
        run = world.runs[i]
        at_work = world.board.executors[run.executor].stage
        begun, row = world.tasks[run.task], world.board.stages[at_work]
        usual_s = world.stage_progress[at_work].given_s
        if not math.isnan(row.serial_fraction):
            usual_s = moldable_duration(usual_s, row.serial_fraction, row.cap)
        passed = (now_s - begun.start_s) / max(usual_s, 1e-9)
        longer = _first_above(ratios, passed)
        share = draws[at % len(draws)]
        at += 1
        ratio = passed * (1.0 + _LATE * share)
        if longer < len(ratios):
            ratio = ratios[longer + int(share * (len(ratios) - longer))]
        # What was to take no time, and is not done, is due at once: an end that is past would turn the clock back.
        begun.end_s = max(begun.start_s + usual_s * ratio, now_s)
        run.end_s = begun.end_s
    _sort_runs(world)


@kernel
def _first_above(values: FloatArray, bound: float) -> int:
    """Return the index of the first of ascending values that is above a bound."""
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) >> 1
        if values[middle] <= bound:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _sort_runs(world: World) -> None:
    """Put the running tasks in the order of their ends, which makes them a heap again."""
    runs = world.runs
    for i in range(1, world.clock[0].runs):
        at = i
        while at > 0 and runs[at].end_s < runs[at - 1].end_s:
            one, two = runs[at], runs[at - 1]
            one.end_s, two.end_s = two.end_s, one.end_s
            one.sequence, two.sequence = two.sequence, one.sequence
            one.executor, two.executor = two.executor, one.executor
            one.task, two.task = two.task, one.task
            at -= 1


@kernel
def _try(world: World, picked: int, order: Rule, network: Network, chance: _Chance) -> float:
    """Take an action in a copy, follow the policy to the end, and return the sum of completion times from now on."""
    _draw_durations(world, chance)
    now_s = world.board.pool[0].now_s
    kind, stage, cap, until_s = action_of(world.board, candidates(world.board, order), picked)
    apply(world, kind, stage, cap, until_s)
    if kind != WAIT:
        decide_all(world, order, network)
    play(world, order, network)
    total_s = 0.0
    for job in range(world.clock[0].jobs):
        total_s += world.job_progress[job].completion_s - now_s
    return total_s


class Prober:
    """Plays one episode as the module says."""

    def __init__(
        self, scenario: Scenario, others: Scenario, seed: int, network: Network, effort: Effort, corrects: bool
    ) -> None:
        """Take an episode of a scenario, what its futures are made of, and the policy to look into."""
        executors, trace = scenario.executors, scenario.generate(seed)
        library = others.with_(jobs=_LIBRARY_JOBS).generate(_STREAM + seed)
        self._world = scored_by(network, new_world(tables_of(trace, executors), executors, corrects=corrects))
        self._library = new_world(tables_of(library, executors), executors)
        self._ratios = _ratios(library)
        self._arrivals = arrivals_of(self._library)
        larger = max(trace, library, key=lambda each: each.tasks / each.jobs)  # jobs of another part of a trace may be
        fork = fork_for(larger, executors, effort.horizon)
        self._fork = fork._replace(world=scored_by(network, fork.world))
        self.trace, self._network, self._effort = trace, network, effort
        self._rng = np.random.default_rng([seed, _STREAM])
        self.asked, self.other, self.saved_s = 0, 0, 0.0

    def play(self) -> None:
        """Play the episode to its end."""
        board = self._world.board
        while advance(self._world) == DECIDE:
            while any_startable(board):
                kind, stage, cap, until_s = action_of(board, candidates(board, ORDER), self._choose())
                apply(self._world, kind, stage, cap, until_s)
                if kind == WAIT:
                    break

    def _choose(self) -> int:
        """Return the action that is best, as far as futures tell it from the one that the policy takes."""
        x = np.zeros(SIZE)
        legal = look(self._world, ORDER, x)
        forward(self._network, x.copy())  # normalises in place
        board = self._world.board
        own = int(pick_in_use(board, candidates(board, ORDER), self._network.costs, self._network.margin))
        others = [each for each in range(len(ACTIONS)) if (legal >> each) & 1 and each != own]
        if x[_SHORTS] < _FEW and own == START_HEAD:
            others = [each for each in others if each != WAIT_FOR_EVENT]
        if not others:
            return own
        self.asked += 1
        best = self._best_of(own, others)
        if best != own:
            saved_s = -self._against(own, [best], self._effort.again)[0]
            if len(saved_s):
                self.other += 1
                self.saved_s += float(saved_s.mean())
        return best

    def _best_of(self, own: int, others: list[int]) -> int:
        """Return the action that does best; those that do worse than the policy's own so far are tried no longer."""
        costs_s: dict[int, FloatArray] = {each: np.zeros(0) for each in others}
        tried = 0
        while others and tried < self._effort.futures:
            more = min(max(_FIRST, tried), self._effort.futures - tried)
            for each, cost_s in zip(others, self._against(own, others, more), strict=True):
                costs_s[each] = np.concatenate([costs_s[each], cost_s])
            tried += more
            others = [each for each in others if len(costs_s[each]) and costs_s[each].mean() < 0.0]
        best, least_s = own, 0.0
        for each in others:
            mean_s, error_s = costs_s[each].mean(), costs_s[each].std(ddof=1) / math.sqrt(len(costs_s[each]))
            if mean_s < min(least_s, -self._effort.errors * error_s):
                best, least_s = each, mean_s
        return best

    def _against(self, own: int, others: list[int], futures: int) -> list[FloatArray]:
        """Return by how many seconds each action makes the sum of JCTs longer than the policy's own, by future."""
        horizon, world = self._effort.horizon, self._world
        end = int(peek(self._library.clock).jobs) - horizon
        firsts, since_s = self._arrivals.next_jobs(moment_of(world, ORDER), end)
        found: list[list[float]] = [[] for _ in others]
        for first in self._rng.choice(firsts, futures):
            chance, totals_s = _Chance(self._ratios, self._rng.random(_DRAWS), horizon), []
            for each in (own, *others):
                if not splice(self._fork, world, self._library, int(first), horizon, since_s):
                    return [np.zeros(0) for _ in others]
                totals_s.append(_try(self._fork.world, each, ORDER, self._network, chance))
            for list_, total_s in zip(found, totals_s[1:], strict=True):
                list_.append(total_s - totals_s[0])
        return [np.array(each) for each in found]


def _ratios(library: Trace) -> FloatArray:
    """Return how long each task took over what was estimated, in ascending order; 1 if nothing ever was."""
    estimate_s = np.repeat(library.stage_estimate_s, np.diff(library.task_ptr))
    known = estimate_s > 0.0
    return np.sort(library.task_duration_s[known] / estimate_s[known]) if known.any() else np.ones(1)


def room_in(
    scenario: Scenario, others: Scenario, seed: int, network: Network, effort: Effort, corrects: bool = False
) -> Found:
    """Look into one episode of a scenario; see `Unit`. Estimates are corrected if the policy in use wants that."""
    prober = Prober(scenario, others, seed, network, effort, corrects)
    prober.play()
    trace, executors = prober.trace, scenario.executors
    world = scored_by(network, new_world(tables_of(trace, executors), executors, corrects=corrects))
    play(world, ORDER, network)
    jct_s = column(world.job_progress, "completion_s") - trace.job_arrival_s
    base_jct_s = simulate(trace, executors, SRWF).job_jct_s
    return Found(prober.asked, prober.other, prober.saved_s / trace.jobs, float(jct_s.mean()), float(base_jct_s.mean()))


def look_into(unit: Unit) -> Found:
    """Look into one episode under a policy."""
    network = eager() if unit.model is None else read_network(unit.model)
    corrects = unit.model is not None and OnnxPolicy.corrects_estimates
    return room_in(unit.scenario, unit.others, unit.seed, network, unit.effort, corrects)


def pooled(
    scenario: str, found: Sequence[Found], interval: Callable[[Sequence[float]], Interval] = mean_ci95
) -> Headroom:
    """Return the means over the episodes of a scenario; `interval` makes one of the percentages by episode."""
    if not found:
        return Headroom(scenario, 0, 0, 0, *[math.nan] * 4)
    base_s = [each.base_jct_s for each in found]
    change = paired_percent([each.jct_s for each in found], base_s, interval)
    further = paired_percent([each.base_jct_s - each.saved_s for each in found], base_s, interval)
    asked, other = sum(each.asked for each in found), sum(each.other for each in found)
    halves = (change.ci95, further.ci95) if len(found) > 1 else (None, None)
    return Headroom(scenario, len(found), asked, other, change.mean, halves[0], further.mean, halves[1])
