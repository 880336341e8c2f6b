"""Files of `scripts/`, which is no package, as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

_FOLDER = Path(__file__).parents[1] / "scripts"


def script(name: str) -> ModuleType:
    """Import `scripts/NAME.py`."""
    spec = importlib.util.spec_from_file_location(name, _FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # data classes look there for what their annotations mean
    sys.path.insert(0, str(_FOLDER))  # as when it is run: it may import another one
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(_FOLDER))
    return module
