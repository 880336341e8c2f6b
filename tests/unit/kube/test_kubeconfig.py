"""Kubeconfigs: what is read of one, and what is told of one that cannot be used."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from fermata.policy.errors import InputError
from fermata.sim.kube.kubeconfig import read_kubeconfig, write_kubeconfig


def _config(cluster: dict[str, Any], user: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "current-context": "here",
        "contexts": [
            {"name": "there", "context": {"cluster": "x", "user": "x"}},
            {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "mine"}},
        ],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }


def _written(folder: Path, content: Any) -> Path:
    file = folder / "kubeconfig"
    file.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return file


@pytest.mark.parametrize("token", [None, "secret"])
def test_what_is_written_is_read(tmp_path: Path, token: str | None) -> None:
    write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:8080", token)

    assert read_kubeconfig(tmp_path / "kubeconfig") == ("http://127.0.0.1:8080", None, token)


def test_only_its_owner_may_read_what_is_written(tmp_path: Path) -> None:
    file = _written(tmp_path, "of before")
    file.chmod(0o644)
    write_kubeconfig(file, "http://127.0.0.1:8080", "secret")

    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_user_of_whom_nothing_is_said(tmp_path: Path) -> None:
    found = read_kubeconfig(_written(tmp_path, _config({"server": "http://a"}, None)))

    assert (found.server, found.token) == ("http://a", None)


def test_a_token_of_digits(tmp_path: Path) -> None:
    assert read_kubeconfig(_written(tmp_path, _config({"server": "http://a"}, {"token": 12345}))).token == "12345"


def test_https_is_verified_unless_told_otherwise(tmp_path: Path) -> None:
    cluster = {"server": "https://a"}
    checked = read_kubeconfig(_written(tmp_path, _config(cluster, {}))).tls
    unchecked = read_kubeconfig(_written(tmp_path, _config({**cluster, "insecure-skip-tls-verify": True}, {}))).tls

    assert checked is not None
    assert checked.check_hostname
    assert unchecked is not None
    assert not unchecked.check_hostname


def test_files_are_named_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    cluster = {"server": "https://a", "certificate-authority": "ca.crt"}
    file = _written(tmp_path, _config(cluster, {}))

    with pytest.raises(InputError, match=f"No such file or directory: '{tmp_path}/ca.crt'"):
        read_kubeconfig(file)


_FINE = _config({"server": "https://a"}, {})


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "the file: "),
        ("[1, 2]", "the file: "),
        ("a: [", "cannot be read as a kubeconfig"),
        ("a: " + "[" * 6000, "cannot be read as a kubeconfig"),
        ({**_FINE, "current-context": "elsewhere"}, "current-context: there is no context 'elsewhere'"),
        ({**_FINE, "current-context": "there"}, "context 'there': there is no cluster 'x'"),
        ({**_FINE, "users": None}, "context 'here': there is no user 'u'"),
        ({**_FINE, "clusters": [{"name": "c"}]}, "clusters.0.cluster: is missing"),
        (_config({}, {}), "clusters.0.cluster.server: is missing"),
        (_config({"server": ["a"]}, {}), "clusters.0.cluster.server: Input should be a valid string"),
        (_config({"server": "https://a", "certificate-authority-data": "%%"}, {}), "certificates of context 'here'"),
        (_config({"server": "https://a", "certificate-authority-data": "/w=="}, {}), "certificates of context 'here'"),
        (_config({"server": "https://a", "certificate-authority-data": "QUJD"}, {}), "certificates of context 'here'"),
        (
            _config({"server": "https://a"}, {"client-certificate-data": "QUJD", "client-key-data": "QUJD"}),
            "certificates of context 'here'",
        ),
    ],
)
def test_what_cannot_be_used_is_told_in_one_line(tmp_path: Path, content: Any, told: str) -> None:
    with pytest.raises(InputError) as caught:
        read_kubeconfig(_written(tmp_path, content))

    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read as a kubeconfig"):
        read_kubeconfig(tmp_path / "none")
