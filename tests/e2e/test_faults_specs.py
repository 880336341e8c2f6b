"""500 malformed Workflows, drawn from the schema: each is refused or told why, and no neighbour is harmed.

`fermata validate` knows of each that is refused.
"""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fault_rig import bench
from tests.operator_rig import DEPLOY, GROUP, VERSION, Raw, condition_of, stage, stages_of, wait_until

from fermata.cli.admission import refusals
from fermata.operator.validate import object_problems
from fermata.sim.kube.client import Client
from fermata.sim.kube.errors import ApiError

pytestmark = pytest.mark.e2e

CRD = yaml.safe_load((DEPLOY / "crds/workflows.fermata.dev.yaml").read_text(encoding="utf-8"))
SCHEMA = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
STAGE = SCHEMA["properties"]["stages"]["items"]
EXECUTORS = 2
JUNK: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "integer": st.integers(-(2**40), 2**40),
    "number": st.floats(0.1, 0.9),
    "string": st.text(max_size=8),
    "array": st.lists(st.integers(0, 9), min_size=1, max_size=2),
    "object": st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 9), min_size=1),
}


def wrong(schema: Raw) -> st.SearchStrategy[Any]:
    """Return values that a schema refuses: of another type, or out of its bounds."""
    kind = schema["type"]
    fits = {kind, "integer"} if kind == "number" else {kind}
    choices = [strategy for name, strategy in JUNK.items() if name not in fits]
    if "minimum" in schema:
        choices.append(st.integers(-(2**40), schema["minimum"] - 1))
    if "maximum" in schema:
        choices.append(st.integers(schema["maximum"] + 1, 2**40))
    if "enum" in schema:
        choices.append(st.text(max_size=5).filter(lambda text: text not in schema["enum"]))
    if "pattern" in schema:
        choices.append(st.sampled_from(["UPPER", "under_score", "-dash", "dash-", "a b", "ä", ""]))
    if "maxLength" in schema:
        choices.append(st.just("x" * (schema["maxLength"] + 1)))
    return st.one_of(choices)


def valid() -> Raw:
    return {"poolName": "target", "stages": [stage("a", 0.1), stage("b", 0.1, "a")]}


@st.composite
def malformed(draw: st.DrawFn) -> Raw:
    """Return a spec with at least one thing in it that no Workflow may have."""
    spec = valid()
    one = spec["stages"][draw(st.integers(0, 1))]
    match draw(st.sampled_from(["spec", "stage", "missing", "stages", "graph", "size", "template"])):
        case "spec":
            key = draw(st.sampled_from(sorted(set(SCHEMA["properties"]) - {"stages"})))
            spec[key] = draw(wrong(SCHEMA["properties"][key]))
        case "stage":
            key = draw(st.sampled_from(sorted(STAGE["properties"])))
            one[key] = draw(wrong(STAGE["properties"][key]))
        case "missing":
            key = draw(st.sampled_from(["poolName", "stages", "name", "template"]))
            del (spec if key in spec else one)[key]
        case "stages":
            spec["stages"] = draw(st.sampled_from([[], {}, "a", [1], [None], [[]], [spec["stages"]]]))
        case "graph":
            one["dependsOn"] = draw(
                st.sampled_from([["nobody"], ["a", "b"], [one["name"]], ["a", "a", "b"], ["b", "x"]])
            )
        case "size":
            one["slots"] = draw(st.integers(EXECUTORS + 1, 100_000))
        case "template":
            wrongs = {
                "containers": [[], {}, 7, [{}], [{"name": "X Y", "image": "i"}], [{"name": "x", "image": 3}]],
                "restartPolicy": ["Sometimes", "Always", 7, []],
                "volumes": [7, "x", {}],
                "hostNetwork": [7, "x", []],
            }
            key = draw(st.sampled_from(sorted(wrongs)))
            one["template"]["spec"][key] = draw(st.sampled_from(wrongs[key]))
    return spec


def test_no_malformed_workflow_harms_anything(tmp_path: Path) -> None:
    with bench(tmp_path) as busy:
        operator = busy.operator()
        busy.cluster.pool("target", executors=EXECUTORS, policy={"name": "sjf"})
        busy.cluster.submit("before", "target", [stage("a", 1.0), stage("b", 0.2, "a")])
        specs: list[Raw] = []

        @settings(
            max_examples=500, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
        )
        @given(malformed())
        def draw(spec: Raw) -> None:
            specs.append(copy.deepcopy(spec))

        draw()
        refused, stored = asyncio.run(post(busy.plane.url, specs))
        assert refused + len(stored) == len(specs) >= 500
        assert refused > 100
        assert len(stored) > 20, "nothing of it came as far as the operator"
        busy.cluster.submit("after", "target", [stage("a", 0.2), stage("b", 0.2, "a")])
        busy.check_nothing_lost(["before", "after"], "ab")
        for name, spec in stored.items():
            wait_until(lambda name=name: answered(busy.cluster.status(name)), f"{name} gets no answer: {spec}")
        for name, one in (key[:2] for key in busy.pods if key[0] in stored):
            # Only before a stage whose template the Job's API refuses, which nobody knows until it is asked.
            states = {row["name"]: row.get("reason") for row in stages_of(busy.cluster.status(name)).values()}
            assert (one, states["b"]) == ("a", "JobRejected"), f"a malformed workflow ran: {stored[name]}"
        assert operator.process.poll() is None
        assert "Traceback" not in operator.log.read_text()


async def post(url: str, specs: list[Raw]) -> tuple[int, dict[str, Raw]]:
    """Create them all; return how many were refused, and the others by name."""
    refused, stored = 0, {}
    path = "/apis/fermata.dev/v1alpha1/namespaces/default/workflows"
    async with Client(url) as client:
        for number, spec in enumerate(specs):
            name = f"bad-{number}"
            body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Workflow", "metadata": {"name": name}, "spec": spec}
            try:
                await client.create(path, copy.deepcopy(body))
                stored[name] = spec
            except ApiError as error:
                if error.code not in (400, 422):
                    raise AssertionError(f"{error.code} for {spec}") from error
                refused += 1
                assert object_problems(body) or refusals(body), f"validate finds nothing wrong with {spec}"
    return refused, stored


def answered(status: Raw) -> bool:
    """Tell whether a workflow is told that it cannot be: at once, or by the Job that the API server refuses."""
    if condition_of(status, "Accepted").get("status") == "False":
        return True
    return any(row.get("reason") == "JobRejected" for row in stages_of(status).values())
