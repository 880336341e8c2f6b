"""The drawings of one schedule over time: what each executor did, who waited, and how busy the pool was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path
from matplotlib.ticker import FuncFormatter

from fermata.sim.report.drawing import (
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
from fermata.sim.report.schedule import Schedule, step_integral, step_means
from fermata.sim.report.spans import ExecutorSpan, assign_executors
from fermata.sim.trace import FloatArray

_WIDTH = 1060
_HEIGHT = 280
_TASKS_A_LANE, _MOST_TASKS = 45, 1200  # as many as can be told apart
_MOST_HEIGHT = 620
_EDGE, _EDGE_OF_ROW = 0.6, 0.1  # of a task, in CSS pixels; at most this share of a row, or thin rows were nothing else
_BINS = 160

Named = Sequence[tuple[str, Schedule]]


class Window(NamedTuple):
    """A part of a schedule, in seconds."""

    start_s: float
    end_s: float


def busiest_window(told: Named, tasks_a_lane: float | None = None) -> Window:
    """Return a part of some schedules of the same arrivals that is short enough to be read.

    It is the part in which most is held, or, where nothing is, in which most jobs wait.

    Args:
        told: names and schedules with their tasks.
        tasks_a_lane: how many tasks an executor may run in it on average, by default 45, fewer where there are many
            executors; a shorter schedule is returned whole.
    """
    if tasks_a_lane is None:
        tasks_a_lane = min(_TASKS_A_LANE, _MOST_TASKS / sum(schedule.executors for _, schedule in told))
    first_s = min(float(schedule.arrival_s[0]) for _, schedule in told)
    end_s = max(schedule.end_s for _, schedule in told)
    lanes = max(float(schedule.tasks.width.sum()) / schedule.executors for _, schedule in told)
    if lanes <= tasks_a_lane:
        return Window(min(first_s, 0.0) if first_s < 0.1 * end_s else first_s, end_s)
    length_s = (end_s - first_s) * tasks_a_lane / lanes
    starts_s = np.linspace(first_s, end_s - length_s, 400)
    chosen = np.zeros(len(starts_s))
    holds = any(len(schedule.holds.start_s) for _, schedule in told)
    for _, schedule in told:
        spans = schedule.holds[:2] if holds else (schedule.arrival_s, schedule.start_s)
        at_s, change = np.concatenate(spans), np.repeat([1.0, -1.0], len(spans[0]))
        chosen += step_integral(at_s, change, starts_s + length_s) - step_integral(at_s, change, starts_s)
    start_s = float(starts_s[np.argmax(chosen)])
    return Window(start_s, start_s + length_s)


def shows_all(window: Window, told: Named) -> bool:
    """Tell whether a window leaves out next to nothing of some schedules, whenever they begin."""
    first_s = min(float(schedule.arrival_s[0]) for _, schedule in told)
    end_s = max(schedule.end_s for _, schedule in told)
    return window.end_s - window.start_s >= 0.98 * (end_s - first_s)


def gantt(told: Named, colors: Sequence[int], window: Window, note: str) -> Drawing:
    """Draw what each executor did, holds hatched.

    Args:
        told: names and schedules with their tasks.
        colors: [told] the runs' places in the report.
        window: what part to draw.
        note: which schedules these are.
    """
    rows = sum(schedule.executors for _, schedule in told) + len(told) - 1
    height = max(min(24 * rows, _MOST_HEIGHT), len(told) * room_for([name for name, _ in told], 24))
    lanes = [(name, schedule.executors, spans_in(schedule, window)) for name, schedule in told]
    edge = min(_EDGE, _EDGE_OF_ROW * height / rows)

    def draw(palette: Palette) -> Figure:
        figure, axes = canvas(_WIDTH, 80 + height)
        top, ticks = 0, []
        for number, (_, executors, spans) in zip(colors, lanes, strict=True):
            _draw_lanes(axes, spans, top, palette.looks(palette.run(number)), edge)
            ticks.append(top + (executors - 1) / 2)
            top += executors + 1
        axes.set_yticks(ticks, [in_lines(name) for name, _ in told])
        axes.set_ylim(top - 1.4, -0.6)
        _seconds_below(axes, *window)
        axes.grid(axis="x")
        handles = [
            Patch(label="a task runs", facecolor=palette.muted, edgecolor=palette.paper),
            Patch(label="left idle on purpose", **palette.looks(palette.muted)[1]),
        ]
        axes.legend(handles=handles, ncols=2, loc="lower left", bbox_to_anchor=(-0.01, 1.0), borderaxespad=0.2)
        return figure

    return Drawing(
        "gantt",
        "Executors over time",
        "One row an executor. Hatched: free, while a stage was ready and deliberately held. " + note,
        "What each executor of each run did over time, with holds hatched",
        draw,
        wide=True,
    )


def spans_in(schedule: Schedule, window: Window) -> list[ExecutorSpan]:
    """Return what each executor did in a part of a schedule, cut to it."""
    tasks, holds = schedule.tasks, schedule.holds
    seen = np.flatnonzero((tasks.end_s > window.start_s) & (tasks.start_s < window.end_s))
    rows = np.repeat(seen, tasks.width[seen])
    ids = [schedule.job_ids[job] if job >= 0 else "" for job in tasks.job[rows].tolist()]
    ran = zip(tasks.start_s[rows].tolist(), tasks.end_s[rows].tolist(), ids, strict=True)
    known = (holds.end_s > window.start_s) & (holds.start_s < window.end_s)
    held = zip(holds.start_s[known].tolist(), holds.end_s[known].tolist(), strict=True)
    spans = assign_executors(ran, held, schedule.executors)
    clipped = (
        span._replace(start_s=max(span.start_s, window.start_s), end_s=min(span.end_s, window.end_s)) for span in spans
    )
    return [span for span in clipped if span.end_s > span.start_s]


def _seconds_below(axes: Axes, start_s: float, end_s: float) -> None:
    """Let an axis tell instants in full, as the text does, also of a clock that counts from 1970."""
    axes.set_xlim(start_s, end_s)
    axes.set_xlabel("seconds")
    axes.ticklabel_format(axis="x", style="plain", useOffset=False)


def _draw_lanes(
    axes: Axes, spans: Sequence[ExecutorSpan], top: int, looks: tuple[dict[str, Any], ...], edge: float
) -> None:
    """Draw all tasks as one shape and all holds as another: a page holds thousands of them."""
    _, held, run = looks
    for kind, look in (("hold", held), ("run", run)):
        boxes = [_box(span, top + span.executor) for span in spans if span.kind == kind]
        if boxes:
            axes.add_patch(PathPatch(Path.make_compound_path(*boxes), linewidth=edge, **look))


def _box(span: ExecutorSpan, row: float) -> Path:
    low, high = row - 0.42, row + 0.42
    corners = [(span.start_s, low), (span.end_s, low), (span.end_s, high), (span.start_s, high), (span.start_s, low)]
    return Path(corners, closed=True)


def queue_and_utilisation(told: Named, colors: Sequence[int], window: Window | None, note: str) -> Drawing:
    """Draw how many jobs waited for their first task, and which share of the executors was busy, over time.

    Both are means over a 160th of the time. A schedule without tasks has no utilisation.

    Args:
        told: names and schedules.
        colors: [told] the runs' places in the report.
        window: shaded; what another figure shows.
        note: which schedules these are.
    """
    first_s = min(float(schedule.arrival_s[0]) for _, schedule in told)
    # Of a clock as late as a trace may have, there are fewer instants than that between two seconds.
    edges_s = np.unique(np.linspace(first_s, max(schedule.end_s for _, schedule in told), _BINS + 1))
    waiting = [step_means(each.arrival_s, each.start_s, np.ones(len(each.start_s)), edges_s) for _, each in told]
    busy = [_busy_share(schedule, edges_s) for _, schedule in told]
    shaded = None if window is None or shows_all(window, told) else window
    legend = legend_room([shortened(name) for name, _ in told], 0.9 * _WIDTH)

    def draw(palette: Palette) -> Figure:
        figure, upper = canvas(_WIDTH, _HEIGHT + legend)
        upper.remove()
        upper, lower = figure.subplots(2, 1, sharex=True)
        for number, (name, _), queue, share in zip(colors, told, waiting, busy, strict=True):
            style = {**palette.line(number), "linewidth": 1.6, "baseline": None}
            upper.stairs(queue, edges_s, label=legend_label(shortened(name)), **style)
            if share is not None:
                lower.stairs(share, edges_s, **style)
        if shaded is not None:
            for axes in (upper, lower):
                # With a line around it: of a part of very many jobs the inside is less than a pixel.
                axes.axvspan(*shaded, color=palette.grid, alpha=0.5, linewidth=2, zorder=0)
        from_zero(upper.yaxis)
        upper.set_ylabel("jobs waiting")
        lower.set_ylim(0.0, 1.04)
        lower.set_ylabel("utilisation")
        lower.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f}%"))
        _seconds_below(lower, edges_s[0], edges_s[-1])
        for axes in (upper, lower):
            axes.grid(axis="y")
        legend_above(upper, 0.9 * _WIDTH)
        return figure

    shown_above = "" if shaded is None else "Shaded: what the chart above shows. "
    return Drawing(
        "queue-utilisation",
        "Queue length and utilisation",
        with_hidden(
            f"Jobs that have arrived and not started, held ones included, and the busy share of the executors. "
            f"{shown_above}{note}".strip(),
            {
                name: np.append(queue, [] if share is None else share)
                for (name, _), queue, share in zip(told, waiting, busy, strict=True)
            },
        ),
        "Queue length and utilisation of every run over time",
        draw,
        wide=True,
    )


def _busy_share(schedule: Schedule, edges_s: FloatArray) -> FloatArray | None:
    tasks = schedule.tasks
    if not len(tasks.start_s):
        return None
    share: FloatArray = step_means(tasks.start_s, tasks.end_s, tasks.width.astype(float), edges_s) / schedule.executors
    return share
