"""What the operator's replays make of random workloads: where a policy costs, its holding is paused.

    python scripts/random_workloads_paused.py [--slots] [--first 6000] [--workloads 1500] [--every 10] [--jobs 2]
    python scripts/random_workloads_paused.py [--slots] [--seeds 620000-620009] NUMBER [NUMBER ...]

Workloads are those of `scripts/random_workloads.py`; the first command plays every tenth of them, the second one those
of the numbers, on one seed or the mean of several: those that were chosen by some seeds are to be judged on others.
After every 50 arrivals the block before is replayed as the operator replays it (`fermata.operator.holding`), and while
that says that the policy costs, shortest first acts in its place. Replays know of each job what it took, also of those
that are not finished then, which a pool has to go on by estimates for, and when each would have ended had the policy
never been paused. Compares the mean JCT with the better of `sjf` and `srwf`, without the replays and with them.
"""

from __future__ import annotations

import argparse
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from random_workloads import AGAIN, BASES, BEHIND_PCT, MOST_EXECUTORS, Wide, draw, play_all, run, trace_of

from fermata.cli.options import seed_range
from fermata.operator.holding import (
    BLOCK,
    BLOCKS,
    REMEMBERED,
    TAIL,
    WARM,
    Block,
    Situation,
    compare,
    paused_after,
    savings,
)
from fermata.operator.past import PastJob, PastStage
from fermata.policy.action import Action
from fermata.policy.board import Board
from fermata.policy.decide import BoardPolicy, Policy, corrects_estimates
from fermata.policy.errors import InputError
from fermata.policy.guardrails import NO_LIMITS
from fermata.policy.heuristics.sjf import SJF
from fermata.policy.registry import load
from fermata.policy.rows import peek
from fermata.policy.wording import counted
from fermata.sim.metrics import paired_percent
from fermata.sim.scenarios import Scenario
from fermata.sim.simulate import simulate
from fermata.sim.trace import FloatArray, Trace
from fermata.sim.trace_builder import specs_of

FAR_PCT = 5.0


class Change(NamedTuple):
    """The change of the mean JCT against the better of the simple policies, percent."""

    number: int
    alone: float
    weighed: float
    paused: float  # share of the jobs that arrived meanwhile


@dataclass(frozen=True)
class Pausing(BoardPolicy):
    """A policy that another one stands in for from some times on, and no longer from others."""

    policy: BoardPolicy
    base: BoardPolicy
    times_s: Sequence[float]  # ascending: of the first on the base acts, of the second on the policy again, and so on

    @property
    def name(self) -> str:
        """Name of the policy that is paused."""
        return self.policy.name

    def act(self, board: Board) -> Action:
        """Return the action of the one whose turn it is."""
        paused = bisect_right(self.times_s, peek(board.pool).now_s) % 2 == 1
        return (self.base if paused else self.policy).act(board)


def past_jobs(trace: Trace, jct_s: FloatArray) -> list[PastJob]:
    """Return the jobs of a trace as an operator remembers them once they are finished, by the JCT that each had."""
    rows = zip(trace.job_arrival_s.tolist(), trace.job_weight.tolist(), jct_s.tolist(), strict=True)
    return [
        PastJob(arrival_s, f"{job:06d}", trace.job_ids[job], weight, _stages(trace, job), own_s)
        for job, (arrival_s, weight, own_s) in enumerate(rows)
    ]


def _stages(trace: Trace, job: int) -> tuple[PastStage, ...]:
    specs = specs_of(trace, job)
    place = {each.name: number for number, each in enumerate(specs)}
    stages = []
    for each in specs:
        mean_s, tasks = float(np.mean(each.durations_s)), len(each.durations_s)
        parents = tuple(place[name] for name in each.depends_on)
        stages.append(PastStage(each.name, parents, tasks, each.slots, tasks, mean_s, each.estimate_s or mean_s))
    return tuple(stages)


def pauses(jobs: Sequence[PastJob], situation: Situation) -> list[float]:
    """Return when holding is paused, when it is allowed again, and so on: seconds, ascending."""
    fresh, queued, paused, times_s = list[Block](), list[Block](), False, list[float]()
    for end in range(WARM + BLOCK + TAIL, len(jobs) + 1, BLOCK):
        known = jobs[max(0, end - REMEMBERED) : end]
        # It asks for the time only to give up after some seconds, which on a busy machine would be chance.
        block = compare(situation, known, len(known) - BLOCK - TAIL, lambda: 0.0)
        fresh.append(block.fresh)
        if not paused:
            queued.append(block.queued)
        if paused_after(savings(fresh[-BLOCKS:], queued[-BLOCKS:]), paused=paused) != paused:
            paused = not paused
            times_s.append(known[-1].arrival_s)
    return times_s


def play(policy: str, slots: bool, seeds: Sequence[int], number: int) -> Change:
    """Play the workload of a number without the operator's replays and with them."""
    workload, wide = draw(number, MOST_EXECUTORS), Wide.draw(number) if slots else None
    found = [_episode(policy, workload, trace_of(workload, seed, wide)) for seed in seeds]
    alone, weighed, paused, *bases = np.array(found).T
    changes = (max(paired_percent(jct_s, base_s).mean for base_s in bases) for jct_s in (alone, weighed))
    return Change(number, *changes, float(paused.mean()))


def _episode(policy: str, workload: Scenario, trace: Trace) -> list[float]:
    """Return the mean JCT of a policy without the operator's replays and with them, what is paused, and the bases'."""
    own, executors = load(policy), workload.executors
    past = past_jobs(trace, simulate(trace, executors, own).job_jct_s)
    times_s = pauses(past, Situation(own, SJF, SJF, NO_LIMITS, executors, sticky=False))

    def jct_s(of: Policy) -> float:
        episode = simulate(trace, executors, of, corrects=corrects_estimates(own) if of is weighed else None)
        return float(episode.job_jct_s[workload.warm :].mean())

    weighed = Pausing(own, SJF, times_s)
    paused = float((np.searchsorted(times_s, trace.job_arrival_s, "right") % 2).mean())
    return [jct_s(own), jct_s(weighed), paused, *(jct_s(load(name)) for name in BASES)]


def _told(name: str, changes: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> str:
    counts = ((changes < -BEHIND_PCT).sum(), (changes > BEHIND_PCT).sum(), (changes > FAR_PCT).sum())
    told = "over 1% faster in {}, slower in {}, over 5% slower in {}".format(*counts)
    middle = f"mean JCT {changes.mean():+.2f}%, median {np.median(changes):+.2f}%"
    return f"  {name}: {middle}; {told}; the worst {changes.max():+.1f}%"


def main() -> None:
    """Play all workloads and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("numbers", nargs="*", type=int, help="of workloads; all others are left out then")
    parser.add_argument("--policy", default="default")
    parser.add_argument("--first", type=int, default=6000, help="number of the first workload")
    parser.add_argument("--workloads", type=int, default=1500)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--seeds", default=str(AGAIN[0]), help="one, or A-B, over which is averaged")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--slots", action="store_true", help="tasks of some jobs take several executors")
    args = parser.parse_args()
    if min(args.workloads, args.every, args.jobs) < 1 or min(args.first, *args.numbers, 0) < 0:
        parser.error("expected --workloads, --every and --jobs of at least 1, and no number below 0")
    try:
        seeds = seed_range(args.seeds)
    except InputError as error:
        parser.error(str(error))
    numbers = args.numbers or range(args.first, args.first + args.workloads, args.every)
    played = play_all(partial(play, args.policy, args.slots, seeds), numbers, args.jobs)
    judged = f"{counted(len(seeds), 'seed')}, against the better of {' and '.join(BASES)}"
    print(f"{args.policy} on {len(played)} random workloads, {judged}:")
    print(_told("without replays", np.array([each.alone for each in played])))
    print(_told("with the operator's replays", np.array([each.weighed for each in played])))
    paused = sum(each.paused > 0.0 for each in played)
    print(f"  paused in {paused}, for {100 * np.mean([each.paused for each in played]):.1f}% of all jobs")
    for each in played if args.numbers else ():
        told = f"{each.alone:+.1f}%, with replays {each.weighed:+.1f}%; paused for {100 * each.paused:.0f}% of its jobs"
        print(f"  random-{each.number}: {told}")


if __name__ == "__main__":
    run(main)
