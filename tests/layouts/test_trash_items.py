"""Items in the trash: what is stored, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from s3k_async.backends.ports.items import Value
from s3k_async.errors import ItemFormatError
from s3k_async.layouts.tree.trash_items import (
    TrashedDirectory,
    deleted_by,
    moved_to_trash,
)
from s3k_async.model import Entry, TrashReason
from s3k_async.table.codec import from_item
from s3k_async.table.keys import TRASH_ID
from s3k_async.table.stored_reader import ROOT_ENTRY
from tests.layouts.trees import KEYS

OBJECT = "3f3a4ad0-6f0f-4bb9-9bd7-0a7c2f8d2a11"
DIRECTORY = Entry("/a/b", True, OBJECT, 3, 1, 1000, operation="o1", directory="parent-1")
DELETED = TrashedDirectory(
    "deleted",
    "parent-1",
    "/a/b",
    1_700_000_000_000,
    entry=moved_to_trash(DIRECTORY, operation="o2"),
)


def test_a_directory_in_the_trash_has_its_id_as_name_and_the_next_version() -> None:
    entry = DELETED.entry
    assert entry.path == f"/.trash/{OBJECT}"
    assert entry.entry_key == f"{TRASH_ID}/{OBJECT}"
    assert (entry.id, entry.version, entry.operation) == (OBJECT, 4, "o2")
    assert DELETED.key(OBJECT, KEYS) == KEYS.of(entry)


def test_the_item_of_a_deletion() -> None:
    item = DELETED.item(KEYS)
    key = KEYS.of(DELETED.entry)
    assert item == {
        "path": key.partition,
        "children": OBJECT,
        "isdir": True,
        "ctime": 1,
        "ver": 4,
        "id": OBJECT,
        "mtime": 1000,
        "op": "o2",
        "why": "deleted",
        "from": "parent-1",
        "was": "/a/b",
        "when": 1_700_000_000_000,
    }


@pytest.mark.parametrize(
    "trashed",
    [
        DELETED,
        replace(DELETED, by="user@host", state="reclaiming", since_ms=1_700_000_000_001),
        replace(DELETED, why="empty"),
        replace(DELETED, why="staged", job="txn-1"),
    ],
    ids=lambda trashed: trashed.why + trashed.state,
)
def test_what_is_stored_is_read(trashed: TrashedDirectory) -> None:
    assert TrashedDirectory.from_item(trashed.item(KEYS), KEYS) == trashed


def test_the_entry_codec_passes_over_the_attributes_of_the_trash() -> None:
    staged = replace(DELETED, why="staged", job="txn-1", by="user@host", since_ms=5)
    entry = from_item(staged.item(KEYS), KEYS)
    assert replace(entry, path=staged.entry.path) == staged.entry


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("why", None),
        ("why", "moved"),
        ("why", 1),
        ("from", None),
        ("from", "no id/"),
        ("was", None),
        ("was", "a/b"),
        ("when", None),
        ("when", 0),
        ("when", "1700000000000"),
        ("when", True),
        ("when", 2**63),
        ("by", ""),
        ("by", 7),
        ("state", "reclaimed"),
        ("state", ""),
        ("since", 0),
        ("since", "5"),
        ("job", "txn-1"),
        ("why", "staged"),
        ("isdir", False),
        ("id", "another-id"),
    ],
)
def test_a_damaged_item_is_refused(name: str, value: Value | None) -> None:
    item = DELETED.item(KEYS)
    if value is None:
        del item[name]
    else:
        item[name] = value
    with pytest.raises(ItemFormatError):
        TrashedDirectory.from_item(item, KEYS)


def test_an_item_outside_of_the_trash_is_refused() -> None:
    place = KEYS.key(KEYS.child(ROOT_ENTRY.id, OBJECT))
    item = DELETED.item(KEYS) | {"path": place.partition}
    with pytest.raises(ItemFormatError):
        TrashedDirectory.from_item(item, KEYS)


def test_only_what_was_deleted_and_is_whole_can_be_restored() -> None:
    reasons = [
        each for each in get_args(TrashReason) if replace(DELETED, why=each).can_be_restored()
    ]
    assert reasons == ["deleted"]
    assert not replace(DELETED, state="reclaiming").can_be_restored()
    stored = DELETED.item(KEYS)
    assert DELETED.is_restorable().holds(stored)
    for change in (
        {"state": "reclaiming"},
        {"why": "empty"},
        {"ver": 5},
        {"id": "x"},
        {"next": "t"},
    ):
        assert not DELETED.is_restorable().holds(stored | change)


def test_a_deletion_says_who_made_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "user\udcff")
    monkeypatch.setattr("socket.gethostname", lambda: "host")
    assert deleted_by() == "user?@host"

    def without_name() -> str:
        raise KeyError("uid not found: 1234")

    monkeypatch.setattr("getpass.getuser", without_name)
    assert deleted_by() == ""
