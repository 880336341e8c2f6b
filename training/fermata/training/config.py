"""What a training run is made of: read from YAML, checked, and written into the run and the model's metadata."""

from __future__ import annotations

import hashlib
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import yaml
from pydantic import BaseModel, Field, ValidationError, model_validator

from fermata.policy.errors import InputError
from fermata.policy.learned import EXPERTS
from fermata.policy.mistakes import first_mistake
from fermata.sim.processes import cores
from fermata.sim.scenarios.base import MAX_JOBS
from fermata.training.fields import (
    Count,
    Counts,
    Pools,
    Positive,
    Range,
    Rate,
    Section,
    Seed,
    Share,
    Shares,
    Whole,
    Width,
)

Model = TypeVar("Model", bound=BaseModel)
_MOST_SHOWN = 80  # characters of what was given


class OwnTrace(Section):
    """A job trace that a policy is to be good on; see `fermata.training.own`."""

    path: str
    sha256: str  # of the file, hex: a run goes on with the same jobs or not at all
    # Index into EXPERTS: the last that some job of its first half is of.
    kind: Annotated[int, Field(ge=0, lt=len(EXPERTS))]
    executors: Pools  # of the pool, from and to
    load: Range = (0.8, 1.2)  # of an episode, over the trace's own


class Workloads(Section):
    """Ranges that random scenarios are drawn from, or a trace of one's own."""

    executors: Pools = (1, 10)
    load: Range = (0.45, 0.9)
    size_ratio: Range = (1.5, 120.0)  # long over short, log-uniform
    long_share: Shares = (0.015, 0.5)  # log-uniform
    dag_share: Share = 0.25  # of the scenarios
    wide_share: Share = 0.65  # of the DAGs: their stages have several tasks; in the others one, as pods do
    pair_share: Share = 0.0  # of the scenarios: long jobs that are each followed by a short one
    cron_share: Share = 0.0  # of the scenarios: batches of short jobs on a schedule among long ones
    noise_share: Share = 0.0  # of the scenarios: estimates are wrong, in one of the ways of `--noise`
    own: OwnTrace | None = None  # instead of random scenarios, where its jobs are of the kind that is being taught


class Teacher(Section):
    """How decisions are sampled and labelled by rollouts."""

    futures: int = Field(default=4, ge=1)  # shared futures a decision
    horizon: Counts = (100, 400)  # arrivals a rollout: 4 L / gap / (1 - load), within these bounds
    sample: Share = 0.25  # share of the real choices that are labelled
    explore: Share = 0.08  # random actions in the base episode
    # Mean JCTs: where the network says that anything but the head costs less, decisions are labelled at that share ...
    doubt: float = 0.05
    elsewhere: Share = 1.0  # ... and where it is sure of the head, at so much of it
    max_label: Positive = 1.0  # labels are clipped to +- this, in mean JCTs
    library: int = Field(default=4000, ge=1000, le=MAX_JOBS)  # jobs that futures are cut from

    @model_validator(mode="after")
    def _room(self) -> Self:
        if 2 * self.horizon[1] > self.library:  # futures begin anywhere in the rest
            raise ValueError(f"expected a library of twice the horizon, got {self.library} and {self.horizon[1]}")
        return self


class Round(Section):
    """One round: so many decisions of one policy are labelled by rollouts that follow another.

    `tuned` is the hold-switch family tuned to the scenario, `network` the network of the rounds before. States that
    the network itself visits teach it the way back; rollouts that follow the network improve on it, and pass its
    mistakes on.
    """

    behaviour: Literal["tuned", "network"]  # whose decisions are labelled
    rollouts: Literal["tuned", "network"]  # what follows the tried action
    scenarios: Count
    states: Count  # a scenario


class Fit(Section):
    """How the network is fitted to the labels of all rounds."""

    hidden: tuple[Width, Width] = (64, 64)
    epochs: int = Field(default=30, ge=1)
    batch: int = Field(default=4096, ge=1)
    learning_rate: Rate = 4e-3
    weight_decay: float = Field(default=1e-4, ge=0)
    held_out: float = Field(default=0.1, ge=0, lt=1)  # of the scenarios, for early stopping
    patience: int = Field(default=12, ge=1)  # epochs without a better held-out loss
    # Mean JCTs, squared: a scenario's labels count by 1 over this and the mean square of their miss; None: all alike.
    floor: Positive | None = None
    tries: int = Field(default=1, ge=1)  # networks of the last round; the best on held-out episodes is kept ...
    kept: int = Field(default=1, ge=1)  # ... and in the model the mean of so many of the best
    cases: int = Field(default=80, ge=1)  # those episodes
    case_jobs: int = Field(default=1500, ge=100, le=MAX_JOBS)  # of each

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if self.kept > self.tries:
            raise ValueError(f"expected as many tries as are kept, got {self.tries} and {self.kept}")
        return self


class Search(Section):
    """How the rules for DAGs are searched for (`fermata.training.threshold`)."""

    scenarios: int = Field(default=600, ge=1)  # random ones of each kind
    jobs: int = Field(default=900, ge=100, le=MAX_JOBS)  # of an episode
    batch: int = Field(default=60, ge=1)  # episodes a generation
    population: int = Field(default=40, ge=4)  # sets of weights a generation
    # For DAGs of single tasks, and for stages of several; 0: the rule that a search would begin with.
    generations: tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]] = (0, 40)
    spread: Positive = 0.3  # of the score, by each weight, at first


class TrainConfig(Whole):
    """A whole run."""

    name: str
    seed: Seed = 1
    workloads: Workloads = Workloads()
    teacher: Teacher = Teacher()
    rounds: tuple[Round, ...] = Field(min_length=1)
    fit: Fit = Fit()
    search: Search | None = None  # without it the labels teach what to do with DAGs, too
    margin: float = Field(default=0.0, ge=0)  # mean JCTs that an action must save before the head is not started ...
    margin_in_use: float | None = Field(default=None, ge=0)  # ... and in the exported model, by default as many
    processes: int = Field(default_factory=cores, ge=1)  # does not change the result

    @property
    def taught(self) -> tuple[int, ...]:
        """Indices into EXPERTS of those that learn from labels; where rules are searched for, they decide DAGs."""
        return tuple(range(len(EXPERTS))) if self.search is None else (0,)

    def generations(self, which: int) -> int:
        """Return how long a rule, an index into EXPERTS, is searched for; one's own trace tells of one kind only."""
        own = self.workloads.own
        if self.search is None or (own is not None and own.kind != which):
            return 0
        return self.search.generations[which - 1]

    @property
    def exported_margin(self) -> float:
        """The margin of the exported model."""
        return self.margin if self.margin_in_use is None else self.margin_in_use

    @property
    def digest(self) -> str:
        """Sha256 over everything that changes the result."""
        return digest_of(self, self.workloads, {"processes"})


def digest_of(config: BaseModel, workloads: Workloads, leave_out: set[str]) -> str:
    """Return the sha256 over a configuration, hex, without fields that do not change what is learned.

    Where the trace lies is one of them; what is in it is not.
    """
    own = True if workloads.own is None else {"path": True}
    text = config.model_dump_json(exclude={**dict.fromkeys(leave_out, True), "workloads": {"own": own}})
    return hashlib.sha256(text.encode()).hexdigest()


def shipped_configs() -> dict[str, Path]:
    """Return the configurations that come with the package, by name."""
    folder = Path(str(resources.files("fermata.training") / "configs"))
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


class _Loader(yaml.SafeLoader):
    """Reads YAML in which no key stands twice; the last one would count, and nobody would know.

    What looks like a value and is none, such as the 30th of February, is told as what else is wrong.
    """

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        value = super().construct_scalar(node)
        value.encode()  # half a character, such as "\\ud800", could not be written into the run's folder
        return value

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, KeyError, AttributeError) as error:  # what PyYAML lets Python say of a scalar
            if not isinstance(node, yaml.ScalarNode):
                raise
            problem = f"{node.value[:_MOST_SHOWN]!r} is no value"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from error

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"{key.value!r} stands twice", problem_mark=key.start_mark)
            seen.add(key.value)
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


def read_raw(source: str) -> tuple[Any, Path]:
    """Return what is written in a shipped configuration, by name, or in a YAML file; and its path.

    Raises:
        InputError: no such file, or it is not YAML, or a key stands twice.
    """
    path = shipped_configs().get(source, Path(source))
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _Loader), path  # noqa: S506 - a safe one
    except OSError as error:
        known = ", ".join(shipped_configs())
        raise InputError(f"{error.strerror}; expected a YAML file or one of: {known}", file=source) from error
    except UnicodeDecodeError as error:
        raise InputError("expected UTF-8 text", file=path) from error
    except yaml.MarkedYAMLError as error:
        line = None if error.problem_mark is None else error.problem_mark.line + 1
        raise InputError(f"broken YAML: {error.problem or error.context}", file=path, line=line) from error
    except yaml.YAMLError as error:
        raise InputError(f"broken YAML: {error}", file=path) from error
    except RecursionError as error:
        raise InputError("nested too deeply", file=path) from error


def validated(kind: type[Model], raw: Any, path: Path) -> Model:
    """Return what is written in a file as a configuration.

    Raises:
        InputError: something in it is not as expected; names file and field.
    """
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        raise InputError(first_mistake(error), file=path) from error


def read_config(source: str) -> TrainConfig:
    """Read a configuration of the rollout teacher: a shipped one by name, or a YAML file.

    Raises:
        InputError: no such file, or something in it is not as expected; names file and field.
    """
    return validated(TrainConfig, *read_raw(source))
