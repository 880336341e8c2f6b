from pathlib import Path

import pytest

from fermata.policy.errors import InputError
from fermata.training.config import read_config, shipped_configs
from fermata.training.graph.config import read_any


@pytest.mark.parametrize("name", sorted(shipped_configs()))
def test_shipped_configurations_are_read_by_name(name: str) -> None:
    assert read_any(name).name == name


def test_processes_do_not_change_the_digest() -> None:
    config = read_config("smoke")
    assert config.model_copy(update={"processes": 7}).digest == config.digest
    assert config.model_copy(update={"seed": 7}).digest != config.digest


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: x\nrounds: []\n", "rounds"),
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
