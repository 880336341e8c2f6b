"""A training run of an allocation: an evolution strategy from the tuned heuristic's neighbourhood, resumable.

The folder holds the configuration, the state of the search after each generation, and TensorBoard's logs. Random
numbers follow from the seed and the generation, so a run that was killed goes on as if it had not been.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from fermata.policy.allocation import ANSWERS, DECIMA_FEATURES, FEATURES, FULL, HIDDEN, LAYER, LINEAR, PARAMETERS, SIZE
from fermata.sim.processes import Workers
from fermata.sim.spark.episode import check_data
from fermata.sim.trace import FloatArray
from fermata.training.curves import Curves
from fermata.training.files import claim, locked, note_of, noted_by, unfinished
from fermata.training.hpc.evolution import Evolution, single
from fermata.training.progress import shown
from fermata.training.search_run import State, read_state, to_the_end
from fermata.training.spark.config import AllocationConfig
from fermata.training.spark.episodes import Case, cost_in, cost_of, judged_cases, log_ratios

ours = noted_by("evolution")
# Where a search begins: score and logarithm of the cap by input. It is `srwf-work-share` with what short searches find
# first: finer caps, the longest path first, and an executor's own job before others. Waiting is near enough to be
# found, and far enough to do no harm.
_FIRST = {
    "log_work_s": (-3.0, 3.0),
    "source": (1.0, 0.4),
    "path_share": (0.5, 0.0),
    "locked": (0.2, 0.3),
    "load": (0.0, -0.3),
    "active_jobs": (0.0, -0.3),
    "wait": (-12.0, 0.0),
}
_FIRST_GRAIN_S, _FIRST_FULL = 28.0, 8.0


def first_weights(seed: int) -> FloatArray:
    """Return weights near the tuned heuristic's; the units are random and lead nowhere yet."""
    theta = np.zeros(PARAMETERS)
    linear = theta[:LINEAR].reshape(SIZE + 1, ANSWERS)
    for name, answers in _FIRST.items():
        linear[FEATURES.index(name)] = answers
    linear[SIZE, 1] = -np.log(_FIRST_GRAIN_S)
    theta[LINEAR:LAYER] = 0.3 * np.random.default_rng(seed).standard_normal(LAYER - LINEAR)
    theta[FULL] = _FIRST_FULL
    return theta


def searched(config: AllocationConfig) -> NDArray[np.bool_]:
    """Tell which weights a run may change: those of inputs that it does not read stay zero."""
    read = np.array([config.inputs == "full" or name in DECIMA_FEATURES for name in (*FEATURES, "constant")])
    read[[FEATURES.index("wait"), SIZE]] = config.action_space == "wait", True
    one = np.ones(1, np.bool_)
    return np.concatenate([np.repeat(read, ANSWERS), np.repeat(read, HIDDEN), np.repeat(one, HIDDEN * ANSWERS), one])


def train(config: AllocationConfig, run: Path, folder: str, console: Console | None = None) -> FloatArray:
    """Run, or go on with, a training run and return its best weights.

    Args:
        config: what to do.
        run: folder of the run; created if it is not there.
        folder: Decima's TPC-H data.
        console: where progress is shown; standard error by default.

    Raises:
        InputError: `run` holds a run of another configuration or a damaged file, another process is at work there, or
            the data cannot be read.
    """
    check_data(folder)
    with locked(run):
        claim(run, config, ours)
        return _train(config, run, folder, console or Console(stderr=True))


def _train(config: AllocationConfig, run: Path, folder: str, console: Console) -> FloatArray:
    waits, keeps = config.action_space == "wait", searched(config)
    judged = judged_cases(config, folder)
    state = _read_state(config, run)
    # A run that goes on begins by judging the generation at which it was left once more.
    log = Curves(run, purge_step=state.generation)
    with shown(console) as bar, nullcontext() if config.processes == 1 else Workers(config.processes) as workers:
        state = to_the_end(
            state,
            run,
            config.search.generations,
            config.search.judge_every,
            judge=lambda before: _judge(before, judged, waits, log, bar.console),
            step=lambda before: _step(before, config, folder, keeps, workers),
            bar=bar,
        )
    return state.best


def _step(
    state: State, config: AllocationConfig, folder: str, keeps: NDArray[np.bool_], workers: Workers | None
) -> State:
    """Play one generation."""
    search = config.search
    done = min(1.0, state.generation / (search.falls_for or search.generations))
    rate = search.rate + (search.last_rate - search.rate) * done
    candidates = state.search.candidates(np.random.default_rng([config.seed, state.generation]), keeps)
    measure = partial(cost_in, config=config, folder=folder, generation=state.generation)
    if workers is None:
        costs = [measure(each) for each in candidates]
    else:
        share = -(-len(candidates) // config.processes)
        costs = list(workers.map(measure, candidates, chunksize=share))
    return state.after(np.array(costs), rate)


def _judge(state: State, judged: Sequence[Case], waits: bool, log: Curves, console: Console) -> State:
    """Look at the centre of the search and at its mean; keep the better if it is the best so far."""
    for name, centre in (("centre", state.search.centre), ("mean", single(state.mean))):
        ratios = log_ratios(judged, centre, waits)
        for kind, ratio in ratios.items():
            log.add_scalar(f"{name}/{kind}", 100.0 * np.expm1(ratio), state.generation)
        if cost_of(ratios) < state.least:
            state = replace(state, best=centre, least=cost_of(ratios))
            said = ", ".join(f"{kind} {100.0 * np.expm1(ratio):+.1f}%" for kind, ratio in ratios.items())
            console.print(f"generation {state.generation}: {said} against the better tuned heuristic")
    return state


def _read_state(config: AllocationConfig, run: Path) -> State:
    search = config.search
    start = np.where(searched(config), first_weights(config.seed), 0.0)
    evolution = Evolution(start, search.pairs, search.sigma, search.rate)
    begun = State(0, evolution, evolution.centre, evolution.centre, np.inf)
    return read_state(begun, run, search.generations)


def read_run(run: Path) -> tuple[AllocationConfig, FloatArray]:
    """Return the configuration and the best weights of a finished run.

    Raises:
        InputError: there is no finished run in this folder.
    """
    config = note_of(run, AllocationConfig, ours, "an allocation")
    state = _read_state(config, run)
    if not np.isfinite(state.least) or state.generation < config.search.generations:
        raise unfinished(run)
    return config, state.best
