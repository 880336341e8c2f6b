"""Kubeconfigs: that of an embedded control plane, and whichever one a client of this package is pointed at."""

from __future__ import annotations

import base64
import ssl
import tempfile
from pathlib import Path
from typing import Annotated, NamedTuple

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from fermata.policy.errors import InputError
from fermata.policy.mistakes import first_mistake

_NAME = "fermata-local"
# Files in the wild have `users:` with nothing behind it, and `user: null`.
_nothing_as_empty = BeforeValidator(lambda given: {} if given is None else given)


class _Cluster(BaseModel):
    server: str
    skip_verify: bool = Field(False, alias="insecure-skip-tls-verify")
    authority: Path | None = Field(None, alias="certificate-authority")
    authority_data: str | None = Field(None, alias="certificate-authority-data")


class _User(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)  # and no secret in what is told of a wrong type

    token: str | None = None
    certificate: Path | None = Field(None, alias="client-certificate")
    certificate_data: str | None = Field(None, alias="client-certificate-data")
    key: Path | None = Field(None, alias="client-key")
    key_data: str | None = Field(None, alias="client-key-data")


class _Context(BaseModel):
    cluster: str
    user: str


class _NamedCluster(BaseModel):
    name: str
    cluster: _Cluster


class _NamedUser(BaseModel):
    name: str
    user: Annotated[_User, _nothing_as_empty]


class _NamedContext(BaseModel):
    name: str
    context: _Context


class _Kubeconfig(BaseModel):
    current: str = Field(alias="current-context")
    contexts: list[_NamedContext]
    clusters: list[_NamedCluster]
    users: list[_NamedUser] | None = None


class Endpoint(NamedTuple):
    """An API server, and who we are to it.

    Args:
        server: its URL.
        tls: how to verify it and who we are, for https.
        token: bearer token, where one is used.
    """

    server: str
    tls: ssl.SSLContext | None
    token: str | None


def write_kubeconfig(path: Path, server: str, token: str | None = None) -> None:
    """Write a kubeconfig that names one server and only its owner may read, as clients expect of one.

    Args:
        path: the file; its folder is made.
        server: the URL.
        token: of a service account; without one, whoever has the file may do everything.
    """
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _NAME, "cluster": {"server": server}}],
        "users": [{"name": _NAME, "user": {"token": token} if token else {}}],
        "contexts": [{"name": _NAME, "context": {"cluster": _NAME, "user": _NAME, "namespace": "default"}}],
        "current-context": _NAME,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    path.chmod(0o600)
    path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")


def read_kubeconfig(path: Path) -> Endpoint:
    """Return what the current context names: the server, and certificates or a token.

    Raises:
        InputError: the file names no server, or credentials that are none.
    """
    try:
        config = _Kubeconfig.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        raise InputError(f"{first_mistake(error)}; expected a kubeconfig", file=path) from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise InputError(f"cannot be read as a kubeconfig: {error!r}", file=path) from error
    context = next((each.context for each in config.contexts if each.name == config.current), None)
    if context is None:
        raise InputError(f"current-context: there is no context {config.current!r}", file=path)
    cluster = next((each.cluster for each in config.clusters if each.name == context.cluster), None)
    if cluster is None:
        raise InputError(f"context {config.current!r}: there is no cluster {context.cluster!r}", file=path)
    user = next((each.user for each in config.users or [] if each.name == context.user), None)
    if user is None:
        raise InputError(f"context {config.current!r}: there is no user {context.user!r}", file=path)
    try:
        tls = _tls(cluster, user, path.parent) if cluster.server.startswith("https") else None
    except (OSError, ValueError) as error:  # no such file, no base64, no certificate
        raise InputError(f"certificates of context {config.current!r}: {error}", file=path) from error
    return Endpoint(cluster.server, tls, user.token)


def _tls(cluster: _Cluster, user: _User, folder: Path) -> ssl.SSLContext:
    """Return how to speak to a server; files are named relative to the folder of the kubeconfig."""
    context = ssl.create_default_context()
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as kubectl: authorities of clusters lack extensions, as on EKS
    if cluster.skip_verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    authority = _pem(cluster.authority_data, cluster.authority, folder)
    if authority is not None:
        context.load_verify_locations(cadata=authority.decode())
    certificate = _pem(user.certificate_data, user.certificate, folder)
    key = _pem(user.key_data, user.key, folder)
    if certificate is not None and key is not None:
        # The ssl module loads certificates from files only.
        with tempfile.NamedTemporaryFile() as file:
            file.write(certificate + b"\n" + key)
            file.flush()
            context.load_cert_chain(file.name)
    return context


def _pem(data: str | None, file: Path | None, folder: Path) -> bytes | None:
    if data:
        return base64.b64decode("".join(data.split()), validate=True)  # YAML may have folded it
    return None if file is None else (folder / file).read_bytes()
