"""What ONNX Runtime does beside running a model: nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

RUN = """
from fermata.policy.registry import load
load("default")
"""


def test_a_model_that_is_run_reports_to_nobody(tmp_path: Path) -> None:
    # Nothing else of the environment: where ONNX Runtime sees a build server's, it is silent by itself.
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    environment = {**kept, "HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", RUN], env=environment, timeout=60, check=True)
    assert not list(tmp_path.rglob("*onnxruntime*")), "its database of what is to be sent, and this device's identity"
