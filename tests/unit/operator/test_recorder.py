"""Decisions on disk, and decisions without a disk."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from tests.disk import files_end_at
from tests.unit.operator.objects import stage, workflow
from tests.unit.operator.world import World

from fermata.operator.recorder import Recorder
from fermata.policy.record import loads
from fermata.policy.registry import load


def _submit(world: World, recorder: Recorder, name: str) -> None:
    """Let a workflow arrive and be decided on."""
    object.__setattr__(world.reconciler._tools, "recorder", recorder)
    world.feed("workflows", f"uid-{name}", workflow(name, stage("a", estimateSeconds=9), arrival_s=world.now_s))
    asyncio.run(world.run_until(world.now_s + 1.0))
    assert name in world.started


def test_a_full_disk_costs_records_and_no_decisions(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file, world = tmp_path / "decisions.jsonl", World(executors=9)
    with caplog.at_level(logging.WARNING), Recorder(file) as recorder:
        _submit(world, recorder, "first")
        size = file.stat().st_size
        with files_end_at(size + 100):
            _submit(world, recorder, "second")
            _submit(world, recorder, "third")
            assert file.stat().st_size == size, "half a line"
        _submit(world, recorder, "fourth")
    told = [record.getMessage() for record in caplog.records if "recorded" in record.getMessage()]
    assert told == [
        f"decisions are not recorded in {file}: File too large",
        f"decisions are recorded in {file} again; 2 are missing",
    ]
    records = [loads(line) for line in file.read_text().splitlines()]
    assert "uid-fourth" in records[-1].labels["jobs"]


def test_a_device_that_takes_nothing_stops_nothing() -> None:
    with Recorder(Path("/dev/full")) as recorder:
        _submit(World(executors=9), recorder, "first")


@pytest.mark.parametrize(
    ("asked_for", "decides"), [("nobody", "sjf"), ("sjf-hold:tau=1", "sjf-hold:tau=1 without holds")]
)
def test_the_fallback_that_is_recorded_is_the_one_that_would_decide(
    tmp_path: Path, asked_for: str, decides: str
) -> None:
    file = tmp_path / "decisions.jsonl"
    with Recorder(file) as recorder:
        _submit(World(executors=9, fallback=asked_for), recorder, "first")
    recorded = {name for line in file.read_text().splitlines() for name in loads(line).labels["fallback"]}
    assert recorded == {decides}
    assert load(decides).name == decides
