"""Objects that the native core decides to be restored as the log has them are those that the rules
decide so; all others are left to the rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from s3k_async import _native
from s3k_async.backends.ports.blobs import BlobInfo
from s3k_async.errors import LogFormatError
from s3k_async.integrity.restore_plan import entry_line
from s3k_async.integrity.restore_rules import decide_object
from s3k_async.integrity.shuffle import facts_in, to_line
from s3k_async.model import TRASH_ID, UNCOMMITTED, Deletion, Entry
from s3k_async.oplog.entries import LogRecord, LogState, Operation, operation_line
from s3k_async.oplog.external_sort import SortedLine
from s3k_async.table.keys import KeyScheme

UNIQUE: Final = "0b0e8a54-3c3f-4f0e-9d7e-1f7d6e5c4b3a"
PLACE: Final = "11111111-1111-4111-8111-111111111111"
SCHEMES: Final = (KeyScheme("v", 2), KeyScheme("v", 2, layout="tree"))
NOW_MS: Final = 10_000
IDS: Final = ("one", "two")
DELETION: Final = Deletion("deleted", PLACE, "/d/name", 77, "user@host", "")


def file(object_id: str = "one", *, in_tree: bool = False) -> Entry:
    return Entry(
        "/d/name-é",
        False,
        object_id,
        2,
        1,
        5,
        3,
        f"{UNIQUE}.id={object_id}",
        committed=True,
        etag="etag",
        checksum="xxh128:0",
        operation="op",
        directory=PLACE if in_tree else "",
    )


def directory(object_id: str = "one", *, in_tree: bool = False) -> Entry:
    entry = file(object_id, in_tree=in_tree)
    return replace(entry, is_dir=True, physical=None, committed=False, size=0, checksum="")


def update(entry: Entry, before: Entry | None = None) -> Operation:
    trash = DELETION if entry.directory == TRASH_ID else None
    return Operation("op", "update", entry.id, entry.version, 7, before, entry, trash)


@dataclass(frozen=True)
class Part:
    """Records and data objects of some objects, and what the restore looks at."""

    records: Sequence[LogRecord]
    sizes: Mapping[str, int]
    present: frozenset[str] = frozenset()
    within: str = "/"
    in_tree: bool = False

    @property
    def keys(self) -> KeyScheme:
        return SCHEMES[self.in_tree]


def lines_of(records: Iterable[LogRecord]) -> list[SortedLine]:
    return [
        (each.operation.object_id, each.state, each.key, operation_line(each.operation, each.key))
        for each in records
    ]


def check(part: Part) -> set[str]:
    """The ids of the objects that are decided natively, after comparison with the rules."""
    arguments = part.present, part.within, part.keys.authority, part.keys.suffix_count
    lines = lines_of(part.records)
    claims, places = _native.committed_claims(lines, part.sizes, *arguments)
    left = {lines[start][0]: range(start, end) for start, end in places}
    rows = {row[0]: row for row in claims}
    assert len(rows) == len(claims)
    assert not left.keys() & rows.keys()
    for object_id in dict.fromkeys(line[0] for line in lines):
        records = [each for each in part.records if each.operation.object_id == object_id]
        if object_id in left:
            assert [lines[place] for place in left[object_id]] == lines_of(records)
            continue
        decision, was_removed = decide_object(
            records,
            part.sizes,
            NOW_MS,
            part.within,
            part.present.__contains__,
            part.keys.is_current,
        )
        assert not was_removed
        if object_id not in rows:
            assert decision is None
            continue
        assert decision is not None
        entry = decision.entry
        assert entry is not None
        assert (decision.rule, decision.before, decision.after) == ("committed", None, None)
        assert (decision.detail, decision.deletions) == ("", {})
        assert rows[object_id] == (
            object_id,
            entry.entry_key,
            part.keys.parent_key(entry.entry_key),
            None if part.in_tree else entry.path.count("/"),
            entry.is_dir,
            entry.size if entry.committed else None,
            entry.ctime,
            entry_line(entry),
            decision.newest,
        )
    check_facts(part, rows, left)
    return set(dict.fromkeys(line[0] for line in lines)) - left.keys()


def check_facts(part: Part, rows: Mapping[str, Sequence[Any]], left: Iterable[str]) -> None:
    """The same is decided from facts of the shuffle."""
    records = [to_line("records", each).encode() + b"\n" for each in part.records]
    blobs = [
        to_line("blobs", BlobInfo(key, size, "", 1)).encode() + b"\n"
        for key, size in part.sizes.items()
    ]
    decided = _native.committed_facts(
        records, blobs, part.present, part.within, part.keys.authority, part.keys.suffix_count
    )
    assert decided is not None
    columns, others = decided
    object_ids, places, paths, parents, directories, sizes, ctimes, lines, versions = columns
    assert sorted(
        zip(object_ids, places, parents, directories, sizes, ctimes, lines, versions, strict=True)
    ) == sorted((*row[:3], row[4], row[5] or 0, *row[6:]) for row in rows.values())
    assert paths == [json.loads(line)["path"] for line in lines]
    assert sorted(map(repr, facts_in("records", others))) == sorted(
        repr(each) for each in part.records if each.operation.object_id in set(left)
    )


def part_of(*entries: Entry, in_tree: bool = False) -> Part:
    records = [LogRecord(update(entry), "committed", "key") for entry in entries]
    sizes = {each.physical: each.size for each in entries if each.physical}
    return Part(records, sizes, in_tree=in_tree)


@pytest.mark.parametrize("in_tree", [False, True])
def test_committed_files_and_directories_are_decided(in_tree: bool) -> None:
    part = part_of(file("one", in_tree=in_tree), directory("two", in_tree=in_tree), in_tree=in_tree)
    assert check(part) == {"one", "two"}
    assert check(replace(part, within="/d")) == {"one", "two"}
    assert check(replace(part, present=frozenset({"two"}))) == {"one"}
    assert check(replace(part, present=frozenset({"two"}), within="/dd")) == {"one", "two"}


def test_the_highest_version_counts_in_any_order() -> None:
    first, last = file(), replace(file(), path="/e/moved", version=4, operation="op2")
    records = [
        LogRecord(update(first), "committed", "key"),
        LogRecord(update(last, first), "committed", "key"),
        LogRecord(update(replace(first, version=3), first), "committed", "key"),
    ]
    for order in (records, records[::-1], [records[1], records[0], records[2]]):
        assert check(Part(order, part_of(first).sizes)) == {"one"}
    assert check(Part([*records, records[0]], part_of(first).sizes)) == {"one"}
    assert check(Part([*records, records[1]], part_of(first).sizes)) == set()


LEFT: Final[Mapping[str, Callable[[Entry], Entry]]] = {
    "extents": lambda entry: replace(entry, physical=f"extents:{entry.id}:{UNIQUE}@0+3"),
    "no bytes at all": lambda entry: replace(entry, physical=f"extents:{entry.id}:", size=0),
    "adopted": lambda entry: replace(entry, physical=f"s3://bucket/key.id={entry.id}"),
    "the key of another object": lambda entry: replace(entry, physical=f"{UNIQUE}.id=other"),
    "a key without an id": lambda entry: replace(entry, physical="key"),
    "an escaped key": lambda entry: replace(entry, physical=f"é.id={entry.id}"),
    "a version id": lambda entry: replace(entry, checksum="version:7"),
    "a reservation": lambda entry: replace(entry, physical=UNCOMMITTED, committed=False),
    "a reservation with a key": lambda entry: replace(entry, committed=False),
    "a write intent": lambda entry: replace(entry, pending="?"),
    "attributes": lambda entry: replace(entry, attributes='{"read_only":true}'),
    "a directory with a key": lambda entry: replace(entry, is_dir=True, committed=False),
    "the other layout": lambda entry: replace(entry, directory="" if entry.directory else PLACE),
}


@pytest.mark.parametrize("name", LEFT)
@pytest.mark.parametrize("in_tree", [False, True])
def test_what_is_not_plain_is_left_to_the_rules(name: str, in_tree: bool) -> None:
    odd, other = LEFT[name](file(in_tree=in_tree)), file("two", in_tree=in_tree)
    assert check(part_of(odd, other, in_tree=in_tree)) == {"two"}


def test_a_directory_in_the_trash_is_left_to_the_rules() -> None:
    trashed = replace(directory(in_tree=True), path="/one", directory=TRASH_ID)
    assert check(part_of(trashed, file("two", in_tree=True), in_tree=True)) == {"two"}


def test_other_records_and_sizes_are_left_to_the_rules() -> None:
    part = part_of(file(), file("two"))
    mine = f"{UNIQUE}.id=one"
    for sizes in ({}, {mine: 4}, {mine: 2}, {"k.id=one": 3}):
        assert check(replace(part, sizes={**sizes, f"{UNIQUE}.id=two": 3})) == {"two"}
    removal = Operation("op", "delete", "one", 3, 7, file(), None)
    open_update = update(replace(file(), version=3), file())
    for record in (LogRecord(removal, "committed"), LogRecord(open_update, "pending")):
        assert check(replace(part, records=[record, *part.records])) == {"two"}


FORMS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "spaced": lambda line: line.replace(b'"version":', b'"version": ', 1),
    "with a line end": lambda line: line + b"\n",
    "escaped": lambda line: line.replace(b"/d/", b"\\/d\\/"),
    "escaped in capitals": lambda line: line.replace(b"\\u00e9", b"\\u00E9"),
    "UTF-8": lambda line: line.replace(b"\\u00e9", "é".encode()),
    "half a surrogate pair": lambda line: line.replace(b"\\u00e9", b"\\ud83d"),
    "more fields": lambda line: line[:-1] + b',"new":1}',
    "fewer fields": lambda line: line.replace(b',"etag":"etag"', b""),
    "a field twice": lambda line: line.replace(b',"size":3', b',"size":3,"size":3'),
    "other order": lambda line: line.replace(
        b'"kind":"update","object":"one"', b'"object":"one","kind":"update"'
    ),
    "no attributes": lambda line: line.replace(b',"operation"', b',"attributes":"","operation"'),
    "other version": lambda line: line.replace(b'"version":2', b'"version":3', 1),
    "a float": lambda line: line.replace(b'"size":3', b'"size":3.0'),
    "minus zero": lambda line: line.replace(b'"lease_ms":0', b'"lease_ms":-0'),
    "beyond 64 bits": lambda line: line.replace(b'"mtime_ms":5', b'"mtime_ms":9223372036854775808'),
    "other object": lambda line: line.replace(b'"one"', b'"six"'),
    "cut": lambda line: line[:-1],
    "no JSON": lambda _: b"?",
    "nothing": lambda _: b"",
    "no UTF-8": lambda _: b"\xff",
    "an open escape": lambda line: line[: line.index(b"\\u00e9") + 3],
}


@pytest.mark.parametrize("form", FORMS)
def test_a_line_in_another_form_is_left_to_the_rules(form: str) -> None:
    part = part_of(file(), file("two"))
    one, two = lines_of(part.records)
    odd = (*one[:3], FORMS[form](one[3]))
    assert odd != one
    for lines, places in (
        ([odd, two], [(0, 1)]),
        ([two, odd], [(1, 2)]),
        ([one, odd, two], [(0, 2)]),
    ):
        claims, left = _native.committed_claims(lines, part.sizes, set(), "/", "v", 2)
        assert [claim[0] for claim in claims] == ["two"]
        assert left == places


def test_a_fact_whose_object_is_not_known_leaves_all_to_the_rules() -> None:
    lines = [to_line("records", each).encode() + b"\n" for each in part_of(file()).records]
    for odd in (b"?\n", b"[]\n", b'["committed"]\n', b"\xff\n"):
        assert _native.committed_facts([*lines, odd], [], set(), "/", "v", 2) is None


VALUES: Final[Mapping[str, Sequence[Any]]] = {
    "path": ["/d/other", "/e/name", '/d/"\\'],
    "size": [0, 4],
    "physical": [None, UNCOMMITTED, "k.id=one", "key", "s3://b/k.id=one", "extents:one:"],
    "committed": [False],
    "checksum": ["", "version:7"],
    "attributes": ['{"read_only":true}'],
    "lease_ms": [1, 2 * NOW_MS],
    "pending": ["?"],
    "directory": ["", PLACE, "elsewhere", TRASH_ID],
}


@st.composite
def states(draw: st.DrawFn, object_id: str, version: int, in_tree: bool) -> Entry:
    """A state that is nearly that of a healthy object."""
    make = draw(st.sampled_from([file, file, directory]))
    names = draw(st.one_of(st.just([]), st.lists(st.sampled_from(sorted(VALUES)), max_size=2)))
    values = {name: draw(st.sampled_from(VALUES[name])) for name in names}
    return replace(make(object_id, in_tree=in_tree), version=version, **values)


@st.composite
def parts(draw: st.DrawFn) -> Part:
    in_tree = draw(st.booleans())
    records: list[LogRecord] = []
    for object_id in IDS:
        for _ in range(draw(st.integers(1, 3))):
            version = draw(st.integers(2, 4))
            after = draw(states(object_id, version, in_tree))
            before = draw(st.none() | states(object_id, draw(st.integers(1, 3)), in_tree))
            operation = update(after, before)
            if before is not None and draw(st.integers(0, 4)) == 0:
                operation = Operation("op", "delete", object_id, version, 7, before, None)
            try:
                operation_line(operation, "key")
            except LogFormatError:
                continue
            state: LogState = "committed" if draw(st.integers(0, 5)) else "pending"
            records.append(LogRecord(operation, state, "key"))
    keys = [*(f"{UNIQUE}.id={each}" for each in IDS), "k.id=one", "key"]
    sizes = {key: draw(st.sampled_from([3, 3, 3, 4])) for key in keys if draw(st.integers(0, 5))}
    present = frozenset(draw(st.sets(st.sampled_from(IDS), max_size=1)))
    within = "/" if in_tree else draw(st.sampled_from(["/", "/d", "/e", "/d/name-é"]))
    return Part(records, sizes, present, within, in_tree)


@given(parts())
@example(part_of(file()))
def test_the_rules_decide_the_same(part: Part) -> None:
    check(part)
