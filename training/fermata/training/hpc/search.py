"""Our own training of inspectors: imitate a rule that is worth having, then search around it with whole episodes.

Policy gradients see a hold that pays once in a hundred decisions as noise, and a random inspector of starts only hurts.
A rule with two numbers (who is long, what they leave free) is most of the gain and takes seconds to tune. The network
is first fitted to that rule, then improved by an evolution strategy on the same sequences for all of one generation.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from fermata.sim.hpc.experiment import Sequences, draw_sequences, pooled, run_sequence, run_sequences, split
from fermata.sim.hpc.inspect import FEATURES, SAMPLE, seed_sampling
from fermata.sim.hpc.jobs import JobLog
from fermata.sim.hpc.models import InspectorModel
from fermata.sim.hpc.policies import Policy
from fermata.sim.hpc.policies import policy as named
from fermata.sim.hpc.tune import best_reservation, try_reservations
from fermata.training.hpc.evolution import Evolution, single
from fermata.training.hpc.network import perceptron, theta_of

FloatArray = NDArray[np.float64]

_FITS, _FREE, _LOG_ESTIMATE, _FREE_AFTER = 4, 3, 8, 10  # places of features
_LOG_SCALE = 12.0
_JOBS = 256


class SearchConfig(BaseModel):
    """Options of `search_inspector`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    policy: str = Field("saf+easy/skip", description="The scheduler that is inspected.")
    scope: Literal["picks", "starts"] = Field("starts", description="picks: as the paper; starts: every start.")
    max_wait_ratio: float = Field(1.06, gt=0.0, description="Bound on wait of the rule that is imitated.")
    wait_price: float = Field(
        4.0, ge=0.0, description="What waiting as long as the yardstick does costs, in logarithms of slowdown."
    )
    yardstick: str = Field("saf+easy/skip", description="The policy whose wait is the measure.")
    generations: int = Field(100, ge=1, description="Steps of the search.")
    pairs: int = Field(8, ge=1, description="Mirrored perturbations a generation.")
    sequences: int = Field(40, ge=1, description="Episodes of 256 jobs for each of them.")
    sigma: float = Field(0.03, gt=0.0, description="Size of a perturbation.")
    rate: float = Field(0.01, gt=0.0, description="Adam's step.")
    seed: int = Field(0, ge=0)


@dataclass(frozen=True)
class Generation:
    """Where the search is: the cost of its centre on the sequences that choose the best one."""

    number: int
    bsld: float
    wait_ratio: float
    cost: float
    wall_s: float


def search_inspector(
    log: JobLog,
    config: SearchConfig,
    *,
    part: str = "train",
    on_generation: Callable[[Generation], None] | None = None,
) -> InspectorModel:
    """Return the best inspector that was found; the same for the same arguments.

    Args:
        log: the jobs, with the estimates that the inspector will see.
        config: see `SearchConfig`.
        part: where training sequences come from, see `experiment.split`.
        on_generation: told now and then.

    Raises:
        InputError: the part is too short, or the policy has no such name.
    """
    torch.set_num_threads(1)
    policy, random = named(config.policy), np.random.default_rng(config.seed)
    judged = draw_sequences(log, 3 * config.sequences, _JOBS, config.seed + 1, part=part)
    empty = InspectorModel(config.scope, FEATURES, 128.0, np.zeros(0), config.policy, log.name, "bsld", config.seed)
    model = replace(empty, theta=_imitate(log, policy, judged, empty, config))
    best, least = model, np.inf
    first, end = split(log, part)
    search = Evolution(model.theta, config.pairs, config.sigma, config.rate)
    for number in range(config.generations + 1):
        began = time.perf_counter()
        if number % 5 == 0:
            bsld, ratio = _measure(log, policy, judged, model, config)
            cost = _cost(bsld, ratio, config)
            if cost < least:
                best, least = model, cost
            if on_generation is not None:
                on_generation(Generation(number, bsld, ratio, cost, time.perf_counter() - began))
        starts = tuple(int(each) for each in random.integers(first, end - _JOBS + 1, config.sequences))
        sequences = Sequences(starts, _JOBS)
        measured = [
            _measure(log, policy, sequences, replace(model, theta=each), config) for each in search.candidates(random)
        ]
        search.learn(np.array([_cost(*each, config) for each in measured]))
        model = replace(model, theta=search.centre)
    return best


def _measure(
    log: JobLog, policy: Policy, sequences: Sequences, model: InspectorModel, config: SearchConfig
) -> tuple[float, float]:
    """Return mean bounded slowdown, and mean wait relative to the yardstick's."""
    means = pooled(run_sequences(log, policy, sequences, model.inspector(log)))[0]
    allowed = pooled(run_sequences(log, named(config.yardstick), sequences))[0]["wait_s"]
    return means["bsld"], means["wait_s"] / max(allowed, 1.0)


def _cost(bsld: float, ratio: float, config: SearchConfig) -> float:
    """Return the logarithm of the slowdown plus the price of the wait."""
    return float(np.log(bsld)) + config.wait_price * ratio


def _imitate(
    log: JobLog, policy: Policy, sequences: Sequences, model: InspectorModel, config: SearchConfig
) -> FloatArray:
    """Return weights that decide as the tuned reservation does; an inspector of commitments rejects what is blocked."""
    torch.manual_seed(config.seed)
    network = perceptron(FEATURES, 2)
    seen = _states(log, policy, sequences, replace(model, theta=theta_of(network)))
    bases = (config.yardstick,) if config.scope == "starts" else ("saf/strict",)
    shorter = replace(sequences, starts=sequences.starts[: config.sequences])
    tried = try_reservations(log, shorter, yardstick=config.yardstick, bases=bases)
    ratio = config.max_wait_ratio if config.scope == "starts" else np.inf
    tuned = best_reservation(tried, ratio).policy.rules
    estimate = np.expm1(seen[:, _LOG_ESTIMATE] * _LOG_SCALE)
    holds = (estimate > tuned.reserve_over_s) & (seen[:, _FREE_AFTER] < tuned.reserve_share) & (seen[:, _FREE] < 1.0)
    wanted = torch.from_numpy((holds | (seen[:, _FITS] == 0.0)).astype(np.int64))
    inputs = torch.from_numpy(seen).float()
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(1500):
        rows = torch.randint(len(inputs), (512,))
        loss = torch.nn.functional.cross_entropy(network(inputs[rows]), wanted[rows])
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call, unused-ignore]
        optimiser.step()
    return single(theta_of(network))


def _states(log: JobLog, policy: Policy, sequences: Sequences, model: InspectorModel) -> FloatArray:
    """Return what an inspector sees that rejects at random, `[decisions, features]`."""
    inspector = model.inspector(log, SAMPLE, record=80 * _JOBS)
    seed_sampling(model.seed)
    rows = []
    for start in sequences.starts:
        schedule = run_sequence(log, policy, start, _JOBS, 0, inspector)
        rows.append(inspector.seen[: min(schedule.inspections, len(inspector.acted))].copy())
    return np.concatenate(rows)
