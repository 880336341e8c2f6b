"""The optimal policy of a named case, as a command: `python -m fermata.policy.theory.optimal --case NAME`.

A case is written as it is said: `k3_p.9_10_200_rho.7` is 3 executors, 90% short jobs, 10 s and 200 s, load 0.7. The
command solves SJF, the best work-conserving policy and the best policy on a lattice and on one twice as coarse, from
which it extrapolates to continuous time, then runs each on the same real arrivals. This is where the pieces of the
solver meet a person; nothing else in the product imports it.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fermata.policy.errors import InputError
from fermata.policy.state import FloatArray
from fermata.policy.theory.chain import Chain, TwoClasses, default_caps, lattice_chain, lattice_states
from fermata.policy.theory.iteration import Family, Solution, solve
from fermata.policy.theory.replay import replay_jct_s

_NUMBER = r"(\d*\.?\d+)"
_CASE = re.compile(rf"k(\d+)_p{_NUMBER}_{_NUMBER}_{_NUMBER}_rho{_NUMBER}")


def case(name: str) -> TwoClasses:
    """Return the classes that a name like `k3_p.9_10_200_rho.7` stands for.

    Raises:
        InputError: another form, or numbers that make no case.

    >>> case("k2_p.75_10_50_rho.8").executors
    2
    """
    match = _CASE.fullmatch(name)
    if match is None:
        raise InputError(f"case {name!r}: expected k<executors>_p<share of shorts>_<short s>_<long s>_rho<load>")
    executors, share, short_s, long_s, load = match.groups()
    try:
        return TwoClasses(int(executors), float(share), float(short_s), float(long_s), float(load))
    except ValueError as error:
        raise InputError(f"case {name!r}: {error}") from error


def finest_slot_s(classes: TwoClasses, max_states: int) -> float:
    """Return the shortest slot, an even part of what divides both durations, whose chain stays within `max_states`.

    Args:
        classes: durations in tenths of a second at the finest.
        max_states: upper limit, except that half the greatest common divisor of the durations is always allowed.

    Raises:
        InputError: durations that are finer.
    """
    short, long = round(classes.short_s * 10), round(classes.long_s * 10)
    if not (math.isclose(short, classes.short_s * 10) and math.isclose(long, classes.long_s * 10)):
        raise InputError(f"{classes.short_s:g} s and {classes.long_s:g} s: expected tenths of a second, or --slot")
    divisor_s = math.gcd(short, long) / 10
    caps, parts = default_caps(classes), 2
    while lattice_states(classes, round(classes.long_s / divisor_s * (parts + 2)), caps) <= max_states:
        parts += 2
    return divisor_s / parts


def extrapolated_mean_jct_s(fine: Solution, coarse: Solution) -> float:
    """Return the mean JCT in continuous time from lattices of one slot and of two, seconds.

    Args:
        fine: solved on the shorter slot.
        coarse: the same family on slots twice as long.

    Raises:
        ValueError: slots of another ratio.

    Source: Richardson extrapolation of an error proportional to the slot.
    """
    if not math.isclose(coarse.chain.period_s, 2.0 * fine.chain.period_s):
        raise ValueError(f"slots of {fine.chain.period_s:g} s and {coarse.chain.period_s:g} s are not 1 to 2")
    return 2.0 * fine.mean_jct_s - coarse.mean_jct_s


def sample(classes: TwoClasses, jobs: int, seed: int) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return arrival times, [jobs] seconds, and whether each job is long, from one seed.

    Source: the two-class workloads' recipe: gaps first, then one uniform number a job.
    """
    rng = np.random.default_rng(seed)
    arrival_s = np.cumsum(rng.exponential(1.0 / classes.rate_per_s, jobs))
    return arrival_s, rng.random(jobs) >= classes.short_share


@dataclass(frozen=True)
class Replayed:
    """Mean JCT of the three families on the same traces, seeds by families, warm-up left out, seconds."""

    mean_jct_s: FloatArray

    def against_sjf_pct(self, family: Family) -> tuple[float, float]:
        """Return the mean paired change against SJF and the half-width of its 95% interval, percent."""
        change = 100.0 * (self.mean_jct_s[:, family] / self.mean_jct_s[:, Family.SJF] - 1.0)
        # 1.96 is the normal quantile; with the default 40 seeds Student's is 3% wider.
        return float(change.mean()), float(1.96 * change.std(ddof=1) / math.sqrt(len(change)))


def solve_families(chain: Chain, tolerance: float, *, quiet: bool = False) -> list[Solution]:
    """Return the solutions for SJF, work-conserving and idling policies, each started from the one before.

    Args:
        chain: the tables.
        tolerance: relative half-width of the bounds.
        quiet: no progress line.
    """
    solutions: list[Solution] = []
    for family in Family:

        def show(sweep: int, mean_jct_s: float, error_s: float, name: str = family.name) -> None:
            sys.stderr.write(f"\r{name:16} sweep {sweep:6d}  mean JCT {mean_jct_s:9.3f} s +- {error_s:9.4f} s ")
            sys.stderr.flush()

        start = solutions[-1] if solutions else None
        solutions.append(solve(chain, family, tolerance=tolerance, start=start, progress=None if quiet else show))
        if not quiet:
            sys.stderr.write("\n")
    return solutions


def replay_families(solutions: list[Solution], jobs: int, warm: int, seeds: range) -> Replayed:
    """Return what the solved policies reach on sampled traces.

    Args:
        solutions: from `solve_families`.
        jobs: per trace.
        warm: the first jobs of a trace, left out of its mean.
        seeds: one trace each.
    """
    classes = solutions[0].chain.classes
    rows = []
    for seed in seeds:
        arrival_s, is_long = sample(classes, jobs, seed)
        rows.append([replay_jct_s(solution, arrival_s, is_long)[warm:].mean() for solution in solutions])
    return Replayed(np.array(rows))


def main(arguments: list[str] | None = None) -> None:
    """Solve a case and print one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m fermata.policy.theory.optimal", description=__doc__)
    parser.add_argument("--case", required=True, help="for example k3_p.9_10_200_rho.7")
    parser.add_argument("--slot", type=float, help="slot in seconds (default: the finest that --states allows)")
    parser.add_argument("--states", type=int, default=2_000_000, help="upper limit on states (default %(default)s)")
    parser.add_argument("--tolerance", type=float, default=2e-4, help="relative (default %(default)s)")
    parser.add_argument("--jobs", type=int, default=5000, help="jobs a trace to replay (default %(default)s)")
    parser.add_argument("--warm", type=int, default=500, help="of them left out (default %(default)s)")
    parser.add_argument("--seeds", type=int, default=40, help="traces to replay, at least 2 (default %(default)s)")
    options = parser.parse_args(arguments)
    if options.seeds < 2 or not 0 <= options.warm < options.jobs:
        parser.exit(2, "expected 2 --seeds or more, and a --warm from 0 to less than --jobs\n")
    try:
        classes = case(options.case)
        slot_s = options.slot or finest_slot_s(classes, options.states)
        chains = [lattice_chain(classes, 2.0 * slot_s), lattice_chain(classes, slot_s)]
    except InputError as error:
        parser.exit(2, f"{error}\n")
    except ValueError as error:
        parser.exit(2, f"--slot {options.slot:g}: twice the slot must divide both durations: {error}\n")
    began_s = time.perf_counter()
    coarse, fine = (solve_families(chain, options.tolerance) for chain in chains)
    replayed = replay_families(fine, options.jobs, options.warm, range(1000, 1000 + options.seeds))
    report: dict[str, object] = {"case": options.case, "slot_s": slot_s, "states": math.prod(chains[1].shape)}
    mean_jct_s = [extrapolated_mean_jct_s(*pair) for pair in zip(fine, coarse, strict=True)]
    for solution in fine:
        change_pct, ci95 = replayed.against_sjf_pct(solution.family)
        report[solution.family.name.lower()] = {
            "mean_jct_s": round(mean_jct_s[solution.family], 3),
            "vs_sjf_pct": round(100.0 * (mean_jct_s[solution.family] / mean_jct_s[Family.SJF] - 1.0), 2),
            "lattice_mean_jct_s": round(solution.mean_jct_s, 3),
            "replayed_mean_jct_s": round(float(replayed.mean_jct_s[:, solution.family].mean()), 3),
            "replayed_vs_sjf_pct": round(change_pct, 2),
            "replayed_vs_sjf_ci95": round(ci95, 2),
            "sweeps": solution.sweeps,
        }
    report["wall_s"] = round(time.perf_counter() - began_s, 1)
    sys.stdout.write(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
