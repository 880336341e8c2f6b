"""SchedInspector's evaluation as a list of inspectors to train, and the tables that compare them.

Training is elsewhere (`fermata hpc study`); a case's file is named after it, and what is there is not trained again.
Tables give bounded slowdown and wait without and with the inspector, on sequences that training has not seen.
Source: Zhang, Dai and Xie, "SchedInspector: A Batch Job Scheduling Inspector Using Reinforcement Learning", HPDC 2022.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fermata.policy.errors import InputError
from fermata.sim.hpc.experiment import Sequences, pooled, run_sequence, run_sequences
from fermata.sim.hpc.inspect import FEATURES, SAMPLE, Inspector, seed_sampling
from fermata.sim.hpc.jobs import JobLog
from fermata.sim.hpc.models import InspectorModel, load_model
from fermata.sim.hpc.policies import policy

LUBLIN = "lublin_256"
LOGS = (LUBLIN, "SDSC-SP2-recon", "CTC-SP2-recon")
# The published number of sequences, and fewer, larger steps. The network begins by accepting three in four: one
# that rejects half of them is so much worse than no inspector that rewards tell its trajectories hardly apart.
BUDGET: dict[str, float | int | str] = {
    "epochs": 40,
    "trajectories": 100,
    "accept_bias": 1.0,
    "policy_rate": 3e-3,
    "value_rate": 3e-3,
    "policy_steps": 30,
    "value_steps": 30,
    "select_sequences": 30,
}
# Names of the features that Figure 13 looks at, in their order.
_SEEN = ("wait", "estimate", "cores", "free cores", "fits", "rejections so far", "cost to the queue", "could backfill")


@dataclass(frozen=True)
class Case:
    """One inspector: its name, which begins its files', the log whose first fifth trains it, what differs."""

    name: str
    about: str
    log: str = LUBLIN
    options: dict[str, float | int | str] = field(default_factory=dict)
    seeds: int = 1

    @property
    def runs(self) -> dict[str, dict[str, float | int | str]]:
        """Return the options of its trainings, one a seed, by the names of their files."""
        return {f"{self.name}-seed{seed}.onnx": BUDGET | self.options | {"seed": seed} for seed in range(self.seeds)}


_SEEDS = 3  # of what other rows are compared with
_BASE = Case(f"sjf-{LUBLIN}", "percentage, 8 features, bsld", LUBLIN, seeds=_SEEDS)
_OTHERS = tuple(Case(f"sjf-{log}", "percentage, 8 features, bsld", log, seeds=_SEEDS) for log in LOGS[1:])
_REWARDS = tuple(Case(f"reward-{kind}", kind, LUBLIN, {"reward": kind}) for kind in ("native", "winloss", "logarithm"))
_FEATURES = (
    Case("features-7", "7, the published code's", LUBLIN, {"features": 7}),
    Case(f"features-{FEATURES}", f"{FEATURES}, ours beside them", LUBLIN, {"features": FEATURES}),
)
_POLICIES = tuple(
    Case(f"policy-{number}", name, LUBLIN, {"policy": name})
    for number, name in enumerate(("fcfs", "saf", "srf", "f1", "sjf+easy", "multifactor"))
)
_METRICS = tuple(Case(f"metric-{key}", key, LUBLIN, {"objective": key}) for key in ("wait", "mbsld"))
CASES = (_BASE, *_OTHERS, *_REWARDS, *_FEATURES, *_POLICIES, *_METRICS)


@dataclass(frozen=True)
class _Shelf:
    """Trained inspectors by case, and the logs with the sequences to judge them on."""

    models: dict[str, list[InspectorModel]]  # of every case, one a seed
    logs: dict[str, tuple[JobLog, Sequences]]

    def row(self, case: Case, log: str | None = None, keys: Sequence[str] = ("bsld", "wait_s")) -> list[str]:
        """Return the figures of a case's scheduler on a log, without the inspector, and the mean of its seeds with it.

        The intervals are over sequences; of every sequence the mean of the seeds is taken.
        """
        given, sequences = self.logs[log or case.log]
        models = self.models[case.name]
        base = run_sequences(given, policy(models[0].policy), sequences)
        by_seed = [self._inspected(model, log or case.log) for model in models]
        inspected = [
            {key: float(np.mean([row[key] for row in rows])) for key in keys} for rows in zip(*by_seed, strict=True)
        ]
        cells = []
        for rows in (base, inspected):
            means, halves = pooled(rows)
            cells += [_cell(key, means[key], halves[key]) for key in keys]
        return cells

    def seeds(self, case: Case) -> list[str]:
        """Return bounded slowdown and wait of every seed of a case, on its own log."""
        found = [pooled(self._inspected(model, case.log))[0] for model in self.models[case.name]]
        return [f"{means['bsld']:.2f} / {means['wait_s']:.0f}" for means in found]

    def _inspected(self, model: InspectorModel, log: str) -> list[dict[str, float]]:
        given, sequences = self.logs[log]
        return run_sequences(given, policy(model.policy), sequences, model.inspector(given))


def _cell(key: str, mean: float, half: float) -> str:
    if key.startswith("utilization"):
        return f"{100 * mean:.1f} ± {100 * half:.1f}"
    return f"{mean:.0f} ± {half:.0f}" if key in ("wait_s", "mbsld") else f"{mean:.2f} ± {half:.2f}"


def expect_inspectors(folder: Path) -> None:
    """Refuse a folder that lacks an inspector of a case.

    Raises:
        InputError: it does.
    """
    for case in CASES:
        for name in case.runs:
            if not (folder / name).is_file():
                raise InputError(f"{folder}: expected {name}; fermata hpc study trains it")


def study_section(
    folder: Path,
    logs: dict[str, tuple[JobLog, Sequences]],
    table: Callable[[Sequence[str], Sequence[Sequence[str]]], Iterator[str]],
) -> Iterator[str]:
    """Yield the tables of all cases.

    Args:
        folder: where `fermata hpc study` has written the inspectors.
        logs: the log of every name in `LOGS`, and the sequences to judge on.
        table: makes a table of a head and rows.

    Raises:
        InputError: an inspector is missing.
        ModelError: a file is no inspector.
    """
    expect_inspectors(folder)
    shelf = _Shelf({case.name: [load_model(folder / name) for name in case.runs] for case in CASES}, logs)
    yield from ("## SchedInspector's evaluation", "")
    yield f"Inspectors of picks, trained by PPO on the first fifth of a log: {BUDGET['epochs']} epochs of"
    yield f"{BUDGET['trajectories']} sequences of 128 jobs as published, {BUDGET['policy_steps']} larger"
    yield "steps an epoch (80), from a network that accepts three picks in four (half of them). The epoch is chosen on"
    yield f"{BUDGET['select_sequences']} sequences of 256 jobs of the same fifth; all is judged on the test sequences,"
    yield "by the likeliest action. SJF with `commit`, no backfilling, unless said; 72 rejections at most."
    yield f"{_SEEDS} seeds for the percentage reward on each log (their mean), one for everything else: what two seeds"
    yield from ("of one row differ by, below, two rows may differ by, too.", "")
    plain = ("bsld", "wait, s", "inspected: bsld", "wait, s")
    yield from ("Trained on one log and used on another (the paper's Table 4):", "")
    yield from table(
        ("trained on", "used on", *plain),
        [[case.log, log, *shelf.row(case, log)] for log in LOGS for case in (_BASE, *_OTHERS)],
    )
    yield from ("The seeds of those, each on its own log, bsld / wait in s:", "")
    seeds = tuple(f"seed {seed}" for seed in range(_SEEDS))
    yield from table(("log", *seeds), [[case.log, *shelf.seeds(case)] for case in (_BASE, *_OTHERS)])
    yield from ("Utilisation in % (Table 5), with the tail and until the last submission:", "")
    shares = ("utilization", "utilization_no_tail")
    yield from table(
        ("log", "with the tail", "until the last submission", "inspected: with the tail", "until the last submission"),
        [[case.log, *shelf.row(case, keys=shares)] for case in (_BASE, *_OTHERS)],
    )
    for title, cases, what in (
        ("Rewards (Figure 5), lublin_256:", (_BASE, *_REWARDS), "reward"),
        ("Features (Figure 6), lublin_256:", (_BASE, *_FEATURES), "features"),
        ("Base policies (Figure 7) and Slurm's multifactor priority (Figure 12), lublin_256:", _POLICIES, "policy"),
    ):
        yield from (title, "")
        yield from table((what, *plain), [[case.about, *shelf.row(case)] for case in cases])
    yield from ("Objectives (Figure 9), lublin_256:", "")
    three = ("bsld", "wait_s", "mbsld")
    titles = ("objective", "bsld", "wait, s", "max bsld", "inspected: bsld", "wait, s", "max bsld")
    yield from table(titles, [[case.about, *shelf.row(case, keys=three)] for case in (_BASE, *_METRICS)])
    yield "What it learns (Figure 13): means of the features, each scaled to about 0 to 1, over sampled"
    yield from ("decisions of the first inspector of lublin_256:", "")
    yield from table(("feature", "accepted", "rejected"), _learned(shelf))


def _learned(shelf: _Shelf) -> list[list[str]]:
    """Return the mean of every feature over what was accepted and what was rejected."""
    log, sequences = shelf.logs[LUBLIN]
    model = shelf.models[_BASE.name][0]
    inspector: Inspector = model.inspector(log, SAMPLE, record=80 * sequences.jobs)
    seed_sampling(1)
    seen, acted = [], []
    for start in sequences.starts:
        schedule = run_sequence(log, policy(model.policy), start, sequences.jobs, 0, inspector)
        many = min(schedule.inspections, len(inspector.acted))
        seen.append(inspector.seen[:many].copy())
        acted.append(inspector.acted[:many].copy())
    rows, rejected = np.concatenate(seen), np.concatenate(acted) == 1
    accepted_means, rejected_means = rows[~rejected].mean(axis=0), rows[rejected].mean(axis=0)
    return [
        [name, f"{kept:.3f}", f"{held:.3f}"]
        for name, kept, held in zip(_SEEN, accepted_means, rejected_means, strict=True)
    ]
