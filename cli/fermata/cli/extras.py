"""Late imports of rooms that need an optional dependency, with an error that names the extra."""

from __future__ import annotations

import importlib
from types import ModuleType

from fermata.policy.errors import MissingExtraError


def _need(module: str, package: str, extra: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or package).partition(".")[0]
        if missing == "fermata":
            raise
        raise MissingExtraError(missing, extra) from error


def training() -> ModuleType:
    """Return `fermata.training.train`."""
    return _need("fermata.training.train", "torch", "training")


def hpc_training() -> ModuleType:
    """Return `fermata.training.hpc.train`."""
    return _need("fermata.training.hpc.train", "torch", "training")


def graph_training() -> ModuleType:
    """Return `fermata.training.graph.train`."""
    return _need("fermata.training.graph.train", "torch", "training")


def spark_training() -> ModuleType:
    """Return `fermata.training.spark.train`."""
    return _need("fermata.training.spark.train", "torch", "training")


def spark_export() -> ModuleType:
    """Return `fermata.training.spark.export`."""
    return _need("fermata.training.spark.export", "torch", "training")


def graph_ablation() -> ModuleType:
    """Return `fermata.training.graph.ablation`."""
    return _need("fermata.training.graph.ablation", "torch", "training")


def graph_export() -> ModuleType:
    """Return `fermata.training.graph.export`."""
    return _need("fermata.training.graph.export", "torch", "training")


def export() -> ModuleType:
    """Return `fermata.training.export`."""
    return _need("fermata.training.export", "torch", "training")
