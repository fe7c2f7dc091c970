"""Items in the trash of layout `tree`: a directory item and the attributes of its deletion.

The trash is a partition outside of the tree, in which the name of a directory is its object id. The
entry codec passes over the attributes that only these items have
(docs/design/011-directories-by-id.md, section 3.2).
"""

from __future__ import annotations

import getpass
import socket
from dataclasses import dataclass, fields, replace
from typing import Final, cast

from s3k_async.backends.ports.items import Condition, Item, Key, Value
from s3k_async.errors import ItemFormatError
from s3k_async.model import Deletion, Entry, TrashReason, TrashState
from s3k_async.oplog.entries import deletion_flaw
from s3k_async.table.codec import NEXT, from_item, to_item
from s3k_async.table.keys import TRASH_FOLDER, TRASH_ID, Directory, KeyScheme

__all__ = [
    "SETTLE_MS",
    "SINCE",
    "TRASH_FOLDER",
    "TrashedDirectory",
    "deleted_by",
    "in_trash",
    "moved_to_trash",
    "place_in_trash",
]

SETTLE_MS: Final = 20 * 60_000
"""The settle time, milliseconds. Once it has passed since garbage collection first saw an item in
the trash, every call that began before the deletion has ended."""
SINCE: Final = "since"
"""The attribute with the time at which garbage collection first saw the item."""

_STATE: Final = "state"
_LARGEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TrashedDirectory(Deletion):
    """An item in the trash: a directory, and its deletion."""

    entry: Entry
    """The directory at its place in the trash: `moved_to_trash`."""
    job: str = ""
    """The id of the transaction that publishes it; for staged directories only."""

    @classmethod
    def of(cls, entry: Entry, deletion: Deletion) -> TrashedDirectory:
        """A deleted directory, from the log."""
        values = (getattr(deletion, each.name) for each in fields(Deletion))
        return cls(*values, entry=entry)

    @property
    def deletion(self) -> Deletion:
        """Its part in the log beside the entry."""
        return Deletion(*(getattr(self, each.name) for each in fields(Deletion)))

    def item(self, keys: KeyScheme) -> dict[str, Value]:
        """The item that stores it."""
        item = to_item(self.entry, keys)
        item |= {"why": self.why, "from": self.origin, "was": self.was, "when": self.when_ms}
        optional: dict[str, Value] = {
            "by": self.by,
            _STATE: self.state,
            SINCE: self.since_ms,
            "job": self.job,
        }
        return item | {name: value for name, value in optional.items() if value}

    @classmethod
    def from_item(cls, item: Item, keys: KeyScheme) -> TrashedDirectory:
        """The directory that an item in the trash stores. Raises ItemFormatError."""
        entry = from_item(item, keys)
        if (
            entry.directory != TRASH_ID
            or not entry.is_dir
            or entry.path.rpartition("/")[2] != (entry.id)
        ):
            raise _damaged(entry, "no directory under its object id")
        trashed = cls(
            entry=replace(entry, path=_path(entry.id)),
            why=cast("TrashReason", _text(item, entry, "why")),
            origin=_text(item, entry, "from"),
            was=_text(item, entry, "was"),
            when_ms=_number(item, entry, "when"),
            by=_text(item, entry, "by", optional=True),
            state=cast("TrashState", _text(item, entry, _STATE, optional=True)),
            since_ms=_number(item, entry, SINCE, optional=True),
            job=_text(item, entry, "job", optional=True),
        )
        if flaw := trashed.flaw():
            raise _damaged(entry, flaw)
        return trashed

    def flaw(self) -> str | None:
        """The contradiction in it, or None."""
        if found := deletion_flaw(self.deletion):
            return found
        if (self.why == "staged") != bool(self.job):
            return "a transaction belongs to a staged directory, and to no other"
        return None

    def can_be_restored(self) -> bool:
        """Whether it was deleted, and its reclamation has not begun."""
        return self.why == "deleted" and not self.state

    def is_restorable(self) -> Condition:
        """The condition that the stored item is this one, unchanged, and not being reclaimed."""
        return Condition(
            equals={"id": self.entry.id, "ver": self.entry.version, "why": "deleted"},
            missing=(NEXT, _STATE),
        )

    def is_stored(self) -> Condition:
        """The condition that the stored item is this one, unchanged: the directory was not
        restored, and the attributes of its reclamation are the same."""
        equals: dict[str, Value] = {
            "id": self.entry.id,
            "ver": self.entry.version,
            "why": self.why,
        }
        missing = [NEXT]
        for name, value in ((_STATE, self.state), (SINCE, self.since_ms)):
            if value:
                equals[name] = value
            else:
                missing.append(name)
        return Condition(equals=equals, missing=tuple(missing))

    def is_settled(self, now_ms: int) -> bool:
        """Whether the settle time has passed, by the clock of the data store."""
        return 0 < self.since_ms <= now_ms - SETTLE_MS

    @staticmethod
    def key(object_id: str, keys: KeyScheme) -> Key:
        """The key of a directory in the trash."""
        return keys.key(keys.child(TRASH_ID, object_id))


def in_trash(directory: Entry) -> Directory:
    """A directory that is being reclaimed, in the trash or below a directory in the trash, as the
    parent of its children. In the log, the paths of its children contain its id: paths below its
    former path may now lead to other entries, and may be too long."""
    return Directory(directory.id, _path(directory.id), directory.entry_key)


def moved_to_trash(directory: Entry, *, operation: str) -> Entry:
    """The next version of a directory, in the trash."""
    moved = directory.moved(_path(directory.id), operation=operation)
    return replace(moved, directory=TRASH_ID)


def place_in_trash(directory: Entry) -> Entry:
    """The same version of a directory, in the trash."""
    return replace(directory, path=_path(directory.id), directory=TRASH_ID)


def deleted_by() -> str:
    """`<user>@<host>` of this process; empty if the system does not provide them."""
    try:
        name = f"{getpass.getuser()}@{socket.gethostname()}"
    except (ImportError, KeyError, OSError):  # no name for the user id
        return ""
    return name.encode("utf-8", "replace").decode("utf-8")


def _path(object_id: str) -> str:
    return f"{TRASH_FOLDER}/{object_id}"


def _text(item: Item, entry: Entry, name: str, *, optional: bool = False) -> str:
    value = item.get(name, "" if optional else None)
    if not isinstance(value, str) or (name in item and not value):
        raise _damaged(entry, f"{name!r} is no text")
    return value


def _number(item: Item, entry: Entry, name: str, *, optional: bool = False) -> int:
    value = item.get(name, 0 if optional else None)
    if type(value) is not int or not (name in item) <= value <= _LARGEST:
        raise _damaged(entry, f"{name!r} is no time")
    return value


def _damaged(entry: Entry, reason: str) -> ItemFormatError:
    return ItemFormatError(
        f"a damaged item in the trash: {reason} (s3k fsck repair quarantines it)", path=entry.path
    )
