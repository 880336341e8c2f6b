"""Two workloads on one cluster: a share alpha of the jobs comes from the second."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fermata.sim.generate.arrivals import Arrivals, Poisson
from fermata.sim.scenarios.base import Recipe, check_share, mean_gap_s
from fermata.sim.trace import Trace
from fermata.sim.trace_builder import TraceBuilder, specs_of
from fermata.sim.trace_jobs import job_work_s


@dataclass(frozen=True)
class Mix:
    """Each job is drawn from `second` with probability `alpha`, else from `first`; both keep their own order.

    The arrivals of the two recipes are replaced by one process whose mean gap gives the load exactly for the jobs
    drawn, so that mixes of different alpha are compared at the same load.
    """

    first: Recipe
    second: Recipe
    alpha: float = 0.5
    load: float = 0.7
    arrivals: Arrivals = field(default_factory=Poisson)

    def draw(self, rng: np.random.Generator, jobs: int, executors: int) -> Trace:
        """Draw who comes from where, then the jobs of each recipe, then all arrivals."""
        check_share("alpha", self.alpha)
        from_second = rng.random(jobs) < self.alpha
        sources = [_exactly(self.first, rng, jobs, executors), _exactly(self.second, rng, jobs, executors)]
        used = (jobs - int(from_second.sum()), int(from_second.sum()))
        work_s = sum(float(job_work_s(source)[:count].sum()) for source, count in zip(sources, used, strict=True))
        arrival_s = self.arrivals.draw(rng, jobs, mean_gap_s(work_s / jobs, self.load, executors))
        builder, taken = TraceBuilder(), [0, 0]
        for job, (kind, arrival) in enumerate(zip(from_second.astype(int).tolist(), arrival_s.tolist(), strict=True)):
            builder.add_job(f"j{job}", arrival, specs_of(sources[kind], taken[kind]))
            taken[kind] += 1
        return builder.finish()


def _exactly(recipe: Recipe, rng: np.random.Generator, jobs: int, executors: int) -> Trace:
    """At least `jobs` jobs of a recipe, some of which draw only about as many as they are asked for."""
    wanted = jobs
    while (trace := recipe.draw(rng, wanted, executors)).jobs < jobs:
        wanted += max(16, jobs // 10)
    return trace
