"""What a training run of an allocation is made of: its network's inputs, its episodes, its search."""

from __future__ import annotations

import hashlib
from typing import Literal

from pydantic import Field, field_validator

from fermata.sim.processes import cores
from fermata.sim.scenarios.base import MAX_JOBS
from fermata.sim.spark.settings import SETTINGS
from fermata.training.fields import Pools, Positive, Range, Section, Seed, Whole


class Published(Section):
    """Episodes of a published setting."""

    setting: str
    episodes: int = Field(ge=1)  # a generation
    jobs: int | None = Field(default=None, ge=2, le=MAX_JOBS)  # of each; by default as published
    judged: int = Field(ge=1)  # episodes, at full length, that choose the network

    @field_validator("setting")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in SETTINGS:
            raise ValueError(f"no TPC-H setting {name!r}; there are: {', '.join(SETTINGS)}")
        return name


class Varied(Section):
    """Episodes of other pools, loads and moving delays, so that what is learned is not two settings by heart."""

    episodes: int = Field(default=2, ge=0)  # a generation
    jobs: int = Field(default=40, ge=2, le=MAX_JOBS)
    executors: Pools = (8, 60)  # log-uniform
    load: Range = (0.8, 5.0)  # over that of 50 executors and a query every 25 s; log-uniform
    moving_delay_s: Range = (0.5, 4.0)  # uniform


class Search(Section):
    """The evolution strategy (`fermata.training.hpc.evolution`)."""

    generations: int = Field(default=150, ge=0)
    pairs: int = Field(default=16, ge=1)  # mirrored perturbations a generation
    sigma: Positive = 0.05  # size of a perturbation
    rate: Positive = 0.02  # Adam's step at first ...
    last_rate: Positive = 0.005  # ... and after so many generations, falling linearly (default: all):
    falls_for: int | None = Field(default=None, ge=1)
    judge_every: int = Field(default=10, ge=1)  # generations between two looks at the judged episodes


class AllocationConfig(Whole):
    """A whole run."""

    name: str
    method: Literal["evolution"]
    seed: Seed = 1
    inputs: Literal["full", "decima"] = "full"
    action_space: Literal["wait", "none"] = "wait"
    published: tuple[Published, ...] = Field(min_length=1)
    varied: Varied = Varied()
    search: Search = Search()
    processes: int = Field(default_factory=cores, ge=1)  # does not change the result

    @property
    def digest(self) -> str:
        """Sha256 over everything that changes the result."""
        text = self.model_dump_json(exclude={"processes"})
        return hashlib.sha256(text.encode()).hexdigest()
