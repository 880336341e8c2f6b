"""The page itself: numbers and drawings put into one HTML text that asks nothing of the network."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import jinja2
from markupsafe import Markup

from fermata.policy.errors import InputError
from fermata.sim.report import figures
from fermata.sim.report.compare import differences, figures_of
from fermata.sim.report.records import JobRecord, Report, Run

_MOST_ROWS = 1000


class _JobRow(NamedTuple):
    id: str
    arrival_s: float
    by_run: list[JobRecord | None]


def render(report: Report) -> str:
    """Return a report as one self-contained HTML page.

    Raises:
        InputError: a run has no finished job, or none is named as the base.
    """
    base = next((run for run in report.runs if run.name == report.base), None)
    if base is None:
        raise InputError(f"no run is called {report.base!r}; expected one of {[run.name for run in report.runs]}")
    numbers = [figures_of(run) for run in report.runs]
    others = [differences(run, base) for run in report.runs if run is not base]
    drawings = {
        "cdf": figures.jct_cdf(report.runs),
        "pairs": figures.paired_differences(others, report.runs, base.name) if others else None,
        "split": figures.jct_split(report.runs, numbers),
        "gantt": figures.gantt(report.runs),
    }
    return _template().render(
        report=report,
        rows=list(zip(report.runs, numbers, strict=True)),
        differences={difference.name: difference for difference in others},
        drawings={name: Markup(svg) for name, svg in drawings.items() if svg},  # noqa: S704 - our own, labels escaped
        jobs=_job_rows(report.runs, base),
        all_jobs=len(base.jobs),
    )


def write(report: Report, path: Path) -> None:
    """Write a report to a file.

    Raises:
        InputError: the file cannot be written, or the report is empty.
    """
    text = render(report)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write the report there: {error.strerror}", file=path) from error


def _template() -> jinja2.Template:
    text = resources.files(__package__).joinpath("page.html.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    return environment.from_string(text)


def _job_rows(runs: Sequence[Run], base: Run) -> list[_JobRow]:
    """Return the first jobs by arrival, each with what became of it in every run."""
    found = [{job.id: job for job in run.jobs} for run in runs]
    first = sorted(base.jobs, key=lambda job: (job.arrival_s, job.id))[:_MOST_ROWS]
    return [_JobRow(job.id, job.arrival_s, [jobs.get(job.id) for jobs in found]) for job in first]
