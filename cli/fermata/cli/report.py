"""`fermata report`: what really ran in a pool, next to what a simulator makes of the same workflows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fermata.cli.clusters import Kubeconfig, ask
from fermata.cli.extras import need
from fermata.cli.history import (
    DEADLINE,
    SHARED_CAP,
    SUSPENDED,
    History,
    caps_of,
    mute_of,
    read_history,
    schedule_of,
    trace_of,
)
from fermata.cli.options import check_output, path, policy_names
from fermata.cli.provenance import command, versions
from fermata.policy.errors import InputError
from fermata.policy.wording import counted

if TYPE_CHECKING:
    from fermata.operator.cluster import Cluster
    from fermata.policy.decide import Policy
    from fermata.sim.report import Difference, Report, Run, Schedule

app = typer.Typer(add_completion=False)

REAL = "cluster"


@app.command()
def report(
    from_cluster: Annotated[bool, typer.Option("--from-cluster", help="Read what ran from a cluster's API.")] = False,
    pool: Annotated[str | None, typer.Option(help="The ExecutorPool; may be left out where there is one only.")] = None,
    policies: Annotated[
        str | None, typer.Option(help="Policies to simulate, separated by commas; default: the pool's own.")
    ] = None,
    out: Annotated[Path, typer.Option(parser=path, help="Where the report goes.")] = Path("report.html"),
    as_json: Annotated[bool, typer.Option("--json", help="Print all numbers as one JSON object.")] = False,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Set a pool's finished workflows beside simulations of them.

    The simulator replays them with the durations that they really had, under the pool's fallback and under its policy
    (in mode Shadow: what it would have done). What is simulated is called so; the difference of two simulations is what
    a policy is worth here, and the difference of the cluster to the simulation of what acted there is what the
    simulator leaves out. Workflows that cannot be simulated as they ran are simulated with the others, and not counted.
    """
    need("operator", "report")
    if not from_cluster:
        raise InputError("expected --from-cluster; fermata compare writes the report of simulations alone")
    check_output(out)
    history, own = ask(kubeconfig, lambda cluster: _read(cluster, pool, own=policies is None))
    page = _page(history, _chosen(history, own, policies))
    _write(page, out)
    _tell(page, history, out, as_json=as_json)


async def _read(cluster: Cluster, pool: str | None, *, own: bool) -> tuple[History, Policy | None]:
    """Return what ran in a pool, and its policy."""
    from fermata.operator.builtin import UnusablePolicyError
    from fermata.operator.model import load_policy

    history = await read_history(cluster, pool)
    if not own or history.pool.spec is None:
        return history, None
    try:
        return history, (await load_policy(history.pool.spec.policy, cluster)).policy
    except UnusablePolicyError as error:
        raise InputError(f"the policy of pool {history.pool.meta.name!r} cannot be simulated here ({error.message}); "
                         "name others with --policies") from error  # fmt: skip


def _chosen(history: History, own: Policy | None, policies: str | None) -> list[Policy]:
    """Return the policies to simulate, what never holds first: the base of all comparisons."""
    from fermata.operator.builtin import fallback_of
    from fermata.policy.registry import load

    spec = history.pool.spec
    base, _ = fallback_of(spec.fallback if spec else "sjf")
    others = [own] if own is not None else [load(name) for name in policy_names(policies or "")]
    return [base, *(policy for policy in others if policy.name != base.name)]


def _page(history: History, policies: Sequence[Policy]) -> Report:
    from fermata.operator.seat import limits_of
    from fermata.sim.compare.episodes import schedule_of as simulated_schedule
    from fermata.sim.experiment import knowing
    from fermata.sim.report import Report, Run, Section, only
    from fermata.sim.simulate import simulate

    trace, spec = trace_of(history), history.pool.spec
    if spec is None:
        raise InputError(f"pool {history.pool.meta.name!r} has no specification")
    if not history.count(""):
        raise InputError(f"nothing to compare in pool {history.pool.meta.name!r}: {'; '.join(_apart(history))}")
    # What is not counted is simulated all the same: it took executors from the others.
    kept, caps, mute = [not why for why in history.apart], caps_of(history), mute_of(history)
    runs = [Run(REAL, [only(schedule_of(history, trace), kept)])]
    for policy in policies:
        policy = knowing(policy, trace)
        episode = simulate(
            trace,
            spec.executors,
            policy,
            limits=limits_of(spec),
            fallback=policies[0],
            sticky=spec.give_back == "Stage",
            caps=caps,
            mute=mute,
        )
        runs.append(Run(f"simulated {policy.name}", [only(simulated_schedule(episode), kept)]))
    base = runs[1]
    section = Section(
        name=f"pool {history.pool.meta.name}",
        lead=_lead(history),
        runs=runs,
        base=base.name,
        holds={run.name: _holds(run.schedules[0], base.schedules[0]) for run in runs if run is not base},
    )
    return Report(
        title=f"Fermata: pool {history.pool.meta.name}",
        lead="What ran in a cluster, next to the same workflows simulated.",
        sections=[section],
        caveats=_caveats(history),
        provenance=_provenance(history, runs),
    )


def _holds(ours: Schedule, base: Schedule) -> Any:
    from fermata.sim.report import effects_of, summary_of

    return summary_of(effects_of(ours, base))


def _lead(history: History) -> str:
    spec = history.pool.spec
    mode = spec.mode if spec else ""
    acted = sorted({fact.status.policy or "unknown" for fact in history.facts})
    pool = f"a pool of {counted(history.executors, 'executor')} in mode {mode}"
    return (
        f"{_workflows(history.count(''))} that finished in {pool}, "
        f"decided by {', '.join(acted)}. “{REAL}” is what was measured there. Everything called “simulated” is the "
        "same workflows at the same times, with the durations that were measured, in the simulator."
    )


def _caveats(history: History) -> list[str]:
    from fermata.operator.builtin import fallback_of

    differs = "differ by more than its intervals say" if history.count("") > 1 else "give other figures"
    notes = [
        f"One stream of workflows, and they share a queue: another one may {differs}.",
        "The tasks of a stage are simulated as if all took the same: it is all that a status tells.",
        "The pool is simulated as large as it is now.",
        "The simulator starts tasks at once and nodes have room for them; a cluster takes a moment, and may not.",
    ]
    notes += [f"Left out: {_workflows(count)} {why}." for why, count in history.left_out.items()]
    if history.unfinished:
        notes.append("Long workflows are likelier to be among those that are not finished.")
    if history.failed:
        notes.append(f"Failed: {_workflows(history.failed)}, whose JCT lasts until then, measured and simulated alike.")
    if history.pool.spec is not None and (problem := fallback_of(history.pool.spec.fallback)[1]):
        notes.append(f"As in the cluster: {problem}.")
    return notes + [f"Simulated with the others, but not counted: {text}." for text in _apart(history)]


def _apart(history: History) -> list[str]:
    """Return how many workflows are not compared, and why, in words."""
    found = [(history.count(why), why) for why in (SHARED_CAP, SUSPENDED, DEADLINE)]
    return [f"{_workflows(count)} {why}" for count, why in found if count]


def _workflows(count: int) -> str:
    return counted(count, "workflow")


def _provenance(history: History, runs: Sequence[Run]) -> dict[str, str]:
    from fermata.operator.times import render

    spec = history.pool.spec
    return {
        "command": command(),
        "pool": f"{history.pool.meta.name}, policy {spec.policy.title if spec else ''}",
        "first arrival": render(history.begin_s),
        "runs": "; ".join(run.name for run in runs),
        "versions": versions(),
    }


def _write(page: Report, out: Path) -> None:
    from fermata.cli.progress import progress_bar
    from fermata.sim.report import write

    with progress_bar("drawing") as progress:
        write(page, out, progress)


def _tell(page: Report, history: History, out: Path, *, as_json: bool) -> None:
    from fermata.sim.json_values import only_finite
    from fermata.sim.report import views_of

    (view,) = views_of(page)
    rows = [
        {
            "name": row.run.name,
            "simulated": row.run.name != REAL,
            **{key: row.figures[key] for key in ("avg_jct_s", "avg_wait_s", "avg_held_s", "avg_run_s", "p99_jct_s")},
            "change_percent": row.difference.percent.mean if row.difference else 0.0,
            "change_percent_ci95": _ci95(row.difference),
        }
        for row in view.rows
    ]
    if as_json:
        facts = {"pool": history.pool.meta.name, "executors": history.executors, "base": view.section.base}
        counts = {"workflows": history.count(""), "unfinished": history.unfinished}
        counts |= {"shared_cap": history.count(SHARED_CAP), "suspended": history.count(SUSPENDED)}
        counts |= {"deadline": history.count(DEADLINE), "unfit": history.unfit}
        counts |= {"unrun": history.unrun, "untold": history.untold}
        print(json.dumps(only_finite({**facts, **counts, "runs": rows, "report": str(out)})))
        return
    print(f"{_workflows(history.count(''))} of pool {history.pool.meta.name}, {counted(history.executors, 'executor')}")
    width = max(len(str(row["name"])) for row in rows)
    for row in rows:
        spread = "" if row["change_percent_ci95"] is None else f" ± {row['change_percent_ci95']:.1f}"
        against = f"{row['change_percent']:+.1f}{spread}%"
        against = "base" if row["name"] == view.section.base else against
        mean_s, held_s = (f"{row[key]:,.{view.decimals}f} s" for key in ("avg_jct_s", "avg_held_s"))
        print(f"{row['name']:<{width}}  mean JCT {mean_s}, held {held_s}  {against}")
    for text in _apart(history):
        print(f"not counted: {text}")
    for why, count in history.left_out.items():
        print(f"left out: {_workflows(count)} {why}")
    print(f"report: {out}")


def _ci95(found: Difference | None) -> float | None:
    """Return half the width of a difference's interval: 0 for the base, None where one value says nothing of it."""
    if found is None:
        return 0.0
    return found.percent.t95 if found.units > 1 else None
