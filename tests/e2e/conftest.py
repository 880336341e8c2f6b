"""What the operator's end-to-end tests share: one control plane with one operator, for all that do not hurt them.

Starting both takes longer than most of what is tested on them. Pools and workflows have names of their own in each
test, so that tests do not see each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.operator_rig import Cluster, OperatorProcess, control_plane


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the shared operator records its decisions, in `decisions.jsonl`."""
    return tmp_path_factory.mktemp("operator")


@pytest.fixture(scope="session")
def kubeconfig(folder: Path) -> Iterator[Path]:
    """Of the shared control plane; the operator's own lies beside it."""
    with control_plane(folder, slots=64) as path:
        yield path


@pytest.fixture(scope="session")
def shared_operator(kubeconfig: Path, folder: Path) -> Iterator[OperatorProcess]:
    """The operator, started once."""
    process = OperatorProcess(kubeconfig, folder, "--record", str(folder / "decisions.jsonl"))
    try:
        process.wait_ready()
        yield process
    finally:
        code = process.stop()
    assert code == 0, process.log.read_text()


@pytest.fixture
def operator(shared_operator: OperatorProcess) -> Iterator[OperatorProcess]:
    """The operator, which no test may harm."""
    yield shared_operator
    told = shared_operator.log.read_text()
    assert shared_operator.process.poll() is None, told
    assert "Traceback" not in told


@pytest.fixture
def cluster(kubeconfig: Path, operator: OperatorProcess) -> Cluster:
    """What a user does with the shared control plane while the operator runs."""
    del operator
    return Cluster(kubeconfig)
