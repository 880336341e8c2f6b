"""Steps that no interrupt cuts in two, and workers whose parent is interrupted or killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest
from tests.processes import interruptible, sigint_handled

from fermata.cli.interrupts import terminable
from fermata.sim import processes
from fermata.sim.processes import LostWorkerError, Workers, uninterrupted

# Starts two workers, says who they are, gives them something to do, or nothing, and waits.
POOL = """
import sys, time
from fermata.sim.processes import Workers
if __name__ == "__main__":
    pool = Workers(2)
    calls = [pool.submit(time.sleep, 0.5) for _ in range(2)]
    print(*pool._processes, flush=True)
    [call.result() for call in calls]
    if sys.argv[1] == "busy":
        # For a minute no thread of theirs runs beside this, as beside a compiled kernel.
        calls = [pool.submit(pow, 7, 10**8) for _ in range(2)]
        time.sleep(0.5)
    print(sys.argv[1], flush=True)
    time.sleep(60)
"""
# The first result keeps the thread that reads them busy for a second; meanwhile the second one fills the pipe.
HALF_SENT = """
import signal, time
from fermata.sim.processes import Workers

class Slow:
    def __reduce__(self):
        return time.sleep, (1.0,)

if __name__ == "__main__":
    try:
        with Workers(1) as pool:
            pool.submit(abs, 1).result()
            pool.submit(Slow)
            pool.submit(bytes, 1_000_000)
            time.sleep(0.5)
            signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        print("ended", flush=True)
"""

# The first call fills the pipe before the worker that is to read it is up.
HALF_ASKED = """
import signal
from fermata.sim.processes import Workers

if __name__ == "__main__":
    try:
        with Workers(1) as pool:
            for _ in range(4):
                pool.submit(len, bytes(1_000_000))
            signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        print("ended", flush=True)
"""

# The signal comes when the worker is up, and nobody has noted yet which process it is.
STARTED = """
import functools, os, pathlib, sys, threading, time
from multiprocessing.process import BaseProcess
from fermata.cli.interrupts import terminable
from fermata.sim.processes import Workers

up = pathlib.Path(sys.argv[2])

def start(process, really=BaseProcess.start):
    really(process)
    while not up.exists():
        time.sleep(0.01)
    os.kill(os.getpid(), int(sys.argv[1]))

if __name__ == "__main__":
    threading.Thread(target=time.sleep, args=(60.0,), daemon=True).start()  # takes what the main thread blocks
    BaseProcess.start = start
    try:
        with terminable(), Workers(1, functools.partial(up.touch)) as pool:
            pool.submit(abs, 1)
    except KeyboardInterrupt:
        print("ended", flush=True)
"""


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """Let Ctrl-C do what it does in a terminal: what a shell runs in the background ignores it."""
    with sigint_handled():
        yield


def _step(done: list[str], number: int = signal.SIGINT, *, fails: bool = False) -> None:
    with uninterrupted():
        done.append("rows")
        signal.raise_signal(number)
        if fails:
            raise ZeroDivisionError
        done.append("figures")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_waits_for_the_end_of_the_step(number: int) -> None:
    done: list[str] = []
    with terminable(), pytest.raises(KeyboardInterrupt):
        _step(done, number)
    assert done == ["rows", "figures"]


def test_without_an_interrupt_nothing_is_raised_and_ctrl_c_works_as_before() -> None:
    before = signal.getsignal(signal.SIGINT)
    with uninterrupted():
        pass
    assert signal.getsignal(signal.SIGINT) is before


def test_an_error_in_the_step_is_not_hidden_by_an_interrupt() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError):
        _step([], fails=True)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("state", ["idle", "busy"])
def test_workers_do_not_outlive_a_parent_that_is_killed(state: str, tmp_path: Path) -> None:
    script = tmp_path / "pool.py"
    script.write_text(POOL)
    with subprocess.Popen([sys.executable, str(script), state], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        workers = parent.stdout.readline().split()
        try:
            assert (len(workers), parent.stdout.readline()) == (2, f"{state}\n")
            parent.kill()
            # Workers have inherited the pipe: it ends with the last of them.
            assert parent.communicate(timeout=10.0) == ("", None)
        finally:
            for pid in workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)


def _at_work(calls: list[Future[None]]) -> None:
    with Workers(2) as pool:
        calls += [pool.submit(time.sleep, 30.0) for _ in range(5)]
        while not calls[0].running():
            time.sleep(0.01)
        signal.raise_signal(signal.SIGINT)


def test_an_interrupt_ends_workers_at_once_whatever_they_are_at() -> None:
    calls: list[Future[None]] = []
    with pytest.raises(KeyboardInterrupt):
        _at_work(calls)
    assert all(call.cancelled() or isinstance(call.exception(), BrokenProcessPool) for call in calls)


@pytest.mark.parametrize("text", [HALF_SENT, HALF_ASKED], ids=["result", "call"])
def test_what_is_half_sent_keeps_nobody_waiting(text: str, tmp_path: Path) -> None:
    script = tmp_path / "half_sent.py"
    script.write_text(text)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=30.0, check=True)
    assert (done.stdout, done.stderr) == ("ended\n", "")


def test_more_processes_than_a_semaphore_counts_to_are_as_many_as_there_is_work_for() -> None:
    with Workers(10**20) as pool:
        assert pool.submit(abs, -3).result() == 3


def test_a_worker_that_is_killed_is_one_line() -> None:
    told = "^a worker process was killed, perhaps for lack of memory$"
    with pytest.raises(LostWorkerError, match=told), Workers(2) as pool:
        pool.submit(os._exit, 1).result()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_a_worker_is_started_ends_that_one_too(number: int, tmp_path: Path) -> None:
    script = tmp_path / "started.py"
    script.write_text(STARTED)
    command = [sys.executable, str(script), str(int(number)), str(tmp_path / "up")]
    child = interruptible(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert child.communicate(timeout=30.0) == ("ended\n", None)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("limit", "expected"), [("max 100000", 8), ("250000 100000", 3), ("1600000 100000", 8), (None, 8)]
)
def test_the_cores_of_a_container_are_those_of_its_limit(
    limit: str | None, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setattr(processes, "_CPU_LIMIT", tmp_path / "cpu.max")
    if limit is not None:
        (tmp_path / "cpu.max").write_text(limit + "\n")
    assert processes.cores() == expected
