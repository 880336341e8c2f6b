"""Steps that Ctrl-C does not cut in two, and workers whose parent is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fermata.sim import processes
from fermata.sim.processes import uninterrupted

# Starts two workers, says who they are, and waits.
POOL = """
import os, time
from fermata.sim.processes import Workers
if __name__ == "__main__":
    pool = Workers(2)
    calls = [pool.submit(time.sleep, 0.5) for _ in range(2)]
    print(*pool._processes, flush=True)
    [call.result() for call in calls]
    print("idle", flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """Let Ctrl-C do what it does in a terminal: what a shell runs in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def _step(done: list[str], *, fails: bool = False) -> None:
    with uninterrupted():
        done.append("rows")
        signal.raise_signal(signal.SIGINT)
        if fails:
            raise ZeroDivisionError
        done.append("figures")


def test_an_interrupt_waits_for_the_end_of_the_step() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        _step(done)
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


def test_workers_do_not_outlive_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "pool.py"
    script.write_text(POOL)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        workers = parent.stdout.readline().split()
        try:
            assert (len(workers), parent.stdout.readline()) == (2, "idle\n")
            parent.kill()
            # Workers have inherited the pipe: it ends with the last of them.
            assert parent.communicate(timeout=30.0) == ("", None)
        finally:
            for pid in workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)


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
