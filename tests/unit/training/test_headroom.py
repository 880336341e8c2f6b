"""What a policy leaves on the table, and that the futures which say so know nothing that a scheduler cannot."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.processes import fermata

pytest.importorskip("torch", reason="needs the [training] extra")

from typer.testing import CliRunner

from fermata.cli.policy import app
from fermata.policy.errors import InputError, ModelError
from fermata.policy.features import ORDER, candidates
from fermata.policy.learned import START_HEAD, Network, action_of
from fermata.policy.registry import load
from fermata.policy.rows import column, peek
from fermata.sim.engine import DECIDE, advance, apply
from fermata.sim.metrics import mean_ci95, resampled_ci95
from fermata.sim.network_file import model_path, read_network
from fermata.sim.networks import eager
from fermata.sim.scenarios import SCENARIOS, Scenario, scenario
from fermata.sim.simulate import simulate
from fermata.sim.trace_builder import one_stage_trace
from fermata.sim.trace_io import write_trace
from fermata.sim.workloads import workload
from fermata.sim.world import World, new_world, scored_by, tables_of
from fermata.training import headroom
from fermata.training.fork import fork_for, splice
from fermata.training.headroom import Effort, Found, pooled, room_in
from fermata.training.play import play

pytestmark = pytest.mark.training

QUICK = Effort(futures=32, again=48, horizon=120)


@pytest.fixture(scope="module")
def shipped() -> Network:
    return read_network(model_path("default"))


def _room(some: Scenario, seed: int, network: Network, effort: Effort = QUICK) -> Found:
    return room_in(some, some, seed, network, effort)


@pytest.mark.slow
def test_a_policy_that_never_holds_leaves_much_where_holding_pays() -> None:
    room = _room(scenario("express_k2").with_(jobs=500, warm=0), 3, eager())
    assert room.jct_s == room.base_jct_s
    assert room.other > 5
    assert room.saved_s > 0.04 * room.base_jct_s


@pytest.mark.slow
def test_the_shipped_model_leaves_little(shipped: Network) -> None:
    room = _room(scenario("express_k2").with_(jobs=500, warm=0), 3, shipped)
    assert room.jct_s < 0.95 * room.base_jct_s
    assert abs(room.saved_s) < 0.03 * room.base_jct_s


def test_where_jobs_are_alike_nothing_is_in_doubt(shipped: Network) -> None:
    alike = scenario("syn_60").with_(jobs=200, warm=0, short_s=10.0, long_s=10.0)
    assert _room(alike, 1, shipped).asked == 0


def test_an_episode_says_the_same_again(shipped: Network) -> None:
    some = scenario("dag_pods").with_(jobs=30, warm=0)
    effort = Effort(futures=16, again=16, horizon=60)
    once, again = (_room(some, 5, shipped, effort) for _ in range(2))
    assert once == again
    assert once.asked > 5


def _under_way(jobs: int) -> tuple[World, int]:
    """An episode of DAGs with tasks that run and tasks that wait, and its executors."""
    some = scenario("dag_pods").with_(jobs=jobs, warm=0)
    world = new_world(tables_of(some.generate(8), some.executors), some.executors)
    while advance(world) == DECIDE:
        if peek(world.board.pool).active > 6 and peek(world.clock).runs == some.executors - 1:
            break
        apply(world, *action_of(world.board, candidates(world.board, ORDER), START_HEAD))
    return world, some.executors


def test_a_future_knows_nothing_of_how_long_tasks_really_take() -> None:
    world, executors = _under_way(400)
    library = scenario("dag_pods").with_(jobs=200).generate(99)
    later = new_world(tables_of(library, executors), executors)
    fork = fork_for(library, executors, 20)
    chance = headroom._Chance(
        np.sort(np.random.default_rng(1).lognormal(0.0, 0.2, 500)), np.linspace(0.0, 0.999, 97), 20
    )
    told = []
    for stretched in (1.0, 7.0):
        assert splice(fork, world, later, 30, 20, 0.0)
        copy, now_s = fork.world, float(peek(fork.world.board.pool).now_s)
        jobs = int(peek(copy.clock).jobs) - 20
        tasks = int(peek(copy.stage_progress, int(peek(copy.job_progress, jobs - 1).end_stage) - 1).end_task)
        column(copy.tasks, "duration_s", tasks)[:] *= stretched
        column(copy.runs, "end_s", executors - 1)[:] = now_s + stretched * np.arange(1, executors)
        headroom._draw_durations(copy, chance)
        runs = [(float(each.end_s), int(each.task)) for each in (peek(copy.runs, i) for i in range(executors - 1))]
        assert runs == sorted(runs)
        assert all(end_s > now_s for end_s, _ in runs)
        pending = [
            float(peek(copy.tasks, task).duration_s)
            for task in range(tasks)
            if not peek(copy.tasks, task).start_s <= now_s
        ]
        assert pending
        told.append((runs, pending))
    assert told[0] == told[1]


def test_a_future_of_tasks_that_were_to_take_no_time_goes_on_from_now() -> None:
    world, executors = _under_way(400)
    library = scenario("dag_pods").with_(jobs=200).generate(99)
    later = new_world(tables_of(library, executors), executors)
    fork = fork_for(library, executors, 20)
    assert splice(fork, world, later, 30, 20, 0.0)
    copy, now_s = fork.world, float(peek(world.board.pool).now_s)
    column(copy.stage_progress, "given_s")[:] = 0.0
    headroom._draw_durations(copy, headroom._Chance(np.array([0.5, 1.0, 2.0]), np.linspace(0.0, 0.9, 7), 20))
    assert all(float(peek(copy.runs, i).end_s) == now_s for i in range(executors - 1))
    assert advance(copy) == DECIDE
    assert float(peek(copy.board.pool).now_s) == now_s


def test_where_nothing_was_ever_estimated_tasks_take_what_is_estimated_now() -> None:
    library = one_stage_trace([0.0, 1.0], [5.0, 60.0], estimate_s=[0.0, 0.0])
    assert headroom._ratios(library).tolist() == [1.0]


def test_a_models_file_decides_as_it_does_in_the_simulator(shipped: Network) -> None:
    some = scenario("k8s_poisson").with_(jobs=400)
    trace = some.generate(21)
    world = new_world(tables_of(trace, some.executors), some.executors)
    play(world, ORDER, shipped)
    expected = simulate(trace, some.executors, load("default")).job_completion_s
    assert np.mean(column(world.job_progress, "completion_s") == expected) > 0.99  # single precision there, double here


def test_a_model_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="expected 'fermata"):
        read_network(model_path("queue-even"))
    with pytest.raises(ModelError, match="No such file"):
        read_network(tmp_path / "none.onnx")


def test_a_model_of_another_kind_is_told_as_one() -> None:
    done = fermata("policy", "headroom", "queue-even", "--seeds", "1-1")
    told = "policy 'queue-even' is a model of another kind; expected eager, default, or a file of its kind"
    assert (done.returncode, done.stderr) == (2, f"fermata: {told}\n")


def test_a_rule_is_no_model() -> None:
    with pytest.raises(InputError, match=r"no model 'sjf'; expected default, eager, or the path of an \.onnx file"):
        model_path("sjf")


def test_the_command_tells_what_it_found() -> None:
    few = ["--scenarios", "dag_pods", "--episode-jobs", "12", "--seeds", "1-2", "--futures", "16", "--jobs", "1"]
    done = CliRunner().invoke(app, ["headroom", "default", *few, "--json"])
    assert done.exit_code == 0
    (row,) = json.loads(done.stdout)["scenarios"]
    assert (row["scenario"], row["seeds"]) == ("dag_pods", 2)
    assert row["asked"] >= max(row["other"], 1)
    assert abs(row["further_pct"]) < 20.0


def test_who_never_holds_holds_nothing_where_tasks_take_several_executors_either() -> None:
    wide = workload("gpus").with_(jobs=300, warm=0)
    trace, network = wide.generate(3), eager()
    world = scored_by(network, new_world(tables_of(trace, wide.executors), wide.executors))
    play(world, ORDER, network)
    base = simulate(trace, wide.executors, load("srwf"))
    completion_s = column(world.job_progress, "completion_s")
    np.testing.assert_allclose(completion_s - trace.job_arrival_s, base.job_jct_s)
    shipped = simulate(trace, wide.executors, load("default"))
    assert shipped.job_held_s.sum() > 0.0, "there would be something to hold for"


def test_of_a_trace_more_episodes_do_not_know_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mine.jsonl"
    write_trace(scenario("express_k2").with_(jobs=300, warm=0).generate(7), file)

    def found(unit: headroom.Unit) -> Found:
        return Found(9, 1, 1.0 + unit.seed % 3, 80.0 + unit.seed % 3, 100.0)

    monkeypatch.setattr(headroom, "look_into", found)
    for options, interval in (
        (["--trace", str(file), "--executors", "2"], resampled_ci95),
        (["--scenarios", "express_k2"], mean_ci95),
    ):
        done = CliRunner().invoke(app, ["headroom", "eager", *options, "--seeds", "0-8", "--jobs", "1", "--json"])
        (row,) = json.loads(done.stdout)["scenarios"]
        assert row["further_ci95"] == pytest.approx(interval([1.0, 2.0, 3.0] * 3).ci95)
        assert row["vs_base_ci95"] == pytest.approx(interval([1.0, 2.0, 3.0] * 3).ci95)


def test_an_interrupt_says_in_json_that_it_is_not_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(unit: headroom.Unit) -> Found:
        if unit.seed == 3:
            raise KeyboardInterrupt
        return Found(9, 1, 2.0, 80.0, 100.0)

    monkeypatch.setattr(headroom, "look_into", found)
    asked = ["headroom", "eager", "--scenarios", "express_k2", "--jobs", "1", "--json", "--seeds"]
    cut, whole = (json.loads(CliRunner().invoke(app, [*asked, seeds]).stdout) for seeds in ("1-3", "1-2"))
    assert (cut.pop("interrupted"), cut) == (True, whole)


def test_all_scenarios_may_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headroom, "look_into", lambda _: Found(9, 1, 2.0, 80.0, 100.0))
    asked = ["headroom", "eager", "--scenarios", "dag_pods, all", "--jobs", "1", "--json", "--seeds", "1"]
    rows = json.loads(CliRunner().invoke(app, asked).stdout)["scenarios"]
    names = [row["scenario"] for row in rows]
    assert names[0] == "dag_pods"
    assert sorted(names) == sorted(name for name in SCENARIOS if name != "fig1")


def test_of_a_single_episode_there_is_no_interval() -> None:
    asked = ["headroom", "default", "--scenarios", "express_k2", "--seeds", "3", "--episode-jobs", "15"]
    asked += ["--futures", "16", "--jobs", "1"]
    (row,) = json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)["scenarios"]
    assert (row["seeds"], row["vs_base_ci95"], row["further_ci95"]) == (1, None, None)
    assert "±" not in CliRunner().invoke(app, asked).stdout


def test_where_no_job_takes_any_time_there_is_nothing_to_save() -> None:
    found = pooled("mine", [Found(0, 0, 0.0, 0.0, 0.0), Found(9, 1, 0.5, 9.0, 10.0)])
    assert (found.vs_base_pct, found.further_pct) == (-5.0, -2.5)


def test_nothing_found_is_no_figure() -> None:
    assert pooled("dag_pods", []).seeds == 0


def test_what_holding_may_be_worth_is_asked_of_a_policy_that_never_holds() -> None:
    some = ["--scenarios", "express_k2", "--episode-jobs", "150", "--seeds", "1-2", "--futures", "16", "--jobs", "1"]
    done = CliRunner().invoke(app, ["headroom", "eager", *some, "--json"])
    assert done.exit_code == 0
    (row,) = json.loads(done.stdout)["scenarios"]
    assert row["vs_base_pct"] == 0.0
    assert row["further_pct"] < -1.0


def test_on_a_trace_a_future_is_of_what_came_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mine.jsonl"
    write_trace(scenario("dag_pods").with_(jobs=300).generate(7), file)
    seen: list[tuple[Scenario, Scenario]] = []

    def watched(unit: headroom.Unit) -> Found:
        seen.append((unit.scenario, unit.others))
        return headroom.room_in(unit.scenario, unit.others, unit.seed, read_network(unit.model), unit.effort)

    monkeypatch.setattr(headroom, "look_into", watched)
    few = ["--episode-jobs", "20", "--seeds", "1", "--futures", "16", "--jobs", "1", "--json"]
    done = CliRunner().invoke(app, ["headroom", "default", "--trace", str(file), "--executors", "4", *few])
    assert done.exit_code == 0
    (row,) = json.loads(done.stdout)["scenarios"]
    assert (row["scenario"], row["seeds"]) == ("mine.jsonl", 1)
    ((mine, others),) = seen
    assert mine.jobs == 20
    played, future = ({name.partition("-")[2] for name in each.generate(1).job_ids} for each in (mine, others))
    assert not played & future


@pytest.mark.parametrize(("first", "last", "where"), [(0, 150, "0% to 50%"), (210, 300, "70% to 100%")])
def test_on_a_trace_whose_jobs_come_all_at_once_nothing_is_told(
    first: int, last: int, where: str, tmp_path: Path
) -> None:
    file, trace = tmp_path / "mine.jsonl", scenario("express_k2").with_(jobs=300, warm=0).generate(7)
    trace.job_arrival_s[first:last] = trace.job_arrival_s[first]
    write_trace(trace, file)
    few = ["--episode-jobs", "5", "--seeds", "1", "--futures", "16", "--jobs", "1"]
    done = CliRunner().invoke(app, ["headroom", "eager", "--trace", str(file), "--executors", "2", *few])
    told = "of the jobs they come all at once or take no time: no future in which an action could be tried"
    assert isinstance(done.exception, InputError)
    assert str(done.exception) == f"{file}: from {where} {told}"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--executors", "2"], "--executors is of a --trace"),
        (["--trace", "mine.jsonl"], "--trace needs --executors"),
        (["--trace", "mine.jsonl", "--executors", "2", "--scenarios", "dag_pods"], "in the place of --scenarios"),
    ],
)
def test_a_trace_goes_with_the_size_of_its_pool(options: list[str], told: str) -> None:
    done = CliRunner().invoke(app, ["headroom", "default", *options])
    assert told in str(done.exception)
