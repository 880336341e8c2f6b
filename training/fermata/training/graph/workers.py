"""Who does the units of a training run: this process, other processes, or a Ray cluster; the code is the same.

Results come back in the order of the units, and a unit's result does not depend on who did it.
"""

from __future__ import annotations

import os
import signal
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from fermata.policy.errors import InputError, MissingExtraError
from fermata.sim.processes import LostWorkerError
from fermata.sim.processes import Workers as Pool

U = TypeVar("U")
R = TypeVar("R")
_REACH_S = 10.0


class Workers(ABC):
    """Does units of work; a context manager, because what was started for it has to end."""

    @abstractmethod
    def map(self, function: Callable[[U], R], units: Sequence[U]) -> list[R]:
        """Return `function(unit)` for each unit, in order."""

    def __enter__(self) -> Self:
        return self

    def __exit__(  # noqa: B027 - not all have something to end
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """End what was started."""


class Here(Workers):
    """This process, one unit after the other."""

    def map(self, function: Callable[[U], R], units: Sequence[U]) -> list[R]:
        """Return `function(unit)` for each unit, in order."""
        return [function(unit) for unit in units]


def _begin() -> None:
    """Leave the cores to the other processes."""
    os.environ["OMP_NUM_THREADS"] = "1"


class Processes(Workers):
    """Processes of this machine, kept between calls: they import torch once."""

    def __init__(self, processes: int) -> None:
        self._pool = Pool(processes, _begin)

    def map(self, function: Callable[[U], R], units: Sequence[U]) -> list[R]:
        """Return `function(unit)` for each unit, in order."""
        return list(self._pool.map(function, units))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the processes, at once if something cut the work short."""
        self._pool.__exit__(kind, error, at)


def _reach(address: str) -> None:
    """Look whether somebody listens at an address: Ray itself would try for minutes, and not heed Ctrl-C."""
    place = urlsplit(address if "://" in address else f"//{address}")
    if place.hostname is not None and place.port is not None:
        socket.create_connection((place.hostname, place.port), timeout=_REACH_S).close()


@contextmanager
def _sigterm_kept() -> Iterator[None]:
    """Let SIGTERM mean what it did before Ray took it: Ray exits without a word, or aborts three seconds later."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit as ended:
        raise KeyboardInterrupt from ended
    finally:
        signal.signal(signal.SIGTERM, before)


class RayCluster(Workers):
    """The tasks of a Ray cluster; one core each.

    Args:
        address: of the cluster's head, `auto`, or `local` for one of this machine that ends with the run.

    Raises:
        InputError: no cluster answers there.
        MissingExtraError: Ray is not installed.
    """

    def __init__(self, address: str) -> None:
        try:
            import ray
        except ModuleNotFoundError as error:
            raise MissingExtraError("ray", "ray") from error
        self._ray: Any = ray
        try:
            _reach(address)
            with _sigterm_kept():
                ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level="error")
        except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
            raise InputError(f"no Ray cluster at {address!r}: {error}") from error

    def map(self, function: Callable[[U], R], units: Sequence[U]) -> list[R]:
        """Return `function(unit)` for each unit, in order.

        Raises:
            LostWorkerError: the cluster has lost a task more often than it tries.
        """
        remote = self._ray.remote(num_cpus=1)(function)
        try:
            results: list[R] = self._ray.get([remote.remote(unit) for unit in units])
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error  # what the function raised, as from a process of this machine
        except self._ray.exceptions.RayError as error:
            raise LostWorkerError(f"the Ray cluster has lost a task: {str(error).partition(chr(10))[0]}") from error
        return results

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Leave the cluster."""
        self._ray.shutdown()


def workers(processes: int, ray: str | None = None) -> Workers:
    """Return who does the work: a Ray cluster if there is an address, else so many processes."""
    if ray is not None:
        return RayCluster(ray)
    return Here() if processes == 1 else Processes(processes)
