"""The drawings of JCTs: distributions, paired differences, where the time goes, and how it moves with the workload.

Each takes records and returns a `Drawing`, and thins out what no eye could tell apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from fermata.sim.metrics import decimals, mean_ci95
from fermata.sim.report.drawing import (
    SERIES,
    Drawing,
    Palette,
    canvas,
    from_zero,
    in_lines,
    legend_above,
    legend_label,
    legend_room,
    room_for,
    shortened,
    with_hidden,
)
from fermata.sim.report.numbers import SAME, Difference, plural
from fermata.sim.report.records import Run, Sweep
from fermata.sim.trace import FloatArray

UNKNOWN = "\N{EN DASH}"
_WIDTH = 430
_CDF_HEIGHT, _TAIL_HEIGHT = 360, 260
_SWEEP_WIDTH, _SWEEP_HEIGHT = 340, 290
_MOST_POINTS, _MOST_DOTS = 200, 150
_LEGEND = 26  # letters in a line of a legend
_MARKERS = "Dos"  # the next one where the colours are used up
_ROUNDING = 1e-6  # of the linear part: what is less is no difference


def _some_of(values: FloatArray, number: int) -> FloatArray:
    """Return at most so many of sorted values, evenly, both ends included."""
    some: FloatArray = values[_places(len(values), number)]
    return some


def _places(length: int, number: int = _MOST_POINTS) -> Any:
    return np.unique(np.linspace(0, length - 1, number).round().astype(int))


def signed(value: float, form: str) -> str:
    """Return a number with its sign, as it is set in print; a dash where it is unknown."""
    return UNKNOWN if math.isnan(value) else format(value, f"+{form}").replace("-", "\N{MINUS SIGN}")


def in_seconds(value: float | None, places: int = 2) -> str:
    """Return a number of seconds, whole from a thousand on; a dash where it is unknown.

    >>> in_seconds(12.345), in_seconds(12345.6), in_seconds(0.0092, decimals(0.0092))
    ('12.35', '12,346', '0.00920')
    """
    if value is None or math.isnan(value):
        return UNKNOWN
    return f"{value:,.{places}f}" if abs(value) < 1000.0 else f"{value:,.0f}"


def _power(value: float) -> str:
    """Return the label of a tick, as short as it goes: 1e6 rather than 1e+06."""
    return f"{value:g}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")


def _log_seconds(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: _power(seconds)))
    axes.xaxis.set_minor_locator(NullLocator())
    low, high = axes.get_xlim()
    subs = (1.0, 2.0, 5.0) if high < 500.0 * low else (1.0,)
    axes.xaxis.set_major_locator(LogLocator(subs=subs, numticks=7))  # more decades than that have long numbers


def jct_cdf(runs: Sequence[Run]) -> Drawing:
    """Draw which share of each run's jobs was done within which JCT, warm-ups left out."""
    columns = [np.sort(np.concatenate([each.jct_s[each.warm :] for each in run.schedules])) for run in runs]
    labels = [legend_label(in_lines(run.name, _LEGEND)) for run in runs]

    def draw(palette: Palette) -> Figure:
        figure, axes = canvas(_WIDTH, _CDF_HEIGHT + legend_room(labels, 0.9 * _WIDTH))
        for number, (label, jct_s) in enumerate(zip(labels, columns, strict=True)):
            place = _places(len(jct_s))
            # From nothing up: a single job's step is to be seen, too.
            jct, share = np.append(jct_s[0], jct_s[place]), np.append(0.0, (place + 1) / len(jct_s))
            axes.step(jct, share, where="post", **palette.line(number), linewidth=2, label=label)
        _log_seconds(axes)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f}%"))
        axes.set_ylim(0, 1.02)
        axes.set_xlabel("JCT in seconds")
        axes.grid(axis="y")
        legend_above(axes, 0.9 * _WIDTH)
        return figure

    return Drawing(
        "jct-cdf",
        "JCT, cumulative",
        with_hidden(
            "Which share of the jobs is done within so long. Higher and further left is better.",
            dict(zip((run.name for run in runs), columns, strict=True)),
        ),
        "Share of jobs done within a JCT, by run",
        draw,
    )


def jct_tail(runs: Sequence[Run]) -> Drawing:
    """Draw which share of each run's jobs took longer than a JCT, both logarithmic: what the slowest pay."""
    columns = [np.sort(np.concatenate([each.jct_s[each.warm :] for each in run.schedules])) for run in runs]

    def draw(palette: Palette) -> Figure:
        figure, axes = canvas(_WIDTH, _TAIL_HEIGHT)
        for number, jct_s in enumerate(columns):
            # Evenly in the logarithm of the share, since that is how it is drawn.
            place = len(jct_s) - np.unique(np.geomspace(1, len(jct_s), _MOST_POINTS).round().astype(int))[::-1]
            share = (len(jct_s) - place) / len(jct_s)
            # And from the last job down to nothing, which lies below the drawing.
            jct, share = np.append(jct_s[place], jct_s[-1]), np.append(share, share[-1] / 10)
            axes.step(jct, share, where="pre", **palette.line(number), linewidth=2)
        axes.set_yscale("log")
        axes.set_ylim(0.6 / max(map(len, columns)), 1.3)
        _log_seconds(axes)
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}%"))
        axes.set_xlabel("JCT in seconds")
        axes.grid(axis="y")
        return figure

    return Drawing(
        "jct-tail",
        "JCT, the tail",
        with_hidden(
            "Which share of the jobs takes at least so long. Lower and further left is better.",
            dict(zip((run.name for run in runs), columns, strict=True)),
        ),
        "Share of jobs that take longer than a JCT, by run, logarithmic",
        draw,
    )


def paired_differences(found: Sequence[Difference], names: Sequence[str], base: str) -> Drawing:
    """Draw each job's JCT minus its JCT in the base, and the mean with both its intervals.

    Args:
        found: a row each.
        names: of all runs in the order of the report, for their colours.
        base: name of the run that they are compared with.
    """
    # Most jobs differ little, a few by a long job's length: linear near 0, logarithmic beyond.
    base_s = max(each.base_s for each in found)
    linear_s = 10.0 ** math.ceil(math.log10(SAME * base_s)) if base_s > 0.0 else 1.0

    def draw(palette: Palette) -> Figure:
        figure, axes = canvas(_WIDTH, 70 + 88 * len(found))
        # Before anything is drawn: the room beyond the farthest dot is a share of what is seen.
        axes.set_xscale("symlog", linthresh=linear_s, linscale=0.7)
        for row, each in enumerate(found):
            _draw_difference(axes, row, each, palette.run(list(names).index(each.name)), palette)
        # A view of one value is singular, and what is drawn later is not seen in it.
        axes.update_datalim([(0.0, 0.0)], updatey=False)
        if max(np.abs(axes.xaxis.get_data_interval())) < _ROUNDING * linear_s:
            axes.set_xlim(-linear_s, linear_s)
        axes.axvline(0.0, color=palette.muted, linewidth=1)
        axes.set_yticks(range(len(found)), [in_lines(each.name) for each in found])
        axes.set_ylim(len(found) - 0.35, -0.6)
        axes.xaxis.set_major_locator(FixedLocator(_signed_powers(axes.get_xlim(), linear_s)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: _signed_power(seconds)))
        axes.set_xlabel("difference of JCT in seconds")
        axes.grid(axis="x")
        return figure

    many = max(len(each.jct_s) for each in found) > _MOST_DOTS
    dots = f"Each dot stands for 1/{_MOST_DOTS} of the jobs" if many else "A dot is a job"
    intervals = (
        f"; its bar is Student's 95% interval, the band under it the bootstrap's, both over {found[0].units} "
        f"{plural(found[0])}"
    )
    return Drawing(
        "paired-differences",
        f"Job by job against {base}",
        f"{dots}, faster to the left. The diamond is the mean{intervals if found[0].units > 1 else ''}. "
        f"Beyond {_power(linear_s)} s the scale is logarithmic. "
        "Jobs within 1% of the base's mean JCT are neither faster nor slower.",
        f"Differences of JCT to {base}, job by job, with means{' and intervals' if found[0].units > 1 else ''}",
        draw,
    )


def _draw_difference(axes: Axes, row: int, each: Difference, color: str, palette: Palette) -> None:
    shown = _some_of(np.sort(each.jct_s), _MOST_DOTS)
    # Spread by place in the order, not at random: the same report twice is the same text twice.
    offset = -0.1 - 0.3 * (np.arange(len(shown)) * 0.618034 % 1.0)
    axes.scatter(shown, row + offset, s=12, color=color, alpha=0.5, linewidths=0)
    mean_s, t95_s, low_s, high_s = each.seconds
    axes.plot([low_s, high_s], [row + 0.12] * 2, color=color, linewidth=9, alpha=0.35, solid_capstyle="butt")
    axes.errorbar(mean_s, row + 0.12, xerr=t95_s, color=palette.ink, marker="D", markersize=5, capsize=4, linewidth=1.6)
    shares = f"{100 * each.faster:.0f}% faster, {100 * each.slower:.0f}% slower"
    places = decimals(each.base_s)
    spread = f" ± {in_seconds(t95_s, places)}" if each.units > 1 else ""
    sign = "\N{MINUS SIGN}" if mean_s < 0.0 else "+"
    text = f"{sign}{in_seconds(abs(mean_s), places)}{spread} s; {shares}"
    patch = {"facecolor": palette.paper, "edgecolor": "none", "pad": 1.0}  # or the line at zero would cross the words
    # In the middle of the axes: around zero, where all jobs are slower, the words would lie on the run's name.
    at, of = (0.5, row + 0.2), axes.get_yaxis_transform()
    axes.annotate(text, at, (0, -4), xycoords=of, textcoords="offset points", ha="center", va="top", bbox=patch)


def _signed_power(value: float) -> str:
    sign = "\N{MINUS SIGN}" if value < 0.0 else "+"
    return f"{sign}{_power(abs(value))}" if value else "0"


def _signed_powers(limits: tuple[float, float], linear: float) -> list[float]:
    """Return the ticks of a symmetric logarithmic axis that is linear up to a power of ten: at most seven."""
    last = math.floor(math.log10(max(np.abs(limits))))
    first = min(round(math.log10(linear)), last)  # all of it may lie in the linear part
    ticks = [10.0**power for power in range(last, first - 1, -max((last - first + 3) // 3, 1))]
    return [-tick for tick in ticks if -tick >= limits[0]] + [0.0] + [tick for tick in ticks if tick <= limits[1]]


def jct_split(names: Sequence[str], figures: Sequence[Mapping[str, float]]) -> Drawing:
    """Draw the mean JCT of each run as wait + held + run.

    Args:
        names: of the runs.
        figures: of the runs, with `avg_wait_s`, `avg_held_s`, `avg_run_s` and `avg_jct_s`.
    """
    places = decimals(min(numbers["avg_jct_s"] for numbers in figures))

    def draw(palette: Palette) -> Figure:
        figure, axes = canvas(_WIDTH, 95 + room_for(names, 36) * len(names))
        for row, numbers in enumerate(figures):
            left_s = 0.0
            for key, look in zip(("wait", "held", "run"), palette.looks(palette.run(row)), strict=True):
                width_s = numbers[f"avg_{key}_s"]
                axes.barh(row, width_s, left=left_s, height=0.6, **look)
                left_s += width_s
            text = f"{in_seconds(numbers['avg_jct_s'], places)} s"
            axes.annotate(text, (left_s, row), xytext=(6, 0), textcoords="offset points", va="center")
        axes.set_yticks(range(len(names)), list(map(in_lines, names)))
        axes.invert_yaxis()
        axes.margins(x=0.16)
        axes.set_xlim(left=0.0)
        axes.locator_params(axis="x", nbins=5)  # of a mean of days each is six digits wide
        axes.set_xlabel("mean seconds a job")
        axes.grid(axis="x")
        looks = zip(("wait", "held", "run"), palette.looks(palette.muted), strict=True)
        handles = [Patch(label=name, **look) for name, look in looks]
        axes.legend(handles=handles, ncols=3, loc="lower left", bbox_to_anchor=(-0.02, 1.0), borderaxespad=0.2)
        return figure

    return Drawing(
        "split",
        "Where the time goes",
        "Wait: too few executors were free. Held: enough were free, and left so. Run: a task ran.",
        "Mean JCT of each run, divided into wait, held and run",
        draw,
    )


def change_overview(rows: Sequence[tuple[str, str, Difference]], names: Sequence[str], base: str) -> Drawing:
    """Draw the change of mean JCT, in percent, of every run in every section.

    Args:
        rows: section, run and difference.
        names: of all runs in the order of the report, for their colours.
        base: what they are compared with, in words.
    """
    sections = list(dict.fromkeys(section for section, _, _ in rows))
    others = list(dict.fromkeys(run for _, run, _ in rows))
    legend = legend_room(list(map(shortened, others)), _WIDTH * 1.3)

    def draw(palette: Palette) -> Figure:
        figure, axes = canvas(_WIDTH * 1.6, 70 + legend + (10 + 17 * len(others)) * len(sections))
        for section, run, each in rows:
            row = sections.index(section) + 0.72 * ((others.index(run) + 0.5) / len(others) - 0.5)
            number = list(names).index(run)
            color, marker = palette.run(number), _MARKERS[number // SERIES % len(_MARKERS)]
            _, t95, low, high = each.percent
            axes.plot([low, high], [row, row], color=color, linewidth=7, alpha=0.35, solid_capstyle="butt")
            label = legend_label(shortened(run)) if section == sections[0] else None
            style: dict[str, Any] = {"marker": marker, "markersize": 5, "capsize": 3, "linewidth": 1.5}
            axes.errorbar(each.percent.mean, row, xerr=t95, color=color, label=label, linestyle="none", **style)
        axes.axvline(0.0, color=palette.muted, linewidth=1)
        axes.set_yticks(range(len(sections)), [in_lines(name, _LEGEND) for name in sections])
        axes.set_ylim(len(sections) - 0.5, -0.5)
        axes.set_xlabel(f"change of mean JCT against {shortened(base)}, percent")
        axes.grid(axis="x")
        legend_above(axes, _WIDTH * 1.3)
        return figure

    return Drawing(
        "overview",
        "Change of mean JCT",
        "Left of zero is faster. Thin bars are Student's 95% intervals, bands the bootstrap's.",
        "Change of mean JCT of every run in every workload",
        draw,
        wide=True,
    )


def jct_against_load(sweep: Sweep, names: Sequence[str]) -> Drawing:
    """Draw the mean JCT of every run over the load."""
    return Drawing(
        "jct-load",
        "JCT against load",
        with_hidden(f"Mean JCT{_over_seeds(sweep)}. {sweep.note}", sweep.jct_s),
        "Mean JCT of every run over the load",
        _curves(sweep.value, sweep.jct_s, names, "load", "mean JCT in seconds", log=True),
        sweep=True,
    )


def held_against_rate(sweep: Sweep, names: Sequence[str]) -> Drawing:
    """Draw the mean held time of every run over the arrival rate."""
    return Drawing(
        "held-rate",
        "Held time against arrival rate",
        with_hidden(
            f"Mean held time a job{_over_seeds(sweep)}; the same episodes as JCT against load.",
            sweep.held_s,
        ),
        "Mean held time of every run over the arrival rate",
        _curves(60.0 * sweep.arrivals_per_s, sweep.held_s, names, "arrivals a minute", "held seconds a job"),
        sweep=True,
    )


def held_against_ratio(sweep: Sweep, names: Sequence[str]) -> Drawing:
    """Draw the mean held time of every run over the ratio of long to short jobs."""
    label = "size of long jobs over short ones"
    return Drawing(
        "held-ratio",
        "Held time against size ratio",
        with_hidden(f"Mean held time a job{_over_seeds(sweep)}. {sweep.note}", sweep.held_s),
        "Mean held time of every run over the ratio of sizes",
        _curves(sweep.value, sweep.held_s, names, label, "held seconds a job"),
        sweep=True,
    )


def _over_seeds(sweep: Sweep) -> str:
    """Return what the bands are, where there are some: a single seed has none."""
    single = all(points.shape[1] == 1 for points in sweep.jct_s.values())
    return "" if single else ", with 95% intervals over seeds"


def _curves(
    x: FloatArray, by_run: Mapping[str, FloatArray], names: Sequence[str], x_label: str, y_label: str, log: bool = False
) -> Callable[[Palette], Figure]:
    shown = {name: legend_label(in_lines(name, _LEGEND)) for name in names if name in by_run}

    def draw(palette: Palette) -> Figure:
        figure, axes = canvas(_SWEEP_WIDTH, _SWEEP_HEIGHT + legend_room(list(shown.values()), 0.9 * _SWEEP_WIDTH))
        for number, name in enumerate(names):
            if name not in shown:
                continue
            intervals = [mean_ci95(row) for row in by_run[name]]
            mean, ci95 = np.array([each.mean for each in intervals]), np.array([each.ci95 for each in intervals])
            low = np.maximum(mean - ci95, mean * 0.2) if log else np.maximum(mean - ci95, 0.0)
            axes.fill_between(x, low, mean + ci95, color=palette.run(number), alpha=0.18, linewidth=0)
            style = {**palette.line(number), "marker": "o", "markersize": 4.5, "linewidth": 2, "label": shown[name]}
            axes.plot(x, mean, **style)
        if log:
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.yaxis.set_minor_locator(NullLocator())
        else:
            from_zero(axes.yaxis)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _power(value)))
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.grid(axis="y")
        legend_above(axes, 0.9 * _SWEEP_WIDTH)
        return figure

    return draw
