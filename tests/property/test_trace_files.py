"""Any trace survives writing and reading, and no single mutation of a valid one gets through unnoticed."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fermata.policy.errors import InputError
from fermata.sim.exporters import write_swf
from fermata.sim.exporters.graphml import write_graphml
from fermata.sim.hpc.swf import read_log
from fermata.sim.importers.graphml import read_graphml
from fermata.sim.importers.swf import read_swf
from fermata.sim.trace import Trace
from fermata.sim.trace_builder import MAX_SLOTS, MAX_TIME_S, StageSpec, TraceBuilder, one_stage_trace, specs_of
from fermata.sim.trace_io import job_lines, read_trace, write_trace
from fermata.sim.trace_jobs import joined, select_jobs

times = st.floats(0.0, 1e12, allow_nan=False).map(lambda seconds: seconds + 0.0)
names = st.text(min_size=1, max_size=8).filter(lambda name: not name.isspace())


@st.composite
def stage_lists(draw: st.DrawFn) -> list[StageSpec]:
    """Stages of a random DAG, listed in an order that need not be parents first."""
    stages: list[StageSpec] = []
    for name in draw(st.lists(names, min_size=1, max_size=5, unique=True)):
        earlier = [stage.name for stage in stages]
        moldable = draw(st.booleans())
        stages.append(
            StageSpec(
                name=name,
                durations_s=draw(st.lists(times, min_size=1, max_size=1 if moldable else 4)),
                depends_on=draw(st.lists(st.sampled_from(earlier), unique=True)) if earlier else [],
                slots=1 if moldable else draw(st.integers(1, 300)),
                estimate_s=draw(st.none() | times),
                serial_fraction=draw(st.floats(0.0, 1.0)) if moldable else None,
            )
        )
    return draw(st.permutations(stages))


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    builder = TraceBuilder()
    for job_id in draw(st.lists(names, min_size=1, max_size=6, unique=True)):
        builder.add_job(job_id, draw(times), draw(stage_lists()), draw(st.floats(1e-9, 1e9)))
    return builder.finish()


_XML = str.maketrans({chr(code): "_" for code in (*range(32), 0xFFFE, 0xFFFF)})


def _as_xml_has_it(trace: Trace) -> Trace:
    """Names without the characters that XML cannot hold, or a discarded example; parents in the order of the stages."""
    ids, stages = [[name.translate(_XML) for name in names] for names in (trace.job_ids, trace.stage_names)]
    assume(len(set(ids)) == len(ids))
    for first, after in pairwise(trace.job_stage_ptr.tolist()):
        assume(len(set(stages[first:after])) == after - first)
    parent = [sorted(trace.parent[first:after].tolist()) for first, after in pairwise(trace.parent_ptr.tolist())]
    edges = np.array([each for above in parent for each in above], np.int32)
    return dataclasses.replace(trace, job_ids=ids, stage_names=stages, parent=edges)


def assert_equal(ours: Trace, theirs: Trace) -> None:
    for field in dataclasses.fields(Trace):
        left, right = getattr(ours, field.name), getattr(theirs, field.name)
        if isinstance(left, np.ndarray):
            assert left.dtype == right.dtype, field.name
            np.testing.assert_array_equal(left, right, err_msg=field.name)
        else:
            assert list(left) == list(right), field.name


def written(text: str) -> Path:
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", delete=False, encoding="utf-8") as file:
        file.write(text)
    return Path(file.name)


@given(traces(), st.sampled_from([".jsonl", ".jsonl.gz", ".jsonl.xz"]))
@settings(deadline=None, max_examples=150)
def test_what_is_written_is_read_back_bit_for_bit(trace: Trace, suffix: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"trace{suffix}"
        write_trace(trace, path)
        assert_equal(read_trace(path), trace)


@given(traces())
@settings(deadline=None, max_examples=60)
def test_what_is_written_as_graphml_is_read_back_bit_for_bit(trace: Trace) -> None:
    trace = _as_xml_has_it(trace)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.graphml"
        write_graphml(trace, path)
        assert_equal(read_graphml(path).trace, trace)


any_time = st.sampled_from([0.0, MAX_TIME_S]) | st.floats(0.0, MAX_TIME_S)
positive_time = st.floats(0.0, MAX_TIME_S, exclude_min=True)
rigid_jobs = st.tuples(any_time, any_time, st.integers(1, MAX_SLOTS), positive_time | st.just(MAX_TIME_S))


@given(st.lists(rigid_jobs, min_size=1, max_size=6))
@settings(deadline=None, max_examples=60)
def test_rigid_jobs_are_read_back_from_swf_bit_for_bit(jobs: list[tuple[float, float, int, float]]) -> None:
    arrival_s, duration_s, slots, estimate_s = zip(*jobs, strict=True)
    trace = one_stage_trace(arrival_s, duration_s, slots=slots, estimate_s=estimate_s)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.swf"
        write_swf(trace, path, executors=MAX_SLOTS)
        back, log = read_swf(path).trace, read_log(path)
    for ours, imported, read in (
        (trace.job_arrival_s, back.job_arrival_s, log.submit_s),
        (trace.task_duration_s, back.task_duration_s, log.runtime_s),
        (trace.stage_estimate_s, back.stage_estimate_s, log.estimate_s),
        (trace.stage_slots, back.stage_slots, log.cores),
    ):
        np.testing.assert_array_equal(ours, imported)
        np.testing.assert_array_equal(ours, read)


@given(traces(), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=100)
def test_selecting_jobs_is_the_same_as_building_only_those(trace: Trace, random: Any) -> None:
    chosen = sorted(random.sample(range(trace.jobs), random.randint(1, trace.jobs)))
    builder = TraceBuilder()
    for job in chosen:
        builder.add_job(
            trace.job_ids[job], float(trace.job_arrival_s[job]), specs_of(trace, job), float(trace.job_weight[job])
        )
    assert_equal(select_jobs(trace, chosen), builder.finish())


@given(traces(), traces())
@settings(deadline=None, max_examples=60)
def test_joining_traces_is_the_same_as_building_one_of_both(first: Trace, then: Trace) -> None:
    builder, begins_s = TraceBuilder(), float(first.job_arrival_s[-1])
    for trace, prefix, shift_s in ((first, "", 0.0), (then, "later-", begins_s)):
        for job in range(trace.jobs):
            arrival_s, weight = float(trace.job_arrival_s[job]) + shift_s, float(trace.job_weight[job])
            builder.add_job(prefix + trace.job_ids[job], arrival_s, specs_of(trace, job), weight)
    assert_equal(joined(first, then), builder.finish())


Mutation = Callable[[dict[str, Any], dict[str, Any]], None]


def time_key(stage: dict[str, Any]) -> str:
    return next(key for key in ("duration_s", "durations_s", "work_s") if key in stage)


def spoil_time(value: Any) -> Mutation:
    def spoil(_: dict[str, Any], stage: dict[str, Any]) -> None:
        key = time_key(stage)
        stage[key] = [value, *stage[key][1:]] if key == "durations_s" else value

    return spoil


def set_job(key: str, value: Any) -> Mutation:
    return lambda job, _: job.update({key: value})


def set_stage(key: str, value: Any) -> Mutation:
    return lambda _, stage: stage.update({key: value})


def more_tasks(_: dict[str, Any], stage: dict[str, Any]) -> None:
    """One task more than there are durations; equal durations are spelled out to make it a mistake."""
    if "duration_s" in stage:
        stage["durations_s"] = [stage.pop("duration_s")] * stage["tasks"]
    stage["tasks"] = stage.get("tasks", 1) + 1


MUTATIONS: dict[str, Mutation] = {
    "unknown job key": set_job("priority", 1),
    "unknown stage key": set_stage("durations", [1.0]),
    "no id": lambda job, _: job.pop("id"),
    "no arrival": lambda job, _: job.pop("arrival_s"),
    "no stages": lambda job, _: job["stages"].clear(),
    "no name": lambda _, stage: stage.pop("name"),
    "no time": lambda _, stage: stage.pop(time_key(stage)),
    "second time": lambda _, stage: stage.update({("work_s" if "duration_s" in stage else "duration_s"): 1.0}),
    "empty id": set_job("id", ""),
    "empty name": set_stage("name", " "),
    "name twice": lambda job, stage: job["stages"].append(dict(stage)),
    "negative arrival": set_job("arrival_s", -1e-9),
    "NaN arrival": set_job("arrival_s", float("nan")),
    "infinite arrival": set_job("arrival_s", float("inf")),
    "negative time": spoil_time(-1.0),
    "NaN time": spoil_time(float("nan")),
    "text time": spoil_time("1"),
    "null time": spoil_time(None),
    "negative estimate": set_stage("estimate_s", -1.0),
    "no tasks": set_stage("tasks", 0),
    "more tasks": more_tasks,
    "no slots": set_stage("slots", 0),
    "half a slot": set_stage("slots", 1.5),
    "true slots": set_stage("slots", True),
    "weight 0": set_job("weight", 0),
    "serial fraction": set_stage("serial_fraction", 1.5),
    "unknown parent": lambda _, stage: stage["depends_on"].append("\0 nobody"),
    "itself a parent": lambda _, stage: stage["depends_on"].append(stage["name"]),
    "parents no list": set_stage("depends_on", {}),
    "stage no object": lambda job, _: job["stages"].append("a"),
    "stages no list": set_job("stages", 1),
}


@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=MUTATIONS.keys())
@given(trace=traces(), random=st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=25)
def test_a_mutated_line_is_refused_by_its_number(mutation: Mutation, trace: Trace, random: Any) -> None:
    lines = list(job_lines(trace))
    spoiled = random.randrange(len(lines))
    job = json.loads(lines[spoiled])
    mutation(job, random.choice(job["stages"]))
    lines[spoiled] = json.dumps(job) + "\n"
    assert_refused_at(lines, spoiled + 1)


@given(trace=traces(), random=st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=50)
def test_a_line_that_is_cut_anywhere_is_refused_by_its_number(trace: Trace, random: Any) -> None:
    lines = list(job_lines(trace))
    spoiled = random.randrange(len(lines))
    text = lines[spoiled].rstrip("\n")
    lines[spoiled] = text[: random.randrange(1, len(text))] + "\n"
    assert_refused_at(lines, spoiled + 1)


@given(trace=traces())
@settings(deadline=None, max_examples=25)
def test_a_repeated_job_is_refused_where_it_is_repeated(trace: Trace) -> None:
    lines = list(job_lines(trace))
    assert_refused_at([*lines, lines[0]], len(lines) + 1)


def assert_refused_at(lines: list[str], number: int) -> None:
    path = written("".join(lines))
    try:
        with pytest.raises(InputError) as caught:
            read_trace(path)
    finally:
        path.unlink()
    assert caught.value.line == number
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
