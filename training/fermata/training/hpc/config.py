"""What a training run of an inspector can choose; defaults are SchedInspector's where it says."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from fermata.sim.hpc.inspect import FEATURES
from fermata.training.fields import SEED, Bias, Rate, Section, Seed


class InspectorConfig(Section):
    """Options of SchedInspector's training."""

    policy: str = Field("sjf", description="The scheduler that is inspected.")
    scope: Literal["picks", "starts"] = Field("picks", description="picks: as the paper; starts: every start.")
    features: int = Field(
        8, ge=1, le=FEATURES, description="Features read, from the first; 7 the code's, 8 the paper's."
    )
    objective: Literal["bsld", "wait", "mbsld", "slowdown", "utilization"] = Field(
        "bsld", description="What a sequence costs."
    )
    wait_price: float = Field(0.0, ge=0.0, description="Added to the cost: this times wait over the base's wait.")
    reward: Literal["percentage", "native", "winloss", "logarithm"] = Field(
        "percentage", description="What the gain over the base becomes."
    )
    epochs: int = Field(40, ge=1, description="Epochs, each with an update.")
    trajectories: int = Field(100, ge=2, description="Sequences an epoch.")
    jobs: int = Field(128, ge=2, description="Jobs of a sequence.")
    warm: int = Field(0, ge=0, description="Jobs simulated before each.")
    seed: Seed = Field(0, description=SEED)
    clip: float = Field(0.2, gt=0.0, description="PPO's clipping of the probability ratio.")
    gae_lambda: float = Field(
        0.97,
        ge=0.0,
        le=1.0,
        description="Lambda of the advantages; the discount is 1: only the end of a sequence pays.",
    )
    policy_rate: Rate = Field(3e-4, description="Adam's learning rate of the policy.")
    value_rate: Rate = Field(1e-3, description="The same of the value network.")
    policy_steps: int = Field(80, ge=1, description="Whole-batch steps an epoch; fewer where target_kl stops them.")
    value_steps: int = Field(80, ge=1, description="The same of the value network, never fewer.")
    target_kl: float = Field(0.01, gt=0.0, description="How far an epoch may move the policy: a divergence.")
    entropy: float = Field(0.0, ge=0.0, description="Weight of the entropy bonus.")
    accept_bias: Bias = Field(0.0, description="Added to the accept output's bias at the start.")
    select_sequences: int = Field(
        50, ge=0, description="Sequences of the training part that choose the epoch; 0: last."
    )

    @field_validator("reward")
    @classmethod
    def _has_logarithm(cls, reward: str, others: ValidationInfo) -> str:
        if reward == "logarithm" and others.data.get("objective") == "utilization":  # its costs are negative
            raise ValueError("logarithm is for objectives that are lowered, not for utilization")
        return reward
