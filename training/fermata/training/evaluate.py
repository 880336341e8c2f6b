"""Is a policy better than the base it must beat: paired over seeds, scenario by scenario, with 95% intervals.

Evaluation seeds are 2000 to 2019 unless told otherwise; training draws its own scenarios and tuning uses other seeds,
so none of them has been seen. Needs no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from fermata.policy.errors import InputError
from fermata.policy.guardrails import NO_LIMITS, Guardrails
from fermata.policy.registry import load
from fermata.sim.experiment import Setting, knowing, over_processes
from fermata.sim.generate.estimates import Noise
from fermata.sim.generate.weights import Weights
from fermata.sim.json_values import only_finite
from fermata.sim.metrics import Interval, mean_ci95, paired_percent, resampled_ci95
from fermata.sim.scenarios import Scenario
from fermata.sim.simulate import Episode, simulate
from fermata.sim.spark.experiment import run_tpch_seed
from fermata.sim.spark.peers import PEERS
from fermata.sim.spark.settings import SETTINGS, SparkSetting
from fermata.sim.trace import FloatArray
from fermata.sim.workloads import workload, workloads
from fermata.training.config import OwnTrace
from fermata.training.own import Part, as_scenario, part_of

Corrections = Literal["policy", "all", "none"]
UNSEEN_SEEDS = range(2000, 2020)

# Named bases that are heuristics of another name here.
_TPCH_BASE, _OWN_BASE = "spark-fair", "srwf"
_BASES = {"SJF": "sjf", "SRWF": "srwf", "FIFO": "fifo", "tuned_parallelism": "sjf-divided"}


@dataclass(frozen=True)
class Conditions:
    """What an evaluation changes of the scenarios; policy and base meet the same jobs and the same estimates.

    Args:
        jobs: of an episode; None: the scenario's own number.
        parameters: of the scenarios, by name.
        noise: wrong estimates.
        later: as `parameters`, from the middle of an episode on.
        limits: bounds on the policy's holding.
        tpch_dir: Decima's TPC-H data, for the `tpch_*` settings, of which number and parameters can be changed.
        own: a trace of one's own, in the place of every scenario.
        part: of that trace.
        against: the policy to compare with, in the place of each scenario's base.
        corrections: who gets estimates that are corrected by what finished stages took: the policies that want it,
            both, or neither.
        sticky: stages keep their executors until their tasks run out, as Jobs do.
        weights: of the jobs, in the place of their own.
    """

    jobs: int | None = None
    parameters: tuple[tuple[str, float | int | str], ...] = ()
    noise: Noise | None = None
    later: tuple[tuple[str, float | int | str], ...] = ()
    limits: Guardrails = NO_LIMITS
    tpch_dir: str | None = None
    own: OwnTrace | None = None
    part: Part = "test"
    against: str | None = None
    corrections: Corrections = "policy"
    sticky: bool = False
    weights: Weights | None = None

    @property
    def corrects(self) -> bool | None:
        """What `simulate` is told: None leaves it to each policy."""
        return None if self.corrections == "policy" else self.corrections == "all"

    @property
    def interval(self) -> Callable[[Sequence[float]], Interval]:
        """What makes an interval of a figure by episode.

        Episodes of one's own trace are the same jobs in other orders: more or longer ones do not say more of others.

        Raises:
            InputError: the trace is gone.
        """
        if self.own is None:
            return mean_ci95
        size = self.scenario("own").jobs / part_of(self.own, self.part).jobs
        return partial(resampled_ci95, size=size)

    def check(self, name: str) -> None:
        """Raise InputError if a scenario cannot be had under these conditions."""
        if not self.is_tpch(name):
            self.scenario(name)
        elif self.tpch_dir is None:
            raise InputError(f"scenario {name} needs --tpch-dir DIR, the folder with 2g/adj_mat_1.npy")
        elif self != replace(
            self, noise=None, later=(), limits=NO_LIMITS, corrections="policy", sticky=False, weights=None
        ):
            raise InputError(
                f"scenario {name} knows no later parameters, other or corrected estimates, limits on holding, weights, "
                "or --sticky"
            )
        else:
            self.spark(name)

    def is_tpch(self, name: str) -> bool:
        """Tell whether a name is one of the `tpch_*` settings."""
        return self.own is None and name in SETTINGS

    def spark(self, name: str) -> SparkSetting:
        """Return one of the `tpch_*` settings as it is under these conditions.

        Raises:
            InputError: it has no such parameter.
        """
        jobs = {} if self.jobs is None else {"jobs": self.jobs}
        return SETTINGS[name].with_(**jobs | dict(self.parameters))

    def base(self, name: str) -> str:
        """Return the policy that a scenario is compared with."""
        if self.against is not None:
            return self.against
        return base_of(name) if self.own is None else _OWN_BASE

    def scenario(self, name: str) -> Scenario:
        """Return a scenario as it is under these conditions.

        Raises:
            InputError: it has no such parameter, or the trace is gone.
        """
        chosen = workload(name) if self.own is None else as_scenario(self.own, self.part)
        if self.jobs is not None:
            # As large a part of it is left out of the means.
            chosen = chosen.with_(jobs=self.jobs, warm=chosen.warm * self.jobs // chosen.jobs)
        chosen = replace(chosen.with_(**dict(self.parameters)), estimates=self.noise)
        return chosen.drifting(**dict(self.later)) if self.later else chosen


class Unit(NamedTuple):
    """One episode pair: a scenario and a seed under the policy and under the base."""

    scenario: str
    seed: int
    policy: str
    conditions: Conditions


class Pair(NamedTuple):
    """Mean figures of one seed, seconds."""

    jct_s: float
    base_jct_s: float
    p99_s: float
    base_p99_s: float
    max_s: float
    base_max_s: float
    held_s: float  # a job
    weighted_s: float  # mean JCT, each job by its weight
    base_weighted_s: float


@dataclass(frozen=True)
class Score:
    """A policy against its base in one scenario; percentages below zero are better."""

    scenario: str
    base: str
    seeds: int
    avg_jct_s: float
    ci95_s: float
    base_jct_s: float
    vs_base_pct: float
    vs_base_ci95: float
    p99_vs_base_pct: float
    max_vs_base_pct: float
    held_s_per_job: float
    # Of the mean in which each JCT counts by its job's weight; None where all weigh the same.
    weighted_vs_base_pct: float | None = None
    weighted_vs_base_ci95: float | None = None


def read_corrections(text: str) -> Corrections:
    """Read one of the three.

    Raises:
        InputError: it is none.
    """
    for each in get_args(Corrections):
        if text == each:
            return each  # type: ignore[no-any-return]
    raise InputError(f"--corrections: expected {', '.join(get_args(Corrections))}, got {text!r}")


def base_of(name: str) -> str:
    """Return the built-in policy that a scenario is compared with."""
    return _TPCH_BASE if name in SETTINGS else _BASES[workload(name).base]


def _episodes(unit: Unit) -> tuple[list[Episode], int]:
    """Run one seed under the policy and under the base; and how many jobs are left out of the means."""
    specs, limits = (unit.policy, unit.conditions.base(unit.scenario)), unit.conditions.limits
    if unit.conditions.is_tpch(unit.scenario):
        of, folder = unit.conditions.spark(unit.scenario), str(unit.conditions.tpch_dir)
        settings = (Setting(spec, of.executors, 0, limits) for spec in specs)
        return [run_tpch_seed(unit.seed, folder, of, each).episode for each in settings], 0
    chosen = unit.conditions.scenario(unit.scenario)
    trace = chosen.generate(unit.seed)
    if unit.conditions.weights is not None:
        trace = unit.conditions.weights(trace, unit.seed)
    if trace.jobs <= chosen.warm:
        raise InputError(f"{unit.scenario}: a warm-up of {chosen.warm} jobs leaves none of {trace.jobs}")
    play = partial(simulate, limits=limits, corrects=unit.conditions.corrects, sticky=unit.conditions.sticky)
    return [play(trace, chosen.executors, knowing(load(spec), trace)) for spec in specs], chosen.warm


def run_unit(unit: Unit) -> Pair:
    """Simulate one seed under both policies."""
    figures: list[tuple[float, float, float, float, float]] = []
    episodes, warm = _episodes(unit)
    for episode in episodes:
        jct_s = episode.job_jct_s[warm:]
        held_s = float(episode.job_held_s[warm:].mean())
        weighted_s = _weighted_mean(jct_s, episode.trace.job_weight[warm:])
        figures.append((float(jct_s.mean()), float(np.quantile(jct_s, 0.99)), float(jct_s.max()), held_s, weighted_s))
    (jct, p99, most, held, weighted), (base_jct, base_p99, base_most, _, base_weighted) = figures
    return Pair(jct, base_jct, p99, base_p99, most, base_most, held, weighted, base_weighted)


def _weighted_mean(values: FloatArray, weights: FloatArray) -> float:
    """Return the mean, bit for bit, where all weigh the same."""
    return float(np.average(values, weights=None if (weights == weights[0]).all() else weights))


def names_of(text: str) -> list[str]:
    """Read a comma-separated list of scenarios, each once; `all` is every one with random seeds and no data of others.

    Raises:
        InputError: no such scenario.
    """
    found: dict[str, None] = {}
    for name in (part.strip() for part in text.split(",")):
        found.update(dict.fromkeys([name] if name in SETTINGS else [each.name for each in workloads(name)]))
    return list(found)


def evaluate(
    policy: str,
    names: Sequence[str],
    seeds: Sequence[int],
    processes: int = 1,
    on_done: Callable[[int, int], None] | None = None,
    conditions: Conditions = Conditions(),
) -> list[Score]:
    """Return the policy's score in each scenario; after Ctrl-C in those of which two seeds or more are done.

    Args:
        policy: a name or the path of an ONNX file.
        names: scenarios; of a trace of one's own what it is to be called.
        seeds: of the episodes, the same for policy and base; at least two, for an interval.
        processes: how many; does not change the figures.
        on_done: told how many episodes pairs of how many are done.
        conditions: what is changed of the scenarios.
    """
    if len(seeds) < 2:
        raise InputError(f"expected at least 2 seeds for an interval, got {len(seeds)}")
    # Fail before the work begins; the published heuristics for Spark are known there only.
    for each in filter(None, (policy, conditions.against)):
        if each not in PEERS or not all(conditions.is_tpch(name) for name in names):
            load(each)
    for name in names:
        conditions.check(name)
    units = [Unit(name, seed, policy, conditions) for name in names for seed in seeds]
    pairs: dict[Unit, Pair] = {}
    with closing(over_processes(run_unit, units, processes)) as results:
        try:
            for unit, pair in zip(units, results, strict=True):
                pairs[unit] = pair
                if on_done is not None:
                    on_done(len(pairs), len(units))
        except KeyboardInterrupt:
            if len(pairs) < 2:
                raise
    done = {name: [pair for unit, pair in pairs.items() if unit.scenario == name] for name in names}
    return [_score(name, those, conditions) for name, those in done.items() if len(those) >= 2]


def _score(name: str, pairs: list[Pair], conditions: Conditions) -> Score:
    columns = {field: [getattr(pair, field) for pair in pairs] for field in Pair._fields}
    jct = conditions.interval(columns["jct_s"])
    change = paired_percent(columns["jct_s"], columns["base_jct_s"], conditions.interval)
    weighted: Interval | None = None
    if columns["weighted_s"] != columns["jct_s"]:
        weighted = paired_percent(columns["weighted_s"], columns["base_weighted_s"], conditions.interval)
    return Score(
        scenario=name,
        base=conditions.base(name),
        seeds=len(pairs),
        avg_jct_s=jct.mean,
        ci95_s=jct.ci95,
        base_jct_s=float(np.mean(columns["base_jct_s"])),
        vs_base_pct=change.mean,
        vs_base_ci95=change.ci95,
        p99_vs_base_pct=paired_percent(columns["p99_s"], columns["base_p99_s"]).mean,
        max_vs_base_pct=paired_percent(columns["max_s"], columns["base_max_s"]).mean,
        held_s_per_job=float(np.mean(columns["held_s"])),
        weighted_vs_base_pct=weighted.mean if weighted else None,
        weighted_vs_base_ci95=weighted.ci95 if weighted else None,
    )


def as_dict(policy: str, seeds: Sequence[int], scores: list[Score]) -> dict[str, object]:
    """Return scores as one JSON object; None where there is no percentage."""
    by_name = {score.scenario: only_finite(asdict(score)) for score in scores}
    return {"policy": policy, "seeds": list(seeds), "scenarios": by_name}


def conditions_of(scores: Mapping[str, Any]) -> str:
    """Return in words under which conditions scores were made, other than the scenarios' own; or nothing.

    >>> conditions_of({"conditions": {"set": ["load=0.9", "jobs=50"], "noise": "exact", "sticky": True}})
    'under other conditions: set load=0.9, jobs=50; noise exact; sticky'
    """
    changed = scores.get("conditions")
    if not isinstance(changed, dict) or not changed:
        return ""
    return f"under other conditions: {'; '.join(_told(name, value) for name, value in changed.items())}"


def _told(name: str, value: Any) -> str:
    return name if value is True else f"{name} {', '.join(value) if isinstance(value, list) else value}"
