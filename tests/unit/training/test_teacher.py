"""Which decisions the teacher labels."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the [training] extra")

from fermata.policy.features import SEVERAL, SIZE
from fermata.training.collect import Unit, label_unit
from fermata.training.config import TrainConfig, read_config
from fermata.training.network import CostNetwork

pytestmark = pytest.mark.training


def _config(dag_share: float, elsewhere: float = 1.0, rules: bool = True) -> TrainConfig:
    config = read_config("smoke")
    return config.model_copy(
        update={
            "workloads": config.workloads.model_copy(update={"dag_share": dag_share}),
            "teacher": config.teacher.model_copy(update={"elsewhere": elsewhere}),
            "search": config.search if rules else None,
        }
    )


def _labelled(config: TrainConfig, folder: Path, others_cost: float = 0.0) -> np.ndarray:
    """The features that a unit of the second round labels, of a network that says what all but the head costs."""
    network = CostNetwork((4, 4))
    with torch.no_grad():
        for expert in network.experts:
            for parameter in expert.parameters():
                parameter.zero_()
            expert.normalise(torch.zeros(2, SIZE))
            expert.scale.fill_(1e9)
            list(expert.parameters())[-1].fill_(others_cost)
    folder.mkdir()
    with np.load(label_unit(config, Unit(1, 0), network.compiled(0.0), folder)) as file:
        return file["x"].reshape(-1, SIZE)


def test_where_rules_decide_dags_only_single_tasks_are_labelled(tmp_path: Path) -> None:
    all_kinds = _labelled(_config(1.0, rules=False), tmp_path / "all")
    assert (all_kinds[:, SEVERAL] > 0).any()
    assert (_labelled(_config(1.0), tmp_path / "single")[:, SEVERAL] == 0).all()


@pytest.mark.parametrize(("others_cost", "labelled"), [(0.5, False), (0.0, True), (-0.5, True)])
def test_labels_are_spent_where_a_network_is_not_sure_of_the_head(
    tmp_path: Path, others_cost: float, labelled: bool
) -> None:
    x = _labelled(_config(0.0, elsewhere=0.0), tmp_path / "labels", others_cost)
    assert (len(x) > 0) == labelled
