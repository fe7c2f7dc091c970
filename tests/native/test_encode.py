"""Bodies of DynamoDB requests."""

from __future__ import annotations

import json
import types
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3k_async import _native
from s3k_async.backends.ports.items import (
    ABSENT,
    PARTITION,
    SORT,
    Action,
    Check,
    Condition,
    Delete,
    Key,
    Put,
    Update,
    Value,
)
from s3k_async.errors import InvalidArgumentError, InvalidPathError
from s3k_async.testing.reference_items import encode_item, encode_request, encode_transaction_action

TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.sampled_from(['"', "\\", "\0\x1f\x7f", "é😀"]),
)
NAMES = st.one_of(st.sampled_from(["id", "ver", "next", "op", "path", "size"]), TEXTS)
VALUES: st.SearchStrategy[Value] = st.one_of(
    TEXTS,
    st.booleans(),
    st.integers(),
    st.integers(-(10**40), 10**40),
    st.sampled_from([0, -1, 2**63, -(2**63) - 1]),
)
ATTRIBUTES = st.dictionaries(NAMES, VALUES, max_size=5)
KEYS = st.builds(Key, TEXTS, TEXTS)
CONDITIONS = st.one_of(
    st.just(ABSENT),
    st.builds(Condition, equals=ATTRIBUTES, missing=st.lists(NAMES, max_size=3).map(tuple)),
)
PUTS = st.builds(
    lambda item, key, when: Put(item | {PARTITION: key.partition, SORT: key.sort}, when),
    ATTRIBUTES,
    KEYS,
    CONDITIONS,
)
WRITES: st.SearchStrategy[Put | Update | Delete] = st.one_of(
    PUTS,
    st.builds(Update, KEYS, CONDITIONS, ATTRIBUTES, st.lists(NAMES, max_size=3).map(tuple)),
    st.builds(Delete, KEYS, CONDITIONS),
)
ACTIONS: st.SearchStrategy[Action] = st.one_of(WRITES, st.builds(Check, KEYS, CONDITIONS))
TABLES = st.one_of(st.just("meta"), TEXTS)


def _key(key: Key) -> dict[str, Any]:
    return {"path": {"S": key.partition}, "children": {"S": key.sort}}


@given(TABLES, WRITES)
def test_writes_as_the_reference(table: str, action: Put | Update | Delete) -> None:
    assert json.loads(_native.encode_write(table, action)) == encode_request(table, action)


@given(TABLES, st.lists(ACTIONS, max_size=6), TEXTS)
def test_transactions_as_the_reference(table: str, actions: list[Action], token: str) -> None:
    wanted = {
        "TransactItems": [encode_transaction_action(table, action) for action in actions],
        "ClientRequestToken": token,
    }
    assert json.loads(_native.encode_transaction(table, actions, token)) == wanted


@given(TABLES, st.lists(PUTS, max_size=4))
def test_loads_as_the_reference(table: str, puts: list[Put]) -> None:
    wanted = {
        "RequestItems": {table: [{"PutRequest": {"Item": encode_item(put.item)}} for put in puts]}
    }
    assert json.loads(_native.encode_load(table, [put.item for put in puts])) == wanted


@given(TABLES, st.lists(KEYS, max_size=5))
def test_reads_of_items(table: str, keys: list[Key]) -> None:
    for key in keys:
        wanted = {"TableName": table, "Key": _key(key), "ConsistentRead": True}
        assert json.loads(_native.encode_get(table, *key)) == wanted
    assert json.loads(_native.encode_batch_get(table, keys)) == {
        "RequestItems": {table: {"Keys": [_key(key) for key in keys], "ConsistentRead": True}}
    }


@given(TABLES, TEXTS, st.none() | KEYS, st.none() | st.integers(1, 10**6), st.integers(0, 10**6))
def test_reads_of_pages(
    table: str, partition: str, start: Key | None, limit: int | None, segment: int
) -> None:
    page: dict[str, Any] = {"TableName": table, "ConsistentRead": True}
    if start is not None:
        page["ExclusiveStartKey"] = _key(start)
    if limit is not None:
        page["Limit"] = limit
    assert json.loads(_native.encode_query(table, partition, start, limit)) == page | {
        "KeyConditionExpression": "#p = :p",
        "ExpressionAttributeNames": {"#p": "path"},
        "ExpressionAttributeValues": {":p": {"S": partition}},
    }
    scan = page | {"Segment": segment, "TotalSegments": segment + 1}
    assert json.loads(_native.encode_scan(table, segment, segment + 1, start, limit)) == scan


def test_any_mapping_will_do() -> None:
    item: dict[str, Value] = {PARTITION: "p", SORT: "s", "ver": 3}
    when = Condition(equals=types.MappingProxyType({"ver": 2}))
    action = Put(types.MappingProxyType(item), when)
    assert json.loads(_native.encode_write("t", action)) == encode_request("t", action)


def test_half_a_surrogate_pair_is_refused_by_name() -> None:
    half = "a\ud800"
    fine = Condition(equals={"ver": 1})
    for bad_key in (Key(half, "s"), Key("p", half)):
        calls: list[Callable[[], object]] = [
            lambda: _native.encode_get("t", *bad_key),  # noqa: B023
            lambda: _native.encode_batch_get("t", [bad_key]),  # noqa: B023
            lambda: _native.encode_query("t", "p", bad_key, None),  # noqa: B023
            lambda: _native.encode_scan("t", 0, 1, bad_key, None),  # noqa: B023
            lambda: _native.encode_write("t", Delete(bad_key, fine)),  # noqa: B023
            lambda: _native.encode_transaction("t", [Check(bad_key, fine)], "token"),  # noqa: B023
        ]
        for call in calls:
            with pytest.raises(InvalidPathError) as refused:
                call()
            assert refused.value.path == "a\\ud800"
    key = Key("p", "s")
    for bad in (
        Put({PARTITION: "p", SORT: "s", "id": half}, ABSENT),
        Put({PARTITION: "p", SORT: "s", half: 1}, ABSENT),
        Delete(key, Condition(equals={"id": half})),
        Delete(key, Condition(equals={half: 1})),
        Delete(key, Condition(missing=(half,))),
        Update(key, fine, set={"op": half}),
        Update(key, fine, remove=(half,)),
    ):
        with pytest.raises(InvalidArgumentError):
            _native.encode_write("t", bad)
    for call in (
        lambda: _native.encode_get(half, "p", "s"),
        lambda: _native.encode_transaction("t", [], half),
        lambda: _native.encode_load(half, [{PARTITION: "p", SORT: "s"}]),
        lambda: _native.encode_load("t", [{PARTITION: half, SORT: "s"}]),
    ):
        with pytest.raises(InvalidArgumentError):
            call()
    with pytest.raises(InvalidPathError):
        _native.encode_query("t", half, None, None)


@pytest.mark.parametrize("value", [None, 1.5, b"bytes", ["text"]])
def test_other_attributes_are_type_errors(value: Any) -> None:
    with pytest.raises(TypeError, match="an attribute is a str, int or bool"):
        _native.encode_write("t", Put({PARTITION: "p", SORT: "s", "x": value}, ABSENT))
    with pytest.raises(TypeError, match="an attribute is a str, int or bool"):
        _native.encode_load("t", [{PARTITION: "p", SORT: "s", "x": value}])


def test_other_actions_are_type_errors() -> None:
    strange: Any = Check(Key("p", "s"), ABSENT)
    with pytest.raises(TypeError, match="part of a transaction"):
        _native.encode_write("t", strange)
    strange = object()
    with pytest.raises(TypeError, match="an action is a"):
        _native.encode_transaction("t", [strange], "token")
