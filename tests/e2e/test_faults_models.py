"""Model files cut, swapped, huge or made for something else: the fallback decides, says so, and work goes on."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from tests.operator_rig import Cluster, OperatorProcess, condition_of, stage, wait_until

from fermata.policy import registry

pytestmark = pytest.mark.e2e


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def falls_back(cluster: Cluster, pool: str, path: Path, sha256: str) -> str:
    """Run a workflow in a pool with this model, and return what the pool says of it."""
    cluster.pool(pool, executors=1, policy={"model": {"path": str(path), "sha256": sha256}}, fallback="fifo")
    cluster.submit(f"{pool}-w", pool, [stage("a", 0.2), stage("b", 0.2, "a")])
    assert cluster.wait_for(f"{pool}-w")["policy"] == "fifo"
    told = condition_of(cluster.wait_for_pool(pool, "PolicyReady", "False"), "PolicyReady")
    assert told["reason"] == "ModelUnusable"
    return str(told["message"])


def test_a_truncated_model(cluster: Cluster, tmp_path: Path) -> None:
    whole = registry.shipped_model().read_bytes()
    path = tmp_path / "cut.onnx"
    path.write_bytes(whole[: len(whole) // 2])
    falls_back(cluster, "cut", path, digest(path))
    assert "sha256" in falls_back(cluster, "cut-too", path, hashlib.sha256(whole).hexdigest()).lower()


def test_a_huge_model_is_refused_unread(cluster: Cluster, operator: OperatorProcess, tmp_path: Path) -> None:
    path = tmp_path / "huge.onnx"
    with path.open("wb") as file:
        file.truncate(500 * 1024 * 1024)
    assert "huge.onnx" in falls_back(cluster, "huge", path, "0" * 64)
    status = Path(f"/proc/{operator.process.pid}/status").read_text(encoding="utf-8")
    peak_kib = int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
    assert peak_kib < 350 * 1024, "it was read into memory"


def test_a_model_with_other_inputs(cluster: Cluster, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 3]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "other", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "other.onnx"
    path.write_bytes(model.SerializeToString())
    falls_back(cluster, "other", path, digest(path))


def test_a_model_swapped_while_it_decides_goes_on_until_the_pool_changes(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "swapped.onnx"
    path.write_bytes(registry.shipped_model().read_bytes())
    cluster.pool("swap", executors=1, policy={"model": {"path": str(path), "sha256": digest(path)}})
    cluster.wait_for_pool("swap", "PolicyReady", "True")
    path.write_bytes(b"something else")
    cluster.submit("swap-1", "swap", [stage("a", 0.2)])
    assert cluster.wait_for("swap-1")["policy"] != "sjf", "what was loaded and checked goes on deciding"
    spec = {"spec": {"policy": {"model": {"path": str(path), "sha256": digest(path)}}}}
    cluster.objects.patch_cluster_custom_object("fermata.dev", "v1alpha1", "executorpools", "swap", spec)
    cluster.wait_for_pool("swap", "PolicyReady", "False")
    cluster.submit("swap-2", "swap", [stage("a", 0.2)])
    assert cluster.wait_for("swap-2")["policy"] == "sjf"
    path.write_bytes(registry.shipped_model().read_bytes())
    spec = {"spec": {"policy": {"model": {"path": str(path), "sha256": digest(path)}}}}
    cluster.objects.patch_cluster_custom_object("fermata.dev", "v1alpha1", "executorpools", "swap", spec)
    wait_until(lambda: condition_of(cluster.pool_status("swap"), "PolicyReady").get("status") == "True", "not again")
