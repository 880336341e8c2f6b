"""What a model learned as a chapter of a report."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fermata.policy.learned import ACTIONS
from fermata.policy.wording import counted
from fermata.sim.explain import figures
from fermata.sim.explain.explanation import Explanation
from fermata.sim.metrics import Interval
from fermata.sim.report.records import Chapter, Table

_UNKNOWN = "\N{EN DASH}"


def chapter_of(found: Explanation, *, seeded: bool = True) -> Chapter:
    """Return a chapter with all drawings that the numbers allow, and the tables behind them.

    Args:
        found: what was learned.
        seeded: false where it decided in a trace, which no seed draws.
    """
    tried = [each for each in found.importance if each.jct_percent is not None]
    dependence = found.dependence
    drawings = [figures.permutation(found.features)] if _some_decide(found) else []
    if tried:
        drawings.append(figures.worth(tried))
    if found.scored:
        drawings.append(figures.scored(found.scored))
    if dependence.on_next:
        drawings.append(figures.dependence_on_next(dependence.on_next))
    if dependence.on_longs:
        drawings.append(figures.dependence_on_longs(dependence.on_longs))
    if any(each.saves for each in dependence.on_next):
        drawings.append(figures.saving_on_next(dependence.on_next))
    drawings.append(figures.behaviour(found.behaviour))
    if found.distributions:
        drawings.append(figures.where_it_holds(found.distributions))
    return Chapter(
        name=f"What {found.name} learned",
        lead=_lead(found, seeded),
        drawings=drawings,
        tables=[_behaviour_table(found, seeded), _importance_table(found), *_scored_tables(found)],
        notes=_notes(found, seeded),
    )


def _some_decide(found: Explanation) -> bool:
    """Return whether any decision changes with a single feature."""
    return any(each.changed.mean > 0.0 for each in found.features)


def _lead(found: Explanation, seeded: bool) -> str:
    states = found.states
    held = int(states.held.sum())
    return (
        f"From {counted(len(states.rows), 'state')} in which it decided, in {', '.join(states.workloads)}; it "
        f"waited in {held:,}. {_seeds(states.seeds, seeded)}; each workload counts the same. "
        "The head is what shortest remaining work first would start, a unit its job's remaining work. "
        "JCT: job completion time."
    )


def _seeds(seeds: Sequence[int], seeded: bool) -> str:
    if not seeded:
        return "One schedule"
    return f"Seed {seeds[0]}" if len(seeds) == 1 else f"Seeds {seeds[0]} to {seeds[-1]}"


def _notes(found: Explanation, seeded: bool) -> list[str]:
    notes = []
    if len(found.states.seeds) == 1:
        notes.append(f"One {'seed' if seeded else 'schedule'}: there are no intervals.")
    if not _some_decide(found):
        notes.append("No decision changes where a single feature is dealt out anew among the states of a workload.")
    if not found.distributions:
        notes.append("It waited in none of these states, so there is nothing to set against all states.")
    if np.isnan(found.states.costs).all():
        notes.append(
            "A graph policy gives scores, not costs: what a hold saves is not known. It starts the head where it "
            "starts a stage of the job with the least remaining work; a hold of one stage counts as a wait. Inputs are "
            "named with their level and dealt out anew among all its rows. How many jobs wait cannot be changed "
            "without other jobs in the graph, so no dependence on it is drawn; nor were whole episodes run without "
            "an input."
        )
    if found.scored:
        notes.append(
            f"In {counted(int(found.states.scored.sum()), 'state')} a task in sight takes several executors. There "
            "the network is not asked: what could be started is scored, by the weights that ship or by those of the "
            "model's file, and the best is started, which counts as the head, or nothing if waiting is better. No "
            "feature of the network changes a decision there, and the dependence of the hold is of other states."
        )
    if found.dependence.states:
        notes.append(
            f"The dependence of the hold is over {found.dependence.states:,} states in which a job is the shortest "
            "that waits although most arrivals are under half its length. What follows from the number that is changed "
            "is changed with it."
        )
    else:
        notes.append("In no state was a long job the shortest that waits: the dependence of the hold is not drawn.")
    return notes


def _behaviour_table(found: Explanation, seeded: bool) -> Table:
    rows = [
        [
            each.name,
            f"{each.decisions:,}",
            *(_with_interval(share, 100.0, ".1f", "%") for share in each.shares),
            _with_interval(each.avg_held_s, 1.0, ",.2f"),
            _with_interval(each.avg_jct_s, 1.0, ",.2f"),
        ]
        for each in found.behaviour
    ]
    header = ["workload", "decisions", *(name.capitalize() for name in ACTIONS), "held, s a job", "mean JCT, s"]
    seeds = found.states.seeds
    told = _seeds(seeds, seeded) if len(seeds) == 1 else "Means over seeds with 95% intervals"
    return Table("How often it does what", f"{told}.", header, rows)


def _importance_table(found: Explanation) -> Table:
    rows = [
        [
            f"{each.name} (all)" if each.group else each.name,
            _with_interval(each.changed, 100.0, ".2f", "%"),
            _with_interval(each.shift, 1.0, ".3f"),
            _with_interval(each.jct_percent, 1.0, "+.2f", "%") if each.jct_percent else "",
        ]
        for each in (*found.groups, *found.features)
    ]
    return Table(
        "Every feature",
        "Decisions changed and shift of the estimates (by how many mean JCTs the cost of waiting moves against that of "
        "the head, each state at most 1) where the values are dealt out anew among the states of a workload; change of "
        "the mean JCT where the model reads the median instead, in whole episodes. “All” is a group together.",
        ["feature", "decisions changed", "shift of estimates", "JCT without it"],
        rows,
        folded=True,
    )


def _scored_tables(found: Explanation) -> list[Table]:
    if not found.scored:
        return []
    rows = [[each.name, _with_interval(each.changed, 100.0, ".2f", "%")] for each in found.scored]
    told = "Choices changed where it is dealt out anew among all stages that could be started in a workload's states."
    return [
        Table(
            "Everything that is read of stages where they are scored", told, ["", "choices changed"], rows, folded=True
        )
    ]


def _with_interval(found: Interval, scale: float, form: str, unit: str = "") -> str:
    if math.isnan(found.mean):
        return _UNKNOWN
    mean = f"{scale * found.mean:{form}}".replace("-", "\N{MINUS SIGN}") + unit
    return mean if math.isnan(found.ci95) else f"{mean} ± {scale * found.ci95:{form.replace('+', '')}}"
