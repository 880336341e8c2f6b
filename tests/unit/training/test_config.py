import re
from inspect import signature
from pathlib import Path

import pytest

from fermata.cli.evaluate import evaluate
from fermata.policy.errors import InputError
from fermata.policy.model_file import load_model
from fermata.policy.onnx_policy import OnnxPolicy
from fermata.policy.registry import shipped_model
from fermata.training.card import model_card, score_lines
from fermata.training.config import read_config, shipped_configs
from fermata.training.evaluate import UNSEEN_SEEDS
from fermata.training.graph.config import read_any


@pytest.mark.parametrize("name", sorted(shipped_configs()))
def test_shipped_configurations_are_read_by_name(name: str) -> None:
    assert read_any(name).name == name


def test_the_card_that_ships_is_that_of_the_model_and_its_configuration() -> None:
    file = shipped_model()
    model = load_model(file)
    assert isinstance(model, OnnxPolicy)
    told = model_card("default", model.digest, model.metadata, read_config("default"))
    card = file.with_suffix(".md").read_text(encoding="utf-8")
    allocation = card[card.index("\nBeside it") : card.index("\nAverage JCT")]
    assert told == card.replace(allocation, "")
    shares = re.findall(r"^    - (\d+)% of", told, flags=re.MULTILINE)
    workloads = read_config("default").workloads
    named = workloads.dag_share, workloads.noise_share, workloads.pair_share, workloads.cron_share, workloads.any_share
    assert shares == [f"{100 * share:.0f}" for share in named]
    assert model.taught_executors == workloads.executors[1]


def test_a_rule_that_was_searched_for_decides_with_caution_and_one_that_was_given_without() -> None:
    default = read_config("default")
    assert default.search is not None
    assert default.search.generations[0] == 0 < default.search.caution
    margins = [default.margin_of_rule(which) for which in (1, 2)]
    assert margins == [default.margin, default.margin + default.search.caution]
    assert default.model_copy(update={"search": None}).margin_of_rule(2) == default.margin


@pytest.mark.parametrize(
    ("seeds", "name", "unseen"),
    [
        ([2000, 2019], "dag_pods", True),
        ([2000, 2019], "tpch_a", True),
        ([1000, 1019], "dag_pods", False),  # rules were tuned on these
        ([2000, 2019], "mine.jsonl", False),  # fermata evaluate --part all plays the jobs that taught, too
    ],
)
def test_a_card_calls_unseen_what_nothing_was_made_from(seeds: list[int], name: str, unseen: bool) -> None:
    percent = {"vs_base_pct": -1.0, "vs_base_ci95": 0.5, "p99_vs_base_pct": 2.0, "max_vs_base_pct": 3.0}
    told = score_lines({"seeds": seeds, "scenarios": {name: {"base": "srwf", "avg_jct_s": 9.0, **percent}}})
    assert told[0].startswith(f"Average JCT against the base of each scenario, seeds {seeds[0]}-{seeds[1]}")
    assert ("unseen" in told[0]) is unseen


def test_the_seeds_that_are_evaluated_by_default_are_those_that_a_card_calls_unseen() -> None:
    assert signature(evaluate).parameters["seeds"].default == f"{UNSEEN_SEEDS[0]}-{UNSEEN_SEEDS[-1]}"


def test_processes_do_not_change_the_digest() -> None:
    config = read_config("smoke")
    assert config.model_copy(update={"processes": 7}).digest == config.digest
    assert config.model_copy(update={"seed": 7}).digest != config.digest


SMOKE = shipped_configs()["smoke"].read_text()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("seed: 1", "seed: 1\nseed: 2"), ":4: broken YAML: 'seed' stands twice"),
        (("futures: 2,", "futures: 2, futures: 3,"), ":5: broken YAML: 'futures' stands twice"),
        (("horizon: [60, 100]", "horizon: [60, 100"), ":5: broken YAML: expected ',' or ']', but got '}'"),
        (("name: smoke", "name: 2026-02-30"), ":2: broken YAML: '2026-02-30' is no value"),
        (("futures: 2", "futures: " + 5000 * "1"), f":5: broken YAML: '{80 * '1'}' is no value"),
        (("futures: 2", "futures: !!int two"), ":5: broken YAML: 'two' is no value"),
        (("name: smoke", r'name: "\ud800"'), r":2: broken YAML: '\ud800' is no value"),
        (("seed: 1", r'"\ud800": 1'), r":3: broken YAML: '\ud800' is no value"),
        (("futures", "futurs"), ": teacher.futurs: no such key"),
        (("name: smoke", ""), ": name: is missing"),
        (("behaviour", "behavior"), ": rounds.0.behavior: no such key"),
        (("rounds:", "round:"), ": round: no such key"),
        (("[2, 3]", "[2]"), ": workloads.executors: expected a list of 2 in brackets, got one of 1"),
        (("[2, 3]", "[2, 3, 4]"), ": workloads.executors: expected a list of 2 in brackets, got one of 3"),
        (("[2, 3]", "3"), ": workloads.executors: expected a list of 2 in brackets, got 3"),
        (("[2, 3]", "2-3"), ": workloads.executors: expected a list of 2 in brackets, got '2-3'"),
        (
            ("[2, 3]", "{from: 2, to: 3}"),
            ": workloads.executors: expected a list of 2 in brackets, got {'from': 2",
        ),
        (
            ("seed: 1", "method: reinforc"),
            ": method: expected reinforce, ppo, evolution or scores, or no method for the",
        ),
        (("seed: 1", "method: [ppo]"), ": method: expected reinforce, ppo, evolution or scores, or no method for the"),
        (("[2, 3]", "[3, 2]"), ": workloads.executors: expected the lower end first, got 3 and 2"),
        (("[2, 3]", "[0, 2]"), ": workloads.executors.0: Input should be greater than or equal to 1, got 0"),
        (("[60, 100]", "[60, 600]"), ": teacher: expected a library of twice the horizon, got 1000 and 600"),
        (("[60, 100]", "[100, 60]"), ": teacher.horizon: expected the lower end first, got 100 and 60"),
        (("0.0}", "0.0, load: [.nan, 1]}"), ": workloads.load.0: Input should be a finite number, got nan"),
        (
            ("0.0}", "0.0, long_share: [.5, 2]}"),
            ": workloads.long_share.1: Input should be less than or equal to 1, got 2",
        ),
        (("futures: 2", "doubt: 1.e+300"), ": teacher.doubt: expected 0, or 1e-12 to 1e+10 in size, got 1e+300"),
        (("futures: 2", "doubt: -1.e+300"), ": teacher.doubt: expected 0, or 1e-12 to 1e+10 in size, got -1e+300"),
        (("futures: 2", "sample: 1.e-300"), ": teacher.sample: expected 0, or 1e-12 to 1e+10 in size, got 1e-300"),
        (
            ("0.0}", "0.0, size_ratio: [2, 1.e+300]}"),
            ": workloads.size_ratio: expected 0, or 1e-12 to 1e+10 in size, got 1e+300",
        ),
        (
            ("epochs: 10", "epochs: " + 4000 * "1"),
            f": fit.epochs: expected 0, or 1e-12 to 1e+10 in size, got {80 * '1'}",
        ),
        (("futures: 2", "doubt: .inf"), ": teacher.doubt: Input should be a finite number, got inf"),
        (("seed: 1", "seed: 5000000000"), ": seed: Input should be less than 4294967296, got 5000000000"),
        (("epochs: 10", "epochs: yes"), ": fit.epochs: expected neither true nor false, got True"),
        (("[60, 100]", "[yes, 100]"), ": teacher.horizon: expected neither true nor false, got True"),
        (("name: smoke", "name: no"), ": name: expected neither true nor false, got False"),
        (("states: 40", "states: 1e30"), ": rounds.0.states: Input should be"),
        (("epochs: 10", "hidden: [0, 8]"), ": fit.hidden.0: Input should be greater than or equal to 1, got 0"),
        (("epochs: 10", "kept: 2"), ": fit: expected as many tries as are kept, got 1 and 2"),
        (("epochs: 10", "held_out: 1"), ": fit.held_out: Input should be less than 1, got 1"),
        (("jobs: 100", "jobs: 10000000000"), ": search.jobs: Input should be less than or equal to 10000000, got"),
    ],
)
def test_what_is_wrong_with_a_field_is_told_in_one_line(tmp_path: Path, change: tuple[str, str], expected: str) -> None:
    assert change[0] in SMOKE
    path = tmp_path / "train.yaml"
    path.write_text(SMOKE.replace(*change, 1))
    with pytest.raises(InputError) as caught:
        read_any(str(path))
    assert str(caught.value).startswith(f"{path}{expected}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("update: {learning_rate: [1.e+38, 1]}", ": update.learning_rate.0: Input should be less than or equal to 1,"),
        ("network: {prior: 1.e+300}", ": network.prior: Input should be less than or equal to 1000000, got 1e+300"),
        ("network: {first_wait: -1.e+9}", ": network.first_wait: Input should be greater than or equal to -1000000,"),
        ("scenario: expres_k2", ": scenario: no scenario 'expres_k2'; there are: fig1, "),
        ("scenario: fig1", ": scenario: scenario 'fig1' has no parameter 'load'; it has: "),
    ],
)
def test_what_no_graph_policy_can_be_trained_with_is_told(tmp_path: Path, line: str, expected: str) -> None:
    path = tmp_path / "train.yaml"
    path.write_text(f"name: x\nmethod: ppo\niterations: 1\n{line}\n")
    with pytest.raises(InputError) as caught:
        read_any(str(path))
    assert str(caught.value).startswith(f"{path}{expected}")


@pytest.mark.parametrize(
    "content", [b"", b"# nothing\n", b"- a\n", b"3\n", b"name: \xff\n", "name: x".encode("utf-16")]
)
def test_what_is_no_configuration_at_all_is_told_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "train.yaml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"^{path}: (the file: expected keys and values|expected UTF-8 text)$"):
        read_any(str(path))


def test_a_merged_section_may_be_changed(tmp_path: Path) -> None:
    path = tmp_path / "train.yaml"
    path.write_text(SMOKE.replace("fit: {", "fit: {<<: {epochs: 3, cases: 9}, "))
    assert read_any(str(path)) == read_any("smoke")


def test_windows_line_ends_and_a_byte_order_mark_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "train.yaml"
    path.write_bytes(("\ufeff" + SMOKE.replace("\n", "\r\n")).encode())
    assert read_any(str(path)) == read_any("smoke")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: x\nrounds: []\n", "rounds"),
        ("name: x\nrounds: 3\n", "rounds: expected a list, got 3"),
        ("name: x\nrounds:\n  - {behaviour: tuned, rollouts: tuned, scenarios: 1, states: 1}\nspeed: 3\n", "speed"),
        ("name: x\nrounds:\n  - {behaviour: luck, rollouts: tuned, scenarios: 1, states: 1}\n", "rounds.0.behaviour"),
        ("name: [\n", "broken YAML"),
    ],
)
def test_a_bad_configuration_names_file_and_field(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "train.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_config(str(path))
    assert str(path) in str(caught.value)
    assert expected in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_missing_configuration_names_the_shipped_ones() -> None:
    with pytest.raises(InputError, match="quick"):
        read_config("no-such-thing")
