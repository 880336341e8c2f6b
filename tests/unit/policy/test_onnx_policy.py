"""Model files that can be used, and the many that cannot: each is refused with the reason, before it decides."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.episodes import apart, first_state, one_stage_jobs, random_trace, started
from tests.processes import fermata

from fermata.policy import onnx_file
from fermata.policy.action import START, WAIT, Action
from fermata.policy.errors import ModelError
from fermata.policy.features import SCHEMA, SIZE
from fermata.policy.guardrails import NO_LIMITS, Guardrails
from fermata.policy.model_file import load_model
from fermata.policy.onnx_policy import INPUT, MAX_MODEL_BYTES, OUTPUT, OnnxPolicy
from fermata.policy.registry import load, shipped_model
from fermata.sim.learned_loop import KNOWN_A_REPORT
from fermata.sim.scenarios import scenario
from fermata.sim.simulate import simulate
from fermata.training.evaluate import Score

onnx = pytest.importorskip("onnx", reason="needs onnx, of the [sim] extra")
FLOAT, DOUBLE, STRING = onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.STRING
METADATA = {"schema": SCHEMA, "margin": 0.25}


def model(
    bias: Sequence[float] = (0.0, 1.0, 2.0),
    *,
    metadata: dict[str, Any] | str | None = None,
    inputs: Sequence[tuple[str, int, Sequence[int | str]]] = ((INPUT, FLOAT, ("decisions", SIZE)),),
    output: str = OUTPUT,
    kind: int = FLOAT,
    nodes: Sequence[Any] | None = None,
) -> bytes:
    """A model whose costs do not depend on its features, or whatever else a test makes of it."""
    helper = onnx.helper
    width = inputs[0][2][-1] if inputs[0][2] and isinstance(inputs[0][2][-1], int) else SIZE
    graph = helper.make_graph(
        nodes or [helper.make_node("Gemm", [inputs[0][0], "zero", "bias"], [output])],
        "costs",
        [helper.make_tensor_value_info(*each) for each in inputs],
        [helper.make_tensor_value_info(output, kind, None)],
        [
            onnx.numpy_helper.from_array(np.zeros((width, len(bias)), np.float32), "zero"),
            onnx.numpy_helper.from_array(np.array(bias, np.float32), "bias"),
        ],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    if metadata != "":
        text = metadata if isinstance(metadata, str) else json.dumps(METADATA if metadata is None else metadata)
        helper.set_model_props(made, {"fermata": text})
    content: bytes = made.SerializeToString()
    return content


def written(folder: Path, content: bytes) -> Path:
    path = folder / "tiny.onnx"
    path.write_bytes(content)
    return path


def test_a_good_model(tmp_path: Path) -> None:
    content = model()
    policy = OnnxPolicy.load(written(tmp_path, content))
    assert (policy.name, policy.margin) == ("tiny", 0.25)
    assert policy.digest == hashlib.sha256(content).hexdigest()
    assert policy.metadata["schema"] == SCHEMA
    assert policy.costs(np.zeros((5, SIZE), np.float32)).tolist() == [[0.0, 1.0, 2.0]] * 5
    assert OnnxPolicy.load(tmp_path / "tiny.onnx", policy.digest).digest == policy.digest
    assert OnnxPolicy.load(tmp_path / "tiny.onnx", f"sha256:{policy.digest.upper()}").digest == policy.digest


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ((0.0, -1.0, 1.0), Action(START, 2, 1)),
        ((0.0, 1.0, -1.0), Action(WAIT, until_s=4.0)),
        ((0.0, -1.0, -2.0), Action(WAIT, until_s=4.0)),
        ((0.0, -0.2, -0.2), Action(START, 1, 1)),  # within the margin
        ((0.0, 0.0, 0.0), Action(START, 1, 1)),
    ],
)
def test_the_cheapest_action_is_taken(tmp_path: Path, costs: tuple[float, ...], expected: Action) -> None:
    policy = OnnxPolicy.load(written(tmp_path, model(costs)))
    # The 20 s job runs on one of two executors; 4 s is the head, 10 s the alternative.
    state = started(first_state(one_stage_jobs((0.0, 20.0), (0.0, 4.0), (0.0, 10.0)), 2), 0, 1)
    answer = policy.choose(state)
    assert answer[:3] == expected[:3]
    assert answer.until_s == pytest.approx(expected.until_s)


@pytest.mark.parametrize(("waiting", "kind"), [(4, WAIT), (5, START)])
def test_no_wait_in_a_crowd(tmp_path: Path, waiting: int, kind: int) -> None:
    policy = OnnxPolicy.load(written(tmp_path, model((0.0, 1.0, -9.0))))
    jobs = [(0.0, 20.0), *[(0.0, 4.0)] * waiting]
    assert policy.choose(apart(started(first_state(one_stage_jobs(*jobs), 2), 0, 1))).kind == kind


@pytest.mark.parametrize(
    ("taught", "saves", "kind"), [(2, 0.05, WAIT), (1, 0.05, START), (1, 0.2, WAIT)], ids=["taught", "little", "much"]
)
def test_on_more_executors_than_were_taught_a_wait_must_save_more(
    tmp_path: Path, taught: int, saves: float, kind: int
) -> None:
    # Two executors are a third more than 1.5: of single tasks that makes a wait 0.12 mean JCTs dearer.
    state = started(first_state(one_stage_jobs((0.0, 20.0), (0.0, 4.0)), 2), 0, 1)
    metadata = METADATA | {"margin": 0.0, "taught_executors": taught}
    policy = OnnxPolicy.load(written(tmp_path, model((0.0, 1.0, -saves), metadata=metadata)))
    assert policy.choose(state).kind == kind


def test_an_idle_pool_waits_for_a_while_if_that_saves_much_and_no_alternative_is_started_where_there_is_none(
    tmp_path: Path,
) -> None:
    state = first_state(one_stage_jobs((0.0, 4.0)), 2)
    little, much = (OnnxPolicy.load(written(tmp_path, model((0.0, -9.0, cost)))) for cost in (-0.05, -9.0))
    assert little.choose(state) == Action(START, 0, 1)
    assert much.choose(state) == Action(WAIT, until_s=0.4)
    assert much.choose(state._replace(now_s=4.0)) == Action(START, 0, 1)


@pytest.mark.parametrize(
    "costs", [(0.0, -1.0, 1.0), (0.0, 1.0, -1.0), (0.0, -1.0, -2.0)], ids=["alternative", "wait", "wait first"]
)
@pytest.mark.parametrize("limits", [Guardrails(), Guardrails(max_hold_s=3.0), Guardrails(max_wait_s=2.0)])
@pytest.mark.parametrize("taught", [1, 3])
def test_the_simulator_s_loop_answers_as_decide_does(
    tmp_path: Path, costs: tuple[float, ...], limits: Guardrails, taught: int
) -> None:
    policy = OnnxPolicy.load(written(tmp_path, model(costs, metadata=METADATA | {"taught_executors": taught})))
    for seed in range(3):
        trace = random_trace(seed, 3)
        compiled = simulate(trace, 3, policy, limits=limits)
        asked = simulate(trace, 3, policy, limits=limits, observer=lambda state, steps: None)
        np.testing.assert_array_equal(compiled.task_end_s, asked.task_end_s)
        assert (compiled.decisions, compiled.events) == (asked.decisions, asked.events)


class Counted(OnnxPolicy):
    """A policy that counts how often the runtime is asked; its first questions are those of its dry run."""

    def costs(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        asked.append(len(rows))
        return super().costs(rows)


asked: list[int] = []


def test_a_throng_is_simulated_without_asking_the_network(tmp_path: Path) -> None:
    policy = Counted.load(written(tmp_path, model((0.0, -1.0, -2.0))))
    rng = np.random.default_rng(1)
    trace = one_stage_jobs(*[(0.0, float(work_s)) for work_s in rng.choice([1.0, 4.0, 20.0], KNOWN_A_REPORT + 100)])
    asked.clear()
    alone = simulate(trace, 1, policy)
    assert len(asked) < 50  # five jobs on one executor are no throng: the last of them, and the waits before each
    observed = simulate(trace, 1, policy, observer=lambda state, steps: None)
    np.testing.assert_array_equal(alone.task_end_s, observed.task_end_s)
    assert (alone.decisions, alone.events) == (observed.decisions, observed.events)


@pytest.mark.parametrize(
    ("name", "jobs", "limits"),
    [
        ("express_k2", 2 * KNOWN_A_REPORT, NO_LIMITS),
        ("norm50", 400, Guardrails(max_hold_s=3.0, max_wait_s=40.0)),
        ("pairs_k1_30", 400, Guardrails(hold_when_idle=False)),
        ("k8s_cron", 400, NO_LIMITS),
        ("dag_pods", 200, NO_LIMITS),
        ("dag_wide", 100, NO_LIMITS),
        ("mold_80", 300, NO_LIMITS),
    ],
)
def test_the_shipped_model_decides_in_compiled_code_as_in_the_runtime(name: str, jobs: int, limits: Guardrails) -> None:
    policy, some = Counted.load(shipped_model()), scenario(name).with_(jobs=jobs)
    trace = some.generate(4)
    asked.clear()
    compiled = simulate(trace, some.executors, policy, limits=limits)
    in_doubt = len(asked)
    observed = simulate(trace, some.executors, policy, limits=limits, observer=lambda state, steps: None)
    assert in_doubt < 0.05 * (len(asked) - in_doubt)
    for field in ("task_start_s", "task_end_s", "task_executor", "stage_held_s"):
        np.testing.assert_array_equal(getattr(compiled, field), getattr(observed, field))
    assert (compiled.decisions, compiled.events) == (observed.decisions, observed.events)


def other_output(graph: Any) -> None:
    """Let the graph answer with twice the costs that it would."""
    last = next(each for each in graph.node if OUTPUT in each.output)
    last.output[list(last.output).index(OUTPUT)] = "half"
    graph.node.append(onnx.helper.make_node("Add", ["half", "half"], [OUTPUT]))


def other_layers(graph: Any) -> None:
    """Put a layer before all others whose answer nobody uses."""
    first = next(each for each in graph.node if each.op_type == "Gemm")
    graph.node.insert(0, onnx.helper.make_node("Gemm", [INPUT, *first.input[1:]], ["unused"]))
    graph.node[0].attribute.extend(first.attribute)


@pytest.mark.parametrize("change", [other_output, other_layers])
def test_a_file_that_is_built_otherwise_than_an_export_is_asked_as_it_is(
    tmp_path: Path, change: Callable[[Any], None]
) -> None:
    from fermata.sim.network_file import twin_of

    shipped = onnx.load(shipped_model())
    assert twin_of(load_model(written(tmp_path, shipped.SerializeToString()))) is not None
    change(shipped.graph)
    assert twin_of(load_model(written(tmp_path, shipped.SerializeToString()))) is None


def bad_files() -> dict[str, tuple[bytes, str]]:
    """Contents that are no model, or one that cannot be run, with what is said of them."""
    outside = onnx.load_from_string(model())
    weights = outside.graph.initializer[0]
    weights.ClearField("raw_data")
    weights.data_location = onnx.TensorProto.EXTERNAL
    weights.external_data.add(key="location", value="../../../etc/hostname")
    return {
        "empty": (b"", "not an ONNX model that can be run"),
        "text": (b"hello", "not an ONNX model that can be run"),
        "truncated": (model()[: len(model()) // 2], "not an ONNX model that can be run"),
        "no such operator": (model(nodes=[node("Nope", [INPUT])]), "not an ONNX model that can be run"),
        "weights in another file": (outside.SerializeToString(), "not an ONNX model that can be run"),
    }


def test_a_file_cannot_write_to_the_terminal_of_who_looks_into_it(tmp_path: Path) -> None:
    score = Score("a\x1b[2J", "SJF\x1b]0;owned\x07", 1, 9.0, 1.0, 10.0, -10.0, 1.0, 0.0, 0.0, 0.0)
    scores = {"seeds": [1], "scenarios": {"a": asdict(score)}}
    more = {"config": "\x1b[31mred\x1b[0m\nmargin: 9", "scores": scores}
    told = fermata("policy", "info", written(tmp_path, model(metadata=METADATA | more))).stdout
    assert "SJF" in told
    assert "\x1b" not in told
    assert "\nmargin: 9" not in told


def test_weights_in_another_file_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are beside the process, where ONNX Runtime looks by itself, and no digest covers them."""
    monkeypatch.chdir(tmp_path)
    outside = onnx.load_from_string(model())
    weights = outside.graph.initializer[0]
    (tmp_path / "weights").write_bytes(weights.raw_data)
    weights.ClearField("raw_data")
    weights.data_location = onnx.TensorProto.EXTERNAL
    weights.external_data.add(key="location", value="weights")
    with pytest.raises(ModelError, match="not an ONNX model that can be run: "):
        load_model(written(tmp_path, outside.SerializeToString()))


def bad_metadata() -> dict[str, tuple[bytes, str]]:
    return {
        "none": (model(metadata=""), "has no 'fermata' metadata"),
        "no text": (model().replace(b"fermata", b"ferm\xd3ta"), "its metadata is not text"),
        "not JSON": (model(metadata="{"), "its 'fermata' metadata is not JSON"),
        "nested too deeply": (model(metadata="[" * 100_000), "its 'fermata' metadata is not JSON"),
        "none, of an inspector": (
            model(metadata="", inputs=[(INPUT, FLOAT, ("rows", 8))]),
            "has no 'fermata' metadata",
        ),
        "another schema, of fewer features": (
            model(metadata={"schema": "other/1"}, inputs=[(INPUT, FLOAT, ("rows", SIZE - 1))]),
            "feature schema is 'other/1', expected",
        ),
        "a list": (model(metadata="[]"), "feature schema is 'list', expected"),
        "another schema": (model(metadata={"schema": "other/1"}), "feature schema is 'other/1', expected"),
        "margin infinite": (model(metadata=METADATA | {"margin": math.inf}), "margin inf in its metadata is not"),
        "margin of 400 digits": (model(metadata=METADATA | {"margin": 10**400}), "margin inf in its metadata is not"),
        "margin no number": (model(metadata=METADATA | {"margin": "x"}), "margin 'x' in its metadata is not"),
        "for no executors": (
            model(metadata=METADATA | {"taught_executors": 0}),
            "taught_executors 0 in its metadata",
        ),
        "for NaN executors": (model(metadata=METADATA | {"taught_executors": math.nan}), "taught_executors nan in"),
    }


def bad_shapes() -> dict[str, tuple[bytes, str]]:
    rows: tuple[int | str, ...] = ("decisions", SIZE)
    same = [node("Identity", [INPUT])]
    scalar = model(nodes=[node("Identity", ["bias"])], inputs=[(INPUT, FLOAT, ())])
    return {
        "another input": (model(inputs=[("x", FLOAT, rows)]), "expected one input 'features'"),
        "too many features": (model(inputs=[(INPUT, FLOAT, ("n", SIZE + 1))]), "expected one input 'features'"),
        "a scalar": (scalar, "expected one input 'features'"),
        "two inputs": (model(inputs=[(INPUT, FLOAT, rows), ("more", FLOAT, rows)]), "expected one input"),
        "another output": (model(output="value"), "and an output 'cost'"),
        "two costs": (model((0.0, 1.0)), r"expected cost of shape \(2, 3\), got \(2, 2\)"),
        "one decision at a time": (model(inputs=[(INPUT, FLOAT, (1, SIZE))]), "failed"),
        "doubles": (model(inputs=[(INPUT, DOUBLE, rows)], nodes=same, kind=DOUBLE), "failed"),
    }


def bad_answers() -> dict[str, tuple[bytes, str]]:
    return {
        "words": (model(nodes=[node("Cast", [INPUT], to=STRING)], kind=STRING), "expected cost"),
        "a list of tensors": (sequence_model(), "failed|expected cost"),
        "NaN": (model((0.0, math.nan, 0.0)), "answered with a number that is not finite"),
        "infinite": (model((0.0, math.inf, 0.0)), "answered with a number that is not finite"),
    }


def node(operator: str, inputs: Sequence[str], **attributes: Any) -> Any:
    return onnx.helper.make_node(operator, inputs, [OUTPUT], **attributes)


def sequence_model() -> bytes:
    made = onnx.load_from_string(model(nodes=[node("SequenceConstruct", ["zero", "bias"])]))
    element = onnx.helper.make_tensor_type_proto(FLOAT, None)
    made.graph.output[0].type.CopyFrom(onnx.helper.make_sequence_type_proto(element))
    content: bytes = made.SerializeToString()
    return content


BAD = {
    f"{kind}: {name}": case
    for kind, cases in (
        ("file", bad_files()),
        ("metadata", bad_metadata()),
        ("shape", bad_shapes()),
        ("answer", bad_answers()),
    )
    for name, case in cases.items()
}


@pytest.mark.parametrize("which", BAD)
def test_a_model_that_cannot_be_used_says_why(tmp_path: Path, which: str, capfd: pytest.CaptureFixture[str]) -> None:
    content, message = BAD[which]
    path = written(tmp_path, content)
    with pytest.raises(ModelError, match=message) as error:
        OnnxPolicy.load(path)
    with pytest.raises(ModelError, match=message) as named:
        load_model(path)
    assert str(named.value).startswith(f"{path}: ")
    assert str(named.value).count(str(path)) == 1
    for each in (error.value, named.value):
        assert "\n" not in str(each)
        assert each.exit_code == 2
    assert capfd.readouterr().out == ""


def test_a_loop_without_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper, boolean = onnx.helper, onnx.TensorProto.BOOL
    turn = helper.make_tensor_value_info("turn", onnx.TensorProto.INT64, ())
    go_on, still = (helper.make_tensor_value_info(name, boolean, ()) for name in ("go_on", "still"))
    costs, same = (helper.make_tensor_value_info(name, FLOAT, ("decisions", 3)) for name in ("costs", "same"))
    body = [helper.make_node("Identity", ["go_on"], ["still"]), helper.make_node("Identity", ["costs"], ["same"])]
    nodes = [
        helper.make_node("Constant", [], ["yes"], value=helper.make_tensor("yes", boolean, (), [True])),
        helper.make_node("Gemm", [INPUT, "zero", "bias"], ["flat"]),
        node("Loop", ["", "yes", "flat"], body=helper.make_graph(body, "body", [turn, go_on, costs], [still, same])),
    ]
    path = written(tmp_path, model(nodes=nodes))
    monkeypatch.setattr(onnx_file, "TRIAL_S", 0.2)
    with pytest.raises(ModelError, match=r"tiny\.onnx: gives no answer within 0\.2 s") as error:
        load_model(path)
    assert str(error.value).count(str(path)) == 1


def test_no_damage_to_a_file_is_anything_but_a_model_error(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    good, usable = np.frombuffer(model(), np.uint8), 0
    for _ in range(400):
        damaged = good.copy()
        damaged[rng.integers(0, len(good), 2)] = rng.integers(0, 256, 2)
        try:
            OnnxPolicy.load(written(tmp_path, damaged.tobytes()))
            usable += 1  # a weight, or a name that nobody reads
        except ModelError:
            pass
    assert 0 < usable < 400


def test_a_missing_file_a_folder_and_a_wrong_digest(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"none\.onnx: cannot be read: No such file"):
        OnnxPolicy.load(tmp_path / "none.onnx")
    with pytest.raises(ModelError, match="cannot be read: Is a directory"):
        OnnxPolicy.load(tmp_path)
    path = written(tmp_path, model())
    with pytest.raises(ModelError, match=r"sha256 is [0-9a-f]{64}, expected 00ff"):
        OnnxPolicy.load(path, "00ff")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.onnx"
    with path.open("wb") as stream:
        stream.truncate(MAX_MODEL_BYTES + 1)  # sparse: takes no room
    with pytest.raises(ModelError, match="is too large for a policy"):
        OnnxPolicy.load(path)


def test_a_model_that_fails_later_says_so_too(tmp_path: Path) -> None:
    # The root of what is below zero: fine for the dry run's zeros, NaN for any state.
    helper = onnx.helper
    nodes = [
        helper.make_node("Gemm", [INPUT, "zero", "bias"], ["flat"]),
        helper.make_node("ReduceMax", [INPUT], ["most"], keepdims=1),
        helper.make_node("Neg", ["most"], ["negative"]),
        helper.make_node("Sqrt", ["negative"], ["root"]),
        helper.make_node("Add", ["flat", "root"], [OUTPUT]),
    ]
    policy = OnnxPolicy.load(written(tmp_path, model(nodes=nodes)))
    with pytest.raises(ModelError, match="policy 'tiny' answered with a number that is not finite"):
        policy.choose(first_state(one_stage_jobs((0.0, 4.0)), 2))
    with pytest.raises(ModelError):
        simulate(one_stage_jobs((0.0, 4.0)), 2, policy)


def test_the_shipped_model_is_found_by_its_name() -> None:
    policy = load("default")
    assert isinstance(policy, OnnxPolicy)
    assert policy.metadata["schema"] == SCHEMA
