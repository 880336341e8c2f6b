"""The drawings of what a model learned; each takes plain numbers and returns a `Drawing`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from fermata.policy.learned import ACTIONS
from fermata.sim.explain.dependence import Curve
from fermata.sim.explain.distributions import Distribution, cumulative
from fermata.sim.explain.explanation import Behaviour
from fermata.sim.explain.importance import Importance
from fermata.sim.metrics import Interval
from fermata.sim.report.drawing import Drawing, Palette, canvas, from_zero, in_lines, room_for

_WIDTH, _HEIGHT = 430, 330
_WIDE, _PANEL_HEIGHT, _PANELS_A_ROW = 1060, 215, 4
_MOST_PANELS, _MOST_BARS = 8, 12
# Series 0 is grey: all states, and starting the head; 2 stands for the hold wherever it is drawn.
_ALL, _OTHER, _HELD = 0, 1, 2
_NEXT = "next completion / length of the head"
_RATIOS = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0, 10000.0)
# What is not log(1 + ratio); everything else that `fermata.policy.features` writes is.
LINEAR = frozenset(
    {
        "free share",
        "busy executors with the head's job, share",
        "alternative exists",
        "load by recent arrivals",
        "share of arrivals under half a unit",
        "share of arrivals up to 2 units",
        "share of arriving work over 2 units",
        "mean arrival under half a unit / unit",
        "head's task / unit",
        "head's path / unit",
        "executors held by other jobs with less left, share",
        "stages left of the head's job are one task",
        "active jobs with a stage of more than one task, share",
        "error of recent estimates",
        "arrivals like the head that one of under half a unit follows, share",
        "misses of recent estimates",
        "busy executors with the alternative's job, share",
        "head's path / longest path left of its job",
        "busy executors and startable stages of jobs of several tasks, share",
    }
)
_PLAIN_LOGARITHMS = frozenset({"log executors", "log free executors"})


def _percent(value: float, _: object = None) -> str:
    return f"{100 * value:.0f}%"


def _bars(rows: Sequence[tuple[str, Interval]], label: str, *, shares: bool) -> Callable[[Palette], Figure]:
    scale, color = (100.0, _OTHER) if shares else (1.0, _HELD)

    def draw(palette: Palette) -> Figure:
        pitch = 31 if any("\n" in _short(name) for name, _ in rows) else 21
        figure, axes = canvas(_WIDTH, 60 + pitch * len(rows))
        for row, (_, (mean, ci95)) in enumerate(rows):
            axes.barh(row, scale * mean, height=0.62, color=palette.run(color), alpha=0.8)
            if math.isfinite(ci95):
                axes.errorbar(scale * mean, row, xerr=scale * ci95, color=palette.ink, capsize=3, linewidth=1.3)
        axes.axvline(0.0, color=palette.muted, linewidth=1)
        if shares:  # an interval may go below none and beyond all, a share cannot
            from_zero(axes.xaxis)
            axes.set_xlim(right=min(axes.get_xlim()[1], scale))
        axes.set_yticks(range(len(rows)), [_short(name) for name, _ in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlabel(label)
        axes.grid(axis="x")
        return figure

    return draw


def _short(name: str, most: int = 36) -> str:
    """Return a feature's name in at most two lines."""
    if len(name) <= most:
        return name
    cut = name.rfind(" ", 0, len(name) // 2 + 6)
    return f"{name[:cut]}\n{name[cut + 1 :]}"


def _where_known(told: str, intervals: Sequence[Interval]) -> str:
    """Return what is told of intervals if there is one: of a single seed there is none."""
    return "" if all(math.isnan(each.ci95) for each in intervals) else told


def permutation(features: Sequence[Importance]) -> Drawing:
    """Draw how many decisions change where a feature is dealt out anew."""
    rows = [(each.name, each.changed) for each in features[:_MOST_BARS]]
    return Drawing(
        "importance",
        "What the decisions depend on",
        f"Share of the decisions that change where a feature is dealt out anew among the states of a workload, the "
        f"{len(rows)} largest{_where_known('; with 95% intervals over seeds', [each for _, each in rows])}.",
        "Share of decisions that change without each feature",
        _bars(rows, "percent of decisions changed", shares=True),
    )


def scored(read: Sequence[Importance]) -> Drawing:
    """Draw how many choices change where something that is read of stages is dealt out anew; see `explain.scored`."""
    rows = [(each.name, each.changed) for each in read[:_MOST_BARS]]
    return Drawing(
        "scores",
        "What the choices between widths depend on",
        "Where a task in sight takes several executors, what could be started is scored. Share of the choices there "
        "that change where something that is read of stages is dealt out anew among those of a workload, the "
        f"{len(rows)} largest{_where_known('; with 95% intervals over seeds', [each for _, each in rows])}.",
        "Share of choices that change without each number that is read of stages",
        _bars(rows, "percent of choices changed", shares=True),
    )


def worth(tried: Sequence[Importance]) -> Drawing:
    """Draw what the mean JCT does where a model reads the median of a feature, or of a group, instead of it.

    Args:
        tried: those with a `jct_percent`; at least one.
    """
    known = [(each, each.jct_percent) for each in tried if each.jct_percent is not None]
    ordered = sorted(known, key=lambda pair: (not pair[0].group, -pair[1].mean))
    rows = [(f"{each.name} (all)" if each.group else each.name, change) for each, change in ordered]
    return Drawing(
        "worth",
        "What knowing it is worth",
        "Change of the mean JCT where the model reads a feature's median instead of the feature, in whole episodes; "
        f"paired{_where_known(', with 95% intervals over seeds', [each for _, each in rows])}. Right of zero: knowing "
        "it pays. “All” is a group of features together.",
        "Change of mean JCT without each group of features and without single ones",
        _bars(rows, "change of mean JCT, percent", shares=False),
    )


def dependence_on_next(curves: Sequence[Curve]) -> Drawing:
    """Draw the share of states in which a model waits over the next completion, a curve for each number of longs."""
    varied = any(math.isfinite(curve.fixed) for curve in curves)  # in a graph the number cannot be changed
    by_longs = ", by the number of jobs of the head's size that wait" if varied else ""
    return Drawing(
        "hold-next-completion",
        "The hold and the next completion",
        "Share of the states in which the model would wait if the next executor freed after so much of the head's "
        f"length{by_longs}"
        f"{_where_known('; bands are 95% intervals over seeds', [each for curve in curves for each in curve.held])}.",
        f"Share of states held over the next completion{by_longs}",
        _curves(curves, _NEXT, "states in which it waits", _waiting, log=True, shares=True),
    )


def saving_on_next(curves: Sequence[Curve]) -> Drawing:
    """Draw by how much waiting looks cheaper than starting the head over the next completion."""
    return Drawing(
        "saving-next-completion",
        "What it expects of a hold",
        "The same states: by how much waiting looks cheaper than starting the head, in mean JCTs (at most 1). It waits "
        "where this is above its margin and the alternative looks no better.",
        "Expected saving of a hold over the next completion, by number of waiting longs",
        _curves(curves, _NEXT, "saving in mean JCTs", _waiting, log=True, shares=False),
    )


def dependence_on_longs(curves: Sequence[Curve]) -> Drawing:
    """Draw the share of states in which a model waits over the number of waiting longs."""
    return Drawing(
        "hold-longs",
        "The hold and the waiting longs",
        "The same states, over the number of jobs of the head's size that wait, by the next completion over the head's "
        "length.",
        "Share of states held over the number of waiting longs, by next completion",
        _curves(
            curves,
            "jobs of the head's size that wait",
            "states in which it waits",
            lambda fixed: f"after {fixed:g}",
            log=False,
            shares=True,
        ),
    )


def _waiting(fixed: float) -> str:
    return f"{fixed:.0f} waiting" if math.isfinite(fixed) else "as many as wait"


def _curves(
    curves: Sequence[Curve], x_label: str, y_label: str, name: Callable[[float], str], *, log: bool, shares: bool
) -> Callable[[Palette], Figure]:
    """Draw shares of held states, or else what waiting saves."""

    def draw(palette: Palette) -> Figure:
        figure, axes = canvas(_WIDTH, _HEIGHT)
        for number, each in enumerate(curves, 1):
            points = each.held if shares else each.saves
            mean = np.array([point.mean for point in points])
            ci95 = np.nan_to_num(np.array([point.ci95 for point in points]))
            color = palette.run(number)
            low, high = mean - ci95, mean + ci95
            if shares:
                low, high = np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)
            axes.fill_between(each.at, low, high, color=color, alpha=0.15, linewidth=0)
            axes.plot(each.at, mean, color=color, marker="o", markersize=4.5, linewidth=2, label=name(each.fixed))
        if log:
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(FixedLocator([0.02, 0.05, 0.1, 0.2, 0.5, 1.0]))
        else:
            axes.xaxis.set_major_locator(FixedLocator(list(curves[0].at)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        if shares:
            axes.yaxis.set_major_formatter(FuncFormatter(_percent))
            from_zero(axes.yaxis)
        else:
            axes.axhline(0.0, color=palette.muted, linewidth=1)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.grid(axis="y")
        style: dict[str, Any] = {"columnspacing": 1.0, "handlelength": 1.2, "borderaxespad": 0.2}
        axes.legend(ncols=len(curves), loc="lower left", bbox_to_anchor=(-0.04, 1.0), **style)
        return figure

    return draw


def behaviour(found: Sequence[Behaviour]) -> Drawing:
    """Draw how often a model takes each action, by workload."""

    def draw(palette: Palette) -> Figure:
        names = [each.name for each in found]
        figure, axes = canvas(_WIDTH, 95 + room_for(names, 26) * len(found))
        looks: tuple[dict[str, Any], ...] = (
            {"color": palette.run(_ALL), "alpha": 0.45},
            {"color": palette.run(_OTHER)},
            {"color": palette.run(_HELD)},
        )
        for row, each in enumerate(found):
            left = 0.0
            for action, share in enumerate(each.shares):
                label = ACTIONS[action].removeprefix("start ") if row == 0 else None
                axes.barh(row, share.mean, left=left, height=0.66, label=label, **looks[action])
                left += share.mean
        axes.set_yticks(range(len(found)), list(map(in_lines, names)))  # of traces, which may be called anything
        axes.set_ylim(len(found) - 0.5, -0.5)
        axes.set_xlim(0.0, 1.0)
        axes.xaxis.set_major_formatter(FuncFormatter(_percent))
        axes.set_xlabel("share of the decisions")
        axes.legend(ncols=3, loc="lower left", bbox_to_anchor=(-0.02, 1.0), borderaxespad=0.2, columnspacing=1.0)
        return figure

    return Drawing(
        "actions",
        "What it does",
        "Share of the decisions in which it starts the head (the shortest job that waits), the alternative (the first "
        "of over twice its size), or waits.",
        "Share of decisions by action and workload",
        draw,
    )


def where_it_holds(found: Sequence[Distribution]) -> Drawing:
    """Draw the distributions of the most telling features: where a model holds, and everywhere it decides."""
    shown = found[:_MOST_PANELS]
    lines = -(-len(shown) // _PANELS_A_ROW)

    def draw(palette: Palette) -> Figure:
        figure, only = canvas(_WIDE, 40 + _PANEL_HEIGHT * lines)
        only.remove()
        panels = figure.subplots(lines, _PANELS_A_ROW, sharey=True, squeeze=False).ravel()
        for axes, each in zip(panels, shown, strict=False):
            _draw_distribution(axes, each, palette)
        for axes in panels[len(shown) :]:
            axes.remove()
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, ncols=2, loc="outside upper left")
        return figure

    return Drawing(
        "where-it-holds",
        "Where it holds",
        "Cumulative distributions of the features that tell the states in which it waits from all states the most, "
        "the most telling first. Names are those of the features; a unit is the head's remaining work.",
        "Cumulative distributions of features in states that are held and in all states",
        draw,
        wide=True,
    )


def _draw_distribution(axes: Axes, each: Distribution, palette: Palette) -> None:
    for values, number, label in ((each.every, _ALL, "all states"), (each.held, _HELD, "where it holds")):
        at, share = cumulative(values)
        # From nothing up: what is the same in every state is to be seen, too.
        at, share = np.append(at[0], at), np.append(0.0, share)
        axes.step(at, share, where="post", color=palette.run(number), linewidth=2, label=label)
    axes.set_ylim(0.0, 1.02)
    axes.yaxis.set_major_formatter(FuncFormatter(_percent))
    axes.grid(axis="y")
    axes.set_xlabel(_short(each.name, 30))
    if each.name in LINEAR:
        return
    least, most = axes.get_xlim()
    plain = each.name in _PLAIN_LOGARITHMS
    marks = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0) if plain else _RATIOS
    inverse, forward = (math.exp, math.log) if plain else (math.expm1, math.log1p)
    axes.xaxis.set_major_locator(FixedLocator([forward(mark) for mark in _apart(marks, forward, least, most)]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{round(inverse(value), 1):,g}"))


def _apart(marks: Sequence[float], forward: Callable[[float], float], least: float, most: float) -> list[float]:
    """Return the marks that lie on an axis and far enough from each other to be read."""
    kept: list[float] = []
    for mark in marks:
        at = forward(mark)
        if least <= at <= most and (not kept or at - forward(kept[-1]) >= 0.14 * (most - least)):
            kept.append(mark)
    return kept
