"""What is wrong with a manifest, by the file and the line, and in a cluster by its reason."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.processes import fermata
from tests.unit.operator.objects import stage, workflow
from typer.testing import CliRunner

from fermata.cli.admission import problems, refusals
from fermata.cli.validate import app
from fermata.operator import reasons
from fermata.operator.crds import structural
from fermata.operator.manifests import check, read
from fermata.operator.resources import MAX_STAGES, ExecutorPoolSpec, WorkflowSpec
from fermata.operator.validate import object_problems, workflow_problems
from fermata.policy.errors import InputError
from fermata.sim.kube.cel import compile_rules
from fermata.sim.kube.schema import ABSENT


def _spec(*stages: dict[str, Any], **fields: Any) -> WorkflowSpec:
    return WorkflowSpec.model_validate({"poolName": "pool", "stages": list(stages), **fields})


def test_a_sound_workflow_has_no_problem() -> None:
    assert workflow_problems(_spec(stage("a"), stage("b", "a")), ExecutorPoolSpec(executors=1)) == []


@pytest.mark.parametrize(
    ("stages", "reason", "words"),
    [
        ([stage("a", "b"), stage("b", "a")], reasons.CYCLE, "circle"),
        ([stage("a"), stage("b", "c")], reasons.UNKNOWN_PARENT, "'c'"),
        ([stage("a"), stage("a")], reasons.DUPLICATE_STAGE, "'a'"),
        ([stage("a", slots=3)], reasons.TOO_MANY_SLOTS, "needs 3"),
        ([stage("a", template={})], reasons.INVALID_SPEC, "container"),
        (
            [stage("a", template={"spec": {"restartPolicy": "Always", "containers": [{"name": "c"}]}})],
            reasons.INVALID_SPEC,
            "Never or OnFailure",
        ),
    ],
)
def test_problems_of_workflows(stages: list[dict[str, Any]], reason: str, words: str) -> None:
    problem, *_ = workflow_problems(_spec(*stages), ExecutorPoolSpec(executors=2))
    assert problem.reason == reason
    assert words in problem.message


@pytest.mark.parametrize(("field", "written"), [("mode", "Off"), ("fallback", "yes")])
def test_a_word_that_yaml_makes_a_boolean_of_has_to_be_in_quotes(tmp_path: Path, field: str, written: str) -> None:
    file = tmp_path / "pool.yaml"
    pool = "apiVersion: fermata.dev/v1alpha1\nkind: ExecutorPool\nmetadata: {name: p}\nspec:\n  executors: 2\n"
    file.write_text(f"{pool}  {field}: {written}\n")
    done = CliRunner().invoke(app, [str(file)])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"fermata: {file}:6: InvalidSpec: spec.{field}: ")
    assert done.stderr.endswith(f"got {written == 'yes'}, a boolean: in YAML such a word has to be in quotes\n")
    file.write_text(f'{pool}  mode: "Off"\n')
    assert CliRunner().invoke(app, [str(file)]).exit_code == 0


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("name: 20261127", "metadata.name: expected a name, got 20261127, a number: in YAML it has to be in quotes"),
        (
            "name: n",
            "metadata.name: expected a name, got False, a boolean: in YAML such a word has to be in quotes",
        ),
        ("generateName: 5", "metadata.generateName: expected a name, got 5, a number: in YAML it has to be in quotes"),
        ("name: 0", "metadata.name: expected a name, got 0, a number: in YAML it has to be in quotes"),
        ("labels: {}", "expected a name, got none"),
    ],
)
def test_a_name_that_yaml_does_not_take_for_text_is_not_called_none(tmp_path: Path, written: str, said: str) -> None:
    file = tmp_path / "pool.yaml"
    file.write_text(
        f"apiVersion: fermata.dev/v1alpha1\nkind: ExecutorPool\nmetadata: {{{written}}}\nspec: {{executors: 2}}\n"
    )
    done = CliRunner().invoke(app, [str(file)])
    assert (done.exit_code, done.stderr) == (2, f"fermata: {file}:3: InvalidSpec: {said}\n")


def test_a_stage_named_by_a_number_has_to_be_in_quotes() -> None:
    (problem,) = problems(workflow("w", stage("a") | {"name": 1}))
    assert problem.message.endswith("got 1, a number: in YAML it has to be in quotes")


def test_a_cycle_is_named_from_stage_to_stage() -> None:
    (problem,) = workflow_problems(_spec(stage("x"), stage("a", "c", "x"), stage("b", "a"), stage("c", "b")))
    circle = problem.message.rpartition(": ")[2].split(" -> ")
    assert circle[0] == circle[-1]
    assert set(pairwise(circle)) == {("c", "a"), ("a", "b"), ("b", "c")}


def test_a_long_cycle_names_its_first_stages_and_how_many_more() -> None:
    names = [f"{index:063d}" for index in range(MAX_STAGES)]
    (problem,) = workflow_problems(_spec(*(stage(name, names[index - 1]) for index, name in enumerate(names))))
    assert problem.message.endswith(" and 990 more")
    assert problem.message.count(" -> ") == 9
    assert len(problem.message) < 1000, "an Event has no room for more"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tasks": 0}, "spec.stages[0].tasks"),
        ({"estimateSeconds": -1}, "got -1"),
        ({"estimateSeconds": float("inf")}, "spec.stages[0].estimateSeconds"),
        ({"estimateSeconds": 1.5}, "spec.stages[0].estimateSeconds"),
        ({"name": ""}, "spec.stages[0].name"),
        ({"name": "Not_A_Name"}, "Not_A_Name"),
        ({"command": ["x"]}, "unknown key 'command'"),
        ({"template": "busybox"}, "spec.stages[0].template"),
    ],
)
def test_problems_of_the_schema_say_where(change: dict[str, Any], words: str) -> None:
    problems = object_problems(workflow("w", {**stage("a"), **change}))
    assert problems
    assert words in problems[0].message


@pytest.mark.parametrize("raw", [None, 3, "text", [], {}, {"apiVersion": "v1"}, {"apiVersion": "fermata.dev/v1alpha1"}])
def test_anything_that_is_no_object_of_ours_is_a_problem(raw: Any) -> None:
    assert object_problems(raw)


def test_no_stages() -> None:
    assert object_problems(workflow("w"))[0].reason == reasons.NO_STAGES


def _selecting(**selector: Any) -> dict[str, Any]:
    spec = {"executors": 2, "namespaceSelector": selector}
    return {"apiVersion": "fermata.dev/v1alpha1", "kind": "ExecutorPool", "metadata": {"name": "p"}, "spec": spec}


@pytest.mark.parametrize(
    ("operator", "values", "expected"),
    [
        ("In", [], "In: expected one value or more, got []"),
        ("NotIn", [], "NotIn: expected one value or more, got []"),
        ("Exists", ["a"], "Exists: expected no values, got ['a']"),
        ("DoesNotExist", ["a"], "DoesNotExist: expected no values, got ['a']"),
        ("In", ["a"], ""),
        ("NotIn", ["a", "b"], ""),
        ("Exists", [], ""),
        ("DoesNotExist", [], ""),
    ],
)
def test_a_selector_that_could_not_be_obeyed_is_refused(operator: str, values: list[str], expected: str) -> None:
    pool = _selecting(matchExpressions=[{"key": "env", "operator": operator, "values": values}])
    told = [problem.message for problem in object_problems(pool)]
    assert told == ([f"spec.namespaceSelector.matchExpressions[0]: {expected}"] if expected else [])
    schema = structural(ExecutorPoolSpec)
    causes = list(compile_rules(schema).check(pool["spec"], ABSENT))
    assert bool(causes) == bool(expected), "an API server refuses the same"


@pytest.mark.parametrize(
    ("key", "fits"),
    [
        ("env", True),
        ("a.b/c_D", True),
        ("a b", False),
        ("-a", False),
        ("/a", False),
        ("a" * 64, False),
        ("a..b/c", False),
        ("a.-b/c", False),
        (f"{'a' * 253}/{'c' * 63}", True),
        (f"{'a' * 254}/c", False),
    ],
)
def test_a_selectors_keys_are_those_of_labels(key: str, fits: bool) -> None:
    for selector in ({"matchLabels": {key: "x"}}, {"matchExpressions": [{"key": key, "operator": "Exists"}]}):
        told = [problem.message for problem in object_problems(_selecting(**selector))]
        assert [repr(key) in message for message in told] == ([] if fits else [True])


@pytest.mark.parametrize(
    ("value", "fits"),
    [("", True), ("a_B.c", True), ("a" * 63, True), ("a" * 64, False), ("prod!", False), ("-a", False), ("a\n", False)],
)
def test_a_selectors_values_are_those_of_labels(value: str, fits: bool) -> None:
    expression = {"key": "env", "operator": "In", "values": ["b", value]}
    for selector in ({"matchLabels": {"env": value}}, {"matchExpressions": [expression]}):
        pool = _selecting(**selector)
        told = [problem.message for problem in object_problems(pool)]
        assert [repr(value) in message for message in told] == ([] if fits else [True])
        assert bool(refusals(pool)) != fits, "an API server refuses the same"


MANIFEST = """\
apiVersion: fermata.dev/v1alpha1
kind: ExecutorPool
metadata: {name: pool}
spec:
  executors: 2
---
apiVersion: v1
kind: ConfigMap
metadata: {name: not-ours}
---
apiVersion: fermata.dev/v1alpha1
kind: Workflow
metadata:
  name: w
spec:
  poolName: pool
  stages:
    - name: a
      template: {spec: {containers: [{name: c}]}}
    - name: b
      dependsOn: [a, ghost]
      template: {spec: {containers: [{name: c}]}}
"""


def test_a_problem_has_the_line_on_which_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(MANIFEST)
    pool, config, wf = read(file)
    assert pool.ours
    assert not config.ours
    assert check(pool, file) == []
    (error,) = check(wf, file)
    assert error.line == 1 + MANIFEST.splitlines().index("      dependsOn: [a, ghost]")
    assert "ghost" in str(error)


@pytest.mark.parametrize(
    ("version", "ours"),
    [
        ("fermata.dev/v9", True),
        ("fermata.io/v1alpha1", True),
        ("v1", True),
        ("argoproj.io/v1alpha1", False),
        ("example.org/v1", False),
    ],
)
def test_workflows_of_others_are_left_alone(tmp_path: Path, version: str, ours: bool) -> None:
    (tmp_path / "a.yaml").write_text(f"apiVersion: {version}\nkind: Workflow\nmetadata: {{name: a}}\n")
    (document,) = read(tmp_path / "a.yaml")
    assert document.ours == ours


def test_the_same_in_json(tmp_path: Path) -> None:
    file = tmp_path / "m.json"
    file.write_text(json.dumps(workflow("w", stage("a", "ghost")) | {"status": {}}, indent=1))
    (document,) = read(file)
    (error,) = check(document, file)
    assert file.read_text().splitlines()[(error.line or 0) - 1].strip() == '"ghost"'


def test_a_character_that_json_spells_as_a_surrogate_pair_is_one(tmp_path: Path) -> None:
    raw = workflow("w", stage("a"))
    raw["metadata"]["annotations"] = {"team": "\U0001f3b5"}
    file = tmp_path / "m.json"
    file.write_text(json.dumps(raw))
    assert "\\ud83c\\udfb5" in file.read_text()
    (document,) = read(file)
    assert document.content == raw
    assert not check(document, file, problems)


def test_a_list_is_opened(tmp_path: Path) -> None:
    file = tmp_path / "m.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [workflow("w", stage("a"))]}))
    (document,) = read(file)
    assert check(document, file) == []


def test_the_items_of_a_list_of_one_kind_need_not_say_it(tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    item = "- metadata: {name: p}\n  spec: {executors: 2}\n"
    file.write_text(f"apiVersion: fermata.dev/v1alpha1\nkind: ExecutorPoolList\nitems:\n{item}")
    (document,) = read(file)
    assert check(document, file) == []
    assert document.line_of(("spec", "executors")) == 5


# What `kubectl create --dry-run=client -o json` makes of it.
MERGED = """\
base: &base {name: a, tasks: 2, template: &template {spec: {}}}
other: &other {name: b, slots: 3}
after: {<<: *base, name: c}
before:
  name: c
  <<: *base
both: {<<: [*base, *other]}
inside:
  template:
    <<: *template
    spec: {x: 1}
true: {"<<": quoted}
"""


def test_merge_keys_are_read_as_kubectl_does(tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(MERGED)
    (document,) = read(file)
    base = {"name": "a", "tasks": 2, "template": {"spec": {}}}
    assert document.content == {
        "base": base,
        "other": {"name": "b", "slots": 3},
        "after": {**base, "name": "c"},
        "before": base,
        "both": {**base, "slots": 3},
        "inside": {"template": {"spec": {"x": 1}}},
        "true": {"<<": "quoted"},
    }
    assert document.line_of(("after", "name")) == 3
    assert document.line_of(("after", "tasks")) == 1, "where it is written"


# What kubectl 1.32 makes of these.
@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("y", True),
        ("N", False),
        ("yep", "yep"),
        ("off", False),
        ("1e3", 1000),
        ("12e4567", "12e4567"),
        ("0o7", 7),
        ("012", 10),
        ("089", 89),
        ("1_000", 1000),
        ("1:30", "1:30"),
        ("2001-01-01", "2001-01-01"),
        ("~", None),
        ("'y'", "y"),
        ("!!str 1e3", "1e3"),
        pytest.param("0x" + "f" * 5000, "0x" + "f" * 5000, id="hex"),
        pytest.param("9" * 5000, "9" * 5000, id="long"),
    ],
)
def test_plain_words_and_numbers_are_read_as_kubectl_does(tmp_path: Path, written: str, sent: Any) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(f"a: {written}\n")
    (document,) = read(file)
    read_value = document.content["a"]
    assert (read_value, isinstance(read_value, bool)) == (sent, isinstance(sent, bool))


# A few lines, and a million values.
BOMB = "\na: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{below}'] * 10)}]\n" for below, name in pairwise("abcdef")
)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: [1\nb: 2\n", 2, "broken YAML"),
        ("a: 1\nb: 2\na: 3\n", 3, "'a' is given twice"),
        ("", 1, "no object"),
        ("a: &x [*x]\n", 1, "contains itself"),
        (BOMB, 2, "aliases that stand for more than 400,000 values"),
        (f"{BOMB}? *f\n: key\n", 2, "aliases that stand for more than 400,000 values"),
        ('a: 1\nb: "\\ud800"\n', 2, "half of a surrogate pair"),
        ("a: 1\nb:\n  <<: 3\n", 3, "<<: expected a mapping"),
        ("a: " + "[" * 5000 + "]" * 5000, None, "nested too deeply"),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path: Path, text: str, line: int | None, words: str) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=words) as caught:
        read(file)
    assert caught.value.line == line
    assert "\n" not in str(caught.value)


def test_the_command_accepts_the_examples() -> None:
    folder = Path(__file__).resolve().parents[3] / "examples"
    examples = [*folder.glob("*.yaml"), *folder.glob("*/workflow.yaml")]
    result = CliRunner().invoke(app, [str(path) for path in examples])
    assert result.exit_code == 0, result.output
    assert "valid" in result.output


def _written(tmp_path: Path, raw: dict[str, Any]) -> Path:
    file = tmp_path / "m.json"
    file.write_text(json.dumps({key: value for key, value in raw.items() if key != "status"}))
    return file


def _pod(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", "image": "i"}]}, **fields}


def _container(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", "image": "i", **fields}]}}


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (workflow("w", stage("a"), priority="5"), "spec.priority"),
        (workflow("w", stage("a"), suspend="yes"), "spec.suspend"),
        (workflow("w", stage("a", tasks="2")), "spec.stages[0].tasks"),
        (workflow("Bad_Name", stage("a")), "metadata.name"),
        (workflow("w" * 254, stage("a")), "no more than 253"),
        (workflow("w", stage("a")) | {"metadata": {"name": "w", "namespace": "Team A"}}, "metadata.namespace"),
        (workflow("w", stage("a"), labels={"team": 1}), "metadata.labels"),
        (workflow("w", stage("a"), annotations={"team": 1}), "metadata.annotations"),
        (workflow("w", stage("a"), stage("b", "a", "a")), "spec.stages[1].dependsOn[1]"),
        (workflow("w", {"name": "a", "depends_on": [], "template": _pod()}), "spec.stages[0].depends_on: unknown"),
        (workflow("w", stage("a", template={"spec": {"containers": ["x"]}})), "template.spec.containers[0]"),
        (workflow("w", stage("a", template={"spec": {"containers": [{"name": ""}]}})), "containers[0].name"),
        (workflow("w", stage("a", template=_pod(metadata={"labels": {"n": 1}}))), "template.metadata.labels.n"),
        (workflow("w", stage("a", template=_pod(sepc={}))), "spec.stages[0].template.sepc: unknown"),
        (
            workflow("w", stage("a", template=_container(comand=["x"]))),
            "template.spec.containers[0].comand: unknown field in Kubernetes 1.",
        ),
        (
            workflow("w", stage("a"), stage("b", template=_container(env=[{"name": "N", "value": 1}]))),
            "spec.stages[1].template.spec.containers[0].env[0].value",
        ),
    ],
)
def test_what_an_api_server_refuses_is_not_valid(tmp_path: Path, raw: dict[str, Any], words: str) -> None:
    file = _written(tmp_path, raw)
    done = fermata("validate", str(file))
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"fermata: {file}:1: InvalidSpec: ")
    assert words in line


def test_a_namespace_may_be_left_to_kubectl(tmp_path: Path) -> None:
    for name in ({}, {"namespace": ""}, {"namespace": None}, {"namespace": "team-a"}):
        raw = workflow("w", stage("a")) | {"metadata": {"name": "w"} | name}
        assert fermata("validate", str(_written(tmp_path, raw))).returncode == 0, name


def test_what_only_the_api_server_refuses_has_its_line(tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(MANIFEST.replace("[a, ghost]", "[a, a]"))
    told = fermata("validate", str(file)).stderr
    assert told.startswith(f"fermata: {file}:21: InvalidSpec: spec.stages[1].dependsOn[1]: Duplicate")


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"name": "w" * 253}},
        {"metadata": {"generateName": "w-"}},
        {"metadata": {"name": "w.x", "labels": {"a": "1"}, "annotations": {"a/b": "x y"}}},
        {"spec": {"poolName": "p", "priority": 5.0, "stages": [{"name": "a", "template": _pod(metadata={})}]}},
        {
            "spec": {
                "poolName": "p",
                "stages": [{"name": "a", "template": _container(resources={"limits": {"cpu": 1}}, env=None)}],
            }
        },
    ],
)
def test_what_an_api_server_takes_is_valid(tmp_path: Path, change: dict[str, Any]) -> None:
    result = CliRunner().invoke(app, [str(_written(tmp_path, workflow("w", stage("a")) | change))])
    assert result.exit_code == 0, result.exception


def test_a_date_in_yaml_is_text_as_for_kubectl(tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(MANIFEST.replace("  name: w", "  name: w\n  labels: {day: 2026-01-02}").replace(", ghost", ""))
    result = CliRunner().invoke(app, [str(file)])
    assert result.exit_code == 0, result.exception


def test_the_command_refuses_with_code_2(tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(MANIFEST)
    done = fermata("validate", str(file))
    assert done.returncode == 2
    assert done.stderr.startswith(f"fermata: {file}:21: UnknownParent: ")


def test_a_manifest_may_come_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = CliRunner().invoke(app, ["-"], input=MANIFEST)
    assert ran.exit_code == 2
    assert ran.stderr.startswith("fermata: <stdin>:21: UnknownParent: ")
    monkeypatch.setattr("fermata.operator.manifests._MAX_BYTES", 100)
    too_much = CliRunner().invoke(app, ["-"], input=MANIFEST)
    assert (too_much.exit_code, too_much.stderr) == (2, "fermata: <stdin>: too large; expected at most 100 bytes\n")


POOL = """\
apiVersion: fermata.dev/v1alpha1
kind: ExecutorPool
metadata:
  name: p
  lables: {a: b}
spec:
  executors: 0
  policy: {name: sjff}
  fallback: default
  mod: Off
"""


def test_every_problem_of_every_file_is_a_line(tmp_path: Path) -> None:
    pool, broken, workflows = (tmp_path / name for name in ("pool.yaml", "broken.yaml", "workflows.yaml"))
    pool.write_text(POOL)
    broken.write_text("a: [1\n")
    workflows.write_text(MANIFEST)
    done = fermata("validate", str(pool), str(broken), str(workflows))
    assert (done.returncode, done.stdout) == (2, "")
    expected = [
        f"{pool}:5: InvalidSpec: metadata.lables: unknown field",
        f"{pool}:7: InvalidSpec: spec.executors: input should be greater than or equal to 1, got 0",
        f"{pool}:8: PolicyUnknown: spec.policy.name: no policy 'sjff'; expected one of default, ",
        f"{pool}:9: FallbackUnknown: spec.fallback 'default': expected one of fair, ",
        f"{pool}:10: InvalidSpec: spec.mod: unknown key 'mod'",
        f"{broken}:2: broken YAML: ",
        f"{workflows}:21: UnknownParent: ",
    ]
    lines = done.stderr.splitlines()
    assert len(lines) == len(expected)
    for line, head in zip(lines, expected, strict=True):
        assert line.startswith(f"fermata: {head}")


NULLS = [
    {"spec": {"executors": 2, "mode": None, "policy": None, "maxHoldSeconds": None, "namespaceSelector": None}},
    {"metadata": {"name": "p", "labels": None, "annotations": {"a": None}}},
    {"metadata": {"name": "p", "labels": {"a": None}, "creationTimestamp": None}},
    {"status": None},
]


@pytest.mark.parametrize("change", NULLS)
def test_what_is_null_is_not_given(change: dict[str, Any]) -> None:
    assert problems(_selecting() | change) == []


@pytest.mark.parametrize("field", ["dependsOn", "tasks", "retries", "parallelism"])
def test_what_is_null_in_a_stage_is_not_given(field: str) -> None:
    assert problems(workflow("w", {**stage("a"), field: None})) == []


@pytest.mark.parametrize("wrong", [{"spec": None}, {"spec": {"executors": None}}, {"metadata": {"name": None}}])
def test_what_is_required_is_not_null(wrong: dict[str, Any]) -> None:
    assert problems(_selecting() | wrong)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"metadata": {"name": "p", "annotation": {}}}, "metadata.annotation: unknown field"),
        ({"metadata": {"name": "p", "namespace": False}}, "metadata.namespace: json: cannot unmarshal bool"),
        ({"status": {"foo": 1}}, "status.foo: unknown field"),
        ({"kind": ["ExecutorPool"]}, "expected kind"),
        ({"metadata": "p"}, "expected metadata with a name"),
        ({"spec": {"executors": 2, "policy": {"name": "sjf:tau=1"}}}, "spec.policy.name: "),
        (
            {"spec": {"executors": 2, "policy": {"name": "default:tau=1"}}},
            "spec.policy.name: policy 'default' is a model, which has no parameters",
        ),
    ],
)
def test_typos_that_no_server_takes_or_no_operator_knows(change: dict[str, Any], words: str) -> None:
    (problem,) = problems(_selecting() | change)
    assert problem.message.startswith(words)


def test_a_pool_is_not_told_to_name_a_path_which_it_may_not() -> None:
    (problem,) = problems(_selecting() | {"spec": {"executors": 2, "policy": {"name": "nightly"}}})
    assert problem.message.endswith("weighted-fair, or a model of your own in spec.policy.model")
