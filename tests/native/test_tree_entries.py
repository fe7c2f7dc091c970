"""Entries of layout `tree`: keyed by the id of their directory, whose path a listing may know."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3k_async import _native
from s3k_async._native import Deletes, Entries, Moves, Operations, Resolutions, Rows, status_of
from s3k_async.backends.ports.items import Delete, Item, Key, Update, Value
from s3k_async.errors import InvalidPathError, ItemFormatError, LogFormatError
from s3k_async.model import Entry, Operation
from s3k_async.table.codec import NEXT, to_item, unchanged
from s3k_async.table.keys import KeyScheme
from tests.native import item_oracle
from tests.native.strategies import DIRECTORY_IDS, NAMES, PATHS

ROOT_ID, TRASH_ID = item_oracle.RESERVED_IDS
D1, D2 = "0b8a4b8e-5b1c-4d8f-9f43-2f6e2d0a7c11", "1c9b5c9f-6c2d-4e90-8a54-3a7f3e1b8d22"
COUNT = 4
IDS = DIRECTORY_IDS.filter(lambda text: text not in item_oracle.RESERVED_IDS)
WHOLE = st.one_of(st.integers(1, 2**53), st.sampled_from([1, 10**9, 9223372036854775]))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
PARENTS = st.one_of(
    st.just("/"), st.just("/.trash"), PATHS.filter(lambda path: len(path.encode()) < 3000)
)
DIRECTORIES = st.dictionaries(DIRECTORY_IDS, st.none() | PARENTS, min_size=1, max_size=3)
"""Directory ids, with their paths as far as they are known."""


def _item(entry: Entry) -> Item:
    partition, sort = _native.item_key(None, entry.entry_key, COUNT, "xxh3")
    return to_item(replace(entry, path="/x", directory=""), KeyScheme("v", 1)) | {
        "path": partition,
        "children": sort,
    }


def _key(entry: Entry) -> Key:
    return Key(*_native.item_key(None, entry.entry_key, COUNT, "xxh3"))


def _known(directories: Mapping[str, str | None]) -> dict[str, str]:
    return {key: path for key, path in directories.items() if path is not None}


def _path(directories: Mapping[str, str | None], directory: str, name: str) -> str:
    parent = directories.get(directory)
    return f"{directory}/{name}" if parent is None else f"{parent.rstrip('/')}/{name}"


@st.composite
def tree_entries(draw: st.DrawFn, directories: Mapping[str, str | None]) -> Entry:
    directory, name = draw(st.sampled_from(sorted(directories))), draw(NAMES)
    path = _path(directories, directory, name)
    version, ctime, mtime = draw(WHOLE), draw(WHOLE), draw(st.integers(-5, 2**60))
    etag, checksum, attributes, operation, pending = draw(st.lists(TEXTS, min_size=5, max_size=5))
    is_dir, committed = draw(st.booleans()), draw(st.booleans())
    if is_dir:
        return Entry(
            path, True, draw(IDS), version, ctime, mtime, pending=pending, directory=directory
        )
    return Entry(
        path,
        False,
        draw(IDS),
        version,
        ctime,
        mtime,
        draw(WHOLE),
        "key" if committed else "<uncommitted>",
        committed,
        etag,
        checksum,
        operation,
        0 if committed else 7,
        pending,
        directory,
        attributes,
    )


@st.composite
def pages(draw: st.DrawFn) -> tuple[dict[str, str], list[Entry]]:
    """Known paths, and entries."""
    directories = draw(DIRECTORIES)
    return _known(directories), draw(st.lists(tree_entries(directories), max_size=8))


def _entries(page: tuple[dict[str, str], Sequence[Entry]]) -> Entries:
    paths, entries = page
    return Rows([_item(entry) for entry in entries]).entries(None, paths=paths)


def _directory(name: str, directory: str = D1, path: str = "/d") -> Entry:
    return Entry(f"{path}/{name}", True, f"id-{name}", 1, 1, 1000, directory=directory)


def _file(name: str, directory: str = D1, path: str = "/d") -> Entry:
    return Entry(
        f"{path}/{name}",
        False,
        f"id-{name}",
        2,
        1,
        1000,
        10,
        f"k.id={name}",
        True,
        directory=directory,
    )


@given(pages())
def test_entries_are_what_was_written(page: tuple[dict[str, str], list[Entry]]) -> None:
    paths, entries = page
    found = _entries(page)
    assert found == entries
    assert found.paths() == [entry.path for entry in entries]
    assert found.entry_keys() == [entry.entry_key for entry in entries]
    assert found.directory_keys() == [entry.directory for entry in entries]
    assert found.statuses() == [status_of(entry) for entry in entries]
    assert [status.name for status in found.statuses()] == [
        entry.entry_key.partition("/")[2] for entry in entries
    ]
    batch = pa.record_batch(found)
    batch.validate(full=True)
    assert batch.column("path").to_pylist() == [entry.path for entry in entries]
    for prefix in ("/", *(path.rstrip("/") + "/" for path in paths.values())):
        assert found.below(prefix) == [entry for entry in entries if entry.path.startswith(prefix)]
    for part in (slice(1, None), slice(None, None, -2)):
        assert found[part] == entries[part]
    assert found.directories() == [entry for entry in entries if entry.is_dir]


@given(pages())
def test_without_paths_an_entry_has_its_key_as_path(
    page: tuple[dict[str, str], list[Entry]],
) -> None:
    entries = [replace(entry, path=entry.entry_key) for entry in page[1]]
    rows = Rows([_item(entry) for entry in entries])
    for found in (rows.entries(None), rows.entries(None, paths={}), rows.entries(None, paths=None)):
        assert found == entries
        assert found.paths() == found.entry_keys() == [entry.entry_key for entry in entries]
        assert found.below("/") == []


DAMAGE: st.SearchStrategy[Mapping[str, Value | None]] = st.dictionaries(
    st.sampled_from(["path", "children", "isdir", "ctime", "ver", "id", "size", "physpath", "why"]),
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**62), 9223372036854775),
        NAMES,
        st.sampled_from(
            [
                "",
                "a/b",
                "not an id",
                "x" * 64,
                "x" * 65,
                ROOT_ID,
                TRASH_ID,
                "<uncommitted>",
                "ks://v/-sf0",
                "s3k:tree/a-sf0",
                "s3k:tree/a-sf01",
                f"s3k:tree/{D1}-sf0",
                f"s3k:tree/{TRASH_ID}-sf3",
                "s3k:root",
            ]
        ),
    ),
    max_size=3,
)


def _outcome(read: Callable[[], Entry]) -> tuple[Entry | None, str, str | None]:
    try:
        return read(), "", None
    except ItemFormatError as error:
        return None, str(error), error.path


@given(st.data(), DIRECTORIES, DAMAGE)
def test_items_mean_what_the_reference_reads(
    data: st.DataObject, directories: dict[str, str | None], damage: Mapping[str, Value | None]
) -> None:
    """The same entry, or the same error, whatever is in the item."""
    damaged = {**_item(data.draw(tree_entries(directories))), **damage}
    item: Item = {name: value for name, value in damaged.items() if value is not None}
    paths = {D1: "/known", **_known(directories)}
    for known in (paths, None):
        wanted = _outcome(lambda: item_oracle.from_item(item, None, known))  # noqa: B023
        found = _outcome(lambda: Rows([item, item])[1:].entries(None, paths=known)[0])  # noqa: B023
        assert found == wanted


@pytest.mark.parametrize("item_id", [ROOT_ID, TRASH_ID])
@pytest.mark.parametrize("is_dir", [True, False])
def test_no_item_has_the_id_of_the_root_or_of_the_trash(item_id: str, is_dir: bool) -> None:
    item = _item(replace(_directory("a") if is_dir else _file("a"), id=item_id))
    with pytest.raises(ItemFormatError, match="the root or of the trash") as raised:
        Rows([item]).entries(None, paths={D1: "/d"})
    assert raised.value.path == "/d/a"
    in_path = {**item, "path": "ks://v/d-sf0"}
    assert Rows([in_path]).entries("v")[0].id == item_id


@pytest.mark.parametrize("item_id", ["not an id", "x" * 65, "é", "a/b"])
def test_a_directory_without_keys_for_children_is_damage(item_id: str) -> None:
    """It would look like an empty directory."""
    with pytest.raises(ItemFormatError, match="the id of a directory") as raised:
        Rows([_item(replace(_directory("a"), id=item_id))]).entries(None)
    assert raised.value.path == f"{D1}/a"
    assert Rows([_item(replace(_file("a"), id=item_id))]).entries(None)[0].id == item_id


def test_records_are_left_out_on_request_and_items_of_the_other_layout_are_damage() -> None:
    in_tree, in_path = _item(_file("f")), {**_item(_file("f")), "path": "ks://v/d-sf0"}
    records: list[Item] = [
        {"path": "s3k:volume", "children": "record"},
        {"path": "s3k:root", "children": "root", "op": "o"},
        {"path": "s3k:dir/x", "children": "y"},
    ]
    for item, volume in ((in_tree, None), (in_path, "v")):
        rows = Rows([records[0], item, *records[1:]])
        assert (
            rows.entries(volume, records=True).entry_keys()
            == Rows([item]).entries(volume).entry_keys()
        )
        with pytest.raises(ItemFormatError):
            rows.entries(volume)
    for item, volume, message in ((in_path, None, "s3k:tree/"), (in_tree, "v", "ks://")):
        for records_too in (True, False):
            with pytest.raises(ItemFormatError, match=f"does not begin with '{message}'"):
                Rows([item]).entries(volume, records=records_too)


def test_an_item_in_the_trash_is_read_like_any_other() -> None:
    deleted = Entry(f"/.trash/{D2}", True, D2, 7, 1, 1000, operation="o", directory=TRASH_ID)
    item: Item = {
        **_item(deleted),
        "why": "deleted",
        "from": D1,
        "was": "/d/a",
        "when": 1_700_000_000_000,
        "by": "me@here",
        "since": 1_700_000_000_001,
    }
    assert item["children"] == D2
    rows = Rows([item])
    assert rows.entries(None, paths={TRASH_ID: "/.trash"}) == [deleted]
    assert rows.entries(None) == [replace(deleted, path=f"{TRASH_ID}/{D2}")]
    assert rows[0] == item


@pytest.mark.parametrize("path", ["", "d", "/d/", "//d", "/d/..", "/d\0", "/\ud800"])
def test_known_paths_are_normalised(path: str) -> None:
    rows = Rows([_item(_file("f"))])
    with pytest.raises(InvalidPathError):
        rows.entries(None, paths={D1: path})
    assert rows.entries(None, paths={D2: path}).paths() == [f"{D1}/f"]


def test_known_paths_are_texts() -> None:
    wrong: Any = ({D1: 1}, {D1: None}, [(D1, "/d")])
    for paths in wrong:
        with pytest.raises(TypeError):
            Rows([_item(_file("f"))]).entries(None, paths=paths)


def test_in_layout_path_an_entry_has_one_directory_key_and_path() -> None:
    item = {**_item(_file("f")), "path": "ks://v/a/b-sf0"}
    root = {**_item(_file("g")), "path": "ks://v/-sf0"}
    for found in (
        Rows([item, root]).entries("v"),
        Rows([item, root]).entries("v", paths={"/a/b": "/other", "/": "/other"}),
    ):
        assert found.directory_keys() == ["/a/b", "/"]
        assert found.entry_keys() == found.paths() == ["/a/b/f", "/g"]
        assert [entry.directory for entry in found] == ["", ""]
        assert [entry.entry_key for entry in found] == ["/a/b/f", "/g"]


def test_entries_of_one_directory_share_its_key() -> None:
    entries = [_file(f"f{number}") for number in range(50)]
    keys = Rows([_item(entry) for entry in entries]).entries(None).directory_keys()
    assert keys == [D1] * 50
    assert len({id(key) for key in keys}) == 1


def _components(entry: Entry) -> list[bytes]:
    return [name.encode() for name in entry.path.split("/")]


@given(st.lists(pages(), max_size=4))
def test_pages_keep_their_paths_together(pages: list[tuple[dict[str, str], list[Entry]]]) -> None:
    found = [_entries(page) for page in pages]
    everything = [entry for _, entries in pages for entry in entries]
    ordered = sorted(everything, key=_components)
    assert [entry.path for entry in Entries.sorted(found)] == [entry.path for entry in ordered]
    assert sorted(Entries.sorted(found), key=repr) == sorted(everything, key=repr)
    joined = Entries.joined(found)
    assert joined == everything
    assert Entries.joined([joined, joined[::-1]]).entry_keys() == [
        entry.entry_key for entry in [*everything, *everything[::-1]]
    ]
    if everything:
        few = Entries.joined([joined] * 20)[::19]
        assert few.statuses() == [status_of(entry) for entry in list(everything * 20)[::19]]


@given(st.lists(st.tuples(pages(), st.booleans()), max_size=4))
def test_merged_pages_keep_their_paths(
    parts: list[tuple[tuple[dict[str, str], list[Entry]], bool]],
) -> None:
    ordered = [
        (_entries((paths, sorted(entries, key=_components))), ended)
        for (paths, entries), ended in parts
    ]
    ready, rests = Entries.merged([part for part, _ in ordered], [ended for _, ended in ordered])
    again, nothing = Entries.merged([ready, *rests], [True] * (len(rests) + 1))
    assert all(len(rest) == 0 for rest in nothing)
    assert again.paths() == [
        entry.path
        for entry in sorted(
            (entry for (_, entries), _ in parts for entry in entries), key=_components
        )
    ]
    everything = [entry for (_, entries), _ in parts for entry in entries]
    assert sorted(again, key=repr) == sorted(everything, key=repr)


def test_many_directories_keep_their_own_paths() -> None:
    """More than a page of directories, some without a known path, in an order that mixes them."""
    directories = {f"d{number}": f"/p/{number}" if number % 3 else None for number in range(3000)}
    entries = [
        replace(_file(str(number)), path=_path(directories, directory, "f"), directory=directory)
        for number, directory in enumerate([*directories, *reversed(directories)])
    ]
    found = _entries((_known(directories), entries))
    assert found.paths() == [entry.path for entry in entries]
    gathered = Entries.joined([found[1::2], found[::2]])
    assert gathered == [*entries[1::2], *entries[::2]]


def test_entries_of_both_layouts_stay_what_they_are() -> None:
    in_path = Rows([{**_item(_file("g")), "path": "ks://v/a-sf0"}]).entries("v")
    in_tree = _entries(({D1: "/d"}, [_file("f")]))
    unknown = Rows([_item(_file("h"))]).entries(None)
    joined = Entries.joined([in_path, in_tree, unknown, in_path])
    assert joined.paths() == ["/a/g", "/d/f", f"{D1}/h", "/a/g"]
    assert joined.entry_keys() == ["/a/g", f"{D1}/f", f"{D1}/h", "/a/g"]
    assert [entry.directory for entry in joined] == ["", D1, D1, ""]


def _entropy(count: int) -> bytes:
    return b"".join(number.to_bytes(16, "big") for number in range(count))


def _side(entry: Entry) -> dict[str, object]:
    return {
        "path": entry.path,
        "directory": entry.directory,
        "is_dir": entry.is_dir,
        "id": entry.id,
        "version": entry.version,
        "ctime": entry.ctime,
        "mtime_ms": entry.mtime_ms,
        "size": entry.size,
        "physical": entry.physical,
        "committed": entry.committed,
        "etag": entry.etag,
        "checksum": entry.checksum,
        **({"attributes": entry.attributes} if entry.attributes else {}),
        "operation": entry.operation,
        "lease_ms": entry.lease_ms,
        "pending": entry.pending,
    }


def _line(operation: Operation) -> bytes:
    assert operation.before is not None
    assert operation.after is None
    document = {
        "id": operation.id,
        "kind": operation.kind,
        "object": operation.object_id,
        "version": operation.version,
        "time_ms": operation.time_ms,
        "before": _side(operation.before),
        "after": None,
    }
    return json.dumps(document, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


@given(pages())
def test_deletes_are_logged_with_the_directory(page: tuple[dict[str, str], list[Entry]]) -> None:
    entries = [
        replace(entry, version=min(entry.version, 9_999_999_998))
        for entry in page[1]
        if entry.path.startswith("/")
    ]
    deletes = Deletes(_entries((page[0], entries)), _entropy(len(entries)))
    assert deletes == [Delete(_key(entry), unchanged(entry)) for entry in entries]
    identities = _native.uuid_texts(_entropy(len(entries)))
    wanted = [
        Operation(identity, "delete", entry.id, entry.version + 1, 77, entry, None)
        for identity, entry in zip(identities, entries, strict=True)
    ]
    operations: Operations = deletes.operations(77)
    assert list(operations) == wanted == operations
    assert operations.lines(0, len(entries)) == b"".join(map(_line, wanted))


def test_a_change_without_a_known_path_is_not_logged() -> None:
    """Readers of the log refuse a path that is none."""
    rows = Rows([_item(_file("f")), _item(_file("g", D2))])
    operations = Deletes(rows.entries(None, paths={D1: "/d"}), _entropy(2)).operations(1)
    assert json.loads(operations.lines(0, 1))["before"]["path"] == "/d/f"
    with pytest.raises(LogFormatError, match="path of the entry is not known") as refused:
        operations.lines(0, 2)
    assert refused.value.path == f"{D2}/g"


def test_intents_are_resolved_under_the_stored_key() -> None:
    entry = replace(_directory("a"), pending="intent")
    columns = Rows([_item(entry)]).entries(None)
    assert Resolutions(columns, True) == [Delete(_key(entry), unchanged(entry))]
    assert Resolutions(columns, False) == [Update(_key(entry), unchanged(entry), remove=(NEXT,))]
    (intended,) = Deletes(columns, _entropy(1), "gone")
    assert intended.key == _key(entry)


def test_entries_are_not_moved_one_by_one() -> None:
    in_path = Rows([{**_item(_file("g")), "path": "ks://v/a-sf0"}]).entries("v")
    in_tree = _entries(({D1: "/d"}, [_file("f")]))
    for columns, volume in ((in_path, None), (in_tree, None), (in_tree, "v")):
        with pytest.raises(ValueError, match="in layout 'path' only"):
            Moves(columns, volume, "/t", COUNT, "xxh3", _entropy(1))
    assert len(Moves(in_path, "v", "/t", COUNT, "xxh3", _entropy(1))) == 2
