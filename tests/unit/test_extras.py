"""A command whose extra is missing says so in one line, before it does anything else."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from tests.processes import fermata

from fermata.cli.extras import PACKAGES
from fermata.sim.kube.schema import pattern

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Each with a mistake, or a folder to fill, of which nothing is to be said or seen: the extra comes first.
COMMANDS = [
    ("ablate --out {out} --config none", "torch", "training"),
    ("compare --policies none --scenario none", "matplotlib", "report"),
    ("demo --policy none --dir {out}", "kopf", "operator,report,sim"),
    ("demo --policy none --dir {out}", "matplotlib", "operator,report,sim"),
    ("demo --policy none --dir {out}", "orjson", "operator,report,sim"),
    ("explain w --kubeconfig none", "kubernetes", "operator"),
    ("export-onnx none --out {out}", "torch", "training"),
    ("hpc study --data none --out {out}", "torch", "training"),
    ("hpc train --log none --out none/a.onnx", "torch", "training"),
    ("hpc windows --out {out}", "torch", "training"),
    ("local up --dir {out}", "aiohttp", "sim"),
    ("operator --kubeconfig none", "prometheus_client", "operator"),
    ("policy explain none --out none/a.html", "matplotlib", "report"),
    ("release w --kubeconfig none", "aiohttp", "operator"),
    ("release-all --kubeconfig none", "aiohttp", "operator"),
    ("report --from-cluster --kubeconfig none", "jinja2", "operator,report"),
    ("trace export --from-cluster --kubeconfig none --out {out}", "aiohttp", "operator"),
    ("trace export none --format graphml --out {out}", "networkx", "sim"),
    ("trace import graphml none --out {out}", "networkx", "sim"),
    ("train --config none --out {out}", "tensorboard", "training"),
    ("train --config none --out {out} --ray auto", "ray", "training,ray"),
]


@pytest.mark.parametrize(("command", "package", "extras"), COMMANDS)
def test_a_missing_extra_is_said_first(
    command: str, package: str, extras: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if extras.startswith("training") and package != "torch":
        pytest.importorskip("torch", reason="needs the [training] extra")
    out = tmp_path / "out"
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    try:
        done = fermata(*command.format(out=out).split())
        pip = f"{shlex.quote(sys.executable)} -m pip"  # not the one of another environment
        told = f"fermata: {package} is not installed; install it with: {pip} install 'fermata[{extras}]'\n"
        assert (done.returncode, done.stderr) == (2, told)
        assert done.stdout == ""
        assert not out.exists()
    finally:
        if command.startswith("local"):  # a control plane that should not have come up
            fermata("local", "down", "--dir", str(out))


MISTAKEN = """
import shlex, sys
from tests.processes import fermata
for command in sys.stdin:
    print(fermata(*shlex.split(command)).stderr, end="")
"""


def test_what_is_wrong_is_said_before_torch_is_imported(tmp_path: Path) -> None:
    for package in PACKAGES["training"]:
        (tmp_path / f"{package}.py").write_text("raise ImportError('which takes seconds')")
    commands = {
        "ablate --out out --config none": "none: No such file or directory; expected a YAML file or one of",
        "hpc study --out out --data none": "expected lublin_256.swf.xz in none",
        "hpc train --out out.onnx --log none": "none: cannot read it: No such file or directory",
        "train --out out --config none": "none: No such file or directory; expected a YAML file or one of",
        "train --out out --trace none --executors 4": "none: cannot read it: No such file or directory",
    }
    done = subprocess.run(
        [sys.executable, "-c", MISTAKEN],
        input="\n".join(commands),
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
        check=True,
    )
    for line, told in zip(done.stdout.splitlines(), commands.values(), strict=True):
        assert line.startswith(f"fermata: {told}")


MISSING = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Missing())
"""
CORE = f"{MISSING}from fermata.cli.main import run\nrun()\n"
COLLECT = f"{MISSING}import pytest\nsys.exit(pytest.main(sys.argv[1:]))\n"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("validate examples/01-etl.yaml examples/pools.yaml", ""),
        ("simulate --trace examples/figure1.jsonl --executors 1 --policy fifo", ""),
        ("trace stats examples/figure1.jsonl", ""),
        ("trace export examples/figure1.jsonl --out -", ""),
        ("trace import jsonl examples/figure1.jsonl --out -", "2 jobs, 2 tasks written to -\n"),
        ("evaluate sjf --scenarios express_k2 --seeds 2000-2001 --episode-jobs 50 --jobs 1", ""),
        ("hpc generate --jobs 20 --out -", "20 jobs written to -\n"),
        ("policy info default", ""),
    ],
)
def test_what_needs_no_extra_runs_without_any(command: str, told: str) -> None:
    missing = sorted({"numba"}.union(*PACKAGES.values()))
    code = CORE.format(packages=missing)
    done = subprocess.run(
        [sys.executable, "-c", code, *command.split()], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, told)


def test_without_the_training_extra_its_tests_are_skipped_and_break_nothing() -> None:
    """`WITHOUT_TORCH=1 make test` gets through every file that might ask for one of the extra's packages."""
    code = COLLECT.format(packages={"onnxscript", "ray", *PACKAGES["training"]})
    asking = re.compile(r"torch|onnx|tensorboard|fermata\.training")
    files = [str(path) for path in sorted((ROOT / "tests").rglob("test_*.py")) if asking.search(path.read_text())]
    options = ["--collect-only", "-qq", "-p", "no:cacheprovider", "--benchmark-disable"]
    done = subprocess.run(
        [sys.executable, "-c", code, *options, *files], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == pytest.ExitCode.OK, done.stdout
    assert "needs the [training] extra" in done.stdout


def test_a_pattern_means_without_re2_what_it_means_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    patterns = set(re.findall(r"pattern: (.+)", "".join(each.read_text() for each in (ROOT / "deploy/crds").glob("*"))))
    texts = [*"a1-.:=,/A \n\xa0é", "a-1", "a\n", "\na", "a:b=1", "a:b=1\n", "/a.onnx", "/a.onnx\n", "0" * 64]
    with_it = {text: {each: bool(pattern(text).search(each)) for each in texts} for text in patterns}
    monkeypatch.setitem(sys.modules, "re2", None)
    without = pattern.__wrapped__
    assert {text: {each: bool(without(text).search(each)) for each in texts} for text in patterns} == with_it
    assert any(with_it[text]["a"] for text in patterns)


def test_what_is_looked_for_is_what_the_extras_bring() -> None:
    distributions = packages_distributions()
    for extra, packages in PACKAGES.items():
        brought = {_name(re.split(r"[^\w.-]", each)[0]) for each in PROJECT["optional-dependencies"][extra]}
        for package in packages:
            if package not in distributions:
                assert extra in ("training", "ray"), "everything else is part of [dev]"
                continue
            assert {_name(each) for each in distributions[package]} & brought, package


@pytest.mark.parametrize("extra", ["operator", "report", "sim"])
def test_what_is_looked_for_can_be_imported(extra: str) -> None:
    for package in PACKAGES[extra]:
        importlib.import_module(package)


def _name(distribution: str) -> str:
    """Return a distribution's name in the one spelling that counts."""
    return re.sub(r"[-_.]+", "-", distribution).lower()
