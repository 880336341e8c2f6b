"""Control planes for tests that are not asynchronous; those that are use `async with ControlPlane(...)` themselves.

from tests.kube_fixtures import local_kube  # a fixture: local_kube.url, local_kube.kubeconfig
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.real_plane import FRESH, PATIENCE_S, real_plane

from fermata.sim.kube import ControlPlane, Options
from fermata.sim.kube.client import Client

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


@dataclass(frozen=True)
class LocalKube:
    """A control plane that is up: where it is reached."""

    url: str
    kubeconfig: Path
    is_real: bool = False


class PlaneThread:
    """Runs a control plane in a thread with its own loop, for tests that are not asynchronous."""

    def __init__(self, options: Options, folder: Path, manifests: Sequence[dict[str, Any]] = ()) -> None:
        self._arguments = (options, folder, manifests)
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="kube", daemon=True)

    def __enter__(self) -> LocalKube:
        self._thread.start()
        assert self._ready.wait(PATIENCE_S), "the control plane does not come up"
        if self._error is not None:
            raise self._error
        return LocalKube(self.plane.url, self.plane.kubeconfig)

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        assert not self._thread.is_alive(), "the control plane did not stop"

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - handed to the test's thread
            self._error = error
            self._ready.set()

    async def _serve(self) -> None:
        options, folder, manifests = self._arguments
        self.loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with ControlPlane(options, folder=folder, manifests=manifests) as self.plane:
            self._ready.set()
            await self._stop.wait()


@pytest.fixture
def local_kube(tmp_path: Path) -> Iterator[LocalKube]:
    """A fresh control plane with 4 executor slots, in a thread; failed pods are replaced quickly."""
    with PlaneThread(Options(slots=4, job_backoff_s=0.05), tmp_path / "kube") as kube:
        yield kube


@pytest.fixture(params=["embedded", *(["real"] if FRESH else [])])
def any_kube(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalKube]:
    """A fresh control plane with 4 executor slots: the embedded one, and a real one where there is one."""
    if request.param == "embedded":
        yield request.getfixturevalue("local_kube")
        return
    folder = tmp_path / "kube"
    folder.mkdir()
    with real_plane(folder) as plane:
        if not plane.simulates:
            pytest.skip("needs kube-controller-manager and kube-scheduler in KUBEBUILDER_ASSETS")
        yield LocalKube(Client.from_kubeconfig(plane.kubeconfig).server, plane.kubeconfig, is_real=True)
