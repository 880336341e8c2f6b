"""Open inputs that may be compressed and write outputs that are whole or not there at all.

Every reader and writer of the simulator comes through here, so that `.xz`, `.gz` and `-` mean the same everywhere, an
unreadable file is a one-line error, and an interrupted write never leaves half a file under the final name.
"""

from __future__ import annotations

import gzip
import lzma
import os
import secrets
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, Literal, TextIO, cast

from fermata.policy.errors import DISK_FULL, InputError

STANDARD_STREAM = "-"
LINES_A_REPORT = 4096
_XZ, _GZIP = b"\xfd7zXZ\0", b"\x1f\x8b"  # what such a file begins with
_TAR, _TAR_AT = b"ustar", 257  # what an archive of files has there, and where
# In the name of a file that is being written: so nobody else's hidden file is taken for one that was never finished.
_UNFINISHED = ".fermata-"

Progress = Callable[[float], object]


def shown_name(path: str | Path) -> str:
    """The name under which errors mention a path."""
    return "<stdin>" if str(path) == STANDARD_STREAM else str(path)


def numbered_lines(
    path: str | Path, progress: Progress | None, errors: Literal["strict", "replace"] = "strict"
) -> Iterator[tuple[int, str]]:
    """The lines of a text file with their numbers from 1, one at a time.

    Args:
        path: a file, decompressed if it is `.xz` or `.gz` by its name or its first bytes; `-` for standard input.
        progress: called now and then with the share of the file that has been read, 0 to 1.
        errors: what is done with bytes that are no UTF-8.

    Raises:
        InputError: it cannot be opened, is cut short or not UTF-8; names file and line.
    """
    number = 0
    try:
        with open_raw(path) as raw, _decompressed(raw, str(path)) as stream:
            _refuse_archive(stream, path)
            size = os.fstat(raw.fileno()).st_size if progress is not None and str(path) != STANDARD_STREAM else 0
            for number, line in enumerate(stream, start=1):
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8", errors)
                if progress is not None and size and number % LINES_A_REPORT == 0:
                    progress(raw.tell() / size)
    except UnicodeDecodeError as error:
        message = f"not UTF-8 text ({error.reason}); expected text, plain or compressed by xz or gzip"
        raise InputError(message, file=shown_name(path), line=number) from error
    except (lzma.LZMAError, zlib.error, gzip.BadGzipFile, EOFError) as error:
        message = f"the compressed file is damaged or cut short ({error})"
        raise InputError(message, file=shown_name(path), line=number + 1) from error


def read_bytes(path: str | Path) -> bytes:
    """All bytes of a file, decompressed as by `numbered_lines`; `-` is standard input.

    Raises:
        InputError: it cannot be read.
    """
    try:
        with open_raw(path) as raw, _decompressed(raw, str(path)) as stream:
            _refuse_archive(stream, path)
            return stream.read()
    except (lzma.LZMAError, zlib.error, gzip.BadGzipFile, EOFError) as error:
        message = f"the compressed file is damaged or cut short ({error})"
        raise InputError(message, file=shown_name(path)) from error


@contextmanager
def open_raw(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file for reading its bytes as they are; `-` is standard input.

    Raises:
        InputError: it cannot be opened or read.
    """
    try:
        if str(path) == STANDARD_STREAM:
            yield _standard(sys.stdin, "<stdin>")
        else:
            with _named(path).open("rb") as raw:
                yield raw
    except gzip.BadGzipFile:
        raise  # an OSError by inheritance only: the file could be read, what it holds could not
    except OSError as error:
        raise InputError(f"cannot read it: {error.strerror or error}", file=shown_name(path)) from error


def _named(path: str | Path) -> Path:
    """Return a path; no name at all, as of a variable that is not set, would be the current folder's."""
    if not str(path):
        raise InputError("expected the name of a file, got ''")
    return Path(path)


def _standard(stream: TextIO | None, name: str) -> BinaryIO:
    if stream is None:  # whoever started this program had closed it
        raise InputError("it is closed", file=name)
    return stream.buffer


def _decompressed(raw: BinaryIO, name: str) -> BinaryIO:
    begins = cast(BufferedReader, raw).peek(len(_XZ))
    if name.endswith(".xz") or begins.startswith(_XZ):
        return cast(BinaryIO, lzma.open(raw, "rb"))
    if name.endswith(".gz") or begins.startswith(_GZIP):
        return cast(BinaryIO, gzip.open(raw, "rb"))
    return raw


def _refuse_archive(stream: BinaryIO, path: str | Path) -> None:
    """Refuse an archive of files: what it says of the first one would be read as a part of that one's first line.

    Raises:
        InputError: it is one.
    """
    if cast(BufferedReader, stream).peek(_TAR_AT + len(_TAR)).startswith(_TAR, _TAR_AT):
        told = "a tar archive; expected a file of it, as `tar -xOf ARCHIVE NAME` writes one to a pipe"
        raise InputError(told, file=shown_name(path))


@contextmanager
def atomic_output(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file for writing bytes, compressed by its suffix; it appears under its name only when all went well.

    The bytes depend on the content alone (no time stamp in a gzip header), so equal traces give equal files. What is
    written to a pipe or a device goes there at once.

    Raises:
        InputError: the folder cannot be written, or the disk is full.
    """
    try:
        with _whole_output(path) as stream:
            yield stream
    except OSError as error:
        if error.filename is not None or error.errno not in DISK_FULL:
            raise  # of another file, or of no file at all
        raise unwritable(error, "<stdout>" if str(path) == STANDARD_STREAM else path) from error


def unfinished_outputs(folder: Path) -> list[Path]:
    """Return the files in a folder, and the folders in it, that `atomic_output` never finished: its process was killed.

    Those that another process is writing just now look alike.
    """
    return [path for path in folder.rglob(f".*{_UNFINISHED}????????") if path.is_file()]


def unwritable(error: OSError, path: str | Path) -> InputError:
    """Return what is told when a file cannot be written."""
    return InputError(f"cannot write it: {error.strerror or error}", file=path)


def is_pipe_or_device(path: Path) -> bool:
    """Return whether what is written to a path goes to somebody at once, and no file is to take its place."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False  # it is not there, or opening it will tell
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@contextmanager
def _whole_output(path: str | Path) -> Iterator[BinaryIO]:
    name = str(path)
    if name == STANDARD_STREAM:
        stream = _standard(sys.stdout, "<stdout>")
        yield stream
        stream.flush()
        return
    target = _named(name)
    if os.path.isdir(target):  # to replace "." or "/" would be refused in words of its own
        raise InputError("cannot write it: is a folder", file=target)
    if is_pipe_or_device(target):  # to be replaced by a file would take it away from whoever reads there
        with _opened(target, target, "wb") as raw, _compressed(raw, name) as stream:
            yield stream
        return
    # Named before it is there: an interrupt in between would leave a file that nobody knows.
    temporary = target.parent / f".{target.name}{_UNFINISHED}{secrets.token_hex(4)}"
    try:
        with _opened(temporary, target, "xb") as raw, _compressed(raw, name) as stream:
            yield stream
        _rename(temporary, target)
    except BaseException:
        if os.path.exists(temporary):  # to delete what could not be made would fail in its own words
            temporary.unlink()
        raise


@contextmanager
def _compressed(raw: BinaryIO, name: str) -> Iterator[BinaryIO]:
    """Yield what compresses into an open file, by the suffix of a name."""
    if name.endswith(".xz"):
        with lzma.open(raw, "wb") as stream:
            yield cast(BinaryIO, stream)
    elif name.endswith(".gz"):
        with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as stream:
            yield cast(BinaryIO, stream)
    else:
        yield raw


def _opened(path: Path, target: Path, mode: Literal["xb", "wb"]) -> BinaryIO:
    """Open what becomes, or is, a target."""
    try:
        return path.open(mode)
    except OSError as error:
        raise unwritable(error, target) from error


def _rename(temporary: Path, target: Path) -> None:
    try:
        temporary.replace(target)
    except OSError as error:
        raise unwritable(error, target) from error
