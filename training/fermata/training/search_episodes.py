"""The episodes that a search for an expert plays, and what networks cost there.

Workers do this: it must not know torch, which each of them would load for as long as it plays a small generation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from fermata.policy.learned import Network
from fermata.training.config import Search, TrainConfig
from fermata.training.own import Part, only_for
from fermata.training.play import Case, case_of, log_ratio
from fermata.training.workloads import draw

SEARCHED = (1, 2)  # indices into EXPERTS
STREAM = 2_000_000  # apart from the rounds of labels and the held-out episodes
_LEAST_JOBS = 200  # of an episode, unless a configuration has fewer
_MOST = 0.5  # of a log ratio: one episode gone wrong is no worse than that


def plan_of(config: TrainConfig) -> Search:
    """Return how to search.

    Raises:
        ValueError: the configuration has no search.
    """
    if config.search is None:
        raise ValueError(f"the configuration {config.name} has no search")
    return config.search


@lru_cache(maxsize=4000)
def numbered_case(config: TrainConfig, index: int, number: int) -> Case:
    """Draw one of the episodes for an expert; jobs of many tasks make as many decisions of fewer jobs."""
    search = plan_of(config)
    rng = np.random.default_rng([config.seed, STREAM, index, number])
    ranges = only_for(config.workloads, index)
    ranges = ranges.model_copy(update={"dag_share": 1.0, "wide_share": float(index == SEARCHED[1])})
    part: Part = "teach" if number < search.scenarios else "choose"
    scenario, seed = draw(rng, ranges, search.jobs, part), int(rng.integers(0, 2**31))
    tasks = scenario.generate(seed).tasks / search.jobs
    jobs = max(min(_LEAST_JOBS, search.jobs), round(search.jobs * min(1.0, 3.0 / tasks)))
    return case_of(scenario.with_(jobs=jobs), seed)


def cost_of(network: Network, config: TrainConfig, index: int, numbers: Sequence[int]) -> float:
    """Return the mean log ratio of the JCTs to shortest remaining work first, on the episodes of these numbers."""
    ratios = [log_ratio(network, numbered_case(config, index, number)) for number in numbers]
    return float(np.clip(ratios, -_MOST, _MOST).mean())
