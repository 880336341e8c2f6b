"""The files of a training run: written whole or not at all, and told by name when they cannot be read or written.

A run goes on from its files, and makes those again that are missing. So a damaged one is not the end of a run: it only
has to be deleted, by somebody who is told which one it is.
"""

from __future__ import annotations

import fcntl
import io
import pickle
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from fermata.policy.errors import InputError
from fermata.sim.files import atomic_output, unfinished_outputs, unwritable
from fermata.training.fields import Whole

if TYPE_CHECKING:
    import torch

M = TypeVar("M", bound=BaseModel)

CONFIG_FILE, LABELS = "config.json", "labels"  # in the folder of a run
_NO_MATTER = frozenset({"processes", "checkpoint_every", "path"})  # fields that digests leave out: of no effect

# What zipfile makes of an archive whose bytes are wrong, wherever they are.
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError)


@contextmanager
def locked(run: Path) -> Iterator[None]:
    """Make the folder of a run, if need be, and keep it from other processes; it is free again when this one is gone.

    What a process that was killed had half written is deleted.

    Raises:
        InputError: another process is at work there, or its name is no text.
    """
    check_text(run)  # TensorBoard takes no other
    run.mkdir(parents=True, exist_ok=True)
    with (run / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError("another training is at work here; use another --out", file=run) from error
        for path in unfinished_outputs(run):
            path.unlink()
        yield


def check_text(path: Path) -> None:
    """Refuse a file or folder whose name could not stand in a run's files: Python spells its bytes as half characters.

    Raises:
        InputError: it is one.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise InputError("expected a name that is UTF-8 text", file=path) from error


def write_weights(path: Path, content: Any) -> None:
    """Write what torch can save.

    Raises:
        InputError: the file cannot be written.
    """
    import torch  # here, because processes that label and play have no use for it

    buffer = io.BytesIO()
    torch.save(content, buffer)
    write_bytes(path, buffer.getvalue())


def read_weights(path: Path) -> Any:
    """Read what `write_weights` wrote, on the processor; nothing in a file can run.

    Raises:
        InputError: the file is damaged.
    """
    import torch

    content = _intact(path)
    try:
        return torch.load(content, weights_only=True, map_location="cpu")
    except (RuntimeError, pickle.UnpicklingError) as error:
        raise damaged(path) from error


def put_weights(module: torch.nn.Module, weights: Any, path: Path) -> None:
    """Give a network weights that were read from a file.

    Raises:
        InputError: they are those of another network.
    """
    try:
        module.load_state_dict(weights)
    except (RuntimeError, TypeError) as error:
        raise unfitting(path) from error


def put_moments(optimiser: torch.optim.Adam, state: Any, path: Path) -> None:
    """Give an optimiser the state that was read from a file; torch looks at no shape before it steps.

    Raises:
        InputError: it is that of another network.
    """
    settings = [group.keys() for group in optimiser.param_groups]
    parameters = [each for group in optimiser.param_groups for each in group["params"]]
    fitting = {each: {"step": (), "exp_avg": each.shape, "exp_avg_sq": each.shape} for each in parameters}
    try:
        optimiser.load_state_dict(state)
        found = [(each, {name: value.shape for name, value in of.items()}) for each, of in optimiser.state.items()]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise unfitting(path) from error
    # A weight that no decision has needed so far has no state.
    if [group.keys() for group in optimiser.param_groups] != settings or any(
        shapes != fitting.get(each) for each, shapes in found
    ):
        raise unfitting(path)


def unfitting(path: Path) -> InputError:
    """Return what is told when a file is whole, and yet not one of this run."""
    return InputError("is of another network or another version; delete it and train again", file=path)


def write_arrays(path: Path, arrays: dict[str, Any]) -> None:
    """Write named arrays, compressed.

    Raises:
        InputError: the file cannot be written.
    """
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    write_bytes(path, buffer.getvalue())


def read_arrays(path: Path, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Read arrays by their names.

    Raises:
        InputError: the file is damaged, or lacks one of them.
    """
    try:
        with np.load(_intact(path), allow_pickle=False) as file:
            return {name: file[name] for name in names}
    except (ValueError, KeyError) as error:
        raise damaged(path) from error


def write_note(path: Path, config: BaseModel) -> None:
    """Write the configuration of a run.

    Raises:
        InputError: the file cannot be written.
    """
    write_bytes(path, (config.model_dump_json(indent=2) + "\n").encode())


def read_note(path: Path, kind: type[M]) -> M:
    """Read the configuration of a run.

    Raises:
        InputError: it is damaged, or somebody else's.
    """
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        if any(each["type"] == "json_invalid" for each in error.errors()):
            raise damaged(path) from error
        # What is whole may be another program's: not for us to tell anybody to delete.
        told = "is no configuration that this version of Fermata wrote; use another --out"
        raise InputError(told, file=path) from error


def note_of(run: Path, kind: type[M], ours: Callable[[bytes], bool], what: str) -> M:
    """Read the configuration of a run of one kind.

    Args:
        run: its folder.
        kind: of the configuration.
        ours: tells by what is noted whether that is a run of this kind.
        what: is trained by it, for people.

    Raises:
        InputError: the folder holds no such run, or what is noted is damaged.
    """
    note = run / CONFIG_FILE
    if not note.exists() or not ours(note.read_bytes()):
        raise InputError(f"is not a training run of {what}", file=run)
    return read_note(note, kind)


def noted_by(*methods: str) -> Callable[[bytes], bool]:
    """Return what tells whether a noted configuration is of one of these methods."""
    return lambda noted: any(f'"method": "{each}"'.encode() in noted for each in methods)


def unfinished(run: Path) -> InputError:
    """Return the error of a run of which nothing can be exported yet."""
    return InputError("this run is not finished; go on with it by fermata train", file=run)


def claim(run: Path, config: Whole, ours: Callable[[bytes], bool]) -> None:
    """Note the configuration of a run in its folder, or check that it is the one that is noted there.

    Args:
        run: the folder.
        config: what is to be trained.
        ours: tells by what is noted whether that is a run of the same kind.

    Raises:
        InputError: the folder holds what a run of another configuration has learned, or one that is not known, or a run
            of another kind, or what is noted is damaged.
    """
    note = run / CONFIG_FILE
    if note.exists():
        noted = note.read_bytes()
        try:
            from_json(noted)
        except ValueError as error:
            raise (_nameless(run) if has_learned(run) else damaged(note)) from error
        begun = read_note(note, type(config)) if ours(noted) else None
        if begun is not None and begun.digest == config.digest:
            return
        if begun is None or has_learned(run):
            field = None if begun is None else _other_field(begun.model_dump(), config.model_dump())
            told = "" if field is None else f" ({field} is not the same)"
            raise InputError(f"holds a run of another configuration{told}; use another --out", file=run)
    elif has_learned(run):
        raise _nameless(run)
    write_note(note, config)


def _nameless(run: Path) -> InputError:
    """Return what is told where nobody knows of what configuration that is which a run has learned."""
    told = f"holds what a run has learned, and no {CONFIG_FILE} that says of which configuration; use another --out"
    return InputError(told, file=run)


def _other_field(one: Mapping[str, Any], another: Mapping[str, Any]) -> str | None:
    """Return the first field that two configurations have otherwise, a dot for a section; None if there is none."""
    for name in dict.fromkeys([*one, *another]):
        left, right = one.get(name), another.get(name)
        if left == right or name in _NO_MATTER:
            continue
        if not isinstance(left, Mapping) or not isinstance(right, Mapping):
            return name
        if (within := _other_field(left, right)) is not None:
            return f"{name}.{within}"
    return None


def has_learned(run: Path) -> bool:
    """Tell whether a run holds labels, weights or a search; one that does not may still be given another configuration.

    What ended before it had learned anything may have ended because of its configuration.
    """
    # No deeper: a folder in it may be somebody's data, or another run.
    folders = [folder for folder in (run, run / LABELS) if folder.is_dir()]
    return any(path.suffix in (".npz", ".pt") for folder in folders for path in folder.iterdir())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file.

    Raises:
        InputError: the file cannot be written.
    """
    with atomic_output(path) as stream:
        stream.write(content)


@contextmanager
def draft_of(out: Path, content: bytes) -> Iterator[Path]:
    """Yield a file with this content; `out` is written with the same if the block does not raise.

    The file lies where the system keeps what is temporary, and cleans up after a process that was killed.

    Raises:
        InputError: a file cannot be written.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="fermata-")
    except OSError as error:
        raise unwritable(error, error.filename or out) from error
    with folder as name:
        draft = Path(name) / "draft.onnx"
        try:
            draft.write_bytes(content)
        except OSError as error:
            raise unwritable(error, draft) from error
        yield draft
    write_bytes(out, content)


def _intact(path: Path) -> io.BytesIO:
    """Return a file's content if it is a whole archive: torch's files are those, as numpy's are, with checksums."""
    content = io.BytesIO(path.read_bytes())
    try:
        with zipfile.ZipFile(content) as archive:
            wrong = archive.testzip()
    except _BROKEN as error:
        raise damaged(path) from error
    if wrong is not None:
        raise damaged(path)
    content.seek(0)
    return content


def damaged(path: Path) -> InputError:
    """Return what is told when a file is not what was written."""
    return InputError("is damaged; delete it and train again", file=path)
