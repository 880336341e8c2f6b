"""Options that the commands of `fermata hpc` share, and what they mean."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from pydantic import BaseModel, ValidationError

from fermata.cli.options import blaming
from fermata.cli.progress import progress_bar
from fermata.policy.errors import InputError

if TYPE_CHECKING:
    from fermata.sim.hpc.experiment import Sequences
    from fermata.sim.hpc.inspect import Inspector
    from fermata.sim.hpc.jobs import JobLog

M = TypeVar("M", bound=BaseModel)

Log = Annotated[str, typer.Option(help="A log in Standard Workload Format; .xz or .gz is read as such, - is stdin.")]
PolicyName = Annotated[
    str,
    typer.Option(
        help="ORDER[+BACKFILL][/START]: fcfs, lcfs, sjf, smallest, saf, srf, f1, p2q, wfp3, unicep or multifactor; "
        "easy, conservative or published; commit, strict or skip. Or learned: queue-prompt, FILE.onnx, "
        "window:FILE.onnx. See docs/hpc.md."
    ),
]
CleaningName = Annotated[str, typer.Option(help="How the log is cleaned: archive or schedinspector.")]
Estimates = Annotated[str, typer.Option(help="exact, user, factor:F, lognormal:SIGMA, round or accuracy.")]
Stretch = Annotated[float, typer.Option(help="Jobs take so many times as long, and arrive when they did: more load.")]
Kill = Annotated[bool, typer.Option("--kill", help="Jobs that outlive their estimate are ended there.")]
Part = Annotated[str, typer.Option(help="Part of the log, by time: all, train (first fifth) or test (the rest).")]
Count = Annotated[int, typer.Option("--sequences", min=1, max=1_000_000, help="Sequences to draw.")]
JobCount = Annotated[int, typer.Option(min=1, help="Jobs of a sequence.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything that is drawn.")]
Warm = Annotated[int, typer.Option(min=0, help="Jobs simulated before each sequence, so that it meets a busy machine.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def load(path: str, cleaning: str, estimates: str, seed: int, stretch: float = 1.0) -> JobLog:
    """Read a log, say what is left out of it, and give its jobs the wanted estimates and lengths.

    Raises:
        InputError: it cannot be read, or an option is wrong.
    """
    from fermata.policy.wording import counted
    from fermata.sim.hpc.estimates import with_estimates
    from fermata.sim.hpc.swf import Cleaning, read_log

    try:
        chosen = Cleaning(cleaning)
    except ValueError:
        raise InputError(f"--cleaning: expected {' or '.join(Cleaning)}, got {cleaning!r}") from None
    left_out: Counter[str] = Counter()
    with progress_bar(f"reading {path}") as progress:
        log = read_log(path, chosen, progress, left_out)
    for reason, count in left_out.items():
        print(f"{counted(count, 'job')} left out: {reason}", file=sys.stderr)
    with blaming("--stretch"):
        log = log.stretched(stretch)
    return with_estimates(log, estimates, seed)


def inspector(name: str, log: JobLog) -> Inspector:
    """Return the inspector that a name means: a model's file, or the one-line rule, with a limit of its own or not.

    Raises:
        InputError: the limit is no whole number above 0, or absurd.
        ModelError: the file is missing or no inspector.
    """
    from fermata.sim.hpc.inspect import MAX_REJECTIONS, MOST_REJECTIONS, PICKS, REJECT_IF_BLOCKED, rule_inspector
    from fermata.sim.hpc.models import load_model

    rule, colon, limit = name.partition(":")
    if rule == "reject-blocked":
        if colon and not (limit.isdecimal() and 0 < int(limit) <= MOST_REJECTIONS):
            raise InputError(f"--inspector {name!r}: expected a whole number of rejections, 1 to {MOST_REJECTIONS}")
        return rule_inspector(PICKS, REJECT_IF_BLOCKED, int(limit) if colon else MAX_REJECTIONS)
    return load_model(name).inspector(log)


def draw(log: JobLog, count: int, jobs: int, seed: int, part: str, warm: int, *, published: bool) -> Sequences:
    """Draw sequences, or take those of the published evaluation."""
    from fermata.sim.hpc.experiment import draw_sequences, published_sequences

    if published:
        if part != "all" or warm:
            raise InputError("--published-draws takes sequences of the whole log and an idle machine")
        return published_sequences(log, count, jobs, seed)
    return draw_sequences(log, count, jobs, seed, part=part, warm=warm)


def configured(kind: type[M], values: Mapping[str, Any]) -> M:
    """Return the options of a training run.

    Raises:
        InputError: one does not exist, or cannot have its value.
    """
    from fermata.policy.mistakes import first_mistake

    try:
        return kind.model_validate(values)
    except ValidationError as error:
        unknown = any(each["type"] == "extra_forbidden" for each in error.errors())
        known = f"; there are: {', '.join(kind.model_fields)}" if unknown else ""
        raise InputError(f"--set {first_mistake(error)}{known}") from error


def telling(progress: Callable[[float], object], steps: int) -> Callable[[Any], None]:
    """Return what tells, after each of so many steps of a training, which share of them is done."""

    def tell(row: Any) -> None:
        progress(row.number / steps)

    return tell
