"""The documentation says what the code does: generated pages are current, links lead somewhere, commands exist."""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.core import TyperGroup
from typer.main import get_command

from fermata.cli.admission import problems
from fermata.cli.main import VERBS, app
from fermata.sim.scenarios import SCENARIOS

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("examples/*.md"), *(ROOT / "docs").rglob("*.md")])


def test_the_generated_pages_are_current() -> None:
    told = subprocess.run(
        [sys.executable, "scripts/docs.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stdout + told.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), f"{target} does not exist"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_anchor_is_a_heading(page: Path) -> None:
    """The site's own check leaves out what is not in docs/."""
    for target, anchor in re.findall(r"\]\(([^)#:\s]*)#([^)\s]+)\)", page.read_text(encoding="utf-8")):
        text = (page.parent / target if target else page).read_text(encoding="utf-8")
        headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
        slugs = {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}
        assert anchor in slugs, f"{target}#{anchor} is no heading"


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert pages == set(re.findall(r"[\w/-]+\.md", text))
    assert yaml.safe_load(text)["theme"]["font"] is False, "the site asks for no fonts from elsewhere"


def test_every_command_and_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        named = set(re.findall(r"(?:`|^ {4}|&& )fermata ([a-z][a-z-]*)", text, flags=re.MULTILINE))
        named |= {verb for line in re.findall(r"`fermata ([a-z][a-z|-]*)", text) for verb in line.split("|") if verb}
        named = {verb for name in named for verb in name.split("|")}
        assert named <= set(VERBS), f"{page.name} names {named - set(VERBS)}"
        made = set(re.findall(r"(?:`|^ {4}|=\S+ )make ([a-z-]+)", text, flags=re.MULTILINE))
        assert made <= targets, f"{page.name} names {made - targets}"


def test_every_module_that_the_architecture_names_exists() -> None:
    modules = {
        path for room in ("cli", "operator", "policy", "sim", "training") for path in ROOT.glob(f"{room}/**/*.py")
    }
    names = {"/".join(path.parts[-length:]) for path in modules for length in (1, 2, 3)}
    told = set(re.findall(r"`([\w/]+\.py)`", (ROOT / "docs/architecture.md").read_text(encoding="utf-8")))
    assert len(told) > 30
    assert told <= names


def test_every_command_line_that_is_shown_can_be_read() -> None:
    root = get_command(app)
    for page in PAGES:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        for line in re.findall(r"^ {4}fermata ([^\n\[|]+?)(?: [#>].*)?$", text, flags=re.MULTILINE):
            command, words = root, shlex.split(line)
            while isinstance(command, TyperGroup):
                command = command.get_command(None, words.pop(0))  # type: ignore[arg-type]
            if "--help" not in words:
                command.make_context(line, words)  # fails with what cannot be read


def test_every_scenario_is_described_with_its_pool_and_load() -> None:
    text = (ROOT / "docs/traces.md").read_text(encoding="utf-8")
    told = {}
    for names, pools in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (\d[\d.,; ]*) \|", text, flags=re.MULTILINE):
        told |= dict(zip(re.findall(r"\w+", names), itertools.cycle(pools.strip().split("; ")), strict=False))
    assert told == {
        each.name: ", ".join(f"{value:g}" for value in (each.executors, getattr(each.recipe, "load", None)) if value)
        for each in SCENARIOS.values()
    }


def test_every_manifest_that_is_shown_is_sound() -> None:
    shown = 0
    for page in PAGES:
        for block in re.findall(
            r"^```yaml\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
        ):
            manifest = yaml.safe_load(block)
            if "kind" in manifest:
                assert not problems(manifest), f"{page.name}: {block}"
                shown += 1
    assert shown >= 2


def test_what_the_readme_says_of_the_model_is_what_its_card_says() -> None:
    card = (ROOT / "policy/fermata/policy/models/default.md").read_text()
    scores = {row[0]: row[1:] for row in re.findall(r"^\| (\w+) \| \w+ \| [\d.]+ \| -([\d.]+) ± ([\d.]+) ", card, re.M)}
    told = (ROOT / "README.md").read_text()
    for name, pattern in {
        "express_k2_80": r"\*\*([\d.]+)% ± ([\d.]+) below",
        "dag_pods": r"([\d.]+)% ± ([\d.]+) \(`dag_pods`\)",
        "dag_wide": r"([\d.]+)% ± ([\d.]+) \(`dag_wide`\)",
        "pairs_k1_30": r"([\d.]+)% ± ([\d.]+) \(`pairs_k1_30`\)",
    }.items():
        found = re.search(pattern, told)
        assert found is not None, name
        for shown, measured in zip(found.groups(), scores[name], strict=True):
            assert float(shown) == pytest.approx(float(measured), abs=0.051), name
