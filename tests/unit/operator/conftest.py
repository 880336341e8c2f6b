"""What several tests of the operator's parts need."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from fermata.operator import access


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Give the clock by which tokens are renewed, in seconds, to be set."""
    now_s = [0.0]
    monkeypatch.setattr(access, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    return now_s
