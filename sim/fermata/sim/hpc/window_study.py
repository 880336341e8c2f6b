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

from fermata.policy.errors import InputError
from fermata.sim.hpc.experiment import Sequences
from fermata.sim.hpc.gates import POINT, QUEUE_POLICY, Gate, Point, utilisation_gate
from fermata.sim.hpc.jobs import JobLog
from fermata.sim.hpc.lublin import generate
from fermata.sim.hpc.orders import order
from fermata.sim.hpc.policies import WINDOW, Policy, policy
from fermata.sim.hpc.queue_models import SHIPPED
from fermata.sim.hpc.rules import Rules, Start
from fermata.sim.hpc.window_measure import Measured, change, half_width, measure
from fermata.sim.hpc.window_models import WindowModel, shortest_first
from fermata.sim.trace import FloatArray

Shape = tuple[int, int]  # head and tail
Table = Callable[[Sequence[str], Sequence[Sequence[str]]], Iterator[str]]

# Every agent is trained on jobs of the Lublin-Feitelson model, so none has seen what it is judged on.
TRAINING_JOBS, TRAINING_SEED, TRAINING_LOAD = 120_000, 701, 1.06
SEEDS = (0, 1, 2)
WINDOWS, WINDOW_JOBS = 10, 1000
# Ten windows are few where two of them make the difference: the same comparison on many of other jobs of the model.
MORE_WINDOWS, MORE_SEED = 400, 702
LONGER = (1, 2, 5, 10)  # windows put together to one


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
SIZES = ((10, (5, 5)), (20, (10, 10)), (32, (16, 16)), (64, (32, 32)))
SPLITS = ((20, 0), (15, 5), (10, 10), (5, 15))
AIMED_PAIR = ((20, 0), (10, 10))
SHAPES: tuple[Shape, ...] = tuple(
    dict.fromkeys([*((size, 0) for size, _ in SIZES), *(split for _, split in SIZES), *SPLITS])
)
_COMPARED = ((10, 0), (5, 5), (20, 0), (10, 10), (64, 0), (32, 32))
CASES = tuple(Case(*shape, seed) for seed in SEEDS for shape in (SHAPES if seed == SEEDS[0] else AIMED_PAIR))

_RULES = (
    ("FCFS EASY", "fcfs+easy/skip"),
    ("SJF (cores) EASY", "smallest+easy/skip"),
    ("LCFS EASY", "lcfs+easy/skip"),
    ("SAF EASY", "saf+easy/skip"),
    ("SJF skip", "sjf/skip"),
)
_AIMED = ("wait_s", "queue_length")
_AIMED_CHANGE = -40.0  # %
_QUEUES = "policy over the queue"
_CLASSES = ("short_narrow", "short_wide", "long_narrow", "long_wide")
_SHOWN_ITERATIONS = (0, 5, 10, 20, 30, 40, 50, 60)


def windows_section(log: JobLog, folder: Path | None, table: Table) -> Iterator[str]:
    """Yield the lines of the section on Deep Back-Filling's setting.

    Args:
        log: `lublin_256`, of which ten windows of 1,000 jobs are judged.
        folder: of the agents that `fermata hpc windows` trained; those that are not there yet are named and left out.
            Without one the other policies stand alone.
        table: lays a head and rows out.

    Raises:
        InputError: there is no agent at all.
        ModelError: a file is no window agent.
    """
    yield from (f"## Deep Back-Filling's setting: {WINDOWS} windows of {WINDOW_JOBS} jobs of {log.name}", "")
    yield "The machine is idle at first; means over the windows with half widths of 95% intervals (Student's, paired"
    yield "where it is a difference). Agents are trained on jobs of the model only; those of 20 + 0 and 10 + 10"
    yield from (f"{len(SEEDS)} times, and their figures are means of these trainings.", "")
    drawn = _windows()
    rules = [measure(log, label, [policy(name)], drawn) for label, name in _RULES]
    queues = [measure(log, f"`{name}`", [policy(name)], drawn) for name in SHIPPED]
    if folder is None:
        yield from _overview([*rules, *queues], rules[-1], table)
        yield from table(("aim", "figure", "met"), [gate.row for gate in queue_gates(_QUEUES, rules, queues)])
        yield from _classes([*rules, *queues], table)
        return
    chosen = read_agents(folder)
    missing = [f"`{case.name}`" for case in CASES if case.seed not in chosen.get((case.head, case.tail), {})]
    if missing:
        yield from (f"Not trained yet, and left out: {', '.join(missing)}.", "")
    agents = {shape: _measure_agent(log, each, shape, drawn) for shape, each in chosen.items()}
    compared = [*rules, *(agents[shape] for shape in _COMPARED if shape in agents), *queues]
    more_log, more_drawn = generate(MORE_WINDOWS * WINDOW_JOBS, MORE_SEED, load=TRAINING_LOAD), _windows(MORE_WINDOWS)
    pair = {shape: chosen[shape] for shape in AIMED_PAIR} if set(AIMED_PAIR) <= set(chosen) else {}
    more = {shape: _measure_agent(more_log, each, shape, more_drawn) for shape, each in pair.items()}
    yield from _overview(compared, rules[-1], table)
    gates = [*_agent_gates(rules, agents, more), *queue_gates(_QUEUES, rules, queues)]
    more_queues = [measure(more_log, f"`{name}`", [policy(name)], more_drawn) for name in SHIPPED]
    more_yardsticks = [measure(more_log, label, [policy(name)], more_drawn) for label, name in _RULES[-2:]]
    gates += queue_gates(f"the same on {MORE_WINDOWS} windows of other jobs of the model", more_yardsticks, more_queues)
    yield from table(("aim", "figure", "met"), [gate.row for gate in gates])
    yield "Window sizes, head-only and split: agents, and for comparison the rule that starts the shortest job of its"
    yield "window. Stale is the share of the time in which nothing in the window fits while a job that is not in it"
    yield "would; Fwd the share of decisions, which are asked for when something fits, that leave it where it is. The"
    yield from ("change's interval is that of a ratio of means.", "")
    yield from _sizes(log, agents, drawn, table)
    if pair:
        more_rules = {shape: measure(more_log, "", [_rule(*shape)], more_drawn) for shape in AIMED_PAIR}
        yield from _more(tuple(pair[AIMED_PAIR[0]]), agents, more, more_rules, table)
        yield from _one_by_one(log, agents, table)
        yield from _longer(log, pair, table)
    yield from _splits(agents, table)
    yield from _classes(compared, table)
    yield from _curves(chosen, table)


def _windows(many: int | None = None, together: int = 1) -> Sequences:
    """Return windows one after the other, or so many put together to one."""
    jobs = WINDOW_JOBS * together
    return Sequences(tuple(jobs * window for window in range((many or WINDOWS) // together)), jobs)


def read_agents(folder: Path) -> dict[Shape, dict[int, Policy]]:
    """Return the agents of a folder by shape and seed; of the pair that is aimed at, the seeds that both have.

    Raises:
        InputError: there is none at all.
        ModelError: a file is no window agent.
    """
    found: dict[Shape, dict[int, Policy]] = {}
    for case in CASES:
        path = folder / f"{case.name}.onnx"
        if path.is_file():
            found.setdefault((case.head, case.tail), {})[case.seed] = policy(f"{WINDOW}:{path}")
    if not found:
        raise InputError(f"expected {CASES[0].name}.onnx and others in {folder}; fermata hpc windows trains them")
    whole, parted = (found.get(shape, {}) for shape in AIMED_PAIR)
    for seed in whole.keys() ^ parted.keys() if whole and parted else ():
        (whole if seed in whole else parted).pop(seed)
    return {shape: each for shape, each in found.items() if each}


def _measure_agent(log: JobLog, chosen: dict[int, Policy], shape: Shape, drawn: Sequences) -> Measured:
    return measure(log, f"DBF, window {shape[0]} + {shape[1]}", list(chosen.values()), drawn)


def _rule(head: int, tail: int) -> Policy:
    return Policy("rule", order("fcfs"), Rules(start=Start.SKIP), shortest_first(head, tail))


def _overview(compared: Sequence[Measured], yardstick: Measured, table: Table) -> Iterator[str]:
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
                f"{gap.mean():+.0f} ± {half_width(gap):.0f}",
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


def _agent_gates(
    rules: Sequence[Measured], agents: dict[Shape, Measured], more: dict[Shape, Measured]
) -> Iterator[Gate]:
    """Yield what was aimed at for the agents and whether it is reached."""
    if (32, 32) in agents:
        best, dbf = [min(each.average(key) for each in rules[:3]) for key in _AIMED], agents[(32, 32)]
        what = f"DBF, window 32 + 32: below FCFS, SJF (cores) and LCFS EASY ({best[0]:.0f} s / {best[1]:.2f})"
        below = all(dbf.average(key) < least for key, least in zip(_AIMED, best, strict=True))
        yield Gate(what, str(dbf), below)
    if more:
        yield _split_gate("DBF, 10 + 10: wait and queue length 40% below head-only 20", agents)
        yield _split_gate(f"the same on {MORE_WINDOWS} windows of other jobs of the model", more)


def windows_gates(log: JobLog) -> Iterator[Gate]:
    """Yield what was aimed at for policies over the queue on windows of many jobs of a log."""
    drawn, which = _windows(), f"windows of {WINDOW_JOBS}"
    saf, sjf = (measure(log, label, [policy(name)], drawn) for label, name in _RULES[-2:])
    own = {name: measure(log, f"`{name}`", [policy(name)], drawn) for name in SHIPPED}
    yield from queue_gates(which, (saf, sjf), list(own.values()))
    points = []
    for name, found in own.items():
        bsld, wait_s, used = (found.average(key) for key in ("bsld", "wait_s", "utilization"))
        points.append(Point(name, QUEUE_POLICY, bsld, wait_s, points=100.0 * (used - saf.average("utilization"))))
    yield utilisation_gate(which, points, SHIPPED)


def queue_gates(which: str, rules: Sequence[Measured], queues: Sequence[Measured]) -> Iterator[Gate]:
    """Yield whether one policy over the queue both waits less than SJF skip and keeps the machine as busy.

    Args:
        which: what the first gate is called.
        rules: of which SAF EASY and SJF skip are the last two.
        queues: the policies over the queue, on the same windows.
    """
    yardsticks = rules[-2:]

    def points(own: Measured) -> list[float]:
        return [100.0 * (own.average("utilization") - each.average("utilization")) for each in yardsticks]

    busy = [each for each in queues if min(points(each)) >= -POINT]
    own, sjf = min(busy or queues, key=lambda each: each.average("wait_s")), yardsticks[-1]
    met = all(own.average(key) < sjf.average(key) for key in _AIMED)
    yield Gate(f"{which}: below SJF skip ({sjf})", f"{own} ({own.label})", met)
    told = ", ".join(f"{each:+.1f} of {base.label}" for each, base in zip(points(own), yardsticks, strict=True))
    yield Gate("its utilisation: within a point", told, bool(busy))


def _split_gate(what: str, agents: dict[Shape, Measured]) -> Gate:
    whole, parted = (agents[shape] for shape in AIMED_PAIR)
    found = [change(whole.figures[key], parted.figures[key]) for key in _AIMED]
    told = " / ".join(f"{mean:+.0f} ± {half:.0f}%" for mean, half in found)
    return Gate(what, told, max(mean for mean, _ in found) <= _AIMED_CHANGE)


def _sizes(log: JobLog, agents: dict[Shape, Measured], drawn: Sequences, table: Table) -> Iterator[str]:
    rows = []
    for size, split in SIZES:
        shapes = ((size, 0), split)
        pairs = {"shortest first": [measure(log, "", [_rule(*shape)], drawn) for shape in shapes]}
        if all(shape in agents for shape in shapes):
            pairs = {"DBF": [agents[shape] for shape in shapes], **pairs}
        for kind, (whole, parted) in pairs.items():
            cells = [
                cell
                for each in (whole, parted)
                for cell in (
                    each.cell("wait_s"),
                    each.cell("queue_length", 2),
                    f"{each.mean('stale', 1, 100.0)} / {each.mean('fwd', 1, 100.0)}",
                )
            ]
            gap = _gap(whole.figures, parted.figures)
            rows.append([str(size), kind, *cells[:3], f"{split[0]} + {split[1]}", *cells[3:], gap])
    columns = ("wait, s", "queue length", "stale / Fwd %")
    head = ("jobs seen", "agent", "head-only: " + columns[0], *columns[1:], "split", *columns)
    yield from table((*head, "wait, split against head-only, %"), rows)


def _gap(whole: dict[str, FloatArray], parted: dict[str, FloatArray]) -> str:
    mean, half = change(whole["wait_s"], parted["wait_s"])
    return f"{mean:+.0f} ± {half:.0f}"


def _more(
    seeds: Sequence[int],
    agents: dict[Shape, Measured],
    more: dict[Shape, Measured],
    more_rules: dict[Shape, Measured],
    table: Table,
) -> Iterator[str]:
    """Yield the pair that is aimed at, training by training, and on many windows."""
    yield "The window of 20, training by training, wait in s; then all of it, and the rule, on"
    yield from (f"{MORE_WINDOWS} windows of other jobs of the model (seed {MORE_SEED}):", "")
    rows = []
    for number, seed in enumerate(seeds):
        for what, found in (("these", agents), (f"{MORE_WINDOWS} more", more)):
            rows.append(_pair(f"DBF, seed {seed}", what, [found[shape].trainings[number] for shape in AIMED_PAIR]))
    rows.sort(key=lambda row: row[1] != "these")
    for kind, found in (("DBF", more), ("shortest first", more_rules)):
        rows.append(_pair(kind, f"{MORE_WINDOWS} more", [found[shape].figures for shape in AIMED_PAIR]))
    yield from table(("agent", "windows", "20 + 0", "10 + 10", "change, %"), rows)
    draws = [each["wait_s"].reshape(-1, WINDOWS).mean(axis=1) for each in (more[shape].figures for shape in AIMED_PAIR)]
    changes = np.sort(100.0 * (draws[1] / draws[0] - 1.0))
    enough = f"{(changes <= _AIMED_CHANGE).sum()} of {len(changes)} draws"
    yield f"Taken {WINDOWS} at a time, DBF's split saves {-_AIMED_CHANGE:.0f}% or more in {enough};"
    yield from (f"the median of their changes is {np.median(changes):+.0f}%, the least {changes[-1]:+.0f}%.", "")


def _pair(kind: str, what: str, pair: Sequence[dict[str, FloatArray]]) -> list[str]:
    waits = [each["wait_s"] for each in pair]
    return [kind, what, *(f"{each.mean():.0f} ± {half_width(each):.0f}" for each in waits), _gap(*pair)]


def _one_by_one(log: JobLog, agents: dict[Shape, Measured], table: Table) -> Iterator[str]:
    """Yield the judged windows: where the head goes stale, and where there is nothing to gain."""
    yield from ("Window by window: work submitted by the machine's cores until the last submission, and wait in s:", "")
    whole, parted = (agents[shape].figures for shape in AIMED_PAIR)
    rows = []
    for number, start in enumerate(_windows().starts):
        jobs = log.sequence(start, WINDOW_JOBS)
        load = float(jobs.runtime_s @ jobs.cores) / (log.machine_cores * (jobs.submit_s[-1] - jobs.submit_s[0]))
        waits = [each["wait_s"][number] for each in (whole, parted)]
        cells = [f"{start}", f"{load:.2f}", f"{100.0 * whole['stale'][number]:.1f}", *(f"{wait:.0f}" for wait in waits)]
        rows.append([*cells, f"{100.0 * (waits[1] / waits[0] - 1.0):+.0f}"])
    yield from table(("first job", "load", "20 + 0 stale %", "20 + 0", "10 + 10", "change, %"), rows)


def _longer(log: JobLog, chosen: dict[Shape, dict[int, Policy]], table: Table) -> Iterator[str]:
    """Yield what becomes of the window of 20 when the machine is not emptied after every window."""
    yield "The same jobs in longer windows, of which the machine is idle at the start only; wait in s of the agents and"
    yield from ("of the rule:", "")
    rows = []
    for together in LONGER:
        drawn = _windows(together=together)
        cells = [f"{len(drawn.starts)} of {drawn.jobs}"]
        trained = [list(chosen[shape].values()) for shape in AIMED_PAIR]
        for policies in (trained, [[_rule(*shape)] for shape in AIMED_PAIR]):
            whole, parted = (measure(log, "", each, drawn).average("wait_s") for each in policies)
            cells += [f"{whole:.0f}", f"{parted:.0f}", f"{100.0 * (parted / whole - 1.0):+.0f}"]
        rows.append(cells)
    columns = ("20 + 0", "10 + 10", "change, %")
    yield from table(("windows", f"DBF {columns[0]}", *columns[1:], f"shortest first {columns[0]}", *columns[1:]), rows)


def _splits(agents: dict[Shape, Measured], table: Table) -> Iterator[str]:
    yield from ("How a window of 20 is split:", "")
    rows = []
    for shape in SPLITS:
        if shape not in agents:
            continue
        each = agents[shape]
        rows.append(
            [
                f"{shape[0]} + {shape[1]}",
                each.cell("wait_s"),
                each.cell("queue_length", 2),
                each.mean("bsld", 1),
                each.mean("stale", 1, 100.0),
                each.mean("utilization", 1, 100.0),
            ]
        )
    yield from table(("head + tail", "wait, s", "queue length", "bsld", "stale %", "utilisation %"), rows)


def _classes(compared: Sequence[Measured], table: Table) -> Iterator[str]:
    yield from ("Wait by class of job, s (short: an hour or less; narrow: an eighth of the machine or less):", "")
    rows = [[each.label, *(each.mean(f"wait_{kind}_s") for kind in _CLASSES)] for each in compared]
    yield from table(("policy", *(kind.replace("_", " ") for kind in _CLASSES)), rows)


def _curves(chosen: dict[Shape, dict[int, Policy]], table: Table) -> Iterator[str]:
    yield "Mean wait on the model's jobs that choose the best iteration, s, after so many iterations; of several"
    yield from ("trainings their mean, least and most:", "")
    rows = []
    for (head, tail), policies in chosen.items():
        models = [each.model for each in policies.values()]
        curves = [dict(model.curve) for model in models if isinstance(model, WindowModel)]
        cells = []
        for at in _SHOWN_ITERATIONS:
            waits = [curve[at] for curve in curves if at in curve]
            spread = f" ({min(waits):.0f}-{max(waits):.0f})" if len(waits) > 1 else ""
            cells.append(f"{np.mean(waits):.0f}{spread}" if waits else "")
        rows.append([f"{head} + {tail}", *cells])
    yield from table(("window", *map(str, _SHOWN_ITERATIONS)), rows)
