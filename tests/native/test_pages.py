"""Answers of DynamoDB, read natively as by `json` and the reference codec."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3k_async import _native
from s3k_async.backends.dynamodb.dynamodb_codec import decode_item
from s3k_async.backends.ports.items import Item
from s3k_async.errors import ItemFormatError, ResponseLostError
from tests.native.wire_values import ITEMS, SPELLINGS, TEXTS, VALUES, lists_of_items

Spelling = Callable[[object], bytes]
KEYS = st.tuples(TEXTS, TEXTS)


def _same(rows: _native.Rows, items: list[Item]) -> None:
    assert len(rows) == len(items)
    for row, item in zip(rows, items, strict=True):
        assert row == item
        assert {name: type(value) for name, value in row.items()} == {
            name: type(value) for name, value in item.items()
        }


def _key(key: tuple[str, str]) -> dict[str, Any]:
    return {"path": {"S": key[0]}, "children": {"S": key[1]}}


@given(lists_of_items(), st.none() | KEYS, SPELLINGS, st.booleans(), VALUES)
def test_pages_as_the_reference(
    items: list[dict[str, Any]],
    last: tuple[str, str] | None,
    spelling: Spelling,
    first: bool,
    foreign: object,
) -> None:
    frame: dict[str, Any] = {
        "Count": len(items),
        "New": [foreign, None, 1.5e3],
        "ScannedCount": len(items) + 3,
    }
    if last is not None:
        frame["LastEvaluatedKey"] = _key(last)
    body = spelling({"Items": items, **frame} if first else {**frame, "Items": items})
    page = _native.decode_page(body, zlib.crc32(body))
    _same(page.rows, [decode_item(item) for item in items])
    assert (page.next, page.count, page.scanned, page.capacity) == (
        last,
        len(items),
        len(items) + 3,
        0.0,
    )


@given(ITEMS, SPELLINGS)
def test_single_items_as_the_reference(item: dict[str, Any], spelling: Spelling) -> None:
    _same(_native.decode_item(spelling({"Item": item}), None), [decode_item(item)])


@given(lists_of_items(), st.lists(KEYS, max_size=3), TEXTS, SPELLINGS)
def test_batches_as_the_reference(
    items: list[dict[str, Any]], left: list[tuple[str, str]], table: str, spelling: Spelling
) -> None:
    answer = {
        "Responses": {table + "2": [{"x": 1}], table: items},
        "UnprocessedKeys": {table: {"ConsistentRead": True, "Keys": [_key(key) for key in left]}}
        if left
        else {},
    }
    rows, unprocessed = _native.decode_batch(spelling(answer), table, None)
    _same(rows, [decode_item(item) for item in items])
    assert unprocessed == left


def test_what_an_answer_may_leave_out() -> None:
    page = _native.decode_page(b"{}", None)
    assert (list(page.rows), page.next, page.count, page.scanned, page.capacity) == (
        [],
        None,
        0,
        0,
        0.0,
    )
    page = _native.decode_page(b'{"Items":null,"LastEvaluatedKey":null,"Count":null}', None)
    assert (list(page.rows), page.next, page.count) == ([], None, 0)
    assert _native.decode_page(b'{"LastEvaluatedKey":{}}', None).next is None
    assert _native.decode_page(b'{"Count":7}', None).scanned == 7
    assert list(_native.decode_item(b"{}", None)) == []
    assert _native.decode_item(b'{"Item":{}}', None) == [{}]
    rows, left = _native.decode_batch(b"{}", "t", None)
    assert (list(rows), left) == ([], [])


def test_consumed_capacity_is_told() -> None:
    body = (
        b'{"ConsumedCapacity":{"TableName":"t","CapacityUnits":128.5,"Table":{"CapacityUnits":1}}}'
    )
    assert _native.decode_page(body, None).capacity == 128.5


def test_an_answer_with_another_checksum_is_lost() -> None:
    body = b'{"Items":[]}'
    for call in (
        _native.decode_page,
        _native.decode_item,
        lambda body, crc: _native.decode_batch(body, "t", crc),
    ):
        call(body, zlib.crc32(body))
        with pytest.raises(ResponseLostError, match="CRC32"):
            call(body, zlib.crc32(body) ^ 1)


@pytest.mark.parametrize("digits", [126, 127, 5000])
def test_a_number_longer_than_any_that_can_be_stored_stays_text(digits: int) -> None:
    item = {"a": {"N": "-" + "9" * digits}}
    for body in (
        json.dumps({"Items": [item]}),
        json.dumps({"Items": [item]}).replace('"-9', '"\\u002d9'),
    ):
        (row,) = _native.decode_page(body.encode(), None).rows
        assert row == decode_item(item)
        assert type(row["a"]) is (int if digits == 126 else str)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"{}x",
        b'{"Items":{}}',
        b'{"Items":[1]}',
        b'{"Items":[{"a":1}]}',
        b'{"Items":[{"a":{}}]}',
        b'{"Items":[{"a":{"S":1}}]}',
        b'{"Items":[{"a":{"X":"1"}}]}',
        b'{"Items":[{"a":{"S":"1","N":"1"}}]}',
        b'{"Items":[{"a":{"S":"1"},"a":{"S":"1"}}]}',
        b'{"Items":[],"Items":[]}',
        b'{"Items":[{"a":{"S":"\\ud800"}}]}',
        b'{"Items":[{"a":{"S":"\xff"}}]}',
        b'{"Items":[{"a":{"S":"\n"}}]}',
        b'{"LastEvaluatedKey":{"path":{"S":"p"}}}',
        b'{"LastEvaluatedKey":{"path":{"S":"p"},"children":{"N":"1"}}}',
        b'{"LastEvaluatedKey":{"path":{"S":"p"},"children":{"S":"c"},"more":{"S":"c"}}}',
        b'{"Count":-1}',
        b'{"Count":1.5}',
        b'{"More":NaN}',
        b"\xef\xbb\xbf{}",
        b'{"More":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"Items":[{"a":' + b'{"L":[' * 65 + b"]}" * 65 + b"}]}",
    ],
    ids=lambda body: repr(body[:40]),
)
def test_a_damaged_answer_is_lost(body: bytes) -> None:
    with pytest.raises(ResponseLostError, match="damaged"):
        _native.decode_page(body, None)


def _reference(body: bytes) -> object:
    """What `decode_page` should make of a body; None for a damaged one."""
    try:
        answer = json.loads(body)
        return [decode_item(item) for item in answer.get("Items", [])]
    except (ValueError, TypeError, AttributeError, KeyError):
        return None


@given(st.data(), lists_of_items(), SPELLINGS)
def test_damaged_bytes_are_refused_or_read_right(
    data: st.DataObject, items: list[dict[str, Any]], spelling: Spelling
) -> None:
    """Whatever happens to a body, the answer is what the reference reads, or an error."""
    body = bytearray(spelling({"Items": items, "Count": len(items)}))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(body)))
        match data.draw(st.sampled_from(["cut", "drop", "set", "put"])):
            case "cut":
                del body[place:]
            case "drop":
                del body[place : place + data.draw(st.integers(1, 4))]
            case "set":
                body[place : place + 1] = data.draw(st.binary(min_size=1, max_size=1))
            case _:
                body[place:place] = data.draw(
                    st.sampled_from([b'"', b"\\", b"{", b"}", b",", b"\\ud83d", b"0", b"\0"])
                )
    try:
        rows = _native.decode_page(bytes(body), None).rows
    except ResponseLostError:
        return
    assert rows == _reference(bytes(body))


@given(st.binary(max_size=60))
def test_any_bytes_are_refused_or_read_right(body: bytes) -> None:
    try:
        rows = _native.decode_page(body, None).rows
    except ResponseLostError:
        return
    assert rows == _reference(body)


@given(lists_of_items())
def test_rows_are_a_sequence(wire: list[dict[str, Any]]) -> None:
    items = [decode_item(item) for item in wire]
    for rows in (
        _native.Rows(items),
        _native.decode_page(json.dumps({"Items": wire}).encode(), None).rows,
    ):
        assert rows == items
        assert items == rows
        assert rows == _native.Rows(rows)
        assert rows != [*items, {}]
        assert list(reversed(rows)) == items[::-1]
        for part in (slice(1, None), slice(None, None, -2), slice(-2, 100), slice(3, 1)):
            assert rows[part] == items[part]
            assert isinstance(rows[part], _native.Rows)
        if items:
            assert rows[-1] == items[-1]
            assert items[0] in rows
            assert rows.index(items[-1]) == items.index(items[-1])
            assert rows.count(items[0]) == items.count(items[0])
        with pytest.raises(IndexError):
            rows[len(items)]
        with pytest.raises(IndexError):
            rows[-len(items) - 1]


def test_rows_equal_only_sequences() -> None:
    rows = _native.Rows([{"a": "b"}])
    assert rows != 1
    assert rows != {"a": "b"}
    assert rows != [{"a": "c"}]
    assert rows == ({"a": "b"},)
    with pytest.raises(TypeError):
        hash(rows)
    with pytest.raises(TypeError):
        rows["a"]  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="no such element"):
        rows.index({"a": "c"})


def test_rows_take_any_mapping() -> None:
    item: Mapping[str, str | int | bool] = MappingProxyType(
        {"a": "é", "ver": 10**40, "isdir": True, "size": -1}
    )
    (row,) = _native.Rows([item])
    assert row == item
    assert row["isdir"] is True


@pytest.mark.parametrize("value", [None, 1.5, b"x", ["a"]])
def test_rows_hold_only_values_of_items(value: Any) -> None:
    with pytest.raises(ItemFormatError, match="'x' is neither") as raised:
        _native.Rows([{"path": "p", "children": "c", "x": value}])
    assert raised.value.path == "p / c"


def test_rows_hold_only_text_that_can_be_stored() -> None:
    with pytest.raises(ItemFormatError, match="UTF-8"):
        _native.Rows([{"path": "\ud800"}])
