"""What commands need beyond the core: looked for before they begin, so that none fails when its work is half done."""

from __future__ import annotations

from importlib.util import find_spec

from fermata.policy.errors import MissingExtraError

# What the code imports of each extra, by the names of the modules; without Numba and the onnx of `sim`, which only make
# it fast.
PACKAGES = {
    "operator": ("aiohttp", "apscheduler", "kopf", "kubernetes", "prometheus_client"),
    "ray": ("ray",),
    "report": ("jinja2", "matplotlib"),
    "sim": ("aiohttp", "celpy", "jsonpatch", "networkx", "orjson", "re2"),
    "training": ("torch", "onnx", "tensorboard"),
}


def need(*extras: str) -> None:
    """Make sure that what these extras bring is installed; imports nothing of it.

    Raises:
        MissingExtraError: something is not; it says how to install all of them.
    """
    for package in (package for extra in extras for package in PACKAGES[extra]):
        if find_spec(package) is None:
            raise MissingExtraError(package, ",".join(extras))
