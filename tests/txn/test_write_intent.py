"""Write intents: each form has one text and is read back; both sides of an entry with one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from s3k_async.errors import ItemFormatError
from s3k_async.model import Entry
from s3k_async.txn.write_intent import CREATED, REMOVED, NewState, WriteIntent, parse_intent

OLD = Entry(
    "/a/é",
    False,
    "11111111-1111-4111-8111-111111111111",
    2,
    5,
    5000,
    3,
    "key",
    True,
    "tag",
    "sum",
    "op",
)
NEW = Entry(
    "/a/é",
    False,
    "22222222-2222-4222-8222-222222222222",
    7,
    6,
    6000,
    4,
    "other",
    True,
    "",
    "",
    "op2",
)


@pytest.mark.parametrize(
    ("then", "text"),
    [
        (None, '{"job":"j"}'),
        (REMOVED, '{"job":"j","then":"gone"}'),
        (CREATED, '{"job":"j","then":"here"}'),
    ],
)
def test_an_intent_is_one_text(then: NewState, text: str) -> None:
    intent = WriteIntent("j", then)
    assert intent.text() == text
    assert parse_intent(text) == intent


def test_an_intent_contains_another_entry() -> None:
    intent = WriteIntent("j", NEW)
    assert parse_intent(intent.text()) == intent
    assert json.loads(intent.text())["then"]["path"] == "/a/é"


def test_an_intent_contains_the_directory_key_of_an_entry_that_has_one() -> None:
    assert "directory" not in WriteIntent("j", NEW).text()
    intent = WriteIntent("j", replace(NEW, directory="id"))
    assert parse_intent(intent.text()) == intent
    assert list(json.loads(intent.text())["then"])[:2] == ["path", "directory"]


@pytest.mark.parametrize(
    ("then", "before", "after"),
    [(None, OLD, OLD), (REMOVED, OLD, None), (CREATED, None, OLD), (NEW, OLD, NEW)],
)
def test_the_sides_of_an_entry_with_an_intent(
    then: NewState, before: Entry | None, after: Entry | None
) -> None:
    intent = WriteIntent("j", then)
    assert intent.resolve(OLD, published=False) == before
    assert intent.resolve(OLD, published=True) == after


@pytest.mark.parametrize(
    "text",
    ["", "x", "[]", '"j"', "{}", '{"job":""}', '{"job":3}', '{"job":"j","then":"never"}',
     '{"job":"j","then":{"path":1}}', '{"job":"j","then":7}',
     pytest.param("[" * 100_000, id="deep")],
)  # fmt: skip
def test_invalid_intents_are_refused(text: str) -> None:
    with pytest.raises(ItemFormatError):
        parse_intent(text)
