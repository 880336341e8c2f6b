"""What a page is made of: sections of runs to set side by side, chapters, and where all of it comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fermata.sim.report.drawing import Drawing
from fermata.sim.report.holds import HoldSummary
from fermata.sim.report.schedule import Schedule
from fermata.sim.trace import FloatArray


@dataclass(frozen=True)
class Run:
    """One policy: a schedule for each seed, or a single one."""

    name: str
    schedules: Sequence[Schedule]


@dataclass(frozen=True)
class Bound:
    """What the mean JCT over all jobs, the warm-up included, cannot go below: one value a schedule, seconds."""

    kind: str  # in words
    mean_s: FloatArray  # [schedules]


@dataclass(frozen=True)
class Sweep:
    """How figures move with one parameter of the workload; arrays are [points], but by run [points, seeds]."""

    kind: str  # "load" or "ratio"
    value: FloatArray
    arrivals_per_s: FloatArray
    jct_s: Mapping[str, FloatArray] = field(default_factory=dict)  # by run: mean JCT
    held_s: Mapping[str, FloatArray] = field(default_factory=dict)  # by run: mean held time a job
    note: str = ""  # what it was drawn with


@dataclass(frozen=True)
class Section:
    """The same arrivals under several policies, all compared with `base`."""

    name: str
    lead: str  # one paragraph: what ran
    runs: Sequence[Run]
    base: str  # name of the run that the others are compared with
    units: Sequence[str] = ("",)  # [schedules] what tells the schedules of a run apart
    unit: str = "seed"  # what a unit is
    bound: Bound | None = None
    holds: Mapping[str, HoldSummary] = field(default_factory=dict)  # by run
    sweeps: Sequence[Sweep] = ()
    notes: Sequence[str] = ()  # what is left out of it, and why


@dataclass(frozen=True)
class Table:
    """Words and numbers, ready to be read; the first column is text."""

    title: str
    note: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    folded: bool = False  # shown when asked for


@dataclass(frozen=True)
class Chapter:
    """What is said beside the runs, such as what a model learned: drawings and tables as they are."""

    name: str
    lead: str
    drawings: Sequence[Drawing]
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Report:
    """A page."""

    title: str
    lead: str
    sections: Sequence[Section]
    caveats: Sequence[str] = ()  # what the reader must know before believing a number
    provenance: Mapping[str, str] = field(default_factory=dict)
    chapters: Sequence[Chapter] = ()
