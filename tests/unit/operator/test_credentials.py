"""Credentials of programs: real ones, small shell scripts that do what programs of clouds do to those who run them."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.unit.operator.objects import write_kubeconfig

from fermata.operator import access
from fermata.operator.access import configuration
from fermata.policy.errors import InputError

VERSION = "client.authentication.k8s.io/v1"


def _credential(**status: str) -> str:
    """Return a command that writes a credential."""
    said = json.dumps({"apiVersion": VERSION, "kind": "ExecCredential", "status": status})
    return f"printf %s {shlex.quote(said)}"


def _program(script: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": VERSION, "command": "sh", "args": ["-c", script], **more}


def _kubeconfig(folder: Path, program: dict[str, Any]) -> str:
    return write_kubeconfig(folder, {"exec": program})


def test_what_a_program_says_to_people_is_shown_however_much_it_is(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    says = "head -c 1000000 /dev/zero | tr '\\0' x >&2; echo 'log in at https://example' >&2"
    file = _kubeconfig(tmp_path, _program(f"{says}; {_credential(token='t')}"))
    settings = asyncio.run(asyncio.wait_for(configuration(file), 30))
    assert settings.api_key == {"BearerToken": "Bearer t"}
    assert capfd.readouterr().err == "x" * 1_000_000 + "log in at https://example\n"


def test_a_program_ends_with_whoever_waits_for_it(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    pid.touch()
    # What it started lives on, and could write for it.
    file = _kubeconfig(tmp_path, _program(f"sleep 5 & echo $$ > {shlex.quote(str(pid))}; wait"))

    async def impatient() -> None:
        waiting = asyncio.create_task(configuration(file))
        while not pid.read_text(encoding="utf-8"):
            await asyncio.sleep(0.01)
        waiting.cancel()
        async with asyncio.timeout(3):
            await asyncio.gather(waiting, return_exceptions=True)

    asyncio.run(impatient())
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text(encoding="utf-8")), 0)


def test_a_program_that_hangs_once_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "_RENEW_S", 0.2)
    monkeypatch.setattr(access, "_RENEW_WITHIN_S", 0.5)
    calls = shlex.quote(str(tmp_path / "calls"))
    first, second = _credential(token="first"), _credential(token="second")
    script = f"echo >> {calls}; case $(wc -l < {calls}) in 1) {first};; 2) exec sleep 100;; *) {second};; esac"
    file = _kubeconfig(tmp_path, _program(script))

    async def main() -> None:
        settings = await configuration(file)
        async with asyncio.timeout(20):
            while await settings.get_api_key_with_prefix("BearerToken") != "Bearer second":
                await asyncio.sleep(0.05)

    asyncio.run(main())


def test_a_program_beside_its_kubeconfig_is_found_there(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "login"
    program.write_text(f"#!/bin/sh\n{_credential(token='t')}\n", encoding="utf-8")
    program.chmod(0o755)
    file = _kubeconfig(tmp_path, {"apiVersion": VERSION, "command": "bin/login"})
    assert asyncio.run(configuration(file)).api_key == {"BearerToken": "Bearer t"}


@pytest.mark.parametrize("by_file", [True, False])
def test_a_program_that_wants_to_know_the_cluster_is_told_it(tmp_path: Path, by_file: bool) -> None:
    """Expected is what kubectl 1.32 tells."""
    said, authority = tmp_path / "said", tmp_path / "ca.pem"
    authority.write_text("certificate\n", encoding="utf-8")
    known = {"server": "https://127.0.0.1:1", "tls-server-name": "api", "proxy-url": "http://127.0.0.1:2"}
    config = {"audience": "a", "scopes": [1, True]}
    cluster = known | {
        **({"certificate-authority": "ca.pem"} if by_file else {"certificate-authority-data": "Y2VydGlmaWNhdGUK"}),
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": config}],
    }
    script = f"printenv KUBERNETES_EXEC_INFO > {shlex.quote(str(said))}; {_credential(token='t')}"
    for wanted in (True, False):
        program = _program(script, provideClusterInfo=wanted)
        asyncio.run(configuration(write_kubeconfig(tmp_path, {"exec": program}, cluster)))
        spec = json.loads(said.read_text(encoding="utf-8"))["spec"]
        told = {**known, "certificate-authority-data": "Y2VydGlmaWNhdGUK", "config": config}
        assert spec == {"interactive": False} | ({"cluster": told} if wanted else {})


@pytest.mark.parametrize(
    ("program", "told"),
    [
        (_program("exit 3"), "credentials: it ended with 3"),
        (_program("printf 'secret\\377'"), "codec can't decode byte 0xff in position 6: invalid start byte"),
        (_program("echo hello"), "JSONDecodeError"),
        (_program(_credential()), "expected a token or clientCertificateData"),
        (_program(_credential(clientCertificateData="c")), "KeyError: 'clientKeyData'"),
        (_program(_credential(token="t"), apiVersion="v0"), "expected apiVersion v0, got client.authentication"),
        (_program(_credential(token="t"), interactiveMode="Always"), "standard input is no terminal"),
        ({"apiVersion": VERSION, "command": "no-such-program"}, "No such file or directory: 'no-such-program'"),
        ({"apiVersion": VERSION}, "KeyError: 'command'"),
    ],
)
def test_a_program_that_gives_nothing_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: dict[str, Any], told: str
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # a folder there that may not be read would be the error
    file = _kubeconfig(tmp_path, program)
    with pytest.raises(InputError) as caught:
        asyncio.run(configuration(file))
    assert str(caught.value).startswith(f"{file}: user with 'exec': its program gave no credentials: ")
    assert told in str(caught.value)
    assert "secret" not in str(caught.value)
