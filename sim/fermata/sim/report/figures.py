"""The drawings of a report. Each takes records, returns one SVG element, and thins out what no eye could tell apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from fermata.sim.report.compare import Difference, Figures
from fermata.sim.report.records import ExecutorSpan, Run
from fermata.sim.report.svg import GRID, INK, MUTED, PAPER, drawing, series_color, to_svg

_WIDTH = 460
_CDF_HEIGHT = 560
_GANTT_WIDTH = 1060
_MOST_POINTS = 400
_MOST_SPANS = 1500
_HATCH = "////"


def jct_cdf(runs: Sequence[Run]) -> str:
    """Draw which share of each run's jobs was done within which JCT."""
    with drawing(_WIDTH, _CDF_HEIGHT) as (figure, axes):
        for number, run in enumerate(runs):
            jct_s = np.sort([job.jct_s for job in run.jobs])
            share = np.arange(1, len(jct_s) + 1) / len(jct_s)
            keep = np.unique(np.linspace(0, len(jct_s) - 1, _MOST_POINTS).round().astype(int))
            color = series_color(number)
            axes.step(jct_s[keep], share[keep], where="post", color=color, linewidth=2, label=run.name)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds:g}"))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f}%"))
        axes.set_ylim(0, 1.02)
        axes.set_xlabel("JCT in seconds")
        axes.grid(axis="y")
        axes.legend(loc="lower right")
        return to_svg(figure, "cdf", "Share of jobs done within a JCT, by run")


def paired_differences(found: Sequence[Difference], runs: Sequence[Run], base: str) -> str:
    """Draw each job's JCT minus its JCT in the base, and the mean with its interval."""
    names = [run.name for run in runs]
    with drawing(_WIDTH, 60 + 85 * len(found)) as (figure, axes):
        for row, difference in enumerate(found):
            color = series_color(names.index(difference.name))
            jct_s = np.sort(difference.jct_s)
            shown = jct_s[np.unique(np.linspace(0, len(jct_s) - 1, _MOST_POINTS).round().astype(int))]
            # Spread by place in the order, not at random: the same report twice is the same text twice.
            offset = 0.1 + 0.3 * (np.arange(len(shown)) * 0.618034 % 1.0)
            axes.scatter(shown, row + offset, s=14, color=color, alpha=0.5, linewidths=0)
            mean_s, ci95_s = difference.mean_s
            axes.errorbar(mean_s, row - 0.12, xerr=ci95_s, color=INK, marker="D", markersize=6, capsize=5, linewidth=2)
            text = f"{_signed(mean_s, '.2f')} ± {ci95_s:.2f} s"
            axes.annotate(text, (mean_s, row - 0.2), ha="center", va="top", xytext=(0, -4), textcoords="offset points")
        axes.axvline(0.0, color=MUTED, linewidth=1)
        axes.set_yticks(range(len(found)), [difference.name for difference in found])
        axes.set_ylim(-0.6, len(found) - 0.45)
        # Most jobs differ little, a few by a long job's length: linear near 0, logarithmic beyond.
        axes.set_xscale("symlog", linthresh=1.0, linscale=0.7)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: _signed(seconds, "g") if seconds else "0"))
        axes.set_xlabel(f"JCT minus JCT under {base}, in seconds")
        axes.grid(axis="x")
        return to_svg(figure, "pairs", f"Differences of JCT to {base}, job by job, with means and intervals")


def jct_split(runs: Sequence[Run], figures: Sequence[Figures]) -> str:
    """Draw the mean JCT of each run as wait + held + run."""
    with drawing(_WIDTH, 95 + 38 * len(runs)) as (figure, axes):
        for row, (run, numbers) in enumerate(zip(runs, figures, strict=True)):
            color = series_color(list(runs).index(run))
            parts = (numbers.avg_wait_s, numbers.avg_held_s, numbers.avg_run_s)
            left_s = 0.0
            for width_s, look in zip(parts, _looks(color), strict=True):
                axes.barh(row, width_s, left=left_s, height=0.6, **look)
                left_s += width_s
            axes.annotate(
                f"{numbers.avg_jct_s:.2f} s", (left_s, row), xytext=(6, 0), textcoords="offset points", va="center"
            )
        axes.set_yticks(range(len(runs)), [run.name for run in runs])
        axes.invert_yaxis()
        axes.margins(x=0.14)
        axes.set_xlim(left=0.0)
        axes.set_xlabel("mean seconds a job")
        axes.grid(axis="x")
        handles = [Patch(label=name, **look) for name, look in zip(("wait", "held", "run"), _looks(MUTED), strict=True)]
        axes.legend(handles=handles, ncols=3, loc="lower left", bbox_to_anchor=(-0.02, 1.0), borderaxespad=0.2)
        return to_svg(figure, "split", "Mean JCT of each run, divided into wait, held and run")


def _signed(value: float, form: str) -> str:
    """Return a number with its sign, as it is set in print."""
    return format(value, f"+{form}").replace("-", "\N{MINUS SIGN}")


def _looks(color: str) -> tuple[dict[str, Any], ...]:
    """Return how wait, held and run look: the same three ways wherever they are drawn."""
    return (
        {"facecolor": GRID, "edgecolor": PAPER},
        {"facecolor": PAPER, "edgecolor": color, "hatch": _HATCH},
        {"facecolor": color, "edgecolor": PAPER},
    )


def gantt(runs: Sequence[Run]) -> str | None:
    """Draw what each executor did, holds hatched; None where no run tells.

    Of long runs the first part is drawn, up to a number of spans that can still be told apart.
    """
    told = [(number, run) for number, run in enumerate(runs) if run.spans]
    if not told:
        return None
    end_s = min(_cut_s(run.spans) for _, run in told)
    rows = sum(run.executors for _, run in told) + len(told) - 1
    with drawing(_GANTT_WIDTH, 80 + 24 * rows) as (figure, axes):
        top, ticks, labels = 0, [], []
        for number, run in told:
            _draw_lanes(axes, run.spans, top, end_s, series_color(number))
            ticks.append(top + (run.executors - 1) / 2)
            labels.append(run.name)
            top += run.executors + 1
        axes.set_yticks(ticks, labels)
        axes.set_ylim(top - 1.4, -0.6)
        axes.set_xlim(0.0, end_s)
        axes.set_xlabel("seconds from the first possible arrival")
        axes.grid(axis="x")
        handles = [
            Patch(label="a task runs", facecolor=MUTED, edgecolor=PAPER),
            Patch(label="left idle on purpose", facecolor=PAPER, edgecolor=MUTED, hatch=_HATCH),
        ]
        axes.legend(handles=handles, ncols=2, loc="lower left", bbox_to_anchor=(-0.01, 1.0), borderaxespad=0.2)
        return to_svg(figure, "gantt", "What each executor of each run did over time, with holds hatched")


def _cut_s(spans: Sequence[ExecutorSpan]) -> float:
    """Return the end of what is drawn."""
    if len(spans) <= _MOST_SPANS:
        return max(span.end_s for span in spans)
    return sorted(span.start_s for span in spans)[_MOST_SPANS]


def _draw_lanes(axes: Axes, spans: Sequence[ExecutorSpan], top: int, end_s: float, color: str) -> None:
    executors = sorted({span.executor for span in spans})
    _, held, run = _looks(color)
    for executor in executors:
        for kind, look in (("hold", held), ("run", run)):
            bars = [
                (span.start_s, min(span.end_s, end_s) - span.start_s)
                for span in spans
                if span.executor == executor and span.kind == kind and span.start_s < end_s
            ]
            if bars:
                axes.broken_barh(bars, (top + executor - 0.42, 0.84), linewidth=0.6, **look)
