"""A real control plane for tests: the cluster of FERMATA_TEST_KUBECONFIG, or one started from KUBEBUILDER_ASSETS.

KUBEBUILDER_ASSETS is envtest's convention: a folder with etcd and kube-apiserver. Jobs and their pods need
kube-controller-manager and kube-scheduler there too. Nothing of it runs containers: a control plane without nodes gets
a simulated one, run by the embedded control plane's kubelet over the API, so that the same tests mean the same there.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from fermata.sim.kube.client import Client
from fermata.sim.kube.controllers.kubelet import Kubelet
from fermata.sim.kube.errors import ApiError

KUBECONFIG = os.environ.get("FERMATA_TEST_KUBECONFIG")
ASSETS = os.environ.get("KUBEBUILDER_ASSETS")
REAL = bool(KUBECONFIG or ASSETS)
#: Whether Jobs get pods there, which envtest's own binaries cannot.
JOBS = bool(KUBECONFIG) or bool(
    ASSETS and all((Path(ASSETS) / name).exists() for name in ("kube-controller-manager", "kube-scheduler"))
)
#: Whether a test can have one of its own, in which nothing is left of others.
FRESH = bool(ASSETS and not KUBECONFIG)

PATIENCE_S = 120.0
_USERS = {"admin": "system:masters", "system:kube-controller-manager": "", "system:kube-scheduler": ""}
# Simulated nodes send no heartbeats, and one that is silent would be taken for lost. A pod that no node has taken would
# be ended although a finalizer of ours keeps it.
_CONTROLLERS = (
    "*,-node-lifecycle-controller,-node-ipam-controller,-taint-eviction-controller,-pod-garbage-collector-controller"
)


@dataclass(frozen=True)
class RealPlane:
    """A control plane that is up.

    Args:
        kubeconfig: of its administrator.
        simulates: whether pods do what their annotations say.
    """

    kubeconfig: Path
    simulates: bool


@contextlib.contextmanager
def real_plane(folder: Path, slots: int = 4) -> Iterator[RealPlane]:
    """Give the cluster that is named, or a fresh control plane; skips the test where there is neither.

    Args:
        folder: an existing one, for keys, data, logs and the kubeconfig.
        slots: executor slots of the simulated node, where one is needed.
    """
    with contextlib.ExitStack() as stack:
        if KUBECONFIG:
            kubeconfig = folder / "kubeconfig"
            shutil.copy(KUBECONFIG, kubeconfig)
        elif ASSETS:
            kubeconfig = stack.enter_context(_started(Path(ASSETS), folder))
        else:
            pytest.skip("set FERMATA_TEST_KUBECONFIG or KUBEBUILDER_ASSETS to run against a real control plane")
        simulates = JOBS and not asyncio.run(_nodes(kubeconfig))
        if simulates:
            stack.enter_context(_simulated_node(kubeconfig, slots))
        yield RealPlane(kubeconfig, simulates)


async def _nodes(kubeconfig: Path) -> list[dict[str, Any]]:
    async with Client.from_kubeconfig(kubeconfig) as client:
        nodes: list[dict[str, Any]] = (await client.get("/api/v1/nodes"))["items"]
        return nodes


@contextlib.contextmanager
def _simulated_node(kubeconfig: Path, slots: int) -> Iterator[None]:
    """Run the pods of a node of our own until the test is over."""
    name, ready, stop = f"local-{os.urandom(3).hex()}", threading.Event(), threading.Event()

    async def live() -> None:
        async with Client.from_kubeconfig(kubeconfig) as client:
            running = asyncio.create_task(Kubelet(client, {name: slots}).run())
            path = f"/api/v1/nodes/{name}"
            while not ready.is_set():
                with contextlib.suppress(ApiError):  # not registered yet
                    # Admission marks new nodes as not ready, and the controller that would unmark them is off.
                    await client.patch(path, {"spec": {"taints": None}})
                    ready.set()
                await asyncio.sleep(0.05)
            while not stop.is_set():
                await asyncio.sleep(0.05)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await client.delete(path)

    thread = threading.Thread(target=lambda: asyncio.run(live()), name="kubelet", daemon=True)
    thread.start()
    try:
        assert ready.wait(PATIENCE_S), "the simulated node is not taken"
        yield
    finally:
        stop.set()
        thread.join(PATIENCE_S)


# A control plane of our own ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _started(assets: Path, folder: Path) -> Iterator[Path]:
    """Start a control plane from its programs; gives its administrator's kubeconfig."""
    keys = _keys(folder)
    etcd, peer, port = (free_port() for _ in range(3))
    # Who asks is told by a token: its digits are no secret on loopback, in a folder of the test's.
    tokens = {user: os.urandom(16).hex() for user in _USERS}
    rows = [f'{token},{user},{user},"{_USERS[user]}"' for user, token in tokens.items()]
    (folder / "tokens.csv").write_text("\n".join(rows), encoding="utf-8")
    kubeconfigs = {
        user: _kubeconfig(folder / f"kubeconfig-{number}", port, keys["cert"], token)
        for number, (user, token) in enumerate(tokens.items())
    }
    commands = [
        [
            "etcd", f"--data-dir={folder / 'etcd'}", "--unsafe-no-fsync",
            f"--listen-client-urls=http://127.0.0.1:{etcd}", f"--advertise-client-urls=http://127.0.0.1:{etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}", f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster=default=http://127.0.0.1:{peer}",
        ],
        [
            "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{etcd}", "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1", f"--secure-port={port}", "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.0.0.0/24", f"--tls-cert-file={keys['cert']}",
            f"--tls-private-key-file={keys['key']}", f"--token-auth-file={folder / 'tokens.csv'}",
            f"--service-account-key-file={keys['account']}", f"--service-account-signing-key-file={keys['account']}",
            "--service-account-issuer=https://kubernetes.default.svc", "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount",
        ],
    ]  # fmt: skip
    if JOBS:
        common = ["--leader-elect=false", "--secure-port=0", "--kube-api-qps=500", "--kube-api-burst=1000"]
        commands += [
            [
                "kube-controller-manager", f"--kubeconfig={kubeconfigs['system:kube-controller-manager']}",
                f"--service-account-private-key-file={keys['account']}", "--use-service-account-credentials=true",
                f"--controllers={_CONTROLLERS}", *common,
            ],
            ["kube-scheduler", f"--kubeconfig={kubeconfigs['system:kube-scheduler']}", *common],
        ]  # fmt: skip
    with contextlib.ExitStack() as stack:
        for program, *arguments in commands:
            stack.enter_context(_process(assets / program, arguments, folder / f"{program}.log"))
            if program == "kube-apiserver":
                _wait_until_ready(kubeconfigs["admin"], folder / f"{program}.log")
        yield kubeconfigs["admin"]


@contextlib.contextmanager
def _process(program: Path, arguments: list[str], log: Path) -> Iterator[None]:
    with log.open("wb") as output, subprocess.Popen([program, *arguments], stdout=output, stderr=output) as process:
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()


def _keys(folder: Path) -> dict[str, Path]:
    """Make a certificate for loopback that vouches for itself, and the key that signs service accounts' tokens."""
    found = {name: folder / f"{name}.pem" for name in ("cert", "key", "account")}
    certificate = [
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
        "-subj", "/CN=fermata-test", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost",
        "-addext", "keyUsage=critical,digitalSignature,keyCertSign",
        "-keyout", str(found["key"]), "-out", str(found["cert"]),
    ]  # fmt: skip
    for command in (certificate, ["openssl", "genrsa", "-out", str(found["account"]), "2048"]):
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    return found


def _kubeconfig(path: Path, port: int, authority: Path, token: str) -> Path:
    cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(authority)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "user", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user", "namespace": "default"}}],
        "current-context": "test",
    }
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


def _wait_until_ready(kubeconfig: Path, log: Path) -> None:
    async def ready() -> bool:
        async with Client.from_kubeconfig(kubeconfig) as client:
            try:
                await client.get("/readyz")
                await client.get("/api/v1/namespaces/default")
            except (ApiError, OSError):
                return False
            return True

    ends = time.monotonic() + PATIENCE_S
    while not asyncio.run(ready()):
        assert time.monotonic() < ends, log.read_text(encoding="utf-8", errors="replace")[-2000:]
        time.sleep(0.1)


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
