"""The store's promises, and the small functions around it."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermata.sim.kube.controllers.indexes import format_indexes, parse_indexes
from fermata.sim.kube.errors import ApiError
from fermata.sim.kube.selectors import match_labels, parse_fields, parse_labels
from fermata.sim.kube.store import Change, Selection, Store, Table


def obj(name: str, namespace: str = "n", **meta: object) -> dict[str, object]:
    meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}", **meta}
    return {"kind": "Thing", "apiVersion": "v1", "metadata": meta}


def names(table: Table, selection: Selection) -> list[str]:
    return [entry.name for entry in table.select(selection)]


def test_versions_rise_and_objects_are_copies() -> None:
    store = Store()
    table = store.table(("", "things"))
    made = obj("a")
    first = store.write(table, made, None)
    made["metadata"] = "altered"
    assert first.load()["metadata"]["name"] == "a"
    second = store.write(table, first.load(), first)
    assert second.rv > first.rv
    assert second.load()["metadata"]["resourceVersion"] == str(second.rv)


def test_selection() -> None:
    store = Store()
    table = store.table(("", "things"), ("spec.node",))
    for name, namespace, label, node in (("b", "n", "x", "1"), ("a", "n", "y", ""), ("c", "m", "x", "1")):
        store.write(table, {**obj(name, namespace, labels={"l": label}), "spec": {"node": node}}, None)
    assert names(table, Selection()) == ["c", "a", "b"]
    assert names(table, Selection("n")) == ["a", "b"]
    assert names(table, Selection("n", parse_labels("l=x"))) == ["b"]
    fields = parse_fields("spec.node!=,metadata.name!=c", ("metadata.name", "spec.node"))
    assert names(table, Selection(None, (), fields, ("spec.node",))) == ["b"]


def test_a_watch_resumes_where_it_stopped_or_is_told() -> None:
    async def scenario() -> None:
        store = Store(history=3)
        table = store.table(("", "things"))
        entries = [store.write(table, obj(f"o{number}"), None) for number in range(5)]
        changes = await table.subscribe(entries[2].rv).take(0)
        assert [change.entry.name for change in changes] == ["o3", "o4"]
        assert await table.subscribe(entries[4].rv).take(0) == []
        with pytest.raises(ApiError) as told:
            table.subscribe(entries[0].rv)
        assert told.value.code == 410
        table.compact()
        with pytest.raises(ApiError):
            table.subscribe(entries[3].rv)

    asyncio.run(scenario())


def test_a_watch_is_told_of_nothing_as_over_that_it_has_not_been_told_of() -> None:
    """What looks empty when its time is up is told the present version, from which its client goes on later."""

    async def scenario(turns: int) -> None:
        store = Store()
        table = store.table(("", "things"))
        subscription = table.subscribe(store.rv)

        async def watch() -> tuple[list[Change], int]:
            return await subscription.take(0), store.rv

        watching = asyncio.create_task(watch())
        for _ in range(turns):
            await asyncio.sleep(0)
        entry = store.write(table, obj("a"), None)
        changes, version = await watching
        assert [change.entry for change in changes] == ([entry] if version == entry.rv else [])

    for turns in range(8):  # of the event loop, in one of which the time is up
        asyncio.run(scenario(turns))


def test_frames_are_serialised_once_and_say_what_happened() -> None:
    async def scenario() -> None:
        store = Store()
        table = store.table(("", "things"))
        subscriptions = [table.subscribe(store.rv) for _ in range(2)]
        entry = store.write(table, obj("a"), None)
        store.remove(table, entry.load(), entry)
        first, second = [await subscription.take(0) for subscription in subscriptions]
        assert [json.loads(change.frame)["type"] for change in first] == ["ADDED", "DELETED"]
        assert first[0].frame is second[0].frame
        assert len(table) == 0

    asyncio.run(scenario())


def test_owners_are_indexed() -> None:
    store = Store()
    table = store.table(("", "things"))
    owner = store.write(table, obj("owner"), None)
    child = store.write(table, obj("child", ownerReferences=[{"uid": owner.uid}]), None)
    assert [entry.name for _, entry in store.dependents(owner.uid)] == ["child"]
    free = child.load()
    del free["metadata"]["ownerReferences"]
    store.write(table, free, child)
    assert store.dependents(owner.uid) == []
    assert store.exists(owner.uid)
    store.remove(table, owner.load(), owner)
    assert not store.exists(owner.uid)


@pytest.mark.parametrize("text", ["a in b", "a in (b", "=x", "a b", "a>x"])
def test_selectors_that_are_none(text: str) -> None:
    with pytest.raises(ApiError):
        parse_labels(text)


def test_an_empty_value_is_a_value() -> None:
    assert match_labels(parse_labels("a=="), {"a": ""})
    assert not match_labels(parse_labels("a="), {})


@given(st.sets(st.integers(0, 60)))
def test_indexes_survive_writing(indexes: set[int]) -> None:
    text = format_indexes(indexes)
    assert parse_indexes(text) == indexes
    assert len(text) <= len(",".join(map(str, indexes)))
