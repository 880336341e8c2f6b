"""Find the reference data that lies beside the checkout, never in it; tests that need it skip clearly without it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(os.environ.get("FERMATA_SHARED", Path(__file__).resolve().parents[1].parent / "shared"))


def shared_path(*parts: str) -> Path:
    """Path of reference data, which may not exist."""
    return SHARED.joinpath(*parts)


def require_shared(*parts: str) -> Path:
    """Path of reference data; skips the calling test or module where it is missing."""
    path = shared_path(*parts)
    if not path.exists():
        pytest.skip(f"needs reference data at {path} (set FERMATA_SHARED)", allow_module_level=True)
    return path


def scenarios() -> dict[str, Any]:
    """What others' programs made of the published scenarios; skips likewise."""
    loaded: dict[str, Any] = json.loads(require_shared("scenarios", "scenarios.json").read_text())
    return loaded
