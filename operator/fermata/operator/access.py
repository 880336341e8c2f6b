"""How to reach the API server: by a kubeconfig, or by the service account inside of a cluster."""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config_from_dict

from fermata.operator.credentials import Credentials, ask
from fermata.operator.kubeconfig import Current, read_current
from fermata.policy.errors import InputError

_IN_CLUSTER = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
# What the client raises over a kubeconfig: its own error, what a file raises that cannot be read, and what Python does
# where a value is missing or of another type than the client takes for granted.
_UNUSABLE = (ConfigException, OSError, AttributeError, LookupError, TypeError, ValueError)
_RENEW_S = 60.0  # as often as the client reads a service account's token again
_RENEW_WITHIN_S = 45.0  # a program that hangs would else be the last one that is ever asked

log = logging.getLogger(__name__)


async def configuration(kubeconfig: str | None) -> Configuration:
    """Return the connection's settings: of the file given, of $KUBECONFIG, of the service account, of ~/.kube/config.

    Raises:
        InputError: there is no usable configuration.
    """
    files, settings = _files(kubeconfig), Configuration()
    if files is None:
        try:
            load_incluster_config(client_configuration=settings)
        except (ConfigException, OSError) as error:
            raise InputError(f"no usable service account: {error}") from error
    else:
        await _read(files, settings)
    # Asked once for all: the client would read the environment and ~/.netrc again before every request.
    settings.proxy = settings.proxy or _proxy(settings.host)
    settings.client_session_kwargs = {"trust_env": False}
    # From Python 3.13 on, authorities are refused for extensions that they lack. Those of clusters lack some, as on
    # EKS, and kubectl takes them.
    settings.disable_strict_ssl_verification = True
    return settings


def namespace(kubeconfig: str | None = None) -> str:
    """Return the namespace that kubectl would work in: of the context, or the service account's; else `default`.

    The configuration is one that has been read.
    """
    files = _files(kubeconfig)
    given = own_namespace() if files is None else read_current(files).namespace
    return str(given or "default")


def own_namespace() -> str | None:
    """Return the namespace of the pod that this process is in, as its service account says it; None outside of one."""
    file = _IN_CLUSTER.with_name("namespace")
    return file.read_text(encoding="utf-8").strip() if file.exists() else None


def _files(kubeconfig: str | None) -> str | None:
    """Return which kubeconfigs are to be read, written as in $KUBECONFIG; None: the service account is to be used."""
    files = kubeconfig or os.environ.get("KUBECONFIG")  # empty, as a manifest may leave it, says nothing
    if not files and _IN_CLUSTER.exists():
        return None
    return files or str(Path.home() / ".kube" / "config")


async def _read(files: str, settings: Configuration) -> None:
    """Fill in the settings of a kubeconfig, or of several, written as in $KUBECONFIG.

    Raises:
        InputError: there is none, or what it says cannot be used.
    """
    try:
        renewal = Renewal(read_current(files), files)
        await renewal.load(settings)
    except _UNUSABLE as error:
        # What Python raises is not a sentence that says what was expected; its repr may hold the secret it is about.
        is_sentence = isinstance(error, ConfigException | OSError)
        told = error if is_sentence else f"{type(error).__name__}: {error}; expected a kubeconfig"
        raise InputError(f"no usable cluster configuration: {told}", file=files) from error
    settings.refresh_api_key_hook = renewal


def _move_credentials(settings: Configuration) -> None:
    """Show a name and a password in the server's URL in a header instead, in the place of a token, as kubectl does."""
    url = urlsplit(settings.host)
    if "@" in url.netloc:
        settings.host = url._replace(netloc=url.netloc.rpartition("@")[2]).geturl()
        known = f"{unquote(url.username or '')}:{unquote(url.password or '')}"
        settings.api_key["BearerToken"] = f"Basic {base64.b64encode(known.encode()).decode()}"


def _is_url(server: str) -> bool:
    try:
        url = urlsplit(server)
        port = url.port
        (url.hostname or "").encode("idna")
    except ValueError:  # no port, no address, or a name that none can have
        return False
    return url.scheme in ("http", "https") and port != 0


class Renewal:
    """Looks again at a kubeconfig's credentials now and then: what a file or a program gives is good for an hour or so.

    No request waits for that: the program may take long, and what there is may still do.

    Args:
        current: what the kubeconfig says; of a program that it names only what has ended is asked again.
        files: that say it, for errors and for the log.

    Raises:
        InputError: they would have us ask as somebody else.
    """

    def __init__(self, current: Current, files: str) -> None:
        # The client would take no notice, and ask as somebody who may do more.
        if "as" in current.user:
            told = "user with 'as': expected credentials of one's own, not to impersonate another"
            raise InputError(told, file=files)
        self._current, self._files = current, files
        self._given: Credentials | None = None
        self._due_s = time.monotonic() + _RENEW_S
        self._task: asyncio.Task[None] | None = None

    async def load(self, settings: Configuration) -> None:
        """Fill in the settings, as the kubeconfig and the files and the program that it names say them now.

        Raises:
            InputError: the program gives no credentials, the server is no URL, or a token is none that a request can
                carry.
            ConfigException, OSError, AttributeError, LookupError, TypeError, ValueError: they cannot be used.
        """
        user = dict(self._current.user)
        if "tokenFile" in user and Path(user["tokenFile"]).is_file():
            user.pop("token", None)  # what the file says is newer
        program = user.pop("exec", None)
        if program is not None:
            if self._given is None or self._given.are_due:
                self._given = await ask(program, self._current.cluster, self._files)
            user |= self._given.user
        before, alone = dict(settings.api_key), self._current._replace(user=user).alone()
        await load_kube_config_from_dict(alone, client_configuration=settings)
        if not _is_url(settings.host):
            raise InputError(f"server {settings.host!r}: expected a URL of http or https", file=self._files)
        _move_credentials(settings)
        # A token that a file holds ends with its line; a header has none.
        settings.api_key = {key: token.strip() for key, token in settings.api_key.items()}
        if not all(token.isprintable() for token in settings.api_key.values()):
            settings.api_key = before
            raise InputError("user's token: expected one line", file=self._files)

    def __call__(self, settings: Configuration) -> None:
        """Begin to renew credentials that are due; the client calls this before each request."""
        if time.monotonic() >= self._due_s and (self._task is None or self._task.done()):
            self._due_s = time.monotonic() + _RENEW_S
            self._task = asyncio.create_task(self._renew(settings))

    def doubt(self) -> None:
        """Ask the program again when that is due next, whenever it said that it ends: what it gave was refused."""
        self._given = None

    async def _renew(self, settings: Configuration) -> None:
        try:
            async with asyncio.timeout(_RENEW_WITHIN_S):
                await self.load(settings)
        except InputError as error:
            log.warning("credentials are not renewed: %s", error)
        except _UNUSABLE as error:
            log.warning("%s: credentials are not renewed: %s: %s", self._files, type(error).__name__, error)


def _proxy(server: str) -> str | None:
    """Return the proxy that the environment names for a server."""
    url = urlsplit(server)
    return None if _spared(url.hostname or "") else getproxies().get(url.scheme)


def _spared(host: str) -> bool:
    """Return whether kubectl would ask no proxy for a host: this machine, or what NO_PROXY names, networks as well."""
    if host == "localhost" or proxy_bypass(host):
        return True
    try:
        address = ip_address(host)
    except ValueError:  # a name
        return False
    return address.is_loopback or any(address in network for network in _networks(getproxies().get("no", "")))


def _networks(no_proxy: str) -> Iterator[IPv4Network | IPv6Network]:
    for item in no_proxy.split(","):
        with suppress(ValueError):  # a name, or an address with its port
            yield ip_network(item.strip(), strict=False)
