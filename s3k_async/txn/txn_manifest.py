"""The manifest of a transaction: items that list the entries which carry its intents.

It is written after the record and before the first intent, so that any client that takes the
transaction over finds all intents, and removed after the last intent, before the record. A missing
part therefore means that its intents are resolved, or were never written.

A part is an item beside the record, with the transaction's id and its own number as sort key
(`<transaction id>#000000`): `paths`, in layout `tree` `keys`, a JSON list of single entry keys with
an intent, and `trees`, a list of the directories below which every entry has one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from s3k_async._core.runtime import Runtime
from s3k_async.backends.ports.items import (
    ABSENT,
    OPERATION,
    PARTITION,
    SORT,
    Condition,
    Delete,
    Item,
    ItemStore,
    Key,
    Put,
)
from s3k_async.errors import ConditionFailedError, ItemFormatError, LeaseExpiredError
from s3k_async.txn.txn_record import (
    PART_SEPARATOR,
    TRANSACTION_PARTITION,
    OwnedTransaction,
)

__all__ = ["ManifestPart", "divided", "read_part", "remove_parts", "write_parts"]

PART_ENTRIES = 2000
PART_BYTES = 200_000
"""Limits of a part, of which the first one reached applies; an item holds 400 KB."""


@dataclass(frozen=True, slots=True)
class ManifestPart:
    """Some of the entries with intents of a transaction."""

    entry_keys: tuple[str, ...] = ()
    """In the order in which they are held: a directory before its content."""
    trees: tuple[str, ...] = ()


def divided(entry_keys: Iterable[str], trees: Iterable[str] = ()) -> list[ManifestPart]:
    """The entry keys divided into parts, with the trees at the end: a transaction is resolved from
    its last part to its first."""
    return [
        *(ManifestPart(entry_keys=tuple(some)) for some in _chunks(entry_keys)),
        *(ManifestPart(trees=tuple(some)) for some in _chunks(trees)),
    ]


def _chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    some: list[str] = []
    size = 0
    for text in texts:
        weight = len(json.dumps(text, ensure_ascii=False).encode()) + 1
        if some and (len(some) == PART_ENTRIES or size + weight > PART_BYTES):
            yield some
            some, size = [], 0
        some.append(text)
        size += weight
    if some:
        yield some


async def write_parts(
    items: ItemStore, txn: OwnedTransaction, parts: Sequence[ManifestPart], runtime: Runtime
) -> None:
    """Write the parts, as long as this client owns the transaction. Raises LeaseExpiredError, and
    the service's errors."""
    for number, part in enumerate(parts):
        txn.check()
        put = Put(_item(txn.id, number, part, runtime.uuid()), ABSENT)
        try:
            await items.transact([put, txn.can_be_published], runtime.uuid())
        except ConditionFailedError as error:
            txn.lose()
            raise LeaseExpiredError("transaction lease expired; no changes were applied") from error


async def read_part(items: ItemStore, transaction_id: str, number: int) -> ManifestPart | None:
    """A part of a transaction, or None if it does not exist. Raises ItemFormatError."""
    item = await items.get(_key(transaction_id, number))
    if item is None:
        return None
    entry_keys = _texts(item, "keys", paths=False) if "keys" in item else _texts(item, "paths")
    return ManifestPart(entry_keys, _texts(item, "trees"))


async def remove_parts(items: ItemStore, txn: OwnedTransaction) -> None:
    """Remove the parts of a transaction without remaining intents."""
    for number in range(txn.parts):
        with suppress(ConditionFailedError):  # already removed, or never written
            await items.write(Delete(_key(txn.id, number), Condition()))


def _key(transaction_id: str, number: int) -> Key:
    return Key(TRANSACTION_PARTITION, f"{transaction_id}{PART_SEPARATOR}{number:06}")


def _item(transaction_id: str, number: int, part: ManifestPart, operation: str) -> Item:
    are_paths = all(entry_key.startswith("/") for entry_key in part.entry_keys)
    return {
        PARTITION: TRANSACTION_PARTITION,
        SORT: _key(transaction_id, number).sort,
        OPERATION: operation,
        "paths" if are_paths else "keys": json.dumps(part.entry_keys, ensure_ascii=False),
        "trees": json.dumps(part.trees, ensure_ascii=False),
    }


def _texts(item: Item, name: str, *, paths: bool = True) -> tuple[str, ...]:
    kind = "paths" if paths else "entry keys"
    try:
        found = json.loads(str(item.get(name, "")))
    except (ValueError, RecursionError) as error:
        raise ItemFormatError(
            f"a part of a transaction whose {name!r} are no JSON", path=str(item.get(SORT))
        ) from error
    if not isinstance(found, list) or not all(
        isinstance(each, str) and "/" in each and each.startswith("/") == paths for each in found
    ):
        raise ItemFormatError(
            f"a part of a transaction whose {name!r} are no list of {kind}",
            path=str(item.get(SORT)),
        )
    return tuple(found)
