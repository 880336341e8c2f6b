"""Recorded decisions of the simulator: small, named, and replayed to the same actions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.episodes import any_legal_action, one_stage_jobs, random_trace, stage, trace_of
from tests.processes import fermata

from fermata.policy.action import START
from fermata.policy.guardrails import Guardrails
from fermata.policy.record import Record, loads, replay
from fermata.policy.registry import HEURISTICS, load
from fermata.policy.state import IDLE
from fermata.sim.recording import Recorder
from fermata.sim.simulate import simulate
from fermata.sim.trace import Trace
from fermata.sim.trace_io import write_trace


def recorded(trace: Trace, executors: int, policy: str, limits: Guardrails) -> list[Record]:
    lines: list[bytes] = []
    recorder = Recorder(trace, policy, limits, lines.append)
    simulate(trace, executors, load(policy), limits=limits, observer=recorder)
    return [loads(line.decode()) for line in lines]


def test_a_record_names_what_it_decides_on_and_leaves_out_what_is_over() -> None:
    jobs = trace_of((0.0, [stage("a", 1)]), (0.0, [stage("b", 2), stage("c", 3, "b")]), (5.0, [stage("d", 1)]))
    first, second, third = recorded(jobs, 2, "fifo", Guardrails())
    assert first.labels == {"jobs": ["j0", "j1"], "stages": ["j0/a", "j1/b", "j1/c"]}
    assert [step.action.stage for step in first.steps] == [0, 1]
    assert second.labels == {"jobs": ["j1"], "stages": ["j1/b", "j1/c"]}
    assert second.state.now_s == 2.0
    assert [(step.action.kind, step.action.stage) for step in second.steps] == [(START, 1)]
    assert second.state.executor_job.tolist() == [IDLE, 0]  # the job that the other one worked on last is over
    assert third.labels == {"jobs": ["j2"], "stages": ["j2/d"]}
    assert third.state.recent_work_s.tolist() == [1.0, 5.0, 1.0]  # arrivals are remembered


def test_a_record_holds_the_edges_of_the_jobs_that_it_names() -> None:
    over = (0.0, [stage("a", 1)])
    diamond = (
        0.0,
        [stage("top", 3), stage("left", 1, "top"), stage("right", 2, "top"), stage("end", 1, "left", "right")],
    )
    first, *_, last = recorded(trace_of(over, diamond), 2, "fifo", Guardrails())
    assert first.labels["stages"][1:] == last.labels["stages"] == ["j1/top", "j1/left", "j1/right", "j1/end"]
    assert sorted(first.edges or ()) == [(1, 2), (1, 3), (2, 4), (3, 4)]
    assert sorted(last.edges or ()) == [(0, 1), (0, 2), (1, 3), (2, 3)]


@pytest.mark.parametrize("policy", ["sjf-hold:tau=2,split=4", *sorted(HEURISTICS)])
def test_a_record_replays_to_the_same_actions(policy: str) -> None:
    limits = Guardrails(max_hold_s=5.0)
    again, fallback = load(policy), HEURISTICS[policy.partition(":")[0]].eager()
    decisions = 0
    for seed in (1, 5):
        for record in recorded(random_trace(seed, 3), 3, policy, limits):
            assert replay(record, again, fallback) == record.steps
            assert record.limits == limits
            decisions += len(record.steps)
    assert decisions > 300


def test_recording_changes_nothing() -> None:
    trace = random_trace(11, 4)
    recorder = Recorder(trace, "any", Guardrails(), len)
    watched = simulate(trace, 4, any_legal_action(5), observer=recorder)
    alone = simulate(trace, 4, any_legal_action(5))
    np.testing.assert_array_equal(watched.task_end_s, alone.task_end_s)


def test_no_decisions_are_not_the_same_decisions(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    done = fermata("policy", "replay", str(empty))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"fermata: {empty}: holds no decisions; expected what --record wrote\n"


def test_what_is_no_text_is_no_record(tmp_path: Path) -> None:
    other = tmp_path / "model.onnx"
    other.write_bytes(b"\xff\x00")
    done = fermata("policy", "replay", str(other))
    assert (done.returncode, done.stdout) == (2, "")
    expected = "expected text, plain or compressed by xz or gzip"
    assert done.stderr == f"fermata: {other}:1: not UTF-8 text (invalid start byte); {expected}\n"


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_what_was_recorded_is_replayed_whatever_its_name(suffix: str, tmp_path: Path) -> None:
    trace, file = tmp_path / "trace.jsonl", tmp_path / f"decisions.jsonl{suffix}"
    write_trace(one_stage_jobs((0.0, 9.0), (0.0, 1.0)), trace)
    shown = ("--trace", str(trace), "--executors", "1", "--policy", "sjf", "--record", str(file))
    assert fermata("simulate", *shown).returncode == 0
    done = fermata("policy", "replay", str(file))
    assert (done.returncode, done.stdout, done.stderr) == (0, "2 decisions the same, 0 different\n", "")


def test_a_different_answer_is_told_with_its_time_and_by_whom(tmp_path: Path) -> None:
    lines: list[bytes] = []
    jobs = one_stage_jobs((1_795_564_261.5, 9.0), (1_795_564_261.5, 1.0))
    simulate(jobs, 1, load("fifo"), observer=Recorder(jobs, "fifo", Guardrails(), lines.append))
    file = tmp_path / "decisions.jsonl"
    file.write_bytes(b"".join(lines))
    done = fermata("policy", "replay", str(file), "--policy", "sjf")
    assert done.returncode == 1
    assert done.stdout.startswith(f"{file}:1: at 1795564261.5 s fifo decided otherwise than sjf does\n")
