"""/metrics, /healthz and /readyz on a port of their own; nothing else is served and nothing can be changed here."""

from __future__ import annotations

import logging
from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

log = logging.getLogger(__name__)


class Probes:
    """A small HTTP server.

    Args:
        registry: of the metrics.
        ready: tells in a word whether the operator decides or stands by; empty while it can do neither.
    """

    def __init__(self, registry: CollectorRegistry, ready: Callable[[], str]) -> None:
        self._registry, self._ready = registry, ready
        self._runner: web.AppRunner | None = None

    @property
    def listening(self) -> bool:
        """Whether it has been started."""
        return self._runner is not None

    async def start(self, host: str, port: int) -> None:
        """Listen at an address, or at `*`, which is every address of the machine, of IPv4 and IPv6.

        Raises:
            OSError: the port is taken.
        """
        app = web.Application()
        app.add_routes(
            [web.get("/metrics", self._metrics), web.get("/healthz", self._healthz), web.get("/readyz", self._readyz)]
        )
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, None if host == "*" else host, port).start()
        for address, bound, *_ in self._runner.addresses:  # what a name and port 0 have led to
            log.info("metrics and probes on http://%s:%d", f"[{address}]" if ":" in address else address, bound)

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")  # that it is answered shows that the event loop turns

    async def _readyz(self, _request: web.Request) -> web.Response:
        ready = self._ready()
        return web.Response(status=200 if ready else 503, text=f"{ready or 'not synchronised yet'}\n")
