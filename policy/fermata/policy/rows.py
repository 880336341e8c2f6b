"""Rows: the memory of the kernels, one entity a row, the fields of a row side by side.

Compiled, rows are a numpy array of records, read and written in place by name (`rows[i].pending -= 1`). In plain
Python the same lines run over a list of slotted objects, which is several times faster than numpy's scalars. What
people, networks and files read are columns: `column` gives one as an array.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fermata.policy._jit import COMPILED, kernel

R = TypeVar("R")
IndexArray = NDArray[np.int32]

# int32 holds every count and index; what may grow without bound (events, sequence numbers) is annotated `Long`.
Long = int
_KINDS = {"float": np.float64, "int": np.int32, "Long": np.int64}


class Rows(Protocol[R]):
    """What kernels may do with rows."""

    def __len__(self) -> int:
        """Return the number of rows."""
        ...

    def __getitem__(self, index: int) -> R:
        """Return a row, to read or to write its fields."""
        ...

    def __setitem__(self, index: int, row: R) -> None:
        """Copy a row into another; in plain Python the caller copies (`copy_row`)."""
        ...


class Indices(Protocol):
    """A list of indices of fixed capacity: an int32 array, or a list in plain Python."""

    def __len__(self) -> int:
        """Return the capacity."""
        ...

    def __getitem__(self, at: int) -> int:
        """Return an index."""
        ...

    def __setitem__(self, at: int, index: int) -> None:
        """Set an index."""
        ...


class Values(Protocol):
    """A list of numbers of fixed capacity: a float64 array, or a list in plain Python."""

    def __len__(self) -> int:
        """Return the capacity."""
        ...

    def __getitem__(self, at: int) -> float:
        """Return a number."""
        ...

    def __setitem__(self, at: int, value: float) -> None:
        """Set a number."""
        ...


class _Layout(NamedTuple):
    """What is the same for all rows of a kind."""

    dtype: np.dtype[np.void]
    defaults: dict[str, Any]  # of all fields
    values: Callable[[Any], tuple[Any, ...]]  # of an object's fields


_LAYOUTS: dict[type, _Layout] = {}


def _layout(kind: type) -> _Layout:
    """Return the layout of a row; building one takes longer than filling the rows of a decision."""
    known = _LAYOUTS.get(kind)
    if known is None:
        dtype = np.dtype([(each.name, _KINDS[str(each.type)]) for each in fields(kind)], align=True)
        defaults = {each.name: each.default for each in fields(kind)}
        known = _LAYOUTS[kind] = _Layout(dtype, defaults, attrgetter(*defaults))
    return known


def dtype_of(kind: type) -> np.dtype[np.void]:
    """Return the record type of a row: a slotted dataclass whose fields are `float`, `int` or `Long`."""
    return _layout(kind).dtype


def new_rows(kind: type[R], count: int, columns: Mapping[str, Any] | None = None) -> Rows[R]:
    """Return `count` rows of their defaults, with some columns set to an array [count] or to one value."""
    return as_rows(kind, _array(kind, count, columns or {}))


def _array(kind: type[R], count: int, columns: Mapping[str, Any]) -> NDArray[Any]:
    """Return records [count] of a row's defaults, with some columns set."""
    dtype, defaults, _ = _layout(kind)
    array = np.empty(count, dtype)
    for name, default in defaults.items():
        array[name] = columns.get(name, default)
    return array


def _bytes(array: NDArray[Any]) -> NDArray[Any]:
    """Return records as plain bytes: numpy copies records field by field, which takes ten times as long."""
    return array.view(f"V{array.dtype.itemsize}")


def as_rows(kind: type[R], array: NDArray[Any]) -> Rows[R]:
    """Return an array of records as rows: itself, or in plain Python a list of objects."""
    if COMPILED:
        return array
    return [kind(*values) for values in array.tolist()]


class _Unread(dict[int, R]):
    """Rows that become objects when they are first looked at; plain Python only.

    A decision looks at what is ready, which is a small part of a large state.
    """

    __slots__ = ("_array", "_kind")

    def __init__(self, kind: type[R], array: NDArray[Any]) -> None:
        super().__init__()
        self._kind, self._array = kind, array

    def __missing__(self, index: int) -> R:
        if index < 0:  # as in a list
            return self[index + len(self._array)]
        row = self[index] = self._kind(*self._array[index].item())
        return row

    def __len__(self) -> int:
        return len(self._array)

    def read(self, at: Sequence[int] | None) -> None:
        """Let rows that are none yet become objects, see `read_rows`."""
        source = self._array
        unread: Sequence[int] = range(len(source)) if at is None else at
        if super().__len__():  # the fields of those that are there may have changed
            at = unread = [index for index in unread if index not in self]
        if at is not None:
            source = _bytes(source).take(np.array(at, np.int64)).view(source.dtype)
        # By columns: numpy makes the tuples of records one field at a time.
        made = map(self._kind, *(source[name].tolist() for name in _layout(self._kind).defaults))
        self.update(zip(unread, made, strict=True))

    def column(self, name: str, end: int | None) -> NDArray[Any]:
        values: NDArray[Any] = self._array[name][:end].copy()
        for index, row in self.items():
            if index < len(values):
                values[index] = getattr(row, name)
        return values

    def records(self, at: NDArray[np.integer[Any]] | None) -> NDArray[Any]:
        kind = self._array.dtype
        found = _bytes(self._array) if at is None else _bytes(self._array).take(at)
        if not super().__len__():
            return found.view(kind)
        # What became objects may have changed since.
        place = np.full(len(self._array), -1)
        place[slice(None) if at is None else at] = np.arange(len(found))
        to = place[list(self)]
        values = _layout(self._kind).values
        rows = [values(row) for row, wanted in zip(self.values(), (to >= 0).tolist(), strict=True) if wanted]
        changed: NDArray[Any] = found.copy().view(kind)
        changed[to[to >= 0]] = np.array(rows, kind)
        return changed


def unread_rows(kind: type[R], count: int, columns: Mapping[str, Any]) -> Rows[R]:
    """Return the same as `new_rows`, for rows of which few will be looked at."""
    if COMPILED:
        return new_rows(kind, count, columns)
    return _Unread(kind, _array(kind, count, columns))


def read_rows(rows: Rows[Any], at: Sequence[int] | None = None) -> None:
    """Make ready rows that are about to be looked at: of many at once, it takes a fifth of the time.

    Args:
        rows: left as they are where they are no `unread_rows`.
        at: distinct indices; by default of all rows.
    """
    if isinstance(rows, _Unread):
        rows.read(at)


def new_indices(values: NDArray[Any]) -> Indices:
    """Return indices with these values; they are copied."""
    if COMPILED:
        return values.astype(np.int32)
    return values.tolist()  # type: ignore[no-any-return]


def new_values(values: NDArray[Any]) -> Values:
    """Return a list of these numbers; they are copied."""
    if COMPILED:
        return values.astype(np.float64)
    return values.tolist()  # type: ignore[no-any-return]


def column(rows: Rows[Any], name: str, end: int | None = None) -> NDArray[Any]:
    """Return one field of the first `end` rows as an array: a view, in plain Python a copy."""
    if isinstance(rows, np.ndarray):
        field: NDArray[Any] = rows[name][:end]
        return field
    if isinstance(rows, _Unread):
        return rows.column(name, end)
    kind = np.float64
    if len(rows):
        kind = dtype_of(type(rows[0]))[name].type
    return np.array([getattr(row, name) for row in rows[:end]], kind)  # type: ignore[index]


def first_rows(rows: Rows[R], end: int) -> Rows[R]:
    """Return the first `end` rows; what is written into them is written into all."""
    all_of_them: Any = rows
    first: Rows[R] = all_of_them[:end]
    return first


def records(rows: Rows[R], kind: type[R], at: NDArray[np.integer[Any]] | None = None) -> NDArray[Any]:
    """Return the rows at some distinct indices, or all, as an array of records to read: a view only of all rows.

    >>> from fermata.policy.board import Executor
    >>> rows = new_rows(Executor, 3, {"free_at_s": 5.0, "stage": np.array([1, 2, 3])})
    >>> records(rows, Executor, np.array([2, 0])).tolist()
    [(5.0, 3, -1), (5.0, 1, -1)]
    """
    if isinstance(rows, np.ndarray):
        found: NDArray[Any] = rows if at is None else _bytes(rows).take(at).view(rows.dtype)
        return found
    if isinstance(rows, _Unread):
        return rows.records(at)
    listed_rows = rows if at is None else [rows[index] for index in at.tolist()]
    dtype, _, values = _layout(kind)
    return np.array([values(row) for row in listed_rows], dtype)  # type: ignore[attr-defined]


def peek(rows: Rows[R], index: int = 0) -> R:
    """Return a row to interpreted code, which cannot name the fields of a compiled row otherwise; writes go through."""
    if isinstance(rows, np.ndarray):
        return rows[index : index + 1].view(np.recarray)[0]  # type: ignore[no-any-return]
    return rows[index]


def listed(indices: Indices, end: int) -> IndexArray:
    """Return the first `end` indices as an array: a view, in plain Python a copy."""
    if isinstance(indices, np.ndarray):
        return indices[:end]
    return np.array(indices[:end], np.int32)  # type: ignore[index]


def numbers(values: Values, begin: int, end: int) -> NDArray[np.float64]:
    """Return the numbers from `begin` to before `end` as an array: a view, in plain Python a copy."""
    if isinstance(values, np.ndarray):
        return values[begin:end]
    return np.array(values[begin:end], np.float64)  # type: ignore[index]


if COMPILED:

    @kernel
    def copy_row(to: Rows[R], at: int, rows: Rows[R], index: int) -> None:
        """Copy one row."""
        to[at] = rows[index]

else:

    def copy_row(to: Rows[R], at: int, rows: Rows[R], index: int) -> None:
        """Copy one row."""
        to[at] = copy.copy(rows[index])
