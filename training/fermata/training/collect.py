"""One unit of the teacher's work: draw a scenario, tune its base policy, label decisions, write them to a file.

A unit follows from the configuration, its round and its number alone, so units can be done in any order, by any
number of processes, today or after a crash.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fermata.policy.guardrails import NO_LIMITS
from fermata.policy.heuristics.kernel import BY_REMAINING_WORK, FILL, FOLLOWER, ONE_TASK, SWITCH, Rule
from fermata.policy.heuristics.srwf import SRWF
from fermata.policy.learned import ACTIONS, Network
from fermata.policy.rows import column
from fermata.sim.networks import eager
from fermata.sim.scenarios import Scenario
from fermata.sim.simulate import run_rule
from fermata.sim.trace import Trace
from fermata.sim.world import Tables, new_world, tables_of
from fermata.training.config import TrainConfig
from fermata.training.files import write_arrays
from fermata.training.fork import fork_for
from fermata.training.own import only_for
from fermata.training.teacher import Base, Plan, Teacher
from fermata.training.workloads import draw

_TUNING_JOBS = 1000
_LEAST_JOBS = 800
_WARM = 100  # arrivals that let the rate estimates settle


@dataclass(frozen=True)
class Unit:
    """Which scenario of which round."""

    round: int
    number: int

    @property
    def file_name(self) -> str:
        """Name of the unit's file within the run."""
        return f"labels-{self.round}-{self.number:05d}.npz"


def _mean_jct_s(tables: Tables, executors: int, rule: Rule) -> float:
    world, jobs = new_world(tables, executors), len(tables.job_arrival_s)
    run_rule(world, rule, NO_LIMITS)
    jct_s = column(world.job_progress, "completion_s") - tables.job_arrival_s
    return float(jct_s[jobs // 10 :].mean())


def tuned_rule(tables: Tables, executors: int) -> Rule:
    """Return the best of the hold families on an episode; never a hold that does not pay."""
    work_s = np.quantile(tables.job_work_s, [0.3, 0.97])
    short_s, long_s = (float(each) for each in np.quantile(tables.stage_estimate_s, [0.3, 0.97]))
    split_s = float(np.sqrt(work_s[0] * work_s[1]))
    eager = Rule(order=BY_REMAINING_WORK, fill=FILL, split_s=split_s)
    least = 0.995 * _mean_jct_s(tables, executors, eager)  # holding must be worth half a percent

    def better(best: Rule, rules: list[Rule]) -> Rule:
        nonlocal least
        for rule in rules:
            value = _mean_jct_s(tables, executors, rule)
            if value < least:
                best, least = rule, value
        return best

    # An executor is taken for the length of a task: that, not the work of its job, is what a hold is weighed against.
    holds = [
        eager._replace(
            # Task by task: a stage that took what is free at once would leave nothing to hold.
            fill=ONE_TASK,
            hold=SWITCH,
            tau_s=share * long_s,
            tau_per_long_s=more * long_s,
            max_longs=longs,
        )
        for share in (0.0, 0.05, 0.1, 0.15, 0.3, 0.5, 0.8)
        for longs, more in ((4, 0.0), (1000, 0.0), (1000, 0.1), (1000, 0.2), (1000, 0.3))
    ]
    follows = [eager._replace(hold=FOLLOWER, follower_s=float(share * work_s[1])) for share in (0.1, 0.3, 0.8)]
    best = better(eager, [*holds, *follows])
    if best.hold == FOLLOWER:
        return best
    return better(
        best,
        [
            best._replace(fill=ONE_TASK, hold=SWITCH, theta_s=share * short_s, theta_per_short_s=0.5 * short_s)
            for share in (0.5, 1.0, 2.0, 4.0)
        ],
    )


def _horizon(scenario: Scenario, library: Trace, bounds: tuple[int, int]) -> int:
    """Return the arrivals of a rollout: four long jobs' time over the slack, bounded; fewer of jobs of many tasks."""
    tables = tables_of(library, scenario.executors)
    gap_s = library.job_arrival_s[-1] / library.jobs
    load = min(float(tables.job_work_s.mean()) / gap_s / scenario.executors, 0.95)
    long_s = float(np.quantile(tables.job_work_s, 0.99))
    wanted = 4.0 * long_s / gap_s / (1.0 - load)
    most = max(40, round(bounds[1] / max(1.0, library.tasks / library.jobs) ** 0.5))
    return int(np.clip(wanted, min(bounds[0], most), most))


def label_unit(config: TrainConfig, unit: Unit, network: Network | None, folder: Path) -> Path:
    """Do one unit, unless its file is there already; the file appears whole or not at all."""
    path = folder / unit.file_name
    if path.exists():
        return path
    wanted = config.rounds[unit.round]
    rng = np.random.default_rng([config.seed, unit.round, unit.number])
    scenario = draw(rng, only_for(config.workloads, 0), config.teacher.library)
    seeds = [int(seed) for seed in rng.integers(0, 2**31, 4)]
    tuning = scenario.with_(jobs=_TUNING_JOBS).generate(seeds[0])
    tables = tables_of(tuning, scenario.executors)
    rule, unit_s = tuned_rule(tables, scenario.executors), _mean_jct_s(tables, scenario.executors, SRWF.rule)
    # Decisions grow with tasks: jobs of many tasks make as many states, and futures as long, of fewer jobs.
    jobs = max(_LEAST_JOBS, round(config.teacher.library / (tuning.tasks / tuning.jobs) ** 0.5))
    library, episode = (scenario.with_(jobs=jobs).generate(seed) for seed in seeds[1:3])
    # Rollouts that follow a rule never ask the network.
    arrays = eager() if network is None else network
    behaviour = Base(wanted.behaviour == "network" and network is not None, rule, SRWF.rule, arrays)
    base = behaviour._replace(learned=wanted.rollouts == "network" and network is not None)
    horizon = _horizon(scenario, library, config.teacher.horizon)
    plan = Plan(
        # The states are spread over the episode: those of one moment say the same. Fewer are worth asking about where
        # the network is sure of most.
        min(config.teacher.sample, 2.0 * wanted.states / episode.tasks / max(config.teacher.elsewhere, 0.4)),
        config.teacher.doubt,
        config.teacher.elsewhere,
        sum(1 << expert for expert in config.taught),
        config.teacher.explore,
        config.teacher.futures,
        horizon,
        unit_s,
        _WARM,
        config.teacher.max_label,
    )
    world, later = (new_world(tables_of(each, scenario.executors), scenario.executors) for each in (episode, library))
    forks = tuple(fork_for(episode, scenario.executors, horizon) for _ in ACTIONS)
    teacher = Teacher(world, later, forks, behaviour, base, plan)
    x, y = teacher.collect(seeds[3], wanted.states)
    write_arrays(path, {"x": x.astype(np.float32), "y": y.astype(np.float32)})
    return path
