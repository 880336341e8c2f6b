"""What a search for an inspector or a policy over the queue can choose."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fermata.sim.hpc.inspect import FEATURES, MAX_REJECTIONS, MOST_REJECTIONS
from fermata.training.fields import SEED, Rate, Section, Seed

LARGEST_SIGMA = 1000.0  # weights of any size would overflow, and what scores no number is never started
_LEAST_FEATURES = 11  # the rule that is imitated reads as many


class SearchConfig(Section):
    """Options of every search."""

    wait_price: float = Field(
        4.0, ge=0.0, description="What waiting as long as the yardstick does costs, in logarithms of slowdown."
    )
    idle_price: float = Field(
        0.0, ge=0.0, description="What a point of utilisation (with the tail) below the yardstick's costs, likewise."
    )
    yardstick: str = Field("saf+easy/skip", description="The policy whose wait and utilisation are the measure.")
    estimates: tuple[str, ...] = Field(
        (), description="Every episode draws one of these kinds of estimates, anew; if empty the log's as it is given."
    )
    start: str = Field("", description="An inspector's file to go on from; if empty the imitated rule.")
    generations: int = Field(200, ge=0, description="Steps of the search.")
    pairs: int = Field(12, ge=1, description="Mirrored perturbations a generation.")
    sequences: int = Field(80, ge=1, description="Episodes for each of them.")
    judged: int = Field(300, ge=1, description="Episodes that choose the best centre.")
    jobs: int = Field(256, ge=2, description="Jobs of an episode.")
    sigma: float = Field(0.1, gt=0.0, le=LARGEST_SIGMA, description="Size of a perturbation.")
    rate: Rate = Field(0.05, description="Adam's step.")
    seed: Seed = Field(0, description=SEED)


class InspectorSearchConfig(SearchConfig):
    """Options of an inspector that is searched for."""

    policy: str = Field("saf+easy/skip", description="The scheduler that is inspected.")
    scope: Literal["picks", "starts"] = Field("starts", description="picks: as the paper; starts: every start.")
    features: int = Field(
        FEATURES, ge=_LEAST_FEATURES, le=FEATURES, description="Features read, from the first; `start` may read fewer."
    )
    max_wait_ratio: float = Field(
        1.06,
        gt=0.0,
        description="Bound on wait of the imitated rule: of starts over its own policy's, else the yardstick's.",
    )
    max_rejections: int = Field(
        MAX_REJECTIONS,
        ge=1,
        le=MOST_REJECTIONS,
        description="How often a job may be rejected; the paper's limit is 72.",
    )
    generations: int = Field(100, ge=0, description="Steps of the search.")
    pairs: int = Field(8, ge=1, description="Mirrored perturbations a generation.")
    sequences: int = Field(40, ge=1, description="Episodes for each of them.")
    sigma: float = Field(0.03, gt=0.0, le=LARGEST_SIGMA, description="Size of a perturbation.")
    rate: Rate = Field(0.01, description="Adam's step.")


class QueueConfig(SearchConfig):
    """Options of a policy over the queue that is searched for."""

    start: str = Field(
        "", description="A setting or a file to go on from, or `sjf` for shortest first; if empty SAF EASY that holds."
    )
