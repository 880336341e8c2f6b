"""The results page: every table of rigid jobs, from the logs in a folder, as Markdown.

Bounded slowdown never stands without wait: the first alone is gamed by idling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fermata.policy.errors import FermataError, InputError
from fermata.sim.hpc.estimates import with_estimates
from fermata.sim.hpc.experiment import Sequences, draw_sequences, pooled, published_sequences, run_sequences
from fermata.sim.hpc.gates import (
    INSPECTOR,
    POINT,
    QUEUE_POLICY,
    RESERVATION,
    RULE,
    Gate,
    Point,
    front_gate,
    lublin_gates,
    reservation_gates,
    slowdown_gates,
    utilisation_gate,
)
from fermata.sim.hpc.inspect import MAX_REJECTIONS, PICKS, REJECT_IF_BLOCKED, Inspector, rule_inspector
from fermata.sim.hpc.jobs import JobLog
from fermata.sim.hpc.models import InspectorModel, load_model
from fermata.sim.hpc.orders import ORDERS
from fermata.sim.hpc.policies import QUEUE, WINDOW, policy
from fermata.sim.hpc.queue_models import SHIPPED, load_queue_model
from fermata.sim.hpc.study import LOGS, expect_inspectors, study_section
from fermata.sim.hpc.swf import Cleaning, read_log
from fermata.sim.hpc.tune import Tuned, best_reservation, try_reservations
from fermata.sim.hpc.window_study import read_agents, windows_gates, windows_section

COUNT, JOBS, SEED = 50, 256, 1
YARDSTICK = "saf+easy/skip"
EASY_BASES = ("saf+easy/skip", "p2q+easy/skip")
WAIT_RATIOS = (1.05, 1.15, float("inf"))
_SLOWDOWN_AIMS = {"SDSC-SP2-recon": 2.40, "CTC-SP2-recon": 1.26}  # what a reservation for slowdown alone got
PUBLISHED, TEST = "published", "test"
_BLOCKED, _FREELY = "reject-blocked", "reject-blocked freely"  # labels of rules beside SJF
# Rules that stand in every log's table, as they are named there.
RULES = {
    "SJF, commit, no backfilling": "published-sjf",
    "SJF + published backfilling, commit": "published-sjf-backfill",
    "SAF + published backfilling, commit": "published-saf-backfill",
    "FCFS EASY": "fcfs+easy/skip",
    "SAF strict": "saf/strict",
    "SAF EASY": YARDSTICK,
    "SAF conservative": "saf+conservative/skip",
    "p² q EASY": "p2q+easy/skip",
    "SJF skip": "sjf/skip",
    "Slurm multifactor EASY": "multifactor+easy/skip",
}
UNLIMITED = 10_000  # rejections: more than any job has

Row = dict[str, float]
Say = Callable[[str], object]


@dataclass(frozen=True)
class Study:
    """One log with what is measured on it: the published draws, and sequences of the test part."""

    log: JobLog
    published: Sequences
    test: Sequences
    tuned: tuple[Tuned, ...]
    measured: dict[tuple[str, str], list[Row]] = field(default_factory=dict)

    def rows(self, draws: str, name: str, inspector: Inspector | None = None, label: str = "") -> list[Row]:
        """Return the figures of a policy on `published` or `test` sequences; `label` names the inspector beside it."""
        key = (draws, label or name)
        if key not in self.measured:
            sequences = self.published if draws == PUBLISHED else self.test
            self.measured[key] = run_sequences(self.log, policy(name), sequences, inspector)
        return self.measured[key]

    def cells(self, name: str, inspector: Inspector | None = None, label: str = "") -> list[str]:
        """Return the cells of a policy: slowdown and wait on both sets of sequences."""
        return [
            cell
            for draws in (PUBLISHED, TEST)
            for cell in _bsld_and_wait(*pooled(self.rows(draws, name, inspector, label)))
        ]

    def point(self, draws: str, name: str, kind: str, model: InspectorModel | None = None, label: str = "") -> Point:
        """Return what a policy got, for the gates."""
        rows = self.rows(draws, name, None if model is None else model.inspector(self.log), label)
        means = pooled(rows)[0]
        lost = _points(self.rows(draws, model.policy if model else YARDSTICK), rows)[0]
        trained_on = load_queue_model(name).trained_on if kind == QUEUE_POLICY else ""
        base = model.policy if model else ""
        shown = label or (Path(name).name if kind == QUEUE_POLICY else name)
        return Point(shown, kind, means["bsld"], means["wait_s"], base, trained_on, lost)


def _bsld_and_wait(means: Row, halves: Row) -> list[str]:
    return [f"{means['bsld']:.2f} ± {halves['bsld']:.2f}", f"{means['wait_s']:.0f} ± {halves['wait_s']:.0f}"]


def _points(before: Sequence[Row], after: Sequence[Row]) -> tuple[float, float]:
    """Return the mean difference of utilisation in percentage points, pairwise by sequence, and half its interval."""
    pairs = [{"points": 100.0 * (b["utilization"] - a["utilization"])} for a, b in zip(before, after, strict=True)]
    means, halves = pooled(pairs)
    return means["points"], halves["points"]


def results_page(data: Path, inspectors: Path | None, study: Path | None, windows: Path | None, say: Say) -> str:
    """Return the page.

    Args:
        data: folder of `lublin_256.swf.xz`, `SDSC-SP2-recon.swf.xz` and `CTC-SP2-recon.swf.xz`.
        inspectors: folder of models that `fermata hpc train` wrote: each inspector is put beside its scheduler on
            every log, and each `queue-*.onnx` beside the policies over the queue that ship.
        study: folder of the inspectors that `fermata hpc study` wrote; its tables are left out without one.
        windows: folder of the agents that `fermata hpc windows` wrote, likewise.
        say: told what is being measured.

    Raises:
        InputError: a log is missing, or an inspector of the study, or all agents.
        ModelError: a file of a folder is none of its kind.
    """
    # What lacks is told now, not when all else is measured.
    for name in LOGS:
        _path(data, name)
    if study is not None:
        expect_inspectors(study)
    if windows is not None:
        read_agents(windows)
    models, queues = _models(inspectors), _queues(inspectors)
    studies = []
    for name in LOGS:
        say(f"tuning reservations on {name}")
        studies.append(_study(data, name))
    parts: list[str] = []
    gates: list[Gate] = []
    for each in studies:
        say(f"measuring {each.log.name}")
        parts.append("\n".join(_log_section(each, models, queues)))
        gates += _log_gates(each, models, queues)
    say("measuring wrong estimates, orders and windows")
    lines, found = _estimates_section(data, studies, queues)
    parts.append("\n".join(lines))
    gates += [*found, *windows_gates(studies[0].log)]
    parts.append("\n".join(_orders_section(studies[0])))
    parts.append("\n".join(windows_section(studies[0].log, windows, markdown_table)))
    parts.insert(0, "\n".join((_HEAD, *_gates_section(gates))))
    if study is not None:
        say("measuring SchedInspector's evaluation")
        judged = {each.log.name: (each.log, each.test) for each in studies}
        parts.append("\n".join(study_section(study, judged, markdown_table)))
    return "\n\n".join(parts) + "\n"


_HEAD = f"""# Results on rigid jobs

<!-- Generated by fermata hpc report. -->

    make results-hpc DATA=DIR      # a folder with the three logs; measures everything on this page anew

Most of the time goes into training; what is trained already is kept. The same seed of PPO (Deep Back-Filling's agents,
`ppo-sjf`, SchedInspector's study) is another agent on another processor: see [Rigid jobs](hpc.md#where-it-loses).

Bounded slowdown (bsld, threshold 10 s) and wait, means of {COUNT} sequences of {JOBS} jobs with half widths of 95%
intervals. *Published draws* are the sequences that SchedInspector's published evaluation draws with seed {SEED}, from
the whole log; *test* are {COUNT} sequences of the last 80% of the log, seed {SEED}. Tuning and training saw the first
20% only, or jobs of the model, but for the lengths that reservations try, quantiles of all the log's estimates. The
machine is idle at first; estimates are the run times unless said. The SDSC and CTC logs are reconstructions: compare
with this page, not with the papers. Fifty sequences are few: two policies may differ by a tenth by chance, and bsld, of
which a few sequences make most, has intervals that are rather too narrow
([six hundred](hpc.md#six-hundred-sequences)).
"""


def _path(data: Path, name: str) -> Path:
    path = data / f"{name}.swf.xz"
    if not path.is_file():
        raise InputError(f"expected {path.name} in {data}")
    return path


def _models(folder: Path | None) -> list[tuple[str, InspectorModel]]:
    if folder is None:
        return []
    paths = [path for path in sorted(folder.glob("*.onnx")) if not path.name.startswith((QUEUE, WINDOW))]
    for path in paths:
        if path.stem in (_BLOCKED, _FREELY) or _is_policy(path.stem):
            told = "an inspector is told by the name of its file, and this is the name of a policy; give it another one"
            raise InputError(told, file=path)
    return [(path.stem, load_model(path)) for path in paths]


def _is_policy(name: str) -> bool:
    try:
        policy(name)
    except FermataError:
        return False
    return True


def _queues(folder: Path | None) -> list[str]:
    """Return the names of the policies over the queue: what ships, then what the folder has."""
    own = [] if folder is None else [str(path) for path in sorted(folder.glob(f"{QUEUE}*.onnx"))]
    return [*SHIPPED, *own]


def _queue_label(name: str, log: JobLog) -> str:
    trained_on = load_queue_model(name).trained_on
    carried = "" if trained_on == log.name else f", carried over from {trained_on}"
    return f"**policy over the queue** `{Path(name).name}`{carried}"


def exact_log(data: Path, name: str) -> JobLog:
    """Return a log of a folder as SchedInspector's loader reads it, with estimates that are the run times.

    Raises:
        InputError: it is not there.
    """
    return read_log(_path(data, name), Cleaning.SCHEDINSPECTOR).with_exact_estimates()


def _study(data: Path, name: str) -> Study:
    log = exact_log(data, name)
    training = draw_sequences(log, COUNT, JOBS, SEED, part="train")
    tried = try_reservations(log, training)
    tuned = tuple(best_reservation(tried, ratio) for ratio in WAIT_RATIOS)
    test = draw_sequences(log, COUNT, JOBS, SEED, part="test")
    return Study(log, published_sequences(log, COUNT, JOBS, SEED), test, tuned)


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, and an empty one."""
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)
    yield ""


def _log_section(study: Study, models: list[tuple[str, InspectorModel]], queues: list[str]) -> Iterator[str]:
    yield from (f"## {study.log.name}, {study.log.machine_cores} cores", "")
    rows = [[label, *study.cells(name)] for label, name in RULES.items()]
    blocked, freely = (rule_inspector(PICKS, REJECT_IF_BLOCKED, limit) for limit in (MAX_REJECTIONS, UNLIMITED))
    rows[1:1] = [
        [
            f"`sjf`, rejecting a head that does not fit, {MAX_REJECTIONS} times at most",
            *study.cells("sjf", blocked, _BLOCKED),
        ],
        ["`sjf`, as often as it does not fit", *study.cells("sjf", freely, _FREELY)],
    ]
    for tuned, ratio in zip(study.tuned, WAIT_RATIOS, strict=True):
        allowed = "for bsld alone" if np.isinf(ratio) else f"wait ≤ {ratio:g} of SAF EASY in tuning"
        rows.append([f"reservation, {allowed}: `{tuned.policy.name}`", *study.cells(tuned.policy.name)])
    for name, model in models:
        rows.append([_label(name, model, study.log), *study.cells(model.policy, model.inspector(study.log), name)])
    rows += [[_queue_label(name, study.log), *study.cells(name)] for name in queues]
    yield from markdown_table(("policy", "published draws: bsld", "wait, s", "test: bsld", "wait, s"), rows)
    yield from _utilisation(study, models, queues)


def _log_gates(study: Study, models: list[tuple[str, InspectorModel]], queues: list[str]) -> Iterator[Gate]:
    """Yield what was aimed at on a log: on the published draws, and what concerns the front on the test too."""
    log = study.log.name
    for draws in (PUBLISHED, TEST):
        # The gate's reservation is the one tuned to wait about as long as SAF EASY, the first.
        reservations = [each.policy.name for each in study.tuned]
        points = [study.point(draws, name, RULE) for name in RULES.values()]
        points += [study.point(draws, name, RESERVATION) for name in reservations]
        points += [study.point(draws, model.policy, INSPECTOR, model, name) for name, model in models]
        points += [study.point(draws, name, QUEUE_POLICY) for name in queues]
        where = f"{log}, {draws}"
        if log == LOGS[0] and draws == PUBLISHED:
            yield from lublin_gates({each.name: each for each in points})
        if log != LOGS[0]:
            yield from reservation_gates(log, points, where)
        if draws == PUBLISHED and log in _SLOWDOWN_AIMS:
            yield from slowdown_gates(log, points, where, _SLOWDOWN_AIMS[log])
        yield front_gate(where, points, SHIPPED)
        if draws == TEST:
            yield utilisation_gate(where, points, SHIPPED)


def _gates_section(gates: Sequence[Gate]) -> Iterator[str]:
    yield from ("", "## What was aimed at", "")
    yield "Bsld / wait in s, the published draws unless said. Waits within 3% count as equal. What concerns Deep"
    yield "Back-Filling's own agent, and speed (engine, inspection, training), is in [performance](performance.md) and"
    yield from ("[Rigid jobs](hpc.md); the 2,400 published rows are compared in the tests.", "")
    yield from markdown_table(("aim", "figure", "reached"), [gate.row for gate in gates])


def _label(name: str, model: InspectorModel, log: JobLog) -> str:
    carried = "" if model.trained_on == log.name else f", carried over from {model.trained_on}"
    limit = "" if model.max_rejections == MAX_REJECTIONS else f", {model.max_rejections} rejections at most"
    return f"inspector `{name}` of {model.scope} on `{model.policy}`{limit}{carried}"


def _utilisation(study: Study, models: list[tuple[str, InspectorModel]], queues: list[str]) -> Iterator[str]:
    """Yield what holding does to utilisation: beside the inspected scheduler, or beside the yardstick."""
    compared: list[tuple[str, str, str, Inspector | None]] = [
        (name, model.policy, model.policy, model.inspector(study.log)) for name, model in models
    ]
    compared += [(name, YARDSTICK, name, None) for name in queues]
    rows = []
    for label, before, after, inspector in compared:
        without, beside = study.rows(TEST, before), study.rows(TEST, after, inspector, label)
        base, found = pooled(without)[0], pooled(beside)[0]
        change, half = _points(without, beside)
        rows.append(
            [
                f"`{Path(label).name}`",
                before,
                f"{100 * base['utilization']:.1f} → {100 * found['utilization']:.1f}",
                f"{change:+.1f} ± {half:.1f}" if change < -POINT else f"**{change:+.1f} ± {half:.1f}**",
                f"{100 * base['utilization_no_tail']:.1f} → {100 * found['utilization_no_tail']:.1f}",
                f"{base['mbsld']:.0f} → {found['mbsld']:.0f}",
                f"{base['max_wait_s'] / 3600:.0f} → {found['max_wait_s'] / 3600:.0f}",
            ]
        )
    yield "What holding costs; in bold what stays within a point of utilisation. Intervals of pairwise differences."
    yield ""
    head = ("test", "beside", "utilisation %", "points", "until the last submission %", "max bsld", "longest wait, h")
    yield from markdown_table(head, rows)


def _estimates_section(data: Path, studies: list[Study], queues: list[str]) -> tuple[list[str], list[Gate]]:
    """Return the tables of wrong estimates, and whether the policies over the queue beat the reservation there."""
    rows: list[list[str]] = []
    gates: list[Gate] = []
    for study in studies:
        given = read_log(_path(data, study.log.name), Cleaning.SCHEDINSPECTOR)
        kinds = ("round", "lognormal:0.7") if study.log.name.startswith("lublin") else ("user", "lognormal:0.7")
        for kind in kinds:
            believed = with_estimates(given, kind, SEED)
            training = draw_sequences(believed, COUNT, JOBS, SEED, part="train")
            tried = try_reservations(believed, training, bases=EASY_BASES)
            tuned = best_reservation(tried, 1.15).policy.name
            points = []
            for label, name, is_a in (
                ("FCFS EASY", "fcfs+easy/skip", RULE),
                ("SAF EASY", YARDSTICK, RULE),
                ("SAF conservative", "saf+conservative/skip", RULE),
                (f"reservation `{tuned}`", tuned, RESERVATION),
                *((_queue_label(name, study.log), name, QUEUE_POLICY) for name in queues),
            ):
                means, halves = pooled(run_sequences(believed, policy(name), study.test))
                rows.append([study.log.name, f"`{kind}`", label, *_bsld_and_wait(means, halves)])
                trained_on = load_queue_model(name).trained_on if is_a == QUEUE_POLICY else ""
                shown = Path(name).name if is_a == QUEUE_POLICY else name
                points.append(Point(shown, is_a, means["bsld"], means["wait_s"], "", trained_on))
            gates += reservation_gates(study.log.name, points, f"{study.log.name}, test, `{kind}`")
    table = markdown_table(("log", "estimates", "policy", "bsld", "wait, s"), rows)
    return ["## Wrong estimates", "", *_ESTIMATES, "", *table], gates


_ESTIMATES = (
    "Test sequences. `user` are the estimates in the log (two logs have some); `round` are up to five times the",
    "run time, rounded up to what users type; `lognormal:0.7` is wrong on both sides. Reservations are tuned",
    "again, on the first 20% with the same estimates, wait at most 1.15 of SAF EASY.",
)


def _orders_section(study: Study) -> Iterator[str]:
    yield from (f"## All orders, {study.log.name}, test: bsld / wait in s", "")
    kinds = ("", "/skip", "+easy", "+easy/skip", "+conservative/skip")
    rows = []
    for name in ORDERS:
        cells = [name]
        for kind in kinds:
            means = pooled(run_sequences(study.log, policy(name + kind), study.test))[0]
            cells.append(f"{means['bsld']:.1f} / {means['wait_s']:.0f}")
        rows.append(cells)
    head = ("order", "commit", "skip", "EASY, commit", "EASY, skip", "conservative, skip")
    yield from markdown_table(head, rows)
