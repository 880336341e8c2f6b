"""Graph policies: the network, the returns, training, resuming, export."""

import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.episodes import expect_the_steps_of_decide
from tests.processes import INTERRUPTED, fermata, interruptible

torch = pytest.importorskip("torch", reason="needs the [training] extra")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fermata.cli.main import run
from fermata.policy.action import START, WAIT
from fermata.policy.board import board_of
from fermata.policy.dag import Dag
from fermata.policy.decide import decide
from fermata.policy.errors import InputError, MissingExtraError, ModelError
from fermata.policy.features import FEATURES
from fermata.policy.graph_actions import IMPOSSIBLE, BatchScores, Scores, Space, best, best_choices
from fermata.policy.graph_features import JOB_FEATURES, OPTION_FEATURES, OPTIONS, STAGE_FEATURES, STATE_FEATURES
from fermata.policy.graph_policy import GraphPolicy
from fermata.policy.graph_state import GraphState, graph_state, join
from fermata.policy.guardrails import Guardrails
from fermata.policy.heuristics.sjf import SJF
from fermata.policy.heuristics.srwf import SRWF
from fermata.policy.model_file import load_model
from fermata.policy.onnx_policy import OnnxPolicy
from fermata.policy.record import loads, replay
from fermata.policy.registry import load, shipped_model
from fermata.sim.experiment import knowing
from fermata.sim.explain import Workload, explain_graph
from fermata.sim.explain.chapter import chapter_of
from fermata.sim.explain.graph import _with_next
from fermata.sim.processes import LostWorkerError
from fermata.sim.recording import Recorder
from fermata.sim.scenarios import scenario
from fermata.sim.simulate import simulate
from fermata.sim.trace_builder import one_stage_trace
from fermata.sim.trace_io import write_trace
from fermata.training import train as teacher
from fermata.training.config import TrainConfig, read_config
from fermata.training.files import claim, write_note
from fermata.training.graph import ablation
from fermata.training.graph import train as trainer
from fermata.training.graph.card import graph_card
from fermata.training.graph.choices import drawn_choices
from fermata.training.graph.config import ActionSpace, GraphConfig, Inputs, NetworkConfig, read_any
from fermata.training.graph.costs import CostToGo, advantages
from fermata.training.graph.export import PARITY_STAGES, export_onnx, metadata_of, random_state
from fermata.training.graph.network import GraphNetwork, tensors
from fermata.training.graph.rollouts import Unit, drawn_scenario, run_unit, weights_of
from fermata.training.graph.scenarios import named
from fermata.training.graph.update import Chosen, generalised_advantages, judge, ppo
from fermata.training.graph.workers import workers
from fermata.training.own import own_trace

pytestmark = pytest.mark.training


@pytest.fixture(scope="module")
def smoke_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("graph") / "run"
    trainer.train(smoke(), run)
    return run


@pytest.fixture(scope="module")
def export(smoke_run: Path) -> tuple[subprocess.CompletedProcess[str], Path, Path]:
    """What the command says of itself, the model, whose name is no text, as a file's need not be, and its card."""
    model, card = smoke_run / "m\udcff.onnx", smoke_run / "card.md"
    command = [sys.executable, "-m", "fermata.cli", "export-onnx", str(smoke_run), "--out", str(model), "--card", card]
    return subprocess.run(command, check=True, capture_output=True, text=True), model, card


@pytest.fixture(scope="module")
def exported(export: tuple[object, Path, Path], smoke_run: Path) -> Path:
    return shutil.copy(export[1], smoke_run / "policy.onnx")


def smoke(**changes: object) -> GraphConfig:
    config = read_any("graph-smoke")
    assert isinstance(config, GraphConfig)
    return config.model_copy(update={"processes": 1, **changes})


def graphs(*stages: int) -> list[GraphState]:
    random = np.random.default_rng(2)
    return [graph_state(board_of(state), dag)[0] for state, dag in (random_state(n, random) for n in stages)]


def asked(network: GraphNetwork, graph: GraphState) -> list[np.ndarray]:
    with torch.no_grad():
        return [each.numpy() for each in network(*tensors(graph))]


def test_what_a_graph_policy_decided_about_dags_replays_from_its_record(exported: Path) -> None:
    drawn, lines = scenario("dag_pods").with_(jobs=12), list[bytes]()
    trace, policy = drawn.generate(5), load(exported)
    recorder = Recorder(trace, policy.name, Guardrails(), lines.append)
    simulate(trace, drawn.executors, knowing(policy, trace), observer=recorder)
    records = [loads(line.decode()) for line in lines]
    largest = max(records, key=lambda record: len(record.edges or ()))
    assert len(largest.edges or ()) > 3
    assert all(replay(record, policy, SJF) == record.steps for record in records)
    with pytest.raises(ModelError, match="this state comes without them"):
        replay(largest._replace(edges=None), policy, SJF)


def test_states_are_scored_the_same_alone_and_next_to_others() -> None:
    network = GraphNetwork(NetworkConfig(width=8, hidden=8))
    single = graphs(1, 30, 7)
    together = asked(network, join(single))
    for i, each in enumerate(zip(*(asked(network, graph) for graph in single), strict=True)):
        np.testing.assert_allclose(together[i], np.concatenate(each), rtol=1e-4, atol=1e-5)


def chain(length: int) -> GraphState:
    """A state with one job, a chain of stages: stage i is the parent of i + 1."""
    (graph,) = graphs(length)
    edges = np.arange(length - 1)
    return graph._replace(
        stage_job=np.zeros(length, np.int64),
        job_x=graph.job_x[:1],
        job_state=np.zeros(1, np.int64),
        edge_parent=edges,
        edge_child=edges + 1,
    )


def embeddings(network: GraphNetwork, graph: GraphState) -> torch.Tensor:
    own = network.embed(torch.from_numpy(graph.stage_x))
    return network._messages(own, torch.from_numpy(graph.edge_child), torch.from_numpy(graph.edge_parent))


def test_messages_go_from_children_to_parents_as_far_as_there_are_rounds() -> None:
    network = GraphNetwork(NetworkConfig(width=8, hidden=8, rounds=3))
    graph = chain(6)
    changed = graph._replace(stage_x=graph.stage_x.copy())
    changed.stage_x[5] += 3.0
    moved = (embeddings(network, graph) - embeddings(network, changed)).abs().sum(dim=1)
    assert (moved[2:] > 0.0).all()
    assert (moved[:2] == 0.0).all()


def test_rounds_beyond_the_depth_change_nothing_so_short_dags_are_seen_as_level_by_level() -> None:
    torch.manual_seed(0)
    one = GraphNetwork(NetworkConfig(width=8, hidden=8, rounds=5))
    other = GraphNetwork(NetworkConfig(width=8, hidden=8, rounds=9))
    other.load_state_dict(one.state_dict())
    graph = chain(6)
    torch.testing.assert_close(embeddings(one, graph), embeddings(other, graph))
    x = one.embed(torch.from_numpy(graph.stage_x))
    level = x[5]
    for stage in range(4, -1, -1):  # Decima: a level after the other, from the leaves up
        level = x[stage] + one.hear(one.tell(level))
    torch.testing.assert_close(embeddings(one, graph)[0], level)


def test_what_is_not_allowed_has_no_probability() -> None:
    for kind, waits, holds in (("wait", True, False), ("paper", False, True), ("none", False, False)):
        network = GraphNetwork(NetworkConfig(width=8, hidden=8, space=ActionSpace(kind=kind)))
        (graph,) = graphs(80)
        graph.can_hold[0] = False
        stage, option, delay, wait = asked(network, graph)
        assert np.isfinite(stage).all()
        assert (option[~graph.option_mask] == np.float32(IMPOSSIBLE)).all()
        assert (wait > -100.0).all() == waits
        assert delay.shape[1] == (5 if holds else 1)
        if holds:
            assert (delay[0, 1:] == np.float32(IMPOSSIBLE)).all()
            assert (delay[graph.can_hold] > -100.0).all()
            assert graph.can_hold.any()
        _, _, _, idle = asked(network, graph._replace(can_wait=np.zeros(1, np.bool_)))
        assert idle[0] == np.float32(IMPOSSIBLE)


def test_features_that_are_left_out_do_not_matter() -> None:
    decima = Inputs(base="decima", critical_path=False, width=False)
    network = GraphNetwork(NetworkConfig(width=8, hidden=8, prior=0.0, wait_prior=0.0, inputs=decima))
    (graph,) = graphs(20)
    other = graph._replace(stage_x=graph.stage_x.copy(), job_x=graph.job_x + 1.0, state_x=graph.state_x + 1.0)
    other.stage_x[:, 5:] += 1.0
    for one, two in zip(asked(network, graph), asked(network, other), strict=True):
        np.testing.assert_array_equal(one, two)
    with_path = GraphNetwork(NetworkConfig(inputs=decima.model_copy(update={"critical_path": True})))
    assert int(with_path.stage_mask.sum()) == 7
    assert int(with_path.job_mask.sum()) == 0


def test_probabilities_of_all_choices_add_up() -> None:
    torch.manual_seed(3)
    network = GraphNetwork(NetworkConfig(width=8, hidden=8, space=ActionSpace(kind="wait")))
    (graph,) = graphs(9)
    rows = [(row, int(o)) for row in range(len(graph.choice_stage)) for o in np.flatnonzero(graph.option_mask[row])]
    total = 0.0
    entropy = 0.0
    for row, option in [*rows, (-1, 0)]:
        judged = judge(network, Chosen(tensors(graph), torch.tensor([row]), torch.tensor([option]), torch.tensor([0])))
        log_prob = float(judged.log_prob.detach())
        total += np.exp(log_prob)
        entropy -= np.exp(log_prob) * log_prob
    assert total == pytest.approx(1.0, abs=1e-5)
    assert float(judged.entropy.detach()) == pytest.approx(entropy, rel=1e-4)


def test_costs_to_go_are_those_of_a_step_function() -> None:
    cost = CostToGo(np.array([0.0, 1.0]), np.array([3.0, 2.0]), np.ones(2), 1e9)
    np.testing.assert_allclose(cost.at(np.array([0.0, 0.5, 1.5, 2.5, 9.0])), [4.0, 3.5, 2.0, 0.5, 0.0], atol=1e-6)
    fading = CostToGo(np.array([0.0]), np.array([5.0]), np.array([2.0]), 3.0)
    assert fading.at(np.array([1.0]))[0] == pytest.approx(2.0 * 3.0 * (1.0 - np.exp(-4.0 / 3.0)))


def test_advantages_are_against_the_other_rollouts_at_the_same_time() -> None:
    quick, slow = (CostToGo(np.array([0.0]), np.array([end_s]), np.ones(1), 1e9) for end_s in (2.0, 6.0))
    told = advantages([quick, slow, slow], [np.array([0.0, 1.0])] * 3)
    np.testing.assert_allclose(told[0], [4.0, 4.0], atol=1e-6)
    np.testing.assert_allclose(told[1], [-2.0, -2.0], atol=1e-6)


def test_generalised_advantages_without_a_critic_are_what_is_left_to_pay() -> None:
    config = smoke()
    network = GraphNetwork(config.network)
    decisions = run_unit(Unit(config, 0, (0,), weights_of(network)))
    raw, returns = generalised_advantages(decisions, np.zeros(len(decisions.cost)), 1.0)
    np.testing.assert_allclose(raw, -decisions.cost, atol=1e-9)
    np.testing.assert_allclose(returns, -decisions.cost, atol=1e-9)


def test_rollouts_follow_from_the_unit_alone_and_differ_by_their_actions() -> None:
    config = smoke()
    weights = weights_of(GraphNetwork(config.network))
    one, two = (run_unit(Unit(config, 2, (1,), weights)) for _ in range(2))
    for a, b in zip(one.graph, two.graph, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(one.row, two.row)
    assert one.advantage.std() > 0.0
    other = run_unit(Unit(config, 3, (1,), weights))
    assert len(other.row) != len(one.row) or (other.row != one.row).any()


def in_batches(tmp_path: Path, executors: int) -> GraphConfig:
    """A configuration of episodes of a trace whose jobs come sixty at a time."""
    file = tmp_path / "batches.jsonl"
    arrival_s, duration_s = np.repeat(600.0 * np.arange(1, 11), 60), np.tile([5.0, 5.0, 5.0, 60.0], 150)
    write_trace(one_stage_trace(arrival_s, duration_s), file)
    own = own_trace(str(file), (executors, executors))
    return smoke(workloads=smoke().workloads.model_copy(update={"own": own}))


def test_what_comes_all_at_once_is_left_to_the_agent(tmp_path: Path) -> None:
    config = in_batches(tmp_path, 100)  # so many executors that the warm-up could start everything
    for iteration in range(3):
        decisions = run_unit(Unit(config, iteration, (0, 1), weights_of(GraphNetwork(config.network))))
        assert (decisions.following < 0).sum() == 2 * config.rollouts.repeats


def test_costs_of_jobs_that_come_all_at_once_are_numbers(tmp_path: Path) -> None:
    config = in_batches(tmp_path, 2)
    for iteration in range(3):
        decisions = run_unit(Unit(config, iteration, (0, 1), weights_of(GraphNetwork(config.network))))
        for told in (decisions.advantage, decisions.cost, decisions.kept):
            assert np.isfinite(told).all()
        assert (decisions.cost > 0.0).all()


@pytest.mark.parametrize("factor", [1e15, math.nan])
def test_a_training_that_has_diverged_says_so(factor: float) -> None:
    config = smoke()
    weights = {name: factor * each for name, each in weights_of(GraphNetwork(config.network)).items()}
    with pytest.raises(InputError, match=r"has diverged: expected a smaller update\.learning_rate"):
        run_unit(Unit(config, 0, (0,), weights))


def test_ppo_moves_towards_what_was_better() -> None:
    config = smoke(method="ppo")
    torch.manual_seed(0)
    network = GraphNetwork(config.network)
    decisions = run_unit(Unit(config, 0, (0, 1, 2), weights_of(network)))
    waits = (decisions.row == -1).astype(np.float64)
    assert 0 < waits.sum() < len(waits)
    decisions = decisions._replace(advantage=waits - waits.mean(), counts=np.ones(len(waits), np.bool_))
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    before = asked(network, decisions.graph)[3]
    ppo(network, optimiser, decisions, config, 0)
    assert (asked(network, decisions.graph)[3] - before)[decisions.graph.can_wait].mean() > 0.0


@pytest.mark.slow
def test_training_on_two_processes_gives_the_same_network(smoke_run: Path, tmp_path: Path) -> None:
    again = trainer.train(smoke(processes=2), tmp_path / "run")
    _, first = trainer.read_run(smoke_run)
    for a, b in zip(first.state_dict().values(), again.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_what_comes_next_can_be_pasted_into_a_shell(
    smoke_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(smoke_run, tmp_path / "a run")
    monkeypatch.chdir(tmp_path)
    done = fermata("train", "--config", "graph-smoke", "--device", "cpu", "--out", "a run")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "trained; next: fermata export-onnx 'a run' --out policy.onnx"


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_network(smoke_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [sys.executable, "-m", "fermata.cli", "train", "--config", "graph-smoke", "--processes", "1"]
    process = subprocess.Popen([*command, "--out", str(run)], start_new_session=True, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 240
    while not (run / "checkpoint.pt").exists() and time.monotonic() < deadline:
        assert process.poll() is None, "training ended before it could be killed"
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    with pytest.raises(InputError, match="not finished"):
        trainer.read_run(run)
    trainer.train(smoke(), run)
    checkpoints = [torch.load(each / "checkpoint.pt", weights_only=True) for each in (smoke_run, run)]
    for part in ("network", "best"):
        for a, b in zip(*(each[part].values() for each in checkpoints), strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize(("number", "processes"), [(signal.SIGINT, "1"), (signal.SIGINT, "2"), (signal.SIGTERM, "2")])
def test_an_interrupt_says_that_the_run_goes_on(number: signal.Signals, processes: str, tmp_path: Path) -> None:
    run, endless = tmp_path / "run", tmp_path / "endless.yaml"
    patient = smoke().selection.model_copy(update={"patience": 100_000})
    endless.write_text(smoke(iterations=100_000, selection=patient).model_dump_json())  # JSON is YAML, too
    command = [sys.executable, "-m", "fermata.cli", "train", "--config", str(endless), "--processes", processes]
    process = interruptible([*command, "--out", str(run)], stderr=subprocess.PIPE, start_new_session=True)
    try:
        deadline = time.monotonic() + 100.0
        while not (run / trainer.CONFIG_FILE).exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        os.killpg(process.pid, number)
        _, stderr = process.communicate(timeout=100)
    finally:
        process.kill()
    assert process.returncode in INTERRUPTED
    assert stderr.endswith("fermata: interrupted; the same command goes on where it was\n")
    assert "Traceback" not in stderr


@pytest.mark.parametrize("name", ["network.pt", "checkpoint.pt"])
def test_a_damaged_file_is_named(name: str, smoke_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(smoke_run, run)
    (run / name).write_bytes((run / name).read_bytes()[:5000])
    if name == trainer.CHECKPOINT_FILE:
        (run / trainer.NETWORK_FILE).unlink()
    told = f"^{run / name}: is damaged; delete it and train again$"
    with pytest.raises(InputError, match=told):
        trainer.train(smoke(), run)


@pytest.mark.parametrize("name", ["network.pt", "checkpoint.pt"])
def test_a_file_of_another_run_is_named(name: str, smoke_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(smoke_run, run)
    whole = torch.load(run / name, weights_only=True)
    changes = ({"network": {}}, {"best": {}}, {"looks": "1"}, {"iteration": 99})
    for content in ({"w": torch.zeros(3)}, [1, 2], *(whole | change for change in changes)):
        torch.save(content, run / name)
        if name == trainer.CHECKPOINT_FILE:
            (run / trainer.NETWORK_FILE).unlink(missing_ok=True)
        told = f"^{run / name}: is of another network or another version; delete it and train again$"
        with pytest.raises(InputError, match=told):
            trainer.train(smoke(), run)


def other_moments(optimiser: dict[str, Any]) -> None:
    optimiser["state"][0]["exp_avg"] = torch.zeros(3)


def no_moments(optimiser: dict[str, Any]) -> None:
    del optimiser["state"][0]["exp_avg_sq"]


def fewer_weights(optimiser: dict[str, Any]) -> None:
    del optimiser["param_groups"][0]["params"][-1]


def no_rate(optimiser: dict[str, Any]) -> None:
    del optimiser["param_groups"][0]["betas"]


@pytest.mark.parametrize("harm", [other_moments, no_moments, fewer_weights, no_rate, dict.clear])
def test_an_optimiser_of_another_network_is_named(
    harm: Callable[[dict[str, Any]], None], smoke_run: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(smoke_run, run)
    checkpoint = run / trainer.CHECKPOINT_FILE
    content = torch.load(checkpoint, weights_only=True)
    harm(content["optimiser"])
    torch.save(content | {"iteration": 2}, checkpoint)
    (run / trainer.NETWORK_FILE).unlink()
    told = f"^{checkpoint}: is of another network or another version; delete it and train again$"
    with pytest.raises(InputError, match=told):
        trainer.train(smoke(), run)


def test_a_run_that_was_cut_short_goes_on_exactly(smoke_run: Path, tmp_path: Path) -> None:
    config = smoke()
    run = tmp_path / "run"
    run.mkdir()
    claim(run, config, trainer.ours)
    at = trainer._load_checkpoint(run, config, torch.device("cpu"))
    with workers(1) as who:
        for _ in range(2):
            at, _ = trainer._iterate(config, at, who)
            if at.iteration == 1:
                at, _ = trainer._look(config, at, who)
    trainer._save_checkpoint(run, at)
    again = trainer.train(config, run)
    _, first = trainer.read_run(smoke_run)
    for a, b in zip(first.state_dict().values(), again.state_dict().values(), strict=True):
        assert torch.equal(a, b)


class KilledError(Exception):
    pass


def test_a_run_that_goes_on_logs_each_step_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, run = smoke(iterations=4, checkpoint_every=2), tmp_path / "run"
    iterate = trainer._iterate

    def dies_in_the_last(config: GraphConfig, at: trainer.Progressed, *others: Any) -> Any:
        if at.iteration == 3:
            raise KilledError
        return iterate(config, at, *others)

    monkeypatch.setattr(trainer, "_iterate", dies_in_the_last)
    with pytest.raises(KilledError):
        trainer.train(config, run)
    monkeypatch.setattr(trainer, "_iterate", iterate)
    trainer.train(config, run)
    logged = EventAccumulator(str(run / "tensorboard")).Reload()
    assert [each.step for each in logged.Scalars("training/cost")] == [1, 2, 3, 4]
    assert [each.step for each in logged.Scalars("held_out/cost_over_base")] == [1, 2, 4]


def test_a_folder_of_another_run_is_refused(smoke_run: Path) -> None:
    with pytest.raises(InputError, match="another configuration"):
        trainer.train(smoke(seed=99), smoke_run)
    with pytest.raises(InputError, match="another configuration"):
        teacher.train(read_config("smoke"), smoke_run)


@pytest.mark.parametrize("config", ["smoke", "graph-smoke"])
def test_the_folder_of_an_allocation_is_another_run_and_not_a_damaged_one(config: str, tmp_path: Path) -> None:
    write_note(tmp_path / "config.json", read_any("spark-default"))
    begin = teacher.train if config == "smoke" else trainer.train
    with pytest.raises(InputError, match="holds a run of another configuration"):
        begin(read_any(config), tmp_path)  # type: ignore[arg-type]


def test_the_configuration_says_the_method(tmp_path: Path) -> None:
    assert isinstance(read_any("smoke"), TrainConfig)
    file = tmp_path / "bad.yaml"
    file.write_text("name: x\nmethod: magic\niterations: 1\n")
    with pytest.raises(InputError, match="method"):
        read_any(str(file))


def test_the_exported_file_answers_as_torch_does_at_any_size(smoke_run: Path, exported: Path) -> None:
    _, network = trainer.read_run(smoke_run)
    policy = GraphPolicy.load(exported)
    assert PARITY_STAGES[0] == 1
    assert PARITY_STAGES[-1] == 2000
    for graph in [*graphs(1, 5, 2000), join(graphs(3, 4))]:
        answers = policy.session.run(["stage", "option", "delay", "wait"], graph._asdict())
        for got, expected in zip(answers, asked(network, graph), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_a_graph_policy_is_loaded_by_name_of_its_file_and_schedules_dags(exported: Path) -> None:
    policy = load(exported)
    assert isinstance(policy, GraphPolicy)
    assert isinstance(load_model(shipped_model()), OnnxPolicy)
    drawn = scenario("dag_pods").with_(jobs=25)
    trace = drawn.generate(1)
    told = simulate(trace, drawn.executors, knowing(policy, trace))
    again = simulate(trace, drawn.executors, knowing(policy, trace))
    np.testing.assert_array_equal(told.job_completion_s, again.job_completion_s)
    assert not np.isnan(told.job_completion_s).any()


@pytest.mark.parametrize("name", ["dag_pods", "express_k2"])
def test_the_simulator_asks_about_its_own_state(name: str, exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = scenario(name).with_(jobs=25)
    trace = drawn.generate(1)
    expect_the_steps_of_decide(trace, drawn.executors, knowing(load(exported), trace), monkeypatch)


def test_dags_that_are_not_known_are_an_error_and_single_stages_are_not(exported: Path) -> None:
    policy = GraphPolicy.load(exported)
    random = np.random.default_rng(4)
    state, dag = random_state(30, random)
    with pytest.raises(ModelError, match="edges"):
        decide(state, policy, Guardrails(), SJF)
    steps = decide(state, policy.knowing(dag), Guardrails(), SJF)
    assert steps
    assert {step.action.kind for step in steps} <= {START, WAIT}
    short = Dag(dag.child_ptr[:5], dag.child)
    with pytest.raises(ModelError, match="4 of 30 stages"):
        decide(state, policy.knowing(short), Guardrails(), SJF)
    drawn = scenario("express_k2").with_(jobs=20)
    assert simulate(drawn.generate(1), drawn.executors, policy).decisions >= 20


def test_the_file_says_what_it_is(exported: Path) -> None:
    told = json.loads(json.dumps(dict(GraphPolicy.load(exported).metadata)))
    assert told["schema"] == "fermata.graph/2"
    assert told["action_space"] == {"kind": "wait", "steps": 4, "wake_up": False}
    assert told["config"] == "graph-smoke"
    assert "remaining work / unit" in told["features"]["job"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"action_space": {"kind": "all"}}, "action space"),
        ({"action_space": {"kind": "paper", "steps": 0}}, "action space"),
        ({"action_space": {"kind": "paper", "steps": 7}}, "expected scores of shapes"),
        ({"schema": "fermata.graph/0"}, "feature schema"),
    ],
)
def test_files_that_do_not_fit_are_refused(
    exported: Path, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    onnx = pytest.importorskip("onnx")
    model = onnx.load(str(exported))
    told = json.loads(model.metadata_props[0].value) | change
    model.metadata_props[0].value = json.dumps(told)
    onnx.save(model, str(tmp_path / "other.onnx"))
    with pytest.raises(ModelError, match=message):
        load_model(tmp_path / "other.onnx")


class Answers:
    """A session that gives the same answer whatever it is asked."""

    def __init__(self, answer: list[np.ndarray]) -> None:
        self._answer = answer

    def run(self, *_: object) -> list[np.ndarray]:
        return self._answer


def test_what_is_not_allowed_is_not_chosen_whatever_a_file_answers(exported: Path) -> None:
    policy = replace(GraphPolicy.load(exported), space=Space("paper", 2))
    graph = graphs(3)[0]
    choices = len(graph.choice_stage)
    low = np.full((choices, OPTIONS), -2e9)  # below what is impossible for our own networks
    answer = [low[:, 0], low, np.full((choices, 3), -2e9), np.full(1, 9.0)]
    mask = np.zeros((choices, OPTIONS), np.bool_)
    mask[:, 2] = True
    asked = graph._replace(option_mask=mask, can_hold=np.zeros(choices, np.bool_), can_wait=np.zeros(1, np.bool_))
    chosen = best(replace(policy, session=Answers(answer)).scores(asked))  # type: ignore[arg-type]
    assert chosen == (0, 2, 0)


@pytest.mark.slow
def test_an_ablation_is_one_run_a_variant_and_seed_and_goes_on_where_it_was(tmp_path: Path) -> None:
    base = smoke(iterations=1)
    kept = [ablation.VARIANTS[1], ablation.VARIANTS[3]]
    inputs = [ablation.configured(base, variant, 5).network.inputs for variant in ablation.VARIANTS]
    assert [(each.critical_path, each.width) for each in inputs] == [
        (True, True), (False, False), (True, True), (False, False), (True, False), (False, True)
    ]  # fmt: skip
    arguments = (base, tmp_path, ["express_k2", "mixed@0.8"], [2000, 2001], [1, 2])
    found = ablation.ablate(*arguments, variants=kept, jobs=40)
    assert [(cell.variant, cell.scenario, cell.training_seeds) for cell in found.cells] == [
        ("(0,1)", "express_k2", 2), ("(0,1)", "mixed@0.8", 2), ("(0,0)", "express_k2", 2), ("(0,0)", "mixed@0.8", 2)
    ]  # fmt: skip
    assert [effect.part for effect in found.effects] == ["idling, without features"] * 2
    config, network = trainer.read_run(tmp_path / "0-0-1")
    assert config.network.space.kind == "none"
    assert all(cell.held_s == 0.0 for cell in found.cells if cell.variant == "(0,0)")
    # The figures are those of the exported file in the simulator, asked one decision at a time.
    export_onnx(network, metadata_of(config), tmp_path / "policy.onnx")
    policy, drawn = load(tmp_path / "policy.onnx"), scenario("express_k2").with_(jobs=40, warm=4)
    known = json.loads((tmp_path / "0-0-1" / "scores.json").read_text())["scores"]["express_k2"]
    for seed, jct_s, base_s in zip((2000, 2001), known["jct_s"], known["base_jct_s"], strict=True):
        trace = drawn.generate(seed)
        assert simulate(trace, 2, policy).job_jct_s[4:].mean() == pytest.approx(jct_s)
        assert simulate(trace, 2, SJF).job_jct_s[4:].mean() == pytest.approx(base_s)
    (tmp_path / "0-0-1" / "network.pt").unlink()
    assert ablation.ablate(*arguments, variants=kept, jobs=40) == found
    assert not (tmp_path / "0-0-1" / "network.pt").exists()
    note = tmp_path / "0-0-1" / "scores.json"
    whole, first = note.read_text(), f"{known['jct_s'][0]}"
    changes = (("jct_s", "jct"), ('"express_k2": {', '"x": {'), (f"{first},", ""), (first, "NaN"), (first, '"a"'))
    for harmed in ("", whole[:-30], "[]", "\x00", *(whole.replace(*change) for change in changes)):
        note.write_text(harmed)
        with pytest.raises(InputError, match=f"^{note}: is damaged; delete it and train again$"):
            ablation.ablate(*arguments, variants=kept, jobs=40)


def test_a_scenario_that_is_named_twice_is_one_and_its_agents_are_not_counted_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def ablate(_: object, __: object, scenarios: list[str], *___: object, jobs: int) -> ablation.Table:
        asked.append(scenarios)
        return ablation.Table([], [])

    monkeypatch.setattr(ablation, "ablate", ablate)
    arguments = ["fermata", "ablate", "--out", str(tmp_path), "--scenarios", "mixed, syn_60,mixed", "--json"]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit):
        run()
    assert asked == [["mixed", "syn_60"]]


def test_a_training_seed_is_one_that_a_configuration_may_have(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="training seeds: expected less than 4294967296, got 4294967296"):
        ablation.ablate(read_any("graph-smoke"), tmp_path, ["mixed"], [1, 2], [2**32])  # type: ignore[arg-type]


def test_an_ablations_intervals_are_over_agents_and_over_episodes_and_its_effects_are_paired() -> None:
    scores = {
        "(1,1)": [
            ablation._Scores([9.0, 18.0], [10.0, 20.0], [0.0, 2.0]),
            ablation._Scores([10.0, 20.0], [10.0, 20.0], [0, 0]),
        ],
        "(1,0)": [ablation._Scores([10.0, 20.0], [10.0, 20.0], [0.0, 0.0])] * 2,
    }
    changes = ablation._percent(scores["(1,1)"])
    np.testing.assert_allclose(changes, [[-10.0, -10.0], [0.0, 0.0]])
    mean, training, episodes = ablation._interval(changes)
    assert mean == pytest.approx(-5.0)
    assert training == pytest.approx(12.706 * np.std([-10.0, 0.0], ddof=1) / np.sqrt(2), rel=1e-3)
    assert episodes == pytest.approx(0.0, abs=1e-9)
    assert ablation._interval(changes[:1]) == (pytest.approx(-10.0), None, pytest.approx(0.0, abs=1e-9))
    assert ablation._interval(changes[:, :1])[1:] == (pytest.approx(training), None)
    (effect,) = ablation._effects({(name, "x"): each for name, each in scores.items()}, ["x"])
    assert (effect.part, effect.change_pct) == ("idling, with features", pytest.approx(-5.0))


def test_of_a_single_agent_the_ablation_claims_no_interval(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cell = ablation.Cell("(1,1)", "syn_60", 1.5, None, 0.25, 1, 0.0)
    monkeypatch.setattr(ablation, "ablate", lambda *_, **__: ablation.Table([cell], []))
    done = fermata("ablate", "--out", str(tmp_path), "--scenarios", "syn_60")
    assert "+1.50 ± \N{EN DASH} / 0.25" in done.stdout


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("own-slots", "is no configuration of a graph policy; expected one with method reinforce or ppo"),
        ("graph-decima", "never holds (network.space.kind is none), so there is no idling to measure"),
    ],
)
def test_what_cannot_be_ablated_is_told(config: str, message: str, tmp_path: Path) -> None:
    done = fermata("ablate", "--config", config, "--out", str(tmp_path))
    assert (done.returncode, done.stderr) == (2, f"fermata: {config!r} {message}\n")


@pytest.mark.parametrize(("name", "message"), [("nothing", "no scenario"), ("mixed@high", "expected a load")])
def test_a_scenario_that_is_not_there_is_told(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        named(name)


def batch(network: GraphNetwork, *stages: int) -> tuple[BatchScores, list[Scores]]:
    """Scores of some states together, and of each alone."""
    single = graphs(*stages)
    first = np.cumsum([0, *(len(graph.choice_stage) for graph in single)])
    stage, option, delay, wait = asked(network, join(single))
    each = [
        Scores(stage[i:j], option[i:j], delay[i:j], float(wait[state])) for state, (i, j) in enumerate(pairwise(first))
    ]
    return BatchScores(stage, option, delay, wait, first), each


@pytest.mark.parametrize("kind", ["wait", "paper", "none"])
def test_the_best_choices_of_many_states_are_those_of_each(kind: str) -> None:
    torch.manual_seed(5)
    network = GraphNetwork(NetworkConfig(width=8, hidden=8, prior=0.0, first_wait=0.0, space=ActionSpace(kind=kind)))
    together, each = batch(network, 9, 40, 10, 80, 12)
    for bonus in (0.0, 50.0):
        waiting = together._replace(wait=together.wait + bonus)
        got = best_choices(waiting)
        for state, alone in enumerate(each):
            expected = best(alone._replace(wait=alone.wait + bonus))
            row = got.row[state] - together.first[state] if got.row[state] >= 0 else got.row[state]
            assert (row, got.option[state], got.delay[state]) == expected


def test_draws_follow_the_scores_and_never_take_the_impossible() -> None:
    stage = np.array([0.0, np.log(2.0), 5.0])
    option = np.full((3, OPTIONS), IMPOSSIBLE)
    option[:, :2] = np.log([1.0, 3.0])
    told = BatchScores(stage, option, np.zeros((3, 1)), np.array([0.0, IMPOSSIBLE]), np.array([0, 2, 3]))
    random = np.random.default_rng(1)
    drawn = [drawn_choices(told, random) for _ in range(4000)]
    rows = np.array([each.row for each in drawn])
    np.testing.assert_allclose([(rows[:, 0] == row).mean() for row in (0, 1, -1)], [0.25, 0.5, 0.25], atol=0.03)
    assert (rows[:, 1] == 2).all()
    options = np.array([each.option for each in drawn])
    assert (options[:, 1] == 1).mean() == pytest.approx(0.75, abs=0.03)
    assert options.max() == 1


def test_a_sequences_decisions_are_linked_from_first_to_last() -> None:
    config = smoke()
    weights = weights_of(GraphNetwork(config.network))
    decisions = run_unit(Unit(config, 0, (0, 1), weights))
    starts = set(range(len(decisions.row))) - set(decisions.following.tolist())
    assert len(starts) == 2 * config.rollouts.repeats
    for at in starts:
        lasted = 0
        while at >= 0:
            lasted, last, at = lasted + 1, at, int(decisions.following[at])
        assert lasted > 1
        assert decisions.kept[last] == 0.0


@pytest.mark.slow
def test_ray_gives_the_same_network_as_this_process(smoke_run: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs the [ray] extra")
    again = trainer.train(smoke(), tmp_path / "run", ray="local")
    _, first = trainer.read_run(smoke_run)
    for a, b in zip(first.state_dict().values(), again.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_ray_that_is_missing_or_not_there_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"fermata\[ray\]"):
        workers(1, "local")


def test_an_address_where_nobody_listens_is_told_at_once() -> None:
    pytest.importorskip("ray", reason="needs the [ray] extra")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(InputError, match=f"^no Ray cluster at '{address}': .*refused$"):
        workers(1, address)


@pytest.mark.slow
def test_a_ray_cluster_is_like_processes_to_signals_and_errors() -> None:
    pytest.importorskip("ray", reason="needs the [ray] extra")
    before = signal.getsignal(signal.SIGTERM)
    with workers(1, "local") as who:
        assert signal.getsignal(signal.SIGTERM) is before
        with pytest.raises(InputError, match=r"^none\.yaml: "):
            who.map(read_any, ["none.yaml"])
        with pytest.raises(LostWorkerError, match=r"^the Ray cluster has lost a task: .+"):
            who.map(lambda code: os._exit(code), [1])


def test_a_margin_makes_waits_and_holds_less_likely_and_nothing_else() -> None:
    network = GraphNetwork(NetworkConfig(width=8, hidden=8))
    holder = GraphNetwork(NetworkConfig(width=8, hidden=8, space=ActionSpace(kind="paper")))
    (graph,) = graphs(80)
    for each, part in ((network, 3), (holder, 2)):
        before = asked(each, graph)
        each.lean(1.5)
        after = asked(each, graph)
        for i in (0, 1):
            np.testing.assert_array_equal(before[i], after[i])
        change = (after[part] - before[part]).reshape(len(before[part]), -1)[:, -1]
        np.testing.assert_allclose(change[graph.can_hold if part == 2 else slice(None)], -1.5, atol=1e-5)


def test_a_named_scenario_is_drawn_at_the_loads_of_the_configuration() -> None:
    config = smoke(scenario="express_k2", iterations=20)
    config = config.model_copy(update={"rollouts": config.rollouts.model_copy(update={"load_curriculum": 0.5})})
    drawn = [drawn_scenario(config, iteration, 0, 50) for iteration in (0, config.iterations - 1)]
    loads = [scenario.parameters["load"] for scenario, _ in drawn]
    low, high = config.workloads.load
    assert low <= loads[0] <= low + (high - low) / 5.0, "the curriculum begins at the lower end"
    assert low <= loads[1] <= high
    assert {scenario.jobs for scenario, _ in drawn} == {50}
    assert drawn[0][1] != drawn[1][1]


def leaning(wait: float, **changes: object) -> GraphNetwork:
    """A network that is sure of its prior, and of a wait or a hold by so much where it is possible."""
    torch.manual_seed(2)
    config = NetworkConfig(width=8, hidden=8, wait_prior=0.0, **changes)
    network = GraphNetwork(config)
    with torch.no_grad():
        for layer in (network.stage_score, network.option_score, network.wait_head[2], network.delay_head[2]):
            layer.weight.zero_()
        network.wait_head[2].bias.fill_(wait)
        network.delay_head[2].bias[1:] = wait
    return network


def model(network: GraphNetwork, path: Path) -> GraphPolicy:
    config = smoke(network=network.config)
    export_onnx(network, metadata_of(config), path)
    return GraphPolicy.load(path)


WORKLOADS = [
    Workload(each.name, each.executors, each.generate, each.warm)
    for each in (scenario("express_k2").with_(jobs=60, warm=5), scenario("dag_pods").with_(jobs=40, warm=4))
]


def test_what_a_graph_policy_does_and_depends_on_is_what_its_weights_say(tmp_path: Path) -> None:
    # It starts the job with the least work left, whatever else it reads.
    found = explain_graph(model(leaning(-30.0), tmp_path / "rule.onnx"), WORKLOADS, [3, 4], most=60)
    importance = {each.name: each.changed.mean for each in found.importance}
    assert len(importance) == len(STAGE_FEATURES) + len(JOB_FEATURES) + len(STATE_FEATURES) + len(OPTION_FEATURES)
    assert found.importance[0].name == "job: log of remaining work over unit"
    assert importance.pop("job: log of remaining work over unit") > 0.1
    importance.pop("option: share of what it could begin")
    assert set(importance.values()) == {0.0}
    assert [each.shares[0].mean for each in found.behaviour] == [1.0, 1.0]
    assert not found.distributions
    traces = [scenario("express_k2").with_(jobs=60).generate(seed) for seed in (3, 4)]
    jct_s = [simulate(trace, 2, SRWF).job_jct_s[5:].mean() for trace in traces]
    assert found.behaviour[0].avg_jct_s.mean == pytest.approx(np.mean(jct_s))
    chapter = chapter_of(found)
    assert "importance" in {drawing.name for drawing in chapter.drawings}
    assert any("scores, not costs" in note for note in chapter.notes)


def test_a_graph_policy_that_waits_wherever_it_can_is_seen_to(tmp_path: Path) -> None:
    space = ActionSpace(kind="wait")
    found = explain_graph(model(leaning(50.0, space=space), tmp_path / "idle.onnx"), WORKLOADS[:1], [3, 4], most=80)
    busy = found.states.rows[:, FEATURES.index("free share")] < 1.0
    np.testing.assert_array_equal(found.states.held, busy)
    np.testing.assert_array_equal(found.states.may_wait, busy)
    assert found.distributions[0].distance > 0.3
    if found.dependence.states:
        assert {each.mean for each in found.dependence.on_next[0].held} == {1.0}


def test_the_next_completion_is_changed_on_all_levels() -> None:
    (graph,) = graphs(30)
    at = FEATURES.index("next completion / unit")
    ratio = float(np.expm1(graph.state_x[0, at]))
    same, twice = (_with_next(graph, factor * ratio) for factor in (1.0, 2.0))
    np.testing.assert_allclose(same.stage_x, graph.stage_x, atol=1e-5)
    np.testing.assert_allclose(same.job_x, graph.job_x, atol=1e-5)
    column = STAGE_FEATURES.index("next completion / task")
    np.testing.assert_allclose(np.expm1(twice.stage_x[:, column]), 2.0 * np.expm1(graph.stage_x[:, column]), rtol=1e-4)


def test_a_graph_policy_is_explained_at_the_command_line(exported: Path, tmp_path: Path, capsys: Any) -> None:
    page = tmp_path / "page.html"
    arguments = [str(exported), "--scenario", "express_k2", "--seeds", "7000", "--states", "30", "--out", str(page)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["fermata", "policy", "explain", *arguments, "--json"])
        with pytest.raises(SystemExit) as stopped:
            run()
    assert not stopped.value.code
    told = json.loads(capsys.readouterr().out)
    assert {each["name"].split(":")[0] for each in told["importance"]} == {"stage", "job", "state", "option"}
    assert told["dependence"]["on_waiting_longs"] == []
    assert "scores, not costs" in page.read_text()


def test_an_export_says_nothing_of_torch(export: tuple[subprocess.CompletedProcess[str], Path, Path]) -> None:
    told = export[0]
    assert told.stderr == ""
    assert "largest difference from torch" in told.stdout


def test_a_card_says_what_a_graph_policy_is_and_where_it_was_taught(
    export: tuple[object, Path, Path], smoke_run: Path
) -> None:
    _, model, card = export
    text = card.read_text()
    assert GraphPolicy.load(model).digest in text
    assert "\\udcff" in text
    assert "nothing until the next event" in text
    assert "2-3 executors, load 0.5-0.6" in text
    assert "0% of them with wrong estimates" in text
    assert "begins at shortest remaining work first" in text
    config, _ = trainer.read_run(smoke_run)
    config = config.model_copy(update={"scenario": "mixed"})
    assert "trained on `mixed`" in graph_card("m", "0", metadata_of(config), config)
