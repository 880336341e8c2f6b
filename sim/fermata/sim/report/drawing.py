"""From a matplotlib figure to an SVG that belongs to its page, or to files of its own.

Inside a page text stays text and takes the page's font, and colours become CSS variables of the page, so that a figure
follows light and dark as everything around it does. A figure is therefore drawn with a `Palette` that it is given: of
sentinels, which are exchanged for the variables afterwards, or of real colours.
"""

from __future__ import annotations

import html
import io
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from fermata.sim.files import atomic_output
from fermata.sim.trace import FloatArray

HATCH = "////"
SERIES = 8
_MOST_OF_A_NAME = 45
_DASHES = ("-", (0, (3.0, 1.2)), (0, (1.0, 1.0)))
_POINTS = 72.0  # of matplotlib an inch; one becomes one unit of the SVG, and that one CSS pixel
_PNG_DPI = 144


class Palette(NamedTuple):
    """The colours that a figure is drawn with."""

    ink: str
    muted: str
    grid: str
    paper: str
    series: tuple[str, ...]

    def run(self, number: int) -> str:
        """Return a run's colour, by its place in the report."""
        return self.series[number % len(self.series)]

    def line(self, number: int) -> dict[str, Any]:
        """Return how a run's line looks: where there are more runs than colours, dashes tell them apart."""
        return {"color": self.run(number), "linestyle": _DASHES[number // len(self.series) % len(_DASHES)]}

    def looks(self, color: str) -> tuple[dict[str, Any], ...]:
        """Return how wait, held and run look: the same three ways wherever they are drawn."""
        return (
            {"facecolor": self.grid, "edgecolor": self.paper},
            {"facecolor": self.paper, "edgecolor": color, "hatch": HATCH},
            {"facecolor": color, "edgecolor": self.paper},
        )


# No figure uses these colours for anything else.
_SENTINELS = Palette("#010101", "#020202", "#030303", "#040404", tuple(f"#0a000{n}" for n in range(SERIES)))
_VARIABLES = dict(zip(_SENTINELS[:4], ("ink", "muted", "grid", "paper"), strict=True)) | {
    color: f"series-{number}" for number, color in enumerate(_SENTINELS.series)
}
#: What a page shows in daylight; the same values stand in its style sheet.
LIGHT = Palette(
    "#1c1b22",
    "#62606e",
    "#d9d7e0",
    "#ffffff",
    ("#7d7a88", "#2f6db5", "#b5500f", "#23794a", "#8a4fb0", "#a07f16", "#12808f", "#bd3f78"),
)


@contextmanager
def _style(palette: Palette, **more: Any) -> Iterator[None]:
    """Set how matplotlib draws, for a while."""
    style = {
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 12.5,
        "axes.unicode_minus": True,
        "text.parse_math": False,  # a name may have dollars
        "axes.edgecolor": palette.grid,
        "axes.labelcolor": palette.muted,
        "axes.linewidth": 1,
        "axes.spines.left": False,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.axisbelow": True,
        "text.color": palette.ink,
        "xtick.color": palette.grid,
        "ytick.color": palette.grid,
        "xtick.labelcolor": palette.muted,
        "ytick.labelcolor": palette.ink,
        "ytick.major.size": 0,
        "grid.color": palette.grid,
        "legend.frameon": False,
        "hatch.linewidth": 1.5,
        "figure.facecolor": "none",
        "axes.facecolor": "none",
    }
    with mpl.rc_context(style | more):
        yield


def shortened(name: str, most: int = _MOST_OF_A_NAME) -> str:
    """Return a name without its middle where it is long: of a path, the end tells more.

    >>> shortened("/home/somebody/runs/monday/policy.onnx", 20)
    '/home/…y/policy.onnx'
    """
    # A file's name need not be text, which matplotlib insists on.
    name = name.encode(errors="backslashreplace").decode()
    if len(name) <= most:
        return name
    begin, end = most // 3, most - most // 3 - 1
    return f"{name[:begin]}…{name[-end:]}"


def in_lines(name: str, width: int = 18) -> str:
    """Return a name broken after spaces, colons, commas and slashes, or where a line is full.

    The axes beside it keep their room; of a name that takes more than three lines or so, the middle is left out.

    >>> print(in_lines("simulated sjf-hold:tau=1,split=2"))
    simulated
    sjf-hold:tau=1,
    split=2
    """
    lines = [""]
    for part in re.findall(rf"[^ :,/]{{1,{width}}}[ :,/]?|[ :,/]", shortened(name)):
        if lines[-1] and len(lines[-1]) + len(part.rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)


def legend_label(name: str) -> str:
    """Return a name for a legend, out of which matplotlib leaves whatever begins with an underscore."""
    return f" {name}" if name.startswith("_") else name


def with_hidden(caption: str, curves: Mapping[str, FloatArray]) -> str:
    """Return a caption that also says which curves, by name, lie on each other: only the last one of them is seen.

    >>> with_hidden("Fast.", {"fifo": np.array([2.0]), "sjf": np.array([1.0]), "srwf": np.array([1.0])})
    'Fast. sjf and srwf are one line.'
    """
    alike: dict[bytes, list[str]] = {}
    for name, curve in curves.items():
        alike.setdefault(curve.tobytes(), []).append(shortened(name))
    told = [f"{', '.join(same[:-1])} and {same[-1]} are one line." for same in alike.values() if len(same) > 1]
    return " ".join([caption, *told]).strip()


def legend_above(axes: Axes, width: float) -> None:
    """Put a legend above the axes, of what is drawn in them, in as many columns as fit into so many CSS pixels."""
    handles, labels = axes.get_legend_handles_labels()
    columns = _legend_columns(labels, width)
    axes.legend(handles, labels, ncols=columns, loc="lower left", bbox_to_anchor=(-0.02, 1.0), borderaxespad=0.2)


def legend_room(labels: Sequence[str], width: float) -> float:
    """Return how many CSS pixels such a legend is high, so that the axes under it keep theirs."""
    lines = [label.count("\n") + 1 for label in labels]
    # Filled column by column, the first ones longer by one, as matplotlib does.
    parts = np.array_split(np.array(lines), _legend_columns(labels, width))
    return 20.0 * max(int(part.sum()) for part in parts)


def _legend_columns(labels: Sequence[str], width: float) -> int:
    """Return in how many columns a legend fits into so many CSS pixels: at most four."""
    widest = 50 + 7.5 * max((len(line) for label in labels for line in label.split("\n")), default=0)
    return min(max(int(width // widest), 1), 4)


def room_for(names: Sequence[str], least: float) -> float:
    """Return how many CSS pixels a row takes in which the longest of these names stands, broken into lines."""
    return max(least, 17.0 * max((in_lines(name).count("\n") + 1 for name in names), default=1))


def canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """Return a figure of so many CSS pixels and its only axes."""
    figure = Figure(figsize=(width / _POINTS, height / _POINTS), layout="constrained")
    return figure, figure.add_subplot()


def from_zero(axis: Axis) -> None:
    """Let an axis of what is never below 0 begin there, and end at 1 where all of it is 0, not at some hundredths."""
    set_limits = axis.axes.set_xlim if axis is axis.axes.xaxis else axis.axes.set_ylim
    set_limits(0.0, None if axis.get_data_interval()[1] > 0.0 else 1.0)


@dataclass(frozen=True)
class Drawing:
    """A figure of a report that can be drawn as often as there are forms to draw it in.

    Args:
        name: of its files, and unique in its section.
        title: above it.
        caption: below it.
        label: what it shows, for those who cannot see it.
        draw: called with the colours to use.
        wide: it takes the whole width of the page.
        sweep: it shows other episodes than the rest.
    """

    name: str
    title: str
    caption: str
    label: str
    draw: Callable[[Palette], Figure]
    wide: bool = False
    sweep: bool = False

    def svg(self, name: str) -> str:
        """Return it as an `<svg>` element for a page.

        Args:
            name: unique on the page, and short: all its ids begin with it.
        """
        out = io.StringIO()
        with _style(_SENTINELS, **{"svg.hashsalt": name}):
            figure = self.draw(_SENTINELS)
            with warnings.catch_warnings():
                # The text is drawn by a browser, which has other fonts than the one it is laid out with here.
                warnings.filterwarnings("ignore", message="Glyph .* missing from font")
                metadata = {"Date": None, "Creator": None, "Format": None, "Type": None}
                figure.savefig(out, format="svg", metadata=metadata)
        return _for_page(out.getvalue(), name, self.label)

    def save(self, folder: Path, prefix: str = "", suffixes: Sequence[str] = (".svg", ".png")) -> list[Path]:
        """Write it as SVG and as PNG, or as one of them, in daylight colours, and return the paths.

        Raises:
            InputError: they cannot be written there.
        """
        paths = [folder / f"{prefix}{self.name}{suffix}" for suffix in suffixes]
        with _style(LIGHT, **{"svg.hashsalt": self.name, "figure.facecolor": LIGHT.paper}):
            figure = self.draw(LIGHT)
            for path in paths:
                metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
                with atomic_output(path) as stream:
                    figure.savefig(stream, format=path.suffix[1:], dpi=_PNG_DPI, metadata=metadata)
        return paths


def _for_page(text: str, name: str, label: str) -> str:
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = _with_own_ids(text, name)
    for color, variable in _VARIABLES.items():
        text = text.replace(color, f"var(--{variable})")
    # The page's font, at the sizes that were laid out.
    text = re.sub(r"font: ([0-9.]+)px [^;\"]+", r"font-size: \1px", text)
    text = re.sub(r"font-family: [^;\"]+;? ?", "", text)
    # A tenth of a pixel is finer than any screen; matplotlib writes six decimals.
    text = re.sub(r' (?:d|x|y|transform)="[^"]*"', lambda found: re.sub(r"(\.\d)\d+", r"\1", found[0]), text)
    text = re.sub(r' transform="rotate\(-?0(?:\.0)? [^"]*"', "", text)
    text = re.sub(r"\s+z\n?\"", 'z"', re.sub(r"\n\s*", "\n", text))
    # Marks of one look, of which there may be hundreds, share it.
    text = re.sub(r'(?:<use [^>]* (style="[^"]*")/>\n)(?:<use [^>]* \1/>\n)+', _shared_style, text)
    # Groups that matplotlib makes only to name them.
    flat = 1
    while flat:
        text, flat = re.subn(r"<g>\n((?:[^<]|<(?!/?g\b))*)</g>\n|<g/>\n", r"\1", text)
    width = float(re.search(r'viewBox="0 0 ([0-9.]+)', text)[1])  # type: ignore[index]
    opening = f'<svg role="img" aria-label="{html.escape(label)}" style="--natural: {width:.0f}px"'
    text = re.sub(r'<svg [^>]*?(viewBox="[^"]+")[^>]*>', rf"{opening} \1>", text, count=1, flags=re.DOTALL)
    return text.strip()


def _shared_style(found: re.Match[str]) -> str:
    style = found[1]
    return f"<g {style}>{found[0].replace(f' {style}', '')}</g>\n"


def _with_own_ids(text: str, name: str) -> str:
    """Return an SVG without the ids that nothing refers to, and with the others short and its own."""
    used = dict.fromkeys(re.findall(r'(?:url\(#|href="#)([^)"]+)', text))
    renamed = {old: f"{name}-{number}" for number, old in enumerate(used)}
    text = re.sub(r'(url\(#|href="#)([^)"]+)', lambda found: f"{found[1]}{renamed[found[2]]}", text)
    return re.sub(r' id="([^"]+)"', lambda found: f' id="{renamed[found[1]]}"' if found[1] in renamed else "", text)
