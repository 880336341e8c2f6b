"""The client of the control plane's own controllers: their writes reach the verbs without a socket in between.

What they read and watch still comes over HTTP, and faults meet their writes as they meet anybody's, so a controller
cannot tell this client from the plain one but by the time that it takes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson

from fermata.sim.kube.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fermata.sim.kube.resources import Obj
    from fermata.sim.kube.server import Server


class InsideClient(Client):
    """A client in the server's own process and loop.

    Args:
        url: where the server listens.
        server: the server.
        is_up: whether it answers; a write to one that does not fails as a connection does.
    """

    def __init__(self, url: str, server: Server, is_up: Callable[[], bool]) -> None:
        super().__init__(url)
        self._server, self._is_up = server, is_up

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Obj:
        """Send a request and return the answer's object.

        Raises:
            ApiError: for an answer other than success.
            aiohttp.ClientError: where there is no answer.
        """
        if method == "GET" or params:
            return await super().request(method, path, body, params=params, content_type=content_type)
        # Others get their turn, as they would while a socket is waited for.
        await asyncio.sleep(0)
        if not self._is_up():
            raise aiohttp.ClientConnectionError("the API server does not answer")
        # Through JSON, so that neither side holds a part of the other's object.
        return await self._server.write(method, path, orjson.loads(orjson.dumps(body)), content_type)
