"""`fermata local`: a control plane that outlives the command, and leaves nothing behind when it is told to go."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from typing import TYPE_CHECKING

import pytest
import yaml
from tests.processes import fermata, interruptible

from fermata.sim.kube.local import _locked, is_up, read_state

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.e2e


def local(*arguments: str) -> subprocess.CompletedProcess[str]:
    if arguments[0] != "up":
        return fermata("local", *arguments)
    # What outlives a command must not be a child of the tests, where it would stay as a zombie.
    command = [sys.executable, "-m", "fermata.cli", "local", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "a local one"
    local("down", "--dir", str(tmp_path / "a local one"))


def test_up_status_down(folder: Path) -> None:
    up = local("up", "--dir", str(folder), "--slots", "3", "--nodes", "2")
    assert up.returncode == 0, up.stderr
    assert f"export KUBECONFIG='{folder}/kubeconfig'" in up.stdout
    assert "  pods are simulated; their commands are not run\n" in up.stdout
    status = json.loads(local("status", "--json", "--dir", str(folder)).stdout)
    assert (status["up"], status["slots"], status["pods"]) == (True, 6, {})
    server = yaml.safe_load((folder / "kubeconfig").read_text(encoding="utf-8"))["clusters"][0]["cluster"]["server"]
    assert server == status["url"]
    with urllib.request.urlopen(f"{server}/apis/fermata.dev/v1alpha1") as answer:
        assert {"workflows", "executorpools"} <= {item["name"] for item in json.load(answer)["resources"]}
    again = local("up", "--dir", str(folder), "--slots", "3", "--port", "0", "--detach").stdout.splitlines()[0]
    assert again == f"already up: {server}, process {again.rpartition(' ')[2]}"
    others = ("--slots", "9", "--nodes", "2", "--no-install-crds", "--time-scale", "1")
    told = local("up", "--dir", str(folder), *others)
    assert (told.returncode, told.stderr) == (0, "")
    why = "; not applied to it: --slots, --no-install-crds, --time-scale (fermata local down first)"
    assert told.stdout.splitlines()[0] == f"{again}{why}"
    assert local("down", "--dir", str(folder)).stdout == "stopped\n"
    assert not is_up(folder)
    assert local("status", "--dir", str(folder)).returncode == 1
    assert local("down", "--dir", str(folder)).returncode == 0


@pytest.mark.parametrize(
    ("option", "pools", "workflow"),
    [
        ("--no-install-crds", *["the CRDs of fermata.dev/v1alpha1 (deploy/crds) are not installed"] * 2),
        ("--install-crds", "no ExecutorPool", "no workflow 'w' in namespace 'default'"),
    ],
)
def test_what_is_not_there_is_told_apart_from_crds_that_are_not(
    folder: Path, option: str, pools: str, workflow: str
) -> None:
    assert local("up", "--dir", str(folder), option).returncode == 0
    url = json.loads(local("status", "--json", "--dir", str(folder)).stdout)["url"]
    told = dict.fromkeys(("report --from-cluster", "trace export --from-cluster -o -", "release-all"), pools)
    for command, said in (told | dict.fromkeys(("explain w", "release w"), workflow)).items():
        done = fermata(*command.split(), "--kubeconfig", str(folder / "kubeconfig"))
        assert (done.returncode, done.stderr) == (2, f"fermata: {said} on {url}\n"), command


def test_nothing_is_up_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert local("status", "--dir", str(file)).stdout == f"down ({file})\n"
    assert local("down", "--dir", str(file)).stdout == f"nothing was up ({file})\n"
    begun = local("up", "--dir", str(file))
    assert (begun.returncode, begun.stderr) == (2, f"fermata: {file}: cannot make the folder: {file} is none\n")


INSTALLED = """\
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Namespace, metadata: {name: team, labels: {since: 2026-01-02}}}
- {apiVersion: fermata.dev/v1alpha1, kind: ExecutorPool, metadata: {name: p}, spec: {executors: 2}}
---
# nothing
"""


def test_manifests_are_read_as_kubectl_reads_them(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "list.yaml").write_text(INSTALLED, encoding="utf-8")
    up = local("up", "--dir", str(folder), "--crds", str(tmp_path / "more"))
    assert up.returncode == 0, up.stderr
    state = read_state(folder)
    assert state is not None
    with urllib.request.urlopen(f"{state.url}/api/v1/namespaces/team") as answer:
        assert json.load(answer)["metadata"]["labels"]["since"] == "2026-01-02"
    with urllib.request.urlopen(f"{state.url}/apis/fermata.dev/v1alpha1/executorpools/p") as answer:
        assert json.load(answer)["spec"]["executors"] == 2


def test_a_killed_one_is_not_in_the_way(folder: Path) -> None:
    local("up", "--dir", str(folder))
    state = read_state(folder)
    assert state is not None
    os.kill(state.pid, signal.SIGKILL)
    while is_up(folder):
        pass
    assert local("status", "--dir", str(folder)).returncode == 1
    again = local("up", "--dir", str(folder))
    assert again.returncode == 0, again.stderr


def test_no_proxy_is_asked_for_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    local("up", "--dir", str(folder))
    status = local("status", "--dir", str(folder))
    assert (status.returncode, status.stderr) == (0, "")
    told = fermata("explain", "w", "--kubeconfig", str(folder / "kubeconfig"))
    assert told.stderr.startswith("fermata: no workflow 'w' in namespace 'default'")


def test_one_that_does_not_answer_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local("up", "--dir", str(folder))
    state = read_state(folder)
    assert state is not None
    monkeypatch.setattr("fermata.cli.local._ANSWER_LIMIT_S", 0.2)
    os.kill(state.pid, signal.SIGSTOP)
    try:
        silent = local("status", "--dir", str(folder))
    finally:
        os.kill(state.pid, signal.SIGCONT)
    assert (silent.returncode, silent.stdout, silent.stderr.count("\n")) == (1, "", 1)
    assert f"process {state.pid}, does not answer" in silent.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_foreground_ends_cleanly_on_a_signal(folder: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "fermata.cli", "local", "up", "--foreground", "--dir", str(folder)]
    with interruptible(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "control plane up" in process.stdout.readline()
        refused = local("up", "--foreground", "--dir", str(folder))
        assert refused.returncode == 2
        assert "already up" in refused.stderr
        process.send_signal(number)
        assert process.wait(30) == 0
        assert "Traceback" not in process.stderr.read()
    assert not (folder / "state.json").exists()


def test_two_that_are_started_at_once_are_one(folder: Path) -> None:
    command = [sys.executable, "-m", "fermata.cli", "local", "up", "--dir", str(folder)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    told = [process.communicate(timeout=100) for process in both]
    assert [(process.returncode, stderr) for process, (_, stderr) in zip(both, told, strict=True)] == [(0, "")] * 2
    state = read_state(folder)
    assert state is not None
    began, found = sorted((stdout for stdout, _ in told), reverse=True)
    assert began.startswith(f"control plane up at {state.url}: ")
    assert found.startswith(f"already up: {state.url}, process {state.pid}\n")


def test_somebody_who_only_looks_keeps_nobody_from_starting(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fermata.sim.kube.local._LOOK_S", 60.0)  # a look may take long where a machine is busy
    folder.mkdir()
    with (folder / "lock").open("ab") as look:
        fcntl.flock(look, fcntl.LOCK_SH)
        threading.Timer(0.1, fcntl.flock, (look, fcntl.LOCK_UN)).start()
        with _locked(folder):
            assert is_up(folder)


def test_wrong_input_is_one_line(folder: Path, tmp_path: Path) -> None:
    up = ("local", "up", "--dir", folder)
    taken = fermata(*up, "--foreground", "--crds", tmp_path / "none")
    assert (taken.returncode, taken.stderr.count("\n")) == (2, 1)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.yaml").write_text("a: [1\nb: 2\n", encoding="utf-8")
    broken = fermata(*up, "--foreground", "--crds", tmp_path / "bad")
    assert broken.returncode == 2
    assert "a.yaml:2" in broken.stderr
    (tmp_path / "bad" / "a.yaml").write_text("hello\n", encoding="utf-8")
    text = fermata(*up, "--foreground", "--crds", tmp_path / "bad")
    assert (text.returncode, text.stderr.count("\n")) == (2, 1)
    assert "a.yaml:1: expected an object, got str" in text.stderr
    (tmp_path / "bad" / "a.yaml").write_text("kind: Foo\n", encoding="utf-8")
    bare = fermata(*up, "--foreground", "--crds", tmp_path / "bad")
    assert (bare.returncode, bare.stderr.count("\n")) == (2, 1)
    assert "a.yaml:1: expected an object with apiVersion" in bare.stderr
    (tmp_path / "bad" / "a.yaml").write_text("apiVersion: v1\nkind: Nonsense\n", encoding="utf-8")
    told = fermata(*up, "--foreground", "--crds", tmp_path / "bad")
    for unknown in (told, local("up", "--detach", "--dir", str(folder), "--crds", str(tmp_path / "bad"))):
        assert unknown.returncode == 2
        assert "Nonsense" in unknown.stderr
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = local("up", "--dir", str(folder), "--port", str(other.getsockname()[1]))
    assert (taken.returncode != 0, taken.stderr.count("fermata: ")) == (True, 1), "it says once who speaks"
    assert "already in use" in taken.stderr
