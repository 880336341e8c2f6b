"""The curves of a training run of the rollout teacher: writes docs/training/loss.svg and docs/training/search.svg.

    python scripts/training_curves.py RUN

RUN is the `--out` of `fermata train`; what is drawn are the scalars of its TensorBoard logs.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fermata.cli.interrupts import ended_in_a_line
from fermata.policy.errors import InputError
from fermata.sim.report.drawing import Drawing, Palette, canvas

OUT = Path(__file__).resolve().parents[1] / "docs" / "training"
Curve = list[tuple[int, float]]


def scalars(run: Path) -> dict[str, Curve]:
    """Return (step, value) of every scalar of a run, by its name; the last value of a step that was done twice.

    Raises:
        InputError: the folder holds no logs.
    """
    values: dict[str, dict[int, float]] = {}
    for file in sorted((run / "tensorboard").rglob("events.*")):
        events = EventAccumulator(str(file), size_guidance={"scalars": 0})
        events.Reload()
        for name in events.Tags()["scalars"]:
            values.setdefault(name, {}).update((each.step, each.value) for each in events.Scalars(name))
    if not values:
        raise InputError("holds no logs; expected the --out of fermata train", file=run)
    return {name: sorted(steps.items()) for name, steps in values.items()}


def losses(curves: Mapping[str, Curve]) -> dict[str, Curve]:
    """Return the losses of the first fit of each round and of each expert, those of the held-out scenarios apart."""
    return {
        f"{round_name}, {expert}, {'held out' if kind == 'held_out_loss' else 'taught'}": curve
        for name, curve in curves.items()
        for round_name, _, rest in [name.partition("/")]
        for expert, _, kind in [rest.partition("/")]
        if kind in ("loss", "held_out_loss") and "-" not in round_name
    }


def drawn(name: str, title: str, curves: Mapping[str, Sequence[tuple[int, float]]], labels: tuple[str, str]) -> Drawing:
    """Draw a line for each curve."""

    def draw(palette: Palette) -> Figure:
        figure, axes = canvas(640, 360)
        fits = list(dict.fromkeys(label.rpartition(", ")[0] or label for label in curves))
        for label, curve in curves.items():
            steps, values = zip(*curve, strict=True)
            color = palette.run(fits.index(label.rpartition(", ")[0] or label))
            taught = label.endswith("taught")
            axes.plot(steps, values, color=color, label=label, linewidth=2, linestyle="--" if taught else "-")
        axes.set_xlabel(labels[0])
        axes.set_ylabel(labels[1])
        axes.grid(axis="y")
        axes.legend(fontsize="small")
        return figure

    return Drawing(name, title, title, title, draw)


def main(run: Path, out: Path = OUT) -> list[Path]:
    """Write both figures, or the first of a run that searched for nothing, and return their paths.

    Raises:
        InputError: the folder holds no logs, or no losses: figures of another run are not overwritten by empty ones.
    """
    curves = scalars(run)
    single = {name: curve for name, curve in losses(curves).items() if "single tasks," in name and "DAGs" not in name}
    searches = {name.partition("/")[2]: curve for name, curve in curves.items() if name.startswith("search/")}
    if not single:
        raise InputError("holds no losses of fits on labels; expected a run of the rollout teacher", file=run)
    drawings = [drawn("loss", "Fits on labels", single, ("epoch", "mean squared error"))]
    if searches:
        labels = ("generation", "mean JCT against shortest first's, %")
        drawings.append(drawn("search", "Searches on episodes", searches, labels))
    out.mkdir(parents=True, exist_ok=True)
    return [path for drawing in drawings for path in drawing.save(out, suffixes=[".svg"])]


if __name__ == "__main__":
    try:
        with ended_in_a_line("training_curves.py"):
            for path in main(Path(sys.argv[1])):
                print(path)
    except (IndexError, InputError) as error:
        sys.exit(str(error) if isinstance(error, InputError) else __doc__)
