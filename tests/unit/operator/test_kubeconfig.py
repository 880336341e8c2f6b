"""What kubeconfigs say, held against what kubectl makes of them.

Source: "Organizing Cluster Access Using kubeconfig Files" in Kubernetes' documentation, and kubectl itself where it is
on the PATH.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from fermata.operator import access
from fermata.operator.access import configuration, namespace
from fermata.policy.errors import InputError

Raw = dict[str, Any]


def _write(
    file: Path, current: str, cluster: Raw | None = None, user: Raw | None = None, context: Raw | None = None
) -> str:
    """Write a kubeconfig, with a cluster, a user and a context named as its folder if there are any."""
    name = file.parent.name
    config: Raw = {"apiVersion": "v1", "kind": "Config", "current-context": current}
    if cluster is not None:
        config["clusters"] = [{"name": name, "cluster": cluster}]
        config["users"] = [{"name": name, "user": user}]
        config["contexts"] = [{"name": name, "context": {"cluster": name, "user": name, **(context or {})}}]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    return str(file)


def test_of_what_several_say_the_first_one_counts(tmp_path: Path) -> None:
    a = _write(tmp_path / "a" / "config", "a", {"server": "http://127.0.0.1:1"}, context={"namespace": "na"})
    b = _write(tmp_path / "b" / "config", "b", {"server": "http://127.0.0.1:2"}, context={"namespace": "nb"})
    again = _write(tmp_path / "c" / "a" / "config", "a", {"server": "http://127.0.0.1:3"})
    silent = _write(tmp_path / "d" / "config", "")
    empty = str(tmp_path / "e")
    Path(empty).touch()
    for order, port, expected in (
        ((a, b), 1, "na"),
        ((b, a), 2, "nb"),
        ((a, silent), 1, "na"),
        ((silent, b, a), 2, "nb"),
        ((empty, a, b), 1, "na"),
        ((a, again), 1, "na"),
        ((again, a), 3, "default"),
    ):
        files = os.pathsep.join(order)
        assert asyncio.run(configuration(files)).host == f"http://127.0.0.1:{port}"
        assert namespace(files) == expected
        if shutil.which("kubectl"):
            command = ["kubectl", "config", "view", "--minify", "-o", "json"]
            done = subprocess.run(command, env=os.environ | {"KUBECONFIG": files}, capture_output=True, check=True)
            told = json.loads(done.stdout)
            assert told["clusters"][0]["cluster"]["server"] == f"http://127.0.0.1:{port}"
            assert told["contexts"][0]["context"].get("namespace", "default") == expected


def test_the_namespace_is_that_of_the_context_as_it_is_for_kubectl(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    cluster = "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\nusers: [{name: u, user: {}}]\n"
    for context, expected in (("", "default"), (", namespace: team", "team")):
        contexts = f"contexts: [{{name: x, context: {{cluster: c, user: u{context}}}}}]\ncurrent-context: x\n"
        file.write_text(f"apiVersion: v1\nkind: Config\n{cluster}{contexts}", encoding="utf-8")
        assert namespace(str(file)) == expected


def test_an_empty_variable_does_not_hide_the_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / "token"
    token.write_text("t", encoding="utf-8")
    token.with_name("namespace").write_text("team\n", encoding="utf-8")
    monkeypatch.setattr(access, "_IN_CLUSTER", token)
    monkeypatch.setenv("KUBECONFIG", "")
    assert namespace() == "team"


def test_a_file_is_named_relative_to_the_kubeconfig_that_names_it(tmp_path: Path) -> None:
    a = _write(tmp_path / "a" / "config", "both", {"server": "https://127.0.0.1:1", "certificate-authority": "ca"})
    named = {"client-certificate": "pki/own", "client-key": str(tmp_path / "key")}
    b = _write(tmp_path / "b" / "config", "", {"server": "https://127.0.0.1:2"}, named)
    both = tmp_path / "both"
    both.write_text("contexts: [{name: both, context: {cluster: a, user: b}}]\n", encoding="utf-8")
    (tmp_path / "link").symlink_to(b)
    for folder in (tmp_path / "pki", tmp_path / "b" / "pki"):
        folder.mkdir()
        (folder / "own").touch()
    (tmp_path / "a" / "ca").touch()
    (tmp_path / "key").touch()
    for file, folder in ((b, tmp_path / "b"), (str(tmp_path / "link"), tmp_path)):
        settings = asyncio.run(configuration(os.pathsep.join((a, str(both), file))))
        found = (settings.ssl_ca_cert, settings.cert_file, settings.key_file)
        assert found == (str(tmp_path / "a" / "ca"), str(folder / "pki" / "own"), str(tmp_path / "key"))


@pytest.mark.parametrize("user", [{}, {"token": "t"}, {"username": "other", "password": "one"}])
@pytest.mark.parametrize(("known", "shown"), [("us%40er:p%3Aw", "dXNAZXI6cDp3"), ("us", "dXM6")])  # by kubectl 1.32
def test_a_name_and_a_password_in_the_servers_url_are_what_is_shown(
    tmp_path: Path, user: Raw, known: str, shown: str
) -> None:
    file = _write(tmp_path / "a" / "config", "a", {"server": f"http://{known}@[::1]:1"}, user)
    settings = asyncio.run(configuration(file))
    assert (settings.host, settings.api_key) == ("http://[::1]:1", {"BearerToken": f"Basic {shown}"})


@pytest.mark.parametrize("server", ["http://127.0.0.1:1", "https://127.0.0.1:1"])
@pytest.mark.parametrize("user", ["a", "missing", None])  # of the first one nothing is said but its name
def test_a_context_without_a_user_asks_as_nobody(tmp_path: Path, server: str, user: str | None) -> None:
    file = _write(tmp_path / "a" / "config", "a", {"server": server}, context={"user": user})
    settings = asyncio.run(configuration(file))
    assert (settings.host, settings.api_key, settings.cert_file) == (server, {}, None)


@pytest.mark.parametrize("date", ["2026-02-20", "2026-02-30"])
def test_what_looks_like_a_date_is_text(tmp_path: Path, date: str) -> None:
    file = tmp_path / "a" / "config"
    _write(file, "a", {"server": "http://127.0.0.1:1"}, {"token": "DATE"}, {"namespace": "DATE", "made": "DATE"})
    file.write_text(file.read_text(encoding="utf-8").replace("DATE", date), encoding="utf-8")
    assert asyncio.run(configuration(str(file))).api_key == {"BearerToken": f"Bearer {date}"}
    assert namespace(str(file)) == date


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"current-context": ""}, "expected a kubeconfig with a current-context"),
        ({"current-context": "b"}, "current-context: there is no context 'b'"),
        ({"clusters": None}, "context 'a': there is no cluster 'a'"),
        ({"current-context": 5}, "current-context: expected text, got int"),
        ({"contexts": 7}, "contexts: expected a list, got int"),
        ({"contexts": {"a": {}}}, "contexts: expected a list, got dict"),
        ({"contexts": ["a"]}, "contexts[0]: expected a mapping, got str"),
        ({"contexts": [{"name": "b"}, None]}, "contexts[1]: expected a mapping, got NoneType"),
        ({"contexts": [{"name": "a", "context": "a"}]}, "context 'a': expected a mapping, got str"),
        ({"clusters": [{"name": "a", "cluster": ["a"]}]}, "cluster 'a': expected a mapping, got list"),
        ({"users": "secret"}, "users: expected a list, got str"),
        ({"users": [{"name": "a", "user": "secret"}]}, "user 'a': expected a mapping, got str"),
    ],
)
def test_what_is_not_there_or_of_another_shape_is_named_and_no_value_shown(
    tmp_path: Path, changed: Raw, expected: str
) -> None:
    file = tmp_path / "a" / "config"
    _write(file, "a", {"server": "http://127.0.0.1:1"}, {})
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text(encoding="utf-8")) | changed), encoding="utf-8")
    with pytest.raises(InputError) as told:
        asyncio.run(configuration(str(file)))
    assert str(told.value) == f"{file}: {expected}"


@pytest.mark.parametrize(
    ("cluster", "user", "context", "told"),
    [
        ({"insecure-skip-tls-verify": "false"}, {}, {}, "cluster 'a': insecure-skip-tls-verify: expected true"),
        ({"proxy-url": 5}, {}, {}, "cluster 'a': proxy-url: expected text, got int"),
        ({"tls-server-name": 5}, {}, {}, "cluster 'a': tls-server-name: expected text, got int"),
        ({}, {"token": 4321}, {}, "user 'a': token: expected text, got int"),
        ({}, {"token": ["t"]}, {}, "user 'a': token: expected text, got list"),
        ({}, {"exec": "login"}, {}, "user 'a': exec: expected a mapping, got str"),
        ({}, {"exec": {"command": ["login"]}}, {}, "user 'a': exec: command: expected text, got list"),
        ({}, {}, {"namespace": True}, "context 'a': namespace: expected text, got bool"),
    ],
)
def test_what_is_of_another_type_than_kubectl_takes_is_refused(
    tmp_path: Path, cluster: Raw, user: Raw, context: Raw, told: str
) -> None:
    file = _write(tmp_path / "a" / "config", "a", {"server": "https://127.0.0.1:1", **cluster}, user, context)
    with pytest.raises(InputError) as caught:
        asyncio.run(configuration(file))
    assert str(caught.value).startswith(f"{file}: {told}")


@pytest.mark.parametrize("nothing", [None, ""])
def test_what_is_null_or_empty_is_as_if_it_were_not_there(tmp_path: Path, nothing: str | None) -> None:
    token = tmp_path / "token"
    token.write_text("t", encoding="utf-8")
    cluster = dict.fromkeys(("tls-server-name", "proxy-url", "certificate-authority-data"), nothing)
    user = {**dict.fromkeys(("token", "as", "client-certificate", "username"), nothing), "tokenFile": str(token)}
    file = _write(tmp_path / "a" / "config", "a", {"server": "https://127.0.0.1:1", **cluster}, user)
    assert asyncio.run(configuration(file)).api_key == {"BearerToken": "Bearer t"}


def test_a_token_file_comes_before_a_token_while_it_is_there(tmp_path: Path) -> None:
    """Expected is what kubectl 1.32 shows."""
    token = tmp_path / "token"
    file = _write(tmp_path / "a" / "config", "a", {"server": "http://[::1]:1"}, {"token": "t", "tokenFile": str(token)})
    assert asyncio.run(configuration(file)).api_key == {"BearerToken": "Bearer t"}
    token.write_text("newer", encoding="utf-8")
    assert asyncio.run(configuration(file)).api_key == {"BearerToken": "Bearer newer"}


def test_a_token_file_that_is_no_text_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b"secret\xff")
    file = _write(tmp_path / "a" / "config", "a", {"server": "http://[::1]:1"}, {"tokenFile": str(tmp_path / "token")})
    with pytest.raises(InputError, match="can't decode byte 0xff in position 6: ") as caught:
        asyncio.run(configuration(file))
    assert "secret" not in str(caught.value)


def test_the_home_of_nobody_is_a_file_that_is_not_there() -> None:
    with pytest.raises(InputError, match=r"^~nobody-of-that-name/config: no such file; expected a kubeconfig$"):
        asyncio.run(configuration("~nobody-of-that-name/config"))
