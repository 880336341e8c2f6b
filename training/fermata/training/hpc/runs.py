"""What a training of rigid jobs keeps beside its model, so that the same command goes on where it was.

The folder holds what is trained, by which another run is told from this one, and its state after the latest step. Both
stay when the model is written: the same command then finds that nothing is left to do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from fermata.sim.files import is_pipe_or_device
from fermata.sim.hpc.jobs import JobLog
from fermata.sim.hpc.policies import WINDOW
from fermata.training.fields import Section, Whole
from fermata.training.files import (
    CONFIG_FILE,
    claim,
    has_learned,
    locked,
    put_moments,
    put_weights,
    read_weights,
    unfitting,
    write_weights,
)

if TYPE_CHECKING:
    import torch
    from _typeshed import DataclassInstance

S = TypeVar("S", bound="DataclassInstance")

STATE_FILE = "state.pt"


class Trained(Whole):
    """What the model of a run follows from."""

    method: str
    part: str
    log: str  # digest of the jobs, as the scheduler will see them
    start: str  # digest of the file that it goes on from, if it does
    options: dict[str, Any]

    @classmethod
    def of(cls, method: str, log: JobLog, part: str, config: Section) -> Trained:
        """Return what says which run this is."""
        options = config.model_dump(mode="json")
        begun = _sha256(options.get("start", ""))
        if measure := _sha256(options.get("yardstick", "").removeprefix(f"{WINDOW}:")):
            options["yardstick_sha256"] = measure
        return cls(method=method, part=part, log=_digest_of(log), start=begun, options=options)

    @property
    def digest(self) -> str:
        """Sha256 over all of it."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


def _sha256(file: str) -> str:
    """Return the digest of a file, hex; nothing of what is none."""
    return hashlib.sha256(Path(file).read_bytes()).hexdigest() if Path(file).is_file() else ""


def _digest_of(log: JobLog) -> str:
    digest = hashlib.sha256()
    for each in fields(log):
        value = getattr(log, each.name)
        digest.update(value.tobytes() if isinstance(value, np.ndarray) else f"{value}\n".encode())
    return digest.hexdigest()


class Kept:
    """The state of a run after its latest step.

    Args:
        path: its file, which need not be there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.was_done = False  # when this process went on with it

    def read(self, kind: type[S]) -> S | None:
        """Return the state, a dataclass, or nothing if no step was done yet.

        Raises:
            InputError: the file is damaged, or holds something else.
        """
        if not self.path.exists():
            return None
        try:
            return TypeAdapter(kind).validate_python(read_weights(self.path))
        except ValidationError as error:
            raise unfitting(self.path) from error

    def write(self, state: DataclassInstance) -> None:
        """Put a state in the place of the one before.

        Raises:
            InputError: the file cannot be written.
        """
        write_weights(self.path, asdict(state))


class Training(Protocol[S]):
    """A training in steps; what a step does follows from the state before it."""

    rows: list[Any]  # what is told of the steps so far

    @property
    def steps_done(self) -> int:
        """Return how many there were."""

    def begin(self) -> None:
        """Do what comes before the first step."""

    def resume(self, state: S, path: Path) -> None:
        """Take what `state` returned, instead of beginning.

        Raises:
            InputError: the state, which this file held, is of another training.
        """

    def step(self) -> None:
        """Do a step."""

    def state(self) -> S:
        """Return what later steps follow from, a dataclass."""


def to_the_end(
    training: Training[S], steps: int, kind: type[S], kept: Kept | None, tell: Callable[[Any], None] | None
) -> None:
    """Begin a training, or go on with it, and do so many steps in all.

    Args:
        training: what is done.
        steps: in all.
        kind: of its states.
        kept: what keeps them; if none it begins anew.
        tell: told every row, and at once those of an earlier call.

    Raises:
        InputError: what is kept is damaged, or what the training raises.
    """
    state = None if kept is None else kept.read(kind)
    if kept is None or state is None:
        training.begin()
    else:
        training.resume(state, kept.path)
        kept.was_done = training.steps_done >= steps
    told = _tell(training, 0, tell)
    while training.steps_done < steps:
        training.step()
        if kept is not None:
            kept.write(training.state())
        told = _tell(training, told, tell)


def _tell(training: Training[S], told: int, tell: Callable[[Any], None] | None) -> int:
    """Tell the rows after the first so many; returns how many are told now."""
    if tell is not None:
        for row in training.rows[told:]:
            tell(row)
    return len(training.rows)


class Networks(NamedTuple):
    """What policy gradients change."""

    policy: torch.nn.Module
    value: torch.nn.Module
    policy_steps: torch.optim.Adam
    value_steps: torch.optim.Adam

    def state(self) -> dict[str, Any]:
        """Return the weights and the moments of the steps."""
        return {name: each.state_dict() for name, each in self._asdict().items()}

    def resume(self, state: dict[str, Any], path: Path) -> None:
        """Take what `state` returned, and a file held.

        Raises:
            InputError: it is that of other networks.
        """
        if state.keys() != set(self._fields):
            raise unfitting(path)
        put_weights(self.policy, state["policy"], path)
        put_weights(self.value, state["value"], path)
        put_moments(self.policy_steps, state["policy_steps"], path)
        put_moments(self.value_steps, state["value_steps"], path)


@contextmanager
def kept_beside(out: Path, trained: Trained) -> Iterator[Kept | None]:
    """Yield what keeps the state of a run, in a folder beside its model; of a pipe or a device there is none.

    What is wrong with a run is told before it has learned anything, and then it leaves no folder behind.

    Raises:
        InputError: the folder holds a run of another configuration, or another process is at work there.
    """
    if is_pipe_or_device(out):
        yield None
        return
    run = out.with_name(f"{out.name}.run")
    with locked(run):
        claim(run, trained, _ours)
        try:
            yield Kept(run / STATE_FILE)
        finally:
            if not has_learned(run):
                (run / CONFIG_FILE).unlink()
                (run / ".lock").unlink()
                if not any(run.iterdir()):  # somebody else's folder may have the same name
                    run.rmdir()


def _ours(noted: bytes) -> bool:
    """Tell whether a noted configuration is of this kind."""
    content = from_json(noted)
    return isinstance(content, dict) and content.keys() == set(Trained.model_fields)
