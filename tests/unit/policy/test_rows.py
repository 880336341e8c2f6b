"""Rows as columns and records: the same in every kind of memory, whatever was looked at and changed before."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermata.policy.board import Job
from fermata.policy.rows import Rows, _Unread, as_rows, column, dtype_of, new_rows, read_rows, records

NAMES = dtype_of(Job).names or ()


def table(count: int) -> np.ndarray:
    """Return records in which every value tells its row and its field."""
    found = np.empty(count, dtype_of(Job))
    for at, name in enumerate(NAMES):
        found[name] = np.arange(count) * 100 + at
    return found


def memories(count: int) -> dict[str, Rows[Job]]:
    """Return the same rows in each kind of memory, that of the image without Numba included."""
    return {
        "array": table(count),
        "objects": [Job(*values) for values in table(count).tolist()],
        "unread": _Unread(Job, table(count)),
    }


@pytest.mark.parametrize("kind", ["array", "objects", "unread"])
@given(data=st.data())
def test_records_are_the_rows_that_were_asked_for_as_they_are_now(kind: str, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    rows, expected = memories(count)[kind], table(count)
    for index in data.draw(st.lists(st.integers(-count, count - 1), max_size=5)):
        _ = rows[index]  # looked at, and left as it was; as in a list, -1 is the last one
    some = st.lists(st.integers(0, count - 1), unique=True)
    for wanted in data.draw(st.lists(st.none() | some | st.permutations(range(count)), max_size=2)):
        read_rows(rows, wanted)
    for index in data.draw(st.lists(st.integers(-count, count - 1), max_size=5)):
        expected["running"][index] = -index
        if isinstance(rows, np.ndarray):
            rows["running"][index] = -index
        else:
            rows[index].running = -index
    at = np.array(data.draw(st.permutations(range(count)))[: data.draw(st.integers(0, count))], np.int64)
    assert records(rows, Job, at).tolist() == expected[at].tolist()
    assert records(rows, Job).tolist() == expected.tolist()
    end = data.draw(st.none() | st.integers(0, count))
    assert all(column(rows, name, end).tolist() == expected[name][:end].tolist() for name in NAMES)


def test_some_records_share_no_memory_with_their_rows() -> None:
    for rows in memories(4).values():
        taken = records(rows, Job, np.array([1, 2]))
        taken["width"] = 0.5
        assert column(rows, "width").tolist() == table(4)["width"].tolist()


def test_rows_begin_at_their_defaults_and_as_told() -> None:
    rows = new_rows(Job, 2, {"work_s": np.array([1.0, 2.0]), "running": 3})
    told = records(rows, Job)
    assert told["work_s"].tolist() == [1.0, 2.0]
    assert told["running"].tolist() == [3, 3]
    assert told["weight"].tolist() == [Job().weight] * 2
    assert records(as_rows(Job, table(2)), Job).tolist() == table(2).tolist()


def test_reading_all_keeps_what_was_changed() -> None:
    rows = _Unread(Job, table(4))
    rows[2].running = -7
    changed = rows[2]
    for _ in range(2):
        read_rows(rows, [3, 2])
        read_rows(rows)
    assert rows[2] is changed
    assert [rows[index].running for index in range(4)] == [*table(4)["running"][:2], -7, table(4)["running"][3]]
    assert dict.__len__(rows) == len(rows) == 4
