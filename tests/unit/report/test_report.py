"""The report's numbers by hand, and a page that stands alone: no network, no errors, readable in light and dark."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fermata.policy.errors import InputError
from fermata.sim.report import (
    ExecutorSpan,
    JobRecord,
    Report,
    Run,
    assign_executors,
    differences,
    figures_of,
    render,
    write,
)


def job(name: str, arrival_s: float, jct_s: float, held_s: float = 0.0, run_s: float = 1.0) -> JobRecord:
    wait_s = jct_s - held_s - run_s
    return JobRecord(name, arrival_s, arrival_s + wait_s + held_s, arrival_s + jct_s, wait_s, held_s, run_s)


BASE = Run("sjf", 2, [job("a", 0.0, 2.0), job("b", 1.0, 4.0), job("c", 2.0, 6.0)])
OTHER = Run(
    "learned",
    2,
    [job("c", 2.0, 3.0), job("a", 0.0, 1.0), job("b", 1.0, 5.0, held_s=2.0)],
    [
        ExecutorSpan(0, 0.0, 1.0, "a", "run"),
        ExecutorSpan(1, 1.0, 3.0, "", "hold"),
        ExecutorSpan(1, 3.0, 4.0, "b", "run"),
    ],
)
REPORT = Report("Two runs", "Three jobs.", [BASE, OTHER], "sjf", ["Few."], {"seed": "1"})


def test_the_figures_of_a_run() -> None:
    numbers = figures_of(OTHER)
    assert numbers.jobs == 3
    assert numbers.avg_jct_s == 3.0
    assert (numbers.p50_jct_s, numbers.max_jct_s) == (3.0, 5.0)
    assert numbers.avg_held_s == pytest.approx(2.0 / 3.0)
    assert numbers.avg_wait_s + numbers.avg_held_s + numbers.avg_run_s == pytest.approx(numbers.avg_jct_s)


def test_differences_are_paired_by_name_whatever_the_order() -> None:
    found = differences(OTHER, BASE)
    assert found.jct_s.tolist() == [-1.0, 1.0, -3.0]
    assert found.mean_s.mean == -1.0
    # Student's 97.5% quantile of 2 degrees of freedom times 2 / sqrt(3).
    assert found.mean_s.ci95 == pytest.approx(4.3026527 * 2.0 / 3.0**0.5)
    assert found.percent == pytest.approx(-25.0)


def test_tasks_take_the_first_free_executor_and_holds_the_rest() -> None:
    tasks = [(0.0, 2.0, "a"), (0.5, 1.0, "b"), (1.0, 3.0, "c"), (1.999, 2.5, "d")]
    spans = assign_executors(tasks, [(2.0, 2.75), (2.5, 4.0)], 2)
    runs = [(span.job, span.executor, span.start_s) for span in spans if span.kind == "run"]
    # d starts by its clock a moment before a has ended: it waits for it rather than overlap.
    assert runs == [("a", 0, 0.0), ("b", 1, 0.5), ("c", 1, 1.0), ("d", 0, 2.0)]
    holds = [(span.executor, span.start_s, span.end_s) for span in spans if span.kind == "hold"]
    assert holds == [(0, 2.5, 4.0), (1, 3.0, 4.0)]


def test_a_run_without_jobs_and_an_unknown_base_are_refused() -> None:
    with pytest.raises(InputError, match="no job of empty is finished"):
        render(Report("t", "l", [BASE, Run("empty", 1, [])], "sjf"))
    with pytest.raises(InputError, match="no run is called 'fifo'"):
        render(Report("t", "l", [BASE], "fifo"))
    with pytest.raises(InputError, match="no job in common"):
        differences(Run("x", 1, [job("z", 0.0, 1.0)]), BASE)


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src", "xlink:href"):
                self.addresses.append(value or "")


def test_the_page_stands_alone_and_no_two_things_in_it_share_an_id() -> None:
    text = render(REPORT)
    page = _Page(text)
    assert len(page.ids) == len(set(page.ids))
    assert all(address.startswith(("#", "data:")) for address in page.addresses)
    targets = {address.removeprefix("#") for address in page.addresses if address.startswith("#")}
    targets |= set(re.findall(r"url\(#([^)]+)\)", text))
    assert targets <= set(page.ids)
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)


def test_the_page_follows_light_and_dark_everywhere() -> None:
    drawings = re.findall(r"<svg role.*?</svg>", render(REPORT), flags=re.DOTALL)
    assert len(drawings) == 4
    for drawing in drawings:
        colors = set(re.findall(r"(?:fill|stroke|stop-color): ?([^;\"]+)", drawing))
        fixed = {color for color in colors if not color.startswith(("var(--", "none", "url("))}
        assert not fixed, "a colour that does not change between light and dark"


def test_the_same_report_is_the_same_text() -> None:
    assert render(REPORT) == render(REPORT)


def test_names_are_text_and_never_markup() -> None:
    evil = "<script>alert(1)</script>"
    run = Run(evil, 2, [job(evil, 0.0, 2.0)], [ExecutorSpan(0, 0.0, 1.0, evil, "run")])
    assert "<script" not in render(Report(evil, evil, [run], evil, [evil], {evil: evil}))


def test_a_large_run_makes_a_page_that_a_browser_still_takes() -> None:
    jobs = [job(f"j{n}", float(n), 1.0 + n % 7) for n in range(20_000)]
    spans = [ExecutorSpan(0, float(n), n + 0.5, f"j{n}", "run") for n in range(20_000)]
    text = render(Report("t", "l", [Run("a", 1, jobs, spans), Run("b", 1, jobs, spans)], "a"))
    assert len(text) < 2_000_000
    assert "the first 1000 of 20000" in text


def test_a_file_that_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write the report there"):
        write(REPORT, tmp_path / "no" / "such" / "folder.html")


def test_it_needs_neither_torch_nor_kubernetes() -> None:
    code = "import sys, fermata.sim.report; print([m for m in ('torch', 'kopf', 'kubernetes') if m in sys.modules])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
def test_a_real_browser_shows_it_without_a_word_in_the_console(tmp_path: Path, width: int) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("needs chromium")
    write(REPORT, tmp_path / "report.html")
    # The page itself says whether it is wider than the window; everything in the console goes to standard error.
    probe = "<script>document.title = document.documentElement.scrollWidth > innerWidth ? 'wide' : 'fits'</script>"
    page = tmp_path / "report.html"
    page.write_text(page.read_text().replace("</body>", f"{probe}</body>"))
    shown = subprocess.run(
        [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--log-level=0",
            f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},1600", "--dump-dom", page.as_uri(),
        ],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert "<title>fits</title>" in shown.stdout
    assert "CONSOLE" not in shown.stderr
