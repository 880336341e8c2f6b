"""Train, stop, resume, export: the whole pipeline in its smallest configuration."""

import hashlib
import io
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.processes import INTERRUPTED, interruptible

torch = pytest.importorskip("torch", reason="needs the [training] extra")

from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fermata.operator.envelope import Envelope, envelope_of
from fermata.policy import registry
from fermata.policy.action import Action
from fermata.policy.errors import InputError, ModelError
from fermata.policy.features import SEVERAL, SIZE, WIDE
from fermata.policy.learned import BOUND, Network, forward
from fermata.policy.onnx_policy import OnnxPolicy
from fermata.policy.state import ClusterState
from fermata.sim.scenarios import SCENARIOS
from fermata.sim.simulate import simulate
from fermata.sim.trace_builder import one_stage_trace
from fermata.sim.trace_io import write_trace
from fermata.training.choose import held_out_cases, judge
from fermata.training.config import Fit, TrainConfig, read_config
from fermata.training.export import TOLERANCE, export_onnx, metadata_of, parity
from fermata.training.files import write_note
from fermata.training.fit import Labels, fit, weighed
from fermata.training.network import CostNetwork, Expert, mean_of
from fermata.training.own import own_trace
from fermata.training.train import read_labels, read_run, train

pytestmark = pytest.mark.training
SCORES = {"seeds": [1, 2], "scenarios": {}}


@pytest.fixture(scope="module")
def smoke_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("training") / "run"
    train(read_config("smoke"), run)
    return run


@pytest.fixture(scope="module")
def exported(smoke_run: Path) -> Path:
    config, network = read_run(smoke_run)
    out = smoke_run / "policy.onnx"
    assert export_onnx(network, metadata_of(config, SCORES), out) <= TOLERANCE
    return out


def _costs(network: Network, row: np.ndarray) -> np.ndarray:
    forward(network, row)
    return network.costs.copy()


def test_the_compiled_network_answers_as_torch(smoke_run: Path) -> None:
    _, network = read_run(smoke_run)
    compiled = network.compiled(margin=0.0)
    rows = np.random.default_rng(1).normal(size=(200, SIZE)).astype(np.float32) * 4
    with torch.no_grad():
        expected = network(torch.from_numpy(rows)).double().numpy()
    got = np.array([_costs(compiled, row.astype(np.float64)) for row in rows])
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_onnx_answers_as_torch_on_real_decisions(smoke_run: Path, exported: Path) -> None:
    config, network = read_run(smoke_run)
    labels = read_labels(smoke_run, config, len(config.rounds))
    policy = OnnxPolicy.load(exported)
    assert parity(network, policy) <= TOLERANCE
    with torch.no_grad():
        expected = network(torch.from_numpy(labels.x)).double().numpy()
    np.testing.assert_allclose(policy.costs(labels.x), expected, rtol=1e-5, atol=1e-5)


def test_large_costs_are_compared_by_their_size(smoke_run: Path, tmp_path: Path) -> None:
    config, network = read_run(smoke_run)
    with torch.no_grad():
        for expert in network.experts:
            expert.layers[-1].bias.add_(1e4)
    policy_file = tmp_path / "policy.onnx"
    assert export_onnx(network, metadata_of(config), policy_file) <= TOLERANCE
    assert np.abs(OnnxPolicy.load(policy_file).costs(np.ones((1, SIZE), np.float32))).max() > 1e3


def test_the_mean_of_experts_expects_the_mean_compiled_too() -> None:
    torch.manual_seed(3)
    experts = [Expert((6, 5)) for _ in range(3)]
    for each in experts:
        each.mean, each.scale = torch.randn(SIZE), torch.rand(SIZE) + 0.5
    rows = np.random.default_rng(1).normal(size=(100, SIZE)).astype(np.float32) * 0.5
    rows[:, [SEVERAL, WIDE]] = 0.0
    for each in experts:  # far from home costs are no means
        each.scale[[SEVERAL, WIDE]] = 9.0
    network = CostNetwork((6, 5))
    network.experts[0] = mean_of(experts)
    with torch.no_grad():
        expected = torch.stack([each(torch.from_numpy(rows)) for each in experts]).mean(0).numpy()
        near = np.array([np.abs((rows - each.mean.numpy()) / each.scale.numpy()).max(1) < BOUND for each in experts])
        np.testing.assert_allclose(network(torch.from_numpy(rows))[near.all(0)], expected[near.all(0)], atol=2e-5)
    compiled = network.compiled(margin=0.0)
    got = np.array([_costs(compiled, row.astype(np.float64)) for row in rows])
    assert near.all(0).sum() > 20
    np.testing.assert_allclose(got[near.all(0)], expected[near.all(0)], atol=2e-5)


def _expecting(wait: float) -> CostNetwork:
    """A network that expects the same of a wait in every state, however strange."""
    network = CostNetwork((4, 4))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        for expert in network.experts:
            expert.normalise(torch.zeros(2, SIZE))
            expert.scale.fill_(1e9)
            list(expert.parameters())[-1].copy_(torch.tensor([1.0, wait]))
    return network


def test_of_several_networks_the_one_that_schedules_best_is_kept() -> None:
    config = read_config("smoke")
    config = config.model_copy(update={"fit": config.fit.model_copy(update={"cases": 4, "case_jobs": 200})})
    cases = held_out_cases(config)
    head, wait = (judge(_expecting(each).compiled(0.0), cases) for each in (1.0, -99.0))
    assert head.mean_log_ratio == pytest.approx(0.0, abs=1e-9)
    assert wait.mean_log_ratio > 0.1
    alone = [judge(_expecting(-99.0).compiled(0.0), [case]).mean_log_ratio for case in cases]
    assert min(alone) > 0.0
    assert wait.mean_log_ratio == pytest.approx(np.mean(alone))
    assert wait.cost == pytest.approx(3.0 * np.mean(alone))  # what is lost counts three times
    assert wait.mean_pct == pytest.approx(100.0 * np.expm1(np.mean(alone)))
    assert wait.worst_pct == pytest.approx(100.0 * np.expm1(max(alone)))


def _fitted_again(smoke_run: Path, run: Path, **fit_changes: float) -> TrainConfig:
    """Copy a run without its last fit; return the configuration that fits it otherwise, by which its labels go."""
    shutil.copytree(smoke_run, run)
    (run / "network-1.pt").unlink()
    config = read_config("smoke")
    few = {"cases": 4, "case_jobs": 200, **fit_changes}
    other = config.model_copy(update={"fit": config.fit.model_copy(update=few)})
    write_note(run / "config.json", other)
    return other


def test_each_try_has_weights_of_its_own_and_the_best_is_kept(smoke_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    config = _fitted_again(smoke_run, run, tries=2)
    told = io.StringIO()
    kept = train(config, run, Console(file=told, width=120))
    labels, cases = read_labels(run, config, 2), held_out_cases(config)
    tried = [fit(labels, config.fit, seed) for seed in (config.seed + 1, config.seed + 1001)]
    costs = [judge(network.compiled(config.margin), cases).cost for network in tried]
    assert costs[0] != costs[1]
    assert judge(kept.compiled(config.margin), cases).cost == min(costs)
    assert "network 2, single tasks: " in told.getvalue()


def test_a_round_that_is_fitted_again_logs_each_step_once(smoke_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(_fitted_again(smoke_run, run, tries=2), run)  # as if it had been killed before it wrote the network
    for number, names in enumerate((["round1"], ["round2", "round2-1"]), 1):
        logged = EventAccumulator(str(run / "tensorboard" / f"round{number}")).Reload()
        curves = {f"{name}/single tasks/{kind}" for name in names for kind in ("loss", "held_out_loss")}
        assert curves <= set(logged.Tags()["scalars"])
        for name in curves:
            steps = [each.step for each in logged.Scalars(name)]
            assert steps == list(range(len(steps)))


def test_a_run_gives_the_mean_of_the_kept(smoke_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    config = _fitted_again(smoke_run, run, tries=3, kept=2)
    told = io.StringIO()
    given = train(config, run, Console(file=told, width=120))
    labels, cases = read_labels(run, config, 2), held_out_cases(config)
    tried = [fit(labels, config.fit, config.seed + 1 + 1000 * k) for k in range(3)]
    ranked = sorted(tried, key=lambda network: judge(network.compiled(config.margin), cases).cost)
    expected = mean_of([network.experts[0] for network in ranked[:2]])
    for network in (given, read_run(run)[1], train(config, run)):
        for name, weights in network.experts[0].state_dict().items():
            torch.testing.assert_close(weights, expected.state_dict()[name])
    verdict = judge(given.compiled(config.margin), cases)
    as_printed = f"{100.0 * math.expm1(verdict.mean_log_ratio):+.1f}% on held-out episodes, {verdict.worst_pct:+.0f}%"
    lines = told.getvalue().splitlines()
    assert f"mean of the best 2, single tasks: {as_printed} at worst, against srwf on random scenarios" in lines
    gains = round(100.0 * math.expm1(verdict.mean_log_ratio), 1) < 0.0
    assert any("no better than srwf" in line for line in lines) != gains


def test_a_network_that_gains_nothing_on_the_trace_is_told_so(smoke_run: Path, tmp_path: Path) -> None:
    # Nobody ever waits for an executor, so nothing is to be gained.
    write_trace(one_stage_trace(np.arange(400) * 100.0, np.full(400, 9.0)), tmp_path / "mine.jsonl")
    config = _fitted_again(smoke_run, tmp_path / "run", tries=2)
    own = own_trace(str(tmp_path / "mine.jsonl"), (2, 2))
    told = io.StringIO()
    workloads = config.workloads.model_copy(update={"own": own})
    mine = config.model_copy(update={"workloads": workloads})
    write_note(tmp_path / "run" / "config.json", mine)
    train(mine, tmp_path / "run", Console(file=told, width=80))
    lines = told.getvalue().splitlines()
    at = lines.index("network 2, single tasks: +0.0% on held-out episodes, +0% at worst, against srwf on the trace")
    assert lines[at + 1].startswith("single tasks: what is kept is no better than srwf there; ")


def test_a_rule_that_gains_nothing_is_told_so(smoke_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    shutil.copytree(smoke_run, run)
    (run / "threshold-1.npz").unlink()
    monkeypatch.setattr("fermata.training.train.judged_pct", lambda *_: (0.04, 3.0))
    told = io.StringIO()
    train(read_config("smoke"), run, Console(file=told, width=80))
    lines, kind = told.getvalue().splitlines(), "DAGs of single tasks"
    at = lines.index(f"{kind}: +0.0% on held-out episodes, +3% at worst, against srwf on random scenarios")
    assert lines[at + 1].startswith(f"{kind}: what is kept is no better than srwf there; ")


def test_a_run_with_a_floor_goes_by_what_labels_are_sure(smoke_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    config = _fitted_again(smoke_run, run, floor=0.03)
    given = train(config, run).experts[0].state_dict()
    labels, seed = read_labels(run, config, 2), config.seed + 1
    weighted, alike = (fit(each, config.fit, seed) for each in (weighed(labels, config.fit, seed), labels))
    assert all(torch.equal(weights, given[name]) for name, weights in weighted.experts[0].state_dict().items())
    assert not all(torch.equal(weights, given[name]) for name, weights in alike.experts[0].state_dict().items())


def test_an_exported_policy_plays_an_episode(exported: Path) -> None:
    scenario = SCENARIOS["express_k2"].with_(jobs=200)
    episode = simulate(scenario.generate(1), scenario.executors, OnnxPolicy.load(exported))
    assert np.isfinite(episode.job_completion_s).all()


def test_metadata_says_where_a_model_comes_from(exported: Path) -> None:
    metadata = OnnxPolicy.load(exported).metadata
    assert metadata["config_digest"] == read_config("smoke").digest
    assert metadata["action_space"] == "wait"
    assert metadata["taught_executors"] == read_config("smoke").workloads.executors[1]
    assert str(Path.home()) not in exported.read_bytes().decode("latin-1")


def test_a_model_says_what_it_was_taught(smoke_run: Path, exported: Path) -> None:
    config, network = read_run(smoke_run)
    labels = read_labels(smoke_run, config, len(config.rounds))
    envelope = envelope_of(OnnxPolicy.load(exported))
    assert envelope is not None
    for expert in network.experts:
        mean, reach = expert.mean.double().numpy(), 10.0 * expert.scale.double().numpy()
        assert (envelope.low <= mean - reach + 1e-9).all()
        assert (envelope.high >= mean + reach - 1e-9).all()
    inside = ((labels.x >= envelope.low) & (labels.x <= envelope.high)).all(axis=1)
    assert inside.mean() > 0.95


class Watched:
    """A policy that counts how many of its states lie outside of an envelope."""

    def __init__(self, policy: OnnxPolicy, envelope: Envelope) -> None:
        self.name, self._policy, self._envelope = "watched", policy, envelope
        self.asked, self.outside = 0, 0

    def choose(self, state: ClusterState) -> Action:
        self.asked += 1
        self.outside += bool(self._envelope.outside(state))
        return self._policy.choose(state)


@pytest.mark.parametrize("name", ["express_k2", "k8s_poisson", "dag_pods", "dag_wide"])
def test_what_the_shipped_model_was_taught_lies_within_its_envelope(name: str) -> None:
    policy = registry.load("default")
    envelope = envelope_of(policy)
    assert envelope is not None
    scenario = SCENARIOS[name].with_(jobs=150)
    watched = Watched(policy, envelope)
    simulate(scenario.generate(1), scenario.executors, watched)
    assert watched.asked >= 100
    assert watched.outside == 0


def test_a_wrong_digest_is_refused(exported: Path) -> None:
    right = hashlib.sha256(exported.read_bytes()).hexdigest()
    assert OnnxPolicy.load(exported, right).digest == right
    with pytest.raises(ModelError, match="sha256"):
        OnnxPolicy.load(exported, "0" * 64)


def test_training_again_gives_the_same_network(smoke_run: Path, tmp_path: Path) -> None:
    again = train(read_config("smoke").model_copy(update={"processes": 1}), tmp_path / "run")
    _, first = read_run(smoke_run)
    for a, b in zip(first.state_dict().values(), again.state_dict().values(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_network(smoke_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [sys.executable, "-m", "fermata.cli", "train", "--config", "smoke", "--out", str(run)]
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 240
    while not list((run / "labels").glob("labels-*.npz")) and time.monotonic() < deadline:
        assert process.poll() is None, "training ended before it could be killed"
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    with pytest.raises(InputError, match="not finished"):
        read_run(run)
    train(read_config("smoke"), run)
    _, first = read_run(smoke_run)
    _, second = read_run(run)
    for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_does_not_wait_for_labels(number: signal.Signals, tmp_path: Path) -> None:
    run, endless, smoke = tmp_path / "run", tmp_path / "endless.yaml", read_config("smoke")
    teacher = smoke.teacher.model_copy(update={"futures": 10_000, "sample": 1.0})
    rounds = [each.model_copy(update={"states": 1_000}) for each in smoke.rounds]
    long = smoke.model_copy(update={"teacher": teacher, "rounds": tuple(rounds), "processes": 2})
    endless.write_text(long.model_dump_json())  # JSON is YAML, too
    command = [sys.executable, "-m", "fermata.cli", "train", "--config", str(endless), "--out", str(run)]
    process = interruptible(command, stderr=subprocess.PIPE, start_new_session=True)
    try:
        deadline = time.monotonic() + 100.0
        while not (run / "labels").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(4.0)  # until the kernels run, most likely; whatever else goes on is to end as soon
        os.killpg(process.pid, number)
        # The last worker that is left would keep the pipe open.
        _, stderr = process.communicate(timeout=10.0)
    finally:
        process.kill()
    assert process.returncode in INTERRUPTED
    assert stderr.endswith("fermata: interrupted; the same command goes on where it was\n")
    assert "Traceback" not in stderr


def test_a_folder_of_another_run_is_refused(smoke_run: Path) -> None:
    with pytest.raises(InputError, match="another configuration"):
        train(read_config("smoke").model_copy(update={"seed": 99}), smoke_run)


def test_exporting_what_is_no_run_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"config\.json"):
        read_run(tmp_path)


def test_a_fit_learns_a_known_function() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(6000, SIZE))
    y = np.stack([np.zeros(6000), np.maximum(x[:, 0], 0.0), x[:, 1] * 0.5], axis=1)
    y[rng.random(6000) < 0.3, 1] = np.nan
    network = fit(Labels(x, y, np.arange(6000) // 100), Fit(hidden=(32, 32), epochs=30, batch=512), seed=1)
    with torch.no_grad():
        got = network(torch.from_numpy(x).float()).numpy()
    known = ~np.isnan(y)
    assert np.mean((got - y)[known] ** 2) < 0.1 * np.nanvar(y[:, 1:])


@pytest.mark.parametrize("states", [2, 20])
@pytest.mark.filterwarnings("error")
def test_of_two_scenarios_one_is_left_to_learn_from(states: int) -> None:
    x = np.random.default_rng(3).normal(size=(states, SIZE))
    x[:, [SEVERAL, WIDE]] = 0.0
    labels = Labels(x, np.abs(x[:, :3]), np.arange(states) % 2)
    network = fit(labels, Fit(hidden=(4, 4), epochs=1, held_out=0.9), seed=1)
    assert network.experts[0].taught == (states > 2)  # one state has no spread
    assert all(torch.isfinite(value).all() for value in network.state_dict().values())


def test_a_fit_that_diverges_is_told() -> None:
    x = np.random.default_rng(3).normal(size=(200, SIZE))
    x[:, [SEVERAL, WIDE]] = 0.0
    labels = Labels(x, np.abs(x[:, :3]), np.arange(200) // 20)
    with pytest.raises(InputError, match=r"^the fit has diverged: expected a smaller fit\.learning_rate or"):
        fit(labels, Fit(hidden=(4, 4), weight_decay=1e10), seed=1)


def test_the_same_labels_give_the_same_network_untaught_experts_too() -> None:
    x = np.random.default_rng(3).normal(size=(200, SIZE))
    x[:, [SEVERAL, WIDE]] = 0.0
    labels = Labels(x, np.abs(x[:, :3]), np.arange(200) // 20)
    first, again = (fit(labels, Fit(hidden=(4, 4), epochs=1), seed=1) for _ in range(2))
    assert [expert.taught for expert in first.experts] == [True, False, False]
    for a, b in zip(first.state_dict().values(), again.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_far_from_what_it_knows_a_network_starts_the_head() -> None:
    network = CostNetwork((8, 8))
    for expert in network.experts:
        expert.normalise(torch.randn(500, SIZE))
    costs = network(torch.full((1, SIZE), 1e3)).detach().numpy()[0]
    assert costs[0] == 0.0
    assert (costs[1:] > 1.0).all()


def test_scores_are_kept_in_the_file(exported: Path) -> None:
    assert json.loads(json.dumps(OnnxPolicy.load(exported).metadata["scores"])) == SCORES
