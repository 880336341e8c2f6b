"""`fermata compare`: policies side by side on the same jobs, as one HTML page."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fermata.cli.extras import need
from fermata.cli.interrupts import InterruptError
from fermata.cli.options import (
    MaxHold,
    MaxWait,
    OtherEstimates,
    Sticky,
    TpchDir,
    check_apart,
    check_executors,
    check_folder,
    check_least,
    check_limits,
    check_output,
    model_file,
    parameter,
    path,
    policy_names,
    seed_range,
)
from fermata.cli.progress import progress_bar
from fermata.cli.provenance import command, sha256, versions
from fermata.policy.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from fermata.policy.guardrails import Guardrails
    from fermata.sim.compare.outcome import Comparison
    from fermata.sim.compare.run import Workload
    from fermata.sim.compare.sources import ScenarioSource, TpchSource
    from fermata.sim.generate.estimates import Noise
    from fermata.sim.report import Chapter, Report
    from fermata.sim.trace import Trace

app = typer.Typer(add_completion=False)

_EXPLAINED_SEEDS = 3  # the first ones; more make it slower and hardly clearer


@app.command()
def compare(
    policies: Annotated[str, typer.Option(help="Built-in policies or .onnx files, separated by commas.")],
    scenario: Annotated[
        list[str] | None, typer.Option(help="Scenarios, of fermata trace list; 'all' is every random one.")
    ] = None,
    more: Annotated[list[str] | None, typer.Argument(metavar="[SCENARIO]...", help="More scenarios.")] = None,
    trace: Annotated[str | None, typer.Option(help="A job trace instead; .xz or .gz is read as such.")] = None,
    seeds: Annotated[str | None, typer.Option(help="Needed with --scenario: A-B, or one seed.")] = None,
    base: Annotated[str | None, typer.Option(help="What the others are compared with; default: the first.")] = None,
    out: Annotated[Path, typer.Option(parser=path, help="Where the report goes.")] = Path("report.html"),
    figures: Annotated[Path | None, typer.Option(parser=path, help="A folder for every figure as SVG and PNG.")] = None,
    executors: Annotated[int | None, typer.Option(help="Size of the pool; default: the scenario's.")] = None,
    warmup: Annotated[
        int | None, typer.Option(help="First jobs that means leave out; default: the scenario's.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a parameter of the scenarios, such as load=0.9.")
    ] = None,
    tpch_dir: TpchDir = None,
    max_hold: MaxHold = math.inf,
    max_wait: MaxWait = math.inf,
    sticky: Sticky = False,
    noise: OtherEstimates = None,
    sweeps: Annotated[bool, typer.Option(help="Also run shorter episodes at other loads and size ratios.")] = True,
    sweep_seeds: Annotated[int, typer.Option(help="Seeds for each point of a sweep, the first of --seeds.")] = 3,
    explain: Annotated[bool, typer.Option(help="Say what a model among the policies learned.")] = True,
    processes: Annotated[int, typer.Option("--jobs", help="Processes; same figures.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print all numbers as one JSON object.")] = False,
) -> None:
    """Compare policies on the same jobs, in one HTML page.

    The page shows distributions, paired differences with 95% intervals, executors over time with holds hatched, where
    the time goes, queue and utilisation, the effect of load and size ratio, classes of jobs, the holds that cost and
    saved the most, and lower bounds. Ctrl-C reports on the seeds that are done, and exits 130.
    """
    from fermata.policy.guardrails import Guardrails
    from fermata.sim.generate.estimates import read_noise

    need("report")
    check_executors(executors)
    check_least(1, {"--jobs": processes, "--sweep-seeds": sweep_seeds})
    check_least(0, {"--warmup": warmup})
    check_limits(max_hold, max_wait)
    names = policy_names(policies)
    place = _place(names, base)
    names_of_scenarios = [part.strip() for text in (*(scenario or []), *(more or [])) for part in text.split(",")]
    if (trace is None) == (not names_of_scenarios):
        raise InputError("expected either --trace FILE or --scenario NAME...")
    check_output(out)
    check_apart({"--trace": trace, "--out": out})
    for name in names:
        check_apart({"--policies": model_file(name), "--out": out})
    if figures is not None:
        check_folder(figures)
    limits = Guardrails(max_hold, max_wait)
    wrong = None if noise is None else read_noise(noise)
    _load_all(names, names_of_scenarios)
    if trace is not None:
        if seeds is not None or settings:
            raise InputError("--seeds and --set belong to --scenario, not to --trace")
        workloads = [_trace_workload(trace, names, executors, warmup, limits, wrong, sticky=sticky, sweeps=sweeps)]
    else:
        if seeds is None:
            raise InputError("--scenario needs --seeds A-B")
        changes = dict(parameter(text) for text in settings or [])
        sources = _sources(names_of_scenarios, changes, tpch_dir, wrong, sticky=sticky)
        workloads = [
            _workload(source, names, seed_range(seeds), executors, warmup, limits, sticky, sweeps * sweep_seeds)
            for source in sources
        ]
    comparison, total, done = _run(workloads, place, processes)
    report = _report(comparison, total, done, names, seeds, trace)
    cut = f"interrupted after {done} of {total} episodes; the report is of these" if done < total else ""
    if explain and not cut:
        report, said = _with_chapters(report, workloads, names)
        cut = "" if said else "interrupted after all episodes; the report lacks what a model learned"
    _write(report, out, figures)
    _tell(comparison, report, out, figures, as_json=as_json, interrupted=bool(cut))
    if cut:
        raise InterruptError(cut)


def _place(names: list[str], base: str | None) -> int:
    if base is None:
        return 0
    if base not in names:
        raise InputError(f"--base: expected one of {', '.join(names)}, got {base!r}")
    return names.index(base)


def _load_all(names: list[str], scenarios: list[str]) -> None:
    """Fail before the work begins; the published simulators' heuristics are known to TPC-H alone."""
    from fermata.policy.registry import load
    from fermata.sim.spark.peers import PEERS
    from fermata.sim.spark.settings import SETTINGS

    elsewhere = not scenarios or any(each not in SETTINGS for each in scenarios)
    for name in names:
        if name not in PEERS:
            load(name)
        elif elsewhere:
            raise InputError(f"policy {name!r} is only of {', '.join(SETTINGS)}; expected no other scenario or trace")


def _sources(
    names: list[str], changes: dict[str, Any], tpch_dir: str | None, noise: Noise | None, *, sticky: bool
) -> list[ScenarioSource | TpchSource]:
    from fermata.sim.compare.sources import ScenarioSource, TpchSource
    from fermata.sim.spark.settings import SETTINGS
    from fermata.sim.workloads import workloads

    found: dict[str, ScenarioSource | TpchSource] = {}
    for name in names:
        if name in SETTINGS:
            if tpch_dir is None:
                raise InputError(f"--scenario {name} needs --tpch-dir DIR, the folder with 2g/adj_mat_1.npy")
            if sticky or noise is not None:
                raise InputError(f"--sticky and --noise do not apply to --scenario {name}")
            found[name] = TpchSource(tpch_dir, SETTINGS[name].with_(**changes))
            continue
        for each in workloads(name):
            found[each.name] = ScenarioSource(replace(each.with_(**changes), estimates=noise))
    return list(found.values())


def _workload(
    source: ScenarioSource | TpchSource,
    names: list[str],
    seeds: list[int],
    executors: int | None,
    warmup: int | None,
    limits: Guardrails,
    sticky: bool,
    sweep_seeds: int,
) -> Workload:
    from fermata.sim.compare.run import Workload
    from fermata.sim.compare.sources import TpchSource
    from fermata.sim.experiment import Setting

    if isinstance(source, TpchSource):
        size, warm, variations = source.setting.executors, 0, []
    else:
        size, warm = source.scenario.executors, source.scenario.warm
        variations = list(source.variations(executors or size)) if sweep_seeds else []
    chosen = [Setting(name, executors or size, warm if warmup is None else warmup, limits, sticky) for name in names]
    return Workload(source, chosen, seeds, variations, min(sweep_seeds, len(seeds)))


def _trace_workload(
    path: str,
    names: list[str],
    executors: int | None,
    warmup: int | None,
    limits: Guardrails,
    noise: Noise | None,
    *,
    sticky: bool,
    sweeps: bool,
) -> Workload:
    from fermata.sim.compare.run import Workload
    from fermata.sim.compare.sources import TraceSource
    from fermata.sim.experiment import Setting
    from fermata.sim.trace_io import read_trace

    if executors is None:
        raise InputError("--trace needs --executors K")
    with progress_bar(f"reading {path}") as progress:
        jobs = read_trace(path, executors=executors, progress=progress)
    if noise is not None:
        jobs = noise(jobs, 0)
    source = TraceSource("standard input" if path == "-" else Path(path).name, jobs, executors)
    chosen = [Setting(name, executors, warmup or 0, limits, sticky) for name in names]
    variations = list(source.variations()) if sweeps else []
    return Workload(source, chosen, [0], variations, int(sweeps), seeded=False)


def _run(workloads: list[Workload], base: int, processes: int) -> tuple[Comparison, int, int]:
    """Return what was run, how many units there were to run and how many were; an interrupt keeps what is done."""
    from fermata.sim.compare.outcome import Comparison
    from fermata.sim.compare.run import run_units, units_of
    from fermata.sim.processes import uninterrupted

    comparison = Comparison(workloads, base)
    units = units_of(workloads, base)
    done = 0
    with (
        progress_bar("episodes") as progress,
        closing(run_units(units, processes, lambda share: progress((done + share) / len(units)))) as results,
    ):
        progress(0.0)
        try:
            for unit, result in results:
                with uninterrupted():
                    comparison.add(unit, result)
                    done += 1
                progress(done / len(units))
        except KeyboardInterrupt:
            if not comparison.samples:
                raise
    return comparison, len(units), done


def _report(
    comparison: Comparison, total: int, done: int, names: list[str], seeds: str | None, trace: str | None
) -> Report:
    from fermata.sim.report import Report

    sections = comparison.sections()
    what = sections[0].name if len(sections) == 1 else f"{len(sections)} workloads"
    base = names[comparison.base]
    others = [name for name in names if name != base]
    lead = f"{', '.join(others)} against {base}: the same jobs at the same times." if others else f"{base} alone."
    caveats = []
    if done < total:
        caveats.append(f"Interrupted after {done} of {total} episodes: every figure is of what was done by then.")
    if len(sections[0].units) == 1:
        # A single policy, or a single job, is compared with nothing that an interval could be of.
        jobs = max(len(each.schedules[0].job_ids) - each.schedules[0].warm for part in sections for each in part.runs)
        differs = "differ by more than its intervals say" if others and jobs > 1 else "give other figures"
        caveats.append(f"One schedule of each policy: other arrivals may {differs}.")
    return Report(f"Fermata: {what}", lead, sections, caveats, _provenance(comparison, names, seeds, trace))


def _with_chapters(report: Report, workloads: list[Workload], names: list[str]) -> tuple[Report, bool]:
    """Return a report that says what models learned, and whether of all of them: an interrupt keeps what is done."""
    chapters: list[Chapter] = []
    try:
        chapters.extend(_chapters(workloads, names))  # one by one, so that those before an interrupt stay
    except KeyboardInterrupt:
        told = "Interrupted after all episodes: what a model learned is not said of every one."
        return replace(report, chapters=chapters, caveats=[*report.caveats, told]), False
    return replace(report, chapters=chapters), True


def _chapters(workloads: list[Workload], names: list[str]) -> Iterator[Chapter]:
    """Say of each model what it learned, from the first seeds of the scenarios and traces."""
    from fermata.policy.onnx_policy import OnnxPolicy
    from fermata.sim.compare.sources import ScenarioSource, TraceSource, loaded
    from fermata.sim.explain import Workload as Decided
    from fermata.sim.explain import explain as look_into
    from fermata.sim.explain.chapter import chapter_of

    decided, limits = [], workloads[0].settings[0].limits
    for each in workloads:
        setting, source = each.settings[0], each.source
        if isinstance(source, ScenarioSource):
            draw = source.scenario.generate
        elif isinstance(source, TraceSource):
            draw = partial(_the_trace, source.trace)
        else:  # the Spark model is another engine
            continue
        decided.append(Decided(source.name, setting.executors, draw, setting.warm, setting.sticky))
    for name in names if decided else []:
        if _model(name) is None:
            continue
        policy = loaded(name)
        if isinstance(policy, OnnxPolicy):
            with progress_bar(f"looking into {name}") as progress:
                seeds = workloads[0].seeds[:_EXPLAINED_SEEDS]
                found = look_into(policy, decided, seeds, limits=limits, top=0, progress=progress)
                # As the tables call it: models of several runs are all called policy.onnx.
                chapter = chapter_of(replace(found, name=name), seeded=workloads[0].seeded)
            yield chapter


def _the_trace(trace: Trace, _: int) -> Trace:
    return trace


def _provenance(comparison: Comparison, names: list[str], seeds: str | None, trace: str | None) -> dict[str, str]:
    from fermata.policy._jit import COMPILED

    packages = ["numpy", *(["numba"] if COMPILED else [])]
    if any(_model(name) for name in names):
        packages.append("onnxruntime")
    facts = {
        "command": command(),
        "seeds": seeds or "none: the trace is what it is",
        "policies": "; ".join(names),
    }
    for name in names:
        if (path := _model(name)) is not None:
            facts[f"model {name}"] = sha256(path)
    if trace is not None and Path(trace).is_file():  # what came through a pipe can be read only once
        facts["trace"] = f"{Path(trace).name}, {sha256(Path(trace))}"
    for workload in comparison.workloads:
        if (scenario := getattr(workload.source, "scenario", None)) is not None:
            facts[f"scenario {scenario.name}"] = ", ".join(f"{key}={each}" for key, each in scenario.parameters.items())
    facts["versions"] = versions(*packages)
    return facts


def _model(name: str) -> Path | None:
    """Return the file of a learned policy."""
    from fermata.policy.registry import LEARNED, shipped_model

    return shipped_model(name) if name in LEARNED else Path(name) if name.endswith(".onnx") else None


def _write(report: Report, out: Path, folder: Path | None) -> None:
    from fermata.sim.report import write, write_figures

    with progress_bar("drawing") as progress:
        write(report, out, progress)
    if folder is not None:
        with progress_bar("writing figures") as progress:
            write_figures(report, folder, progress)


def _tell(
    comparison: Comparison, report: Report, out: Path, folder: Path | None, *, as_json: bool, interrupted: bool
) -> None:
    if as_json:
        numbers = {"workloads": comparison.as_dict(), "provenance": report.provenance, "report": str(out)}
        print(json.dumps(numbers | ({"interrupted": True} if interrupted else {})))
        return
    from fermata.cli.tables import show

    show(_table(report))
    print(f"report: {out}" + (f"\nfigures: {folder}" if folder is not None else ""))


def _table(report: Report) -> Table:
    from fermata.cli.tables import plain_table, with_interval
    from fermata.sim.report import views_of

    table = plain_table(("", "policy", "mean JCT s", "change %", "wait", "held", "run", "p99"), texts=2)
    keys = ("avg_jct_s", "avg_wait_s", "avg_held_s", "avg_run_s", "p99_jct_s")
    for view in views_of(report):
        for place, row in enumerate(view.rows):
            found = row.difference
            change = "base" if found is None else with_interval(found.percent, found.units)
            mean_s, *others = (f"{row.figures[key]:,.{view.decimals}f}" for key in keys)
            table.add_row(view.section.name if place == 0 else "", row.run.name, mean_s, change, *others)
    return table
