"""A training run: rounds of labelling and fitting, in a folder that can be resumed at any time.

The folder holds the configuration, one file a unit of labels, one network a round and the best few of the last one
(weights only), and TensorBoard's logs. Everything is written whole or not at all, so a run that was killed goes on with
what is there and ends with the same network as one that was not.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from concurrent.futures import Future, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress

from fermata.policy.errors import InputError
from fermata.policy.features import SIZE
from fermata.policy.learned import ACTIONS, EXPERTS, Network
from fermata.sim.processes import Workers
from fermata.training.choose import held_out_cases, judge
from fermata.training.collect import Unit, label_unit
from fermata.training.config import TrainConfig
from fermata.training.curves import Curves
from fermata.training.device import CPU, announce, chosen
from fermata.training.files import (
    CONFIG_FILE,
    LABELS,
    claim,
    locked,
    put_weights,
    read_arrays,
    read_note,
    read_weights,
    unfinished,
    unfitting,
    write_weights,
)
from fermata.training.fit import Labels, OnEpoch, fit_each, weighed
from fermata.training.network import CostNetwork, Expert, mean_of
from fermata.training.own import only_for
from fermata.training.progress import shown
from fermata.training.search_episodes import SEARCHED
from fermata.training.threshold import Task, finished_expert, judged_pct, search_threshold, under_margin

_KEPT_FILE = "kept.pt"  # weights of the best experts of the last round
_APART = 1000  # between the seeds of the tries


def _label_round(config: TrainConfig, number: int, network: Network | None, run: Path, progress: Progress) -> None:
    """Do all units of a round that are not there yet, in parallel processes."""
    units = [Unit(number, i) for i in range(config.rounds[number].scenarios)]
    folder = run / LABELS
    folder.mkdir(exist_ok=True)
    left = [unit for unit in units if not (folder / unit.file_name).exists()]
    told, done = f"round {number + 1}: labels", len(units) - len(left)
    patience = "" if done or number else " (where nothing of this version is compiled yet, that takes minutes)"
    task = progress.add_task(told + patience, total=len(units), completed=done)
    if not left:
        return
    with Workers(config.processes) as pool:
        waiting: list[Future[Path]] = [pool.submit(label_unit, config, unit, network, folder) for unit in left]
        for unit_done in as_completed(waiting):
            unit_done.result()
            progress.update(task, advance=1, description=told)


def read_labels(run: Path, config: TrainConfig, rounds: int) -> Labels:
    """Read the labels of the first so many rounds, in a fixed order; the scenario numbers are unique over rounds."""
    xs: list[NDArray[np.float32]] = []
    ys: list[NDArray[np.float32]] = []
    scenarios: list[NDArray[np.int64]] = []
    for number in range(rounds):
        for i in range(config.rounds[number].scenarios):
            path = run / LABELS / Unit(number, i).file_name
            labels = read_arrays(path, ("x", "y"))
            if (labels["x"].shape[1:], labels["y"].shape) != ((SIZE,), (len(labels["x"]), len(ACTIONS))):
                raise unfitting(path)
            xs.append(labels["x"])
            ys.append(labels["y"])
            scenarios.append(np.full(len(labels["x"]), len(scenarios), np.int64))
    return Labels(np.concatenate(xs), np.concatenate(ys), np.concatenate(scenarios))


def _tries(config: TrainConfig, number: int) -> int:
    """Return how many networks a round fits."""
    return config.fit.tries if number + 1 == len(config.rounds) else 1


def _is_fitted(config: TrainConfig, number: int, run: Path) -> bool:
    """Tell whether a round has left all that it is to leave."""
    files = [f"network-{number}.pt", *([_KEPT_FILE] if _tries(config, number) > 1 else [])]
    return all((run / name).exists() for name in files)


def _fit_round(config: TrainConfig, number: int, run: Path, progress: Progress, device: torch.device) -> CostNetwork:
    """Fit on the labels of all rounds so far, or read the network that an earlier call fitted."""
    path = run / f"network-{number}.pt"
    network = CostNetwork(config.fit.hidden)
    if _is_fitted(config, number, run):
        put_weights(network, read_weights(path), path)
        return network
    log = Curves(run, 0, f"round{number + 1}")  # all fits of a round begin anew
    labels = read_labels(run, config, number + 1)
    if not len(labels.x):
        told = "there was no decision to learn from: where a task in sight takes several executors none is a network's"
        raise InputError(f"{told} (own-slots learns of these), and where nothing waits none has a choice", file=run)
    tries = _tries(config, number)
    alike = config.fit.floor is not None  # a fit before these says how sure the labels are
    steps = len(config.taught) * config.fit.epochs  # of one fit, at the most
    done = [0] * (alike + tries)  # of each
    task = progress.add_task(f"round {number + 1}: fit on {len(labels.x)} decisions", total=len(done) * steps)

    def watching(index: int, name: str) -> OnEpoch:
        def on_epoch(expert: int, epoch: int, train_loss: float, held_loss: float) -> None:
            log.add_scalar(f"{name}/{EXPERTS[expert]}/loss", train_loss, epoch)
            log.add_scalar(f"{name}/{EXPERTS[expert]}/held_out_loss", held_loss, epoch)
            done[index] = expert * config.fit.epochs + epoch + 1
            progress.update(task, completed=sum(done))

        return on_epoch

    first = config.seed + number
    labels = weighed(labels, config.fit, first, watching(0, f"round{number + 1}-alike"), device)
    names = [f"round{number + 1}" + (f"-{k}" if k else "") for k in range(tries)]
    watched = [(first + k * _APART, watching(alike + k, name)) for k, name in enumerate(names)]
    networks = fit_each(labels, config.fit, watched, device, config.processes if device.type == CPU else 1)
    network = networks[0]
    if tries > 1:
        network, kept = _best(networks, config, progress.console)
        write_weights(run / _KEPT_FILE, kept)
    progress.update(task, completed=len(done) * steps)
    write_weights(path, network.state_dict())
    return network


def _best(
    networks: Sequence[CostNetwork], config: TrainConfig, console: Console
) -> tuple[CostNetwork, dict[str, list[dict[str, Any]]]]:
    """Say how each network schedules held-out episodes.

    Returns:
        A network of the experts that do best with those of their kind, and by the expert's number the weights of the
        best few.
    """
    cases = held_out_cases(config)
    best, kept = copy.deepcopy(networks[0]), {}
    for expert, name in enumerate(EXPERTS):
        mine = [case for case in cases if case.kind == expert]
        if not mine or expert not in config.taught:
            continue
        verdicts = [judge(network.compiled(config.margin), mine) for network in networks]
        for k, verdict in enumerate(verdicts):
            _tell(console, f"network {k + 1}, {name}", verdict.mean_pct, verdict.worst_pct, config, expert)
        ranked = sorted(range(len(verdicts)), key=lambda k: verdicts[k].cost)
        verdict = verdicts[ranked[0]]
        best.experts[expert] = networks[ranked[0]].experts[expert]
        experts = [networks[k].experts[expert] for k in ranked[: config.fit.kept]]
        kept[str(expert)] = [each.state_dict() for each in experts]
        if len(experts) > 1:
            mean = copy.deepcopy(best)
            mean.experts[expert] = mean_of(experts)
            verdict = judge(mean.compiled(config.margin), mine)
            which = "all" if len(experts) == len(networks) else "the best"
            what = f"mean of {which} {len(experts)}, {name}"
            _tell(console, what, verdict.mean_pct, verdict.worst_pct, config, expert)
        _tell_if_no_gain(console, name, verdict.mean_pct)
    return best, kept


def _tell(console: Console, what: str, mean_pct: float, worst_pct: float, config: TrainConfig, expert: int) -> None:
    """Say how something does on the held-out episodes, against what and on which jobs."""
    jobs = "random scenarios" if only_for(config.workloads, expert).own is None else "the trace"
    told = f"{mean_pct:+.1f}% on held-out episodes, {worst_pct:+.0f}% at worst, against srwf on {jobs}"
    console.print(f"{what}: {told}", soft_wrap=True)


def _tell_if_no_gain(console: Console, name: str, mean_pct: float) -> None:
    """Say so where what is kept is no better than what it would replace."""
    if round(mean_pct, 1) >= 0.0:  # as it is printed
        told = "what is kept is no better than srwf there; compare it with both srwf and default (fermata evaluate)"
        console.print(f"{name}: {told}", soft_wrap=True)


def _average(network: CostNetwork, config: TrainConfig, run: Path) -> None:
    """Put the means of the best experts in the place of the best."""
    if config.fit.kept == 1 or not (run / _KEPT_FILE).exists():
        return
    path = run / _KEPT_FILE
    kept = read_weights(path)
    known = {str(expert) for expert in range(len(EXPERTS))}
    if not isinstance(kept, dict) or not kept.keys() <= known or [] in kept.values():
        raise unfitting(path)
    for expert, weights in kept.items():
        experts = [Expert(config.fit.hidden) for _ in weights]
        for each, own in zip(experts, weights, strict=True):
            put_weights(each, own, path)
        network.experts[int(expert)] = mean_of(experts)


def _search(task: Task, run: Path, progress: Progress) -> Expert:
    """Find the expert for a kind of DAGs, or read what an earlier call found; say how it does."""
    expert = finished_expert(task, run)
    if expert is not None:
        return expert
    log = Curves(run)
    # Where there are none, what is given is judged all the same.
    bar = progress.add_task(f"{EXPERTS[task.which]}: generations", total=task.generations, visible=task.generations > 0)

    def on_generation(history: NDArray[np.float64]) -> None:
        if len(history):
            log.add_scalar(f"search/{EXPERTS[task.which]}", 100.0 * math.expm1(history[-1]), len(history))
        progress.update(bar, completed=len(history))

    expert = search_threshold(task, run, on_generation)
    mean_pct, worst_pct = judged_pct(task, expert, task.config.fit.cases)
    _tell(progress.console, EXPERTS[task.which], mean_pct, worst_pct, task.config, task.which)
    _tell_if_no_gain(progress.console, EXPERTS[task.which], mean_pct)
    return expert


def train(config: TrainConfig, run: Path, console: Console | None = None, device: str = CPU) -> CostNetwork:
    """Run, or go on with, a training run and return its last network.

    Args:
        config: what to do.
        run: folder of the run; created if it is not there.
        console: where progress is shown; standard error by default.
        device: where networks are fitted; see `fermata.training.device.chosen`.

    Raises:
        InputError: `run` holds a run of another configuration or a damaged file, another process is at work there, or
            there is no such device.
    """
    fitted_on = chosen(device)
    with locked(run):
        # Of all kinds of runs only these have no method.
        claim(run, config, lambda noted: b'"method"' not in noted)
        return _train(config, run, console or Console(stderr=True), fitted_on)


def _train(config: TrainConfig, run: Path, console: Console, fitted_on: torch.device) -> CostNetwork:
    network: CostNetwork | None = None
    with shown(console) as progress:
        announce(fitted_on, progress.console)
        for number in range(len(config.rounds)):
            compiled = None if network is None else network.compiled(config.margin)
            # A fit reads the labels of the rounds before it, too.
            if not all(_is_fitted(config, later, run) for later in range(number, len(config.rounds))):
                _label_round(config, number, compiled, run, progress)
            network = _fit_round(config, number, run, progress, fitted_on)
        if network is not None and config.search is not None:
            for which in SEARCHED:
                task = Task(config, which, network)
                network.experts[which] = _search(task, run, progress)
        if network is not None:
            _average(network, config, run)
    if network is None:
        raise InputError("the configuration has no rounds", file=run)
    return network


def read_run(run: Path) -> tuple[TrainConfig, CostNetwork]:
    """Return the configuration and the last network of a finished run.

    Raises:
        InputError: there is no finished run in this folder, or a file of it is damaged.
    """
    note = run / CONFIG_FILE
    if not note.exists():
        raise InputError("is not a training run: it has no config.json; expected the --out of fermata train", file=run)
    config = read_note(note, TrainConfig)
    last = len(config.rounds) - 1
    if not _is_fitted(config, last, run):
        raise unfinished(run)
    network = CostNetwork(config.fit.hidden)
    path = run / f"network-{last}.pt"
    put_weights(network, read_weights(path), path)
    if config.search is not None:
        for index in SEARCHED:
            expert = finished_expert(Task(config, index, network), run)
            if expert is None:
                raise unfinished(run)
            # A rule was found under one margin, and is used under another.
            network.experts[index] = under_margin(expert, config.margin_of_rule(index), config.exported_margin)
    _average(network, config, run)
    return config, network
