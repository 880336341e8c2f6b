"""What a training run of a Deep Back-Filling agent can choose."""

from __future__ import annotations

from pydantic import Field

from fermata.sim.hpc.window import MOST_SEEN
from fermata.training.fields import SEED, Bias, Rate, Section, Seed


class WindowConfig(Section):
    """Options of Deep Back-Filling's training."""

    head: int = Field(32, ge=1, le=MOST_SEEN, description="Jobs seen from the head of the queue.")
    tail: int = Field(32, ge=0, le=MOST_SEEN, description="Jobs seen from its tail; 0: a head-only window.")
    iterations: int = Field(60, ge=1, description="Batches, each followed by an update.")
    sequences: int = Field(8, ge=1, description="Episodes a batch.")
    copies: int = Field(4, ge=1, description="Runs of each; their mean is the baseline for what arrives.")
    jobs: int = Field(1000, ge=2, description="Jobs of an episode.")
    judged: int = Field(100, ge=1, description="Episodes of the training part that choose the best iteration.")
    idle_weight: float = Field(
        0.0, ge=0.0, le=1.0, description="Share of the reward that is for not leaving cores idle while jobs wait."
    )
    horizon_s: float = Field(86_400.0, gt=0.0, description="Seconds: a reward this much later counts 1/e.")
    trace_s: float = Field(43_200.0, gt=0.0, description="Seconds after which the value network stands for the rest.")
    clip: float = Field(0.2, gt=0.0, description="PPO's clipping of the probability ratio.")
    policy_rate: Rate = Field(3e-3, description="Adam's learning rate of the policy, falling to a tenth.")
    value_rate: Rate = Field(2e-3, description="The same of the value network.")
    epochs: int = Field(8, ge=1, description="Passes over a batch.")
    minibatches: int = Field(8, ge=1, description="Steps a pass.")
    target_kl: float = Field(0.03, gt=0.0, description="A pass that moved the policy further is the batch's last.")
    entropy: float = Field(0.001, ge=0.0, description="Weight of the entropy bonus.")
    fwd_bias: Bias = Field(-2.0, description="Score of Fwd over that of jobs at the start.")
    seed: Seed = Field(0, description=SEED)
