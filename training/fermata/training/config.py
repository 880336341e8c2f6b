"""What a training run is made of: read from YAML, checked, and written into the run and the model's metadata."""

from __future__ import annotations

import hashlib
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, Self, TypeVar

import yaml
from pydantic import BaseModel, Field, ValidationError, model_validator

from fermata.policy.errors import InputError
from fermata.policy.learned import EXPERTS
from fermata.policy.mistakes import first_mistake
from fermata.sim.processes import cores
from fermata.sim.scenarios.base import MAX_JOBS
from fermata.training.fields import (
    PROCESSES,
    SEED,
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
    """A job trace that a policy is to be good on, as `--trace` and `--executors` write it into a run."""

    path: str = Field(description="The trace.")
    sha256: str = Field(description="Of the file, hex: a run goes on with the same jobs or not at all.")
    kind: int = Field(
        ge=0,
        lt=len(EXPERTS),
        description="What is in sight most often when the jobs of its first half come, without a task of several "
        "executors. 0: single tasks alone; 1: DAGs of single tasks among them; 2: stages of several tasks.",
    )
    executors: Pools = Field(description="Executors of the pool, from and to.")
    load: Range = Field((0.8, 1.2), description="Load of an episode over the trace's own, from and to; uniform.")


class Workloads(Section):
    """Ranges that random scenarios are drawn from, or a trace of one's own."""

    executors: Pools = Field((1, 10), description="Executors of the pool, from and to.")
    executors_spread: Literal["uniform", "log-uniform"] = Field(
        "uniform", description="How executors of random scenarios are drawn; log-uniform: each doubling as often."
    )
    load: Range = Field((0.45, 0.9), description="Load, from and to; uniform.")
    size_ratio: Range = Field(
        (1.5, 120.0), description="Length of a long job over that of a short one, from and to; log-uniform."
    )
    long_share: Shares = Field((0.015, 0.5), description="Share of the jobs that are long, from and to; log-uniform.")
    dag_share: Share = Field(0.25, description="Share of the scenarios whose jobs are DAGs.")
    wide_share: Share = Field(
        0.65, description="Share of those whose stages may have several tasks; in the others each has one, as pods do."
    )
    pair_share: Share = Field(
        0.0, description="Share of the other scenarios in which each long job is followed by a short one."
    )
    cron_share: Share = Field(
        0.0, description="Share of what is then left with batches of short jobs on a schedule among long ones."
    )
    any_share: Share = Field(
        0.0,
        description="Share of what is then left with sizes of any kind: of two to five classes, lognormal, Pareto or "
        "hyperexponential; half of these arrive in bursts or at rates that change.",
    )
    noise_share: Share = Field(
        0.0, description="Share of the scenarios in which estimates are wrong, in one of the ways of `--noise`."
    )
    own: OwnTrace | None = Field(
        None, description="A trace instead, where its jobs are of the kind that is taught; `--trace` sets it."
    )

    @property
    def most_executors(self) -> int:
        """The most executors that anything is taught on."""
        return max(self.executors[1], 0 if self.own is None else self.own.executors[1])


class Teacher(Section):
    """How decisions are sampled and labelled by rollouts."""

    futures: int = Field(4, ge=1, description="Shared futures in which each action of a decision is tried.")
    horizon: Counts = Field(
        (100, 400),
        description="Arrivals of a rollout, at least and at most; between, four long jobs' time over the mean gap and "
        "over 1 less the load.",
    )
    sample: Share = Field(0.25, description="The largest share of the real choices that are labelled.")
    explore: Share = Field(0.08, description="Share of the decisions of the base episode that are random.")
    doubt: float = Field(
        0.05,
        description="Mean JCTs: decisions are labelled at the full share where the network says that leaving the head "
        "costs less than this; below 0, where it would save as much.",
    )
    elsewhere: Share = Field(1.0, description="So much of that share is labelled where it is surer of the head.")
    max_label: Positive = Field(1.0, description="Mean JCTs that a label is clipped to, either way.")
    library: int = Field(
        4000, ge=1000, le=MAX_JOBS, description="Jobs that futures are cut from, at least twice the longest horizon."
    )

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

    behaviour: Literal["tuned", "network"] = Field(
        description="Whose decisions are labelled: those of the best rule for the scenario, or of the rounds' network."
    )
    rollouts: Literal["tuned", "network"] = Field(description="Which of the two decides after the tried action.")
    scenarios: Count = Field(description="Random scenarios.")
    states: Count = Field(description="Labelled decisions of each.")


class Fit(Section):
    """How the network is fitted to the labels of all rounds."""

    hidden: tuple[Width, Width] = Field((64, 64), description="Units of the two hidden layers.")
    epochs: int = Field(30, ge=1, description="Passes over the labels, at most.")
    batch: int = Field(4096, ge=1, description="Decisions of a step.")
    learning_rate: Rate = Field(4e-3, description="AdamW's at first; it falls to 0 along a cosine.")
    weight_decay: float = Field(1e-4, ge=0, description="AdamW's.")
    held_out: float = Field(0.1, ge=0, lt=1, description="Share of the scenarios kept apart for early stopping.")
    patience: int = Field(12, ge=1, description="Epochs without a better held-out loss that end a fit.")
    floor: Positive | None = Field(
        None,
        description="Mean JCTs, squared: a scenario's labels count by 1 over this and the mean square of their miss; "
        "if absent all count alike.",
    )
    tries: int = Field(1, ge=1, description="Networks that the last round fits.")
    kept: int = Field(1, ge=1, description="The model is the mean of so many of them, the best on held-out episodes.")
    cases: int = Field(80, ge=1, description="Those episodes.")
    case_jobs: int = Field(1500, ge=100, le=MAX_JOBS, description="Jobs of each.")

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if self.kept > self.tries:
            raise ValueError(f"expected as many tries as are kept, got {self.tries} and {self.kept}")
        return self


class Search(Section):
    """How the rules for DAGs are searched for, by a cross-entropy method on whole episodes."""

    scenarios: int = Field(600, ge=1, description="Random scenarios for each rule.")
    jobs: int = Field(900, ge=100, le=MAX_JOBS, description="Jobs of an episode.")
    batch: int = Field(60, ge=1, description="Episodes of a generation.")
    population: int = Field(40, ge=4, description="Sets of weights of a generation.")
    generations: tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]] = Field(
        (0, 40),
        description="For DAGs of single tasks, and for stages of several; 0: the rule that a search would begin with.",
    )
    spread: Positive = Field(0.3, description="How far each weight may move the rule's score at first.")
    caution: float = Field(
        0.0,
        ge=0,
        description="Mean JCTs more that a wait must save in the exported model by a rule that was searched for: the "
        "best of many looks better than it is.",
    )


class TrainConfig(Whole):
    """A run of the rollout teacher; its file has no `method`."""

    name: str = Field(description="What the run and its model are called.")
    seed: Seed = Field(1, description=SEED)
    workloads: Workloads = Workloads()
    teacher: Teacher = Teacher()
    rounds: tuple[Round, ...] = Field(min_length=1)
    fit: Fit = Fit()
    search: Search | None = Field(
        None, description="How rules for DAGs are searched for; if absent the labels teach what to do with DAGs, too."
    )
    margin: float = Field(0.0, ge=0, description="Mean JCTs that an action must save before the head is not started.")
    margin_in_use: float | None = Field(
        None, ge=0, description="The same in the exported model; if absent that is the `margin`."
    )
    processes: int = Field(default_factory=cores, ge=1, description=PROCESSES)

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

    def margin_of_rule(self, which: int) -> float:
        """Return the margin under which a rule, an index into EXPERTS, decides in the exported model."""
        if self.search is None or self.generations(which) == 0:
            return self.margin
        return self.margin + self.search.caution

    @property
    def digest(self) -> str:
        """Sha256 over everything that changes the result."""
        return digest_of(self, self.workloads, {"processes"})


class _MayHaveOwn(Protocol):
    """What has a trace of one's own, or none."""

    @property
    def own(self) -> OwnTrace | None:
        """Return it."""


def digest_of(config: BaseModel, workloads: _MayHaveOwn, leave_out: set[str]) -> str:
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
        raise InputError(f"{error.strerror}; expected a YAML file or one of: {known}", file=path) from error
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
