"""The operator as a process: what it cannot start with is one line, not a loop of tracebacks."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path


def test_a_port_that_is_taken_ends_it_with_one_line(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("{}", encoding="utf-8")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "fermata.cli", "operator", "--kubeconfig", str(kubeconfig)]
        done = subprocess.run(
            [*command, "--metrics-port", port], capture_output=True, text=True, timeout=60, check=False
        )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert f"cannot serve metrics on 127.0.0.1:{port}" in done.stderr
