"""How near is the shipped model to what is best for each scenario alone?

    python scripts/best_known.py [SCENARIO ...] [--seeds 8000-8039]    # all single tasks that holding pays for

Two yardsticks, on the same arrivals as the model. A rule of the `sjf-hold` family, five of whose parameters are
searched for on ten other seeds of this very scenario, which the model's networks were not taught on; it is printed, so
`fermata evaluate RULE` plays it. And where all jobs are either short or long, the best policy that never idles and the
best of all, by dynamic programming (`fermata.policy.theory`); on arrivals in continuous time they are what the solved
lattice makes of them.
Changes of the mean JCT against the scenario's base in percent, with 95% intervals.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.cli.interrupts import ended_in_a_line
from fermata.cli.options import seed_range
from fermata.policy.decide import Policy
from fermata.policy.errors import FermataError
from fermata.policy.registry import load
from fermata.policy.theory.chain import TwoClasses, default_caps, lattice_chain, lattice_states
from fermata.policy.theory.iteration import Family
from fermata.policy.theory.optimal import finest_slot_s, solve_families
from fermata.policy.theory.replay import replay_jct_s
from fermata.sim.metrics import Interval, mean_ci95
from fermata.sim.processes import Workers, cores
from fermata.sim.scenarios import Scenario, scenario
from fermata.sim.scenarios.two_sizes import TwoSizes
from fermata.sim.simulate import simulate
from fermata.sim.trace import Trace
from fermata.training.evaluate import base_of

SCENARIOS = ("express_k2", "express_k2_80", "express_k4", "norm200", "k8s_poisson", "k8s_cron", "syn_60", "syn_80")
TUNING_SEEDS, DRAWN, MOVED = range(3000, 3010), 120, 80
MAX_STATES = 600_000  # of a chain: some minutes
_ENDLESS = 1000  # longs waiting: more than there ever are

Floats = NDArray[np.float64]


class Hold(NamedTuple):
    """Parameters of `sjf-hold`, times in seconds."""

    split: float
    tau: float
    tau_per_long: float
    max_longs: int
    theta: float
    theta_per_short: float

    @property
    def spec(self) -> str:
        """The rule as a policy's name."""
        return "sjf-hold:" + ",".join(f"{name}={round(value, 3)}" for name, value in self._asdict().items())


class Sizes(NamedTuple):
    """What a rule's times are drawn in proportion to, seconds."""

    short_s: float
    long_s: float


class Row(NamedTuple):
    """One scenario: changes against its base, [seeds] percent, by what they are of; and the rule."""

    name: str
    change_pct: dict[str, Floats]
    rule: str


def means_s(of: Scenario, traces: Sequence[Trace], policy: Policy) -> Floats:
    """Return the mean JCT on each trace, [traces] seconds, warm-up left out."""
    return np.array([simulate(trace, of.executors, policy).job_jct_s[of.warm :].mean() for trace in traces])


def drawn_rule(rng: np.random.Generator, sizes: Sizes) -> Hold:
    """Draw a rule anywhere in the family."""
    short_s, long_s = sizes
    return Hold(
        split=math.sqrt(short_s * long_s),
        tau=rng.uniform(0.0, 0.6) * long_s,
        tau_per_long=rng.uniform(0.0, 0.3) * long_s,
        max_longs=int(rng.choice([3, 4, 6, 8, _ENDLESS])),
        theta=rng.uniform(0.0, 4.0) * short_s,
        theta_per_short=rng.uniform(0.0, 1.0) * short_s,
    )


def moved_rule(rng: np.random.Generator, sizes: Sizes, rule: Hold) -> Hold:
    """Draw a rule near one, two or three of whose parameters differ."""
    other, at = drawn_rule(rng, sizes)._asdict(), rule._asdict()
    for name in rng.choice(list(at), int(rng.integers(2, 4)), replace=False):
        near = at[name] + 0.2 * (other[name] - at[name])
        at[name] = other[name] if name == "max_longs" else near
    return Hold(**at)


def tuned_rule(of: Scenario, base: Policy, seeds: Sequence[int], drawn: int, moved: int) -> Hold:
    """Return the best of so many rules drawn anywhere and so many near the best so far.

    Args:
        of: what it is tuned to.
        base: what counts is the mean change against it, seed by seed.
        seeds: the traces.
        drawn: first.
        moved: after them.
    """
    traces = [of.generate(seed) for seed in seeds]
    sizes = Sizes(*(float(np.quantile(traces[0].stage_estimate_s, q)) for q in (0.3, 0.97)))
    base_s, rng = means_s(of, traces, base), np.random.default_rng(0)
    best, least = None, math.inf
    for k in range(drawn + moved):
        rule = drawn_rule(rng, sizes) if best is None or k < drawn else moved_rule(rng, sizes, best)
        value = float((means_s(of, traces, load(rule.spec)) / base_s).mean())
        if value < least:
            best, least = rule, value
    assert best is not None
    return best


def classes_of(of: Scenario) -> TwoClasses | None:
    """Return the two classes of a scenario, None if it has no such thing."""
    recipe = of.recipe
    if not isinstance(recipe, TwoSizes) or recipe.serial_fraction is not None:
        return None
    return TwoClasses(of.executors, 1.0 - recipe.long_share, recipe.short_s, recipe.long_s, recipe.load)


def optima_s(of: Scenario, traces: Sequence[Trace], max_states: int) -> dict[str, Floats]:
    """Return the mean JCTs, [traces] seconds, under the solved policies; none if there are too many states."""
    classes = classes_of(of)
    if classes is None:
        return {}
    slot_s = finest_slot_s(classes, max_states)
    if lattice_states(classes, round(classes.long_s / slot_s), default_caps(classes)) > max_states:
        return {}
    solutions = {each.family: each for each in solve_families(lattice_chain(classes, slot_s), 3e-4, quiet=True)}
    means: dict[str, Floats] = {}
    for name, family in (("never idle", Family.WORK_CONSERVING), ("optimum", Family.IDLING)):
        played = [
            replay_jct_s(solutions[family], trace.job_arrival_s, trace.stage_estimate_s > classes.short_s)
            for trace in traces
        ]
        means[name] = np.array([jct_s[of.warm :].mean() for jct_s in played])
    return means


def row_of(of: Scenario, seeds: Sequence[int], drawn: int, moved: int, max_states: int) -> Row:
    """Measure the model and its yardsticks on one scenario.

    Args:
        of: the scenario.
        seeds: of the traces that all are measured on.
        drawn: see `tuned_rule`.
        moved: likewise.
        max_states: of a chain; beyond, there is no optimum.
    """
    base = load(base_of(of.name))
    rule = tuned_rule(of, base, TUNING_SEEDS, drawn, moved).spec
    traces = [of.generate(seed) for seed in seeds]
    base_s = means_s(of, traces, base)
    means = {name: means_s(of, traces, load(spec)) for name, spec in (("model", "default"), ("rule", rule))}
    means |= optima_s(of, traces, max_states)
    return Row(of.name, {name: 100.0 * (each / base_s - 1.0) for name, each in means.items()}, rule)


def told(interval: Interval) -> str:
    """Write a mean and its interval."""
    return f"{interval.mean:+.2f} ± {interval.ci95:.2f}"


def table_of(rows: Sequence[Row]) -> str:
    """Write the rows in Markdown."""
    kinds = ("model", "rule", "never idle", "optimum")
    lines = ["| scenario | model | rule tuned to it | model - rule | best that never idles | optimum |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for row in rows:
        cells = [told(mean_ci95(row.change_pct[kind])) if kind in row.change_pct else "" for kind in kinds]
        cells.insert(2, told(mean_ci95(row.change_pct["model"] - row.change_pct["rule"])))
        lines.append(f"| `{row.name}` | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *(f"{row.name}: {row.rule}" for row in rows)])


def main() -> None:
    """Measure what was asked for and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", default=SCENARIOS, metavar="SCENARIO")
    parser.add_argument("--seeds", default="8000-8039", help="A-B (default %(default)s)")
    options = parser.parse_args()
    try:
        seeds = seed_range(options.seeds)
        chosen = [scenario(name) for name in options.scenarios]
    except FermataError as error:
        parser.exit(2, f"{error}\n")
    with Workers(cores()) as pool:
        asked = [pool.submit(row_of, of, seeds, DRAWN, MOVED, MAX_STATES) for of in chosen]
        rows = []
        for of, each in zip(chosen, asked, strict=True):
            rows.append(each.result())
            sys.stderr.write(f"{of.name} done\n")
    sys.stdout.write(table_of(rows) + "\n")


if __name__ == "__main__":
    with ended_in_a_line("best_known.py"):
        main()
