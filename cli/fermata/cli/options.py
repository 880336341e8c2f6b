"""Options that several commands read the same way."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fermata.policy.errors import InputError

if TYPE_CHECKING:
    from fermata.training.config import OwnTrace

MOST_SEEDS = 1_000_000
MOST_JOBS = 10_000_000  # as of an episode (`fermata.sim.scenarios.base.MAX_JOBS`)
_MOST_SHOWN = 80  # characters

OtherEstimates = Annotated[
    str | None, typer.Option(help="Other estimates: class-flips=SHARE, lognormal=SIGMA, class-means or exact.")
]
OtherWeights = Annotated[
    str | None,
    typer.Option(help="Weights of jobs: long=W (the tenth with the most work) or any=W (a fifth of them, at random)."),
]
MaxHold = Annotated[float, typer.Option(help="Longest time for which one stage may be held, seconds.")]
MaxWait = Annotated[float, typer.Option(help="Time after which a ready stage is held no more, seconds.")]
Sticky = Annotated[bool, typer.Option(help="A started stage keeps its executors until its tasks run out.")]
EpisodeJobs = Annotated[
    int | None, typer.Option(min=1, help="Jobs of an episode; by default the scenario's own number.")
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="Change a parameter of every scenario, such as load=0.9.")
]
InsteadTrace = Annotated[str | None, typer.Option(help="A job trace of one's own instead, cut into blocks.")]
ItsExecutors = Annotated[int | None, typer.Option(help="Size of the pool for that trace.")]
Processes = Annotated[int | None, typer.Option("--jobs", min=1, help="Processes, by default one a core; same figures.")]


def location(text: str) -> str:
    """Read the name of a file or folder; an empty one, as of a variable that is not set, is no name.

    To Python it is the current folder, where a run would then be begun or data be looked for.

    Raises:
        BadParameter: it is empty.
    """
    if not text:
        raise typer.BadParameter("expected a name, got ''")
    return text


def path(text: str) -> Path:
    """Read the path of a file or folder.

    Raises:
        BadParameter: as `location`.
    """
    return Path(location(text))


TpchDir = Annotated[
    str | None, typer.Option(parser=location, help="Decima's TPC-H data, for tpch_a, tpch_c, tpch_e1 or tpch_e2.")
]


@contextmanager
def blaming(option: str) -> Iterator[None]:
    """Name an option in what is wrong within the block.

    Raises:
        InputError: something was.
    """
    try:
        yield
    except InputError as error:
        raise InputError(f"{option}: {error}") from error


def seed_range(text: str) -> list[int]:
    """Read `A-B` (both included) or one seed.

    Raises:
        InputError: it is neither, B is below A, or they are more than a million.
    """
    match = re.fullmatch(r"([0-9]{1,99})(?:-([0-9]{1,99}))?", text.strip())
    if match is None:
        raise InputError(f"seeds: expected A-B or one number, got {_shown(text)}")
    first = int(match[1])
    last = int(match[2] or first)
    if last < first:
        raise InputError(f"seeds: {last} is below {first}")
    if last - first >= MOST_SEEDS:
        raise InputError(f"seeds: expected at most {MOST_SEEDS:,}, got {last - first + 1:,} ({text.strip()})")
    return list(range(first, last + 1))


def span(text: str, option: str) -> tuple[int, int]:
    """Read `A-B` (both included) or one number, each 1 or more.

    Raises:
        InputError: it is neither, or B is below A; names the option.
    """
    match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", text.strip())
    if match is None:
        raise InputError(f"{option}: expected a number or A-B, got {text!r}")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise InputError(f"{option}: {last} is below {first}")
    for each in (first, last):
        check_executors(each)
    return first, last


def policy_names(text: str) -> list[str]:
    """Read policies separated by commas, whose parameters may be separated by commas too.

    Raises:
        InputError: a policy is named twice or not at all.

    >>> policy_names("sjf,sjf-hold:tau=60,split=10,default")
    ['sjf', 'sjf-hold:tau=60,split=10', 'default']
    """
    names: list[str] = []
    for part in (piece.strip() for piece in text.split(",")):
        parameter_of_last = "=" in part and ":" not in part and not part.endswith(".onnx")
        if parameter_of_last and names and ":" in names[-1]:
            names[-1] += f",{part}"
        else:
            names.append(part)
    if not all(names):  # an empty one is a variable of somebody's script that was not set
        raise InputError(f"--policies: expected names separated by commas, got {text!r}")
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"--policies: {name!r} is there twice")
    return names


def check_executors(count: int | None) -> None:
    """Refuse a pool of no size, or of one that no ExecutorPool may have.

    Raises:
        InputError: it is one of them.
    """
    from fermata.sim.trace import MAX_EXECUTORS

    if count is not None and not 1 <= count <= MAX_EXECUTORS:
        raise InputError(f"--executors: expected 1 to {MAX_EXECUTORS:,}, got {count}")


def check_least(least: int, options: Mapping[str, int | None]) -> None:
    """Refuse numbers that are too small.

    Args:
        least: that each may be.
        options: what was given for each; None where nothing was.

    Raises:
        InputError: one is below that.
    """
    for option, number in options.items():
        if number is not None and number < least:
            raise InputError(f"{option}: expected {least} or more, got {number}")


def check_limits(max_hold: float, max_wait: float) -> None:
    """Refuse limits on holding that are no times.

    Raises:
        InputError: one is negative, or no number.
    """
    for option, seconds in (("--max-hold", max_hold), ("--max-wait", max_wait)):
        if not seconds >= 0.0:
            raise InputError(f"{option}: expected 0 s or more, got {seconds:g}")


def check_output(path: Path) -> None:
    """Refuse what a page or a model cannot be written to; to be called before what it is of has run.

    Raises:
        InputError: it is standard output, a folder, or in a folder that is not there or cannot be written.
    """
    from fermata.sim.files import is_pipe_or_device

    if str(path) == "-":
        raise InputError("standard output has the figures; expected the name of a file", file=path)
    if path.is_dir():
        raise InputError("cannot write it: is a folder", file=path)
    if not path.parent.is_dir():
        raise InputError("cannot write it: no such folder", file=path)
    # A file is written beside its place and then moved there.
    if not is_pipe_or_device(path) and not os.access(path.parent, os.W_OK):
        raise InputError("cannot write it: its folder is read-only", file=path)


def check_stream(out: str) -> None:
    """Refuse what a trace, a log or a table cannot be written to; as `check_output`, but `-` is standard output.

    Raises:
        InputError: as `check_output`.
    """
    if out != "-":
        check_output(Path(out))


def check_folder(path: Path) -> None:
    """Refuse a folder that cannot be made or written; to be called before what goes there has been worked for.

    Raises:
        InputError: it is standard output, or it, or what it would be in, is no folder or read-only.
    """
    if str(path) == "-":
        raise InputError("expected the name of a folder", file=path)
    nearest = next(each for each in (path, *path.parents) if each.exists())
    if not nearest.is_dir():
        raise InputError(f"cannot make the folder: {nearest} is none", file=path)
    if not os.access(nearest, os.W_OK):
        raise InputError(f"cannot write into it: {nearest} is read-only", file=path)


def check_apart(files: Mapping[str, str | Path | None]) -> None:
    """Refuse a file that is named twice: what is read would be gone, or one of two outputs.

    Args:
        files: by option; None where it is not given, and what is `-` is no file.

    Raises:
        InputError: it is one file.
    """
    given = {option: str(file) for option, file in files.items() if file is not None and str(file) != "-"}
    for (option, file), (other, another) in combinations(given.items(), 2):
        if os.path.realpath(file) == os.path.realpath(another):
            raise InputError(f"{option} and {other} name one file, {another!r}; expected two")


def model_file(policy: str) -> str | None:
    """Return the file that a policy's name stands for, None if it is the name of one that ships."""
    file = policy.removeprefix("window:")
    return file if file.endswith(".onnx") else None


def check_model(path: Path) -> None:
    """Refuse what a model cannot be written to, or where no command would take it for one.

    Raises:
        InputError: as `check_output`, or a file has another name than one that ends in .onnx.
    """
    from fermata.sim.files import is_pipe_or_device

    check_output(path)
    if path.suffix != ".onnx" and not is_pipe_or_device(path):  # by which --policy knows it
        raise InputError(f"--out: expected a name that ends in .onnx, got {path.name!r}")


def trace_instead(trace: str | None, executors: int | None, scenarios: str | None) -> OwnTrace | None:
    """Return the trace that stands in the place of scenarios, if one does.

    Raises:
        InputError: an option is missing or goes without the others, or the trace cannot be used.
    """
    from fermata.training.own import own_trace

    if trace is None:
        if executors is not None:
            raise InputError("--executors is of a --trace; of a scenario --set executors=K changes the pool")
        return None
    if scenarios is not None:
        raise InputError("--trace stands in the place of --scenarios; expected one of them")
    if executors is None:
        raise InputError("--trace needs --executors, the size of the pool")
    check_executors(executors)
    return own_trace(trace, (executors, executors))


def parameter(text: str, option: str = "--set", expected: str = "key=number or key=[numbers]") -> tuple[str, Any]:
    """Read a parameter and its value from `key=value`, the value written as in JSON, or a number without its first 0.

    Args:
        text: what was given.
        option: by which it was given.
        expected: what values there are, for errors.

    Raises:
        InputError: it is not of that form.

    >>> parameter("load=0.9"), parameter("load=.9"), parameter("shares=[.9, 0.1]")
    (('load', 0.9), ('load', 0.9), ('shares', (0.9, 0.1)))
    """
    key, equals, value = text.partition("=")
    try:
        parsed = json.loads(re.sub(r"(?<![\w.])\.(?=\d)", "0.", value))  # as all other options take numbers
    except (ValueError, RecursionError):  # no JSON, or lists in lists without end
        parsed = None
        equals = ""
    if not equals or not key:
        raise InputError(f"{option} expects {expected}, not {_shown(text)}")
    return key, tuple(parsed) if isinstance(parsed, list) else parsed


def _shown(text: str) -> str:
    """Return what was given as an error shows it, which a slip may have made very long."""
    return repr(text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}...")
