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
from fermata.training.fields import Count, Positive, Rate, Section, Seed, Share, Whole, Width
from fermata.training.graph.objectives import Objective
from fermata.training.graph.scenarios import named
from fermata.training.spark.config import AllocationConfig

_MOST_SCORE = 1e6  # far from what is impossible (`graph_actions.IMPOSSIBLE`)


class Inputs(Section):
    """Which features the network reads; a feature that is left out is 0 for it.

    The papers' "features" are the critical path and the average width, on top of Decima's own five of each stage.
    """

    base: Literal["decima", "full"] = "full"
    critical_path: bool = True
    width: bool = True

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
    """See `fermata.policy.graph_actions.Space`."""

    kind: Literal["wait", "paper", "none"] = "wait"
    steps: int = Field(default=4, ge=1, le=1000)
    wake_up: bool = False  # a long hold is then many waits in a row, which exploration rarely finds

    @property
    def delays(self) -> int:
        """How many delays a stage has to choose between, none included."""
        return self.space.delays

    @property
    def space(self) -> Space:
        """The same as policies know it."""
        return Space(self.kind, self.steps, self.wake_up)


class NetworkConfig(Section):
    """The network; see `fermata.training.graph.network`."""

    inputs: Inputs = Inputs()
    space: ActionSpace = ActionSpace()
    width: Width = 16  # of an embedding
    hidden: Width = 32
    rounds: int = Field(default=4, ge=0, le=1000)  # of messages: DAGs of this depth are seen whole
    aggregate: Literal["sum", "mean"] = "mean"
    # Stages of jobs with less work left begin ahead by so much per log-ratio.
    prior: float = Field(default=2.0, ge=0, le=_MOST_SCORE)
    # A wait begins behind by so much where no arrival is under half the head.
    wait_prior: float = Field(default=5.0, ge=0, le=_MOST_SCORE)
    # Score of a wait or a hold at the start, against a single stage at 0.
    first_wait: float = Field(default=-1.0, ge=-_MOST_SCORE, le=_MOST_SCORE)
    # The whole of what can start begins ahead of a small part by so much.
    cap_prior: float = Field(default=4.0, ge=0, le=_MOST_SCORE)


class Rollouts(Section):
    """How experience is gathered.

    An iteration draws `sequences` arrival sequences, and each is run `repeats` times: what its rollouts differ in is
    owed to their actions alone, so their mean is a baseline that depends on the input. Lengths are drawn from an
    exponential distribution, so nothing tells an agent that the end is near; their mean grows, so that the first
    agents, which let queues grow, do not spend long in queues that no good agent sees.

    Source: Mao et al. 2019, section 5.3.
    """

    sequences: int = Field(default=2, ge=1)
    repeats: int = Field(default=8, ge=2)
    together: int = Field(default=2, ge=1)  # sequences that one process plays at the same time
    jobs: tuple[Count, Count] = (60, 300)  # mean length, first and last iteration
    most_jobs: Count = 1000  # lengths above are cut
    warm_jobs: int = Field(default=40, ge=0, le=MAX_JOBS // 2)  # under the base policy before the agent takes over
    load_curriculum: Share = 0.5  # over this share of the iterations the range of loads opens from its lower end


class Update(Section):
    """How experience changes the network."""

    learning_rate: tuple[Rate, Rate] = (1e-3, 1e-4)  # of Adam, first and last iteration, linear between
    entropy: tuple[Share, Share] = (0.005, 0.0)  # weight of the entropy, first and last iteration, linear between
    horizon_jobs: Positive = 60.0  # costs fade with this time constant, in mean gaps between arrivals
    gradient_norm: Positive = 1.0  # larger gradients are scaled down to it
    batch: int = Field(default=2048, ge=1)  # decisions that are evaluated at once; REINFORCE adds their gradients up
    advantages: Literal["sequence", "critic"] = "sequence"  # PPO: over rollouts of the same arrivals, or a critic's
    clip: Positive = 0.2  # PPO: of the probability ratio
    epochs: int = Field(default=3, ge=1)  # PPO: passes over an iteration's decisions
    minibatches: int = Field(default=4, ge=1)  # PPO: steps a pass
    gae_lambda: Share = 0.97  # PPO
    value: Positive = 0.5  # PPO: weight of the critic's loss
    target_kl: Positive = 0.03  # PPO: passes end beyond it


class Selection(Section):
    """Held-out episodes that choose the network, and end a run that does not get better."""

    every: int = Field(default=10, ge=1)  # iterations between two looks
    episodes: int = Field(default=8, ge=2)
    jobs: Count = 300
    patience: int = Field(default=10, ge=1)  # looks without a better one
    # A wait or a hold must lead by so much; each is tried at every look. Training draws actions, so its policies are
    # judged by holds that end by chance; the likeliest action has no chance in it, and holds for too long.
    margins: tuple[Annotated[float, Field(ge=0)], ...] = Field(default=(0.0, 0.7, 1.5), min_length=1)


class GraphConfig(Whole):
    """A whole run."""

    name: str
    method: Literal["reinforce", "ppo"]
    seed: Seed = 1
    objective: Objective = "jct"  # see `fermata.training.graph.objectives`
    iterations: int = Field(ge=1)
    network: NetworkConfig = NetworkConfig()
    scenario: str | None = None  # its jobs and executors, at loads of `workloads`; by default random scenarios
    workloads: Workloads = Workloads()
    rollouts: Rollouts = Rollouts()
    update: Update = Update()
    selection: Selection = Selection()
    checkpoint_every: int = Field(default=5, ge=1)  # iterations; does not change the result
    processes: int = Field(default_factory=cores, ge=1)  # does not change the result

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


def read_any(source: str) -> TrainConfig | GraphConfig | AllocationConfig:
    """Read a configuration, shipped or a YAML file: its `method` says of what kind; the teacher's has none.

    Raises:
        InputError: no such file, or something in it is not as expected; names file and field.
    """
    raw, path = read_raw(source)
    if isinstance(raw, dict) and raw.get("method") == "evolution":
        return validated(AllocationConfig, raw, path)
    if isinstance(raw, dict) and "method" in raw:
        return validated(GraphConfig, raw, path)
    return validated(TrainConfig, raw, path)
