"""What `make` says where it cannot make the environment that it needs."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    for name in ("scripts/bootstrap", "scripts/constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def bootstrap(checkout: Path, **environ: str) -> tuple[int, str]:
    command = [checkout / "scripts/bootstrap", "operator"]
    done = subprocess.run(
        command, env=os.environ | environ, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("named", ["python-nowhere", "/bin/false"])
def test_an_interpreter_that_is_none_is_told_and_what_was_there_stays(checkout: Path, named: str) -> None:
    (checkout / ".venv").mkdir()
    assert bootstrap(checkout, PYTHON=named) == (
        1,
        f"bootstrap: PYTHON is '{named}', which is no Python 3.11 or newer\n",
    )
    assert (checkout / ".venv").exists()


def test_where_pip_finds_no_packages_another_interpreter_is_asked_for(checkout: Path) -> None:
    pytest.importorskip("ensurepip", reason="this Python makes no environments by itself")
    status, told = bootstrap(checkout, PYTHON=sys.executable, PIP_NO_INDEX="1", PIP_FIND_LINKS="")
    assert status == 1
    assert f"pip could not install it for Python {platform.python_version()}. Where a package" in told
    assert not list((checkout / ".venv").glob(".installed-*")), "it is tried again"
