"""What a report says of how it was made: the command, the files by what is in them, the versions."""

from __future__ import annotations

import hashlib
import platform
import shlex
import sys
from importlib.metadata import version
from pathlib import Path


def command() -> str:
    """Return the command that runs, as a shell takes it."""
    return shlex.join(["fermata", *sys.argv[1:]])


def sha256(path: Path) -> str:
    """Return the digest of a file, and that it is one."""
    with path.open("rb") as stream:
        return f"sha256 {hashlib.file_digest(stream, 'sha256').hexdigest()}"


def versions(*packages: str) -> str:
    """Return the versions of Fermata, of Python and of packages that figures depend on."""
    kept = (f"{package} {version(package)}" for package in packages)
    return ", ".join((f"fermata {version('fermata')}", f"Python {platform.python_version()}", *kept))
