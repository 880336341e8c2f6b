"""TPC-H queries on Spark as Decima recorded them: DAGs whose task durations depend on executors and on the wave.

The data is not part of Fermata; point at a folder with `2g/adj_mat_1.npy`, `2g/task_duration_1.npy`, ... for seven
input sizes and 22 queries. The duration files are pickles, which can run code when loaded: here they are read by an
unpickler that knows three names and makes inert containers of them, so that a file can at worst be refused.

Source: https://github.com/hongzimao/decima-sim (`spark_env/job_generator.py`, `task.py`), whose job sequences are drawn
the same way here; and https://github.com/ArchieGertsman/spark-sched-sim (`data_samplers/tpch.py`) for its successor's.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.policy.errors import InputError
from fermata.sim.importers.base import DEFAULTS, Imported, ImportOptions, JobSink
from fermata.sim.trace_builder import StageSpec

SIZES = ("2g", "5g", "10g", "20g", "50g", "80g", "100g")
QUERIES = 22
MS_PER_S = 1000.0
MAX_DECIMA_SEED = 2**32 - 1

Wave = Mapping[int, Sequence[int]]


@dataclass(frozen=True)
class TpchStage:
    """Recorded task durations of one stage in milliseconds, by the number of executors that the query ran on.

    Args:
        tasks: how many tasks the stage has.
        fresh: of the first task on an executor that comes from elsewhere.
        first_wave: of the first tasks on the others; where none was seen, those of the next smaller executor count.
        rest_wave: of all later tasks.
    """

    tasks: int
    fresh: Wave
    first_wave: Wave
    rest_wave: Wave

    @property
    def mean_rest_ms(self) -> float:
        """Mean duration of a later task over all executor counts; of a first or fresh one where there is none."""
        for wave in (self.rest_wave, self.first_wave, self.fresh):
            durations = [duration for each in wave.values() for duration in each]
            if durations:
                return float(np.mean(durations))
        raise InputError("a stage without any recorded duration")


@dataclass(frozen=True)
class TpchQuery:
    """One query on one input size; `parents[s]` are the stages that stage `s` waits for."""

    size: str
    number: int
    parents: tuple[tuple[int, ...], ...]
    stages: tuple[TpchStage, ...]

    @property
    def name(self) -> str:
        """The name that Decima's logs use."""
        return f"tpch-{self.size}-{self.number}"


class Arrival(NamedTuple):
    """A query that arrives."""

    arrival_ms: float
    size: str
    number: int


def load_query(folder: str | Path, size: str, number: int) -> TpchQuery:
    """Load one query of Decima's data.

    Args:
        folder: holds one folder for each input size.
        size: one of `SIZES`.
        number: of the query, 1 to 22.

    Raises:
        InputError: a file is missing, damaged or holds anything but durations.
    """
    adjacency_file = Path(folder) / size / f"adj_mat_{number}.npy"
    durations_file = Path(folder) / size / f"task_duration_{number}.npy"
    try:
        adjacency = np.load(adjacency_file, allow_pickle=False)
    except OSError as error:
        raise InputError(
            f"cannot read the adjacency matrix: {error.strerror or error}; expected Decima's TPC-H folder",
            file=adjacency_file,
        ) from error
    except (ValueError, EOFError) as error:
        raise InputError(f"cannot read the adjacency matrix: {error}", file=adjacency_file) from error
    recorded = _load_pickled_dict(durations_file)
    try:
        parents = _parents(adjacency)
        stages = tuple([_stage(recorded[index]) for index in range(len(parents))])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, StopIteration) as error:
        raise InputError(f"not Decima's task durations: {error!r}", file=durations_file) from error
    return TpchQuery(size, number, parents, stages)


def _parents(adjacency: NDArray[np.float64]) -> tuple[tuple[int, ...], ...]:
    if adjacency.ndim != 2 or adjacency.shape[0] != adjacency.shape[1]:
        raise ValueError(f"expected a square adjacency matrix, found shape {adjacency.shape}")
    return tuple(tuple(np.flatnonzero(column).tolist()) for column in adjacency.T)


def _stage(recorded: Mapping[str, Wave]) -> TpchStage:
    first, rest, fresh = recorded["first_wave"], recorded["rest_wave"], recorded["fresh_durations"]
    any_count = next(iter(first))
    tasks = len(first[any_count]) + len(rest[any_count])
    return TpchStage(tasks=tasks, fresh=fresh, first_wave=_without_fresh(first, fresh), rest_wave=rest)


def _without_fresh(first: Wave, fresh: Wave) -> Wave:
    """The first wave without its fresh tasks; an empty wave takes over that of the next smaller executor count."""
    cleaned: dict[int, Sequence[int]] = {}
    smaller: Sequence[int] = ()
    for executors in sorted(first):
        to_remove = Counter(fresh[executors])
        kept = []
        for duration in first[executors]:
            if to_remove[duration] > 0:
                to_remove[duration] -= 1
            else:
                kept.append(duration)
        smaller = kept or smaller
        cleaned[executors] = smaller
    return cleaned


class _Inert:
    """Stands for any numpy object in a pickle; keeps the state it is given and does nothing."""

    def __init__(self, *_: object) -> None:
        self.state: Any = None

    def __setstate__(self, state: object) -> None:
        self.state = state


class _DurationsUnpickler(pickle.Unpickler):
    """Reads numpy's pickled object arrays as inert containers; every other name is refused."""

    _ALLOWED = frozenset(
        (module, name)
        for package in ("numpy", "numpy.core.multiarray", "numpy._core.multiarray")
        for module, name in ((package, "_reconstruct"), (package, "ndarray"), (package, "dtype"))
    )

    def find_class(self, module: str, name: str) -> type[_Inert]:
        if (module, name) not in self._ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which durations do not need")
        return _Inert

    def persistent_load(self, pid: object) -> None:
        raise pickle.UnpicklingError("it refers to data outside the file")


def _load_pickled_dict(file: Path) -> dict[int, dict[str, Wave]]:
    """The one dictionary in a pickled 0-d object array, without running anything that the file says."""
    try:
        with file.open("rb") as stream:
            _skip_header(stream)
            # Python 2 wrote these files.
            loaded = _DurationsUnpickler(stream, encoding="latin1").load()
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError, IndexError, KeyError) as error:
        raise InputError(f"cannot read the task durations: {error}", file=file) from error
    except OSError as error:
        raise InputError(f"cannot read it: {error.strerror or error}", file=file) from error
    # The state of an array is version, shape, dtype, order, items.
    state = loaded.state if isinstance(loaded, _Inert) else None
    items = state[4] if isinstance(state, tuple) and len(state) == 5 else None
    if not isinstance(items, list) or len(items) != 1 or not isinstance(items[0], dict):
        raise InputError("expected an array that holds one dictionary of task durations", file=file)
    return items[0]


def _skip_header(stream: BinaryIO) -> None:
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        np.lib.format.read_array_header_1_0(stream)
    else:
        np.lib.format.read_array_header_2_0(stream)


def decima_sequence(seed: int, jobs: int, mean_gap_ms: float = 25_000.0) -> list[Arrival]:
    """The queries that decima-sim draws for a seed: one at the start, the others as a stream in whole milliseconds.

    Raises:
        InputError: its generator has no such seed.
    """
    if seed > MAX_DECIMA_SEED:
        raise InputError(f"seed: expected at most {MAX_DECIMA_SEED:,} for Decima's sequences, got {seed}")
    rng = np.random.RandomState(seed)
    # The one at the start draws its number first, the others their size.
    number = int(rng.randint(QUERIES)) + 1
    sequence = [Arrival(0.0, SIZES[rng.randint(len(SIZES))], number)]
    arrival_ms = 0
    while len(sequence) < jobs:
        arrival_ms += int(rng.exponential(mean_gap_ms))
        size = SIZES[rng.randint(len(SIZES))]
        sequence.append(Arrival(float(arrival_ms), size, int(rng.randint(QUERIES)) + 1))
    return sequence


def spark_sequence(seed: int, jobs: int, mean_gap_ms: float = 1 / 4e-5) -> list[Arrival]:
    """The queries that spark-sched-sim draws for a seed."""
    rng = np.random.default_rng(seed)
    sequence: list[Arrival] = []
    arrival_ms = 0.0
    while len(sequence) < jobs:
        number = int(rng.integers(QUERIES)) + 1
        sequence.append(Arrival(arrival_ms, SIZES[rng.integers(len(SIZES))], number))
        arrival_ms += float(rng.exponential(mean_gap_ms))
    return sequence


SEQUENCES: dict[str, Callable[[int, int, float], list[Arrival]]] = {"decima": decima_sequence, "spark": spark_sequence}


def read_tpch(path: str | Path, options: ImportOptions = DEFAULTS) -> Imported:
    """Sample a job trace from Decima's TPC-H data, every task at its stage's mean duration in the later waves.

    Args:
        path: the folder of the data.
        options: see `ImportOptions`; `jobs`, `mean_gap_s`, `seed` and `sequence` say what to sample.

    Raises:
        InputError: the data cannot be read, or there is no such sequence.
    """
    draw = SEQUENCES.get(options.sequence)
    if draw is None:
        raise InputError(f"no sequence {options.sequence!r}; there are: {', '.join(SEQUENCES)}")
    sink = JobSink(path, options)
    cached = lru_cache(maxsize=None)(lambda size, number: specs_of(load_query(path, size, number)))
    jobs = options.jobs if options.limit is None else min(options.jobs, options.limit)
    for index, arrival in enumerate(draw(options.seed, jobs, options.mean_gap_s * MS_PER_S)):
        job_id = f"{index}-tpch-{arrival.size}-{arrival.number}"
        sink.add(job_id, arrival.arrival_ms / MS_PER_S, cached(arrival.size, arrival.number))
    return sink.finish()


def specs_of(query: TpchQuery) -> list[StageSpec]:
    """Return the stages of a query, every task at its stage's mean duration in the later waves."""
    return [
        StageSpec(
            name=f"s{index}",
            durations_s=[stage.mean_rest_ms / MS_PER_S] * stage.tasks,
            depends_on=[f"s{parent}" for parent in parents],
        )
        for index, (stage, parents) in enumerate(zip(query.stages, query.parents, strict=True))
    ]
