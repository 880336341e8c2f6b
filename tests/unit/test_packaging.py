"""The layout that makes five folders one namespace, which one forgotten file would break."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("cli", "operator", "policy", "sim", "training")
# What the operator's image has no room for: torch, the compiler of the simulator, and the rooms that need them.
HEAVY = ("torch", "numba", "llvmlite", "matplotlib", "fermata.sim", "fermata.training")


@pytest.mark.parametrize("room", ROOMS)
def test_no_init_file_turns_a_room_into_an_ordinary_package(room: str) -> None:
    assert not (ROOT / room / "__init__.py").exists(), f"{room}/ would shadow a module of that name"
    assert not (ROOT / room / "fermata" / "__init__.py").exists(), "fermata would not be a namespace any more"
    assert not (ROOT / "fermata").exists()
    assert (ROOT / room / "fermata" / room / "__init__.py").is_file()
    assert [path.name for path in (ROOT / room / "fermata").iterdir() if path.name != "__pycache__"] == [room]


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_is_typed_and_shipped(room: str) -> None:
    assert (ROOT / room / "fermata" / room / "py.typed").is_file()
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert f"{room}/fermata" in build["packages"]
    assert room in build["dev-mode-dirs"]


def test_the_standard_library_keeps_its_operator() -> None:
    code = "import operator, sys; assert operator.add(1, 2) == 3; import fermata.operator; print(operator.__file__)"
    for command in (["-c", code], ["-m", "timeit", "-n", "1", "import operator; operator.add(1, 2)"]):
        told = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False)
        assert told.returncode == 0, told.stderr
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not told.stdout.startswith(str(ROOT / "operator"))


def test_the_operator_takes_nothing_heavy_with_it() -> None:
    code = "import os, sys; import fermata.operator.main, fermata.policy.onnx_policy; print(*sorted(sys.modules))"
    told = subprocess.run(
        [sys.executable, "-c", code], env={"FERMATA_NO_JIT": "1"}, capture_output=True, text=True, check=True
    )
    loaded = told.stdout.split()
    assert "fermata.operator.main" in loaded
    assert [name for name in loaded if name.startswith(HEAVY)] == []


def test_only_training_needs_torch() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert [name for name, needs in extras.items() if any(need.startswith("torch") for need in needs)] == ["training"]
    assert not [need for need in project["dependencies"] if need.startswith(("torch", "kopf", "numba", "matplotlib"))]
