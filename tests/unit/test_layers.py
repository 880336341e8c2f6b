"""Who may import whom, as `make layers` checks it, and that the check has teeth."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINT = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()", "--no-cache"]


def test_the_layers_hold() -> None:
    told = subprocess.run(LINT, cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout
    assert "0 broken" in told.stdout


def test_a_layer_turned_upside_down_is_refused(tmp_path: Path) -> None:
    upside_down = tmp_path / "contracts.toml"
    upside_down.write_text(
        "[tool.importlinter]\n"
        'root_packages = ["fermata.policy", "fermata.operator"]\n'
        "[[tool.importlinter.contracts]]\n"
        'name = "upside down"\ntype = "layers"\nlayers = ["fermata.policy", "fermata.operator"]\n'
    )
    told = subprocess.run([*LINT, "--config", str(upside_down)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode == 1
    assert "upside down BROKEN" in told.stdout


@pytest.mark.training
def test_workers_that_only_play_episodes_load_no_torch() -> None:
    pytest.importorskip("torch")
    modules = ("collect", "headroom", "search_episodes", "spark.episodes")
    code = f"import sys, {', '.join(f'fermata.training.{name}' for name in modules)}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
