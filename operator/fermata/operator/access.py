"""How to reach the API server: by a kubeconfig, or by the service account inside of a cluster.

One place for both clients that the operator has, its own and kopf's, so that they cannot end up in different clusters.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import kopf
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config

from fermata.policy.errors import InputError

_IN_CLUSTER = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


async def configuration(kubeconfig: str | None = None) -> Configuration:
    """Return the connection's settings: of the file given, of $KUBECONFIG, of the service account, of ~/.kube/config.

    Raises:
        InputError: there is no usable configuration.
    """
    file = kubeconfig or os.environ.get("KUBECONFIG")
    settings = Configuration()
    try:
        if file is None and _IN_CLUSTER.exists():
            load_incluster_config(client_configuration=settings)
        else:
            await load_kube_config(config_file=file, client_configuration=settings)
    except (ConfigException, OSError) as error:
        raise InputError(f"no usable cluster configuration: {error}", file=file) from error
    # Asked once for all: the client would read the environment and ~/.netrc again before every request.
    settings.proxy = settings.proxy or _proxy(settings.host)
    settings.client_session_kwargs = {"trust_env": False}
    return settings


def _proxy(server: str) -> str | None:
    """Return the proxy that the environment names for a server."""
    url = urlsplit(server)
    return None if proxy_bypass(url.hostname or "") else getproxies().get(url.scheme)


async def for_kopf(settings: Configuration) -> kopf.ConnectionInfo:
    """Return the same connection in kopf's form."""
    authorization = await settings.get_api_key_with_prefix("BearerToken") or ""
    scheme, _, token = authorization.rpartition(" ")
    return kopf.ConnectionInfo(
        server=settings.host,
        ca_path=settings.ssl_ca_cert,
        insecure=not settings.verify_ssl,
        scheme=scheme or None,
        token=token or None,
        certificate_path=settings.cert_file,
        private_key_path=settings.key_file,
    )
