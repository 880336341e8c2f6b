"""The figures of the README and of the first pages: writes docs/figures/hold.svg and docs/figures/scores.svg.

    python scripts/figures.py

The first is `examples/last-executor.jsonl` in the simulator under two policies; the second is what the shipped model
says of itself, as the first table of docs/results.md does.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from fermata.cli.interrupts import ended_in_a_line
from fermata.policy.onnx_policy import OnnxPolicy
from fermata.policy.registry import load, shipped_model
from fermata.sim.compare.episodes import schedule_of
from fermata.sim.report.drawing import Drawing, Palette, canvas
from fermata.sim.report.schedule import Schedule
from fermata.sim.report.spans import ExecutorSpan
from fermata.sim.report.timelines import Window, spans_in
from fermata.sim.simulate import simulate
from fermata.sim.trace_io import read_trace

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "figures"
TRACE = ROOT / "examples" / "last-executor.jsonl"
EXECUTORS = 2
POLICIES = {"whatever is free is used": "sjf", "one executor is kept free": "sjf-hold:split=20,tau=10"}
Scores = Mapping[str, Mapping[str, Any]]


def schedules() -> dict[str, Schedule]:
    """Return what both policies make of the example."""
    trace = read_trace(TRACE)
    return {name: schedule_of(simulate(trace, EXECUTORS, load(policy))) for name, policy in POLICIES.items()}


def hold(told: Mapping[str, Schedule]) -> Drawing:
    """Draw what each executor does under each policy, one above the other."""

    def draw(palette: Palette) -> Figure:
        figure, axes = canvas(860, 300)
        end_s = max(schedule.end_s for schedule in told.values())
        top, ticks = 0.0, {}
        for name, schedule in told.items():
            for span in spans_in(schedule, Window(0.0, end_s)):
                _draw_span(axes, span, top, palette)
            ticks[f"{name}:\n{schedule.jct_s.mean():.1f} s on average"] = top + (EXECUTORS - 1) / 2
            top += EXECUTORS + 0.8
        either = next(iter(told.values()))
        for job, at_s in zip(either.job_ids, either.arrival_s, strict=True):
            axes.axvline(at_s, color=_color(job, palette), linewidth=1, linestyle=":", zorder=0)
        axes.set_yticks(list(ticks.values()), list(ticks))
        axes.set_ylim(top - 1.3, -0.6)
        axes.set_xlim(0.0, end_s)
        axes.set_xlabel("seconds; dotted: a job arrives")
        axes.legend(handles=_looks(palette), ncols=3, loc="lower left", bbox_to_anchor=(-0.01, 1.0), borderaxespad=0.2)
        return figure

    title = "The last free executor, given to a long job or kept for short ones"
    return Drawing("hold", title, title, title, draw)


def _color(job: str, palette: Palette) -> str:
    return palette.run(2 if job.startswith("long") else 1)


def _looks(palette: Palette) -> list[Patch]:
    run = {job: palette.looks(_color(job, palette))[2] for job in ("long", "short")}
    idle = Patch(label="left idle on purpose", **palette.looks(palette.muted)[1])
    return [*(Patch(label=f"a {job} job runs", **look) for job, look in run.items()), idle]


def _draw_span(axes: Axes, span: ExecutorSpan, top: float, palette: Palette) -> None:
    color = _color(span.job, palette) if span.kind == "run" else palette.muted
    look = palette.looks(color)[2 if span.kind == "run" else 1]
    axes.barh(top + span.executor, span.end_s - span.start_s, left=span.start_s, height=0.84, **look)


def scores(found: Scores) -> Drawing:
    """Draw the mean and the 99th percentile of the JCT against the base's, a scenario a row, the best first."""
    rows = sorted(found, key=lambda name: float(found[name]["vs_base_pct"]))

    def draw(palette: Palette) -> Figure:
        figure, axes = canvas(860, 90 + 26 * len(rows))
        at, change = range(len(rows)), [found[name]["vs_base_pct"] for name in rows]
        half = [found[name]["vs_base_ci95"] for name in rows]
        p99 = [found[name]["p99_vs_base_pct"] for name in rows]
        mean_label = "mean JCT, 95% interval"
        axes.errorbar(change, at, xerr=half, fmt="o", color=palette.run(1), capsize=3, markersize=7, label=mean_label)
        axes.plot(p99, at, "D", color=palette.run(2), fillstyle="none", linestyle="", label="99th percentile")
        beside = {"xycoords": ("axes fraction", "data"), "xytext": (6, 0), "textcoords": "offset points"}
        for row in at:
            axes.annotate(interval(change[row], half[row]), (0.0, row), va="center", color=palette.muted, **beside)
        axes.axvline(0.0, color=palette.muted, linewidth=1)
        axes.set_yticks(range(len(rows)), [f"{name} ({found[name]['base']})" for name in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlim(left=1.4 * min(change) - max(half))
        axes.grid(axis="x")
        axes.set_xlabel("change against the policy in brackets, %; to the left is faster")
        axes.legend(ncols=2, loc="lower left", bbox_to_anchor=(-0.01, 1.0), borderaxespad=0.2)
        return figure

    title = "The shipped model on the benchmark scenarios"
    return Drawing("scores", title, title, title, draw)


def interval(change: float, half: float) -> str:
    """Return a change in percent with half its interval, with a real minus, and zero without a sign.

    >>> interval(-0.04, 0.149)
    '0.0 ± 0.1'
    """
    sign = "" if f"{abs(change):.1f}" == "0.0" else "+" if change > 0.0 else "\N{MINUS SIGN}"
    return f"{sign}{abs(change):.1f} ± {half:.1f}"


def main(out: Path = OUT) -> list[Path]:
    """Write both figures and return their paths."""
    out.mkdir(parents=True, exist_ok=True)
    drawings = (hold(schedules()), scores(OnnxPolicy.load(shipped_model()).metadata["scores"]["scenarios"]))
    return [path for drawing in drawings for path in drawing.save(out, suffixes=[".svg"])]


if __name__ == "__main__":
    with ended_in_a_line("figures.py"):
        for path in main():
            print(path)
