"""The kopf shell: events of five kinds of object go to the operator, and kopf writes nothing by itself.

Only `on.event` handlers: they leave no finalizer, no annotation and no patch on anybody's object. Importing this module
registers them, which is all that `kopf run -m fermata.operator` needs.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import kopf

from fermata.operator.access import configuration, for_kopf
from fermata.operator.names import GROUP, LABEL_POOL, POOLS, VERSION, WORKFLOWS
from fermata.operator.runtime import Operator, Options


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
    """Make kopf quiet and light, and start the operator."""
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.queueing.idle_timeout = 1.0
    settings.networking.request_timeout = 60.0
    settings.watching.label_selectors["batch", "v1", "jobs"] = LABEL_POOL
    settings.watching.label_selectors["", "v1", "pods"] = LABEL_POOL
    # One line for each event would be most of the log and much of the time.
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    if "operator" not in memo:
        memo["operator"] = Operator(options_from_environment())
    await memo["operator"].start()


@kopf.on.login()
async def login(memo: kopf.Memo, **_: Any) -> kopf.ConnectionInfo:
    """Give kopf the operator's own connection."""
    return await for_kopf(await configuration(memo["operator"].options.kubeconfig))


@kopf.on.cleanup()
async def stop(memo: kopf.Memo, **_: Any) -> None:
    """Stop the operator."""
    await memo["operator"].stop()


@kopf.on.event(GROUP, VERSION, WORKFLOWS)
async def workflow_event(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Take an event of a Workflow."""
    memo["operator"].feed("workflows", event["type"], event["object"])


@kopf.on.event(GROUP, VERSION, POOLS)
async def pool_event(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Take an event of an ExecutorPool."""
    memo["operator"].feed("executorpools", event["type"], event["object"])


@kopf.on.event("batch", "v1", "jobs", labels={LABEL_POOL: kopf.PRESENT})
async def job_event(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Take an event of a stage's Job."""
    memo["operator"].feed("jobs", event["type"], event["object"])


@kopf.on.event("", "v1", "pods", labels={LABEL_POOL: kopf.PRESENT})
async def pod_event(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Take an event of a stage's pod."""
    memo["operator"].feed("pods", event["type"], event["object"])


@kopf.on.event("", "v1", "namespaces")
async def namespace_event(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Take an event of a namespace."""
    memo["operator"].feed("namespaces", event["type"], event["object"])
