"""The kubeconfig of an embedded control plane."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from pathlib import Path

_NAME = "fermata-local"


def write_kubeconfig(path: Path, server: str, token: str | None = None) -> None:
    """Write a kubeconfig that names one server.

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
    path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
