"""The kopf shell: kopf starts and stops the operator, and asks the API server for nothing by itself.

Importing this module registers the handlers, which is all that `kopf run -m fermata.operator` needs.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import kopf

from fermata.operator.options import options_from_environment
from fermata.operator.runtime import Operator
from fermata.policy.errors import InputError


@kopf.on.startup()
async def start(memo: kopf.Memo, settings: kopf.OperatorSettings, **_: Any) -> None:
    """Make kopf quiet, and start the operator."""
    memo["before"] = asyncio.all_tasks()
    settings.posting.enabled = False
    settings.peering.standalone = True
    # Or it warns, whenever the operator is stopped, that `login` has not ended.
    logging.getLogger("kopf.activities.authentication").setLevel(logging.ERROR)
    # And kopf's own command line would have four lines written about each wake-up.
    wake_ups = logging.getLogger("apscheduler")
    wake_ups.setLevel(wake_ups.level or logging.WARNING)
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
async def login(**_: Any) -> None:
    """Give kopf no credentials, ever: without them it waits, and asks for nothing.

    It would ask what there is in the cluster, has no use for the answer, and ends when it gets none for a minute: where
    the API server is in trouble or does not let the operator see that, or where a connection of kopf's cannot be made
    in the way in which the operator's own is made.
    """
    await asyncio.Event().wait()


@kopf.on.cleanup()
async def stop(memo: kopf.Memo, **_: Any) -> None:
    """Stop the operator, and what kopf has begun: it would wait some seconds for what itself waits for `login`."""
    await memo["operator"].stop()
    for task in asyncio.all_tasks() - memo["before"]:
        task.cancel()
