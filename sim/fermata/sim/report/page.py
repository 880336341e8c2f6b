"""The page itself: numbers and drawings put into one HTML text that asks nothing of the network."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from fermata.policy.errors import InputError
from fermata.sim.files import atomic_output
from fermata.sim.metrics import decimals
from fermata.sim.report import figures, timelines
from fermata.sim.report.drawing import Drawing
from fermata.sim.report.holds import HoldSummary
from fermata.sim.report.numbers import (
    ClassRow,
    Difference,
    above_bound_percent,
    class_rows,
    difference,
    plural,
    run_figures,
)
from fermata.sim.report.records import Report, Run, Section

_MOST_ROWS = 1000

Progress = Callable[[float], object]


class _JobRow(NamedTuple):
    id: str
    arrival_s: float
    by_run: list[tuple[float, float] | None]  # JCT and held time


class RunRow(NamedTuple):
    """A run in numbers."""

    number: int  # its place, which is its colour
    run: Run
    figures: Mapping[str, Any]
    difference: Difference | None  # None: it is the base
    above_bound: float | None  # percent


@dataclass(frozen=True)
class SectionView:
    """A section with everything that follows from it."""

    section: Section
    anchor: str
    rows: Sequence[RunRow]
    classes: Sequence[ClassRow]
    drawings: Sequence[Drawing]
    holds: Sequence[tuple[int, str, HoldSummary]]
    jobs: Sequence[_JobRow]

    @property
    def decimals(self) -> int:
        """With how many decimals its seconds are told."""
        return decimals(min(row.figures["avg_jct_s"] for row in self.rows))

    @property
    def knows_slowdown(self) -> bool:
        """Whether any run has a slowdown: of what ran in a cluster nobody knows the ideal time."""
        return any(not math.isnan(row.figures["avg_bounded_slowdown"]) for row in self.rows)

    @property
    def change(self) -> Difference | None:
        """The first run's difference; None where there is only the base."""
        return next((row.difference for row in self.rows if row.difference is not None), None)

    @property
    def all_jobs(self) -> int:
        """Number of jobs of the first schedule."""
        return len(_base_of(self.section).schedules[0].arrival_s)


def _base_of(section: Section) -> Run:
    for run in section.runs:
        if run.name == section.base:
            return run
    raise InputError(f"no run is called {section.base!r}; expected one of {[run.name for run in section.runs]}")


def view_of(section: Section, *, with_jobs: bool) -> SectionView:
    """Compute a section's numbers and prepare its drawings.

    Args:
        section: what ran.
        with_jobs: list every job of the first schedule.

    Raises:
        InputError: a run has no finished job, none in common with the base, or none is named as the base.
    """
    base, names = _base_of(section), [run.name for run in section.runs]
    numbers = [run_figures(run) for run in section.runs]
    others = {run.name: difference(run, base, section.unit) for run in section.runs if run is not base}
    rows = [
        RunRow(
            number=number,
            run=run,
            figures=found,
            difference=others.get(run.name),
            above_bound=None if section.bound is None else above_bound_percent(run, section.bound.mean_s),
        )
        for number, (run, found) in enumerate(zip(section.runs, numbers, strict=True))
    ]
    drawings = [figures.jct_cdf(section.runs), figures.jct_tail(section.runs)]
    if others:
        drawings.append(figures.paired_differences(list(others.values()), names, base.name))
    drawings.append(figures.jct_split(names, numbers))
    drawings += _timelines(section)
    for sweep in section.sweeps:
        if sweep.kind == "load":
            drawings += [figures.jct_against_load(sweep, names), figures.held_against_rate(sweep, names)]
        else:
            drawings.append(figures.held_against_ratio(sweep, names))
    return SectionView(
        section=section,
        anchor=_slug(section.name),
        rows=rows,
        classes=class_rows(section.runs, base),
        drawings=drawings,
        holds=[(names.index(name), name, found) for name, found in section.holds.items() if found.count],
        jobs=_job_rows(section.runs, base) if with_jobs else [],
    )


def anchors_of(names: Sequence[str]) -> list[str]:
    """Return what links on the page call sections and chapters; what would be called alike gets a number.

    >>> anchors_of(["What my-model (v2) learned", "syn_80", "Syn 80"])
    ['what-my-model-v2-learned', 'syn-80', 'syn-80-2']
    """
    found: list[str] = []
    for name in names:
        anchor = slug = _slug(name)
        number = 1
        while anchor in found:
            number += 1
            anchor = f"{slug}-{number}"
        found.append(anchor)
    return found


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "section"


def _timelines(section: Section) -> list[Drawing]:
    """Draw the first schedule of every run over time."""
    first = [(run.name, run.schedules[0]) for run in section.runs]
    unit = f"{section.unit.capitalize()} {section.units[0]}." if section.units[0] else ""
    told = [(number, *each) for number, each in enumerate(first) if len(each[1].tasks.start_s)]
    if not told:
        return [timelines.queue_and_utilisation(first, range(len(first)), None, unit)]
    colors, with_tasks = [number for number, _, _ in told], [(name, schedule) for _, name, schedule in told]
    window = timelines.busiest_window(with_tasks)
    why = ""
    if any(len(each.holds.start_s) for _, each in with_tasks):
        why = ", where most is held"
    elif any((each.start_s > each.arrival_s).any() for _, each in with_tasks):
        why = ", where most jobs wait"
    places = 0 if (length_s := window.end_s - window.start_s) >= 10.0 else decimals(length_s)
    from_s, to_s = (figures.in_seconds(time_s, places) for time_s in window)
    part = unit if timelines.shows_all(window, with_tasks) else f"{unit} From {from_s} s to {to_s} s{why}."
    return [
        timelines.gantt(with_tasks, colors, window, part.strip()),
        timelines.queue_and_utilisation(first, range(len(first)), window, unit),
    ]


def overview_of(views: Sequence[SectionView]) -> Drawing | None:
    """Draw all sections' changes against their bases together; None for a single section."""
    rows = [(view.section.name, row.run.name, row.difference) for view in views for row in view.rows if row.difference]
    if len(views) < 2 or not rows:
        return None
    bases = {view.section.base for view in views}
    names = list(dict.fromkeys(run.name for view in views for run in view.section.runs))
    return figures.change_overview(rows, names, bases.pop() if len(bases) == 1 else "the base")


def render(report: Report, progress: Progress = lambda _: None) -> str:
    """Return a report as one self-contained HTML page.

    Args:
        report: what to show.
        progress: told the share that is drawn, 0 to 1.

    Raises:
        InputError: a run has no finished job, or none is named as the base.
    """
    views = views_of(report)
    overview = overview_of(views)
    anchors = _chapter_anchors(report, views)
    left = [(view.anchor, drawing) for view in views for drawing in view.drawings]
    for anchor, chapter in zip(anchors, report.chapters, strict=True):
        left += [(anchor, drawing) for drawing in chapter.drawings]
    drawn: dict[tuple[str, str], Markup] = {}
    for done, (anchor, drawing) in enumerate(left, 1):
        drawn[anchor, drawing.name] = Markup(drawing.svg(f"f{done}"))  # noqa: S704 - our own, labels escaped
        progress(done / len(left))
    return _template().render(
        report=report,
        views=views,
        anchors=anchors,
        drawn=drawn,
        overview=overview,
        overview_svg=Markup(overview.svg("f0")) if overview is not None else "",  # noqa: S704 - as above
    )


def views_of(report: Report) -> list[SectionView]:
    """Compute all sections.

    Raises:
        InputError: there is none, and no chapter, or one cannot be computed.
    """
    if not report.sections and not report.chapters:
        raise InputError("nothing to report on")
    alone = len(report.sections) == 1 and len(report.sections[0].units) == 1
    anchors = anchors_of([section.name for section in report.sections])
    views = [view_of(section, with_jobs=alone) for section in report.sections]
    return [replace(view, anchor=anchor) for view, anchor in zip(views, anchors, strict=True)]


def _chapter_anchors(report: Report, views: Sequence[SectionView]) -> list[str]:
    return anchors_of([*(view.anchor for view in views), *(chapter.name for chapter in report.chapters)])[len(views) :]


def write(report: Report, path: Path, progress: Progress = lambda _: None) -> None:
    """Write a report to a file.

    Raises:
        InputError: the file cannot be written, or the report is empty.
    """
    text = render(report, progress)
    with atomic_output(path) as stream:
        # A file's name need not be text, and is shown as standard output shows it.
        stream.write(text.encode("utf-8", "backslashreplace"))


def write_figures(report: Report, folder: Path, progress: Progress = lambda _: None) -> list[Path]:
    """Write every figure of a report as SVG and PNG, and return the paths.

    Files of several sections are told apart by the section's name in front.

    Raises:
        InputError: the folder cannot be made or written, or the report is empty.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder: {error.strerror or error}", file=folder) from error
    views = views_of(report)
    overview = overview_of(views)
    left = [(f"{view.anchor}-" if len(views) > 1 else "", drawing) for view in views for drawing in view.drawings]
    for anchor, chapter in zip(_chapter_anchors(report, views), report.chapters, strict=True):
        left += [(f"{anchor}-", drawing) for drawing in chapter.drawings]
    if overview is not None:
        left.append(("", overview))
    paths: list[Path] = []
    for done, (prefix, drawing) in enumerate(left, 1):
        paths += drawing.save(folder, prefix)
        progress(done / len(left))
    return paths


def _template() -> jinja2.Template:
    text = resources.files(__package__).joinpath("page.html.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {"seconds": figures.in_seconds, "signed": figures.signed, "short": _short}
    environment.globals |= {"plural": plural}
    return environment.from_string(text)


def _short(value: float | None, form: str = ".2f") -> str:
    return figures.UNKNOWN if value is None or math.isnan(value) else format(value, form)


def _job_rows(runs: Sequence[Run], base: Run) -> list[_JobRow]:
    """Return the first jobs by arrival, each with what became of it in every run."""
    found = [
        dict(
            zip(
                run.schedules[0].job_ids,
                zip(run.schedules[0].jct_s.tolist(), run.schedules[0].held_s.tolist(), strict=True),
                strict=True,
            )
        )
        for run in runs
    ]
    first = base.schedules[0]
    return [
        _JobRow(job, arrival_s, [jobs.get(job) for jobs in found])
        for job, arrival_s in zip(first.job_ids[:_MOST_ROWS], first.arrival_s[:_MOST_ROWS].tolist(), strict=True)
    ]
