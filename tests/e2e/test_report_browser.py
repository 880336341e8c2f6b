"""The pages of `compare` and `policy explain` in a real browser: silent console, no requests, nothing too wide."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.browser import Browser, browser
from tests.unit.report.test_report import SECTION

from fermata.policy.onnx_policy import OnnxPolicy
from fermata.policy.registry import load
from fermata.sim.explain import Workload, explain
from fermata.sim.explain.chapter import chapter_of
from fermata.sim.report import Chapter, Report, write
from fermata.sim.report.drawing import LIGHT
from fermata.sim.scenarios import scenario

pytestmark = pytest.mark.e2e

# Parts that stick out of the window, other than inside of a box that scrolls by itself; small texts; invisible ones.
_STICKING_OUT = """
[...document.querySelectorAll('body *')]
  .filter(each => !each.closest('.scroll'))
  .filter(each => each.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map(each => each.outerHTML.slice(0, 120))
"""
# Words of a drawing that its edge cuts off.
_CUT_OFF = """
[...document.querySelectorAll('svg[role=img]')].flatMap(drawing => {
  const edge = drawing.getBoundingClientRect()
  return [...drawing.querySelectorAll('text')].filter(each => {
    const box = each.getBoundingClientRect()
    return box.left < edge.left - 2 || box.right > edge.right + 2 || box.top < edge.top - 2
      || box.bottom > edge.bottom + 2
  }).map(each => each.textContent)
})
"""
_LEAST_TEXT_PX = """
Math.min(...[...document.querySelectorAll('svg[role=img] text')].map(each => {
  const scale = each.ownerSVGElement.getBoundingClientRect().width / each.ownerSVGElement.viewBox.baseVal.width
  return parseFloat(getComputedStyle(each).fontSize) * scale
}))
"""
_CONTRAST = """
(() => {
  const light = color => {
    const [r, g, b] = color.match(/[\\d.]+/g).map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
  }
  const paper = light(getComputedStyle(document.body).backgroundColor)
  const ratio = value => (Math.max(value, paper) + 0.05) / (Math.min(value, paper) + 0.05)
  const words = [...document.querySelectorAll('p, td, th, dd, dt, figcaption, h1, h2, h3')]
    .map(each => ratio(light(getComputedStyle(each).color)))
  const drawn = [...document.querySelectorAll('svg[role=img] text')]
    .map(each => ratio(light(getComputedStyle(each).fill)))
  return Math.min(...words, ...drawn)
})()
"""


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    # As a pool's report names its runs, and as models are named; they leave little room for what stands beside them.
    names = ["simulated sjf-hold:tau=1,split=0", f"/home/somebody/{'x' * 60}/policy.onnx"]
    long = [replace(run, name=name) for name, run in zip(names, SECTION.runs, strict=True)]
    section = replace(SECTION, runs=long, base=long[0].name, holds={}, sweeps=[])
    sections = [SECTION, SECTION, section]
    title = f"Fermata: pool {'p' * 63}"  # as long as a pool's name may be
    chapter = Chapter(f"What {names[1]} learned", "Nothing.", [])
    provenance = {f"model {names[1] * 3}": "0" * 64}
    write(Report(title, "Three jobs, thrice.", sections, ["Few."], provenance, [chapter]), path)
    return path


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    policy, drawn = load("default"), scenario("express_k2").with_(jobs=600, warm=50)
    assert isinstance(policy, OnnxPolicy)
    workload = Workload(drawn.name, drawn.executors, drawn.generate, drawn.warm)
    path = tmp_path_factory.mktemp("learned") / "report.html"
    chapter = chapter_of(explain(policy, [workload], [1, 2], most=200, top=1))
    write(Report("Fermata: what it learned", "", [], chapters=[chapter]), path)
    return path


# A link at the end of every row: of these a printed page says where they are, whatever else is in it.
_LINK_ENDS = """
[...document.querySelectorAll('tr > :last-child')].filter(each => each.checkVisibility()).map(each => {
  each.innerHTML = '<a href="https://example.org/">' + (each.innerHTML || '.') + '</a>'
}).length
"""


@pytest.mark.parametrize("width", [390, 1280])
def test_on_paper_no_column_is_cut_off(tab: Browser, page: Path, width: int) -> None:
    tab.show(page, width, dark=False)
    rows = tab.ask(_LINK_ENDS)
    printed = base64.b64decode(tab.call("Page.printToPDF")["data"])
    (right,) = {float(found) for found in re.findall(rb"/MediaBox \[0 0 ([\d.]+) ", printed)}
    ends = [float(found) for found in re.findall(rb"/Rect \[[\d.]+ [\d.]+ ([\d.]+) ", printed)]
    assert len(ends) >= rows  # one that is broken is in two places
    assert max(ends) <= right


# Where a class of jobs ends, as the bar that a screenshot shows: nearly the table's width (a screenshot has no
# scroll bar, which moves it by a few pixels), from above to below the line.
_CLASS_ENDS = """
[...document.querySelectorAll('tr:not(.first) + tr.first')].map(each => {
  const box = each.getBoundingClientRect(), seen = each.closest('.scroll').getBoundingClientRect()
  return {x: seen.left + 20, y: Math.round(box.top + scrollY) - 4, width: seen.width - 40, height: 8, scale: 1}
})
"""


@pytest.mark.parametrize("width", [390, 1280])
def test_classes_of_jobs_are_parted_by_a_line_through_all_columns(tab: Browser, tmp_path: Path, width: int) -> None:
    runs = [
        replace(run, schedules=[replace(each, work_s=np.array([1.0, 2.0, 3.0])) for each in run.schedules])
        for run in SECTION.runs
    ]
    write(Report("t", "l", [replace(SECTION, runs=runs)]), tmp_path / "page.html")
    tab.show(tmp_path / "page.html", width, dark=False)
    muted = tuple(bytes.fromhex(LIGHT.muted[1:]))
    ends = tab.ask(_CLASS_ENDS)
    assert len(ends) == 2
    for clip in ends:
        shot = tab.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
        pixels = np.array(Image.open(io.BytesIO(base64.b64decode(shot))).convert("RGB"), int)
        assert (np.abs(pixels - muted).max(axis=2) < 8).any(axis=0).all()


# The upper right corner of the first table's box, above the words of its header.
_CORNER = """
(() => {
  const box = document.querySelector('.scroll:has(table)').getBoundingClientRect()
  return {x: Math.floor(box.right) - 4, y: Math.ceil(box.top + scrollY) + 1, width: 3, height: 3, scale: 1}
})()
"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_shade_says_that_there_is_more_to_scroll_to(tab: Browser, page: Path, dark: bool) -> None:
    def shade() -> int:
        shot = tab.call("Page.captureScreenshot", captureBeyondViewport=True, clip=tab.ask(_CORNER))["data"]
        corner = np.array(Image.open(io.BytesIO(base64.b64decode(shot))).convert("RGB"), int)
        paper = tab.ask("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
        return int(np.abs(corner - paper).max())

    tab.show(page, 390, dark=dark)
    assert shade() > 15
    tab.ask("document.querySelector('.scroll:has(table)').scrollLeft = 10000")
    assert shade() <= 1
    tab.show(page, 1280, dark=dark)
    assert shade() <= 1


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize(("name", "drawings"), [("page", 25), ("learned", 7)])
def test_it_is_readable_and_silent(
    tab: Browser, name: str, drawings: int, width: int, dark: bool, request: pytest.FixtureRequest
) -> None:
    page: Path = request.getfixturevalue(name)
    tab.messages.clear()
    tab.requests.clear()
    tab.show(page, width, dark=dark)
    # Not innerWidth: a phone zooms out until what is too wide is on it.
    assert tab.ask("document.documentElement.scrollWidth") <= width
    assert tab.ask(_STICKING_OUT) == []
    assert tab.ask(_CUT_OFF) == []
    assert tab.ask("document.querySelectorAll('svg[role=img]').length") == drawings
    assert tab.ask(_LEAST_TEXT_PX) >= 9.0
    assert tab.ask(_CONTRAST) >= 4.5  # WCAG 2.2, 1.4.3
    paper = tab.ask("getComputedStyle(document.body).backgroundColor").removeprefix("rgb(").split(",")[0]
    assert (int(paper) < 60) == dark
    assert tab.messages == []
    assert all(url == page.as_uri() or url.startswith("data:") for url in tab.requests)
