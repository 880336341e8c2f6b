"""What is seen while the stream runs: a live table where there can be one, a line every few seconds elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fermata.sim.demo.run import Moment
from fermata.sim.demo.stream import Stream

_LINE_EVERY_S = 10.0

Show = Callable[[Moment], None]


class _Row(NamedTuple):
    pool: str
    busy: int
    counts: Counter[str]
    submitted: int
    jct_s: float | None  # mean of those that are done


@contextmanager
def screen(stream: Stream, pools: list[str]) -> Iterator[Show]:
    """Give what to call with each moment."""
    console = Console(stderr=True)
    total = len(stream.submissions)
    if not console.is_interactive:
        yield _lines(console, pools, total)
        return
    starting = Text("starting an API server and the operator on this machine ...", style="dim")
    with Live(starting, console=console, refresh_per_second=8, transient=True) as live:
        yield lambda moment: live.update(_table(moment, pools, total))


def _rows(moment: Moment, pools: list[str]) -> list[_Row]:
    views = moment.follower.workflows
    made = []
    for pool in pools:
        own = [view for view in views if view.pool == pool]
        jct_s = [view.jct_s for view in own if view.jct_s is not None]
        seen = moment.follower.pools.get(pool)
        mean_s = sum(jct_s) / len(jct_s) if jct_s else None
        counts: Counter[str] = Counter(view.activity for view in own)
        made.append(_Row(pool, seen.busy if seen else 0, counts, moment.submitted.get(pool, 0), mean_s))
    return made


def _table(moment: Moment, pools: list[str], total: int) -> Group:
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("pool")
    for name in ("submitted", "waiting", "held", "running", "done", "failed", "mean JCT so far"):
        table.add_column(name, justify="right")
    rows = _rows(moment, pools)
    for row in rows:
        held = row.counts["Held"]
        mean = "" if row.jct_s is None else f"{row.jct_s:.2f} s"
        failed = row.counts["Failed"]
        table.add_row(
            row.pool, str(row.submitted), str(row.counts["Waiting"]), f"[yellow]{held}[/]" if held else "0",
            str(row.counts["Running"]), str(row.counts["Succeeded"]), f"[red]{failed}[/]" if failed else "0", mean,
        )  # fmt: skip
    done = sum(row.counts["Succeeded"] + row.counts["Failed"] for row in rows)
    progress = Table.grid(padding=(0, 2))
    progress.add_row(
        Text(f"{moment.elapsed_s:.0f} s"), ProgressBar(total=total, completed=done, width=40), f"{done} of {total} done"
    )
    return Group(progress, Text(), table)


def _lines(console: Console, pools: list[str], total: int) -> Show:
    console.print("starting an API server and the operator on this machine")
    next_s = 0.0

    def show(moment: Moment) -> None:
        nonlocal next_s
        rows = _rows(moment, pools)
        done = sum(row.counts["Succeeded"] + row.counts["Failed"] for row in rows)
        if moment.elapsed_s < next_s and done < total:
            return
        next_s = moment.elapsed_s + _LINE_EVERY_S
        told = "; ".join(
            f"{row.pool} {row.counts['Succeeded']}/{row.submitted} done, {row.counts['Held']} held" for row in rows
        )
        console.print(f"{moment.elapsed_s:3.0f} s: {told}", soft_wrap=True, highlight=False)

    return show
