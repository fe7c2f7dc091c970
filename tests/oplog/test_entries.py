"""The native entry format."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3k_async.errors import LogFormatError
from s3k_async.model import UNCOMMITTED, Entry, TrashState
from s3k_async.oplog.entries import (
    EntryKey,
    LogRecord,
    LogState,
    Operation,
    SegmentKey,
    decode,
    deletion_document,
    encode,
    entry_key,
    history_prefix,
    operation_from,
    operation_line,
    parse_key,
    seal,
    segment_key,
)
from tests.oplog import operations as sample

DATA = Path(__file__).parent.parent / "data" / "oplog"
GOLDEN: dict[str, tuple[Operation, LogState]] = {
    "entry-1-create-pending.jsonl": (sample.CREATE, "pending"),
    "entry-1-directory-committed.jsonl": (sample.MAKE_DIRECTORY, "committed"),
    "entry-1-update-committed.jsonl": (sample.UPDATE, "committed"),
    "entry-1-write-at-once-pending.jsonl": (sample.WRITE_AT_ONCE, "pending"),
    "entry-1-rename-committed.jsonl": (sample.RENAME, "committed"),
    "entry-1-delete-committed.jsonl": (sample.DELETE, "committed"),
    "entry-2-write-at-once-pending.jsonl": (sample.TREE_WRITE, "pending"),
    "entry-2-rename-committed.jsonl": (sample.TREE_RENAME, "committed"),
    "entry-2-delete-committed.jsonl": (sample.TREE_DELETE, "committed"),
    "entry-2-trash-pending.jsonl": (sample.TREE_TRASH, "pending"),
    "entry-2-reclaim-committed.jsonl": (sample.TREE_RECLAIM, "committed"),
}
KEY = entry_key(sample.UPDATE, "committed")
WHOLE = encode(LogRecord(sample.UPDATE, "committed"))


def sealed(text: bytes) -> bytes:
    """The lines with a valid seal, whoever wrote them."""
    return text + b'{"sha256":"' + hashlib.sha256(text).hexdigest().encode() + b'"}\n'


def resealed(change: Callable[[dict[str, Any]], object], data: bytes = WHOLE) -> bytes:
    """The entry with its document changed and sealed again."""
    document = json.loads(data.partition(b"\n")[0])
    change(document)
    return sealed(json.dumps(document).encode() + b"\n")


@pytest.mark.parametrize("name", GOLDEN)
def test_entries_written_by_every_version_are_read_and_written_the_same(name: str) -> None:
    operation, state = GOLDEN[name]
    data = (DATA / name).read_bytes()
    assert decode(data, entry_key(operation, state)) == LogRecord(operation, state)
    assert encode(LogRecord(operation, state)) == data


@given(sample.operations(), st.sampled_from(["pending", "committed"]))
def test_any_operation_survives_the_round_trip(operation: Operation, state: LogState) -> None:
    key = entry_key(operation, state)
    data = encode(LogRecord(operation, state))
    record = decode(data, key)
    assert (record.operation, record.state, record.key) == (operation, state, key)
    assert encode(record) == data
    assert data.isascii()
    assert data.count(b"\n") == 2


def test_every_field_of_an_entry_is_logged() -> None:
    document = json.loads(WHOLE.partition(b"\n")[0])
    fields = [field.name for field in dataclasses.fields(Entry)]
    assert fields.pop() == "attributes"  # empty for most
    assert fields.pop() == "directory"  # empty in layout `path`
    assert list(document["after"]) == fields
    assert sample.TREE_RENAME.after is not None
    entry = dataclasses.replace(sample.TREE_RENAME.after, attributes='{"mode":420}')
    operation = dataclasses.replace(sample.TREE_RENAME, after=entry)
    data = encode(LogRecord(operation, "pending"))
    after = json.loads(data.partition(b"\n")[0])["after"]
    place = fields.index("checksum") + 1
    assert list(after) == [fields[0], "directory", *fields[1:place], "attributes", *fields[place:]]
    assert decode(data, entry_key(operation, "pending")) == LogRecord(operation, "pending")
    tree = json.loads(encode(LogRecord(sample.TREE_RENAME, "pending")).partition(b"\n")[0])
    for side in ("before", "after"):
        assert list(tree[side]) == [fields[0], "directory", *fields[1:]]


def test_every_field_of_a_deletion_is_logged_under_the_name_of_its_attribute() -> None:
    document = json.loads(encode(LogRecord(sample.TREE_RECLAIM, "pending")).partition(b"\n")[0])
    assert list(document["trash"]) == ["why", "from", "was", "when", "by", "state", "since"]
    assert list(document["trash"].values()) == list(
        dataclasses.astuple(sample.TREE_RECLAIM.trash or sample.DELETION)
    )
    assert "trash" not in json.loads(WHOLE.partition(b"\n")[0])


@pytest.mark.parametrize("field", ["why", "from", "was", "when", "by", "state", "since"])
def test_every_missing_or_wrongly_typed_field_of_a_deletion_is_noticed(field: str) -> None:
    whole, key = (
        encode(LogRecord(sample.TREE_TRASH, "pending")),
        entry_key(sample.TREE_TRASH, "pending"),
    )

    def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
        return resealed(lambda document: change(document["trash"]), whole)

    assert decode(changed(lambda _: None), key).operation == sample.TREE_TRASH
    values: tuple[object, ...] = (None, [], True, 1.0)
    refused = [changed(lambda trash: trash.pop(field))]
    refused += [
        changed(lambda trash, value=value: trash.update({field: value}))  # type: ignore[misc]
        for value in values
    ]
    for data in refused:
        with pytest.raises(LogFormatError):
            decode(data, key)


@given(sample.operations())
def test_the_newer_format_is_written_only_for_entries_with_directory_keys(
    operation: Operation,
) -> None:
    document = json.loads(encode(LogRecord(operation, "pending")).partition(b"\n")[0])
    sides = [side for side in (operation.before, operation.after) if side is not None]
    assert document["format"] == (2 if any(side.directory for side in sides) else 1)


def test_a_cut_at_any_byte_is_noticed() -> None:
    for end in range(len(WHOLE)):
        with pytest.raises(LogFormatError) as caught:
            decode(WHOLE[:end], KEY)
        assert caught.value.path == KEY


def test_a_cut_is_called_one() -> None:
    with pytest.raises(LogFormatError, match="truncated or damaged"):
        decode(WHOLE[:-1], KEY)


def test_every_flipped_bit_is_noticed() -> None:
    for position in range(len(WHOLE)):
        for bit in range(8):
            damaged = bytearray(WHOLE)
            damaged[position] ^= 1 << bit
            with pytest.raises(LogFormatError):
                decode(bytes(damaged), KEY)


@pytest.mark.parametrize("garbage", [b"\n", b"\0", b"{}\n", WHOLE])
def test_trailing_garbage_is_noticed(garbage: bytes) -> None:
    with pytest.raises(LogFormatError):
        decode(WHOLE + garbage, KEY)


@given(st.binary(max_size=200))
def test_random_bytes_are_no_entry(data: bytes) -> None:
    with pytest.raises(LogFormatError) as caught:
        decode(data, KEY)
    assert caught.value.path == KEY


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}\n",
        b"[]\n",
        b"null\n",
        b'{"format":1}\n',
        b'{"s3k":"oplog-segment","format":1}\n',
        b'{"s3k":"oplog-entry"}\n',
        b'{"s3k":"oplog-entry","format":0}\n',
        b'{"s3k":"oplog-entry","format":true}\n',
        b'{"s3k":"oplog-entry","format":"1"}\n',
        b'{"s3k":"oplog-entry","format":1,"s3k":"oplog-entry"}\n',
        b'{"s3k":"oplog-entry","format":1,"version":NaN}\n',
        b'{"s3k":"oplog-entry","format":1}\n{}\n',
        b'{"s3k":"oplog-entry","format":1}',
        b'{"s3k":"oplog-entry","format":1,"deep":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n",
        b'{"s3k":"oplog-entry","format":1,"long":' + b"9" * 10_000 + b"}\n",
        b'{"Records":[]}\n',
        b"\xff\xfe\n",
        b"\n",
    ],
)
def test_foreign_json_is_no_entry(text: bytes) -> None:
    for data in (text, sealed(text)):
        with pytest.raises(LogFormatError) as caught:
            decode(data, KEY)
        assert caught.value.path == KEY


def test_a_sealed_line_that_no_writer_of_ours_produces_is_noticed() -> None:
    line = WHOLE.partition(b"\n")[0]
    assert decode(sealed(line + b"\n"), KEY) == LogRecord(sample.UPDATE, "committed")
    twice = line.replace(b'"kind":', b'"kind":"rename","kind":')
    for text in (
        line,
        line + b" ",
        line + b"\n\n",
        b"\n" + line + b"\n",
        line + b"\n" + line + b"\n",
        twice + b"\n",
    ):
        with pytest.raises(LogFormatError):
            decode(sealed(text), KEY)


def test_a_newer_format_is_named() -> None:
    with pytest.raises(LogFormatError, match="format 3; this version reads up to 2") as caught:
        decode(resealed(lambda document: document.update(format=3)), KEY)
    assert caught.value.path == KEY
    with pytest.raises(LogFormatError, match="format 7"):
        decode(b'{"s3k":"oplog-entry","format":7,"shape":"nobody knows"}\nsealed otherwise', KEY)


def test_unknown_fields_of_the_same_format_do_no_harm() -> None:
    def extend(document: dict[str, Any]) -> None:
        document["note"] = ["something", {"new": 1.5}]
        document["after"]["colour"] = "red"

    assert decode(resealed(extend), KEY) == LogRecord(sample.UPDATE, "committed")


@pytest.mark.parametrize("side", [None, "before", "after"])
def test_every_missing_or_wrongly_typed_field_is_noticed(side: str | None) -> None:
    original = json.loads(WHOLE.partition(b"\n")[0])
    names = list(original if side is None else original[side])
    wrong: list[object] = [1.0, [], -1, "\ud800", True]
    for name in names:

        def remove(document: dict[str, Any], name: str = name) -> None:
            del (document if side is None else document[side])[name]

        with pytest.raises(LogFormatError):
            decode(resealed(remove), KEY)
        value = (original if side is None else original[side])[name]
        for other in wrong:
            if type(other) is type(value) and other != "\ud800":
                continue

            def change(document: dict[str, Any], name: str = name, other: object = other) -> None:
                (document if side is None else document[side])[name] = other

            with pytest.raises(LogFormatError):
                decode(resealed(change), KEY)


CONTRADICTIONS: dict[str, Operation] = {
    "unknown kind": replace(sample.UPDATE, kind="upsert"),  # type: ignore[arg-type]
    "create with a state before": replace(
        sample.CREATE, before=replace(sample.RESERVED, version=0)
    ),
    "create without a state after": replace(sample.CREATE, after=None),
    "update without a state after": replace(sample.UPDATE, after=None),
    "rename without a state before": replace(sample.RENAME, before=None),
    "delete without a state before": replace(sample.DELETE, before=None),
    "delete with a state after": replace(sample.DELETE, after=replace(sample.MOVED, version=4)),
    "another object before": replace(sample.UPDATE, before=replace(sample.RESERVED, id="other")),
    "another object after": replace(sample.UPDATE, after=replace(sample.PUBLISHED, id="other")),
    "another version after": replace(sample.UPDATE, version=3),
    "no earlier version before": replace(sample.UPDATE, before=replace(sample.RESERVED, version=2)),
    "delete that skips a version": replace(sample.DELETE, version=5),
    "delete that counts no version": replace(sample.DELETE, version=3),
    "version zero": replace(sample.CREATE, version=0, after=replace(sample.RESERVED, version=0)),
    "version too long": replace(
        sample.CREATE, version=10**10, after=replace(sample.RESERVED, version=10**10)
    ),
    "operation id for another directory": replace(sample.CREATE, id="../x"),
    "empty operation id": replace(sample.CREATE, id=""),
    "half a surrogate pair": replace(sample.CREATE, after=replace(sample.RESERVED, path="/\ud83d")),
    "a number as text": replace(sample.CREATE, after=replace(sample.RESERVED, size="1")),  # type: ignore[arg-type]
}
IN_TRASH: dict[str, dict[str, Any]] = {
    "no attributes": {"trash": None},
    "a reason that is not logged": {"trash": replace(sample.DELETION, why="empty")},
    "an unknown state": {"trash": replace(sample.DELETION, state=cast("TrashState", "restored"))},
    "no former parent": {"trash": replace(sample.DELETION, origin="")},
    "no former path": {"trash": replace(sample.DELETION, was="d")},
    "no time": {"trash": replace(sample.DELETION, when_ms=0)},
    "a time beyond 64 bits": {"trash": replace(sample.DELETION, since_ms=2**63)},
    "half a surrogate pair": {"trash": replace(sample.DELETION, by="\ud83d")},
    "another name": {"after": replace(sample.TRASHED, path="/.trash/other")},
    "a file": {"after": replace(sample.TRASHED, is_dir=False)},
}
CONTRADICTIONS |= {
    f"in the trash with {what}": replace(sample.TREE_TRASH, **fields)
    for what, fields in IN_TRASH.items()
}
CONTRADICTIONS["elsewhere with attributes of the trash"] = replace(
    sample.TREE_RENAME, trash=sample.DELETION
)
IMPOSSIBLE: dict[str, dict[str, Any]] = {
    "path above the root": {"path": "/../x"},
    "path with NUL": {"path": "/a\0b"},
    "name too long": {"path": "/" + "x" * 1025},
    "path too long": {"path": "/x" * 2000},
    "path with a double slash": {"path": "/a//b"},
    "path with a slash at its end": {"path": "/a/"},
    "path with a dot": {"path": "/a/./b"},
    "relative path": {"path": "a"},
    "empty path": {"path": ""},
    "the root": {"path": "/"},
    "a path as directory key": {"directory": "/d"},
    "an entry key as directory key": {"directory": "id/name"},
    "an entry key as path": {"path": "id/name", "directory": "id"},
    "a directory key that no key can hold": {"directory": "x" * 65},
    "no creation": {"ctime": 0},
    "creation beyond 64 bits in ms": {"ctime": 10**18},
    "modification beyond 64 bits": {"mtime_ms": 2**63},
    "lease beyond 64 bits": {"lease_ms": -(2**63) - 1},
    "negative size": {"size": -1},
    "size beyond 64 bits": {"size": 2**63},
    "committed without bytes": {"committed": True, "physical": None},
    "committed with no bytes yet": {"committed": True, "physical": UNCOMMITTED},
    "a committed directory": {"committed": True, "is_dir": True, "physical": "key"},
}
"""States that no item of a table can have."""
CONTRADICTIONS |= {
    what: replace(sample.CREATE, after=replace(sample.RESERVED, **fields))
    for what, fields in IMPOSSIBLE.items()
}
CONTRADICTIONS["time beyond 64 bits"] = replace(sample.CREATE, time_ms=2**63)


@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_an_operation_that_contradicts_itself_is_not_written(what: str) -> None:
    with pytest.raises(LogFormatError):
        encode(LogRecord(CONTRADICTIONS[what], "pending"))


odd_values: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, -1, 0, 1, 2**63, 1.0, "", "x", "/", "/a//b", "/\ud83d", UNCOMMITTED, [], {}]
)


@given(sample.operations(), st.data())
def test_exactly_what_can_be_read_is_written(operation: Operation, data: st.DataObject) -> None:
    sides = ("before", "after", "trash")
    place = data.draw(st.sampled_from(["", *filter(partial(getattr, operation), sides)]))
    changed: Any = getattr(operation, place) if place else operation
    names = [field.name for field in dataclasses.fields(changed) if field.name not in sides]
    other: Any = replace(changed, **{data.draw(st.sampled_from(names)): data.draw(odd_values)})
    changed = replace(operation, **{place: other}) if place else other
    try:
        line = operation_line(changed, KEY)
    except LogFormatError:
        document = dataclasses.asdict(changed)
        document["object"] = document.pop("object_id")
        if document.pop("trash") is not None:
            document["trash"] = deletion_document(changed.trash)
        with pytest.raises(LogFormatError):
            operation_from(json.dumps(document).encode(), KEY)
    else:
        assert operation_from(line, KEY) == changed


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_a_sealed_entry_with_an_impossible_state_is_not_read(what: str) -> None:
    whole = encode(LogRecord(sample.CREATE, "pending"))
    document = json.loads(whole.partition(b"\n")[0])
    document["after"] |= IMPOSSIBLE[what]
    with pytest.raises(LogFormatError):
        decode(seal(json.dumps(document).encode() + b"\n"), entry_key(sample.CREATE, "pending"))


@pytest.mark.parametrize(
    "other",
    [
        replace(sample.UPDATE, id=sample.THIRD),
        replace(
            sample.UPDATE,
            object_id="other",
            before=None,
            after=replace(sample.PUBLISHED, id="other"),
        ),
        replace(sample.UPDATE, version=3, after=replace(sample.PUBLISHED, version=3)),
    ],
)
def test_an_entry_under_another_key_is_noticed(other: Operation) -> None:
    with pytest.raises(LogFormatError, match="does not belong to its key") as caught:
        decode(WHOLE, entry_key(other, "committed"))
    assert caught.value.path == entry_key(other, "committed")


def test_a_pending_entry_under_a_committed_key_is_noticed() -> None:
    with pytest.raises(LogFormatError, match="does not belong to its key"):
        decode(WHOLE, entry_key(sample.UPDATE, "pending"))


def test_keys_are_built_as_the_design_says() -> None:
    assert (
        entry_key(sample.UPDATE, "committed")
        == f"entries/12/{sample.OBJECT}.0000000002.{sample.SECOND}.committed"
    )
    assert history_prefix(sample.OBJECT) == f"entries/12/{sample.OBJECT}."
    assert segment_key("5e6", "pending") == "segments/5e6.pending"
    assert parse_key(KEY) == EntryKey(sample.OBJECT, 2, sample.SECOND, "committed")
    assert parse_key("segments/5e6.pending") == SegmentKey("5e6", "pending")


@pytest.mark.parametrize(
    "key",
    [
        "",
        "entries",
        "other/12/123.0000000001.op.pending",
        "entries/13/123.0000000001.op.pending",
        "entries/12/123.1.op.pending",
        "entries/12/123.00000000001.op.pending",
        "entries/12/123.\u0661\u0661\u0661\u0661\u0661\u0661\u0661\u0661\u0661\u0661.op.pending",
        "entries/12/123.0000000001.op.done",
        "entries/12/123.0000000001.op.pending\n",
        "entries/12/123.0000000001.op.pending.tmp",
        "entries/12/123.0000000001..pending",
        "segments/.pending",
        "segments/a/b.pending",
        "segments/a.info",
    ],
)
def test_other_keys_are_not_taken_for_ours(key: str) -> None:
    with pytest.raises(LogFormatError):
        parse_key(key)


@pytest.mark.parametrize("text", ["", "a.b", "a/b", "..", "a" * 65, "\u00e9", "a\n"])
def test_ids_that_no_key_can_hold_are_refused(text: str) -> None:
    with pytest.raises(LogFormatError):
        entry_key(replace(sample.CREATE, object_id=text), "pending")
    with pytest.raises(LogFormatError):
        entry_key(replace(sample.CREATE, id=text), "pending")
    with pytest.raises(LogFormatError):
        segment_key(text, "pending")
    with pytest.raises(LogFormatError):
        history_prefix(text)
