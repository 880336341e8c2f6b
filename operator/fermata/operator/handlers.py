"""The kopf shell: kopf starts and stops the operator, and neither watches nor writes anything by itself.

Importing this module registers the handlers, which is all that `kopf run -m fermata.operator` needs.
"""

from __future__ import annotations

import asyncio
from typing import Any

import kopf

from fermata.operator.access import configuration, for_kopf
from fermata.operator.options import options_from_environment
from fermata.operator.runtime import Operator
from fermata.policy.errors import InputError


@kopf.on.startup()
async def start(memo: kopf.Memo, settings: kopf.OperatorSettings, **_: Any) -> None:
    """Make kopf quiet, and start the operator."""
    settings.scanning.disabled = True  # or it watches CRDs, and ends when an API server in trouble refuses that
    settings.posting.enabled = False
    settings.peering.standalone = True
    try:
        if "operator" not in memo:
            memo["operator"] = Operator(options_from_environment())
        await memo["operator"].start()
    except InputError as error:  # which no other attempt would mend
        raise kopf.PermanentError(str(error)) from error
    except asyncio.CancelledError:  # told to stop while it waits, when kopf cleans nothing up
        await memo["operator"].stop()
        raise


@kopf.on.login()
async def login(memo: kopf.Memo, **_: Any) -> kopf.ConnectionInfo:
    """Give kopf the operator's own connection."""
    return await for_kopf(await configuration(memo["operator"].options.kubeconfig))


@kopf.on.cleanup()
async def stop(memo: kopf.Memo, **_: Any) -> None:
    """Stop the operator."""
    await memo["operator"].stop()
