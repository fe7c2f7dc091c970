"""Item sizes and capacity units of reads and writes by DynamoDB's rules.

Sources: Amazon DynamoDB Developer Guide, "DynamoDB item sizes and formats" and "DynamoDB read and
write operations".
"""

from __future__ import annotations

from s3k_async.backends.ports.items import Item, Value
from s3k_async.model import Entry
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
"""Bytes of one strongly consistent read unit."""
WRITE_UNIT = 1024
"""Bytes of one write unit; a transaction needs twice the units."""


def value_size(value: Value) -> int:
    """Bytes of one value: text in UTF-8; a boolean one; a number one, and one for each two
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
    """Bytes of an entry's item."""
    return item_size(to_item(entry, keys))


def read_units(size: int) -> int:
    """Read units of one strongly consistent read of `size` bytes; a missing item costs one, too."""
    return max(1, -(-size // READ_UNIT))


def write_units(size: int) -> int:
    """Write units of a write, replacement or deletion of an item of `size` bytes outside a
    transaction."""
    return max(1, -(-size // WRITE_UNIT))
