"""A page that stands alone: tables and figures, no network, the same text twice, colours that follow light and dark."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from fermata.policy.errors import InputError
from fermata.sim.report import (
    Bound,
    Chapter,
    Drawing,
    Holds,
    Report,
    Run,
    Schedule,
    Section,
    Sweep,
    Table,
    Tasks,
    effects_of,
    render,
    summary_of,
    views_of,
    write,
    write_figures,
)
from fermata.sim.report.drawing import LIGHT, Palette, canvas
from fermata.sim.report.page import overview_of


def schedule(
    jct_s: list[float], held_s: list[float] | None = None, ids: list[str] | None = None, executors: int = 2
) -> Schedule:
    """Jobs that arrive a second apart, one task of one second each at its end."""
    count = len(jct_s)
    arrival_s, jct = np.arange(count, dtype=float), np.array(jct_s)
    held = np.array(held_s or [0.0] * count)
    completion_s = arrival_s + jct
    which = np.flatnonzero(held > 0.0).astype(np.int32)
    return Schedule(
        executors=executors,
        job_ids=ids or [f"j{number}" for number in range(count)],
        arrival_s=arrival_s,
        start_s=completion_s - 1.0,
        completion_s=completion_s,
        held_s=held,
        run_s=np.ones(count),
        work_s=np.ones(count),
        busy_s=float(count),
        tasks=Tasks(completion_s - 1.0, completion_s, np.arange(count, dtype=np.int32), np.ones(count, np.int32)),
        holds=Holds(arrival_s[which], (arrival_s + held)[which], which, ["s0"] * len(which)),
    )


BASE = Run("sjf", [schedule([2.0, 4.0, 6.0])])
OTHER = Run("learned", [schedule([1.0, 5.0, 3.0], [0.0, 2.0, 0.0])])
POINTS = {"sjf": np.array([[1.0], [2.0]]), "learned": np.array([[1.0], [1.5]])}
SECTION = Section(
    name="Two runs",
    lead="Three jobs.",
    runs=[BASE, OTHER],
    base="sjf",
    bound=Bound("a proof", np.array([2.0])),
    holds={"learned": summary_of(effects_of(OTHER.schedules[0], BASE.schedules[0]))},
    sweeps=[
        Sweep("load", np.array([0.5, 0.9]), np.array([0.1, 0.2]), POINTS, POINTS),
        Sweep("ratio", np.array([2.0, 9.0]), np.array([0.1, 0.1]), POINTS, POINTS),
    ],
)
REPORT = Report("Two runs", "Three jobs.", [SECTION], ["Few."], {"seed": "1"})
FIGURES = [
    "jct-cdf",
    "jct-tail",
    "paired-differences",
    "split",
    "gantt",
    "queue-utilisation",
    "jct-load",
    "held-rate",
    "held-ratio",
]


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.regions: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if ("role", "region") in attrs:
            self.regions.append(dict(attrs)["aria-label"] or "")
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src", "xlink:href"):
                self.addresses.append(value or "")


def test_the_page_has_every_figure_and_table() -> None:
    (view,) = views_of(REPORT)
    assert [drawing.name for drawing in view.drawings] == FIGURES
    text = render(REPORT)
    for words in ("against sjf", "By class of job", "Holds of learned", "saved the most", "Every job", "Provenance"):
        assert words in text
    assert "\N{MINUS SIGN}25.0%" in text
    assert "<td>50.0%</td>" in text  # 3 s against a bound of 2 s
    assert "below 2.00 s (a proof)" in text


def test_what_hides_another_s_curves_is_named() -> None:
    twin = Run("twin", BASE.schedules)
    points = {**POINTS, "twin": POINTS["sjf"]}
    sweeps = [replace(sweep, jct_s=points, held_s=points) for sweep in SECTION.sweeps]
    (view,) = views_of(replace(REPORT, sections=[replace(SECTION, runs=[BASE, OTHER, twin], sweeps=sweeps)]))
    told = [each.name for each in view.drawings if each.caption.endswith(" sjf and twin are one line.")]
    assert told == ["jct-cdf", "jct-tail", "queue-utilisation", "jct-load", "held-rate", "held-ratio"]
    (view,) = views_of(REPORT)
    assert not any("are one line" in each.caption for each in view.drawings)


def test_a_single_job_has_no_interval() -> None:
    section = Section("One", "", [Run("sjf", [schedule([4.0])]), Run("learned", [schedule([3.0])])], "sjf")
    text = render(Report("t", "l", [section]))
    assert "\N{MINUS SIGN}25.0%" in text
    assert "±" not in text
    assert "Student" not in text
    assert "±" in render(REPORT)


def test_slowdowns_have_a_column_where_any_is_known() -> None:
    assert "<th>slowdown</th>" not in render(REPORT)
    known = Run("fifo", [replace(schedule([2.0, 4.0, 6.0]), ideal_s=np.ones(3))])
    page = render(replace(REPORT, sections=[replace(SECTION, runs=[BASE, OTHER, known])]))
    assert page.count("<th>slowdown</th>") == 1


def test_the_page_stands_alone_and_no_two_things_in_it_share_an_id() -> None:
    sections = [SECTION, Section("Other runs", "", [OTHER, BASE], "learned")]
    text = render(Report("t", "l", sections))
    page = _Page(text)
    assert len(page.ids) == len(set(page.ids))
    assert all(address.startswith(("#", "data:")) for address in page.addresses)
    targets = {address.removeprefix("#") for address in page.addresses if address.startswith("#")}
    targets |= set(re.findall(r"url\(#([^)]+)\)", text))
    assert {"two-runs", "other-runs"} <= targets <= set(page.ids)
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)


@pytest.mark.parametrize(
    "report",
    [
        REPORT,
        Report("t", "l", [SECTION, replace(SECTION, name="Other runs")]),
        Report("t", "l", [SECTION], chapters=[Chapter("Learned", "", [], tables=[Table("Parts", "", ["a"], [["b"]])])]),
        Report("t", "l", [], chapters=[Chapter("Learned", "", [], tables=[Table("Parts", "", ["a"], [["b"]])])]),
    ],
    ids=["one section", "two", "section and chapter", "chapter"],
)
def test_a_screen_reader_finds_its_way(report: Report) -> None:
    page = _Page(render(report))
    levels = [int(tag[1]) for tag in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == page.tags.count("main") == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))  # none is skipped
    assert page.regions
    assert len(page.regions) == len(set(page.regions))


def test_the_page_follows_light_and_dark_everywhere() -> None:
    drawings = re.findall(r"<svg role.*?</svg>", render(REPORT), flags=re.DOTALL)
    assert len(drawings) == len(FIGURES)
    for drawing in drawings:
        colors = set(re.findall(r"(?:fill|stroke|stop-color): ?([^;\"]+)", drawing))
        fixed = {color for color in colors if not color.startswith(("var(--", "none", "url("))}
        assert not fixed, "a colour that does not change between light and dark"


def test_files_have_the_colours_that_the_page_has_in_daylight() -> None:
    sheet = render(REPORT).partition("@media (prefers-color-scheme: dark)")[0]
    for number, color in enumerate(LIGHT.series):
        assert f"--series-{number}: {color};" in sheet


def test_the_same_report_is_the_same_text() -> None:
    assert render(REPORT) == render(REPORT)


def test_names_are_text_and_never_markup() -> None:
    evil = "<script>alert(1)</script>"
    run = Run(evil, [schedule([2.0], [1.0], [evil])])
    section = Section(evil, evil, [run], evil, notes=[evil], holds={evil: summary_of(effects_of(*run.schedules * 2))})
    assert "<script" not in render(Report(evil, evil, [section, section], [evil], {evil: evil}))


def _says(words: str) -> Drawing:
    def draw(_: Palette) -> Figure:
        figure, axes = canvas(200, 200)
        axes.set_xlabel(words)
        return figure

    return Drawing("says", words, "", words, draw)


def test_chapters_and_sections_of_one_name_keep_their_own_drawings(tmp_path: Path) -> None:
    alike = [Chapter("What policy learned", "", [_says(words)]) for words in ("first words", "other words")]
    report = Report("t", "l", [SECTION, SECTION], chapters=alike)
    text = render(report)
    ids = _Page(text).ids
    assert len(ids) == len(set(ids))
    assert {"two-runs-2", "what-policy-learned-2"} <= set(ids)
    first, _, second = text.partition('id="what-policy-learned-2"')
    assert [part.count(">first words</text>") for part in (first, second)] == [1, 0]
    assert [part.count(">other words</text>") for part in (first, second)] == [0, 1]
    paths = write_figures(report, tmp_path)
    assert len(paths) == len(set(paths)) == 2 * (2 * len(FIGURES) + 3)  # two sections, two chapters, what spans them


@pytest.mark.filterwarnings("error")
def test_names_may_be_of_any_script_and_are_no_formulas() -> None:
    names = ["runs/政策.onnx", r"a$\foo$b.onnx"]
    runs = [Run(name, each.schedules) for name, each in zip(names, (BASE, OTHER), strict=True)]
    text = render(Report("t", "l", [Section("s", "", runs, names[0])]))
    for name in names:
        assert f">{name}</text>" in text


def test_a_name_that_is_no_text_is_shown_escaped(tmp_path: Path) -> None:
    name = "b\udcff.onnx"  # Python's name of a file whose bytes are no UTF-8
    runs = [Run(name, BASE.schedules), OTHER]
    section = Section(name, "", runs, name, notes=[name], holds={"learned": SECTION.holds["learned"]})
    report = Report(name, name, [section, section], [name], {"trace": name})
    write(report, tmp_path / "page.html")
    assert r">b\udcff.onnx</text>" in (tmp_path / "page.html").read_text("utf-8")
    assert write_figures(report, tmp_path)


@pytest.mark.filterwarnings("error")  # "axes sizes collapsed to zero"
def test_a_path_of_any_length_leaves_the_axes_their_room() -> None:
    name = f"/home/somebody/{'x' * 200}/policy.onnx"
    points = {name: POINTS["sjf"]}
    sweep = Sweep("load", np.array([0.5, 0.9]), np.array([0.1, 0.2]), points, points)
    section = Section("s", "", [BASE, Run(name, OTHER.schedules)], "sjf", sweeps=[sweep])
    for drawing in (drawing for view in views_of(Report("t", "l", [section])) for drawing in view.drawings):
        figure = drawing.draw(LIGHT)
        figure.draw_without_rendering()
        assert all(axes.get_position().width > 0.4 for axes in figure.axes), drawing.name


def test_legends_lie_beside_what_is_drawn_however_many_runs_there_are() -> None:
    names = ["_mine.onnx", *(f"rule-{number}:tau={number},tau_per_long=40" for number in range(1, 24))]
    points = dict.fromkeys(names, POINTS["sjf"])
    section = replace(
        SECTION,
        runs=[Run(name, BASE.schedules) for name in names],
        base=names[1],
        holds={},
        sweeps=[replace(sweep, jct_s=points, held_s=points) for sweep in SECTION.sweeps],
    )
    report = Report("t", "l", [section, replace(section, name="again")])
    views = views_of(report)
    overview = overview_of(views)
    assert overview is not None
    for drawing in [*views[0].drawings, overview]:
        figure = drawing.draw(LIGHT)
        figure.draw_without_rendering()
        for axes in figure.axes:
            assert axes.get_window_extent().height > 80.0, drawing.name
            if legend := axes.get_legend():
                told = {"gantt": 2, "split": 3, "overview": len(names) - 1}.get(drawing.name, len(names))
                assert len(legend.get_texts()) == told, drawing.name
                box = legend.get_window_extent()
                assert not any(box.overlaps(each.get_window_extent()) for each in figure.axes), drawing.name
                assert 0.0 <= box.y0 <= box.y1 <= figure.bbox.y1, drawing.name
        labels = [each.get_window_extent() for each in figure.axes[0].get_yticklabels()]
        if drawing.name == "gantt":
            assert not any(upper.overlaps(lower) for upper, lower in pairwise(labels))


def test_milliseconds_and_decades_are_told_as_well_as_minutes() -> None:
    def page(scale: float) -> str:
        runs = [Run(run.name, [schedule([scale * jct_s for jct_s in run.schedules[0].jct_s])]) for run in (BASE, OTHER)]
        return render(Report("t", "l", [Section("s", "", runs, "sjf")]))

    tiny, huge = page(0.001), page(1e8)
    for words in ("<strong>0.00400</strong>", ">0.00300 s</text>", "0.00100 ±", ">\N{MINUS SIGN}0.001</text>"):
        assert words in tiny
    for words in ("<strong>400,000,000</strong>", ">300,000,000 s</text>", "100,000,000 ±", "\N{MINUS SIGN}1e8</text>"):
        assert words in huge


@pytest.mark.parametrize("jct_s", [0.02, 3.0, 1800.0, 176_178.0, 6_200_000.0])
def test_the_numbers_below_a_chart_do_not_run_into_each_other_however_long_jobs_are(jct_s: float) -> None:
    runs = [Run(name, [schedule([share * jct_s] * 3)]) for name, share in (("sjf", 1.0), ("fifo", 0.4))]
    (view,) = views_of(Report("t", "l", [Section("s", "", runs, "sjf")]))
    for drawing in view.drawings:
        figure = drawing.draw(LIGHT)
        figure.draw_without_rendering()
        for axes in figure.axes:
            first, last = axes.get_xlim()
            labels = [tick.label1 for tick in axes.xaxis.get_major_ticks() if first <= tick.get_loc() <= last]
            boxes = [label.get_window_extent() for label in labels if label.get_visible() and label.get_text()]
            assert all(right.x0 - left.x1 > 4.0 for left, right in pairwise(boxes)), drawing.name


@pytest.mark.parametrize("change_s", [0.003, 0.04, 3.0, 400.0])
def test_differences_of_any_size_have_a_scale(change_s: float) -> None:
    runs = [Run("sjf", [schedule([10.0, 20.0, 30.0])]), Run("learned", [schedule([10.0, 20.0 + change_s, 30.0])])]
    (view,) = views_of(replace(REPORT, sections=[Section("s", "", runs, "sjf")]))
    figure = next(each for each in view.drawings if each.name == "paired-differences").draw(LIGHT)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    most_s = axes.get_xlim()[1]
    assert 0.0 < 0.1 * most_s <= max(axes.get_xticks()) <= most_s


@pytest.mark.filterwarnings("error")
def test_differences_that_are_all_the_same_are_seen_beside_none() -> None:
    runs = [Run(name, [schedule([share * 6.2e6] * 3)]) for name, share in (("sjf", 1.0), ("fifo", 0.4))]
    (view,) = views_of(Report("t", "l", [Section("s", "", runs, "sjf")]))
    figure = next(each for each in view.drawings if each.name == "paired-differences").draw(LIGHT)
    figure.draw_without_rendering()
    first, last = figure.axes[0].get_xlim()
    assert first < -0.6 * 6.2e6
    assert last > 0.0


@pytest.mark.parametrize("change_s", [0.0, 1e-13])
def test_runs_that_do_not_differ_have_a_scale_of_what_would_be_a_difference(change_s: float) -> None:
    runs = [Run("sjf", [schedule([10.0, 20.0, 30.0])]), Run("learned", [schedule([10.0, 20.0 + change_s, 30.0])])]
    (view,) = views_of(replace(REPORT, sections=[Section("s", "", runs, "sjf")]))
    axes = next(each for each in view.drawings if each.name == "paired-differences").draw(LIGHT).axes[0]
    assert (axes.get_xlim(), list(axes.get_xticks())) == ((-1.0, 1.0), [-1.0, 0.0, 1.0])


def test_an_axis_of_nothing_but_zeros_does_not_end_at_some_hundredths() -> None:
    nothing = Sweep("load", np.array([0.5, 0.9]), np.array([0.1, 0.2]), POINTS, {"sjf": np.zeros((2, 1))})
    (view,) = views_of(
        replace(REPORT, sections=[Section("s", "", [Run("sjf", [schedule([1.0])])], "sjf", sweeps=[nothing])])
    )
    tops = {each.name: each.draw(LIGHT).axes[0].get_ylim() for each in view.drawings}
    assert tops["held-rate"] == tops["queue-utilisation"] == (0.0, 1.0)


def test_the_farthest_difference_is_not_cut_off_at_the_edge() -> None:
    runs = [Run("simulated", [schedule([6.5])]), Run("cluster", [schedule([12.5])])]
    (view,) = views_of(replace(REPORT, sections=[Section("s", "", runs, "simulated")]))
    figure = next(each for each in view.drawings if each.name == "paired-differences").draw(LIGHT)
    figure.draw_without_rendering()
    axes = figure.axes[0]
    right, most = axes.transData.transform([(axes.get_xlim()[1], 0.0), (6.0, 0.0)])[:, 0] * 72.0 / figure.dpi
    assert right - most > 5.0, "the diamond is as many points wide"


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_words_below_differences_that_all_lie_on_one_side_stay_in_the_chart(sign: float) -> None:
    runs = [Run("sjf", [schedule([1000.0] * 40)]), Run("learned", [schedule([1000.0 + 500.0 * sign] * 40)])]
    (view,) = views_of(replace(REPORT, sections=[Section("s", "", runs, "sjf")]))
    figure = next(each for each in view.drawings if each.name == "paired-differences").draw(LIGHT)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    (words,) = axes.texts
    inside, room = words.get_window_extent(), axes.get_window_extent()
    assert room.x0 < inside.x0 < inside.x1 < room.x1


def test_a_single_job_is_a_line_in_both_distributions() -> None:
    (view,) = views_of(Report("t", "l", [Section("s", "", [Run("sjf", [schedule([4.0])])], "sjf")]))
    for drawing in view.drawings[:2]:
        line = drawing.draw(LIGHT).axes[0].lines[0]
        assert np.ptp(np.asarray(line.get_ydata(), float)) > 0.0


def drawings_from(first_s: float) -> dict[str, Drawing]:
    """What is drawn of one short schedule that begins at `first_s`."""
    times = ("arrival_s", "start_s", "completion_s")
    found = schedule([2.0, 4.0, 6.0])
    later = replace(
        found,
        **{name: getattr(found, name) + first_s for name in times},
        tasks=found.tasks._replace(start_s=found.tasks.start_s + first_s, end_s=found.tasks.end_s + first_s),
    )
    (view,) = views_of(replace(REPORT, sections=[Section("s", "", [Run("sjf", [later])], "sjf")]))
    return {drawing.name: drawing for drawing in view.drawings}


@pytest.mark.parametrize("first_s", [0.0, 1.7e9])  # as a trace begins that counts from 1970
def test_a_chart_of_a_whole_schedule_does_not_say_which_part_it_is(first_s: float) -> None:
    drawings = drawings_from(first_s)
    assert drawings["gantt"].caption.strip().endswith("deliberately held.")
    assert "Shaded" not in drawings["queue-utilisation"].caption


@pytest.mark.parametrize(("jct_s", "why"), [(1.0, ""), (9.0, ", where most jobs wait")])
def test_a_chart_of_a_part_says_why_that_part_if_there_is_a_reason(jct_s: float, why: str) -> None:
    (view,) = views_of(replace(REPORT, sections=[Section("s", "", [Run("sjf", [schedule([jct_s] * 200)])], "sjf")]))
    (caption,) = [drawing.caption for drawing in view.drawings if drawing.name == "gantt"]
    assert re.search(rf"From \d+ s to \d+ s{why}\.$", caption.strip()), caption


@pytest.mark.parametrize("name", ["gantt", "queue-utilisation"])
@pytest.mark.parametrize("first_s", [0.0, 1.7e9, 1e15 - 16.0])
def test_instants_below_a_chart_are_told_in_full(name: str, first_s: float) -> None:
    figure = drawings_from(first_s)[name].draw(LIGHT)
    figure.draw_without_rendering()
    axis = figure.axes[-1].xaxis
    assert axis.get_offset_text().get_text() == "", "nothing is added to them or multiplied"
    low, high = figure.axes[-1].get_xlim()
    shown = [label for label in axis.get_ticklabels() if low <= label.get_position()[0] <= high]
    assert [float(label.get_text()) for label in shown] == [label.get_position()[0] for label in shown]
    boxes = [label.get_window_extent() for label in shown]
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes)), "and none is written over its neighbour"


@pytest.mark.parametrize("executors", [2, 256])
def test_the_executors_of_a_large_pool_have_their_runs_colour_too(executors: int) -> None:
    busy = np.repeat([0.0, 10.0], executors)
    tasks = Tasks(busy, busy + 10.0, np.zeros(2 * executors, np.int32), np.ones(2 * executors, np.int32))
    run = Run("sjf", [replace(schedule([20.0], executors=executors), tasks=tasks)])
    (view,) = views_of(replace(REPORT, sections=[Section("s", "", [run], "sjf")]))
    figure = next(drawing for drawing in view.drawings if drawing.name == "gantt").draw(LIGHT)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    left, low, width, height = figure.axes[0].get_window_extent().bounds
    pixels = np.asarray(canvas.buffer_rgba())[::-1, :, :3].astype(float)  # from the bottom, as the axes are measured
    middle = pixels[
        int(low + 0.2 * height) : int(low + 0.8 * height), int(left + 0.1 * width) : int(left + 0.4 * width)
    ]
    paper, color = (255.0 * np.array(to_rgb(each)) for each in (LIGHT.paper, LIGHT.run(0)))
    share = ((paper - middle.mean(axis=(0, 1))) / (paper - color)).mean()
    assert share > 0.7, "what runs can be told from what is free"


def test_runs_of_one_colour_differ_in_their_lines() -> None:
    looks = [tuple(LIGHT.line(number).values()) for number in range(20)]
    assert len(set(looks)) == len(looks)
    assert LIGHT.line(8)["color"] == LIGHT.run(0)
    many = [Run(f"r{number}", BASE.schedules) for number in range(9)]
    assert render(Report("t", "l", [Section("s", "", many, "r0")])).count('class="key dashed"') == 1


def test_the_part_of_a_long_run_that_is_shown_above_can_be_seen() -> None:
    long = schedule([9.0] * 100_000)
    (view,) = views_of(replace(REPORT, sections=[Section("s", "", [Run("sjf", [long])], "sjf")]))
    (drawing,) = (each for each in view.drawings if each.name == "queue-utilisation")
    assert "Shaded: " in drawing.caption
    figure = drawing.draw(LIGHT)
    figure.draw_without_rendering()
    for axes in figure.axes:
        (shade,) = (each for each in axes.patches if isinstance(each, Rectangle))
        inside = shade.get_window_extent().width * 72.0 / figure.dpi  # in points, as lines are
        assert inside < 1.0 < inside + shade.get_linewidth()


def test_a_large_run_makes_a_page_that_a_browser_still_takes() -> None:
    big = schedule([1.0 + n % 7 for n in range(20_000)], [float(n % 3 == 0) for n in range(20_000)], executors=10)
    text = render(Report("t", "l", [Section("s", "", [Run("a", [big]), Run("b", [big])], "a")]))
    assert len(text) < 1_000_000
    assert "the first 1,000 of 20,000" in text


def test_figures_are_files_of_their_own_in_daylight(tmp_path: Path) -> None:
    paths = write_figures(REPORT, tmp_path / "new" / "figures")
    names = [path.name for path in paths]
    assert names == [f"{name}{suffix}" for name in FIGURES for suffix in (".svg", ".png")]
    for path in paths:
        content = path.read_bytes()
        if path.suffix == ".png":
            assert content.startswith(b"\x89PNG")
        else:
            assert b"<svg" in content
            assert b"var(--" not in content
            assert b"#0a000" not in content


@pytest.mark.parametrize(
    ("report", "message"),
    [
        (Report("t", "l", [Section("s", "", [BASE, Run("empty", [])], "sjf")]), "no job of empty is finished"),
        (Report("t", "l", [Section("s", "", [BASE], "fifo")]), "no run is called 'fifo'"),
        (Report("t", "l", []), "nothing to report on"),
    ],
)
def test_a_report_without_something_to_show_is_refused(report: Report, message: str) -> None:
    with pytest.raises(InputError, match=message):
        render(report)


def test_a_file_that_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write it"):
        write(REPORT, tmp_path / "no" / "such" / "folder.html")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot make the folder"):
        write_figures(REPORT, tmp_path / "file")


def test_it_needs_neither_torch_nor_kubernetes() -> None:
    code = (
        "import sys, fermata.sim.report, fermata.sim.compare.outcome;"
        "print([m for m in ('torch', 'kopf', 'kubernetes') if m in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
