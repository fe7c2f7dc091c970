"""Items of lifecycle rules: the rules, the due index, and directories that a runner has to list.

| item | partition key | sort key |
|---|---|---|
| rule | `s3k:rules` | digest of its directory and name prefix |
| due item | `s3k:due/<hour>-sf<n>` | due time (ms), digest of the entry key |
| requested scan | `s3k:due/scan-sf<n>` | digest of the path of a directory |
| first hour | `s3k:due/first` | `hour` |

Hours are those since the epoch. Digests are BLAKE2b of 128 bits in hexadecimal: an entry key and a
path may be too long for a part of a sort key. The first digit of a digest gives `n`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from s3k_async.backends.ports.items import OPERATION, PARTITION, SORT, Condition, Item, Key, Value
from s3k_async.errors import InvalidArgumentError, ItemFormatError
from s3k_async.lifecycle_rules import LifecycleRule
from s3k_async.model import Entry

__all__ = [
    "FIRST_HOUR",
    "HOUR",
    "HOUR_MS",
    "RULE_PARTITION",
    "SUFFIXES",
    "DueItem",
    "RequestedScan",
    "check_lifecycle_item",
    "due_item",
    "due_partition",
    "due_text",
    "hour_from",
    "is_rule_partition",
    "postponed",
    "rule_from",
    "rule_item",
    "rule_key",
    "same_write",
    "scan_item",
    "scan_partition",
]

RULE_PARTITION: Final = "s3k:rules"
DUE_PREFIX: Final = "s3k:due/"
_SCANS: Final = f"{DUE_PREFIX}scan-sf"
FIRST_HOUR: Final = Key(f"{DUE_PREFIX}first", "hour")
"""The oldest hour that may have due items, in the attribute `hour`."""
SUFFIXES: Final = 16
"""Partitions of one hour. It does not depend on the suffix count of the volume, which can change.
"""
HOUR: Final = "hour"
HOUR_MS: Final = 3_600_000
_DIGITS: Final = 16
"""Of a due time, in a sort key."""
_FIELDS: Final = ("expire_at", "expire_after", "read_only_after")


@dataclass(frozen=True, slots=True)
class DueItem:
    """An item of the due index: at a time an action on an entry may be due."""

    key: Key
    entry_key: str
    path: str
    """The path of the entry when the item was written."""
    id: str
    version: int
    """The object id and version of the entry that the item was written for."""
    time_ms: int
    """When it was written, epoch milliseconds."""
    operation: str
    item: Item

    @property
    def due_ms(self) -> int:
        """When to look at the entry, epoch milliseconds."""
        return int(self.key.sort[:_DIGITS])

    @classmethod
    def from_item(cls, item: Item) -> DueItem:
        """Raises ItemFormatError."""
        try:
            int(str(item[SORT])[:_DIGITS])
            return cls(
                Key(str(item[PARTITION]), str(item[SORT])),
                str(item["entry"]),
                str(item["shown"]),
                str(item["id"]),
                int(item["ver"]),
                int(item["time"]),
                str(item[OPERATION]),
                item,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(item, "due item") from error


@dataclass(frozen=True, slots=True)
class RequestedScan:
    """A directory that a runner has to list, to put its files into the due index."""

    key: Key
    path: str
    time_ms: int
    """When it was requested, epoch milliseconds."""
    scanned_ms: int
    """When the last complete listing for it began; 0 without one."""
    item: Item

    @classmethod
    def from_item(cls, item: Item) -> RequestedScan:
        """Raises ItemFormatError."""
        try:
            return cls(
                Key(str(item[PARTITION]), str(item[SORT])),
                str(item["shown"]),
                int(item["time"]),
                int(item.get("scanned", 0)),
                item,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(item, "requested scan") from error

    def is_due(self, now_ms: int, settle_ms: int) -> bool:
        """Whether the directory has to be listed now: it never was, or was before the request was
        `settle_ms` old."""
        return not self.scanned_ms or now_ms - self.time_ms >= settle_ms


def is_rule_partition(partition: str) -> bool:
    """Whether a partition holds rules, the due index, or requested scans."""
    return partition == RULE_PARTITION or partition.startswith(DUE_PREFIX)


def due_partition(hour: int, number: int) -> str:
    """A partition of an hour."""
    return f"{DUE_PREFIX}{hour}-sf{number}"


def scan_partition(number: int) -> str:
    """A partition of requested scans."""
    return f"{_SCANS}{number}"


def due_item(entry: Entry, due_ms: int, now_ms: int, operation: str) -> Item:
    """The due item of an entry that is about to be written, or is stored. One with a past time is
    put into the present hour, since runners may be past the other one."""
    partition, sort = _due_key(entry.entry_key, due_ms, now_ms)
    return {
        PARTITION: partition,
        SORT: sort,
        "entry": entry.entry_key,
        "shown": entry.path,
        "id": entry.id,
        "ver": entry.version,
        "time": now_ms,
        OPERATION: operation,
    }


def postponed(found: DueItem, due_ms: int, operation: str) -> Item:
    """The same item at a later time, at which the entry is looked at again."""
    partition, sort = _due_key(found.entry_key, due_ms, due_ms)
    return {**found.item, PARTITION: partition, SORT: sort, OPERATION: operation}


def scan_item(path: str, now_ms: int, operation: str) -> Item:
    """A requested scan of a directory."""
    digest = _digest(path)
    return {
        PARTITION: scan_partition(int(digest[0], 16)),
        SORT: digest,
        "shown": path,
        "time": now_ms,
        OPERATION: operation,
    }


def rule_key(path: str, name_prefix: str = "") -> Key:
    """The key of the rule of a directory, or of names in it. NUL is in no path."""
    return Key(RULE_PARTITION, _digest(f"{path}\0{name_prefix}" if name_prefix else path))


def rule_item(rule: LifecycleRule, operation: str) -> Item:
    """The item of a rule."""
    key = rule_key(rule.path, rule.name_prefix)
    item: dict[str, Value] = {
        PARTITION: key.partition,
        SORT: key.sort,
        "shown": rule.path,
        OPERATION: operation,
    }
    if rule.name_prefix:
        item["prefix"] = rule.name_prefix
    values = {name: getattr(rule, name) for name in _FIELDS}
    return item | {name: value for name, value in values.items() if value is not None}


def rule_from(item: Item) -> LifecycleRule:
    """The rule of an item. Raises ItemFormatError."""
    try:
        prefix = str(item.get("prefix", ""))
        rule = LifecycleRule(str(item["shown"]), **_numbers(item), name_prefix=prefix).checked()
    except (KeyError, TypeError, ValueError, InvalidArgumentError) as error:
        raise _damaged(item, "lifecycle rule") from error
    if rule_key(rule.path, rule.name_prefix).sort != item[SORT]:
        raise _damaged(item, "lifecycle rule")
    return rule


def same_write(item: Item) -> Condition:
    """The condition that one of these items was not written again."""
    return Condition(equals={OPERATION: item[OPERATION]})


def _numbers(item: Item) -> Mapping[str, int]:
    return {name: int(item[name]) for name in _FIELDS if name in item}


def _due_key(entry_key: str, due_ms: int, now_ms: int) -> Key:
    digest = _digest(entry_key)
    partition = due_partition(max(due_ms, now_ms) // HOUR_MS, int(digest[0], 16))
    return Key(partition, f"{due_text(due_ms)}{digest}")


def due_text(time_ms: int) -> str:
    """A time in sort keys."""
    return f"{time_ms:0{_DIGITS}d}"


def check_lifecycle_item(item: Item) -> None:
    """Raise ItemFormatError for an unreadable item of these partitions."""
    partition = str(item[PARTITION])
    if partition == RULE_PARTITION:
        rule_from(item)
    elif partition == FIRST_HOUR.partition:
        hour_from(item)
    elif partition.startswith(_SCANS):
        RequestedScan.from_item(item)
    else:
        DueItem.from_item(item)


def hour_from(item: Item) -> int:
    """The hour in the item of the first hour. Raises ItemFormatError."""
    hour = item.get(HOUR)
    if type(hour) is not int or hour < 0:
        raise _damaged(item, "first hour of the due index")
    return hour


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _damaged(item: Item, what: str) -> ItemFormatError:
    return ItemFormatError(
        f"a damaged {what} (s3k fsck repair puts it into quarantine)",
        path=f"{item.get(PARTITION)} / {item.get(SORT)}",
    )
