"""Trajectories: sequences run under an inspector that samples, what it saw and did, and what that was worth.

The simulation, the features and the network's forward pass are all compiled; torch sees whole batches afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fermata.sim.hpc.experiment import run_sequence
from fermata.sim.hpc.inspect import SAMPLE, seed_sampling
from fermata.sim.hpc.jobs import JobLog
from fermata.sim.hpc.metrics import figures
from fermata.sim.hpc.models import InspectorModel
from fermata.sim.hpc.policies import Policy
from fermata.training.hpc.config import InspectorConfig

ROOM_A_JOB = 80  # decisions: its own start and at most 72 rejections

Figures = dict[str, float]


@dataclass(frozen=True)
class Batch:
    """Decisions of many trajectories, one after the other."""

    seen: NDArray[np.float32]  # [decisions, features]
    acted: NDArray[np.int64]  # [decisions] 1 for a rejection
    log_chance: NDArray[np.float32]  # [decisions]
    ends: NDArray[np.int64]  # [trajectories] one past the last decision of each
    rewards: NDArray[np.float32]  # [trajectories] given at the end
    inspected: list[Figures]
    base: list[Figures]


def base_figures(log: JobLog, policy: Policy, start: int, config: InspectorConfig) -> Figures:
    """Return what a sequence is worth without an inspector."""
    return figures(run_sequence(log, policy, start, config.jobs, config.warm))


def collect(
    log: JobLog,
    policy: Policy,
    starts: NDArray[np.int64],
    model: InspectorModel,
    config: InspectorConfig,
    base_of: Callable[[int], Figures],
    seed: int,
) -> Batch:
    """Run one trajectory from each start."""
    inspector = model.inspector(log, SAMPLE, record=ROOM_A_JOB * (config.jobs + config.warm))
    seed_sampling(seed)
    seen, acted, chances, ends, rewards = [], [], [], [0], []
    inspected, bases = [], []
    for start in starts:
        schedule = run_sequence(log, policy, int(start), config.jobs, config.warm, inspector)
        many = min(schedule.inspections, len(inspector.acted))
        seen.append(inspector.seen[:many].astype(np.float32))
        acted.append(inspector.acted[:many].astype(np.int64))
        chances.append(inspector.log_chance[:many].astype(np.float32))
        ends.append(ends[-1] + many)
        found, base = figures(schedule), base_of(int(start))
        inspected.append(found)
        bases.append(base)
        rewards.append(reward(cost(base, base, config), cost(found, base, config), config.reward))
    return Batch(
        np.concatenate(seen),
        np.concatenate(acted),
        np.concatenate(chances),
        np.array(ends[1:]),
        np.array(rewards, dtype=np.float32),
        inspected,
        bases,
    )


def cost(found: Figures, base: Figures, config: InspectorConfig) -> float:
    """Return what a sequence costs: the objective, lower is better, and the price of waiting longer than the base.

    The price is relative: with 1, a wait twice the base's costs as much as doubling the base's objective.
    """
    key = {"wait": "wait_s"}.get(config.objective, config.objective)
    own = -found[key] if config.objective == "utilization" else found[key]
    if not config.wait_price:
        return own
    return own + config.wait_price * base[key] * found["wait_s"] / max(base["wait_s"], 1.0)


def reward(base: float, found: float, kind: str) -> float:
    """Return what the gain over the base is worth.

    Source: SchedInspector, section 3.3: percentage is the gain over the base's cost, native the gain itself, winloss
    its sign. The published code divides by the larger of both costs instead, which bounds it to -1 to 1 on both
    sides; that is `percentage` here. logarithm is ln(base / found): symmetric, and blind to the size of the base.
    """
    if kind == "native":
        return base - found
    if kind == "winloss":
        return float(np.sign(base - found))
    if kind == "logarithm":
        return float(np.log(max(abs(base), 1e-9) / max(abs(found), 1e-9)))
    return (base - found) / max(abs(base), abs(found), 1e-9)
