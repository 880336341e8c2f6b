"""`fermata trace`: bring traces in, send them out, make them up, and say what they are like."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict, astuple
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fermata.cli.clusters import Kubeconfig, ask
from fermata.cli.extras import need
from fermata.cli.options import MOST_JOBS, OtherEstimates, check_apart, check_stream, location, parameter
from fermata.cli.progress import progress_bar
from fermata.policy.errors import InputError
from fermata.policy.wording import amount, counted

if TYPE_CHECKING:
    from fermata.sim.importers.base import AsItRan
    from fermata.sim.trace import Trace
    from fermata.sim.trace_stats import TraceStats

app = typer.Typer(help="Import, export, generate and describe job traces.", no_args_is_help=True, add_completion=False)

_MAX_EXPONENT = math.log(sys.float_info.max)

Out = Annotated[
    str,
    typer.Option("--out", "-o", parser=location, help="Where to write it; .xz and .gz compress, - is standard output."),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything that is drawn.")]


@app.command("import")
def import_(
    context: typer.Context,
    format_: Annotated[
        str, typer.Argument(metavar="FORMAT", help="alibaba, csv, graphml, jsonl, kubernetes, swf, tpch or wfcommons.")
    ],
    file: Annotated[
        str,
        typer.Argument(
            parser=location, help="The file, or folder for graphml, tpch and wfcommons; - is standard input."
        ),
    ],
    out: Out,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after this many jobs.")] = None,
    keep_incomplete: Annotated[bool, typer.Option(help="Keep jobs with missing data, filled in.")] = False,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=NAME",
            help="In which column of a table something is: arrival, duration, start, end, slots, tasks, estimate,"
            " family, weight or id (csv).",
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Only rows with this value in this column; may be repeated (csv)."),
    ] = None,
    exact_estimates: Annotated[bool, typer.Option(help="Estimates are the real durations, not requests.")] = False,
    one_slot: Annotated[bool, typer.Option(help="Every task takes one slot.")] = False,
    executor: Annotated[
        str | None,
        typer.Option(
            metavar="RESOURCE=QUANTITY",
            help="What one executor is, as nvidia.com/gpu=1 or cpu=2; a task takes as many as its pod requests"
            " (kubernetes).",
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, max=MOST_JOBS, help="Jobs to sample (tpch).")] = 200,
    mean_gap_s: Annotated[
        float, typer.Option(min=0.0, help="Mean gap between jobs without arrivals (graphml, tpch, wfcommons).")
    ] = 25.0,
    seed: Seed = 0,
    sequence: Annotated[
        str, typer.Option(help="How to draw jobs (tpch): spark or decima, as those simulators.")
    ] = "spark",
) -> None:
    """Turn a trace in another format into a job trace.

    Says what was left out and why.
    """
    from fermata.sim.importers import IMPORTERS, OPTIONS_OF_SOME, ImportOptions
    from fermata.sim.importers.executor_size import ExecutorSize
    from fermata.sim.importers.tables import columns_of, values_of
    from fermata.sim.trace_builder import MAX_TIME_S
    from fermata.sim.trace_io import write_trace

    importer = IMPORTERS.get(format_)
    if importer is None:
        raise InputError(f"no format {format_!r}; there are: {', '.join(IMPORTERS)}")
    _need_for(format_)
    for option in sorted(OPTIONS_OF_SOME - importer.takes):
        given = context.get_parameter_source(option)
        if given is not None and given.name == "COMMANDLINE":
            raise InputError(f"--{option.replace('_', '-')} does not apply to {format_}")
    if mean_gap_s > MAX_TIME_S:
        raise InputError(f"--mean-gap-s: expected 0 to {MAX_TIME_S:g} s, got {mean_gap_s:g}")
    check_apart({"FILE": file, "--out": out})
    check_stream(out)
    if executor is not None and one_slot:
        raise InputError("--executor and --one-slot both say how many slots a task takes; expected one of them")
    size = ExecutorSize.parse(executor, "--executor") if executor is not None else None
    columns, wanted = columns_of(column or [], "--column"), values_of(where or [], "--where")
    with progress_bar(f"reading {file}") as progress:
        options = ImportOptions(
            limit=limit,
            keep_incomplete=keep_incomplete,
            exact_estimates=exact_estimates,
            one_slot=one_slot,
            executor=size,
            columns=columns,
            where=wanted,
            jobs=jobs,
            mean_gap_s=mean_gap_s,
            seed=seed,
            sequence=sequence,
            progress=progress,
        )
        imported = importer.read(file, options)
    write_trace(imported.trace, out)
    _say(f"{counted(imported.trace.jobs, 'job')}, {counted(imported.trace.tasks, 'task')} written to {out}")
    if imported.executors is not None:
        machine = counted(imported.executors, "processor")
        _say(f"the source's machine had {machine}: use --executors {imported.executors}")
    if imported.as_it_ran is not None:
        _say_how_it_ran(imported.as_it_ran)
    for reason, count in imported.skipped.items():
        _say(f"{counted(count, 'job')} left out: {reason}")


def _say_how_it_ran(ran: AsItRan) -> None:
    known = "" if ran.jobs is None else f" ({counted(ran.jobs, 'job')}; of the others nothing says when they started)"
    jct = f"as they ran{known}, the mean JCT was {amount(ran.mean_jct_s, 4)} s"
    if ran.executors:
        _say(f"{jct}, and they took at most {counted(ran.at_once, 'executor')} at one time")
        return
    _say(f"{jct}, and at most {counted(ran.at_once, 'task')} ran at one time")
    for name, most in sorted(ran.devices.items()):
        _say(f"a task requests up to {most:g} of {name}: if these are what is short, use --executor {name}=1")


@app.command("export")
def export(
    out: Out,
    file: Annotated[str | None, typer.Argument(help="A job trace.")] = None,
    format_: Annotated[str, typer.Option("--format", "-f", help="graphml, jsonl, swf or wfcommons.")] = "jsonl",
    job: Annotated[str | None, typer.Option(help="Only the job of this id.")] = None,
    executors: Annotated[
        int | None, typer.Option(min=1, help="Size of the machine, for swf, whose header has it.")
    ] = None,
    from_cluster: Annotated[
        bool, typer.Option("--from-cluster", help="Instead of a file: what finished in a pool of a cluster.")
    ] = False,
    pool: Annotated[
        str | None, typer.Option(help="With --from-cluster: the ExecutorPool, if there are several.")
    ] = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Write a job trace in another format, or of a cluster.

    Of a cluster it writes what really ran in a pool, as a job trace.
    """
    from fermata.sim.exporters import EXPORTERS, write_swf
    from fermata.sim.trace_jobs import select_jobs

    exporter = EXPORTERS.get(format_)
    if exporter is None:
        raise InputError(f"no format {format_!r}; there are: {', '.join(EXPORTERS)}")
    _need_for(format_)
    if executors is not None and format_ != "swf":
        raise InputError(f"--executors is for swf, whose header has the size of the machine, not for {format_}")
    if (file is None) == (not from_cluster):
        raise InputError("expected either a FILE or --from-cluster")
    if not from_cluster and (pool is not None or kubeconfig is not None):
        raise InputError("--pool and --kubeconfig go with --from-cluster, not with a FILE")
    check_apart({"FILE": file, "--out": out})
    check_stream(out)
    trace = _read(file) if file is not None else _from_cluster(pool, kubeconfig)
    if job is not None:
        if job not in trace.job_ids:
            raise InputError(f"no job {job!r}", file=file)
        trace = select_jobs(trace, [trace.job_ids.index(job)])
    if format_ == "swf":
        write_swf(trace, out, executors)
        if executors is None:
            size = "as a job trace does not say how large the machine is; --executors K writes it"
            _say(f"no MaxProcs in the header, {size}")
    else:
        exporter(trace, out)
    if format_ in ("swf", "wfcommons") and (trace.job_weight != 1.0).any():
        _say("weights of jobs left out: the format has none")
    if format_ == "wfcommons" and _is_estimated(trace):
        _say("estimates left out: the format has none")


def _need_for(format_: str) -> None:
    """Make sure that there is what a format needs beyond the core: networkx, for GraphML alone."""
    if format_ == "graphml":
        need("sim")


def _is_estimated(trace: Trace) -> bool:
    """Return whether some stage's estimate is not what its tasks really take on average."""
    import numpy as np

    from fermata.sim.trace_jobs import mean_task_s

    return not np.allclose(trace.stage_estimate_s, mean_task_s(trace))


def _from_cluster(pool: str | None, kubeconfig: Path | None) -> Trace:
    from fermata.cli.history import SUSPENDED, read_history, trace_of

    history = ask(kubeconfig, lambda cluster: read_history(cluster, pool))
    finished = counted(len(history.jobs), "finished workflow")
    _say(f"{finished} of pool {history.pool.meta.name}: use --executors {history.executors}")
    for why, count in history.left_out.items():
        _say(f"{counted(count, 'workflow')} left out: {why}")
    if history.capped:
        capped = counted(history.capped, "workflow")
        _say(f"{capped} had a parallelism set, which a trace does not say")
    if history.failed:
        _say(f"{counted(history.failed, 'workflow')} failed, which a trace does not say")
    if kept := history.count(SUSPENDED):
        _say(f"{counted(kept, 'workflow')} suspended for a while, or not accepted, which a trace does not say")
    return trace_of(history)


@app.command("generate")
def generate(
    out: Out,
    scenario: Annotated[str | None, typer.Option(help="A scenario, or another kind; see fermata trace list.")] = None,
    kind: Annotated[str | None, typer.Option(help="Another kind of workload.")] = None,
    seed: Seed = 0,
    jobs: Annotated[int | None, typer.Option(min=1, help="Number of jobs.")] = None,
    executors: Annotated[int | None, typer.Option(min=1, help="Executors that the load is meant for.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a parameter, such as load=0.9 or arrivals.batch=8.")
    ] = None,
    noise: OtherEstimates = None,
) -> None:
    """Write a job trace as a scenario draws it.

    The episode of a benchmark scenario, or of another kind of workload, for a seed.
    """
    from fermata.sim.generate.estimates import read_noise
    from fermata.sim.trace_io import write_trace

    check_stream(out)
    wrong = None if noise is None else read_noise(noise)
    changes: dict[str, Any] = dict(parameter(text) for text in settings or [])
    changes.update({key: value for key, value in (("jobs", jobs), ("executors", executors)) if value is not None})
    workload = _workload(scenario, kind).with_(**changes)
    trace = workload.generate(seed)
    write_trace(trace if wrong is None else wrong(trace, seed), out)
    if "jobs" in changes and trace.jobs != workload.jobs:
        written = f"{counted(trace.jobs, 'job')} written, not {workload.jobs:,}"
        _say(f"{written}: {workload.name} makes no such number of them")


@app.command("list")
def list_() -> None:
    """List benchmark scenarios and other kinds of workload.

    With their parameters, which --set changes.
    """
    from fermata.sim.generate import GENERATORS
    from fermata.sim.scenarios import SCENARIOS

    for title, workloads in (("scenarios (--scenario)", SCENARIOS), ("other kinds (--scenario, too)", GENERATORS)):
        print(title)
        for each in workloads.values():
            size = f"{counted(each.executors, 'executor')}, {counted(each.jobs, 'job')}"
            print(f"  {each.name}: {size}, {each.recipe}")


@app.command("stats")
def stats(
    file: Annotated[str, typer.Argument(help="A job trace; - is standard input.")],
    executors: Annotated[
        int | None, typer.Option(min=1, help="Adds the load on this many; every task has to fit.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what a trace is like: work, sizes, load, burstiness.

    Also how wide its jobs are, and how good their estimates.
    """
    from fermata.sim.json_values import only_finite
    from fermata.sim.trace_stats import trace_stats

    figures = trace_stats(_read(file, executors), executors)
    if as_json:
        print(json.dumps(only_finite(asdict(figures))))
    else:
        _print_stats(figures, executors)


def _print_stats(figures: TraceStats, executors: int | None) -> None:
    sizes = figures.sizes
    burstiness = "unknown: no two jobs arrive apart"
    if figures.span_s > 0.0:
        known = f"{figures.dispersion:.2f} (1 is Poisson)" if figures.has_windows else "unknown of so few gaps"
        burstiness = f"{known}; gaps' squared variation {figures.gap_cv2:.2f}"
    rows = [
        ("jobs, stages, tasks", f"{figures.jobs:,}, {figures.stages:,}, {figures.tasks:,}"),
        ("span of arrivals", f"{amount(figures.span_s, 6)} s, mean gap {amount(figures.mean_gap_s, 4)} s"),
        ("burstiness", burstiness),
        ("work", f"{amount(figures.total_work_s, 6)} executor-seconds"),
    ]
    if executors is not None:
        load = "unknown: no two jobs arrive apart" if figures.load is None else f"{figures.load:,.3f}"
        rows.append((f"load on {counted(executors, 'executor')}", load))
    for name, unit, spread in (
        ("work of a job", " s", figures.job_work_s),
        ("critical path", " s", figures.critical_path_s),
        ("average width", "", figures.width),
        ("task duration", " s", figures.task_duration_s),
    ):
        mean, p50, p95, most = (amount(each, 4) for each in astuple(spread))
        rows.append((name, f"mean {mean}{unit}, p50 {p50}, p95 {p95}, max {most}"))
    mix = f"{sizes.short_share:.1%} short ({amount(sizes.short_mean_s, 4)} s), long {amount(sizes.long_mean_s, 4)} s"
    mix += f", ratio 1:{amount(sizes.ratio, 3)}"
    rows.append(("size classes", mix if sizes.distinct else "one"))
    rows.append(("estimates", _estimates(figures)))
    width = max(len(name) for name, _ in rows)
    for name, shown in rows:
        print(f"{name:<{width}}  {shown}")


def _estimates(figures: TraceStats) -> str:
    """Say how good the estimates are, of the stages that have one and take any time."""
    known = figures.estimated_stages
    if known == 0:
        return "none: no stage has an estimate above 0 and takes any time"
    middle, error = figures.estimate_ratio, figures.estimate_error
    factor = math.exp(error) if error < _MAX_EXPONENT else math.inf
    told = f"typically {amount(middle, 3)} times the duration, give or take a factor of {amount(factor, 3)}"
    return told if known == figures.stages else f"{told}; of {known:,} of the stages: in the others one of the two is 0"


def _read(file: str, executors: int | None = None) -> Trace:
    from fermata.sim.trace_io import read_trace

    with progress_bar(f"reading {file}") as progress:
        return read_trace(file, executors=executors, progress=progress)


def _workload(scenario: str | None, kind: str | None) -> Any:
    from fermata.sim.generate import GENERATORS
    from fermata.sim.workloads import workload

    if (scenario is None) == (kind is None):
        raise InputError("expected either --scenario NAME or --kind NAME; `fermata trace list` shows both")
    if scenario is not None:
        return workload(scenario)
    if kind not in GENERATORS:
        raise InputError(f"no kind {kind!r}; there are: {', '.join(GENERATORS)}")
    return GENERATORS[kind]


def _say(text: str) -> None:
    typer.echo(text, err=True)
