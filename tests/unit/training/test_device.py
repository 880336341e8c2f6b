"""Networks learn on another device as they do on the processor, and runs go on from one to the other."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the [training] extra")

from tests.elsewhere import ELSEWHERE, Elsewhere

from fermata.cli.main import run
from fermata.policy.errors import InputError
from fermata.policy.features import SIZE
from fermata.training import device as devices
from fermata.training import train as teacher
from fermata.training.config import Fit
from fermata.training.device import chosen
from fermata.training.fit import Labels, fit
from fermata.training.graph import train as trainer
from fermata.training.graph.config import GraphConfig, NetworkConfig, Rollouts, Selection, Update, read_any
from fermata.training.graph.network import GraphNetwork

pytestmark = [pytest.mark.training, pytest.mark.filterwarnings("ignore:.*to a meta parameter:UserWarning")]
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that torch can use")


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[Elsewhere]:
    """A device named "elsewhere"."""
    real = chosen
    for module in (trainer, teacher):
        monkeypatch.setattr(module, "chosen", lambda name: ELSEWHERE if name == "elsewhere" else real(name))
    with Elsewhere() as mode:
        yield mode


@pytest.fixture
def as_it_was() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


def config(method: str, **changes: object) -> GraphConfig:
    smoke = read_any("graph-smoke")
    assert isinstance(smoke, GraphConfig)
    update = Update(advantages="critic", epochs=2, minibatches=2)
    rollouts = Rollouts(sequences=2, repeats=2, jobs=(5, 5), warm_jobs=1)
    selection = Selection(every=1, episodes=2, jobs=5)
    parts = {"iterations": 2, "update": update, "rollouts": rollouts, "selection": selection}
    return smoke.model_copy(update={"processes": 1, "method": method, **parts, **changes})


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> dict[str, GraphNetwork]:
    """What is learned on the processor, by method."""
    folder = tmp_path_factory.mktemp("here")
    return {method: trainer.train(config(method), folder / method) for method in ("reinforce", "ppo")}


def labels() -> Labels:
    random = np.random.default_rng(4)
    y = random.normal(size=(600, 3))
    y[:, 0] = 0.0
    y[random.random(600) < 0.3, 2] = np.nan
    return Labels(np.abs(random.normal(size=(600, SIZE))), y, np.repeat(np.arange(12), 50))


def fermata(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    """Run the command line; returns its exit code."""
    monkeypatch.setattr("sys.argv", ["fermata", *arguments])
    with pytest.raises(SystemExit) as ended:
        run()
    return ended.value.code


def same(one: torch.nn.Module, other: torch.nn.Module) -> None:
    for name, value in one.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), other.state_dict()[name].numpy(), err_msg=name)


@pytest.mark.parametrize("method", ["reinforce", "ppo"])
def test_a_graph_policy_learns_the_same_elsewhere(
    method: str, here: dict[str, GraphNetwork], tmp_path: Path, elsewhere: Elsewhere
) -> None:
    away = trainer.train(config(method), tmp_path / "away", device="elsewhere")
    assert elsewhere.done > 1000
    same(here[method], away)


@pytest.mark.parametrize(("first", "then"), [("cpu", "elsewhere"), ("elsewhere", "cpu"), ("elsewhere", "elsewhere")])
def test_a_run_goes_on_elsewhere(
    first: str,
    then: str,
    here: dict[str, GraphNetwork],
    tmp_path: Path,
    elsewhere: Elsewhere,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look = trainer._look
    with monkeypatch.context() as broken:
        broken.setattr(trainer, "_look", lambda *args: _ends(args[1].iteration > 1) or look(*args))
        with pytest.raises(KeyboardInterrupt):
            trainer.train(config("ppo"), tmp_path / "run", device=first)
    assert (tmp_path / "run" / trainer.CHECKPOINT_FILE).exists()
    same(here["ppo"], trainer.train(config("ppo"), tmp_path / "run", device=then))


def _ends(now: bool) -> None:
    if now:
        raise KeyboardInterrupt


def test_costs_are_fitted_the_same_elsewhere(elsewhere: Elsewhere) -> None:
    settings = Fit(hidden=(8, 8), epochs=3, batch=100)
    here = fit(labels(), settings, 1)
    assert elsewhere.done == 0
    away = fit(labels(), settings, 1, device=ELSEWHERE)
    assert elsewhere.done > 1000
    same(here, away)
    away.compiled(0.0)  # what is returned is here


def test_the_teacher_fits_where_it_is_told_to(tmp_path: Path, elsewhere: Elsewhere) -> None:
    smoke = read_any("smoke")
    smoke = smoke.model_copy(update={"rounds": smoke.rounds[:1], "search": None, "processes": 1})
    here = teacher.train(smoke, tmp_path / "run")
    for fitted in (tmp_path / "run").glob("*.pt"):
        fitted.unlink()
    assert elsewhere.done == 0
    away = teacher.train(smoke, tmp_path / "run", device="elsewhere")  # the labels are there
    assert elsewhere.done > 100
    same(here, away)


def test_elsewhere_is_apart_from_the_processor(elsewhere: Elsewhere) -> None:
    network = GraphNetwork(NetworkConfig(width=4, hidden=4))
    away = GraphNetwork(NetworkConfig(width=4, hidden=4)).to(ELSEWHERE)
    assert (network.device.type, away.device) == ("cpu", ELSEWHERE)
    with pytest.raises(RuntimeError, match="two devices"):
        away.embed(torch.zeros(2, network.embed[0].in_features))
    with pytest.raises(RuntimeError, match="not supported"):
        away.embed[0].weight.detach().numpy()


@pytest.mark.parametrize("name", ["tpu", "meta", "cuda:99", "cuda:x", ""])
def test_a_device_that_is_not_there_is_named_with_what_was_expected(name: str) -> None:
    with pytest.raises(InputError, match=rf"^--device {name}: .*; expected auto, cpu, cuda, or cuda:N$"):
        chosen(name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_auto_is_the_processor_and_cuda_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chosen("auto") == chosen("cpu") == torch.device("cpu")
    assert fermata(monkeypatch, "train", "--config", "graph-smoke", "--device", "cuda", "--out", f"{tmp_path}/run") == 2
    assert "finds 0 GPUs here; expected auto" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_what_is_searched_for_by_playing_takes_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--config", "spark-default", "--tpch-dir", "x", "--device", "cuda", "--out", str(tmp_path)]
    assert fermata(monkeypatch, "train", *asked) == 2
    assert "'spark-default' is searched for by playing episodes" in capsys.readouterr().err


def test_the_gpu_that_is_used_is_said(monkeypatch: pytest.MonkeyPatch, as_it_was: None) -> None:
    said: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device.index or 0}")
    console = type("Console", (), {"print": lambda self, text: said.append(text)})()
    for name in ("cpu", "auto", "cuda:1"):
        devices.announce(chosen(name), console)
    assert said == [f"learning on GPU {n}; --device cpu does without it" for n in (0, 1)]
    assert torch.are_deterministic_algorithms_enabled()
    with pytest.raises(InputError, match="finds 2 GPUs"):
        chosen("cuda:2")


@needs_gpu
@pytest.mark.parametrize("method", ["reinforce", "ppo"])
def test_a_graph_policy_learns_on_a_gpu_and_the_same_again(method: str, tmp_path: Path, as_it_was: None) -> None:
    one, two = (trainer.train(config(method), tmp_path / name, device="cuda") for name in ("one", "two"))
    same(one, two)
    # The first iteration's steps start from the same weights, so there is only rounding between the devices.
    short = config(method, iterations=1)
    here, there = (trainer.train(short, tmp_path / f"{name}-short", device=name) for name in ("cpu", "cuda"))
    for name, value in here.state_dict().items():
        np.testing.assert_allclose(there.state_dict()[name].numpy(), value.numpy(), rtol=1e-2, atol=2e-3, err_msg=name)


@needs_gpu
def test_costs_are_fitted_on_a_gpu_and_the_same_again(as_it_was: None) -> None:
    settings, there = Fit(hidden=(8, 8), epochs=3, batch=100), chosen("cuda")
    one, two = (fit(labels(), settings, 1, device=there) for _ in range(2))
    same(one, two)
    x = torch.from_numpy(labels().x).float()
    with torch.no_grad():
        np.testing.assert_allclose(one(x).numpy(), fit(labels(), settings, 1)(x).numpy(), atol=1e-2)
