"""The layout that makes five folders one namespace, which one forgotten file would break."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
import zipfile
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


@pytest.mark.parametrize(
    ("imports", "environment"),
    [
        ("fermata.operator.main, fermata.policy.onnx_policy", {"FERMATA_NO_JIT": "1"}),
        ("kopf, fermata.operator, fermata.policy.onnx_policy", {}),  # in this order by kopf run -m fermata.operator
    ],
)
def test_the_operator_takes_nothing_heavy_with_it(imports: str, environment: dict[str, str]) -> None:
    code = f"import os, sys; import {imports}; print(*sorted(sys.modules))"
    told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    loaded = told.stdout.split()
    assert "fermata.operator.runtime" in loaded
    assert [name for name in loaded if name.startswith(HEAVY)] == []


def test_only_training_needs_torch() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert [name for name, needs in extras.items() if any(need.startswith("torch") for need in needs)] == ["training"]
    assert not [need for need in project["dependencies"] if need.startswith(("torch", "kopf", "numba", "matplotlib"))]


# What is published --------------------------------------------------------------------------------------------------


def _checkout() -> set[str]:
    """Return the files of this checkout that git does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if told.returncode:
        pytest.skip("needs a git checkout")
    return {name for name in told.stdout.splitlines() if (ROOT / name).is_file()}


def test_the_source_distribution_is_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = pytest.importorskip("hatchling.build")
    monkeypatch.chdir(ROOT)
    with tarfile.open(tmp_path / build.build_sdist(str(tmp_path))) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    assert names - _checkout() == {"PKG-INFO"}
    assert {name for name in _checkout() - names if not name.startswith(".github/")} == set()


def test_the_wheel_is_the_rooms_and_the_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = pytest.importorskip("hatchling.build")
    monkeypatch.chdir(ROOT)
    with zipfile.ZipFile(tmp_path / build.build_wheel(str(tmp_path))) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = {name.partition("/")[2] for name in _checkout() if name.startswith(tuple(f"{room}/" for room in ROOMS))}
    expected |= {f"fermata/cli/{name}" for name in _checkout() if name.startswith("examples/")}
    assert names == expected
