"""Critical paths and widths, against networkx on random graphs."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from fermata.policy.graph import job_shape, path_lengths


def packed(parents: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    ptr = np.cumsum([0, *map(len, parents)])
    return ptr.astype(np.int64), np.array([each for row in parents for each in row], dtype=np.int32)


@pytest.mark.parametrize("seed", range(40))
def test_longest_paths_of_random_graphs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    stages = int(rng.integers(1, 30))
    order = rng.permutation(stages)  # stages need not be listed parents first
    parents: list[list[int]] = [[] for _ in range(stages)]
    graph = nx.DiGraph()
    graph.add_nodes_from(range(stages))
    for below in range(stages):
        for above in range(below):
            if rng.random() < 0.2:
                parents[order[below]].append(int(order[above]))
                graph.add_edge(int(order[above]), int(order[below]))
    length_s = rng.choice([0.0, 1.0, 2.5, rng.exponential(3.0)], stages)
    path_s, reached = path_lengths(*packed(parents), length_s)
    assert reached == stages
    for start in range(stages):
        inside = graph.subgraph({start} | nx.descendants(graph, start))
        # networkx weighs edges: an edge weighs as much as the stage that it leads to.
        weighted = nx.DiGraph()
        weighted.add_nodes_from(inside)
        weighted.add_weighted_edges_from((a, b, length_s[b]) for a, b in inside.edges)
        assert path_s[start] == pytest.approx(length_s[start] + nx.dag_longest_path_length(weighted))


def test_a_diamond_by_hand() -> None:
    #   0(2) -> 1(5), 2(1) -> 3(3)
    path_s, reached = path_lengths(*packed([[], [0], [0], [1, 2]]), np.array([2.0, 5.0, 1.0, 3.0]))
    assert path_s.tolist() == [10.0, 8.0, 4.0, 3.0]
    assert reached == 4
    work_s, critical_s, width = job_shape(np.array([0, 4]), np.array([2.0, 5.0, 1.0, 3.0]), path_s)
    assert (work_s.tolist(), critical_s.tolist(), width.tolist()) == ([11.0], [10.0], [1.1])


def test_jobs_stand_next_to_each_other() -> None:
    path_s, _ = path_lengths(*packed([[], [0], []]), np.array([1.0, 2.0, 6.0]))
    work_s, critical_s, width = job_shape(np.array([0, 2, 3]), np.array([8.0, 4.0, 6.0]), path_s)
    assert critical_s.tolist() == [3.0, 6.0]
    assert work_s.tolist() == [12.0, 6.0]
    assert width.tolist() == [4.0, 1.0]


@pytest.mark.parametrize(
    ("parents", "reached"), [([[0]], 0), ([[1], [0]], 0), ([[], [0, 3], [1], [2]], 0), ([[], [0], [3], [2]], 2)]
)
def test_a_cycle_is_noticed(parents: list[list[int]], reached: int) -> None:
    assert path_lengths(*packed(parents), np.ones(len(parents)))[1] == reached


def test_a_job_of_no_time_has_width_one() -> None:
    work_s, critical_s, width = job_shape(np.array([0, 1]), np.zeros(1), np.zeros(1))
    assert (work_s[0], critical_s[0], width[0]) == (0.0, 0.0, 1.0)
