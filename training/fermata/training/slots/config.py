"""What a search for scores on a trace of one's own is made of."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fermata.sim.processes import cores
from fermata.sim.scenarios.base import MAX_JOBS
from fermata.training.config import OwnTrace, digest_of
from fermata.training.fields import PROCESSES, SEED, Positive, Section, Seed, Whole


class OnTrace(Section):
    """Where episodes come from."""

    own: OwnTrace | None = Field(None, description="A trace of one's own; `--trace` sets it.")


class Search(Section):
    """The evolution strategy."""

    generations: int = Field(80, ge=0, description="Steps of the search.")
    pairs: int = Field(12, ge=1, description="Mirrored perturbations a generation.")
    sigma: Positive = Field(0.2, description="Size of a perturbation.")
    rate: Positive = Field(0.08, description="Adam's step at first; it falls linearly to a tenth.")
    episodes: int = Field(16, ge=1, description="Episodes of a generation, which all perturbations play.")
    jobs: int = Field(600, ge=100, le=MAX_JOBS, description="Jobs of an episode; fewer of jobs of many tasks.")
    judged: int = Field(32, ge=1, description="Episodes that choose, of jobs that teach nothing.")
    judge_every: int = Field(10, ge=1, description="Generations between two looks at these.")


class ScoresConfig(Whole):
    """A run of scores for tasks of several executors, by an evolution strategy on a trace of one's own."""

    name: str = Field(description="What the run is called.")
    method: Literal["scores"] = Field(description="How it learns.")
    seed: Seed = Field(1, description=SEED)
    workloads: OnTrace = OnTrace()
    search: Search = Search()
    processes: int = Field(default_factory=cores, ge=1, description=PROCESSES)

    @property
    def digest(self) -> str:
        """Sha256 over everything that changes the result."""
        return digest_of(self, self.workloads, {"processes"})
