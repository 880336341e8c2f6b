"""Errors that a person can act on; the command line prints each as one line and exits with its code."""

from __future__ import annotations

import errno
import shlex
import sys
from pathlib import Path

# How a write to a full disk ends; unlike an open that fails, the error does not say which file it was.
DISK_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO))


class FermataError(Exception):
    """Base of all errors that are told to the user without a traceback."""

    exit_code: int = 1


class InputError(FermataError):
    """A trace, manifest, configuration or option that cannot be used.

    Args:
        message: what was wrong and what was expected, in one line.
        file: where it stood, if in a file.
        line: its line in that file, from 1.
    """

    exit_code = 2

    def __init__(self, message: str, *, file: str | Path | None = None, line: int | None = None) -> None:
        self.message, self.file, self.line = message, None if file is None else str(file), line
        where = "" if file is None else f"{file}: " if line is None else f"{file}:{line}: "
        super().__init__(" ".join(f"{where}{message}".split()))


class MissingExtraError(FermataError):
    """An optional dependency is not installed; the message names the extra that brings it.

    It names the interpreter, too: another one's pip finds no Fermata there, and installs the project that has this name
    on PyPI.
    """

    exit_code = 2

    def __init__(self, package: str, extra: str) -> None:
        pip = f"{shlex.quote(sys.executable)} -m pip"
        super().__init__(f"{package} is not installed; install it with: {pip} install 'fermata[{extra}]'")


class ModelError(FermataError):
    """A policy file that cannot be used: missing, corrupt, of another schema, or one that fails its dry run."""

    exit_code = 2
