"""What the operator makes of an API server's answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

import pytest
from aiohttp import web
from tests.unit.operator.answers import answering, until_welcome
from tests.unit.operator.objects import write_kubeconfig

from fermata.operator.access import configuration
from fermata.operator.cluster import Cluster, pool_path, workflow_path
from fermata.operator.connection import ClusterError
from fermata.policy.errors import InputError

_JOB = {"metadata": {"namespace": "default", "name": "a"}}


class _Answer:
    headers: ClassVar[dict[str, str]] = {}

    def __init__(self, status: int, content: bytes) -> None:
        self.status, self._content = status, content

    async def read(self) -> bytes:
        return self._content

    async def iter_any(self) -> AsyncIterator[bytes]:
        yield self._content

    @property
    def response(self) -> _Answer:
        return self

    @property
    def content(self) -> _Answer:
        return self

    def close(self) -> None:
        pass


class _Client:
    def __init__(self, status: int, content: bytes) -> None:
        self._answer = _Answer(status, content)

    async def param_serialize(self, method: str, path: str, **_: Any) -> tuple[Any, ...]:
        return method, path, {}, None, None

    async def call_api(self, *_: Any, **__: Any) -> _Answer:
        return self._answer


def test_an_answer_that_is_no_object_is_told_as_the_text_that_it_is() -> None:
    client: Any = _Client(404, b"404 page not found\n")

    async def watch() -> None:
        async for _ in Cluster(client).watch("workflows", "1"):
            pass

    for asked in (Cluster(client).get("/apis/fermata.dev/v1alpha1/workflows"), watch()):
        with pytest.raises(ClusterError, match=r"^404: 404 page not found$"):
            asyncio.run(asked)


@pytest.mark.parametrize(
    ("details", "fields"),
    [
        # As an API server of 1.35 says it, of what is invalid and of what a policy made of a Job that is none any more.
        ({"causes": [{"reason": "FieldValueInvalid", "field": "spec.a"}, {"field": "spec.b"}]}, ("spec.a", "spec.b")),
        ({"causes": [{"message": "json: cannot unmarshal string into Go struct field"}]}, ()),
        ({"causes": "spec.a"}, ()),
        ({"causes": ["spec.a"]}, ()),
        (["spec.a"], ()),
        (None, ()),
    ],
)
def test_what_is_invalid_is_known_by_its_fields(details: Any, fields: tuple[str, ...]) -> None:
    said = json.dumps({"kind": "Status", "reason": "Invalid", "message": "it is invalid", "details": details})
    client: Any = _Client(422, said.encode())
    with pytest.raises(ClusterError, match=r"^Invalid: it is invalid$") as told:
        asyncio.run(Cluster(client).create_job(_JOB))
    assert told.value.fields == fields


@pytest.mark.parametrize(
    "content",
    [
        b"<html>\n<h1>Log in</h1></html>\n",
        b'{"kind": "WorkflowList", "metadata": {"resour\n',
        b'{"error": "log in"}\n',
        b"[]\n",
    ],
)
def test_a_success_that_no_api_server_tells_is_none(content: bytes) -> None:
    client: Any = _Client(200, content)

    async def watch() -> None:
        async for change in Cluster(client).watch("workflows", "1"):
            pytest.fail(f"{change} is no change")

    for asked in (Cluster(client).list_all("workflows"), Cluster(client).create_job(_JOB), watch()):
        with pytest.raises(ClusterError, match=r"^UnreadableAnswer: ") as told:
            asyncio.run(asked)
        assert told.value.is_unsure, "a Job may have been created"


def test_a_name_is_one_part_of_a_path() -> None:
    assert workflow_path("team", "a/b?c") == "/apis/fermata.dev/v1alpha1/namespaces/team/workflows/a%2Fb%3Fc"
    for name in ("", ".", ".."):
        with pytest.raises(InputError, match="expected a name, got "):
            pool_path(name)


def _of_a_program(token: Path) -> dict[str, Any]:
    """Return a user whose token a program reads from a file; of a token without an end it is asked each time."""
    credential = (
        '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "%s"}}'
    )
    script = f"printf '{credential}' $(cat {token})"
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script]}}


def _of_a_file(token: Path) -> dict[str, Any]:
    return {"tokenFile": str(token)}


@pytest.mark.parametrize("user", [_of_a_file, _of_a_program])
def test_a_token_that_a_kubeconfig_does_not_hold_itself_is_renewed(
    tmp_path: Path, user: Callable[[Path], dict[str, Any]], clock: list[float]
) -> None:
    token = tmp_path / "token"
    token.write_text("first", encoding="utf-8")

    async def main() -> None:
        settings = await configuration(write_kubeconfig(tmp_path, user(token)))
        token.write_text("second", encoding="utf-8")
        clock[0] += 59.0
        assert await settings.get_api_key_with_prefix("BearerToken") == "Bearer first"
        clock[0] += 2.0
        async with asyncio.timeout(20):
            while await settings.get_api_key_with_prefix("BearerToken") != "Bearer second":
                await asyncio.sleep(0.01)

    asyncio.run(main())


def test_a_token_file_may_end_in_a_newline(tmp_path: Path, clock: list[float]) -> None:
    token = tmp_path / "token"
    token.write_text("first\n", encoding="utf-8")

    async def main() -> None:
        settings = await configuration(write_kubeconfig(tmp_path, _of_a_file(token)))
        assert await settings.get_api_key_with_prefix("BearerToken") == "Bearer first"
        token.write_text("second\n", encoding="utf-8")
        clock[0] += 61.0
        async with asyncio.timeout(20):
            while (given := await settings.get_api_key_with_prefix("BearerToken")) == "Bearer first":
                await asyncio.sleep(0.01)
        assert given == "Bearer second"

    asyncio.run(main())


def test_a_token_that_is_refused_before_it_ends_is_asked_for_again(tmp_path: Path, clock: list[float]) -> None:
    token, good = tmp_path / "token", ["Bearer first"]
    token.write_text("first", encoding="utf-8")
    user = _of_a_program(token)
    ends = '"expirationTimestamp": "2100-01-01T00:00:00Z"'
    user["exec"]["args"][1] = user["exec"]["args"][1].replace('"%s"}', f'"%s", {ends}}}')

    async def answer(request: web.Request) -> web.Response:
        is_good = request.headers["Authorization"] in good
        return web.json_response({"kind": "Status"}, status=200 if is_good else 401)

    async def main() -> None:
        async with answering(answer) as port:
            cluster = await Cluster.connect(write_kubeconfig(tmp_path, user, {"server": f"http://127.0.0.1:{port}"}))
            token.write_text("second", encoding="utf-8")
            clock[0] += 61.0
            await cluster.get("/")
            good[:] = ["Bearer second"]
            with pytest.raises(ClusterError):  # it is doubted from now on, and was not due before
                await cluster.get("/")
            clock[0] += 61.0
            await until_welcome(cluster)
            await cluster.close()

    asyncio.run(main())


def test_an_api_server_is_told_who_asks(tmp_path: Path) -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.headers["User-Agent"])
        return web.json_response({"kind": "Status"})

    async def main() -> None:
        async with answering(answer) as port:
            cluster = await Cluster.connect(write_kubeconfig(tmp_path, {}, {"server": f"http://127.0.0.1:{port}"}))
            await cluster.get("/")
            await cluster.close()

    asyncio.run(main())
    assert asked == [f"fermata/{metadata.version('fermata')}"]


def test_a_long_list_of_large_objects_is_never_in_memory_at_once(tmp_path: Path) -> None:
    """A finished workflow of 500 stages is 0.75 MB, and the manifests allow the operator 512 MiB for all it does."""
    there, lengths = 250, []

    async def answer(request: web.Request) -> web.Response:
        begun = int(request.query.get("continue", "0"))
        ended = min(begun + int(request.query["limit"]), there)
        lengths.append(ended - begun)
        meta = {"resourceVersion": "1", "continue": str(ended) if ended < there else ""}
        items = [{"metadata": {"uid": str(number)}} for number in range(begun, ended)]
        return web.json_response({"kind": "WorkflowList", "metadata": meta, "items": items})

    async def main() -> list[str]:
        async with answering(answer) as port:
            cluster = await Cluster.connect(write_kubeconfig(tmp_path, {}, {"server": f"http://127.0.0.1:{port}"}))
            found = [item["metadata"]["uid"] for item in await cluster.list_all("workflows")]
            await cluster.close()
            return found

    assert asyncio.run(main()) == [str(number) for number in range(there)]
    assert max(lengths) * 0.75 < 100, "MB of one answer"


@pytest.mark.parametrize(("refusals", "later_s", "told"), [(2, "0", ""), (3, "0", "429: "), (1, "3600", "429: ")])
def test_who_is_patient_comes_again_when_told_to(tmp_path: Path, refusals: int, later_s: str, told: str) -> None:
    left = [429] * refusals

    async def answer(request: web.Request) -> web.Response:
        status = left.pop() if left else 200
        return web.json_response({"kind": "Status"}, status=status, headers={"Retry-After": later_s})

    async def main() -> None:
        async with answering(answer) as port:
            file = write_kubeconfig(tmp_path, {}, {"server": f"http://127.0.0.1:{port}"})
            cluster = await Cluster.connect(file, patience=2)
            with pytest.raises(ClusterError, match=told) if told else nullcontext():
                await cluster.get("/")
            await cluster.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("user", "server", "expected"),
    [
        ({"token": "t", "as": "jane"}, "http://127.0.0.1:1", "user with 'as': expected credentials of one's own, "),
        ({"exec": {"command": "false"}}, "http://127.0.0.1:1", "user with 'exec': its program gave no credentials"),
        ({"exec": {}}, "http://127.0.0.1:1", "user with 'exec': its program gave no credentials"),
        ({}, "http://127.0.0.1:x", "server 'http://127.0.0.1:x': expected a URL of http or https"),
        ({}, "http://127.0.0.1:99999", "server 'http://127.0.0.1:99999': expected a URL of http or https"),
        ({}, "http://[::1", "server 'http://[::1': expected a URL of http or https"),
        ({}, "http://.example", "server 'http://.example': expected a URL of http or https"),
        ({}, f"http://{'a' * 64}.example", f"server 'http://{'a' * 64}.example': expected a URL of http or https"),
        ({"token": "a\nb"}, "http://127.0.0.1:1", "user's token: expected one line"),
    ],
)
def test_a_kubeconfig_that_would_ask_as_somebody_else_or_nowhere_is_refused(
    tmp_path: Path, user: dict[str, Any], server: str, expected: str
) -> None:
    if "exec" in user:
        user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", **user["exec"]}}
    file = write_kubeconfig(tmp_path, user, {"server": server})
    with pytest.raises(InputError) as told:
        asyncio.run(configuration(file))
    assert str(told.value).startswith(f"{file}: {expected}")


@pytest.mark.parametrize("then", [None, b"second\nthird", b"second\xff"])
def test_a_token_that_cannot_be_renewed_is_kept(
    tmp_path: Path, clock: list[float], caplog: pytest.LogCaptureFixture, then: bytes | None
) -> None:
    token = tmp_path / "token"
    token.write_text("first", encoding="utf-8")

    async def main() -> None:
        settings = await configuration(write_kubeconfig(tmp_path, _of_a_file(token)))
        token.unlink()
        if then is not None:
            token.write_bytes(then)
        clock[0] += 61.0
        async with asyncio.timeout(20):
            while "credentials are not renewed" not in caplog.text:
                assert await settings.get_api_key_with_prefix("BearerToken") == "Bearer first"
                await asyncio.sleep(0.01)
        assert "second" not in caplog.text

    asyncio.run(main())
