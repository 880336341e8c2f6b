"""What a graph network reads of a state: worked by hand, scale-free, and put together and taken apart."""

import numpy as np
import pytest
from tests.episodes import trace_of

from fermata.policy.action import START, WAIT, any_startable, problem_of, startable
from fermata.policy.board import Board, board_of, state_of
from fermata.policy.dag import Dag
from fermata.policy.graph_actions import (
    IMPOSSIBLE,
    NO_IDLING,
    PAPER_SPACE,
    WAIT_CHOICE,
    WAIT_SPACE,
    Choice,
    Scores,
    Space,
    action_of,
    best,
)
from fermata.policy.graph_features import JOB_FEATURES, OPTIONS, STAGE_FEATURES
from fermata.policy.graph_rows import Seen
from fermata.policy.graph_state import GraphState, graph_state, graph_states, join, part
from fermata.sim.engine import DECIDE, advance, apply
from fermata.sim.scenarios import scenario
from fermata.sim.trace import Trace
from fermata.sim.trace_builder import StageSpec
from fermata.sim.world import World, new_world, tables_of, view

State = tuple[GraphState, Board]


def first_decision(trace: Trace, executors: int) -> tuple[World, Dag]:
    world = new_world(tables_of(trace, executors), executors)
    assert advance(world) == DECIDE
    return world, Dag.of_parents(trace.parent_ptr, trace.parent)


def diamond(scale: float = 1.0) -> Trace:
    return trace_of(
        (
            0.0,
            [
                StageSpec("a", [scale]),
                StageSpec("b", [2.0 * scale], ["a"]),
                StageSpec("c", [4.0 * scale] * 3, ["a"]),
                StageSpec("d", [1.0 * scale], ["b", "c"]),
            ],
        ),
        (0.0, [StageSpec("only", [32.0 * scale])]),
    )


def test_a_diamond_beside_a_single_stage_reads_as_worked_out_by_hand() -> None:
    world, dag = first_decision(diamond(), 4)
    graph, menu = graph_state(board_of(view(world)), dag)
    assert list(zip(graph.edge_parent, graph.edge_child, strict=True)) == [(0, 1), (0, 2), (1, 3), (2, 3)]
    assert graph.stage_job.tolist() == [0, 0, 0, 0, 1]
    assert menu.stages.tolist() == [0, 4]
    told = dict(zip(STAGE_FEATURES, graph.stage_x.T, strict=True))
    # The head is the diamond, whose 1 + 2 + 12 + 1 s are the unit.
    np.testing.assert_allclose(told["path from it / unit"], np.log1p(np.array([6.0, 3.0, 5.0, 1.0, 32.0]) / 16.0), 1e-6)
    np.testing.assert_allclose(told["work left / unit"], np.log1p(np.array([1.0, 2.0, 12.0, 1.0, 32.0]) / 16.0), 1e-6)
    np.testing.assert_allclose(told["children"], np.log1p([2, 1, 1, 0, 0]), 1e-6)
    assert told["startable"].tolist() == [1, 0, 0, 0, 1]
    jobs = dict(zip(JOB_FEATURES, graph.job_x.T, strict=True))
    np.testing.assert_allclose(jobs["log of remaining work over unit"], [0.0, np.log(2.0)], 1e-6)
    np.testing.assert_allclose(jobs["average width"], np.log1p([16.0 / 6.0, 1.0]), 1e-6)
    assert not graph.can_wait[0]


def test_what_is_finished_is_not_in_it() -> None:
    world, dag = first_decision(diamond(), 4)
    apply(world, START, 0, 1, np.inf)
    apply(world, START, 4, 1, np.inf)
    assert advance(world) == DECIDE
    graph, menu = graph_state(board_of(view(world)), dag)
    assert list(zip(graph.edge_parent, graph.edge_child, strict=True)) == [(0, 2), (1, 2)]
    assert menu.stages.tolist() == [1, 2]
    assert graph.can_wait[0]


def test_seconds_and_hours_read_the_same() -> None:
    graphs = [graph_state(world.board, dag)[0] for world, dag in (first_decision(diamond(s), 4) for s in (1.0, 3600.0))]
    for name, one, other in zip(GraphState._fields, *graphs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6, err_msg=name)


def test_a_stage_may_start_whole_or_in_halves_that_differ() -> None:
    world, dag = first_decision(trace_of((0.0, [StageSpec("wide", [1.0] * 10)])), 6)
    graph, menu = graph_state(world.board, dag)
    assert menu.caps[0][graph.option_mask[0]].tolist() == [6, 3, 2, 1]
    assert graph.option_mask.shape == (1, OPTIONS)
    rest = 1.0 * 10 / np.array([6, 3, 2, 1]) / 10.0
    np.testing.assert_allclose(graph.option_x[0, graph.option_mask[0], 4], np.log1p(rest), 1e-6)


def walked(name: str, decisions: int, **changes: float) -> list[State]:
    """States of an episode in which random choices are taken."""
    drawn = scenario(name).with_(jobs=60, **changes)
    trace, random = drawn.generate(3), np.random.default_rng(5)
    world, dag = first_decision(trace, drawn.executors)
    found: list[State] = []
    while len(found) < decisions:
        while any_startable(world.board) and len(found) < decisions:
            graph, menu = graph_state(board_of(view(world)), dag)
            found.append((graph, board_of(view(world))))
            row = int(random.integers(len(menu.stages)))
            options = np.flatnonzero(graph.option_mask[row])
            if graph.can_wait[0] and random.random() < 0.3:
                apply(world, *action_of(menu, Choice(WAIT_CHOICE), Space()))
                break
            apply(world, *action_of(menu, Choice(row, int(random.choice(options))), Space()))
        if advance(world) != DECIDE:
            break
    return found


@pytest.mark.parametrize("name", ["dag_wide", "express_k2", "mold_80"])
def test_numbers_are_finite_and_every_choice_that_is_offered_is_legal(name: str) -> None:
    for graph, board in walked(name, 60):
        for column in graph:
            assert np.isfinite(column).all()
        _, menu = graph_state(board, Dag(np.zeros(len(board.stages) + 1, np.int64), np.empty(0, np.int32)))
        legal = [s for s in range(len(board.stages)) if startable(board, s)]
        assert menu.stages.tolist() == legal
        for row in range(len(legal)):
            for option in np.flatnonzero(graph.option_mask[row]).tolist():
                action = action_of(menu, Choice(row, option), Space())
                assert problem_of(board, *action) == 0
        if graph.can_wait[0]:
            assert problem_of(board, *action_of(menu, Choice(WAIT_CHOICE), Space())) == 0


def test_states_that_were_joined_come_apart_again() -> None:
    graphs = [graph for graph, _ in walked("dag_wide", 12)]
    joined = join(graphs)
    for first, end in ((0, 1), (3, 7), (11, 12)):
        got, before = part(joined, first, end)
        assert before == sum(len(graph.choice_stage) for graph in graphs[:first])
        for name, one, other in zip(GraphState._fields, got, join(graphs[first:end]), strict=True):
            np.testing.assert_array_equal(one, other, err_msg=name)


@pytest.mark.parametrize("name", ["dag_wide", "mold_80"])
def test_states_read_together_are_those_read_one_by_one(name: str) -> None:
    boards = [board for _, board in walked(name, 15)]
    parents = scenario(name).with_(jobs=60).generate(3)
    own = Dag.of_parents(parents.parent_ptr, parents.parent)
    dag, bases = Dag.stacked([own, own])
    seen = [Seen(board, base=bases[i % 2]) for i, board in enumerate(boards)]
    together, menu = graph_states(seen, dag)
    alone = [graph_state(board, own) for board in boards]
    for field, one, other in zip(GraphState._fields, together, join([graph for graph, _ in alone]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6, err_msg=field)
        assert one.dtype == other.dtype
    assert menu.first.tolist() == np.cumsum([0, *(len(each.stages) for _, each in alone)]).tolist()
    for name_of in ("now_s", "wake_s", "stages", "caps", "task_s"):
        np.testing.assert_array_equal(getattr(menu, name_of), np.concatenate([getattr(m, name_of) for _, m in alone]))


def test_rows_before_the_oldest_active_job_and_of_jobs_to_come_are_not_needed() -> None:
    trace = scenario("dag_pods").with_(jobs=40).generate(5)
    world, dag = first_decision(trace, 4)
    for _ in range(60):
        state = view(world)
        if any_startable(world.board):
            left = (state.stage_pending > 0) | (state.stage_running > 0)
            part_of = Seen(world.board, first=int(left.argmax()), end=len(state.stage_job))
            for one, other in zip(graph_states([part_of], dag)[0], graph_state(board_of(state), dag)[0], strict=True):
                np.testing.assert_array_equal(one, other)
            apply(world, START, int(graph_state(board_of(state), dag)[1].stages[0]), 1, np.inf)
        assert advance(world) == DECIDE


def test_jobs_whose_stages_are_scattered_read_the_same() -> None:
    (_, board), *_ = walked("dag_wide", 1)
    state = state_of(board)
    order = np.random.default_rng(1).permutation(len(state.stage_job))
    place = np.argsort(order)
    scattered = state._replace(
        **{name: getattr(state, name)[order] for name in state._fields if name.startswith("stage_")},
        ready_stages=place[state.ready_stages].astype(np.int32),
        executor_stage=np.where(state.executor_stage < 0, state.executor_stage, place[state.executor_stage]),
    )
    nothing = Dag(np.zeros(len(order) + 1, np.int64), np.empty(0, np.int32))
    one, other = (graph_state(board_of(each), nothing)[0] for each in (state, scattered))
    np.testing.assert_allclose(one.job_x, other.job_x, rtol=1e-6)
    kept = np.flatnonzero((state.stage_pending > 0) | (state.stage_running > 0))
    rows = np.argsort(place[kept])
    np.testing.assert_allclose(one.stage_x[rows], other.stage_x, rtol=1e-6)
    np.testing.assert_array_equal(one.stage_job[rows], other.stage_job)


def scores(stage: list[float], wait: float = IMPOSSIBLE, delay: list[list[float]] | None = None) -> Scores:
    option = np.full((len(stage), OPTIONS), IMPOSSIBLE)
    option[:, 0] = 0.0
    return Scores(np.array(stage), option, np.array(delay or [[0.0]] * len(stage)), wait)


def test_the_best_choice_is_the_highest_and_a_tie_is_started() -> None:
    assert best(scores([1.0, 3.0, 3.0])) == Choice(1, 0, 0)
    assert best(scores([1.0, 3.0], wait=3.0)) == Choice(1, 0, 0)
    assert best(scores([1.0, 3.0], wait=3.1)) == Choice(WAIT_CHOICE)


def test_the_papers_space_holds_for_a_part_of_a_tasks_length_and_only_once() -> None:
    world, dag = first_decision(trace_of((0.0, [StageSpec("a", [8.0])])), 2)
    graph, menu = graph_state(world.board, dag)
    assert graph.can_hold.tolist() == [True]
    held = action_of(menu, Choice(0, 0, 3), Space(PAPER_SPACE, 4))
    assert str(held) == "hold stage 0 until 6 s"
    apply(world, *held)
    assert advance(world) == DECIDE
    graph, menu = graph_state(world.board, dag)
    assert graph.can_hold.tolist() == [False]
    assert menu.now_s == 6.0


def test_a_wait_is_reconsidered_if_the_space_says_so() -> None:
    world, dag = first_decision(trace_of((0.0, [StageSpec("a", [10.0])]), (0.0, [StageSpec("b", [10.0])])), 2)
    apply(world, START, 0, 1, np.inf)
    _, menu = graph_state(world.board, dag)
    assert action_of(menu, Choice(WAIT_CHOICE), Space(WAIT_SPACE, wake_up=True)) == (WAIT, -1, 0, 2.0)
    assert action_of(menu, Choice(WAIT_CHOICE), Space(WAIT_SPACE, wake_up=False)) == (WAIT, -1, 0, np.inf)
    assert Space(NO_IDLING).delays == 1
    assert Space(PAPER_SPACE, 4).delays == 5
