"""What several tests of the operator's parts need."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from fermata.operator import access, seat


@pytest.fixture(autouse=True, scope="session")
def patient() -> Iterator[None]:
    """Have an empty seat wait for its policy: by the clocks of tests that takes no time, by this machine's seconds."""
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(seat, "FIRST_LOAD_S", 3600.0)
        yield


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Give the clock by which tokens are renewed, in seconds, to be set."""
    now_s = [0.0]
    monkeypatch.setattr(access, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    return now_s
