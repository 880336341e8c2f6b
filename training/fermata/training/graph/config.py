"""What a training run of a graph policy is made of: network, action space, method, workloads."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from fermata.policy.errors import InputError
from fermata.policy.graph_actions import Space
from fermata.policy.graph_features import CRITICAL_PATH_FEATURES, DECIMA_FEATURES, OPTION_FEATURES, WIDTH_FEATURES
from fermata.sim.processes import cores
from fermata.sim.scenarios.base import MAX_JOBS
from fermata.training.config import TrainConfig, Workloads, digest_of, read_raw, validated
from fermata.training.fields import PROCESSES, SEED, Count, Positive, Rate, Section, Seed, Share, Whole, Width
from fermata.training.graph.objectives import Objective
from fermata.training.graph.scenarios import named
from fermata.training.slots.config import ScoresConfig
from fermata.training.spark.config import AllocationConfig

_MOST_SHOWN = 80  # characters of a method
_MOST_SCORE = 1e6  # far from what is impossible (`graph_actions.IMPOSSIBLE`)


class Inputs(Section):
    """Which features the network reads; a feature that is left out is 0 for it.

    The papers' "features" are the critical path and the average width, on top of Decima's own five of each stage.
    """

    base: Literal["decima", "full"] = Field(
        "full", description="All features, or Decima's own: five of a stage, and the limit of an option."
    )
    critical_path: bool = Field(True, description="Whether longest paths are read.")
    width: bool = Field(True, description="Whether average widths are read.")

    def reads(self, level: str, feature: str) -> bool:
        """Tell whether a feature of a level ("stage", "job", "state" or "option") is read."""
        if feature in CRITICAL_PATH_FEATURES:
            wanted = self.critical_path
        elif feature in WIDTH_FEATURES:
            wanted = self.width
        elif self.base == "full":
            return True
        else:  # Decima: five of the stage, and the limit itself
            return feature in (DECIMA_FEATURES if level == "stage" else OPTION_FEATURES[2:3])
        return wanted and (self.base == "full" or level == "stage")


class ActionSpace(Section):
    """What may be chosen; docs/training.md says what each kind is."""

    kind: Literal["wait", "paper", "none"] = Field(
        "wait", description="A wait until the next event, a hold of each stage before it starts, or no idling."
    )
    steps: int = Field(4, ge=1, le=1000, description="`paper`: the delays are 1 to so many parts of a task's estimate.")
    wake_up: bool = Field(
        False,
        description="`wait`: a wait is reconsidered after a fifth of the time to the next completion. A long hold is "
        "then many waits in a row, which exploration rarely finds.",
    )

    @property
    def delays(self) -> int:
        """How many delays a stage has to choose between, none included."""
        return self.space.delays

    @property
    def space(self) -> Space:
        """The same as policies know it."""
        return Space(self.kind, self.steps, self.wake_up)


class NetworkConfig(Section):
    """The network, and where it begins."""

    inputs: Inputs = Inputs()
    space: ActionSpace = ActionSpace()
    width: Width = Field(16, description="Numbers in an embedding.")
    hidden: Width = Field(32, description="Units of a hidden layer.")
    rounds: int = Field(4, ge=0, le=1000, description="Rounds of messages: DAGs of this depth are seen whole.")
    aggregate: Literal["sum", "mean"] = Field("mean", description="What is made of the embeddings of several stages.")
    prior: float = Field(
        2.0,
        ge=0,
        le=_MOST_SCORE,
        description="Stages of jobs with less work left begin ahead by so much per log-ratio.",
    )
    wait_prior: float = Field(
        5.0,
        ge=0,
        le=_MOST_SCORE,
        description="A wait begins behind by so much where no arrival is under half the head.",
    )
    first_wait: float = Field(
        -1.0,
        ge=-_MOST_SCORE,
        le=_MOST_SCORE,
        description="Score of a wait or a hold at the start, against a single stage at 0.",
    )
    cap_prior: float = Field(
        4.0,
        ge=0,
        le=_MOST_SCORE,
        description="The whole of what can start begins ahead of a small part by so much.",
    )


class Rollouts(Section):
    """How experience is gathered.

    An iteration draws `sequences` arrival sequences, and each is run `repeats` times: what its rollouts differ in is
    owed to their actions alone, so their mean is a baseline that depends on the input. Lengths are drawn from an
    exponential distribution, so nothing tells an agent that the end is near; their mean grows, so that the first
    agents, which let queues grow, do not spend long in queues that no good agent sees.

    Source: Mao et al. 2019, section 5.3.
    """

    sequences: int = Field(2, ge=1, description="Arrival sequences of an iteration.")
    repeats: int = Field(8, ge=2, description="Rollouts of each.")
    together: int = Field(2, ge=1, description="Sequences that one process plays at the same time.")
    jobs: tuple[Count, Count] = Field((60, 300), description="Mean length in jobs, at the first and last iteration.")
    most_jobs: Count = Field(1000, description="Lengths above are cut.")
    warm_jobs: int = Field(
        40, ge=0, le=MAX_JOBS // 2, description="Jobs under the base policy before the agent takes over."
    )
    load_curriculum: Share = Field(
        0.5, description="Over this share of the iterations the range of loads opens from its lower end."
    )


class Update(Section):
    """How experience changes the network."""

    learning_rate: tuple[Rate, Rate] = Field(
        (1e-3, 1e-4), description="Adam's, at the first and last iteration, linear between."
    )
    entropy: tuple[Share, Share] = Field(
        (0.005, 0.0), description="Weight of the entropy, at the first and last iteration, linear between."
    )
    horizon_jobs: Positive = Field(
        60.0, description="Costs fade with this time constant, in mean gaps between arrivals."
    )
    gradient_norm: Positive = Field(1.0, description="Larger gradients are scaled down to it.")
    batch: int = Field(
        2048, ge=1, description="REINFORCE: decisions that are evaluated at once; their gradients are added up."
    )
    advantages: Literal["sequence", "critic"] = Field(
        "sequence", description="PPO: against rollouts of the same arrivals, or a critic's."
    )
    clip: Positive = Field(0.2, description="PPO: clipping of the probability ratio.")
    epochs: int = Field(3, ge=1, description="PPO: passes over an iteration's decisions.")
    minibatches: int = Field(4, ge=1, description="PPO: steps a pass.")
    gae_lambda: Share = Field(0.97, description="PPO: lambda of the critic's advantages.")
    value: Positive = Field(0.5, description="PPO: weight of the critic's loss.")
    target_kl: Positive = Field(0.03, description="PPO: passes end beyond this divergence from the old policy.")


class Selection(Section):
    """Held-out episodes that choose the network, and end a run that does not get better."""

    every: int = Field(10, ge=1, description="Iterations between two looks.")
    episodes: int = Field(8, ge=2, description="Episodes of a look.")
    jobs: Count = Field(300, description="Jobs of each.")
    patience: int = Field(10, ge=1, description="Looks without a better one that end the run.")
    # Training draws actions, so its policies are judged by holds that end by chance; the likeliest action has no chance
    # in it, and holds for too long.
    margins: tuple[Annotated[float, Field(ge=0)], ...] = Field(
        (0.0, 0.7, 1.5),
        min_length=1,
        description="Scores that a wait or a hold must lead by; each is tried at every look.",
    )


class GraphConfig(Whole):
    """A run of a graph policy, by policy gradients."""

    name: str = Field(description="What the run and its model are called.")
    method: Literal["reinforce", "ppo"] = Field(description="How it learns.")
    seed: Seed = Field(1, description=SEED)
    objective: Objective = Field("jct", description="What is paid for; docs/training.md says what each is.")
    iterations: int = Field(ge=1, description="Updates of REINFORCE, or sets of updates of PPO.")
    network: NetworkConfig = NetworkConfig()
    scenario: str | None = Field(
        None,
        description="A named scenario's jobs and executors, at loads of `workloads`; if absent random scenarios.",
    )
    workloads: Workloads = Workloads()
    rollouts: Rollouts = Rollouts()
    update: Update = Update()
    selection: Selection = Selection()
    checkpoint_every: int = Field(5, ge=1, description="Iterations between checkpoints; does not change the result.")
    processes: int = Field(default_factory=cores, ge=1, description=PROCESSES)

    @field_validator("scenario")
    @classmethod
    def _has_a_load(cls, scenario: str | None) -> str | None:
        # Told before a folder is made for the run: it would then be another one's.
        try:
            if scenario is not None:
                named(scenario).with_(load=0.5)
        except InputError as error:
            raise ValueError(str(error)) from error
        return scenario

    @property
    def digest(self) -> str:
        """Sha256 over everything that changes the result."""
        return digest_of(self, self.workloads, {"processes", "checkpoint_every"})

    def between(self, ends: tuple[float, float], iteration: int) -> float:
        """Return where a value that goes from one end to the other over a run is at an iteration."""
        share = iteration / max(self.iterations - 1, 1)
        return ends[0] + share * (ends[1] - ends[0])


def read_any(source: str) -> TrainConfig | GraphConfig | AllocationConfig | ScoresConfig:
    """Read a configuration, shipped or a YAML file: its `method` says of what kind; the teacher's has none.

    Raises:
        InputError: no such file, or something in it is not as expected; names file and field.
    """
    raw, path = read_raw(source)
    if not isinstance(raw, dict) or "method" not in raw:
        return validated(TrainConfig, raw, path)
    method = raw["method"]
    if method == "evolution":
        return validated(AllocationConfig, raw, path)
    if method == "scores":
        return validated(ScoresConfig, raw, path)
    if method in ("reinforce", "ppo"):
        return validated(GraphConfig, raw, path)
    expected = "reinforce, ppo, evolution or scores, or no method for the rollout teacher"
    raise InputError(f"method: expected {expected}; got {method!r:.{_MOST_SHOWN}}", file=path)
