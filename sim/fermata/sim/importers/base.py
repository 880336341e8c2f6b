"""What every importer takes and gives back, so that a new format is one new file and one registry line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fermata.policy.errors import InputError
from fermata.sim.files import Progress, shown_name
from fermata.sim.importers.executor_size import ExecutorSize
from fermata.sim.kube.pod_requests import Requests
from fermata.sim.trace import Trace
from fermata.sim.trace_builder import StageSpec, TraceBuilder


@dataclass(frozen=True)
class ImportOptions:
    """How to read a foreign trace.

    Args:
        limit: stop after this many jobs; None for all.
        keep_incomplete: keep jobs with missing data, filled in as the importer documents, rather than skip them.
        exact_estimates: give the scheduler the real durations instead of what users asked for.
        one_slot: let every task take one slot, whatever number of processors the source says.
        executor: what one executor is, where the source says what tasks requested; None: one task takes one.
        columns: names of the columns of a table, by what is in them (`fermata.sim.importers.tables`).
        where: of the rows of a table only those that have one of these values, by the name of the column.
        jobs: how many jobs to sample from a source that holds templates rather than a log.
        mean_gap_s: mean time between arrivals for sources without arrivals; 0 lets all jobs arrive at once.
        seed: of what is sampled.
        sequence: whose way of drawing TPC-H jobs to follow, `spark` (spark-sched-sim) or `decima` (decima-sim).
        progress: called now and then with the share of the source that has been read, 0 to 1.
    """

    limit: int | None = None
    keep_incomplete: bool = False
    exact_estimates: bool = False
    one_slot: bool = False
    executor: ExecutorSize | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    where: Mapping[str, Set[str]] = field(default_factory=dict)
    jobs: int = 200
    mean_gap_s: float = 25.0
    seed: int = 0
    sequence: str = "spark"
    progress: Progress | None = None


DEFAULTS = ImportOptions()


@dataclass(frozen=True)
class AsItRan:
    """How jobs did where they ran.

    Args:
        mean_jct_s: from when a job arrived until it had ended, seconds, the mean of all jobs.
        at_once: the most tasks that ran at one time, or where it is known what an executor is, the most in use.
        executors: whether it is executors that `at_once` counts.
        jobs: of how many jobs that is known; None: of all.
        devices: the most that a task requested of each kind of device, such as `nvidia.com/gpu`.
    """

    mean_jct_s: float
    at_once: int
    executors: bool = False
    jobs: int | None = None
    devices: Requests = field(default_factory=dict)


@dataclass(frozen=True)
class Imported:
    """A trace with what its source said besides."""

    trace: Trace
    executors: int | None = None  # how many processors the source's machine had, where it says so
    as_it_ran: AsItRan | None = None  # where the source says when each task ran
    skipped: dict[str, int] = field(default_factory=dict)  # reason -> jobs


def drawn_arrivals_s(options: ImportOptions) -> Iterator[float]:
    """Arrivals of a Poisson process for jobs that do not say when they came, the first at 0; without end, seconds."""
    random = np.random.default_rng(options.seed)
    first_s = total_s = random.exponential(options.mean_gap_s)
    while True:
        yield total_s - first_s
        total_s += random.exponential(options.mean_gap_s)


def runs_of(path: str | Path, suffix: str, options: ImportOptions) -> Iterator[str | Path]:
    """Yield the files of a folder that end in `suffix`, in order of name, or the one file that `path` is.

    Raises:
        InputError: the folder has no such file.
    """
    files: list[str | Path] = sorted(Path(path).glob(f"*{suffix}")) if Path(path).is_dir() else [path]
    if not files:
        raise InputError(f"no file in this folder ends in {suffix}; compressed ones are read one by one", file=path)
    for index, file in enumerate(files):
        if options.progress is not None:
            options.progress(index / len(files))
        yield file


class JobSink:
    """Adds jobs to a trace under the options' limit, counts what was skipped and why, and reports progress."""

    def __init__(self, path: str | Path, options: ImportOptions) -> None:
        self._name, self._options = shown_name(path), options
        self._builder = TraceBuilder()
        self._skipped: Counter[str] = Counter()

    @property
    def full(self) -> bool:
        """Whether the limit has been reached."""
        return self._options.limit is not None and len(self._builder) >= self._options.limit

    def skip(self, reason: str) -> None:
        """Count a job that is left out."""
        self._skipped[reason] += 1

    def add(
        self,
        job_id: str,
        arrival_s: float,
        stages: list[StageSpec],
        line: int | None = None,
        *,
        file: str | Path | None = None,
        weight: float = 1.0,
    ) -> None:
        """Add a job; an error names `line` of the source, or of its `file` where the source is a folder."""
        try:
            self._builder.add_job(job_id, arrival_s, stages, weight)
        except InputError as error:
            name = self._name if file is None else shown_name(file)
            raise InputError(error.message, file=name, line=line) from error

    def finish(self, executors: int | None = None, as_it_ran: AsItRan | None = None) -> Imported:
        """The trace of all jobs added.

        Raises:
            InputError: there are none.
        """
        if not len(self._builder):
            why = "; ".join(f"{count} skipped: {reason}" for reason, count in self._skipped.items())
            told = f"({why})" if why else "there is nothing in it; expected at least one job"
            raise InputError(f"no usable jobs{' ' if why else ': '}{told}", file=self._name)
        return Imported(self._builder.finish(), executors, as_it_ran, skipped=dict(self._skipped))
