"""The port to the metadata table: items by (partition key, sort key), every write conditional but
`load`.

An adapter sends one request for each call, maps foreign errors to ours and does not retry:
`retrying_items` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from s3k_async._core.item_values import (
    ABSENT,
    OPERATION,
    PARTITION,
    SORT,
    Action,
    Check,
    Condition,
    Delete,
    Item,
    Key,
    Put,
    Update,
    Value,
)
from s3k_async.errors import ThrottledError

__all__ = [
    "ABSENT",
    "MAX_BATCH",
    "MAX_LOAD",
    "MAX_TRANSACTION",
    "OPERATION",
    "PARTITION",
    "SORT",
    "Action",
    "Check",
    "Condition",
    "Delete",
    "Item",
    "ItemPage",
    "ItemStore",
    "ItemTable",
    "Key",
    "Put",
    "UnloadedItemsError",
    "UnprocessedKeysError",
    "Update",
    "Value",
]

MAX_TRANSACTION = 100
"""Actions in one transaction (a limit of DynamoDB that every adapter keeps)."""
MAX_BATCH = 100
"""Keys in one BatchGetItem."""
MAX_LOAD = 25
"""Items in one BatchWriteItem."""


@dataclass(frozen=True, slots=True)
class ItemPage:
    """Some items and where to go on. A page may be empty and still have a `next`; only `next is
    None` is the end."""

    items: Sequence[Item]
    next: str | None
    """Opaque cursor for the next page of the same query or scan."""


class UnprocessedKeysError(ThrottledError):
    """The service answered a batch in part. `found`: the items that came, `left`: the keys to ask
    for again."""

    def __init__(
        self, message: str, *, path: str, found: dict[Key, Item], left: Sequence[Key]
    ) -> None:
        super().__init__(message, path=path)
        self.found = found
        self.left = left


class UnloadedItemsError(ThrottledError):
    """The service took a load in part; `left`: the items that it did not take."""

    def __init__(self, message: str, *, path: str, left: Sequence[Item]) -> None:
        super().__init__(message, path=path)
        self.left = left


class ItemStore(Protocol):
    """Items with conditional writes, transactions and strongly consistent reads.

    Every method may raise ThrottledError, UnreachableError, RequestTimeoutError, ResponseLostError
    (for a write: the outcome is unknown), PermissionDeniedError, CredentialsError,
    VolumeNotFoundError (no such table), ServiceError.
    """

    async def get(self, key: Key) -> Item | None:
        """The item, strongly consistent, or None."""

    async def get_many(self, keys: Sequence[Key]) -> dict[Key, Item]:
        """The items that exist, each read strongly consistent. Not a snapshot.

        Up to MAX_BATCH keys are one request of an adapter; `retrying_items` divides more of them.
        Raises UnprocessedKeysError when the service left some of them out."""

    async def write(self, action: Put | Update | Delete) -> None:
        """Apply one action. Raises ConditionFailedError (position 0, with the stored item),
        TransactionConflictError."""

    async def transact(self, actions: Sequence[Action], token: str) -> None:
        """Apply all actions or none: at most MAX_TRANSACTION, each on its own key (else
        ValueError).

        Sent again with the same actions and `token` (at most 36 characters) within ten minutes, it
        succeeds without being applied twice. Raises ConditionFailedError with every failed
        position, or TransactionConflictError when nothing but conflicts stood in the way."""

    async def load(self, items: Sequence[Item]) -> None:
        """Write whole items over whatever is at their keys: the one unconditional write, for a
        table that no other client uses. `retrying_items`, through which all requests go, refuses it
        without the volume's exclusive lock.

        At most MAX_LOAD items, each with its own key (else ValueError), are one request of an
        adapter; `retrying_items` divides more of them. Not one transaction: after an error some may
        be written and others not, and writing all of them again is the way on. Raises
        UnloadedItemsError when the service left some out."""

    async def query(
        self, partition: str, *, cursor: str | None = None, limit: int | None = None
    ) -> ItemPage:
        """One page of one partition, ascending by the sort key's UTF-8 bytes, strongly
        consistent."""

    async def scan(
        self, segment: int, segments: int, *, cursor: str | None = None, limit: int | None = None
    ) -> ItemPage:
        """One page of one of `segments` disjoint parts that together hold every item. Strongly
        consistent reads, any order. Raises ValueError unless 0 <= segment < segments."""

    async def close(self) -> None:
        """Release what the store holds. Idempotent."""


class ItemTable(Protocol):
    """Administration of the table: creation, tags, deletion."""

    async def create(self) -> bool:
        """Make the table and wait until it can be used; False if it existed. Raises NotAVolumeError
        if an existing table has another key schema."""

    async def exists(self) -> bool:
        """Whether the table exists (with our key schema, else NotAVolumeError)."""

    async def drop(self) -> None:
        """Remove the table and all it holds; absent is fine."""

    async def read_tag(self, name: str) -> str | None:
        """The value of a table tag, or None. Raises UnsupportedError where the engine has no tags,
        PermissionDeniedError where tags may not be read."""

    async def write_tag(self, name: str, value: str) -> None:
        """Set a table tag. Errors as for read_tag."""
