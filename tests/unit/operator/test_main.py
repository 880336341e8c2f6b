"""The operator as a process: what it cannot start with is one line, not a loop of tracebacks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import ClientSession, web
from tests.processes import AS_NOBODY, fermata, of_nobody
from tests.unit.operator.answers import answering
from tests.unit.operator.objects import stage, workflow, write_kubeconfig
from typer.testing import CliRunner

from fermata.cli.explain import app as explain
from fermata.operator.access import configuration
from fermata.operator.main import _TextLines
from fermata.operator.names import API_VERSION
from fermata.operator.options import Options, options_from_environment
from fermata.operator.runtime import Operator
from fermata.policy.errors import InputError

KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: here
clusters: [{name: here, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: here, context: {cluster: here, user: me}}]
users: [{name: me, user: {token: secret}}]
"""
UNUSABLE = {
    "no-such-context": KUBECONFIG.replace("current-context: here", "current-context: nowhere"),
    "empty": "",
    "broken": "a: [1\nb: 2\n",
    "list": "- 1\n",
    "text": "hello",
    "binary": b"\x80\x00\xff",
    "no-keys": "{}",
    "numbers": "current-context: here\nclusters: 5\n",
    "server-of-another-type": KUBECONFIG.replace('"http://127.0.0.1:1"', "5"),
    "server-of-another-scheme": KUBECONFIG.replace("http:", "ftp:"),
    "no-certificate": KUBECONFIG.replace('"http://127.0.0.1:1"', '"https://127.0.0.1:1", certificate-authority: ca'),
    "junk-for-a-certificate": KUBECONFIG.replace(
        '"http://127.0.0.1:1"', '"https://127.0.0.1:1", certificate-authority-data: aGVsbG8='
    ),
}


def _write(folder: Path, name: str) -> Path:
    file, content = folder / "kubeconfig", UNUSABLE[name]
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_kubeconfig_that_cannot_be_used_is_one_line_for_every_verb(tmp_path: Path, name: str) -> None:
    file = _write(tmp_path, name)
    with pytest.raises(InputError) as caught:
        CliRunner().invoke(explain, ["w", "--kubeconfig", str(file)], catch_exceptions=False)
    assert str(caught.value).startswith(str(file))
    assert "\n" not in str(caught.value)


def test_the_line_of_broken_yaml_is_named(tmp_path: Path) -> None:
    file = _write(tmp_path, "broken")
    with pytest.raises(InputError, match="broken YAML") as caught:
        asyncio.run(configuration(str(file)))
    assert caught.value.line == 2


def test_several_kubeconfigs_are_read_as_one_and_those_that_are_not_there_left_out(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    head, tail = KUBECONFIG.split("contexts: [", 1)
    first.write_text(head, encoding="utf-8")
    second.write_text("contexts: [" + tail, encoding="utf-8")
    settings = asyncio.run(configuration(os.pathsep.join(map(str, (first, tmp_path / "none", second)))))
    assert settings.host == "http://127.0.0.1:1"
    with pytest.raises(InputError, match="no such file"):
        asyncio.run(configuration(str(tmp_path / "none")))


@pytest.mark.parametrize(
    ("server", "no_proxy", "asked"),
    [
        ("http://127.0.0.1:1", "", False),
        ("http://[::1]:1", "", False),
        ("http://localhost:1", "", False),
        ("http://10.96.0.1", "", True),
        ("http://10.96.0.1", ".svc,10.96.0.0/12", False),
        ("http://[fd00::1]", "10.0.0.0/8, fd00::/8", False),
        ("http://10.96.0.1", "10.1.0.0/16,odd/12", True),
        ("http://api.example", "", True),
        ("http://api.example", "10.96.0.0/12,.example", False),
    ],
)
def test_a_proxy_is_asked_for_the_servers_that_kubectl_asks_it_for(
    server: str, no_proxy: str, asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG.replace("http://127.0.0.1:1", server), encoding="utf-8")
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", no_proxy)
    assert asyncio.run(configuration(str(file))).proxy == ("http://proxy.example:3128" if asked else None)


@pytest.mark.parametrize("name", ["no-such-context", "empty"])
def test_an_operator_with_an_unusable_kubeconfig_ends_with_one_line(tmp_path: Path, name: str) -> None:
    file = _write(tmp_path, name)
    command = [sys.executable, "-m", "fermata.cli", "operator", "--kubeconfig", str(file), "--metrics-port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith(f"fermata: {file}: ")


def test_kopf_does_not_try_an_unusable_kubeconfig_again(tmp_path: Path) -> None:
    file = _write(tmp_path, "list")
    command = [sys.executable, "-m", "kopf", "run", "--standalone", "-A", "-m", "fermata.operator"]
    environment = {**os.environ, "KUBECONFIG": str(file)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert done.returncode != 0
    assert f"{file}: expected a kubeconfig, got a list" in done.stderr


def test_a_port_that_is_taken_ends_it_with_one_line(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG, encoding="utf-8")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "fermata.cli", "operator", "--kubeconfig", str(kubeconfig)]
        done = subprocess.run(
            [*command, "--metrics-port", port], capture_output=True, text=True, timeout=60, check=False
        )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert f"cannot serve metrics on 127.0.0.1, port {port}" in done.stderr


@pytest.mark.parametrize("is_known", [True, False], ids=["user", "user-without-an-entry"])
def test_one_that_is_stopped_while_it_waits_closes_what_it_opened(tmp_path: Path, is_known: bool) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG, encoding="utf-8")
    program = ("-m", "fermata.cli") if is_known else ("-c", AS_NOBODY)
    command = [sys.executable, *program, "operator", "--kubeconfig", str(kubeconfig)]
    environment = dict(os.environ) if is_known else of_nobody()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert any("waiting for http://127.0.0.1:1" in line for line in process.stdout)
        process.terminate()
        told, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "Unclosed" not in told


def _crds_and_no_rights(asked: list[str]) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return what answers as an API server that has the CRDs and allows nothing; notes what it is asked."""
    served = {"kind": "APIResourceList", "resources": [{"name": "workflows"}, {"name": "executorpools"}]}

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        if request.path == f"/apis/{API_VERSION}":
            return web.json_response(served)
        return web.json_response({"kind": "Status", "reason": "Forbidden"}, status=403)

    return answer


def test_kopf_neither_asks_the_api_server_nor_logs_in_a_second_time(tmp_path: Path) -> None:
    asked: list[str] = []
    logins, version = tmp_path / "logins", "client.authentication.k8s.io/v1"
    given = {"token": "t", "expirationTimestamp": "2100-01-01T00:00:00Z"}
    credential = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": given})
    code = f"open({str(logins)!r}, 'a').write('.'); print({credential!r})"
    user = {"exec": {"apiVersion": version, "command": sys.executable, "args": ["-c", code]}}

    async def main() -> None:
        async with answering(_crds_and_no_rights(asked)) as port:
            kubeconfig = write_kubeconfig(tmp_path, user, {"server": f"http://127.0.0.1:{port}"})
            command = ["-m", "fermata.cli", "operator", "--kubeconfig", kubeconfig, "--lease-seconds", "1", "-v"]
            process = await asyncio.create_subprocess_exec(sys.executable, *command, stderr=subprocess.PIPE)
            async with asyncio.timeout(120):
                while sum("leases" in path for path in asked) < 10:  # kopf has begun before the first
                    await asyncio.sleep(0.05)
            process.terminate()
            _, told = await process.communicate()
            assert process.returncode == 0, told.decode()
            assert b"'login'" not in told, told.decode()
            assert b"Hung tasks are stopped" not in told, "kopf has waited for what waits for it"

    asyncio.run(main())
    assert {path for path in asked if "leases" not in path} == {f"/apis/{API_VERSION}"}
    assert logins.read_text(encoding="utf-8") == "."


def test_under_kopfs_own_command_line_the_log_has_no_wake_ups(tmp_path: Path) -> None:
    asked: list[str] = []

    async def main() -> str:
        async with answering(_crds_and_no_rights(asked)) as port:
            kubeconfig = write_kubeconfig(tmp_path, {"token": "t"}, {"server": f"http://127.0.0.1:{port}"})
            command = [sys.executable, "-m", "kopf", "run", "--standalone", "-A", "-m", "fermata.operator"]
            environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
            process = await asyncio.create_subprocess_exec(*command, stderr=subprocess.PIPE, env=environment)
            async with asyncio.timeout(120):
                while not any("leases" in path for path in asked):  # the scheduler has been started before
                    await asyncio.sleep(0.05)
            process.terminate()
            _, told = await process.communicate()
            return told.decode()

    told = asyncio.run(main())
    assert "fermata.operator" in told, "what the operator does is told"
    assert "apscheduler" not in told


@pytest.mark.parametrize("port", ["99999999", "65536", "-1"])
def test_a_port_that_there_cannot_be_is_refused(port: str) -> None:
    done = fermata("operator", "--metrics-port", port)
    assert done.returncode == 2
    assert "--metrics-port" in done.stderr
    with pytest.raises(InputError, match="and a free port"):  # as kopf's own command line has it from a variable
        asyncio.run(Operator(Options(metrics_port=int(port))).listen())


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--lease-seconds", "0.5", "1 to 600"),
        ("--lease-seconds", "inf", "1 to 600"),
        ("--lease-seconds", "nan", "1 to 600"),
        ("--lease-namespace", "a/b", "up to 63 of a-z, 0-9 and -"),
        ("--namespace", "A_b", "up to 63 of a-z, 0-9 and -"),
        ("--namespace", "", "up to 63 of a-z, 0-9 and -"),  # an empty variable of a script, and not: all of them
        ("--namespace", "a" * 64, "up to 63"),
        ("--metrics-host", "", "an address"),  # and not: all addresses of the machine
    ],
)
def test_an_option_that_there_cannot_be_is_one_line(option: str, value: str, expected: str) -> None:
    before = dict(os.environ)
    done = fermata("operator", f"{option}={value}")
    assert dict(os.environ) == before, "what runs here next would not be compiled"
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert value in done.stderr
    assert f"expected {expected}" in done.stderr


@pytest.mark.parametrize("port", ["abc", "1.5", "80 81"])
def test_a_port_from_the_environment_that_is_none_is_named(port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERMATA_METRICS_PORT", port)
    with pytest.raises(InputError, match=f"FERMATA_METRICS_PORT '{port}': expected a port, 0 to 65535"):
        options_from_environment()


def test_what_the_environment_leaves_empty_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("METRICS_PORT", "METRICS_HOST", "LEASE_NAMESPACE", "RECORD"):
        monkeypatch.setenv(f"FERMATA_{name}", "")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert options_from_environment() == Options()


def _has_ipv6() -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as one:
        one.bind(("::1", 0))
        return True
    return False


@pytest.mark.skipif(not (socket.has_ipv6 and _has_ipv6()), reason="needs IPv6")
@pytest.mark.parametrize(("host", "served"), [("::1", ["[::1]"]), ("*", ["0.0.0.0", "[::]"])])
def test_metrics_are_served_on_ipv6_and_the_log_says_where(
    host: str, served: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        operator = Operator(Options(metrics_host=host, metrics_port=0))
        try:
            await operator.listen()
            urls = [told.removeprefix("metrics and probes on ") for told in caplog.messages]
            assert sorted(url[len("http://") : url.rindex(":")] for url in urls) == served
            async with ClientSession() as session:
                for url in urls:
                    async with session.get(f"{url}/healthz") as answer:
                        assert await answer.text() == "ok\n"
        finally:
            await operator.stop()

    with caplog.at_level("INFO", "fermata"):
        asyncio.run(main())


HOSTILE = "a\x1b[2J\nstage b: succeeded \u202e"
SHOWN = r"a\x1b[2J\nstage b: succeeded \u202e"


def test_what_others_wrote_does_nothing_to_a_terminal(tmp_path: Path) -> None:
    row = {"name": "a", "state": "Failed", "reason": HOSTILE, "tasks": 1}
    status = {"conditions": [{"type": "Accepted", "status": "True", "reason": "Valid", "lastTransitionTime": ""}]}
    found = workflow("w", stage("a"), status={**status, "stages": [row]})

    async def answer(request: web.Request) -> web.Response:
        if request.path.endswith("/workflows/w"):
            return web.json_response(found)
        if "executorpools" in request.path:
            return web.json_response({"kind": "Status", "reason": "NotFound"}, status=404)
        return web.json_response({"kind": "Status", "reason": "InternalError", "message": HOSTILE}, status=500)

    async def main() -> None:
        async with answering(answer) as port:
            kubeconfig = write_kubeconfig(tmp_path, {}, {"server": f"http://127.0.0.1:{port}"})
            for name in ("w", "other"):
                command = ["-m", "fermata.cli", "explain", name, "--kubeconfig", kubeconfig]
                process = await asyncio.create_subprocess_exec(
                    sys.executable, *command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
                )
                told = (await process.communicate())[0].decode()
                assert all(line.isprintable() for line in told.splitlines()), told
                assert r"a\x1b[2J" in told

    asyncio.run(main())


def test_what_others_wrote_is_one_line_of_the_log() -> None:
    record = logging.LogRecord("fermata", logging.WARNING, "", 0, "default/w: %s", (HOSTILE,), None)
    assert _TextLines("%(name)s: %(message)s").format(record) == f"fermata: default/w: {SHOWN}"
