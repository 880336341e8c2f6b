"""Whose certificates are taken, and which ones are shown."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from tests.unit.operator.answers import answering, until_welcome
from tests.unit.operator.objects import write_kubeconfig

from fermata.operator.cluster import Cluster
from fermata.operator.connection import ClusterError
from fermata.sim.kube.kubeconfig import read_kubeconfig

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")


def _certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Make a certificate for loopback that vouches for itself; return its file and that of its key."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}-key.pem"
    command = [
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
        "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1",
        "-addext", "keyUsage=critical,digitalSignature,keyCertSign", "-keyout", str(key), "-out", str(certificate),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return certificate, key


@asynccontextmanager
async def _served(
    port: int, certificate: Path, key: Path, known: Path | None = None, welcome: Callable[[str], bool] = lambda _: True
) -> AsyncIterator[int]:
    """Serve objects over TLS at a port (0: a free one), which is given.

    Args:
        port: where.
        certificate: of the server.
        key: of the server.
        known: certificates of clients; without it nobody is asked for one.
        welcome: tells by the name in it whether a client gets an answer.
    """

    async def answer(request: web.Request) -> web.Response:
        shown = dict(pair for row in (request.get_extra_info("peercert") or {}).get("subject", ()) for pair in row)
        is_welcome = welcome(shown.get("commonName", ""))
        return web.json_response({"kind": "Status"}, status=200 if is_welcome else 401)

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    if known is not None:
        context.load_verify_locations(cafile=str(known))
        context.verify_mode = ssl.CERT_OPTIONAL
    async with answering(answer, port, context) as bound:
        yield bound


def test_an_authority_that_takes_the_place_of_another_is_trusted(tmp_path: Path) -> None:
    authority, (first, first_key), (second, second_key) = (
        tmp_path / "ca.pem",
        *(_certificate(tmp_path, n) for n in "ab"),
    )
    authority.write_bytes(first.read_bytes())

    async def main() -> None:
        async with _served(0, first, first_key) as port:
            server = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(authority)}
            cluster = await Cluster.connect(write_kubeconfig(tmp_path, {}, server))
            await cluster.get("/")
        async with _served(port, second, second_key):
            with pytest.raises(ClusterError, match="CertificateError"):
                await cluster.get("/")
            authority.write_bytes(second.read_bytes())
            with pytest.raises(ClusterError, match="CertificateError"):
                await cluster.get("/")
            await cluster.get("/")
        await cluster.close()

    asyncio.run(main())


def test_an_authority_that_lacks_extensions_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, certificate, key = (tmp_path / name for name in ("ca.pem", "a.pem", "a-key.pem"))
    made = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    of_server = "-addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=CA:FALSE -CA ca.pem -CAkey ca-key.pem"
    for command in (
        f"{made} -subj /CN=ca -keyout ca-key.pem -out ca.pem",
        f"{made} -subj /CN=a {of_server} -keyout a-key.pem -out a.pem",
    ):
        subprocess.run(command.split(), check=True, capture_output=True, timeout=60, cwd=tmp_path)
    made_before = ssl.create_default_context

    def strict(*args: Any, **options: Any) -> ssl.SSLContext:
        """Return the context that Python makes from 3.13 on."""
        context = made_before(*args, **options)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)

    async def main() -> None:
        async with _served(0, certificate, key) as port:
            server = f"https://127.0.0.1:{port}"
            kubeconfig = write_kubeconfig(tmp_path, {}, {"server": server, "certificate-authority": str(authority)})
            cluster = await Cluster.connect(kubeconfig)
            await cluster.get("/")
            await cluster.close()
            of_clients = read_kubeconfig(Path(kubeconfig)).tls
            assert of_clients is not None
            async with aiohttp.ClientSession() as session:
                assert (await session.get(server, ssl=of_clients)).status == 200

    asyncio.run(main())


def test_an_api_server_may_be_reached_by_another_name_than_its_certificate_has(tmp_path: Path) -> None:
    certificate, key = _certificate(tmp_path, "server")  # for 127.0.0.1

    async def main() -> None:
        async with _served(0, certificate, key) as port:
            known = {"server": f"https://localhost:{port}", "certificate-authority": str(certificate)}
            for more, taken in (({}, False), ({"tls-server-name": "127.0.0.1"}, True)):
                cluster = await Cluster.connect(write_kubeconfig(tmp_path, {}, known | more))
                with nullcontext() if taken else pytest.raises(ClusterError, match="CertificateError"):
                    await cluster.get("/")
                await cluster.close()

    asyncio.run(main())


def _certificate_in_files(certificate: Path, key: Path) -> dict[str, Any]:
    return {"client-certificate": str(certificate), "client-key": str(key)}


def _certificate_of_a_program(certificate: Path, key: Path) -> dict[str, Any]:
    version = "client.authentication.k8s.io/v1"
    code = (
        f"import json; status = dict(clientCertificateData=open({str(certificate)!r}).read(),"
        f" clientKeyData=open({str(key)!r}).read());"
        f" print(json.dumps(dict(apiVersion={version!r}, kind='ExecCredential', status=status)))"
    )
    return {"exec": {"apiVersion": version, "command": sys.executable, "args": ["-c", code]}}


@pytest.mark.parametrize("user", [_certificate_in_files, _certificate_of_a_program])
def test_a_certificate_that_takes_the_place_of_ones_own_is_shown(
    tmp_path: Path, user: Callable[[Path, Path], dict[str, Any]], clock: list[float]
) -> None:
    names = ("server", "first", "second")
    (server, server_key), *own = (_certificate(tmp_path, name) for name in names)
    known, certificate, key = tmp_path / "known.pem", tmp_path / "own.pem", tmp_path / "own-key.pem"
    known.write_bytes(b"".join(file.read_bytes() for file, _ in own))
    welcome = ["first"]

    def put(pair: tuple[Path, Path]) -> None:
        for source, target in zip(pair, (certificate, key), strict=True):
            target.write_bytes(source.read_bytes())

    async def main() -> None:
        put(own[0])
        async with _served(0, server, server_key, known, lambda name: name in welcome) as port:
            where = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(server)}
            cluster = await Cluster.connect(write_kubeconfig(tmp_path, user(certificate, key), where))
            await cluster.get("/")
            welcome[:] = ["second"]
            with pytest.raises(ClusterError) as told:
                await cluster.get("/")
            assert told.value.status == 401
            put(own[1])
            clock[0] += 61.0
            await until_welcome(cluster)
            await cluster.close()

    asyncio.run(main())
