"""Data keys referenced by table items, including uncommitted ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from s3k_async.backends.ports.items import PARTITION, SORT, Item, ItemStore
from s3k_async.backends.ports.pagination import query_all, scan_all
from s3k_async.errors import BusyError, ItemFormatError
from s3k_async.integrity.gc_rules import PHYSICAL_KEY, KeyOf
from s3k_async.model import UNCOMMITTED, Entry
from s3k_async.storage.extents import physical_keys
from s3k_async.storage.physical import is_uri
from s3k_async.table.keys import ENTRY_PREFIXES
from s3k_async.txn.txn_record import PART_SEPARATOR, TRANSACTION_PARTITION
from s3k_async.txn.upload_items import UPLOAD_PREFIXES
from s3k_async.txn.volume_record import LOCK, RECORD_KEY, STATE, same_record
from s3k_async.txn.write_intent import parse_intent

__all__ = [
    "SEGMENTS",
    "References",
    "digest_of",
    "nameless_item",
    "names_in",
    "need_unlocked",
    "open_transactions",
    "scan_segment",
]

_ANY = "00000000-0000-0000-0000-000000000000"

_NAMING: Final = (*ENTRY_PREFIXES, *UPLOAD_PREFIXES)
"""How the partitions begin whose items may reference data."""

SEGMENTS = 4
"""Segments of the table that are scanned concurrently."""


@dataclass(slots=True)
class References:
    """The data keys that some items reference."""

    keys: set[str] = field(default_factory=set)
    unclear: set[str] = field(default_factory=set)
    """Ids of objects with an unreadable item, which may reference any data of theirs."""
    nameless: list[str] = field(default_factory=list)
    """Keys of items whose object id is unreadable too: they may reference any data."""
    uploading: set[str] = field(default_factory=set)
    """Object ids that open multipart uploads have chosen."""

    def need_names(self) -> None:
        """Raise ItemFormatError if an item may reference any data."""
        for place in self.nameless:
            raise nameless_item(place)


def names_in(items: Iterable[Item], key_of: KeyOf) -> References:
    """The data keys that the items reference now, and those after publication of the transactions
    of their write intents.

    Hidden entries, entries about to be removed and damaged entries count too.
    """
    named = References()
    for item in items:
        physical, intent = item.get("physpath"), item.get("next")
        if isinstance(physical, str):
            _add(named, physical, key_of)
        if item.get("isdir") is not True and not _names_bytes(physical):
            _add_unclear(named, item)
        if intent is None:
            continue
        try:
            then = parse_intent(str(intent)).new_state
        except ItemFormatError:
            _add_unclear(named, item)
            continue
        if isinstance(then, Entry) and then.physical:
            _add(named, then.physical, key_of)
    return named


def nameless_item(place: str) -> ItemFormatError:
    """The error for an item that may reference any data."""
    return ItemFormatError(
        "an item of the table cannot be understood, and it may name any bytes; s3k fsck repair "
        "puts it into quarantine",
        path=place,
    )


def _names_bytes(physical: object) -> bool:
    """Whether an item certainly identifies its data, or has none."""
    return isinstance(physical, str) and all(
        PHYSICAL_KEY.fullmatch(name) is not None or name == UNCOMMITTED or is_uri(name)
        for name in physical_keys(physical)
    )


def _add_unclear(named: References, item: Item) -> None:
    identity = item.get("id")
    if isinstance(identity, str) and PHYSICAL_KEY.fullmatch(f"{_ANY}.id={identity}"):
        named.unclear.add(identity)
    else:
        named.nameless.append(f"{item[PARTITION]} / {item[SORT]}")


def _add(named: References, physical: str, key_of: KeyOf) -> None:
    for name in physical_keys(physical):
        key = key_of(name)
        if key is not None and PHYSICAL_KEY.fullmatch(key):
            named.keys.add(key)


async def scan_segment(
    items: ItemStore, segment: int, segments: int = SEGMENTS
) -> AsyncIterator[list[Item]]:
    """The items of entries and of multipart uploads in one part of the table, page by page."""
    async for page in scan_all(items, segment, segments):
        yield [item for item in page if str(item[PARTITION]).startswith(_NAMING)]


def digest_of(items: Iterable[Item]) -> int:
    """A digest of items that does not depend on their order: the digests of parts are added modulo
    2^64."""
    total = 0
    for item in items:
        text = json.dumps(sorted(item.items()), separators=(",", ":"))
        total += int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
    return total


async def open_transactions(items: ItemStore) -> bool:
    """Whether a transaction of kind `transaction` exists, running or abandoned: pending operations
    of the log may then become visible regardless of their age."""
    async with aclosing(query_all(items, TRANSACTION_PARTITION)) as pages:
        async for page in pages:
            if any(
                PART_SEPARATOR not in str(item[SORT]) and item.get("kind") == "transaction"
                for item in page
            ):
                return True
    return False


async def need_unlocked(items: ItemStore, before: Item | None = None) -> Item:
    """The volume's record. Raises BusyError if the volume is being loaded, moved to another layout
    or destroyed, or if the record differs from the one read `before` in more than the retention of
    the trash."""
    record = await items.get(RECORD_KEY)
    if record is None:
        raise BusyError("the volume record does not exist", path=RECORD_KEY.partition)
    if {LOCK, STATE} & record.keys() or (before is not None and not same_record(record, before)):
        raise BusyError(
            "the volume was locked or changed by a load, restore, reshard or destroy; try again",
            path=RECORD_KEY.partition,
        )
    return record
