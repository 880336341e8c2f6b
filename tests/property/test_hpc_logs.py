"""Whatever a log's lines say: which jobs are read, and how long, wide and well estimated they are."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fermata.policy.errors import InputError
from fermata.sim.hpc import JobLog
from fermata.sim.hpc.swf import Cleaning, read_log
from fermata.sim.importers.swf import read_swf

MACHINE = 8


class Line(NamedTuple):
    """What differs from line to line; -1 is unknown."""

    submit: int
    run: int
    allocated: int
    requested: int
    estimate: int
    status: int

    def text(self, number: int) -> str:
        submit, run, allocated, requested, estimate, status = self
        return f"{number} {submit} -1 {run} {allocated} -1 -1 {requested} {estimate} -1 {status} -1 -1 -1 -1 -1 -1 -1\n"

    @property
    def cores(self) -> int:
        return self.allocated if self.allocated > 0 else self.requested

    @property
    def believed(self) -> int:
        return self.estimate if self.estimate > 0 else self.run

    @property
    def ran(self) -> bool:
        """Whether it is a job that ran, by the archive's rules."""
        whole = self.status not in (2, 3, 4) and not (self.status == 5 and self.run <= 0)
        return whole and self.submit >= 0 and self.run >= 0 and 1 <= self.cores <= MACHINE


sizes = st.sampled_from([-1, 0, 1, 2, MACHINE, MACHINE + 1])
lines = st.lists(
    st.builds(
        Line,
        st.sampled_from([-1, 0, 5, 5, 60]),
        st.sampled_from([-1, 0, 1, 30]),
        sizes,
        sizes,
        st.sampled_from([-1, 0, 1, 20, 300]),
        st.sampled_from([-1, 0, 1, 1, 2, 3, 4, 5]),
    ),
    min_size=1,
    max_size=12,
)


def rows_of(log: JobLog) -> list[tuple[float, ...]]:
    columns = (log.ids, log.submit_s, log.runtime_s, log.estimate_s, log.cores)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@pytest.fixture(scope="module")
def log_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs") / "drawn.swf"


@settings(deadline=None)
@given(lines)
def test_a_log_is_read_by_the_archives_rules(log_file: Path, drawn: list[Line]) -> None:
    log_file.write_text(f"; MaxProcs: {MACHINE}\n" + "".join(line.text(number) for number, line in enumerate(drawn)))
    kept = [(number, line.submit, line.run, line.believed, line.cores) for number, line in enumerate(drawn) if line.ran]
    left_out: Counter[str] = Counter()
    if not kept:
        for read in (read_log, read_swf):
            with pytest.raises(InputError, match="no usable job"):
                read(log_file)
        return
    log = read_log(log_file, left_out=left_out)
    assert rows_of(log) == sorted(kept, key=lambda row: row[1])  # those of one instant stand as in the file
    assert left_out.total() == len(drawn) - len(kept)
    imported = read_swf(log_file)
    assert (imported.executors, imported.skipped) == (MACHINE, left_out)
    assert sorted(imported.trace.stage_slots.tolist()) == sorted(log.cores.tolist())
    assert sorted(imported.trace.stage_estimate_s.tolist()) == sorted(log.estimate_s.tolist())


@settings(deadline=None)
@given(lines)
def test_or_as_the_published_loader_does(log_file: Path, drawn: list[Line]) -> None:
    """Every line counts; what it cannot read either (submitted at no time, of no size, too wide) is not drawn."""
    usable = [line for line in drawn if line.submit >= 0 and 1 <= max(line.allocated, line.requested) <= MACHINE]
    expected = sorted(usable, key=lambda line: line.submit)
    assume(expected)
    log_file.write_text(f"; MaxProcs: {MACHINE}\n" + "".join(line.text(number) for number, line in enumerate(expected)))
    rows = []
    for number, line in enumerate(expected):
        run = 10 if line.run < 0 else line.run
        believed = line.estimate if line.estimate > 0 else run
        rows.append((number, line.submit, run, believed, max(line.allocated, line.requested)))
    assert rows_of(read_log(log_file, Cleaning.SCHEDINSPECTOR)) == rows
