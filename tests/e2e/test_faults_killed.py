"""The operator killed with SIGKILL again and again while it is busy: nothing is lost, nothing starts twice."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from tests.fault_rig import bench

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(
    ("kills", "workflows"), [(3, 8), pytest.param(20, 60, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
)
def test_killed_at_random_instants_of_a_busy_run(tmp_path: Path, kills: int, workflows: int) -> None:
    draw = random.Random(kills)
    with bench(tmp_path) as busy:
        busy.operator()
        busy.cluster.pool("busy", executors=4, policy={"name": "sjf-hold:tau=1,split=2"}, maxHoldSeconds=2)
        names = busy.submit_busy("busy", workflows, 0.5)
        for _ in range(kills):
            time.sleep(draw.uniform(0.0, 0.8))
            busy.operators[-1].kill()
            busy.operator()
        busy.check_nothing_lost(names)
        assert len(busy.operators) == kills + 1
        assert busy.operators[-1].stop() == 0
