"""What a training run of an allocation is made of: its network's inputs, its episodes, its search."""

from __future__ import annotations

import hashlib
from typing import Literal

from pydantic import Field, field_validator

from fermata.sim.processes import cores
from fermata.sim.scenarios.base import MAX_JOBS
from fermata.sim.spark.settings import SETTINGS
from fermata.training.fields import PROCESSES, SEED, Pools, Positive, Range, Section, Seed, Whole


class Published(Section):
    """Episodes of a published setting."""

    setting: str = Field(description=f"One of {', '.join(SETTINGS)}.")
    episodes: int = Field(ge=1, description="Episodes of a generation.")
    jobs: int | None = Field(None, ge=2, le=MAX_JOBS, description="Jobs of each; if absent as published.")
    judged: int = Field(ge=1, description="Episodes, at full length, that choose the network.")

    @field_validator("setting")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in SETTINGS:
            raise ValueError(f"no TPC-H setting {name!r}; there are: {', '.join(SETTINGS)}")
        return name


class Varied(Section):
    """Episodes of other pools, loads and moving delays, so that what is learned is not two settings by heart."""

    episodes: int = Field(2, ge=0, description="Episodes of a generation.")
    jobs: int = Field(40, ge=2, le=MAX_JOBS, description="Jobs of each.")
    executors: Pools = Field((8, 60), description="Executors, from and to; log-uniform.")
    load: Range = Field(
        (0.8, 5.0),
        description="Load over that of 50 executors and a query every 25 s, from and to; log-uniform.",
    )
    moving_delay_s: Range = Field(
        (0.5, 4.0), description="Seconds that an executor takes to move to another job, from and to; uniform."
    )


class Search(Section):
    """The evolution strategy."""

    generations: int = Field(150, ge=0, description="Steps of the search.")
    pairs: int = Field(16, ge=1, description="Mirrored perturbations a generation.")
    sigma: Positive = Field(0.05, description="Size of a perturbation.")
    rate: Positive = Field(0.02, description="Adam's step at first; it falls linearly.")
    last_rate: Positive = Field(0.005, description="Adam's step at last.")
    falls_for: int | None = Field(None, ge=1, description="Generations for which it falls; if absent all of them.")
    judge_every: int = Field(10, ge=1, description="Generations between two looks at the judged episodes.")


class AllocationConfig(Whole):
    """A run of an allocation of Spark's executors, by an evolution strategy."""

    name: str = Field(description="What the run and its model are called.")
    method: Literal["evolution"] = Field(description="How it learns.")
    seed: Seed = Field(1, description=SEED)
    inputs: Literal["full", "decima"] = Field(
        "full", description="What the network reads: all, or what Decima's agent reads or can add up."
    )
    action_space: Literal["wait", "none"] = Field("wait", description="Whether executors may be left idle.")
    published: tuple[Published, ...] = Field(min_length=1)
    varied: Varied = Varied()
    search: Search = Search()
    processes: int = Field(default_factory=cores, ge=1, description=PROCESSES)

    @property
    def digest(self) -> str:
        """Sha256 over everything that changes the result."""
        text = self.model_dump_json(exclude={"processes"})
        return hashlib.sha256(text.encode()).hexdigest()
