"""Deep Back-Filling's evaluation: a list of agents to train, and the tables that compare them in the paper's setting.

Training is elsewhere (`fermata hpc windows`); a case's file is named after it, and what is there is not trained again.
Source: Wang, Harwood and Rodriguez, "Deep Back-Filling: a Split Window Technique for Deep Online Cluster Job
Scheduling", HPCC 2022: Figures 3 to 7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fermata.policy.errors import InputError
from fermata.sim.hpc.experiment import Sequences, run_sequences
from fermata.sim.hpc.gates import POINT, Gate
from fermata.sim.hpc.jobs import JobLog
from fermata.sim.hpc.orders import order
from fermata.sim.hpc.policies import WINDOW, Policy, policy
from fermata.sim.hpc.queue_models import SHIPPED
from fermata.sim.hpc.rules import Rules, Start
from fermata.sim.hpc.window import STALE, run_windowed
from fermata.sim.hpc.window_models import WindowModel, load_window_model, shortest_first
from fermata.sim.hpc.world import config_of, jobs_of, new_world

FloatArray = NDArray[np.float64]
Table = Callable[[Sequence[str], Sequence[Sequence[str]]], Iterator[str]]

# Every agent is trained on jobs of the Lublin-Feitelson model, so none has seen what it is judged on.
TRAINING_JOBS, TRAINING_SEED, TRAINING_LOAD = 120_000, 701, 1.06
SEEDS = (0,)
WINDOWS, WINDOW_JOBS = 10, 1000
_T_9 = 2.262  # 97.5% of Student's distribution with the nine degrees of freedom that ten windows have


@dataclass(frozen=True)
class Case:
    """One agent: how much it sees of the queue's head and tail, and the seed of its training."""

    head: int
    tail: int
    seed: int = 0

    @property
    def name(self) -> str:
        """Return the name of its file, without the suffix."""
        return f"window-{self.head}+{self.tail}-seed{self.seed}"


# Window sizes, each head-only and split; then how a window of 20 is split.
SIZES = ((10, (5, 5)), (20, (10, 10)), (64, (32, 32)))
SPLITS = ((20, 0), (15, 5), (10, 10), (5, 15))
_SHAPES = dict.fromkeys([*((size, 0) for size, _ in SIZES), *(split for _, split in SIZES), *SPLITS])
_COMPARED = ((20, 0), (10, 10), (64, 0), (32, 32))
CASES = tuple(Case(head, tail, seed) for seed in SEEDS for head, tail in _SHAPES)

_RULES = (
    ("FCFS EASY", "fcfs+easy/skip"),
    ("SJF (cores) EASY", "smallest+easy/skip"),
    ("LCFS EASY", "lcfs+easy/skip"),
    ("SAF EASY", "saf+easy/skip"),
    ("SJF skip", "sjf/skip"),
)
_AIMED = ("wait_s", "queue_length")
_CLASSES = ("short_narrow", "short_wide", "long_narrow", "long_wide")


@dataclass(frozen=True)
class _Measured:
    """Figures of one scheduler by window, `[WINDOWS]` each, means over the seeds of its training."""

    label: str
    figures: dict[str, FloatArray]

    def cell(self, key: str, digits: int = 0, scale: float = 1.0) -> str:
        """Return the mean over windows and half of its 95% interval."""
        values = scale * self.figures[key]
        return f"{np.nanmean(values):.{digits}f} ± {_half(values):.{digits}f}"

    def average(self, key: str) -> float:
        """Return the mean over windows."""
        return float(self.figures[key].mean())

    def __str__(self) -> str:
        return f"{self.average('wait_s'):.0f} s / {self.average('queue_length'):.2f}"

    def mean(self, key: str, digits: int = 0, scale: float = 1.0) -> str:
        """Return the mean over windows that have such jobs."""
        return f"{scale * np.nanmean(self.figures[key]):.{digits}f}"


def _half(values: FloatArray) -> float:
    return float(_T_9 * np.nanstd(values, ddof=1) / np.sqrt(len(values)))


def windows_section(log: JobLog, folder: Path | None, table: Table) -> Iterator[str]:
    """Yield the lines of the section on Deep Back-Filling's setting.

    Args:
        log: `lublin_256`, of which ten windows of 1,000 jobs are judged.
        folder: of the agents that `fermata hpc windows` trained; without one the other policies stand alone.
        table: lays a head and rows out.

    Raises:
        InputError: an agent is missing.
        ModelError: a file is no window agent.
    """
    yield from (f"## Deep Back-Filling's setting: {WINDOWS} windows of {WINDOW_JOBS} jobs of {log.name}", "")
    yield "The machine is idle at first; means over the windows with half widths of 95% intervals (Student's, paired"
    yield from ("where it is a difference). Agents are trained on jobs of the model only.", "")
    rules = [_measure(log, label, [policy(name)]) for label, name in _RULES]
    queues = [_measure(log, f"`{name}`", [policy(name)]) for name in SHIPPED]
    agents = {} if folder is None else {shape: _agent(log, folder, *shape) for shape in _SHAPES}
    compared = [*rules, *(agents[shape] for shape in _COMPARED if agents), *queues]
    yield from _overview(compared, rules[-1], table)
    yield from _aims(rules, agents, queues, table)
    if agents:
        yield from _sizes(log, agents, table)
        yield from _splits(agents, table)
    yield from _classes(compared, table)
    if folder is not None:
        yield from _curves(folder, table)


def _agent(log: JobLog, folder: Path, head: int, tail: int) -> _Measured:
    cases = [case for case in CASES if (case.head, case.tail) == (head, tail)]
    paths = [folder / f"{case.name}.onnx" for case in cases]
    for path in paths:
        if not path.is_file():
            raise InputError(f"expected {path.name} in {folder}; fermata hpc windows trains what is missing")
    seeds = f", mean of {len(cases)} trainings" if len(cases) > 1 else ""
    return _measure(log, f"DBF, window {head} + {tail}{seeds}", [policy(f"{WINDOW}:{path}") for path in paths])


def _measure(log: JobLog, label: str, chosen: Sequence[Policy]) -> _Measured:
    drawn = Sequences(tuple(WINDOW_JOBS * window for window in range(WINDOWS)), WINDOW_JOBS)
    runs = [run_sequences(log, each, drawn) for each in chosen]
    found = {key: np.mean([[row[key] for row in rows] for rows in runs], axis=0) for key in runs[0][0]}
    agents = [each.model for each in chosen if isinstance(each.model, WindowModel)]
    if agents:
        found["stale"] = np.mean([stale_shares(log, each, drawn) for each in agents], axis=0)
    return _Measured(label, found)


def stale_shares(log: JobLog, model: WindowModel, drawn: Sequences) -> FloatArray:
    """Return the share of each sequence's time in which nothing in an agent's window fits, but another job does."""
    arrival, rules, shares = order("fcfs"), Rules(start=Start.SKIP), []
    for start in drawn.starts:
        cut, agent = log.sequence(start, drawn.jobs), model.agent()
        world = new_world(len(cut), int(cut.user.max()) + 1, cut.machine_cores)
        run_windowed(jobs_of(cut, arrival, rules), config_of(cut, arrival, rules), world, agent)
        end = float((world.start + cut.runtime_s).max())
        shares.append(agent.spent[STALE] / (end - cut.submit_s[0]))
    return np.array(shares)


def _overview(compared: Sequence[_Measured], yardstick: _Measured, table: Table) -> Iterator[str]:
    rows = []
    for each in compared:
        gap = each.figures["wait_s"] - yardstick.figures["wait_s"]
        used = each.figures["utilization"] - yardstick.figures["utilization"]
        rows.append(
            [
                each.label,
                each.cell("wait_s"),
                each.cell("queue_length", 2),
                each.mean("bsld", 1),
                each.mean("queue_load", 1),
                each.mean("utilization", 1, 100.0),
                each.mean("utilization_no_tail", 1, 100.0),
                f"{gap.mean():+.0f} ± {_half(gap):.0f}",
                f"{100 * used.mean():+.1f}",
            ]
        )
    beside = yardstick.label
    yield from table(
        (
            "policy",
            "wait, s",
            "queue length",
            "bsld",
            "work waiting, machine-hours",
            "utilisation %",
            "until the last submission %",
            f"wait less that of {beside}, s",
            f"utilisation less that of {beside}, points",
        ),
        rows,
    )


def _aims(
    rules: Sequence[_Measured], agents: dict[tuple[int, int], _Measured], queues: Sequence[_Measured], table: Table
) -> Iterator[str]:
    """Yield what was aimed at and whether it is reached."""
    gates = []
    if agents:
        best, dbf = [min(each.average(key) for each in rules[:3]) for key in _AIMED], agents[(32, 32)]
        what = f"DBF, window 32 + 32: below FCFS, SJF (cores) and LCFS EASY ({best[0]:.0f} s / {best[1]:.2f})"
        gates.append(
            Gate(what, str(dbf), all(dbf.average(key) < least for key, least in zip(_AIMED, best, strict=True)))
        )
        whole, parted = agents[(20, 0)], agents[(10, 10)]
        gaps = [100.0 * (parted.average(key) / whole.average(key) - 1.0) for key in _AIMED]
        told = f"{gaps[0]:+.0f}% / {gaps[1]:+.0f}%"
        gates.append(Gate("DBF, 10 + 10: wait and queue length 40% below head-only 20", told, max(gaps) <= -40.0))
    saf, sjf = rules[-2:]
    own = min(queues, key=lambda each: each.average("wait_s"))
    met = all(own.average(key) < sjf.average(key) for key in _AIMED)
    gates.append(Gate(f"policy over the queue: below SJF skip ({sjf})", f"{own} ({own.label})", met))
    points = [100.0 * (own.average("utilization") - each.average("utilization")) for each in (saf, sjf)]
    told = f"{points[0]:+.1f} of SAF EASY, {points[1]:+.1f} of SJF skip"
    gates.append(Gate("its utilisation: within a point", told, min(points) >= -POINT))
    yield from table(("aim", "figure", "met"), [gate.row for gate in gates])


def _sizes(log: JobLog, agents: dict[tuple[int, int], _Measured], table: Table) -> Iterator[str]:
    yield "Window sizes, head-only and split: agents, and for comparison the rule that starts the shortest job of its"
    yield "window. Stale is the share of the time in which nothing in the window fits while a job that is not in it"
    yield from ("would:", "")
    free_choice = Rules(start=Start.SKIP)
    rows = []
    for size, split in SIZES:
        shapes = ((size, 0), split)
        rules = [Policy("rule", order("fcfs"), free_choice, shortest_first(*shape)) for shape in shapes]
        for kind, (whole, parted) in (
            ("DBF", [agents[shape] for shape in shapes]),
            ("shortest first", [_measure(log, "", [rule]) for rule in rules]),
        ):
            saved = 100.0 * (parted.figures["wait_s"] - whole.figures["wait_s"]) / whole.figures["wait_s"].mean()
            cells = [
                cell
                for each in (whole, parted)
                for cell in (each.cell("wait_s"), each.cell("queue_length", 2), each.mean("stale", 1, 100.0))
            ]
            gap = f"{saved.mean():+.0f} ± {_half(saved):.0f}"
            rows.append([str(size), kind, *cells[:3], f"{split[0]} + {split[1]}", *cells[3:], gap])
    head = ("head-only: wait, s", "queue length", "stale %", "split", "wait, s", "queue length", "stale %")
    yield from table(("jobs seen", "agent", *head, "wait, split against head-only, %"), rows)


def _splits(agents: dict[tuple[int, int], _Measured], table: Table) -> Iterator[str]:
    yield from ("How a window of 20 is split:", "")
    rows = []
    for head, tail in SPLITS:
        each = agents[(head, tail)]
        rows.append(
            [
                f"{head} + {tail}",
                each.cell("wait_s"),
                each.cell("queue_length", 2),
                each.mean("bsld", 1),
                each.mean("stale", 1, 100.0),
                each.mean("utilization", 1, 100.0),
            ]
        )
    yield from table(("head + tail", "wait, s", "queue length", "bsld", "stale %", "utilisation %"), rows)


def _classes(compared: Sequence[_Measured], table: Table) -> Iterator[str]:
    yield from ("Wait by class of job, s (short: an hour or less; narrow: an eighth of the machine or less):", "")
    rows = [[each.label, *(each.mean(f"wait_{kind}_s") for kind in _CLASSES)] for each in compared]
    yield from table(("policy", *(kind.replace("_", " ") for kind in _CLASSES)), rows)


def _curves(folder: Path, table: Table) -> Iterator[str]:
    yield from ("Mean wait on the model's jobs that choose the best iteration, s, after so many iterations:", "")
    shown, rows = (0, 5, 10, 25, 50, 75, 100), []
    for case in CASES:
        curve = dict(load_window_model(str(folder / f"{case.name}.onnx")).curve)
        rows.append(
            [f"{case.head} + {case.tail}", str(case.seed), *(f"{curve[at]:.0f}" if at in curve else "" for at in shown)]
        )
    yield from table(("window", "seed", *map(str, shown)), rows)
