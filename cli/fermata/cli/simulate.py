"""`fermata simulate`: the figures of a policy on a trace, or on the episodes of a scenario."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Generator
from contextlib import closing, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fermata.cli.interrupts import InterruptError
from fermata.cli.options import (
    MaxHold,
    MaxWait,
    OtherEstimates,
    Sticky,
    TpchDir,
    blaming,
    check_apart,
    check_executors,
    check_least,
    check_limits,
    model_file,
    parameter,
    seed_range,
)
from fermata.cli.progress import progress_bar
from fermata.policy.errors import InputError

if TYPE_CHECKING:
    from fermata.sim.experiment import Run, Setting
    from fermata.sim.generate.estimates import Noise
    from fermata.sim.scenarios import Scenario
    from fermata.sim.simulate import Episode
    from fermata.sim.spark.settings import SparkSetting
    from fermata.sim.trace import Trace

app = typer.Typer(add_completion=False)

MOST_RETRIES = 6
SMALL_FILE = 1_000_000  # bytes of a trace that is read in a moment, compressed or not
PER_JOB_COLUMNS = ("id", "arrival_s", "start_s", "completion_s", "jct_s", "held_s")
# What the table calls the figures of --json.
FIGURES = {
    "avg_jct_s": "JCT, mean (s)",
    "p50_jct_s": "JCT, median (s)",
    "p95_jct_s": "JCT, 95% (s)",
    "p99_jct_s": "JCT, 99% (s)",
    "avg_wait_s": "wait, mean (s)",
    "held_s": "held, all jobs (s)",
    "avg_bounded_slowdown": "bounded slowdown, mean",
    "max_bounded_slowdown": "bounded slowdown, max",
    "utilization": "utilisation",
    "makespan_s": "makespan (s)",
    "jobs": "jobs counted",
    "failed_jobs": "of these failed",
    "decisions": "decisions",
    "events": "events",
    "wall_s": "simulated in (s)",
}


@app.command()
def simulate(
    policy: Annotated[str, typer.Option(help="A built-in policy, or the path of an .onnx file.")],
    trace: Annotated[str | None, typer.Option(help="A job trace; .xz or .gz is read as such, - is stdin.")] = None,
    scenario: Annotated[str | None, typer.Option(help="A scenario, of fermata trace list, instead of a trace.")] = None,
    seeds: Annotated[str | None, typer.Option(help="Needed with --scenario: A-B, or one seed.")] = None,
    tpch_dir: TpchDir = None,
    executors: Annotated[int | None, typer.Option(help="Size of the pool; default: the scenario's.")] = None,
    warmup: Annotated[
        int | None, typer.Option(help="First jobs that the means leave out; default: the scenario's, 0 for a trace.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a parameter of the scenario, such as load=0.9.")
    ] = None,
    max_hold: MaxHold = math.inf,
    max_wait: MaxWait = math.inf,
    sticky: Sticky = False,
    noise: OtherEstimates = None,
    fail: Annotated[
        float | None,
        typer.Option(
            help="Probability that an attempt at a task fails and is repeated; a failed job counts until it failed."
        ),
    ] = None,
    retries: Annotated[
        int | None, typer.Option(help="With --fail: failures that a stage may have before its job fails; default: 6.")
    ] = None,
    processes: Annotated[int, typer.Option("--jobs", help="Processes for several seeds; same figures.")] = 1,
    per_job: Annotated[str | None, typer.Option(help="Write the times of every job, as CSV.")] = None,
    record: Annotated[str | None, typer.Option(help="Write every decision, as JSON lines; for one episode.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Simulate a policy: how long jobs take, and why.

    Job completion times, what of them was wait, hold and run, slowdown and utilisation. A job's wait is the part of its
    JCT in which no task of it ran and it was not held. With several seeds each figure is the mean over the seeds, and
    --json adds all figures of each seed (per_seed) and half widths of 95% intervals (ci95); jobs, decisions, events and
    wall_s are sums. --executors changes the pool and keeps the scenario's jobs; --set executors=K draws jobs for K
    executors, at the same load. Ctrl-C prints the figures of the seeds, or in a single episode of the jobs, that are
    done, and exits 130.
    """
    check_executors(executors)
    check_least(1, {"--jobs": processes})
    check_least(0, {"--warmup": warmup})
    check_limits(max_hold, max_wait)
    if (trace is None) == (scenario is None):
        raise InputError("expected either --trace FILE or --scenario NAME")
    if trace is not None and (seeds is not None or settings):
        raise InputError("--seeds and --set belong to --scenario, not to --trace")
    if trace is not None and executors is None:
        raise InputError("--trace needs --executors K")
    if retries is not None and fail is None:
        raise InputError("--retries is of --fail, the failures that are repeated")
    for option, file in (("--per-job", per_job), ("--record", record)):
        if file == "-":
            raise InputError(f"{option}: standard output has the figures; expected the name of a file")
    check_apart({"--trace": trace, "--policy": model_file(policy), "--per-job": per_job, "--record": record})
    jobs = _small_episode(trace, scenario, seeds, settings or [], executors) if noise is None else None

    from fermata.policy.guardrails import Guardrails
    from fermata.policy.wording import counted
    from fermata.sim.experiment import Setting
    from fermata.sim.failures import Failures
    from fermata.sim.generate.estimates import read_noise

    limits = Guardrails(max_hold, max_wait)
    with blaming("--fail, --retries"):
        failures = Failures(fail, MOST_RETRIES if retries is None else retries) if fail else None
    wrong = None if noise is None else read_noise(noise)
    if trace is not None:
        setting, total = Setting(policy, executors or 1, warmup or 0, limits, sticky, failures), 1
        runs = _run_trace(trace, jobs, setting, record, wrong)
    elif str(scenario).startswith("tpch_"):
        from fermata.sim.spark.experiment import run_tpch, tpch_setting

        of = _spark_setting(str(scenario), settings or [])
        numbers = _tpch_seeds(of.name, seeds, tpch_dir, bool(record or sticky or fail or noise))
        setting, total = tpch_setting(of, policy, executors, warmup or 0, limits), len(numbers)
        runs = run_tpch(str(tpch_dir), of, numbers, setting, processes)
    else:
        chosen, numbers = _workload(str(scenario), seeds, settings or [], wrong)
        warm = chosen.warm if warmup is None else warmup
        setting, total = Setting(policy, executors or chosen.executors, warm, limits, sticky, failures), len(numbers)
        runs = _run_scenario(chosen, numbers, jobs, setting, processes, record)
    done, cut = _collect(runs, total, per_job, fails=failures is not None)
    if as_json:
        print(json.dumps(_figures(done, total) | ({"interrupted": True} if cut else {})))
    else:
        title = f"{policy} on {trace or scenario}, {counted(setting.executors, 'executor')}"
        _print_table(title, _figures(done, total), done)
    if cut:
        raise InterruptError(f"interrupted after {cut}; the figures are of these")


def _small_episode(
    trace: str | None, scenario: str | None, seeds: str | None, settings: list[str], executors: int | None
) -> Trace | None:
    """Return the jobs of a single episode and let it run as plain Python if it is small; None if it may be large.

    To be called before anything is imported that would be compiled.
    """
    from fermata.sim.effort import interpret_if_small
    from fermata.sim.trace_io import read_trace

    jobs: Trace | None = None
    if trace is not None:
        if os.path.isfile(trace) and os.path.getsize(trace) <= SMALL_FILE:
            jobs = read_trace(trace, executors=executors)
    elif not str(scenario).startswith("tpch_"):
        chosen, numbers = _workload(str(scenario), seeds, settings, None)
        executors = executors or chosen.executors
        jobs = chosen.generate(numbers[0]) if len(numbers) == 1 else None
    if jobs is not None and executors is not None:
        interpret_if_small(jobs, executors)
    return jobs


def _workload(name: str, seeds: str | None, settings: list[str], noise: Noise | None) -> tuple[Scenario, list[int]]:
    from fermata.sim.workloads import workload

    chosen = workload(name).with_(**dict(parameter(text) for text in settings))
    chosen = replace(chosen, estimates=noise)
    if seeds is None:
        raise InputError(f"--scenario {name} needs --seeds A-B")
    return chosen, seed_range(seeds)


def _spark_setting(name: str, settings: list[str]) -> SparkSetting:
    from fermata.sim.spark.settings import spark_setting

    return spark_setting(name).with_(**dict(parameter(text) for text in settings))


def _tpch_seeds(name: str, seeds: str | None, folder: str | None, others: bool) -> list[int]:
    if folder is None or seeds is None:
        raise InputError(f"--scenario {name} needs --seeds A-B and --tpch-dir DIR, the folder with 2g/adj_mat_1.npy")
    if others:
        raise InputError(f"--record, --sticky, --noise and --fail do not apply to --scenario {name}")
    return seed_range(seeds)


def _run_trace(
    path: str, jobs: Trace | None, setting: Setting, record: str | None, noise: Noise | None
) -> Generator[Run, None, None]:
    from fermata.policy.registry import load
    from fermata.sim.trace_io import read_trace

    load(setting.policy)  # a policy that cannot be used is said before a long trace is read
    if jobs is None:
        with progress_bar(f"reading {path}") as progress:
            jobs = read_trace(path, executors=setting.executors, progress=progress)
    yield _run_one(0, jobs if noise is None else noise(jobs, 0), setting, record)


def _run_scenario(
    scenario: Scenario, seeds: list[int], jobs: Trace | None, setting: Setting, processes: int, record: str | None
) -> Generator[Run, None, None]:
    from fermata.policy.registry import load
    from fermata.sim.experiment import run_seeds

    load(setting.policy)  # as above, before any process is started
    if len(seeds) > 1:
        if record is not None:
            raise InputError(f"--record is for one episode, not for {len(seeds)} seeds")
        yield from run_seeds(scenario, seeds, setting, processes)
        return
    yield _run_one(seeds[0], scenario.generate(seeds[0]) if jobs is None else jobs, setting.of(seeds[0]), record)


def _run_one(seed: int, jobs: Trace, setting: Setting, record: str | None) -> Run:
    """Run one episode, with its decisions recorded if `record` names a file; an interrupt keeps those made so far."""
    from fermata.policy.registry import load
    from fermata.sim.experiment import Run, run_trace
    from fermata.sim.files import atomic_output
    from fermata.sim.recording import Recorder
    from fermata.sim.simulate import Interrupted

    with progress_bar("simulating") as progress:
        if record is None:
            return Run(seed, *run_trace(jobs, setting, progress=progress))
        cut: Interrupted | None = None
        with atomic_output(record) as stream:
            recorder = Recorder(jobs, load(setting.policy).name, setting.limits, stream.write)
            try:
                return Run(seed, *run_trace(jobs, setting, observer=recorder, progress=progress))
            except Interrupted as caught:
                cut = caught
        raise cut


def _collect(
    runs: Generator[Run, None, None], total: int, per_job: str | None, *, fails: bool
) -> tuple[dict[int, dict[str, float]], str | None]:
    """Return the figures by seed, and after an interrupt what they are of: the seeds or, of a single one, the jobs."""
    from fermata.sim.files import atomic_output
    from fermata.sim.processes import uninterrupted
    from fermata.sim.simulate import Interrupted

    done: dict[int, dict[str, float]] = {}
    table = nullcontext() if per_job is None else atomic_output(per_job)
    bar = progress_bar("episodes") if total > 1 else nullcontext(lambda share: None)
    with table as stream, bar as progress, closing(runs):
        if stream is not None:
            stream.write(f"{','.join([*PER_JOB_COLUMNS, *['failed'] * fails])}\n".encode())
        try:
            for run in runs:
                with uninterrupted():
                    if stream is not None:
                        stream.write(_job_rows(run.episode, f"{run.seed}/" if total > 1 else "", fails=fails))
                    done[run.seed] = run.figures
                progress(len(done) / total)
        except KeyboardInterrupt as cut:
            if total == 1 and isinstance(cut, Interrupted) and cut.figures is not None:
                if stream is not None:
                    stream.write(_job_rows(cut.episode, "", fails=fails))
                return {0: cut.figures}, f"{cut.episode.trace.jobs} of {cut.jobs} jobs"
            if not done:
                raise
    return done, f"{len(done)} of {total} seeds" if len(done) < total else None


def _job_rows(episode: Episode, prefix: str, *, fails: bool) -> bytes:
    """Return the lines of the CSV for every job of an episode, the warm-up included; whether it failed, if any can."""
    text = io.StringIO()
    trace = episode.trace
    columns = [
        trace.job_arrival_s,
        episode.job_start_s,
        episode.job_completion_s,
        episode.job_jct_s,
        episode.job_held_s,
    ]
    if fails:
        columns.append(episode.job_failed.astype(int))
    ids = (f"{prefix}{job}" for job in trace.job_ids)
    csv.writer(text, lineterminator="\n").writerows(zip(ids, *(column.tolist() for column in columns), strict=True))
    return text.getvalue().encode()


def _figures(done: dict[int, dict[str, float]], total: int) -> dict[str, Any]:
    from fermata.sim.experiment import pooled

    return pooled(done) if total > 1 else next(iter(done.values()))


def _print_table(title: str, figures: dict[str, Any], done: dict[int, dict[str, float]]) -> None:
    from rich.table import Table

    from fermata.cli.tables import show
    from fermata.policy.wording import counted

    several = len(done) > 1  # a single seed, as after an interrupt, has no interval
    table = Table(title=f"{title}, {counted(len(done), 'seed')}" if "ci95" in figures else title)
    table.add_column("figure")
    table.add_column("mean ± 95%" if several else "value", justify="right")
    for key, label in FIGURES.items():
        if key not in figures:
            continue
        value = f"{figures[key]:,.4f}" if isinstance(figures[key], float) else f"{figures[key]:,}"
        table.add_row(label, value + (f" ± {figures['ci95'][key]:,.4f}" if several and key in figures["ci95"] else ""))
    show(table)
