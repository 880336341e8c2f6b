"""Matplotlib figures as SVG text that belongs to the page it stands in: its colours, its font, its width.

Matplotlib writes fixed colours. So figures are drawn in sentinel colours, each of which becomes a CSS variable that the
page sets for light and for dark. Text stays text, so it can be searched and takes the page's font.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

#: Sentinel colour -> CSS variable. No figure uses these colours for anything else.
INK, MUTED, GRID, PAPER = "#010101", "#020202", "#030303", "#040404"
SERIES = ("#0a0001", "#0a0002", "#0a0003", "#0a0004", "#0a0005", "#0a0006")
_VARIABLES = {INK: "ink", MUTED: "muted", GRID: "grid", PAPER: "paper"} | {
    color: f"series-{number}" for number, color in enumerate(SERIES)
}

_STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 12.5,
    "axes.unicode_minus": True,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.linewidth": 1,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.axisbelow": True,
    "text.color": INK,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": INK,
    "ytick.major.size": 0,
    "grid.color": GRID,
    "legend.frameon": False,
    "hatch.linewidth": 1.5,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}


def series_color(number: int) -> str:
    """Return the sentinel of a run's colour, by its place in the report."""
    return SERIES[number % len(SERIES)]


@contextmanager
def drawing(width: float, height: float) -> Iterator[tuple[Figure, Axes]]:
    """Give a figure of so many CSS pixels and its only axes; no global state of matplotlib is touched for good."""
    with mpl.rc_context(_STYLE):
        # 72 points of matplotlib become 72 units of the SVG, which is then shown at one unit a pixel.
        figure = Figure(figsize=(width / 72.0, height / 72.0), layout="constrained")
        yield figure, figure.add_subplot()


def to_svg(figure: Figure, name: str, label: str) -> str:
    """Return a figure as an `<svg>` element.

    Args:
        figure: drawn inside `drawing`.
        name: unique on the page; keeps the ids of its figures apart.
        label: what it shows, for those who cannot see it.
    """
    out = io.StringIO()
    with mpl.rc_context(_STYLE | {"svg.hashsalt": name}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", text)
    for color, variable in _VARIABLES.items():
        text = text.replace(color, f"var(--{variable})")
    # The page's font, at the sizes that were laid out.
    text = re.sub(r"font: ([0-9.]+)px [^;\"]+", r"font-size: \1px", text)
    width = float(re.search(r'viewBox="0 0 ([0-9.]+)', text)[1])  # type: ignore[index]
    opening = f'<svg role="img" aria-label="{html.escape(label)}" style="--natural: {width:.0f}px"'
    text = re.sub(r'<svg [^>]*?(viewBox="[^"]+")[^>]*>', rf"{opening} \1>", text, count=1, flags=re.DOTALL)
    return text.strip()
