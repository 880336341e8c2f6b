"""Which decisions the teacher labels."""

from pathlib import Path

import numpy as np
import pytest
from tests.rollouts import try_to_the_end

torch = pytest.importorskip("torch", reason="needs the [training] extra")

from fermata.policy import registry
from fermata.policy.features import ORDER, SEVERAL, SIZE
from fermata.policy.learned import ACTIONS
from fermata.policy.rows import peek
from fermata.sim.engine import DECIDE, advance
from fermata.sim.networks import eager
from fermata.sim.scenarios import SCENARIOS
from fermata.sim.world import new_world, tables_of
from fermata.training.collect import Unit, label_unit
from fermata.training.config import TrainConfig, read_config
from fermata.training.fork import fork_for
from fermata.training.network import CostNetwork
from fermata.training.teacher import Base, Future, Plan, _take, look, try_futures

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


@pytest.mark.parametrize("name", ["pairs_k1_30", "express_k2", "express_k4", "k8s_cron", "dag_pods", "dag_wide"])
def test_a_rollout_ends_early_only_where_nothing_depends_on_the_action(name: str) -> None:
    scenario, arrivals = SCENARIOS[name].with_(jobs=600), 60
    tables = tables_of(scenario.generate(3), scenario.executors)
    world, library = new_world(tables, scenario.executors), new_world(tables, scenario.executors)
    base = Base(False, registry.load("sjf-hold:tau=20").rule, ORDER, eager())
    plan = Plan(1.0, 1.0, 1.0, 1, 0.0, futures=1, horizon=arrivals, unit_s=1.0, warm=0, max_label=1.0)
    forks = tuple(fork_for(scenario.generate(3), scenario.executors, arrivals) for _ in ACTIONS)
    early = compared = 0
    while compared < 40 and advance(world) == DECIDE:
        while bits := look(world, ORDER, np.zeros(SIZE)):
            legal, arrived = [k for k in range(len(ACTIONS)) if (bits >> k) & 1], int(peek(world.clock).arrived)
            if len(legal) > 1 and arrived % 5 == 0:
                since_s = float(peek(world.board.pool).now_s - tables.job_arrival_s[arrived - 1])
                future = Future(world, library, arrived, since_s, arrivals)
                totals_s, left = np.zeros((2, len(ACTIONS))), np.zeros((2, len(ACTIONS)), np.int64)
                assert try_to_the_end(forks, future, bits, base, totals_s[0], left[0])
                assert try_futures(
                    forks, future, np.array([arrived]), bits, base, plan, np.zeros(len(ACTIONS)), totals_s[1], left[1]
                )
                whole_s, changes_s = totals_s[:, legal] - totals_s[:, legal[:1]]
                np.testing.assert_allclose(changes_s, whole_s, rtol=0, atol=1e-6 * totals_s.max())
                assert len(set(left[1, legal])) == 1
                early += int(left[1, legal[0]] < left[0, legal[0]])
                compared += 1
            if _take(world, -1, base):
                break
    assert 0 < early <= compared
    assert compared >= 20
