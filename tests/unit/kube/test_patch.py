"""Patches worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from fermata.sim.kube.errors import ApiError
from fermata.sim.kube.patch import json_patch, merge_patch, strategic_patch

# Source: RFC 7396, appendix A.
RFC_7396 = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("target", "patch", "result"), RFC_7396)
def test_merge_patch_as_in_the_rfc(target: Any, patch: Any, result: Any) -> None:
    assert merge_patch(target, patch) == result


def test_patches_leave_their_target_alone() -> None:
    target = {"a": {"b": [1]}, "spec": {"containers": [{"name": "x", "env": [{"name": "A", "value": "1"}]}]}}
    before = repr(target)
    merge_patch(target, {"a": {"c": 1}})
    json_patch(target, [{"op": "add", "path": "/a/b/-", "value": 2}])
    strategic_patch(target, {"spec": {"containers": [{"name": "x", "env": [{"name": "A", "value": "2"}]}]}})
    assert repr(target) == before


@pytest.mark.parametrize(
    ("patch", "code"),
    [
        ([{"op": "test", "path": "/a", "value": 2}], 422),
        ([{"op": "remove", "path": "/none"}], 422),
        ([{"op": "nonsense", "path": "/a"}], 422),
        ({"op": "remove"}, 400),
        ([{"op": "add", "path": "a", "value": 1}], 422),
        ([None], 422),
        ([1], 400),
        (["remove"], 400),
        ([{"op": "remove", "path": 5}], 400),
    ],
)
def test_json_patches_that_do_not_fit(patch: Any, code: int) -> None:
    with pytest.raises(ApiError) as refused:
        json_patch({"a": 1}, patch)
    assert refused.value.code == code


def test_strategic_merge_by_key_and_order() -> None:
    target = {"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}], "volumes": []}}
    patch = {
        "spec": {
            "$setElementOrder/containers": [{"name": "c"}, {"name": "b"}],
            "containers": [{"name": "b", "image": "2"}, {"name": "c"}, {"name": "a", "$patch": "delete"}],
        }
    }
    assert strategic_patch(target, patch)["spec"]["containers"] == [{"name": "c"}, {"name": "b", "image": "2"}]


def test_strategic_directives() -> None:
    assert strategic_patch({"a": {"x": 1, "y": 2}}, {"a": {"$patch": "replace", "z": 3}}) == {"a": {"z": 3}}
    assert strategic_patch({"a": {"x": 1}}, {"a": {"$patch": "delete"}}) == {}
    assert strategic_patch({"x": 1, "y": 2}, {"$retainKeys": ["x"], "x": 3}) == {"x": 3}
    finalizers = {"metadata": {"finalizers": ["a", "b"]}}
    assert strategic_patch(finalizers, {"metadata": {"finalizers": ["c"]}})["metadata"]["finalizers"] == ["a", "b", "c"]
    less = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}
    assert strategic_patch(finalizers, less) == {"metadata": {"finalizers": ["b"]}}
    assert strategic_patch({"spec": {"args": [1, 2]}}, {"spec": {"args": [3]}}) == {"spec": {"args": [3]}}
    with pytest.raises(ApiError, match="merge key"):
        strategic_patch({}, {"containers": [{"image": "x"}]})


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"$retainKeys": "containers"}},
        {"$retainKeys": True},
        {"spec": {"$setElementOrder/containers": 5}},
        {"$deleteFromPrimitiveList/x": "a"},
        {"$deleteFromPrimitiveList/spec": ["containers"]},
        {"$patch": "odd"},
        {"spec": {"containers": [{"name": "x", "$patch": "odd"}]}},
    ],
)
def test_strategic_directives_that_are_none(patch: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as refused:
        strategic_patch({"spec": {"containers": [{"name": "x"}]}}, patch)
    assert refused.value.code == 400


@pytest.mark.parametrize("target", [1, "env", {"name": "A"}])
def test_a_strategic_list_takes_the_place_of_what_is_none(target: Any) -> None:
    wanted = [{"name": "A", "value": "1"}]
    assert strategic_patch({"env": target}, {"env": wanted}) == {"env": wanted}


def test_an_order_of_odd_elements_changes_nothing() -> None:
    target = {"containers": [{"name": "x"}, {"name": "y"}]}
    assert strategic_patch(target, {"$setElementOrder/containers": [{"name": ["y"]}, ["x"]]}) == target
