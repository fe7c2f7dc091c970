"""Items, conditions and cursors in DynamoDB's form."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3k_async.backends.dynamodb.dynamodb_codec import decode_item, parse_cursor
from s3k_async.backends.ports.items import (
    ABSENT,
    Action,
    Check,
    Condition,
    Delete,
    Key,
    Put,
    Update,
    Value,
)
from s3k_async.testing.reference_items import (
    Expressions,
    encode_item,
    encode_request,
    encode_transaction_action,
    write_cursor,
)

VALUES = st.one_of(st.text(), st.booleans(), st.integers(-(10**37), 10**37))


@given(st.dictionaries(st.text(min_size=1), VALUES))
def test_items_come_back_with_their_types(item: dict[str, Value]) -> None:
    decoded = decode_item(encode_item(item))
    assert decoded == item
    assert [type(value) for value in decoded.values()] == [type(value) for value in item.values()]


@pytest.mark.parametrize(
    ("wire", "text"),
    [
        ({"N": "1.5"}, '{"N":"1.5"}'),
        ({"N": "1E+100"}, '{"N":"1E+100"}'),
        ({"B": b"\x00\xff"}, '{"B":"AP8="}'),
        ({"SS": ["ä", "b"]}, '{"SS":["ä","b"]}'),
        ({"NS": ["1", "2"]}, '{"NS":["1","2"]}'),
        ({"BS": [b"a"]}, '{"BS":["YQ=="]}'),
        ({"NULL": True}, '{"NULL":true}'),
        (
            {"L": [{"S": "x"}, {"M": {"k": {"B": b"a"}}}]},
            '{"L":[{"S":"x"},{"M":{"k":{"B":"YQ=="}}}]}',
        ),
    ],
)
def test_foreign_types_become_the_services_json(wire: dict[str, object], text: str) -> None:
    assert decode_item({"a": wire}) == {"a": text}


@given(st.text(min_size=1), st.text(min_size=1))
def test_a_cursor_is_text_that_names_the_last_key(partition: str, sort: str) -> None:
    last = {"path": {"S": partition}, "children": {"S": sort}}
    cursor = write_cursor(last)
    assert cursor is not None
    assert parse_cursor(cursor) == (partition, sort)


@pytest.mark.parametrize(
    "cursor", ["", "7", "[]", '["a"]', '["a",1]', '["a","b","c"]', '{"a":"b"}', "token:x"]
)
def test_a_cursor_of_something_else(cursor: str) -> None:
    with pytest.raises(ValueError, match="cursor"):
        parse_cursor(cursor)


def test_there_is_no_cursor_at_the_end() -> None:
    assert write_cursor(None) is None
    assert write_cursor({}) is None


def test_the_conditions() -> None:
    expressions = Expressions()
    assert expressions.condition(ABSENT) == "attribute_not_exists(#n0)"
    assert expressions.condition(Condition()) == "attribute_exists(#n0)"
    when = Condition(equals={"id": "x", "ver": 3, "isdir": False}, missing=("next",))
    assert expressions.condition(when) == (
        "attribute_exists(#n0) AND #n1 = :v0 AND #n2 = :v1 AND #n3 = :v2 AND "
        "attribute_not_exists(#n4)"
    )
    assert expressions.fields() == {
        "ExpressionAttributeNames": {
            "#n0": "path",
            "#n1": "id",
            "#n2": "ver",
            "#n3": "isdir",
            "#n4": "next",
        },
        "ExpressionAttributeValues": {":v0": {"S": "x"}, ":v1": {"N": "3"}, ":v2": {"BOOL": False}},
    }


def test_the_requests() -> None:
    key = Key("p", "s")
    wire_key = {"path": {"S": "p"}, "children": {"S": "s"}}
    put = encode_request("t", Put({"path": "p", "children": "s", "size": 1}, ABSENT))
    assert put["Item"] == {**wire_key, "size": {"N": "1"}}
    assert "ExpressionAttributeValues" not in put
    update = encode_request(
        "t", Update(key, Condition(equals={"ver": 1}), {"ver": 2, "op": "o"}, ("next", "lease"))
    )
    assert update["Key"] == wire_key
    assert update["UpdateExpression"] == "SET #n1 = :v1, #n2 = :v2 REMOVE #n3, #n4"
    assert (
        encode_request("t", Update(key, Condition(), {}, ("next",)))["UpdateExpression"]
        == "REMOVE #n1"
    )
    actions: dict[str, Action] = {
        "Put": Put({"path": "p", "children": "s"}, ABSENT),
        "Update": Update(key, Condition(), {"a": 1}),
        "Delete": Delete(key, Condition()),
        "ConditionCheck": Check(key, Condition()),
    }
    for verb, action in actions.items():
        ((named, request),) = encode_transaction_action("t", action).items()
        assert named == verb
        assert request["TableName"] == "t"
        assert request["ReturnValuesOnConditionCheckFailure"] == "ALL_OLD"
        assert request["ConditionExpression"]
        json.dumps(request)
