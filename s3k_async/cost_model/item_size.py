"""The size of items and what reading and writing them costs, as DynamoDB counts both.

Sources: Amazon DynamoDB Developer Guide, "DynamoDB item sizes and formats" and "DynamoDB read and
write operations".
"""

from __future__ import annotations

from s3k_async.model import Entry
from s3k_async.stores.items import Item, Value
from s3k_async.table.codec import to_item
from s3k_async.table.keys import KeyScheme

__all__ = [
    "READ_UNIT",
    "WRITE_UNIT",
    "entry_size",
    "item_size",
    "read_units",
    "value_size",
    "write_units",
]

READ_UNIT = 4096
"""Bytes that one strongly consistent read unit covers."""
WRITE_UNIT = 1024
"""Bytes that one write unit covers; a transaction needs two for the same."""


def value_size(value: Value) -> int:
    """Bytes of one value: text in UTF-8; a truth value one; a number one, and one for each two
    significant digits."""
    if isinstance(value, bool):
        return 1
    if isinstance(value, int):
        digits = str(abs(value)).rstrip("0")
        return 1 + (len(digits) + 1) // 2 + (value < 0)
    return len(value.encode())


def item_size(item: Item) -> int:
    """Bytes of an item: the names of its attributes and their values, the key included."""
    return sum(len(name.encode()) + value_size(value) for name, value in item.items())


def entry_size(entry: Entry, keys: KeyScheme) -> int:
    """Bytes of the item that stores an entry."""
    return item_size(to_item(entry, keys))


def read_units(size: int) -> int:
    """Read units of one strongly consistent read of `size` bytes; finding nothing costs one,
    too."""
    return max(1, -(-size // READ_UNIT))


def write_units(size: int) -> int:
    """Write units of writing, replacing or deleting an item of `size` bytes outside a
    transaction."""
    return max(1, -(-size // WRITE_UNIT))
