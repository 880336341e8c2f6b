"""The kopf shell: kopf starts and stops the operator, and neither watches nor writes anything by itself.

Importing this module registers the handlers, which is all that `kopf run -m fermata.operator` needs.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import kopf

from fermata.operator.access import configuration, for_kopf
from fermata.operator.runtime import Operator, Options
from fermata.policy.errors import InputError


def options_from_environment() -> Options:
    """Return the options of an operator that kopf's own command line started."""
    port = os.environ.get("FERMATA_METRICS_PORT")
    record = os.environ.get("FERMATA_RECORD")
    return Options(
        kubeconfig=os.environ.get("KUBECONFIG"),
        metrics_host=os.environ.get("FERMATA_METRICS_HOST", "127.0.0.1"),
        metrics_port=int(port) if port else None,
        record=Path(record) if record else None,
        lease_namespace=os.environ.get("FERMATA_LEASE_NAMESPACE"),
    )


@kopf.on.startup()
async def start(memo: kopf.Memo, settings: kopf.OperatorSettings, **_: Any) -> None:
    """Make kopf quiet, and start the operator."""
    settings.posting.enabled = False
    settings.peering.standalone = True
    try:
        if "operator" not in memo:
            memo["operator"] = Operator(options_from_environment())
        await memo["operator"].start()
    except InputError as error:  # which no other attempt would mend
        raise kopf.PermanentError(str(error)) from error


@kopf.on.login()
async def login(memo: kopf.Memo, **_: Any) -> kopf.ConnectionInfo:
    """Give kopf the operator's own connection."""
    return await for_kopf(await configuration(memo["operator"].options.kubeconfig))


@kopf.on.cleanup()
async def stop(memo: kopf.Memo, **_: Any) -> None:
    """Stop the operator."""
    await memo["operator"].stop()
