"""Semantics of the item port's actions, for adapters that evaluate conditions themselves."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence

from s3k_async._native import Deletes, Moves, Resolutions
from s3k_async.backends.ports.items import (
    MAX_LOAD,
    MAX_TRANSACTION,
    PARTITION,
    SORT,
    Action,
    Check,
    Delete,
    Item,
    Key,
    Put,
    Update,
    Value,
)
from s3k_async.errors import ConditionFailedError, ServiceError

__all__ = [
    "MAX_TOKEN",
    "TOKEN_LIFE_MS",
    "cursor_of",
    "fingerprint",
    "key_of",
    "outcome",
    "refusal",
    "refused",
    "segment_of",
    "token_mismatch",
    "validate",
    "validate_load",
    "validate_page",
    "validate_segment",
    "validate_transaction",
]

MAX_TOKEN = 36
"""Characters of an idempotency token."""
TOKEN_LIFE_MS = 10 * 60 * 1000
"""Retention of a transaction's token, milliseconds."""


def validate(action: Action) -> None:
    """Raise ValueError for an action that is invalid for every stored item."""
    if isinstance(action, Put) and not (PARTITION in action.item and SORT in action.item):
        raise ValueError("an item needs a partition key and a sort key")
    key = action.key
    if not key.partition.encode() or not key.sort.encode():
        raise ValueError("partition key and sort key must not be empty")
    if isinstance(action, Put | Check):
        return
    if not action.when.exists:
        raise ValueError("an update or delete must require that the item exists")
    if isinstance(action, Update):
        touched = [*action.set, *action.remove]
        if PARTITION in touched or SORT in touched:
            raise ValueError("the key of an item cannot be updated")
        if len(set(touched)) < len(touched):
            raise ValueError("an update names an attribute twice")
        if not touched:
            raise ValueError("an update must change something")


def validate_transaction(actions: Sequence[Action], token: str) -> None:
    """Raise ValueError for a transaction that every engine refuses."""
    if not 1 <= len(actions) <= MAX_TRANSACTION:
        raise ValueError(f"a transaction has 1 to {MAX_TRANSACTION} actions, not {len(actions)}")
    if not 1 <= len(token.encode()) <= MAX_TOKEN:
        raise ValueError(f"an idempotency token has 1 to {MAX_TOKEN} characters")
    if isinstance(actions, Moves | Deletes | Resolutions):
        return  # slices of items that were read, each item once
    for action in actions:
        validate(action)
    if len({action.key for action in actions}) < len(actions):
        raise ValueError("a transaction names an item twice")


def validate_load(items: Sequence[Item]) -> list[Key]:
    """The keys of items to load. Raises ValueError for a batch that DynamoDB would refuse."""
    if not 1 <= len(items) <= MAX_LOAD:
        raise ValueError(f"a load has 1 to {MAX_LOAD} items, not {len(items)}")
    if any(not (item.get(PARTITION) and item.get(SORT)) for item in items):
        raise ValueError("an item needs a partition key and a sort key")
    keys = [Key(str(item[PARTITION]), str(item[SORT])) for item in items]
    if len(set(keys)) < len(keys):
        raise ValueError("a load names an item twice")
    return keys


def validate_page(limit: int | None) -> None:
    """Raise ValueError for a page of less than one item."""
    if limit is not None and limit < 1:
        raise ValueError("a page holds at least one item")


def validate_segment(segment: int, segments: int) -> None:
    """Raise ValueError unless 0 <= segment < segments."""
    if not 0 <= segment < segments:
        raise ValueError(f"no segment {segment} of {segments}")


def outcome(action: Action, current: Item | None) -> dict[str, Value] | None:
    """The item after an action whose condition holds; None if it was removed."""
    match action:
        case Put():
            return dict(action.item)
        case Delete():
            return None
        case Check():
            return None if current is None else dict(current)
        case Update():
            after = dict(current or {})
            after.update(action.set)
            for name in action.remove:
                after.pop(name, None)
            return after


def refusal(
    actions: Sequence[Action], current: Sequence[Item | None]
) -> ConditionFailedError | None:
    """The error with every action whose condition its current item does not satisfy, or None."""
    failed = {
        position: None if item is None else dict(item)
        for position, (action, item) in enumerate(zip(actions, current, strict=True))
        if not action.when.holds(item)
    }
    return refused(actions, failed) if failed else None


def refused(
    actions: Sequence[Action], failed: dict[int, dict[str, Value] | None]
) -> ConditionFailedError:
    """The error for actions whose conditions do not hold: their positions and stored items."""
    key = actions[min(failed)].key
    return ConditionFailedError(
        "a condition on the stored item did not hold",
        path=f"{key.partition}/{key.sort}",
        current=failed,
    )


def token_mismatch(actions: Sequence[Action]) -> ServiceError:
    """The error for a token that was used with other actions."""
    key = actions[0].key
    return ServiceError(
        "the idempotency token was used with other actions",
        path=f"{key.partition}/{key.sort}",
        service_code="IdempotentParameterMismatchException",
    )


def segment_of(partition: str) -> int:
    """A hash of the partition key; modulo the number of segments, it is the partition's scan
    segment."""
    return zlib.crc32(partition.encode())


def cursor_of(key: Key) -> str:
    """The scan cursor after a key."""
    return f"{len(key.partition)}:{key.partition}{key.sort}"


def key_of(cursor: str) -> Key:
    """The key of a scan cursor."""
    length, _, rest = cursor.partition(":")
    return Key(rest[: int(length)], rest[int(length) :])


def fingerprint(actions: Sequence[Action]) -> str:
    """Canonical text of a list of actions, independent of the order of attributes."""
    return json.dumps([_plain(action) for action in actions], sort_keys=True)


def _plain(action: Action) -> dict[str, object]:
    when = action.when
    plain: dict[str, object] = {
        "action": type(action).__name__,
        "key": action.key,
        "when": [when.exists, dict(when.equals), sorted(when.missing)],
    }
    if isinstance(action, Put):
        plain["item"] = dict(action.item)
    elif isinstance(action, Update):
        plain["set"] = dict(action.set)
        plain["remove"] = sorted(action.remove)
    return plain
