"""Changes of many entries, natively: what they plan is what the Python codec plans, one by one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3k_async import _native
from s3k_async._native import Deletes, Entries, Moves, Operations, Resolutions, Rows
from s3k_async.backends.ports.items import ABSENT, OPERATION, Action, Delete, Put, Update, Value
from s3k_async.errors import InvalidPathError, LogFormatError
from s3k_async.model import Entry
from s3k_async.oplog.entries import Operation, operation_line
from s3k_async.table.codec import NEXT, to_item, unchanged
from s3k_async.table.keys import KeyScheme
from s3k_async.testing.reference_items import encode_transaction_action
from s3k_async.txn.write_intent import CREATED, REMOVED, WriteIntent
from tests.native.strategies import HASHES, NAMES

TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.sampled_from(["", '"', "\\", "\0\x1f\x7f", "é😀"]),
)
IDS = st.one_of(st.uuids().map(str), st.text("aZ09_-", min_size=1, max_size=64))
NUMBERS = st.one_of(st.integers(0, 10**13), st.sampled_from([9, 99, 10**15]))


@st.composite
def entries(draw: st.DrawFn) -> list[Entry]:
    """Files, and a few directories, of one directory."""
    parent = draw(st.sampled_from(["", "/d", "/d-sf1/e f", '/é"\\']))
    drawn = []
    for name in draw(st.lists(NAMES, max_size=6, unique=True)):
        is_dir = draw(st.integers(0, 4)) == 0
        committed = not is_dir and draw(st.integers(0, 4)) > 0
        drawn.append(
            Entry(
                path=f"{parent}/{name}",
                is_dir=is_dir,
                id=draw(IDS),
                version=draw(st.one_of(st.integers(1, 200), st.just(9_999_999_998))),
                ctime=draw(NUMBERS) + 1,
                mtime_ms=draw(NUMBERS),
                size=0 if is_dir else draw(NUMBERS),
                physical=None
                if is_dir
                else draw(TEXTS.filter(bool))
                if committed
                else "<uncommitted>",
                committed=committed,
                etag="" if is_dir else draw(TEXTS),
                checksum="" if is_dir else draw(TEXTS),
                attributes=draw(TEXTS),
                operation=draw(TEXTS),
                lease_ms=draw(st.sampled_from([0, 0, 7])),
                pending=draw(st.sampled_from(["", "", '{"job":"j"}'])),
            )
        )
    return drawn


KEYS = st.builds(KeyScheme, st.sampled_from(["v", "my_bucket"]), st.integers(1, 300), HASHES)
TARGETS = st.sampled_from(["/", "/t", '/t/ü"x'])


def _columns(drawn: Sequence[Entry], keys: KeyScheme) -> Entries:
    return Rows([to_item(entry, keys) for entry in drawn]).entries(keys.volume)


def _entropy(count: int) -> bytes:
    return b"".join(number.to_bytes(16, "big") for number in range(count))


def _moved(drawn: Sequence[Entry], target: str) -> list[Entry]:
    identities = _native.uuid_texts(_entropy(len(drawn)))
    return [
        entry.moved(_native.join(target, _native.split(entry.path)[1]), operation=identity)
        for entry, identity in zip(drawn, identities, strict=True)
    ]


def _body(actions: Sequence[Action]) -> object:
    return {
        "TransactItems": [encode_transaction_action("meta", action) for action in actions],
        "ClientRequestToken": "t",
    }


@given(entries(), KEYS, TARGETS)
def test_moves_as_planned_one_by_one(drawn: list[Entry], keys: KeyScheme, target: str) -> None:
    wanted: list[Action] = []
    moved = _moved(drawn, target)
    for before, after in zip(drawn, moved, strict=True):
        wanted += [
            Delete(keys.key(before.path), unchanged(before)),
            Put(to_item(after, keys), ABSENT),
        ]
    moves = Moves(
        _columns(drawn, keys),
        keys.volume,
        target,
        keys.suffix_count,
        keys.hash,
        _entropy(len(drawn)),
    )
    assert len(moves) == 2 * len(drawn)
    assert list(moves) == wanted == moves
    assert json.loads(_native.encode_transaction("meta", moves, "t")) == _body(wanted)
    operations = moves.operations(77)
    assert (
        list(operations)
        == operations
        == [
            Operation(after.operation, "rename", before.id, after.version, 77, before, after)
            for before, after in zip(drawn, moved, strict=True)
        ]
    )
    _same_lines(operations)


@given(entries(), KEYS)
def test_deletes_as_planned_one_by_one(drawn: list[Entry], keys: KeyScheme) -> None:
    wanted: list[Action] = [Delete(keys.key(entry.path), unchanged(entry)) for entry in drawn]
    deletes = Deletes(_columns(drawn, keys), _entropy(len(drawn)))
    assert len(deletes) == len(drawn)
    assert list(deletes) == wanted == deletes
    assert json.loads(_native.encode_transaction("meta", deletes, "t")) == _body(wanted)
    operations = deletes.operations(78)
    identities = _native.uuid_texts(_entropy(len(drawn)))
    assert (
        list(operations)
        == operations
        == [
            Operation(identity, "delete", entry.id, entry.version + 1, 78, entry, None)
            for identity, entry in zip(identities, drawn, strict=True)
        ]
    )
    _same_lines(operations)


INTENTS = st.one_of(
    st.uuids().map(
        lambda txn: (WriteIntent(str(txn), REMOVED).text(), WriteIntent(str(txn), CREATED).text())
    ),
    st.tuples(TEXTS.filter(bool), TEXTS.filter(bool)),
)


def _intent_update(entry: Entry, keys: KeyScheme, intent: str, operation: str) -> Update:
    """The log knows a file by its operation, which an intent does not change; a listing knows a
    directory by it."""
    pending: dict[str, Value] = (
        {NEXT: intent, OPERATION: operation} if entry.is_dir else {NEXT: intent}
    )
    return Update(keys.key(entry.path), unchanged(entry), set=pending)


@given(entries(), KEYS, TARGETS, INTENTS)
def test_moves_prepared_as_one_by_one(
    drawn: list[Entry], keys: KeyScheme, target: str, intents: tuple[str, str]
) -> None:
    wanted: list[Action] = []
    for before, after in zip(drawn, _moved(drawn, target), strict=True):
        wanted.append(_intent_update(before, keys, intents[0], after.operation))
        wanted.append(Put(to_item(replace(after, pending=intents[1]), keys), ABSENT))
    columns, entropy = _columns(drawn, keys), _entropy(len(drawn))
    moves = Moves(columns, keys.volume, target, keys.suffix_count, keys.hash, entropy, intents)
    assert len(moves) == 2 * len(drawn)
    assert list(moves) == wanted == moves
    assert json.loads(_native.encode_transaction("meta", moves, "t")) == _body(wanted)
    # The log says of it what it says of a move that is made at once.
    plain = Moves(columns, keys.volume, target, keys.suffix_count, keys.hash, entropy)
    assert moves.operations(77) == plain.operations(77)
    assert moves.operations(77).lines(0, len(drawn)) == plain.operations(77).lines(0, len(drawn))


@given(entries(), KEYS, INTENTS)
def test_deletes_prepared_as_one_by_one(
    drawn: list[Entry], keys: KeyScheme, intents: tuple[str, str]
) -> None:
    identities = _native.uuid_texts(_entropy(len(drawn)))
    wanted: list[Action] = [
        _intent_update(entry, keys, intents[0], identity)
        for entry, identity in zip(drawn, identities, strict=True)
    ]
    columns, entropy = _columns(drawn, keys), _entropy(len(drawn))
    deletes = Deletes(columns, entropy, intents[0])
    assert len(deletes) == len(drawn)
    assert list(deletes) == wanted == deletes
    assert json.loads(_native.encode_transaction("meta", deletes, "t")) == _body(wanted)
    plain = Deletes(columns, entropy).operations(78)
    assert deletes.operations(78) == plain
    assert deletes.operations(78).lines(0, len(drawn)) == plain.lines(0, len(drawn))


@given(entries(), KEYS, INTENTS, st.booleans())
def test_intents_are_resolved_as_one_by_one(
    drawn: list[Entry], keys: KeyScheme, intents: tuple[str, str], all_have_intents: bool
) -> None:
    """Each on the condition that the intent is still there, or still not."""
    pending = [replace(entry, pending=intents[0]) for entry in drawn] if all_have_intents else drawn
    columns = _columns(pending, keys)
    removals: list[Action] = [Delete(keys.key(entry.path), unchanged(entry)) for entry in pending]
    droppings: list[Action] = [
        Update(keys.key(entry.path), unchanged(entry), remove=(NEXT,)) for entry in pending
    ]
    for remove, wanted in ((True, removals), (False, droppings)):
        endings = Resolutions(columns, remove)
        assert len(endings) == len(pending)
        assert list(endings) == wanted == endings
        assert json.loads(_native.encode_transaction("meta", endings, "t")) == _body(wanted)


def _same_lines(operations: Operations) -> None:
    assert operations.ids() == [operation.id for operation in operations]
    for start, end in ((0, len(operations)), (1, 3), (2, 2), (0, 1000)):
        wanted = [operation_line(operation, "k") + b"\n" for operation in operations[start:end]]
        assert operations.lines(start, end) == b"".join(wanted)


def _files(count: int) -> list[Entry]:
    return [
        Entry(f"/d/f{number}", False, f"id-{number}", 2, 1, 1000, 10, f"k.id=id-{number}", True)
        for number in range(count)
    ]


SCHEME = KeyScheme("v", 7)


def test_some_rows() -> None:
    files = _columns(_files(10), SCHEME)
    moves = Moves(files, "v", "/t", 7, "xxh3", _entropy(10))
    deletes = Deletes(files, _entropy(10))
    endings = Resolutions(files, True)
    assert moves.take([3, 1]) == [*moves[6:8], *moves[2:4]]
    assert moves.take(range(4, 8)).take([1, 2]) == moves[10:14]
    assert deletes.take(range(2)) == deletes[:2] == [deletes[0], deletes[1]]
    assert deletes[-1] == deletes[9]
    assert endings.take([3, 1]) == [endings[3], endings[1]] == [deletes[3], deletes[1]]
    assert moves.take([3, 1]).operations(5) == [moves.operations(5)[3], moves.operations(5)[1]]
    assert moves.operations(5)[2:4].lines(0, 2) == moves.operations(5).lines(2, 4)
    assert moves.operations(5)[2:4].ids() == moves.operations(5).ids()[2:4]
    for changes in (moves, deletes, endings):
        with pytest.raises(ValueError, match="no such row"):
            changes.take([10])
        with pytest.raises(IndexError):
            changes[100]


def test_they_are_sequences() -> None:
    files = _columns(_files(3), SCHEME)
    moves = Moves(files, "v", "/t", 7, "xxh3", _entropy(3))
    deletes = Deletes(files, _entropy(3))
    endings = Resolutions(files, False)
    for sequence in (moves, deletes, endings, moves.operations(1)):
        assert sequence.index(sequence[1]) == 1
        assert sequence.count(sequence[1]) == 1
        assert list(reversed(sequence)) == list(sequence)[::-1]
        assert sequence[0] in sequence
        assert (sequence == object()) is False
        with pytest.raises(TypeError):
            hash(sequence)


def test_what_is_deleted_is_what_is_stored_wherever_that_is() -> None:
    """An item in a partition that its name does not belong to could not be removed by its path."""
    entry = _files(1)[0]
    item = to_item(entry, SCHEME)
    stray = next(key for key in SCHEME.partitions("/d") if key != item["path"])
    columns = Rows([item | {"path": stray}]).entries("v")
    for changes in (
        Deletes(columns, _entropy(1)),
        Deletes(columns, _entropy(1), "m"),
        Resolutions(columns, False),
    ):
        assert changes[0].key == (stray, "f0")


def test_an_intent_is_not_empty_and_has_a_text() -> None:
    files = _columns(_files(1), SCHEME)
    for intents in (("", "here"), ("gone", "")):
        with pytest.raises(ValueError, match="a write intent is not empty"):
            Moves(files, "v", "/t", 7, "xxh3", _entropy(1), intents)
    for intent in ("", "\ud800"):
        with pytest.raises(ValueError, match=r"a write intent is not empty|surrogates not allowed"):
            Deletes(files, _entropy(1), intent)


@pytest.mark.parametrize("count", [0, 9, 11])
def test_sixteen_bytes_of_entropy_each(count: int) -> None:
    files = _columns(_files(10), SCHEME)
    for call in (
        lambda: Moves(files, "v", "/t", 7, "xxh3", _entropy(count)),
        lambda: Deletes(files, _entropy(count)),
    ):
        with pytest.raises(ValueError, match="16 bytes of entropy"):
            call()


def test_targets_without_room_for_a_name_are_refused() -> None:
    files = _columns(_files(1), SCHEME)
    for target in ("", "/a\0", "/\ud800", "/" + "d/" * 1020):
        with pytest.raises(InvalidPathError):
            Moves(files, "v", target, 7, "xxh3", _entropy(1))


@pytest.mark.parametrize(
    "odd",
    [
        {"id": "not an id"},
        {"id": "i" * 65},
        {"id": "ü"},
        {"version": 9_999_999_999},
        {"version": 2**62},
    ],
)
def test_what_the_log_cannot_hold_is_refused_as_one_by_one(odd: dict[str, str]) -> None:
    files = _files(3)
    files[1] = replace(files[1], **odd)  # type: ignore[arg-type]
    columns = _columns(files, SCHEME)
    for operations in (
        Moves(columns, "v", "/t", 7, "xxh3", _entropy(3)).operations(1),
        Deletes(columns, _entropy(3)).operations(1),
    ):
        with pytest.raises(LogFormatError):
            operation_line(operations[1], "k")
        with pytest.raises(LogFormatError) as refused:
            operations.lines(0, 3)
        assert refused.value.path == "/d/f1"
        assert operations.lines(2, 3) == operation_line(operations[2], "k") + b"\n"
