"""From a pool's `spec.policy` to a policy that can decide: found, checked against its digest, and dry-run.

Loading runs no code of a model and happens in a thread. Everything that can be wrong with a model comes out as one
`UnusablePolicyError` with a documented reason, for the pool's condition.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import tempfile
from pathlib import Path
from typing import NamedTuple

from fermata.operator import reasons
from fermata.operator.builtin import UnusablePolicyError, load_named
from fermata.operator.cluster import Cluster
from fermata.operator.connection import ClusterError
from fermata.operator.envelope import Envelope, envelope_of
from fermata.operator.resources import ConfigMapKey, ModelSource, PolicySource
from fermata.policy.decide import Policy
from fermata.policy.errors import InputError, ModelError

LOAD_TIMEOUT_S = 60.0


class Loaded(NamedTuple):
    """A policy that passed its checks, and what it was taught, if it says so."""

    policy: Policy
    envelope: Envelope | None


async def load_policy(source: PolicySource, cluster: Cluster) -> Loaded:
    """Return the policy that a pool asks for.

    Raises:
        UnusablePolicyError: there is none, or it fails its checks.
    """
    try:
        async with asyncio.timeout(LOAD_TIMEOUT_S):
            if source.model is not None:
                policy = await _load_model(source.model, cluster)
            else:
                policy = await asyncio.to_thread(load_named, source.name or "")
            return Loaded(policy, envelope_of(policy))
    except TimeoutError as error:
        raise UnusablePolicyError(reasons.MODEL_UNUSABLE, f"not loaded within {LOAD_TIMEOUT_S:g} s") from error
    except ModelError as error:
        raise UnusablePolicyError(reasons.MODEL_UNUSABLE, str(error)) from error
    except InputError as error:
        raise UnusablePolicyError(reasons.POLICY_UNKNOWN, str(error)) from error


async def _load_model(model: ModelSource, cluster: Cluster) -> Policy:
    from fermata.policy.model_file import load_model  # ONNX Runtime is slow to import and not every pool needs it

    if model.path is not None:
        return await asyncio.to_thread(load_model, model.path, model.sha256)
    if model.config_map is None:
        raise UnusablePolicyError(reasons.MODEL_UNUSABLE, "expected exactly one of path and configMap")
    content = await _from_config_map(model.config_map, cluster)
    with tempfile.TemporaryDirectory(prefix="fermata-model-") as directory:
        path = Path(directory) / f"{model.config_map.name}.onnx"
        await asyncio.to_thread(path.write_bytes, content)
        try:
            return await asyncio.to_thread(load_model, path, model.sha256)
        except ModelError as error:
            # The file is gone when somebody reads of it, and has another name each time that it is tried.
            raise ModelError(str(error).replace(str(path), _place(model.config_map))) from error


def _place(where: ConfigMapKey) -> str:
    return f"ConfigMap {where.namespace}/{where.name}, key {where.key}"


async def _from_config_map(where: ConfigMapKey, cluster: Cluster) -> bytes:
    place = _place(where)
    try:
        found = await cluster.get_config_map(where.namespace, where.name)
    except ClusterError as error:
        raise UnusablePolicyError(reasons.MODEL_UNUSABLE, f"{place}: {error}") from error
    encoded = (found.get("binaryData") or {}).get(where.key)
    if encoded is None:
        raise UnusablePolicyError(reasons.MODEL_UNUSABLE, f"{place}: not under binaryData")
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        raise UnusablePolicyError(reasons.MODEL_UNUSABLE, f"{place}: not base64") from error
