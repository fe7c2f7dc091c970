"""The values of the item port: keys, items, conditions, actions. The native core makes and reads
them too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

__all__ = [
    "ABSENT",
    "OPERATION",
    "PARTITION",
    "SORT",
    "Action",
    "Check",
    "Condition",
    "Delete",
    "Item",
    "Key",
    "Put",
    "Update",
    "Value",
]

Value: TypeAlias = str | int | bool
Item: TypeAlias = Mapping[str, Value]
"""Attribute name to value, the key attributes `path` and `children` included. An adapter that reads
an attribute of another type (a foreign item) gives its text form in the service's own JSON."""

PARTITION = "path"
SORT = "children"
OPERATION = "op"
"""Attribute with the id of the item's last write operation."""


class Key(NamedTuple):
    """Primary key of an item."""

    partition: str
    sort: str


@dataclass(frozen=True, slots=True)
class Condition:
    """The precondition of an action on the stored item.

    `exists=False`: there is no item. Otherwise there is one whose attributes equal `equals` (same
    type, same value) and which has none of the attributes in `missing`.
    """

    exists: bool = True
    equals: Mapping[str, Value] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    def holds(self, item: Item | None) -> bool:
        """Whether the stored item satisfies the condition."""
        if item is None or not self.exists:
            return item is None and not self.exists
        for name, value in self.equals.items():
            stored = item.get(name)
            if type(stored) is not type(value) or stored != value:
                return False
        return item.keys().isdisjoint(self.missing)


ABSENT = Condition(exists=False)


@dataclass(frozen=True, slots=True)
class Put:
    """Write the whole item."""

    item: Item
    when: Condition

    @property
    def key(self) -> Key:
        return Key(str(self.item[PARTITION]), str(self.item[SORT]))


@dataclass(frozen=True, slots=True)
class Update:
    """Set some attributes of an existing item and remove others. The condition must require
    existence."""

    key: Key
    when: Condition
    set: Mapping[str, Value] = field(default_factory=dict)
    remove: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the item. The condition must require existence."""

    key: Key
    when: Condition


@dataclass(frozen=True, slots=True)
class Check:
    """Change nothing, but require the condition. Only inside a transaction."""

    key: Key
    when: Condition


Action: TypeAlias = Put | Update | Delete | Check
