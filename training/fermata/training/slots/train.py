"""A training run of scores: an evolution strategy, resumable.

It begins at the scores that ship, or where shortest first is better at that: what holds too much there is far from any
good way to hold.

The folder holds the configuration, the state of the search after each generation, and TensorBoard's logs. Random
numbers follow from the seed and the generation, so a run that was killed goes on as if it had not been. What is kept is
what does best on jobs that teach nothing: the mean of the search at one of its looks, the scores that ship, or shortest
first without a hold.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console

from fermata.policy.errors import InputError
from fermata.policy.several_slots import UNITS
from fermata.policy.slot_features import SIZE
from fermata.policy.slot_scores import SHIPPED, shortest_first
from fermata.sim.processes import Workers
from fermata.sim.trace import FloatArray
from fermata.training.curves import Curves
from fermata.training.files import claim, locked, note_of, noted_by, unfinished, unfitting
from fermata.training.hpc.evolution import Evolution, single
from fermata.training.own import Part
from fermata.training.progress import shown
from fermata.training.search_run import STATE_FILE, State, read_state, to_the_end
from fermata.training.slots.config import ScoresConfig
from fermata.training.slots.episodes import played

ours = noted_by("scores")
_LAST = 0.1  # of the rate, at the end
_AS_SHIPPED, _SHORTEST = -2, -1  # instead of the generation that is kept


@dataclass(frozen=True)
class _State(State):
    """Where a run is; what weights cost is the logarithm of the mean JCT over that of srwf."""

    kept: int  # the generation that the best is of, or what it is instead


def beginning_at_shortest() -> FloatArray:
    """Return the same, with the units of the scores that ship, which lead nowhere yet."""
    weights = shortest_first()
    units = SHIPPED[SIZE:].reshape(UNITS, SIZE + 1).copy()
    units[:, SIZE] = 0.0
    weights[SIZE:] = units.ravel()
    return weights


def train(config: ScoresConfig, run: Path, console: Console | None = None) -> FloatArray:
    """Run, or go on with, a training run and return its best weights.

    Args:
        config: what to do; it has a trace.
        run: folder of the run; created if it is not there.
        console: where progress is shown; standard error by default.

    Raises:
        InputError: the configuration has no trace, `run` holds a run of another one or a damaged file, another process
            is at work there, or the trace is gone or has changed.
    """
    if config.workloads.own is None:
        raise InputError(f"{config.name!r} learns on a trace of one's own; expected --trace and --executors")
    with locked(run):
        claim(run, config, ours)
        return _train(config, run, console or Console(stderr=True))


def _train(config: ScoresConfig, run: Path, console: Console) -> FloatArray:
    state = _read_state(config, run)
    # A run that goes on begins by judging the generation at which it was left once more.
    log = Curves(run, purge_step=state.generation)
    with shown(console) as bar, nullcontext() if config.processes == 1 else Workers(config.processes) as workers:
        state = to_the_end(
            state,
            run,
            config.search.generations,
            config.search.judge_every,
            judge=lambda before: _judge(before, config, workers, log, bar.console),
            step=lambda before: _step(before, config, workers),
            bar=bar,
        )
        bar.console.print(_verdict(state), soft_wrap=True)
    return state.best


def _play(
    workers: Workers | None, config: ScoresConfig, part: Part, first: int, many: int, weights: FloatArray
) -> FloatArray:
    """Return the mean logarithms [weights] of so many episodes, from a number on."""
    play, numbers = partial(played, config, part, candidates=weights), range(first, first + many)
    found = map(play, numbers) if workers is None else workers.map(play, numbers)
    return np.asarray(np.array(list(found)).mean(axis=0))


def _step(state: _State, config: ScoresConfig, workers: Workers | None) -> _State:
    """Play one generation."""
    search, generation = config.search, state.generation
    candidates = state.search.candidates(np.random.default_rng([config.seed, generation]))
    costs = _play(workers, config, "teach", generation * search.episodes, search.episodes, candidates)
    return state.after(costs, search.rate * max(_LAST, 1.0 - generation / search.generations))


def _judge(state: _State, config: ScoresConfig, workers: Workers | None, log: Curves, console: Console) -> _State:
    """Look at the mean of the search, and at first at what it has to be better than; keep the best so far."""
    tried = {state.generation: single(state.mean)}
    if state.generation == 0:
        tried = {_AS_SHIPPED: SHIPPED, _SHORTEST: shortest_first()}
    found = _play(workers, config, "choose", 0, config.search.judged, np.array(list(tried.values())))
    for (kept, weights), cost in zip(tried.items(), found.tolist(), strict=True):
        if kept >= 0:
            log.add_scalar("scores", _percent(cost), kept)
        if kept < 0 or cost < state.least:
            told = f"{_percent(cost):+.1f}% against srwf on jobs that choose"
            console.print(f"the shipped model with {_name(kept)}: {told}", soft_wrap=True)
        if cost < state.least:
            state = replace(state, best=weights, least=cost, kept=kept)
    if state.generation == 0 and state.kept == _SHORTEST:
        search = _search_from(beginning_at_shortest(), config)
        state = replace(state, search=search, mean=search.centre)
    return state


def _search_from(weights: FloatArray, config: ScoresConfig) -> Evolution:
    return Evolution(weights, config.search.pairs, config.search.sigma, config.search.rate)


def _percent(cost: float) -> float:
    return float(100.0 * np.expm1(cost))


def _name(kept: int) -> str:
    names = {_AS_SHIPPED: "the scores that ship", _SHORTEST: "scores of shortest first, without a hold"}
    return names.get(kept, f"generation {kept}")


def _verdict(state: _State) -> str:
    """Say what is kept."""
    if state.kept >= 0:
        return f"kept: generation {state.kept}; compare it with default on the rest of the trace (fermata evaluate)"
    return f"kept: {_name(state.kept)}: on the jobs that choose nothing that was found is better"


def _read_state(config: ScoresConfig, run: Path) -> _State:
    evolution = _search_from(SHIPPED, config)
    begun = _State(0, evolution, evolution.centre, SHIPPED, np.inf, _AS_SHIPPED)
    state = read_state(begun, run, config.search.generations)
    if not _AS_SHIPPED <= state.kept <= state.generation:
        raise unfitting(run / STATE_FILE)
    return state


def read_run(run: Path) -> tuple[ScoresConfig, FloatArray]:
    """Return the configuration and the best weights of a finished run.

    Raises:
        InputError: there is no finished run in this folder.
    """
    config = note_of(run, ScoresConfig, ours, "scores")
    state = _read_state(config, run)
    if not np.isfinite(state.least) or state.generation < config.search.generations:
        raise unfinished(run)
    return config, state.best
