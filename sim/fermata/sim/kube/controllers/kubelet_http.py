"""The kubelet's own endpoint on loopback: a container's output, whole, by its last lines, or as it grows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from pathlib import Path

    from fermata.sim.kube.controllers.runtime import LocalRuns

_SIMULATED = b"this pod is simulated: it takes its time and writes nothing\n"
_POLL_S = 0.1


class LogServer:
    """Serves `/containerLogs/NAMESPACE/POD/CONTAINER`.

    Args:
        local: whose output is served; None where every pod is simulated.
    """

    def __init__(self, local: LocalRuns | None) -> None:
        self._local = local
        self._runner: web.ServerRunner | None = None

    async def start(self) -> int:
        """Listen, and return the port."""
        self._runner = web.ServerRunner(
            web.Server(self._handle, handler_cancellation=True, access_log=None), shutdown_timeout=0.1
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port: int = self._runner.addresses[0][1]
        return port

    async def close(self) -> None:
        """Listen no longer."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        match request.path.strip("/").split("/"):
            case ["containerLogs", namespace, name, _]:
                pass
            case _:
                return web.Response(status=404, text="not found")
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        file = None if self._local is None else self._local.log_file(namespace, name)
        if self._local is None or file is None or not file.is_file():
            await response.write(_SIMULATED)
            return response
        lines = request.query.get("tailLines")
        start = _tail(file, int(lines)) if lines else 0
        with file.open("rb") as output:  # it can be read to its end when its pod is gone, and the file with it
            output.seek(start)
            while True:
                running = self._local.is_running(namespace, name)
                if text := output.read():
                    await response.write(text)
                if not running or request.query.get("follow") != "true":
                    return response
                await asyncio.sleep(_POLL_S)


def _tail(file: Path, lines: int) -> int:
    """Return where a file's last lines begin."""
    text = file.read_bytes()
    parts = text.splitlines(keepends=True)
    return len(text) - sum(map(len, parts[len(parts) - lines :] if lines else []))
