"""The operator as a process: kopf embedded in one event loop, stopped cleanly by SIGTERM and Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import UTC, datetime
from typing import Any

import kopf

from fermata.operator import handlers
from fermata.operator.lease import identity
from fermata.operator.options import Options
from fermata.operator.runtime import Operator
from fermata.policy.errors import InputError
from fermata.policy.wording import printable

# What is running when the process is told to stop is in the API server, so there is little to wait for.
_EXIT_TIMEOUT_S = 20.0


class _JsonLines(logging.Formatter):
    """One JSON object a line, for log collectors."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


class _TextLines(logging.Formatter):
    """One line of text, and below it the traceback if there is one: a message may quote what any user wrote."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        return printable(super().formatMessage(record))


def configure_logging(*, as_json: bool, verbose: bool) -> None:
    """Send log lines to standard error, as text or as JSON."""
    handler = logging.StreamHandler()
    text = _TextLines("%(asctime)s %(levelname).1s %(name)s: %(message)s")
    handler.setFormatter(_JsonLines() if as_json else text)
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler], force=True)
    for noisy in ("apscheduler", "asyncio", "kopf", "aiohttp.access", "kubernetes"):
        logging.getLogger(noisy).setLevel(logging.DEBUG if verbose else logging.WARNING)


def run(options: Options) -> None:
    """Run until a signal says stop.

    Raises:
        InputError: the kubeconfig, the file to record to or the port for metrics cannot be used.
    """
    asyncio.run(_run(options))


async def _run(options: Options) -> None:
    operator = Operator(options)
    # Before kopf, which would try again and again: what it cannot start with is for whoever started this to see.
    try:
        await operator.connect()
        await operator.listen()
    except InputError:
        await operator.stop()
        raise
    settings = kopf.OperatorSettings()
    settings.process.ultimate_exiting_timeout = _EXIT_TIMEOUT_S
    # Or kopf would ask for the name of the user, and end where it has none, as in a container.
    own_name: Any = identity()
    await kopf.operator(
        registry=kopf.get_default_registry(),
        memo=kopf.Memo(operator=operator),
        settings=settings,
        clusterwide=options.namespace is None,
        namespaces=[options.namespace] if options.namespace else [],
        standalone=True,
        identity=own_name,
    )


__all__ = ["configure_logging", "handlers", "run"]
