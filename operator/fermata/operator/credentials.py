"""Credentials that a program gives, which a kubeconfig names as the `exec` of its user.

The client could run it, but reads what the program says to people only when it has ended, and shows it to nobody: who
is to log in somewhere would never learn where, and a program that says more than a pipe holds would wait for ever.

Source: client-go's `plugin/pkg/client/auth/exec`.
"""

from __future__ import annotations

import asyncio
import base64
import json
import math
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fermata.operator.times import parse
from fermata.policy.errors import InputError

# Renewed that much earlier than they end, as the client does: a request may be on its way for long.
_EARLY_S = 300.0
_AUTHORITY = "certificate-authority-data"
_FLAGS = ("insecure-skip-tls-verify", "disable-compression")
_OF_A_CLUSTER = ("server", "tls-server-name", "proxy-url", *_FLAGS, _AUTHORITY)
_FOR_PROGRAMS = "client.authentication.k8s.io/exec"
_MALFORMED = (OSError, AttributeError, LookupError, TypeError, ValueError)


class Credentials(NamedTuple):
    """What a program gave, in a kubeconfig's words for a user, and when that ends, in seconds since the epoch."""

    user: dict[str, str]
    ends_s: float

    @property
    def are_due(self) -> bool:
        """Whether the program is to be asked again; of what has no end it is asked each time."""
        return self.ends_s - _EARLY_S <= time.time()


async def ask(program: Mapping[str, Any], cluster: Mapping[str, Any], files: str) -> Credentials:
    """Run a program and return what it gives; whoever stops waiting for it ends it.

    Args:
        program: the `exec` of a user.
        cluster: that the credentials are for, of which the program is told if it wants to know.
        files: the kubeconfigs that name it, for the error.

    Raises:
        InputError: it cannot be run, fails, or gives no credentials.
    """
    try:
        return _read(await _run(program, cluster), program)
    except _MALFORMED as error:
        # What this module raises is a sentence. Of all else the text, and no repr, which may hold what it is about.
        own = isinstance(error, OSError) or type(error) is ValueError
        told = str(error) if own else f"{type(error).__name__}: {error}"
        raise InputError(f"user with 'exec': its program gave no credentials: {told}", file=files) from error


async def _run(program: Mapping[str, Any], cluster: Mapping[str, Any]) -> bytes:
    """Return what a program writes to standard output; what it says on standard error is for people, and goes there."""
    mode = program.get("interactiveMode")
    interactive = mode != "Never" and sys.stdin is not None and sys.stdin.isatty()
    if mode == "Always" and not interactive:
        raise ValueError("its interactiveMode is Always, and standard input is no terminal")
    spec: dict[str, Any] = {"interactive": interactive}
    if program.get("provideClusterInfo"):
        spec["cluster"] = _told_of(cluster)
    info = {"apiVersion": program["apiVersion"], "kind": "ExecCredential", "spec": spec}
    transport, output = await asyncio.get_running_loop().subprocess_exec(
        _Output,
        program["command"],
        *(program.get("args") or ()),
        env={
            **os.environ,
            **{each["name"]: each["value"] for each in program.get("env") or ()},
            "KUBERNETES_EXEC_INFO": json.dumps(info),
        },
        stdin=None if interactive else asyncio.subprocess.DEVNULL,
        stderr=None,
    )
    try:
        await output.closed.wait()
    finally:
        transport.close()  # which kills what still runs
        await output.exited.wait()
    if transport.get_returncode():
        raise ValueError(f"it ended with {transport.get_returncode()}")
    return bytes(output.said)


def _told_of(cluster: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a program is told of a cluster: its entry, with no names of files, and what is there for programs."""
    told = {key: cluster[key] for key in _OF_A_CLUSTER if key in cluster}
    if "certificate-authority" in cluster:
        told.setdefault(_AUTHORITY, _encoded(Path(cluster["certificate-authority"]).read_text(encoding="utf-8")))
    extensions = cluster.get("extensions") or ()
    told["config"] = next((each["extension"] for each in extensions if each["name"] == _FOR_PROGRAMS), None)
    return told


class _Output(asyncio.SubprocessProtocol):
    """Takes in what a program writes; its end does not wait for those that it started, who may write on and on."""

    def __init__(self) -> None:
        self.said = bytearray()
        self.exited, self.closed = asyncio.Event(), asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        del fd
        self.said += data

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.closed.set()


def _read(said: bytes, program: Mapping[str, Any]) -> Credentials:
    answer = json.loads(said)
    if answer["apiVersion"] != program["apiVersion"]:
        raise ValueError(f"expected apiVersion {program['apiVersion']}, got {answer['apiVersion']}")
    status = answer["status"]
    user = {"token": status["token"]} if status.get("token") else {}
    if status.get("clientCertificateData"):
        user["client-certificate-data"] = _encoded(status["clientCertificateData"])
        user["client-key-data"] = _encoded(status["clientKeyData"])
    if not user:
        raise ValueError("expected a token or clientCertificateData")
    ends = status.get("expirationTimestamp")
    return Credentials(user, parse(ends) if ends else -math.inf)


def _encoded(pem: str) -> str:
    return base64.b64encode(pem.encode()).decode()
