"""Steps that Ctrl-C does not cut in two."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from fermata.sim.processes import uninterrupted


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
