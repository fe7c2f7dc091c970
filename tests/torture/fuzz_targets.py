"""What is fuzzed: each reader of bytes or text that others wrote, with valid inputs, and what it
may raise.

A reader either takes an input, and then what it read can be written and read again, or raises one
of its named errors.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from s3k_async import _native
from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.errors import (
    InvalidArgumentError,
    InvalidPathError,
    ItemFormatError,
    LogFormatError,
    NotAVolumeError,
    ResponseLostError,
    S3kError,
    ServiceError,
    VolumeFormatError,
)
from s3k_async.listing.globbing import compile_pattern, matcher
from s3k_async.oplog.binary_entries import read_java, write_java
from s3k_async.oplog.checkpoints import Checkpoint, CheckpointPart, decode_manifest, encode_manifest
from s3k_async.oplog.entries import (
    LogRecord,
    LogState,
    decode,
    encode,
    entry_key,
    parse_key,
    seal,
    segment_key,
)
from s3k_async.oplog.log_reader import DamagedLog, LogReader
from s3k_async.oplog.segment_ids import SegmentIds
from s3k_async.oplog.segments import (
    Segment,
    SegmentCommit,
    decode_segment,
    encode_segment,
    encode_segment_commit,
)
from s3k_async.table.codec import from_item, to_item
from s3k_async.table.keys import KeyScheme
from s3k_async.testing.reference_items import encode_item
from s3k_async.txn.volume_record import VolumeRecord
from s3k_async.txn.write_intent import CREATED, REMOVED, WriteIntent, parse_intent
from tests.oplog import operations as samples

__all__ = ["TARGETS", "Target"]

DATA = Path(__file__).parent.parent / "data" / "oplog"
SEGMENT = "00000000-0000-4000-8000-00000000000a"
RECORDS = (
    samples.CREATE,
    samples.MAKE_DIRECTORY,
    samples.UPDATE,
    samples.WRITE_AT_ONCE,
    samples.RENAME,
    samples.DELETE,
    samples.TREE_TRASH,
    samples.TREE_RECLAIM,
)
ENTRIES = (samples.RESERVED, samples.PUBLISHED, samples.MOVED, samples.DIRECTORY)
KEYS = KeyScheme("v", 3)
_numbers = count()


@dataclass(frozen=True)
class Target:
    """A reader. `read` raises AssertionError for a property that does not hold."""

    corpus: tuple[bytes, ...]
    read: Callable[[bytes], object]
    errors: tuple[type[S3kError], ...]
    seal: bool = False
    """Whether a mutated input is sometimes sealed anew: otherwise none would get past its seal."""

    def prepared(self, choice: random.Random, data: bytes) -> bytes:
        """The input as it is given to the reader."""
        if self.seal and choice.random() < 0.7:
            lines = data.split(b"\n")
            return seal(b"\n".join(lines[:-2]) + b"\n")
        return data


def text_of(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass" if b"\xed" in data else "replace")


def try_text(data: bytes) -> str:
    try:
        return text_of(data)
    except UnicodeDecodeError:
        return data.decode("latin-1")


# The operation log

ENTRY_KEYS = [entry_key(each, "pending") for each in RECORDS] + [
    entry_key(each, "committed") for each in RECORDS
]


def read_entry(data: bytes) -> None:
    error: LogFormatError | None = None
    for key in ENTRY_KEYS:
        try:
            record = decode(data, key)
        except LogFormatError as refused:
            error = refused
        else:
            assert decode(encode(record), key) == record
            return
    assert error is not None
    assert error.path == ENTRY_KEYS[-1]
    raise error


SEGMENTS = (
    encode_segment(SEGMENT, [samples.CREATE, samples.UPDATE]),
    encode_segment(SEGMENT, [samples.UPDATE, samples.RENAME]),
    encode_segment_commit(SegmentCommit(SEGMENT, 2, None)),
    encode_segment_commit(SegmentCommit(SEGMENT, 2, (samples.FIRST,), (samples.SECOND,))),
)


def read_segment(data: bytes) -> None:
    named = SEGMENT_ID.search(data)
    identity = named[1].decode() if named else SEGMENT
    states: tuple[LogState, ...] = ("pending", "committed")
    for state in states:
        key = segment_key(identity, state)
        with suppress(LogFormatError):
            found = decode_segment(data, key)
            again = encode_segment_commit(found) if isinstance(found, SegmentCommit) else None
            if isinstance(found, Segment) and found.state == "pending":
                again = encode_segment(found.id, found.operations)
            assert again is None or decode_segment(again, key) == found
            return
    decode_segment(data, segment_key(SEGMENT, "pending"))


SEGMENT_ID = re.compile(rb'"segment":"([0-9a-f-]{1,36})"')
CHECKPOINT = Checkpoint(
    SEGMENT,
    5,
    (CheckpointPart(samples.FIRST, samples.SECOND, 2, "0" * 64),),
    SegmentIds([SEGMENT]),
    3,
)


def read_manifest(data: bytes) -> None:
    found = decode_manifest(data, CHECKPOINT.key)
    assert decode_manifest(encode_manifest(found), CHECKPOINT.key) == found


def read_java_entry(data: bytes) -> None:
    entry = read_java(data)
    assert read_java(write_java(entry)) == entry


def read_whole_log(data: bytes) -> None:
    """A log in which one object is the input: all others are read, and the input is a record or
    damage."""

    async def read() -> None:
        blobs = MemoryBlobs(f"fuzz-{next(_numbers)}")
        await blobs.create()
        good = LogRecord(samples.DELETE, "committed")
        await blobs.put(entry_key(samples.DELETE, "committed"), encode(good))
        for key in (ENTRY_KEYS[0], segment_key(SEGMENT, "pending"), CHECKPOINT.key):
            await blobs.put(key, data)
        found = [each async for each in LogReader(blobs).records()]
        await blobs.drop()
        assert all(isinstance(each, LogRecord | DamagedLog) for each in found)
        assert any(
            isinstance(each, LogRecord) and each.operation == samples.DELETE for each in found
        )

    asyncio.run(read())


def read_log_key(data: bytes) -> None:
    parse_key(try_text(data))


# What a service answers

ITEMS = [encode_item(to_item(entry, KEYS)) for entry in ENTRIES if entry.path != "/"]
DIRECTORY = "0b8a4b8e-5b1c-4d8f-9f43-2f6e2d0a7c11"
TREE_ITEMS = [{**item, "path": {"S": f"s3k:tree/{DIRECTORY}-sf1"}} for item in ITEMS]
PAGE = {
    "Items": ITEMS,
    "Count": 4,
    "ScannedCount": 4,
    "LastEvaluatedKey": {"path": {"S": "p"}, "children": {"S": "c"}},
}
BATCH = {
    "Responses": {"t": ITEMS},
    "UnprocessedKeys": {"t": {"Keys": [{"path": {"S": "p"}, "children": {"S": "c"}}]}},
}


def line(document: object) -> bytes:
    return json.dumps(document).encode()


def use(rows: _native.Rows) -> None:
    """All that is done with rows that were read."""
    items = [dict(item) for item in rows]
    for volume in ("v", None):
        with suppress(ItemFormatError):
            entries = rows.entries(volume, records=True, paths={DIRECTORY: "/d"})
            paths = entries.paths()
            assert len(entries.statuses()) == len(paths) == len(list(entries)) <= len(items)
            assert [entry.entry_key for entry in entries] == entries.entry_keys()


def read_page(data: bytes) -> None:
    page = _native.decode_page(data, zlib.crc32(data))
    assert isinstance(page.capacity, float)
    use(page.rows)


def read_batch(data: bytes) -> None:
    use(_native.decode_batch(data, "t", None)[0])


def read_single(data: bytes) -> None:
    use(_native.decode_item(data, None))


LISTING = (
    b'<?xml version="1.0" encoding="UTF-8"?><ListBucketResult '
    b'xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    b"<IsTruncated>true</IsTruncated><NextContinuationToken>t&amp;1</NextContinuationToken><EncodingType>url</EncodingType>"
    b"<Contents><Key>a%2Fb</Key><LastModified>2026-01-02T03:04:05.678Z</LastModified><ETag>&quot;e&quot;</ETag>"
    b"<Size>12</Size></Contents></ListBucketResult>"
)
COPIED = (
    b"<CopyObjectResult><ETag>&quot;e&quot;</ETag><LastModified>2026-01-02T03:04:05Z</LastModified>"
    b"</CopyObjectResult>"
)
REFUSED = (
    b"<DeleteResult><Error><Key>k</Key><Code>AccessDenied</Code><Message>no</Message></Error>"
    b"</DeleteResult>"
)
REFUSAL = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>&#x41;</Message></Error>"


def read_s3(data: bytes) -> None:
    for read in (_native.decode_listing, _native.decode_copied, _native.decode_refused):
        with suppress(ResponseLostError, ServiceError):
            read(data, "p")
    _native.decode_refusal(data)


# Records of ours

RECORD = VolumeRecord(
    "v", 4, "xxh3", "s3://bucket/data/", "native", "s3://bucket/data/oplog/", samples.FIRST, 5
)
INTENTS = (
    WriteIntent("j"),
    WriteIntent("j", REMOVED),
    WriteIntent("j", CREATED),
    WriteIntent("j", samples.PUBLISHED),
)


def read_tag(data: bytes) -> None:
    record = VolumeRecord.from_tag(try_text(data), "t")
    assert VolumeRecord.from_item(record.to_item("o"), "t") == record


def read_record(data: bytes) -> None:
    """The record's item, whose attributes are the JSON of the input."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(document, dict):
        fields: dict[str, Any] = {k: v for k, v in document.items() if isinstance(v, str | int)}
        VolumeRecord.from_item(fields, "t")


def read_intent(data: bytes) -> None:
    intent = parse_intent(try_text(data))
    assert parse_intent(intent.text()) == intent


def read_item(data: bytes) -> None:
    """An entry's item, whose attributes are the JSON of the input."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(document, dict):
        fields: dict[str, Any] = {
            k: v for k, v in document.items() if isinstance(v, str | bool) or fits(v)
        }
        entry = from_item(fields, KEYS)
        assert from_item(to_item(entry, KEYS), KEYS) == entry


def fits(value: object) -> bool:
    return isinstance(value, int) and -(2**63) <= value < 2**63


# Text

PATHS = (
    b"/a/b/c",
    b"a//b/./c/",
    b"/a/../b",
    b"/d\xc3\xa9p\xc3\xb4t/x:y",
    b"/",
    b"/" + b"n" * 1024 + b"/m",
    b"/a" * 300,
)
PATTERNS = (b"/a/*.txt", b"/**/b", b"/{a,b}/[a-z]?", b"/a/[!x]*/{c,{d,e}}", b"/[*]", b"**")


def read_path(data: bytes) -> None:
    path = _native.normalize(try_text(data))
    assert _native.normalize(path) == path
    assert _native.normalize_many([path]) == [path]
    if path != "/":
        parent, name = _native.split(path)
        assert _native.join(parent, name) == path
        assert _native.ancestors(path)[-1:] == ([parent] if parent != "/" else [])
        partition, sort = _native.item_key("v", path, 7, "xxh3")
        assert _native.decode_key("v", partition, sort) == path


def read_key(data: bytes) -> None:
    partition, _, sort = try_text(data).partition("\n")
    if partition.startswith("s3k:tree/"):
        directory, _, name = _native.decode_key(None, partition, sort).partition("/")
        assert name == sort
        index = int(partition.rpartition("-sf")[2])
        assert partition == _native.partition_key(None, directory, index)
    else:
        path = _native.decode_key("v", partition, sort)
        assert _native.normalize(path) == path


def read_entry_key(data: bytes) -> None:
    entry_key = try_text(data)
    partition, sort = _native.item_key(None, entry_key, 7, "xxh3")
    assert _native.decode_key(None, partition, sort) == entry_key
    with suppress(InvalidPathError):
        _native.item_key("v", entry_key, 7, "xxh3")
        raise AssertionError("an entry key of both layouts")


def read_pattern(data: bytes) -> None:
    pattern = try_text(data[:300])
    compile_pattern(pattern)
    match = matcher(pattern)
    for name in ("a", "a/b/c", "x/" * 20 + "b", "a" * 60):
        match(name)


def files(pattern: str) -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted(DATA.glob(pattern)))


TARGETS: dict[str, Target] = {
    "log_entry": Target(
        tuple(encode(LogRecord(each, "pending")) for each in RECORDS) + files("entry-*"),
        read_entry,
        (LogFormatError,),
        seal=True,
    ),
    "log_segment": Target(
        SEGMENTS + files("segment-*"), read_segment, (LogFormatError,), seal=True
    ),
    "log_checkpoint": Target(
        (encode_manifest(CHECKPOINT),), read_manifest, (LogFormatError,), seal=True
    ),
    "log_java": Target(
        tuple(bytes.fromhex(text.decode()) for text in files("java-*.hex")),
        read_java_entry,
        (LogFormatError,),
    ),
    "log_key": Target(
        (*(key.encode() for key in ENTRY_KEYS[:2]), segment_key(SEGMENT, "pending").encode()),
        read_log_key,
        (LogFormatError,),
    ),
    "whole_log": Target(
        (encode(LogRecord(samples.CREATE, "pending")), SEGMENTS[0], encode_manifest(CHECKPOINT)),
        read_whole_log,
        (),
        seal=True,
    ),
    "page": Target(
        (line(PAGE), line({"Items": ITEMS}), line({"Items": TREE_ITEMS})),
        read_page,
        (ResponseLostError, ItemFormatError),
    ),
    "batch": Target((line(BATCH),), read_batch, (ResponseLostError, ItemFormatError)),
    "item_answer": Target(
        (line({"Item": ITEMS[0]}), b"{}"), read_single, (ResponseLostError, ItemFormatError)
    ),
    "s3_answer": Target((LISTING, COPIED, REFUSED, REFUSAL), read_s3, ()),
    "record_tag": Target(
        (RECORD.to_tag().encode(),), read_tag, (NotAVolumeError, VolumeFormatError)
    ),
    "record_item": Target(
        (line(RECORD.to_item("o")),), read_record, (NotAVolumeError, VolumeFormatError)
    ),
    "intent": Target(
        tuple(intent.text().encode() for intent in INTENTS), read_intent, (ItemFormatError,)
    ),
    "item": Target(
        tuple(line(to_item(entry, KEYS)) for entry in ENTRIES), read_item, (ItemFormatError,)
    ),
    "path": Target(PATHS, read_path, (InvalidPathError,)),
    "key": Target(
        (
            b"ks://v/a/b-sf1\nc",
            b"ks://v/-sf0\na",
            f"s3k:tree/{DIRECTORY}-sf12\nc".encode(),
            b"s3k:tree/a-sf1-sf65535\na-sf0",
        ),
        read_key,
        (ItemFormatError, InvalidPathError),
    ),
    "entry_key": Target(
        (f"{DIRECTORY}/a".encode(), b"a_B-9/d\xc3\xa9p\xc3\xb4t x:y"),
        read_entry_key,
        (InvalidPathError,),
    ),
    "pattern": Target(PATTERNS, read_pattern, (InvalidPathError, InvalidArgumentError)),
}
