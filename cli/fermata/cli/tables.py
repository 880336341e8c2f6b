"""Tables that several commands print."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.table import Table

from fermata.policy.wording import printable

if TYPE_CHECKING:
    from fermata.sim.report.numbers import Paired
    from fermata.training.evaluate import Score

_ANY_WIDTH = 10_000  # columns; a table takes what it needs of them


def show(*tables: Table, file: TextIO | None = None) -> None:
    """Print tables with a line between them, each as wide as its figures: half of a figure is another one.

    A title is a line above its table, and may be wider. Where a terminal is narrower, it breaks the lines.

    Args:
        tables: what to print.
        file: where to; standard output if not given.
    """
    console = Console(file=file, width=_ANY_WIDTH, markup=False)  # a path may have brackets
    for number, table in enumerate(tables):
        if number:
            console.print()
        if table.title:
            console.print(table.title, style="table.title", highlight=False)
            table.title = None  # in a table it would be broken to the width of that
        console.print(table)


def plain_table(columns: Sequence[str], texts: int = 1, title: str | None = None) -> Table:
    """Return an empty table without lines: the first columns, so many, are texts, and the others figures."""
    table = Table(title=title, box=None, header_style="dim", pad_edge=False)
    for number, name in enumerate(columns):
        table.add_column(name, justify="left" if number < texts else "right", no_wrap=True)
    return table


def half(ci95: float | None) -> str:
    """Return half of a 95% interval; a dash where it is of one value, which has none."""
    return "\N{EN DASH}" if ci95 is None else f"{ci95:.2f}"


def with_half(mean: float, half: float | None, form: str) -> str:
    """Return a mean with half of its 95% interval behind it, and alone where it is of one value, which has none."""
    return f"{mean:{form}}" + ("" if half is None or math.isnan(half) else f" ± {half:{form.replace('+', '')}}")


def with_interval(found: Paired, units: int) -> str:
    """Return a mean difference with its 95% interval, which a single value has none of."""
    if math.isnan(found.mean):
        return "unknown"
    return with_half(found.mean, found.t95 if units > 1 else None, "+.2f")


def scores_table(policy: str, scores: list[Score], more: str = "") -> Table:
    """Return a table of a policy's scores: percentages against the base, negative is better.

    Args:
        policy: its name or file.
        scores: one a scenario.
        more: which jobs of a trace the scores are of, or under which conditions.
    """
    from fermata.sim.metrics import decimals

    seeds = scores[0].seeds if scores else 0
    title = printable(f"{policy}: average JCT against the base, {seeds} seeds, 95% intervals{more and f', {more}'}")
    weighs = any(score.weighted_vs_base_pct is not None for score in scores)
    first = ("change %", "by weight %") if weighs else ("JCT s", "change %")
    table = plain_table(("scenario", "base", *first, "p99 %", "max %", "held s"), 2, title)  # in 80 columns
    for score in scores:
        places = decimals(score.avg_jct_s)
        jct = with_half(score.avg_jct_s, score.ci95_s, f".{places}f")
        change = f"{score.vs_base_pct:+.2f} ± {score.vs_base_ci95:.2f}"
        weighted = change
        if score.weighted_vs_base_pct is not None:
            weighted = f"{score.weighted_vs_base_pct:+.2f} ± {score.weighted_vs_base_ci95:.2f}"
        table.add_row(
            printable(score.scenario),  # a model's file may say anything
            printable(score.base),
            *((change, weighted) if weighs else (jct, change)),
            f"{score.p99_vs_base_pct:+.1f}",
            f"{score.max_vs_base_pct:+.1f}",
            f"{score.held_s_per_job:.{places}f}",
        )
    return table
