"""Trainings on a log in which nothing waits, or nothing is asked: refused, as they give nothing, or no numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fermata.policy.errors import InputError
from fermata.sim.hpc import JobLog

pytestmark = pytest.mark.training
pytest.importorskip("torch")

from fermata.training.hpc.config import InspectorConfig
from fermata.training.hpc.inspectors import search_inspector
from fermata.training.hpc.queue import train_queue_policy
from fermata.training.hpc.search_config import InspectorSearchConfig, QueueConfig
from fermata.training.hpc.train import train_inspector
from fermata.training.hpc.window_config import WindowConfig
from fermata.training.hpc.window_train import train_window

TRAININGS: dict[str, Callable[[JobLog], object]] = {
    "ppo": lambda log: train_inspector(
        log, InspectorConfig(policy="sjf/skip", jobs=50, epochs=1, scope="starts"), part="all"
    ),
    "search": lambda log: search_inspector(log, InspectorSearchConfig(jobs=50, generations=1), part="all"),
    "queue": lambda log: train_queue_policy(log, QueueConfig(jobs=50, generations=1), part="all"),
    "window": lambda log: train_window(log, WindowConfig(jobs=50, iterations=1), part="all"),
}


@pytest.mark.parametrize("method", TRAININGS)
def test_a_log_without_a_queue_is_refused(method: str) -> None:
    zeros, ids, run_s = np.zeros(300, dtype=np.int64), np.arange(300), np.full(300, 100.0)
    quiet = JobLog("quiet", 4, ids, 1000.0 * ids, run_s, run_s, zeros + 4, zeros, zeros)
    with pytest.raises(InputError, match=r"^all of quiet: no job waits under .*; expected a queue to learn from"):
        TRAININGS[method](quiet)


@pytest.mark.parametrize("method", ["ppo", "search", "window"])
def test_a_log_in_which_nothing_can_be_held_is_refused(method: str) -> None:
    # All come at once and take the whole machine, so no job starts while another runs or will come.
    zeros, ids, run_s = np.zeros(300, dtype=np.int64), np.arange(300), np.full(300, 100.0)
    burst = JobLog("burst", 4, ids, zeros.astype(float), run_s, run_s, zeros + 4, zeros, zeros)
    with pytest.raises(InputError, match=r"^all of burst: nothing can be held in any sequence; expected jobs that"):
        TRAININGS[method](burst)
