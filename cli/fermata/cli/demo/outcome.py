"""What came of it: the same numbers on the terminal and in the report, with what they do not show."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.table import Table

from fermata.cli.demo.examples import LEARNED, Setup
from fermata.sim.demo import Result
from fermata.sim.demo.stream import LONG_S, SHORT_S
from fermata.sim.report import JobRecord, Report, Run, assign_executors, differences, figures_of

BASE = "sjf"


def report_of(plan: Setup, result: Result) -> Report:
    """Return the report of a finished demonstration."""
    return Report(
        title="Fermata: three pools, the same workflows",
        lead=_lead(plan),
        runs=[_run(plan, result, pool) for pool in plan.executors],
        base=BASE,
        caveats=_caveats(plan, result),
        provenance=_provenance(plan),
    )


def tell(plan: Setup, result: Result, page: Report, path: Path, out: TextIO) -> None:
    """Print the outcome for people."""
    console = Console(file=out, highlight=False, soft_wrap=True)
    total = len(result.workflows)
    console.print(f"\n{result.succeeded} of {total} workflows succeeded.\n")
    for view in result.workflows:
        if view.activity == "Failed":
            console.print(f"  {view.name} failed: {view.reason}")
    if not all(run.jobs for run in page.runs):
        return
    console.print(_table(page))
    console.print()
    for caveat in page.caveats:
        console.print(f"- {caveat}")
    console.print(f"\nreport: {path.resolve()}")


def _table(page: Report) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("pool")
    for name in ("mean JCT", "wait", "held", "run", "max", f"against {page.base}, paired"):
        table.add_column(name, justify="right")
    base = next(run for run in page.runs if run.name == page.base)
    for run in page.runs:
        numbers = figures_of(run)
        means = (numbers.avg_jct_s, numbers.avg_wait_s, numbers.avg_held_s, numbers.avg_run_s, numbers.max_jct_s)
        against = "base"
        if run is not base:
            found = differences(run, base)
            against = f"{found.mean_s.mean:+.2f} ± {found.mean_s.ci95:.2f} s ({found.percent:+.1f}%)"
        table.add_row(run.name, *(f"{seconds:.2f} s" for seconds in means), against)
    return table


def _run(plan: Setup, result: Result, pool: str) -> Run:
    own = {view.name: view for view in result.workflows if view.pool == pool}
    jobs = [
        JobRecord(
            id=result.keys[view.name],
            arrival_s=view.arrival_s - result.start_s,
            start_s=view.start_s - result.start_s,
            completion_s=view.completion_s - result.start_s,
            wait_s=view.wait_s,
            held_s=view.held_s,
            run_s=view.run_s,
        )
        for view in own.values()
        if view.activity == "Succeeded"
        and view.arrival_s is not None
        and view.start_s is not None
        and view.completion_s is not None
        and view.wait_s is not None
        and view.run_s is not None
    ]
    start_s = result.start_s
    tasks = [
        (span.start_s - start_s, span.end_s - start_s, span.workflow) for span in result.runs if span.workflow in own
    ]
    holds = [(span.start_s - start_s, span.end_s - start_s) for span in result.holds if span.workflow in own]
    spans = assign_executors(tasks, holds, plan.executors[pool])
    return Run(pool, plan.executors[pool], sorted(jobs, key=lambda job: job.arrival_s), spans)


def _lead(plan: Setup) -> str:
    each = len(plan.stream.submissions) // len(plan.pools) - 1
    executors = next(iter(plan.executors.values()))
    return (
        f"Each pool has {executors} executors and got the same {each + 1} workflows at the same times: "
        f"{plan.stream.long} of one pod that takes {LONG_S:g} s, {each - plan.stream.long} of one pod that takes "
        f"{SHORT_S:g} s, and one DAG of five stages. They ran as Jobs and pods of an embedded control plane, started "
        "by the operator; only the containers are simulated."
    )


def _caveats(plan: Setup, result: Result) -> list[str]:
    each = len(plan.stream.submissions) // len(plan.pools)
    few = (
        f"{each} workflows are few. The interval is over the workflows of this one stream, which share a queue; other "
        "streams differ more than it says, and on some of them holding loses. fermata evaluate measures many."
    )
    fallbacks = result.fallbacks.items()
    return [few, *(f"Pool {pool} was not always decided by its own policy: {why}" for pool, why in fallbacks)]


def _provenance(plan: Setup) -> dict[str, str]:
    policies = plan.policies
    facts = {
        "stream": f"express, {len(plan.stream.submissions)} workflows in all, load {plan.load:g}, seed {plan.seed}",
        "policies": ", ".join(f"{pool}: {policy}" for pool, policy in policies.items()),
        "versions": f"fermata {version('fermata')}, Python {platform.python_version()}",
    }
    if policies[LEARNED] == "default":
        facts["model"] = f"sha256 {_digest()}"
    return facts


def _digest() -> str:
    import hashlib

    from fermata.policy.registry import shipped_model

    return hashlib.sha256(shipped_model().read_bytes()).hexdigest()
