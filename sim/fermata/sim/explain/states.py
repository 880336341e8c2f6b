"""Episodes under a model, side by side, and an even sample of the states in which it decided."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.policy.board import Board
from fermata.policy.errors import InputError
from fermata.policy.features import FEATURES, ORDER, SIZE, candidates
from fermata.policy.guardrails import Guardrails
from fermata.policy.heavy import too_heavy
from fermata.policy.heuristics.sjf import SJF
from fermata.policy.learned import (
    ACTIONS,
    CROWD,
    IDLE_MARGIN,
    MISS_MARGIN,
    MOST,
    START_HEAD,
    THRONG,
    WAIT_FOR_EVENT,
    pick_in_use,
)
from fermata.policy.onnx_policy import OnnxPolicy
from fermata.policy.rows import peek
from fermata.policy.several_slots import read_choices, several_slots
from fermata.policy.slot_features import SIZE as SLOT_SIZE
from fermata.policy.slot_weights import WIDTHS
from fermata.policy.together import come_together
from fermata.sim.batch import Batch, default_manner
from fermata.sim.metrics import Interval, mean_ci95
from fermata.sim.simulate import StuckError
from fermata.sim.trace import FloatArray, Trace, check_fits
from fermata.sim.world import World, new_world, results, scored_by, tables_of

FeatureRows = NDArray[np.float32]  # [states, SIZE]
Mask = NDArray[np.bool_]
_NOTHING_READ = np.zeros((0, SLOT_SIZE))

_EXECUTORS = FEATURES.index("log executors")
_WAITING = [
    FEATURES.index(f"waiting jobs {size}")
    for size in ("up to 2 units", "of 2 to 5 units", "of 5 to 15 units", "over 15 units")
]
_LONE = math.log(1.5)  # log executors of one executor are below, of several above
_ALTERNATIVE, _FREE_SHARE = FEATURES.index("alternative exists"), FEATURES.index("free share")
_MISSES = FEATURES.index("misses of recent estimates")
_PROGRESS_EVERY = 200  # steps
_NO_COSTS = np.zeros(len(ACTIONS))
MOST_SHIFT = 1.0  # mean JCTs; what a model says beyond is its distrust of a state that it was not taught


class Decisions(NamedTuple):
    """Decisions of several episodes, one of each."""

    episode: NDArray[np.intp]
    rows: FeatureRows
    costs: FloatArray
    possible: Mask
    choices: list[FloatArray]  # what is scored of each; empty where costs decide


See = Callable[[Decisions], None]


@dataclass(frozen=True)
class Workload:
    """Where the episodes come from.

    Args:
        name: of the scenario or trace.
        executors: size of the pool.
        draw: the jobs of a seed.
        warm: jobs, by arrival, that means leave out.
        sticky: a started stage keeps its executors until its tasks run out.
    """

    name: str
    executors: int
    draw: Callable[[int], Trace]
    warm: int = 0
    sticky: bool = False


class Place(NamedTuple):
    """One episode: its number among the workloads and among the seeds, and its jobs."""

    workload: int
    seed: int
    executors: int
    trace: Trace
    warm: int
    sticky: bool


class Outcome(NamedTuple):
    """What became of an episode: means over its jobs after the warm-up, seconds."""

    avg_jct_s: float
    avg_held_s: float


@dataclass(frozen=True)
class States:
    """States in which a model decided, as many of each episode, and what it decided there."""

    workloads: tuple[str, ...]
    seeds: tuple[int, ...]
    rows: FeatureRows  # [states, SIZE]
    costs: FloatArray  # [states, 3] mean JCTs
    possible: Mask  # [states, 3] which actions were
    picked: NDArray[np.intp]  # [states] index into ACTIONS
    workload: NDArray[np.intp]  # [states] index into workloads
    seed: NDArray[np.intp]  # [states] index into seeds
    taken: NDArray[np.int64]  # [workloads, seeds, 3] how often each action was taken, of all decisions
    outcomes: tuple[tuple[Outcome, ...], ...]  # [workloads][seeds]
    # [states] what was scored, [stages, SLOT_SIZE], where tasks take several executors; there costs decide nothing.
    choices: tuple[FloatArray, ...] = ()

    @property
    def scored(self) -> Mask:
        """In which states scores decided, and not costs."""
        return np.array([len(each) > 0 for each in self.choices] or np.zeros(len(self.rows)), np.bool_)

    @property
    def held(self) -> Mask:
        """In which states it waited."""
        waited: Mask = self.picked == WAIT_FOR_EVENT
        return waited

    @property
    def may_wait(self) -> Mask:
        """In which states waiting was possible."""
        may_wait: Mask = self.possible[:, WAIT_FOR_EVENT]
        return may_wait

    @property
    def may_wait_for_next(self) -> Mask:
        """In which states waiting was possible, and there was a next completion to wait for."""
        return self.may_wait & something_runs(self.rows)

    def over_seeds(self, values: FloatArray) -> Interval:
        """Return the mean of a value a state, each workload counting the same, with Student's 95% over seeds.

        Args:
            values: [states]; NaN is left out. The half width is NaN where there is one seed.
        """
        shape = (len(self.workloads), len(self.seeds))
        known = np.isfinite(values)
        total, count = np.zeros(shape), np.zeros(shape)
        where = (self.workload[known], self.seed[known])
        np.add.at(total, where, values[known])
        np.add.at(count, where, 1.0)
        means = np.divide(total, count, out=np.full(shape, np.nan), where=count > 0)
        return interval(means)


def interval(values: FloatArray) -> Interval:
    """Return the mean over workloads [workloads, seeds], with Student's 95% over seeds; NaN is left out.

    The seeds of a workload that lack a value lack it, so a seed counts only with workloads that all seeds have.
    """
    whole = values[np.isfinite(values).all(axis=1)]
    if not len(whole):
        return Interval(float("nan"), float("nan"))
    found = mean_ci95(whole.mean(axis=0))
    return found if values.shape[1] > 1 else Interval(found.mean, float("nan"))


def _at_most(rows: FeatureRows, jobs: float) -> Mask:
    """Return in which states [states, SIZE] at most so many jobs wait for each executor, and MOST in all."""
    waiting = np.expm1(rows[:, _WAITING]).sum(axis=1)
    most = np.minimum(jobs * np.exp(rows[:, _EXECUTORS]), MOST)
    few: Mask = waiting <= most + 0.5  # features are in single precision
    return few


def something_runs(rows: FeatureRows) -> Mask:
    """Return in which states [states, SIZE] an executor is at work."""
    runs: Mask = rows[:, _FREE_SHARE] < 1.0
    return runs


def possible_by(rows: FeatureRows) -> Mask:
    """Return which actions [states, 3] are possible by what rows [states, SIZE] say, which is not all."""
    other = (rows[:, _ALTERNATIVE] > 0.5) & (rows[:, _EXECUTORS] > _LONE) & _at_most(rows, THRONG)
    return np.column_stack([np.ones(len(rows), np.bool_), other, _at_most(rows, CROWD)])


def picks(rows: FeatureRows, costs: FloatArray, margin: float, possible: Mask) -> NDArray[np.intp]:
    """Return the actions [states] that costs [states, 3] make a model take: `learned.pick_in_use`, of many at once.

    Args:
        rows: [states, SIZE]
        costs: of the actions, mean JCTs.
        margin: of the model.
        possible: [states, 3], which actions are.
    """
    asked = costs.copy()
    asked[:, START_HEAD] -= margin + MISS_MARGIN * rows[:, _MISSES]
    asked[~something_runs(rows), WAIT_FOR_EVENT] += IDLE_MARGIN
    cheapest: NDArray[np.intp] = np.where(possible, asked, np.inf).argmin(axis=1)
    return cheapest


def places_of(workloads: Sequence[Workload], seeds: Sequence[int]) -> list[Place]:
    """Draw all episodes.

    Raises:
        InputError: no jobs, no more of them than the warm-up, or a task that needs more executors than there are.
    """
    places = []
    for number, each in enumerate(workloads):
        if each.executors < 1:
            raise InputError(f"expected at least 1 executor, got {each.executors}")
        for place, seed in enumerate(seeds):
            trace = each.draw(seed)
            if trace.jobs <= each.warm:
                raise InputError(f"{each.name}: a warm-up of {each.warm} leaves none of {trace.jobs} jobs")
            check_fits(trace, each.executors, each.name)
            places.append(Place(number, place, each.executors, trace, each.warm, each.sticky))
    return places


def run_places(
    policy: OnnxPolicy,
    places: Sequence[Place],
    limits: Guardrails,
    *,
    see: See | None = None,
    change: Callable[[NDArray[np.intp], FeatureRows], None] | None = None,
    progress: Callable[[float], object] = lambda _: None,
) -> list[Outcome]:
    """Run all episodes side by side and return what became of each.

    Args:
        policy: that decides.
        places: the episodes.
        limits: on its holding.
        see: told of every decision.
        change: changes a copy of the features before the model reads them; told which episodes they are of.
        progress: told the share of the jobs that have finished, 0 to 1.

    Raises:
        ModelError: the model fails or answers NaN.
        StuckError: it waits although nothing will happen any more.
    """
    worlds = [_world_of(policy, each) for each in places]
    manner = default_manner(policy.margin, SJF.rule)._replace(limits=limits)
    batch = Batch(iter(worlds), len(worlds), manner)
    costs = np.zeros((len(worlds), len(ACTIONS)))
    steps = 0
    while batch.open.any():
        where = np.flatnonzero(batch.open)
        rows = batch.features[where]
        if change is not None:
            change(where, rows)
        costs[where] = policy.costs(rows)
        if see is not None:
            see(Decisions(where, rows, costs[where], *_possible([worlds[each] for each in where], rows)))
        batch.step(costs)
        steps += 1
        if steps % _PROGRESS_EVERY == 0:
            progress(sum(_share(world, place.trace) for world, place in zip(worlds, places, strict=True)) / len(places))
    return [_outcome(policy, world, place) for world, place in zip(worlds, places, strict=True)]


def _world_of(policy: OnnxPolicy, place: Place) -> World:
    """Return an episode before its first event."""
    tables = tables_of(place.trace, place.executors, sticky=place.sticky)
    return scored_by(policy, new_world(tables, place.executors, corrects=policy.corrects_estimates))


def _possible(worlds: Sequence[World], rows: FeatureRows) -> tuple[Mask, list[FloatArray]]:
    """Return which actions [decisions, 3] are possible, and what is scored of each decision.

    Where nothing runs, a wait is only as long as it has an end; where scores decide, only what they say is.
    """
    possible, runs = possible_by(rows), something_runs(rows)
    choices = [_NOTHING_READ] * len(worlds)
    for place, world in enumerate(worlds):
        board = world.board
        if peek(board.pool).slots > 1 and several_slots(board):
            choices[place], possible[place] = _read_choices(board), False
            possible[place, pick_in_use(board, candidates(board, ORDER), _NO_COSTS, 0.0)] = True
        elif possible[place, START_HEAD + 1 :].any():
            choice = candidates(board, ORDER)
            job = peek(board.stages, choice.head).job
            possible[place, WAIT_FOR_EVENT] &= runs[place] or not math.isinf(choice.wake_s)
            possible[place, WAIT_FOR_EVENT] &= not too_heavy(board, job)
            possible[place, START_HEAD + 1 :] &= not come_together(board, peek(board.jobs, job).remaining_work_s)
    return possible, choices


def _read_choices(board: Board) -> FloatArray:
    found = np.zeros((WIDTHS, SLOT_SIZE))
    return found[: read_choices(board, found)].copy()  # few of the rows are used, and many states are kept


def _share(world: World, trace: Trace) -> float:
    return float(peek(world.clock).finished) / trace.jobs


def _outcome(policy: OnnxPolicy, world: World, place: Place) -> Outcome:
    if (left := place.trace.jobs - int(peek(world.clock).finished)) > 0:
        raise StuckError(f"policy {policy.name!r} left {left} jobs unfinished at {peek(world.board.pool).now_s:g} s")
    told: dict[str, NDArray[Any]] = results(world)
    jct_s = told["job_completion_s"] - place.trace.job_arrival_s
    return Outcome(float(jct_s[place.warm :].mean()), float(told["job_held_s"][place.warm :].mean()))


def collect(
    policy: OnnxPolicy,
    workloads: Sequence[Workload],
    seeds: Sequence[int],
    limits: Guardrails,
    most: int,
    progress: Callable[[float], object] = lambda _: None,
) -> States:
    """Run episodes under a model and keep at most `most` states of each, every one as likely as any other.

    Raises:
        InputError, ModelError, StuckError: as `places_of` and `run_places`.
    """
    places = places_of(workloads, seeds)
    kept, could = np.zeros((len(places), most, SIZE), np.float32), np.zeros((len(places), most, len(ACTIONS)), np.bool_)
    choices: list[dict[int, FloatArray]] = [{} for _ in places]
    seen = np.zeros(len(places), np.int64)
    taken = np.zeros((len(places), len(ACTIONS)), np.int64)
    rng = np.random.default_rng(0)  # the sample is the same at every call

    def see(of: Decisions) -> None:
        where = of.episode
        taken[where, picks(of.rows, of.costs, policy.margin, of.possible)] += 1
        at = seen[where]
        full = at >= most
        at[full] = np.floor(rng.random(int(full.sum())) * (at[full] + 1)).astype(np.int64)
        keep = at < most
        kept[where[keep], at[keep]], could[where[keep], at[keep]] = of.rows[keep], of.possible[keep]
        for each in np.flatnonzero(keep).tolist():
            choices[where[each]][at[each]] = of.choices[each]
        seen[where] += 1

    outcomes = run_places(policy, places, limits, see=see, progress=progress)
    number = np.minimum(seen, most)
    rows, possible = (
        np.concatenate([of_place[:count] for of_place, count in zip(each, number, strict=True)])
        for each in (kept, could)
    )
    costs = policy.costs(rows)
    return States(
        workloads=tuple(each.name for each in workloads),
        seeds=tuple(seeds),
        rows=rows,
        costs=costs,
        possible=possible,
        picked=picks(rows, costs, policy.margin, possible),
        workload=np.repeat([each.workload for each in places], number),
        seed=np.repeat([each.seed for each in places], number),
        taken=taken.reshape(len(workloads), len(seeds), len(ACTIONS)),
        outcomes=tuple(tuple(outcomes[row * len(seeds) : (row + 1) * len(seeds)]) for row in range(len(workloads))),
        choices=tuple(each[at] for each, count in zip(choices, number.tolist(), strict=True) for at in range(count)),
    )
