"""Facts that the native core writes are those that Python writes of the same objects."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from s3k_async import _native
from s3k_async._native import Rows
from s3k_async.backends.ports.blobs import BlobInfo
from s3k_async.backends.ports.items import Item
from s3k_async.errors import LogFormatError
from s3k_async.integrity.shuffle import hash_of, to_line
from s3k_async.model import TRASH_ID, Entry, Operation
from s3k_async.oplog.entries import LogRecord, operation_from, operation_line
from s3k_async.oplog.log_reader import LogReader
from s3k_async.oplog.segments import SegmentCommit, encode_segment, encode_segment_commit
from s3k_async.table.codec import from_items, to_item
from s3k_async.table.keys import KeyScheme
from tests.oplog import operations as samples

KEY = "segments/some.committed"
SCHEMES = (KeyScheme("v", 7), KeyScheme("v", 7, layout="tree"))
ID = samples.OBJECT


def facts_of(lines: list[bytes], keys: KeyScheme) -> list[tuple[int, bytes]] | None:
    found = _native.record_facts(lines, KEY, keys.authority, keys.suffix_count)
    return None if found is None else found.rows()


def fact_of(operation: Operation) -> tuple[int, bytes]:
    line = to_line("records", LogRecord(operation, "committed", KEY))
    return hash_of(operation.object_id), line.encode("ascii") + b"\n"


def fits(operation: Operation, keys: KeyScheme) -> bool:
    sides = [each for each in (operation.before, operation.after) if each is not None]
    return all(
        keys.has(each.entry_key) and keys.is_current(each.entry_key) and each.directory != TRASH_ID
        for each in sides
    )


@given(samples.operations(), st.sampled_from(SCHEMES))
@example(samples.CREATE, SCHEMES[0])
@example(samples.RENAME, SCHEMES[0])
@example(samples.DELETE, SCHEMES[0])
@example(samples.TREE_RENAME, SCHEMES[1])
def test_what_can_be_logged_is_a_fact(operation: Operation, keys: KeyScheme) -> None:
    found = facts_of([operation_line(operation, KEY)], keys)
    if operation.trash is None and fits(operation, keys):
        assert found == [fact_of(operation)]
    else:
        assert found is None


@st.composite
def edited(draw: st.DrawFn) -> bytes:
    """A line with one value, or a few bytes, replaced."""
    line = operation_line(draw(samples.operations()), KEY)
    value = rb'(?<=:)("[^"]*"|-?[0-9]+|true|false|null)'
    values = list(re.finditer(value, line))
    place = draw(st.sampled_from(values)).span()
    if draw(st.booleans()):
        start = draw(st.integers(0, len(line)))
        place = start, min(len(line), start + draw(st.integers(0, 3)))
    texts = [match.group() for match in values]
    odd = [b"0", b"-1", b"1.0", b"1e3", b"01", b"9223372036854775808", b'""', b'"/"', b'"/a/../b"']
    odd += [b'"\\ud800"', b'"a/b"', b"null", b"true", b"{}", b"", b" ", b"\xc3\xa9", b'"\\u00e9"']
    return line[: place[0]] + draw(st.sampled_from([*texts, *odd])) + line[place[1] :]


@given(edited(), st.sampled_from(SCHEMES))
def test_what_the_log_refuses_is_no_fact(line: bytes, keys: KeyScheme) -> None:
    found = facts_of([line], keys)
    if found is None:
        return
    try:
        operation = operation_from(line, KEY)
    except LogFormatError:
        pytest.fail(f"read natively, and refused by the log: {line!r}")
    assert fits(operation, keys)
    ((part, text),) = found
    assert part == hash_of(operation.object_id)
    assert text.isascii()
    assert json.loads(text) == json.loads(fact_of(operation)[1])


def test_an_operation_that_occurs_twice_is_left_to_the_log() -> None:
    line = operation_line(samples.CREATE, KEY)
    other = operation_line(samples.UPDATE, KEY)
    assert facts_of([line, other], SCHEMES[0]) is not None
    assert facts_of([line, other, line], SCHEMES[0]) is None


async def test_a_segment_that_ended_is_lines_and_an_open_one_records() -> None:
    blobs = await samples.log_blobs()
    odd = replace(samples.CREATE, time_ms=7)
    for name, operations in (
        ("good", [samples.CREATE]),
        ("open", [odd]),
        ("odd", [samples.RENAME]),
    ):
        await blobs.put(f"segments/{name}.pending", encode_segment(name, operations))
        if name != "open":
            mark = SegmentCommit(name, len(operations))
            await blobs.put(f"segments/{name}.committed", encode_segment_commit(mark))
    reader = LogReader(blobs)
    found = [each async for each in reader.batches()]
    assert [type(each).__name__ for each in found] == ["RecordLines", "RecordLines", "LogRecord"]
    whole = [each async for each in reader.records()]
    decoded = [
        record
        for each in found
        for record in ([each] if isinstance(each, LogRecord) else await each.decode())  # type: ignore[union-attr]
    ]
    assert decoded == whole


def entry(path: str, *, is_dir: bool = False, directory: str = "") -> Entry:
    physical = None if is_dir else f"0b0e8a54-3c3f-4f0e-9d7e-1f7d6e5c4b3a.id={ID}"
    return Entry(
        path, is_dir, ID, 2, 1, 5, 0 if is_dir else 3, physical, not is_dir, directory=directory
    )


@given(samples.names, st.booleans(), st.booleans())
@example(samples.ODD_PATH.rpartition("/")[2], True, False)
def test_an_entry_is_a_fact_under_its_own_key(name: str, is_dir: bool, in_tree: bool) -> None:
    keys = SCHEMES[in_tree]
    plain = (
        entry(f"{samples.PLACE}/{name}", is_dir=is_dir, directory=samples.PLACE)
        if in_tree
        else entry(f"/d/{name}", is_dir=is_dir)
    )
    items: list[Item] = [
        to_item(plain, keys),
        {**to_item(plain, keys), "next": "x"},
        {**to_item(plain, keys), "id": "no id"},
        {**to_item(plain, keys), "ver": "2"},
        {**to_item(plain, keys), "path": f"{to_item(plain, keys)['path']}0"},
        {"path": "elsewhere", "children": "x"},
    ]
    if not is_dir:
        items.append({**to_item(plain, keys), "physpath": "s3://bucket/key"})
    found = _native.entry_facts(
        Rows(items), keys.authority, keys.suffix_count, keys.hash, {"/"}, True
    )
    assert found.others == list(range(1, len(items)))
    (stored,) = from_items(items[:1], keys)
    line = to_line("entries", stored).encode("ascii") + b"\n"
    assert found.entries.rows() == [(hash_of(ID), line)]
    parent = samples.PLACE if in_tree else "/d"
    child = to_line("children", (parent, stored.path, ID, 5)).encode("ascii") + b"\n"
    assert found.children.rows() == [(hash_of(parent), child)]
    assert found.totals == ((0, 1, 0, 0) if is_dir else (1, 0, 0, 3))
    directory = keys.directory(stored)
    fact = (directory.key, directory.entry_key)
    line = to_line("directories", fact).encode("ascii") + b"\n"
    assert found.directories.rows() == ([(hash_of(directory.key), line)] if is_dir else [])


def test_an_object_in_the_trash_is_left_to_its_layout() -> None:
    keys = SCHEMES[1]
    item = to_item(entry(f"{TRASH_ID}/{ID}", is_dir=True, directory=TRASH_ID), keys)
    found = _native.entry_facts(Rows([item]), None, keys.suffix_count, keys.hash, set(), True)
    assert found.others == [0]
    assert len(found.entries) == 0


def test_one_child_of_each_directory_is_enough_where_its_path_is_its_key() -> None:
    keys = SCHEMES[0]
    paths = ["/b/2", "/a/3", "/b/1", "/a/4", "/top"]
    items = [to_item(entry(path), keys) for path in paths]
    found = _native.entry_facts(
        Rows(items), keys.authority, keys.suffix_count, keys.hash, {"/"}, False
    )
    assert sorted(line for _, line in found.children.rows()) == [
        to_line("children", (path[:2], path, ID, 5)).encode("ascii") + b"\n"
        for path in ("/a/3", "/b/1")
    ]


@given(samples.names, samples.numbers.filter(lambda size: size >= 0), samples.texts)
def test_a_blob_is_a_fact_by_its_object_id(name: str, size: int, etag: str) -> None:
    blobs = [BlobInfo(name, size, etag, 7), BlobInfo(f"{name}.id={ID}", 0, "")]
    lines, others = _native.blob_facts([*blobs, BlobInfo("\udcff", 1, "")])
    assert others == [2]
    keys = [_native.object_id_of(blob.key) or blob.key for blob in blobs]
    assert keys[1] == ID
    assert lines.rows() == [
        (hash_of(key), to_line("blobs", blob).encode("ascii") + b"\n")
        for key, blob in zip(keys, blobs, strict=True)
    ]


def test_lines_are_divided_by_their_hash() -> None:
    blobs = [BlobInfo(f"{number}.id={number}", 0, "") for number in range(100)]
    lines, _ = _native.blob_facts(blobs)
    assert len(lines) == 100
    hashes, offsets, text = lines.columns()
    ends = memoryview(offsets).cast("i")
    assert [*memoryview(hashes).cast("q")] == [number for number, _ in lines.rows()]
    assert [text[start:end] for start, end in pairwise(ends)] == [line for _, line in lines.rows()]
    parts = _native.PartLines(7)
    parts.add(lines)
    parts.add_to_part(3, b"[]\n")
    assert len(parts) == len(text) + 3 == len(parts.text())
    for part in range(7):
        rows = [line for number, line in lines.rows() if number % 7 == part]
        assert parts.take(part) == b"".join(rows) + (b"[]\n" if part == 3 else b"")
        assert parts.take(part) == b""
    assert (len(parts), parts.text()) == (0, b"")
    with pytest.raises(ValueError, match="part"):
        _native.PartLines(0)
    with pytest.raises(IndexError, match="part"):
        parts.take(7)
    with pytest.raises(IndexError, match="part"):
        parts.add_to_part(7, b"")


def test_lines_are_chosen_by_their_hash() -> None:
    blobs = [BlobInfo(f"{number}.id={number}", 0, "") for number in range(100)]
    lines, _ = _native.blob_facts(blobs)
    bits = bytearray(2)
    for number in ("7", "8"):
        bit = hash_of(number) >> 28
        bits[bit // 8] |= 1 << bit % 8
    chosen = {hash_of(number) >> 28 for number in ("7", "8")}
    assert lines.among(bytes(bits)) == [
        line for number, line in lines.rows() if number >> 28 in chosen
    ]
    for wrong in (b"", b"123"):
        with pytest.raises(ValueError, match="power of two"):
            lines.among(wrong)
