"""Episodes side by side are the episodes that `simulate` gives one at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.episodes import random_trace

from fermata.policy.features import SIZE
from fermata.policy.heuristics.sjf import SJF
from fermata.policy.learned import ACTIONS
from fermata.policy.onnx_policy import OnnxPolicy
from fermata.policy.registry import load
from fermata.sim.batch import Batch, default_manner
from fermata.sim.scenarios import scenario
from fermata.sim.simulate import simulate
from fermata.sim.trace import Trace
from fermata.sim.world import World, new_world, results, tables_of

EXECUTORS = 2
TRACES = [scenario("express_k2").with_(jobs=jobs, load=0.8).generate(jobs) for jobs in (5, 40, 1, 25, 60, 10)]


@cache
def model() -> OnnxPolicy:
    policy = load("default")
    assert isinstance(policy, OnnxPolicy)
    return policy


def worlds(traces: Iterable[Trace], executors: int = EXECUTORS) -> Iterator[World]:
    return (new_world(tables_of(trace, executors), executors) for trace in traces)


def one_row_at_a_time(features: NDArray[np.float32]) -> NDArray[np.float64]:
    """The answers that `simulate` gets: a network's last bits may depend on how many rows it is given."""
    return np.concatenate([model().costs(row) for row in features[:, None]])


def run_all(batch: Batch) -> list[World]:
    """Answer until nothing is open; the ended episodes in the order of their ends."""
    ended: list[World] = []
    while batch.open.any():
        ended += batch.step(one_row_at_a_time(batch.features))
    return ended


def said(world: World) -> dict[str, list[float]]:
    return {name: column.tolist() for name, column in results(world).items()}


@pytest.mark.parametrize("size", [1, 2, 4, 9])
def test_a_batch_gives_the_episodes_that_simulate_gives(size: int) -> None:
    ended = run_all(Batch(worlds(TRACES), size, default_manner(model().margin, SJF.rule)))
    assert len(ended) == len(TRACES)
    by_jobs = {len(each["job_completion_s"]): each for each in map(said, ended)}
    for trace in TRACES:
        episode, batched = simulate(trace, EXECUTORS, model()), by_jobs[trace.jobs]
        for name in ("task_start_s", "task_end_s", "task_executor", "job_completion_s", "job_held_s", "stage_held_s"):
            np.testing.assert_array_equal(batched[name], getattr(episode, name), err_msg=f"{trace.jobs} jobs: {name}")


def test_dags_of_every_kind_too() -> None:
    traces = [random_trace(seed, 3) for seed in range(6)]
    ended = run_all(Batch(worlds(traces, 3), 3, default_manner(model().margin, SJF.rule)))
    batched = sorted(said(world)["job_completion_s"] for world in ended)
    assert batched == sorted(simulate(trace, 3, model()).job_completion_s.tolist() for trace in traces)


def test_an_episode_that_ends_is_returned_once_and_replaced_while_there_are_more() -> None:
    batch = Batch(worlds(TRACES), 2, default_manner(model().margin, SJF.rule))
    assert batch.open.tolist() == [True, True]
    ended: list[World] = []
    while batch.open.any():
        left = len(TRACES) - len(ended)
        assert batch.open.sum() == min(2, left)
        ended += batch.step(one_row_at_a_time(batch.features))
    assert len({id(world) for world in ended}) == len(ended) == len(TRACES)
    assert batch.step(np.zeros((2, len(ACTIONS)))) == []


def test_features_are_one_array_that_is_written_in_place() -> None:
    batch = Batch(worlds(TRACES), 3, default_manner(model().margin, SJF.rule))
    features = batch.features
    assert (features.shape, features.dtype) == ((3, SIZE), np.float32)
    before = features.copy()
    batch.step(one_row_at_a_time(features))
    assert batch.features is features
    assert (features != before).any()


def test_rows_that_are_not_open_are_ignored() -> None:
    batch = Batch(worlds(TRACES[:1]), 3, default_manner(model().margin, SJF.rule))
    assert batch.open.tolist() == [True, False, False]
    ended: list[World] = []
    while batch.open.any():
        costs = one_row_at_a_time(batch.features)
        costs[1:] = np.nan
        ended += batch.step(costs)
    expected = simulate(TRACES[0], EXECUTORS, model()).job_completion_s.tolist()
    assert [said(world)["job_completion_s"] for world in ended] == [expected]


def test_costs_of_another_shape_are_refused() -> None:
    batch = Batch(worlds(TRACES), 2, default_manner(model().margin, SJF.rule))
    with pytest.raises(ValueError, match=r"expected costs of shape \(2, 3\), got \(3, 3\)"):
        batch.step(np.zeros((3, 3)))
