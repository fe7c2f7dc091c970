"""Operations to log: fixed ones, and hypothesis strategies for all that can be."""

from __future__ import annotations

import uuid
from dataclasses import replace
from itertools import count
from typing import Any, get_args, overload

from hypothesis import strategies as st

from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.backends.ports.pagination import list_all
from s3k_async.model import (
    TRASH_ID,
    UNCOMMITTED,
    Content,
    Deletion,
    Entry,
    TrashState,
)
from s3k_async.oplog.entries import LogRecord, Operation, OperationKind
from s3k_async.oplog.log_reader import DamagedLog
from s3k_async.testing import FaultPlan

OBJECT = "123e4567-e89b-12d3-a456-426614174000"
FIRST = "00000000-0000-4000-8000-000000000001"
SECOND = "00000000-0000-4000-8000-000000000002"
THIRD = "00000000-0000-4000-8000-000000000003"
ODD_PATH = '/d\u00e9p\u00f4t/line\nbreak "quoted" \\back\u2028sep\t\x7f\U0001f600'

RESERVED = Entry(
    path=ODD_PATH,
    is_dir=False,
    id=OBJECT,
    version=1,
    ctime=1_600_000_000,
    mtime_ms=1_600_000_000_123,
    physical=UNCOMMITTED,
    operation=FIRST,
    lease_ms=1_600_003_600_123,
)
CONTENT = Content(
    physical=f"0b0e8a54-3c3f-4f0e-9d7e-1f7d6e5c4b3a.id={OBJECT}",
    size=5_368_709_121,
    etag='"9e107d9d372bb6826bd81d3542a419d6"',
    checksum="xxh128:0123456789abcdef0123456789abcdef",
)
PUBLISHED = RESERVED.with_content(CONTENT, mtime_ms=1_600_000_001_456, operation=SECOND)
MOVED = replace(PUBLISHED.moved("/new/place", operation=THIRD), pending='{"job":"j"}')
DIRECTORY = Entry(
    path="/d", is_dir=True, id=OBJECT, version=1, ctime=1, mtime_ms=1000, operation=FIRST
)

PLACE, OTHER_PLACE = "a6e1c9f0-91c2-4b6e-8f7c-0d2f5c3b1a10", "b7_-"
TREE_FILE = replace(PUBLISHED, directory=PLACE)
TREE_MOVED = TREE_FILE.moved("/new/place", operation=THIRD, directory=OTHER_PLACE)

CREATE = Operation(FIRST, "create", OBJECT, 1, 1_600_000_000_123, None, RESERVED)
MAKE_DIRECTORY = Operation(FIRST, "create", OBJECT, 1, 1_600_000_000_123, None, DIRECTORY)
UPDATE = Operation(SECOND, "update", OBJECT, 2, 1_600_000_001_456, RESERVED, PUBLISHED)
WRITE_AT_ONCE = Operation(SECOND, "update", OBJECT, 2, 1_600_000_001_456, None, PUBLISHED)
RENAME = Operation(THIRD, "rename", OBJECT, 3, 1_600_000_002_000, PUBLISHED, MOVED)
DELETE = Operation(THIRD, "delete", OBJECT, 4, 1_600_000_003_000, MOVED, None)
TREE_WRITE = replace(WRITE_AT_ONCE, after=TREE_FILE)
TREE_RENAME = replace(RENAME, before=TREE_FILE, after=TREE_MOVED)
TREE_DELETE = replace(DELETE, before=replace(MOVED, directory=PLACE))
TREE_DIRECTORY = replace(DIRECTORY, directory=PLACE)
DELETION = Deletion("deleted", PLACE, "/d", 1_600_000_004_000, by="user@host")
TRASHED = TREE_DIRECTORY.moved(f"/.trash/{OBJECT}", operation=SECOND, directory=TRASH_ID)
RECLAIMED = TRASHED.moved(TRASHED.path, operation=THIRD, directory=TRASH_ID)
TREE_TRASH = Operation(
    SECOND, "rename", OBJECT, 2, 1_600_000_004_001, TREE_DIRECTORY, TRASHED, DELETION
)
TREE_RECLAIM = Operation(
    THIRD,
    "update",
    OBJECT,
    3,
    1_600_000_005_000,
    TRASHED,
    RECLAIMED,
    replace(DELETION, state="reclaiming", since_ms=1_600_000_005_001),
)

_names = (f"test-oplog-{number}" for number in count())


@overload
async def log_blobs() -> MemoryBlobs: ...
@overload
async def log_blobs(faults: FaultPlan | None) -> BlobStore: ...
async def log_blobs(faults: FaultPlan | None = None) -> BlobStore:
    """An empty store for a log."""
    blobs = MemoryBlobs(next(_names))
    await blobs.create()
    return blobs if faults is None else faults.blobs(blobs)


async def keys_of(blobs: BlobStore) -> list[str]:
    """The keys of everything that is stored."""
    return [info.key async for info in list_all(blobs)]


def make_directories(number: int, directory: str = "") -> list[Operation]:
    """So many creations of different directories, in layout `tree` in a directory of that key."""
    operations = []
    for index in range(number):
        object_id, operation_id = str(uuid.UUID(int=index)), str(uuid.UUID(int=index + (1 << 64)))
        entry = replace(
            DIRECTORY,
            path=f"/d{index}",
            id=object_id,
            operation=operation_id,
            directory=directory,
        )
        operations.append(Operation(operation_id, "create", object_id, 1, index, None, entry))
    return operations


def records_only(findings: list[LogRecord | DamagedLog]) -> list[LogRecord]:
    """The findings, none of which may be damage."""
    records = [finding for finding in findings if isinstance(finding, LogRecord)]
    assert records == findings
    return records


texts = st.text(st.characters(codec="utf-8"), max_size=40)
names = st.text(
    st.one_of(
        st.sampled_from("\n\r\t\"\\'\u2028\u2029\x85\x7f\u00e9\ufeff\U0001f600{}:,"),
        st.characters(codec="utf-8", exclude_characters="/\0"),
    ),
    min_size=1,
    max_size=40,
).filter(lambda name: name not in {".", ".."})
numbers = st.integers(min_value=-(2**63), max_value=2**63 - 1)
ids = st.text("0123456789abcdefXYZ_-", min_size=1, max_size=64)
versions = st.integers(min_value=1, max_value=9_999_999_999)


@st.composite
def entries(draw: st.DrawFn, object_id: str, version: int) -> Entry:
    """Any entry of the object at the version that an item can hold."""
    is_dir = draw(st.booleans())
    committed = not is_dir and draw(st.booleans())
    named = texts.filter(lambda text: text != UNCOMMITTED)
    fields: dict[str, Any] = {
        "path": "/" + draw(names),
        "is_dir": is_dir,
        "ctime": draw(st.integers(min_value=1, max_value=(2**63 - 1) // 1000)),
        "mtime_ms": draw(numbers),
        "size": draw(st.integers(min_value=0, max_value=2**63 - 1)),
        "physical": draw(named if committed else st.none() | texts),
        "committed": committed,
        "etag": draw(texts),
        "checksum": draw(texts),
        "operation": draw(texts),
        "lease_ms": draw(numbers),
        "pending": draw(texts),
        "directory": draw(st.just("") | ids),
    }
    return Entry(id=object_id, version=version, **fields)


def trashed(entry: Entry) -> Entry:
    """A directory in the trash that has the rest of the entry."""
    path = f"/.trash/{entry.id}"
    return replace(entry, path=path, is_dir=True, committed=False, directory=TRASH_ID)


deletions = st.builds(
    Deletion,
    st.just("deleted"),
    ids,
    texts.map(lambda text: "/" + text),
    st.integers(min_value=1, max_value=2**63 - 1),
    texts,
    st.sampled_from(get_args(TrashState)),
    st.integers(min_value=0, max_value=2**63 - 1),
)


@st.composite
def operations(draw: st.DrawFn) -> Operation:
    """Any operation that does not contradict itself."""
    kind: OperationKind = draw(st.sampled_from(["create", "update", "rename", "delete"]))
    object_id = draw(ids)
    version = draw(versions.filter(lambda number: number > 1))
    has_before = kind in {"rename", "delete"} or (kind == "update" and draw(st.booleans()))
    earlier = (
        version - 1 if kind == "delete" else draw(st.integers(min_value=1, max_value=version - 1))
    )
    after = None if kind == "delete" else draw(entries(object_id, version))
    trash = None
    if after is not None and draw(st.booleans()):
        after, trash = trashed(after), draw(deletions)
    return Operation(
        id=draw(ids),
        kind=kind,
        object_id=object_id,
        version=version,
        time_ms=draw(numbers),
        before=draw(entries(object_id, earlier)) if has_before else None,
        after=after,
        trash=trash,
    )
