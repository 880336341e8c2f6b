"""The idle-slots papers' figures and table on this simulator: writes docs/results-papers.md and docs/papers/.

    python scripts/results_papers.py [ABLATION.json ...]

What `fermata ablate --json` printed becomes the table of the ablation. `make results-papers` does all of it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter
from numpy.typing import NDArray

from fermata.cli.interrupts import ended_in_a_line
from fermata.cli.tables import half
from fermata.policy.registry import load
from fermata.sim.generate import GENERATORS
from fermata.sim.metrics import mean_ci95
from fermata.sim.report.drawing import Drawing, Palette, canvas
from fermata.sim.scenarios import SCENARIOS, Scenario
from fermata.sim.simulate import Episode, simulate

Floats = NDArray[np.float64]
DOCS = Path(__file__).resolve().parents[1] / "docs"
SEEDS = range(2000, 2010)
POLICIES = ("fifo", "sjf", "pair-committed", "default")
SHARERS = ("fifo", "fair", "srwf", "srwf-equal-share", "default")
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
JOBS = (50, 100, 200, 500, 1000, 2000)
LOADS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
SIZES_S = (25.0, 50.0, 100.0, 200.0, 400.0)
CLASSES_S = (10.0, 50.0, 100.0)  # jobs of up to so much work, and larger ones

INTRO = """# Results in the idle-slots papers' terms

    make results-papers

What we call the idle-slots papers taught an agent with Decima's features and actions to hold a stage for a while before
it starts. They gave it two features more, critical path and average width, and have theorems on when a hold pays.

These are their figures as tables and plots, for the heuristics and for the shipped model `default`, on this project's
simulator: jobs of one stage, on their synthetic set (10 s and 50 s, 35% long), at 60% load on four executors (`syn_60`)
and at 80% on three (`syn_80`). Seeds are 2000 to 2009, which no training and no tuning saw; means have 95% intervals
over seeds. `pair-committed` is their own rule on pairs of jobs: it holds for the time of their Theorem 2, whatever
comes."""
ABLATION = """## The ablation (their Table I)

Percent of the mean JCT against the scenario's base, shortest first on the synthetic set and shortest remaining work
first on the mixed one; negative is better. The first interval is over training seeds (each a mean over episodes), the
second over episodes (each a mean over agents); 95%, by Student's t. One agent is trained for all loads, from chance, in
under a minute on one core. That is a small budget: on the mixed set agents are still learning the order that their base
has from the start, so the rows say how fast each learns and not what it could reach
([more](training.md#what-was-measured)).

Of the papers' numbers, Table I gives idling 13.5% on the synthetic set; it could not be reproduced at any number of
executors, mix or speed-up tried, and the same authors give 3.0 to 5.6% elsewhere. On small cases of such jobs (two to
five executors) value iteration has the best policy of all 0.3 to 1.0% ahead of shortest first. The mixed set is half
such jobs and half small random DAGs on ten executors (`mixed`); the papers' other half is TPC-H, so their numbers for
it have no counterpart here."""


def episodes(scenario: Scenario, policy: str, seeds: Sequence[int] = SEEDS) -> list[Episode]:
    """Return an episode for each seed."""
    return [simulate(scenario.generate(seed), scenario.executors, load(policy)) for seed in seeds]


def jct_s(scenario: Scenario, found: Sequence[Episode]) -> list[Floats]:
    """Return the JCTs after the warm-up, by episode."""
    return [each.job_jct_s[scenario.warm :] for each in found]


def plusminus(values: Sequence[float] | Floats, form: str = ".1f") -> str:
    """Return a mean and its 95% interval over seeds."""
    mean, ci95 = mean_ci95(np.asarray(values, np.float64).tolist())
    return f"{mean:{form}} ± {ci95:{form}}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(line)} |" for line in lines] + [""]


def lines_of(
    name: str, title: str, x: Mapping[str, Sequence[float]], y: Mapping[str, Sequence[float]], labels: tuple[str, str],
    *, log: str = "",
) -> Drawing:  # fmt: skip
    """Draw a line for each policy; axes named in `log` ("x", "y") are logarithmic."""

    def draw(palette: Palette) -> Figure:
        figure, axes = canvas(430, 330)
        for number, policy in enumerate(y):
            axes.plot(x[policy], y[policy], color=palette.run(number), linewidth=2, label=policy)
        # A drawing knows no formulas, such as the powers that a logarithmic axis has by itself.
        for letter, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
            if letter in log:
                axes.set(**{f"{letter}scale": "log"})
                axis.set_major_formatter(LogFormatter())
                axis.set_minor_formatter(LogFormatter(labelOnlyBase=False))
        axes.set_xlabel(labels[0])
        axes.set_ylabel(labels[1])
        axes.grid(axis="y")
        axes.legend()
        return figure

    return Drawing(name, title, title, title, draw)


def picture(drawing: Drawing) -> list[str]:
    """Save a drawing and return the line that shows it."""
    folder = DOCS / "papers"
    folder.mkdir(exist_ok=True)
    (svg,) = drawing.save(folder, suffixes=[".svg"])
    return [f"![{drawing.title}](papers/{svg.name})", ""]


def distributions() -> list[str]:
    """Figure 4: JCTs at both loads."""
    text = ["## JCT, distributions (their Figure 4)", ""]
    for name in ("syn_60", "syn_80"):
        chosen = SCENARIOS[name].with_(jobs=2000, warm=200)
        all_s = {policy: jct_s(chosen, episodes(chosen, policy)) for policy in POLICIES}
        rows = [
            [f"`{policy}`", *(plusminus([float(np.quantile(each, q)) for each in found]) for q in QUANTILES),
             plusminus([float(each.mean()) for each in found])]
            for policy, found in all_s.items()
        ]  # fmt: skip
        text += [f"`{name}`, seconds by quantile:", ""]
        text += table(["policy", *(f"{100 * q:.0f}%" for q in QUANTILES), "mean"], rows)
        shares = np.linspace(0.0, 1.0, 201)
        pooled = {policy: np.quantile(np.concatenate(found), shares).tolist() for policy, found in all_s.items()}
        text += picture(
            lines_of(
                f"jct-{name}", f"Share of jobs done within a JCT, {name}", pooled,
                dict.fromkeys(pooled, shares.tolist()), ("JCT in seconds", "share of jobs"), log="x",
            )
        )  # fmt: skip
    return text


def by_jobs() -> list[str]:
    """Figure 5: mean JCT and makespan against the number of jobs."""
    text = ["## JCT and makespan against the number of jobs (their Figure 5)", "", "`syn_80`, seconds:", ""]
    base = SCENARIOS["syn_80"]
    jct: dict[str, list[str]] = {policy: [] for policy in POLICIES}
    spans: dict[str, list[str]] = {policy: [] for policy in POLICIES}
    means: dict[str, list[float]] = {policy: [] for policy in POLICIES}
    for jobs in JOBS:
        chosen = base.with_(jobs=jobs, warm=0)
        for policy in POLICIES:
            found = episodes(chosen, policy)
            average = [float(each.job_jct_s.mean()) for each in found]
            jct[policy].append(plusminus(average))
            means[policy].append(float(np.mean(average)))
            spans[policy].append(plusminus([float(each.job_completion_s.max()) for each in found], ".0f"))
    header = ["policy", *(f"{jobs} jobs" for jobs in JOBS)]
    text += ["Mean JCT:", "", *table(header, [[f"`{policy}`", *cells] for policy, cells in jct.items()])]
    text += ["Makespan:", "", *table(header, [[f"`{policy}`", *cells] for policy, cells in spans.items()])]
    at = {policy: [float(jobs) for jobs in JOBS] for policy in POLICIES}
    return text + picture(
        lines_of("jct-jobs", "Mean JCT against jobs, syn_80", at, means, ("jobs", "mean JCT, s"), log="x")
    )


def held() -> list[str]:
    """Figure 6: held time against the arrival rate and the mean size."""
    text = ["## Held time against lambda and mean size (their Figure 6)", ""]
    base = SCENARIOS["norm200"].with_(jobs=1000, warm=100)
    sweeps: tuple[tuple[str, str, Sequence[float], Callable[[float], Scenario]], ...] = (
        ("load", "arrivals a minute", LOADS, lambda value: base.with_(load=value)),
        ("size", "mean size of a long job, s", SIZES_S, lambda value: base.with_(long_s=value)),
    )
    holders = ("pair-committed", "default")
    for name, label, values, varied in sweeps:
        at, cells = [], {policy: list[str]() for policy in holders}
        means = {policy: list[float]() for policy in holders}
        for value in values:
            chosen = varied(value)
            arrival_s = chosen.generate(SEEDS[0]).job_arrival_s
            at.append(value if name == "size" else 60.0 * len(arrival_s) / float(arrival_s[-1]))
            for policy in holders:
                each = [float(found.job_held_s[chosen.warm :].mean()) for found in episodes(chosen, policy)]
                cells[policy].append(plusminus(each, ".2f"))
                means[policy].append(float(np.mean(each)))
        what = "load" if name == "load" else "mean size of a long job"
        text += [f"`norm200`, held seconds a job, by {what}:", ""]
        text += table([what, *(f"{value:g}" for value in values)], [[f"`{p}`", *row] for p, row in cells.items()])
        text += picture(
            lines_of(f"held-{name}", f"Held time against {what}", dict.fromkeys(holders, at), means,
                     (label, "held seconds a job"))
        )  # fmt: skip
    return text


def executors() -> list[str]:
    """Executors of a job against its size."""
    text = ["## Executors of a job against its size", ""]
    chosen = GENERATORS["mixed"].with_(load=0.8, jobs=500, warm=50)
    text += [
        f"`mixed` at load 0.8, {chosen.executors} executors: work over the time in which the job ran, by size:",
        "",
    ]
    rows = []
    for policy in SHARERS:
        cells = []
        for each in episodes(chosen, policy):
            trace = each.trace
            task_s = np.add.reduceat(trace.task_duration_s, trace.task_ptr[:-1]) * trace.stage_slots
            work_s = np.add.reduceat(task_s, trace.job_stage_ptr[:-1])[chosen.warm :]
            mean = work_s / each.job_run_s[chosen.warm :]
            group = np.searchsorted(CLASSES_S, work_s)
            cells.append([float(mean[group == number].mean()) for number in range(len(CLASSES_S) + 1)])
        rows.append([f"`{policy}`", *(plusminus(column, ".2f") for column in np.array(cells).T)])
    names = [*(f"up to {size_s:g} s of work" for size_s in CLASSES_S), "more"]
    return text + table(["policy", *names], rows)


def ablation(found: Mapping[str, Any]) -> list[str]:
    """Table I, from what `fermata ablate --json` printed."""
    scenarios = list(dict.fromkeys(cell["scenario"] for cell in found["cells"]))
    seeds = found["cells"][0]["training_seeds"]
    text = [f"`{found['config']}`, {seeds} training seed{'s' if seeds > 1 else ''}:", ""]

    def rows(kind: str, key: str, last: Callable[[Mapping[str, Any]], str]) -> list[list[str]]:
        by = {(each[key], each["scenario"]): each for each in found[kind]}
        return [
            [which, *(f"{by[which, name]['change_pct']:+.2f} ± {half(by[which, name]['ci95_training'])} / "
                      f"{half(by[which, name]['ci95_episodes'])}{last(by[which, name])}" for name in scenarios)]
            for which in dict.fromkeys(each[key] for each in found[kind])
        ]  # fmt: skip

    header = [f"`{name}`" for name in scenarios]
    text += table(
        ["(features, idling)", *header], rows("cells", "variant", lambda cell: f"; held {cell['held_s']:.2f} s")
    )
    return text + table(["what a part changes", *header], rows("effects", "part", lambda _: ""))


def main() -> None:
    """Measure, and write the page."""
    measured = [line for part in (distributions, by_jobs, held, executors) for line in part()]
    tables = [json.loads(Path(name).read_text(encoding="utf-8")) for name in sys.argv[1:]]
    text = [*INTRO.splitlines(), ""]
    if tables:
        text += [*ABLATION.splitlines(), ""]
    for each in tables:
        text += ablation(each)
    text += measured
    (DOCS / "results-papers.md").write_text("\n".join(text).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    with ended_in_a_line("results_papers.py"):
        main()
