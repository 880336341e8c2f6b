"""An API server of a few lines, and a client that waits for its welcome."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from aiohttp import web

from fermata.operator.cluster import Cluster
from fermata.operator.connection import ClusterError


async def until_welcome(cluster: Cluster) -> None:
    """Ask until there is an answer."""
    async with asyncio.timeout(20):
        while True:
            with suppress(ClusterError):
                await cluster.get("/")
                return
            await asyncio.sleep(0.05)


@asynccontextmanager
async def answering(
    answer: Callable[[web.Request], Awaitable[web.Response]], port: int = 0, context: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Answer all that is read at a port (0: a free one), which is given; over TLS with a context."""
    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context, reuse_address=True).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
