"""What came of it: the same numbers on the terminal and in the report, with what they do not show."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import numpy as np
from rich.console import Console
from rich.table import Table

from fermata.cli.demo.examples import LEARNED, Setup
from fermata.cli.provenance import sha256, versions
from fermata.cli.tables import plain_table, show, with_interval
from fermata.policy.registry import shipped_model
from fermata.policy.wording import counted
from fermata.sim.demo import Result
from fermata.sim.demo.follow import Span, WorkflowView
from fermata.sim.demo.stream import LONG_S, SHORT_S
from fermata.sim.report import (
    Holds,
    HoldSummary,
    Report,
    Run,
    Schedule,
    Section,
    Tasks,
    difference,
    effects_of,
    run_figures,
    summary_of,
)
from fermata.sim.trace import FloatArray, IndexArray

BASE = "sjf"


def report_of(plan: Setup, result: Result) -> Report:
    """Return the report of a finished demonstration."""
    runs = [_run(plan, result, pool) for pool in plan.executors]
    base = next(run for run in runs if run.name == BASE)
    return Report(
        title="Fermata: three pools, the same workflows",
        lead=_lead(plan),
        sections=[
            Section(
                name="three pools",
                lead="",
                runs=runs,
                base=BASE,
                holds={run.name: _holds(run, base) for run in runs if run is not base},
            )
        ],
        caveats=_caveats(plan, result),
        provenance=_provenance(plan),
    )


def tell(result: Result, page: Report, path: Path, out: TextIO) -> None:
    """Print the outcome for people."""
    console = Console(file=out, highlight=False, markup=False, soft_wrap=True)
    total = len(result.workflows)
    console.print(f"\n{result.succeeded} of {total} workflows succeeded.\n")
    for view in result.workflows:
        if view.activity == "Failed":
            console.print(f"  {view.name} failed: {view.reason}")
    if not finished(page):
        return
    show(_table(page), file=out)
    console.print()
    for caveat in page.caveats:
        console.print(f"- {caveat}")
    console.print(f"\nreport: {path.resolve()}")


def finished(page: Report) -> bool:
    """Tell whether every pool has finished some workflow, so that there is something to compare."""
    return all(run.schedules for run in page.sections[0].runs)


def means_s(page: Report) -> dict[str, float]:
    """Return the mean JCT of every pool; 0 where none is finished."""
    return {run.name: float(run.schedules[0].jct_s.mean()) if run.schedules else 0.0 for run in page.sections[0].runs}


def _table(page: Report) -> Table:
    runs = page.sections[0].runs
    table = plain_table(("pool", "mean JCT", "wait", "held", "run", "max", f"against {BASE}, paired"))
    base = next(run for run in runs if run.name == BASE)
    for run in runs:
        numbers = run_figures(run)
        keys = ("avg_jct_s", "avg_wait_s", "avg_held_s", "avg_run_s", "max_jct_s")
        against = "base"
        if run is not base:
            found = difference(run, base)
            against = f"{with_interval(found.seconds, found.units)} s ({found.percent.mean:+.1f}%)"
        table.add_row(run.name, *(f"{numbers[key]:.2f} s" for key in keys), against)
    return table


def _holds(run: Run, base: Run) -> HoldSummary:
    pairs = zip(run.schedules, base.schedules, strict=False)  # either may have none
    return sum((summary_of(effects_of(ours, theirs)) for ours, theirs in pairs), HoldSummary())


def _run(plan: Setup, result: Result, pool: str) -> Run:
    """Return what became of a pool's workflows; without a schedule where none is finished."""
    own = [view for view in result.workflows if view.pool == pool]
    done = sorted((view for view in own if _is_done(view)), key=lambda view: (view.arrival_s, view.name))
    if not done:
        return Run(pool, [])
    place = {view.name: index for index, view in enumerate(done)} | {view.name: -1 for view in own if view not in done}
    tasks = [span for span in result.runs if span.workflow in place]
    holds = [span for span in result.holds if span.workflow in place]
    run_s = np.array([view.run_s for view in done], np.float64)
    meant_s = {submission.name: submission.work_s for submission in plan.stream.submissions}
    schedule = Schedule(
        executors=plan.executors[pool],
        job_ids=[result.keys[view.name] for view in done],
        arrival_s=np.array([view.arrival_s for view in done]) - result.start_s,
        start_s=np.array([view.start_s for view in done]) - result.start_s,
        completion_s=np.array([view.completion_s for view in done]) - result.start_s,
        held_s=np.array([view.held_s for view in done]),
        run_s=run_s,
        work_s=np.array([meant_s[view.name] for view in done]),  # classes need what it is meant to be
        busy_s=sum(span.end_s - span.start_s for span in tasks),
        tasks=Tasks(*_times(tasks, result.start_s), _places(tasks, place), np.ones(len(tasks), np.int32)),
        holds=Holds(*_times(holds, result.start_s), _places(holds, place), [""] * len(holds)),
    )
    return Run(pool, [schedule])


def _is_done(view: WorkflowView) -> bool:
    times = (view.arrival_s, view.start_s, view.completion_s, view.run_s)
    return view.activity == "Succeeded" and all(time_s is not None for time_s in times)


def _times(spans: Sequence[Span], start_s: float) -> tuple[FloatArray, FloatArray]:
    return np.array([span.start_s for span in spans]) - start_s, np.array([span.end_s for span in spans]) - start_s


def _places(spans: Sequence[Span], place: dict[str, int]) -> IndexArray:
    return np.array([place[span.workflow] for span in spans], np.int32)


def _lead(plan: Setup) -> str:
    each = len(plan.stream.submissions) // len(plan.pools) - 1
    executors = next(iter(plan.executors.values()))
    return (
        f"Each pool has {counted(executors, 'executor')} and got the same {each + 1} workflows at the same times: "
        f"{plan.stream.long} of one pod that takes {LONG_S:g} s, {each - plan.stream.long} of one pod that takes "
        f"{SHORT_S:g} s, and one DAG of five stages. They ran as Jobs and pods of an embedded control plane, started "
        "by the operator; only the containers are simulated."
    )


def _caveats(plan: Setup, result: Result) -> list[str]:
    each = len(plan.stream.submissions) // len(plan.pools)
    few = (
        f"{each} workflows are few. The interval is of this one stream, whose workflows share a queue; other "
        "streams differ more than it says, and on some of them holding loses. fermata evaluate measures many."
    )
    fallbacks = result.fallbacks.items()
    return [few, *(f"Pool {pool} was not always decided by its own policy: {why}" for pool, why in fallbacks)]


def _provenance(plan: Setup) -> dict[str, str]:
    policies = plan.policies
    facts = {
        "stream": f"express, {len(plan.stream.submissions)} workflows in all, load {plan.load:g}, seed {plan.seed}",
        "policies": ", ".join(f"{pool}: {policy}" for pool, policy in policies.items()),
        "versions": versions(),
    }
    if policies[LEARNED] == "default":
        facts["model"] = sha256(shipped_model())
    return facts
