"""The port to the metadata table: items by (partition key, sort key), every write conditional but
`load`.

An adapter sends one request for each call, maps library errors to those of `errors.py` and does not
retry: `retrying_items` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

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
from s3k_async.errors import (
    ConditionFailedError,
    OutcomeUnknownError,
    S3kError,
    ThrottledError,
)
from s3k_async.storage_space import StorageSpace

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
    "Keyed",
    "ProvisionedTable",
    "Put",
    "UnloadedItemsError",
    "UnprocessedKeysError",
    "Update",
    "Value",
    "refusal_of",
    "throttled_partitions",
]

Keyed: TypeAlias = str | Key | Sequence[Key | Action | Item]
"""What a request concerns: a partition, a key, or several keys, actions or items."""

MAX_TRANSACTION = 100
"""Actions in one transaction (a limit of DynamoDB that every adapter keeps)."""
MAX_BATCH = 100
"""Keys in one BatchGetItem."""
MAX_LOAD = 25
"""Items in one BatchWriteItem."""


@dataclass(frozen=True, slots=True)
class ItemPage:
    """A page of items and the cursor of the next page. An empty page may have a `next`; only `next
    is None` means the end."""

    items: Sequence[Item]
    next: str | None
    """Opaque cursor for the next page of the same query or scan."""


class UnprocessedKeysError(ThrottledError):
    """The service processed a batch read in part. `found`: the items received, `left`: the keys to
    request again."""

    def __init__(
        self, message: str, *, path: str, found: dict[Key, Item], left: Sequence[Key]
    ) -> None:
        super().__init__(message, path=path)
        self.found = found
        self.left = left


class UnloadedItemsError(ThrottledError):
    """The service processed a load in part; `left`: the items not written."""

    def __init__(self, message: str, *, path: str, left: Sequence[Item]) -> None:
        super().__init__(message, path=path)
        self.left = left


def refusal_of(error: S3kError) -> ConditionFailedError | None:
    """The failed conditions of a write; of one with an unknown outcome those of its repetition
    after a lost answer. None if it failed otherwise."""
    failure = error.__cause__ if isinstance(error, OutcomeUnknownError) else error
    return failure if isinstance(failure, ConditionFailedError) else None


def throttled_partitions(keys: Keyed, error: BaseException | None) -> tuple[str, ...]:
    """The partitions of a throttled request, each once: those that the error names, else all."""
    if isinstance(keys, str):
        return (keys,)
    if isinstance(keys, Key):
        return (keys.partition,)
    if isinstance(error, UnprocessedKeysError | UnloadedItemsError):
        keys = error.left
    elif isinstance(error, ThrottledError) and error.positions:
        keys = [keys[position] for position in error.positions if position < len(keys)]
    return tuple(dict.fromkeys(map(_partition, keys)))


def _partition(keyed: Key | Action | Item) -> str:
    if isinstance(keyed, Key):
        return keyed.partition
    if isinstance(keyed, Put | Update | Delete | Check):
        return keyed.key.partition
    return str(keyed[PARTITION])


class ItemStore(Protocol):
    """Store of items: conditional writes, transactions, strongly consistent reads.

    Every method may raise ThrottledError, UnreachableError, RequestTimeoutError, ResponseLostError
    (for a write: the outcome is unknown), PermissionDeniedError, CredentialsError,
    VolumeNotFoundError (no such table), ServiceError.
    """

    async def get(self, key: Key) -> Item | None:
        """The item, strongly consistent, or None."""

    async def get_many(self, keys: Sequence[Key]) -> dict[Key, Item]:
        """The items that exist, each read strongly consistent.

        Up to MAX_BATCH keys are one request of an adapter; `retrying_items` splits longer lists.
        The items of one request are a snapshot if the location's capabilities have
        `snapshot_reads`; otherwise each is read at a moment of its own.
        Raises UnprocessedKeysError if the service did not process some of them.
        """

    async def write(self, action: Put | Update | Delete) -> None:
        """Apply one action. Raises ConditionFailedError (position 0, with the stored item),
        TransactionConflictError."""

    async def transact(self, actions: Sequence[Action], token: str) -> None:
        """Apply all actions or none: at most MAX_TRANSACTION, each on its own key (else
        ValueError).

        Repeated with the same actions and `token` (at most 36 characters) within ten minutes, it
        succeeds and is applied once. Raises ConditionFailedError with every failed position, or
        TransactionConflictError if conflicts are the only reason.
        """

    async def load(self, items: Sequence[Item]) -> None:
        """Write whole items unconditionally, for a table without other clients. `retrying_items`,
        through which all requests go, refuses it without the volume's exclusive lock.

        At most MAX_LOAD items, each with its own key (else ValueError), are one request of an
        adapter; `retrying_items` splits longer lists. Not one transaction: after an error some
        items may be written and others not; the remedy is to write all of them again. Raises
        UnloadedItemsError if the service did not write some.
        """

    async def query(
        self,
        partition: str,
        *,
        cursor: str | None = None,
        after: str = "",
        limit: int | None = None,
    ) -> ItemPage:
        """One page of one partition, ascending by the sort key's UTF-8 bytes, strongly consistent.

        `after`: only items whose sort key follows this text, which no item need have; together with
        a `cursor` it does not count, since the cursor follows it.
        """

    async def scan(
        self, segment: int, segments: int, *, cursor: str | None = None, limit: int | None = None
    ) -> ItemPage:
        """One page of one of `segments` disjoint segments that together hold every item. Strongly
        consistent reads, in any order. Raises ValueError unless 0 <= segment < segments."""

    async def close(self) -> None:
        """Release connections and threads. Idempotent."""


@runtime_checkable
class ProvisionedTable(Protocol):
    """A table with capacity units: optional for an ItemTable."""

    async def exists(self) -> bool:
        """As `ItemTable.exists`."""

    async def set_capacity(self, read_units: int | None, write_units: int | None) -> bool:
        """Set the capacity, units per second, or without units to on demand, and wait until the
        table has it; False if it had it. Raises ConfigError for invalid units."""


class ItemTable(Protocol):
    """Administration of the table: creation, tags, deletion."""

    async def create(self) -> bool:
        """Create the table and wait until it can be used; False if it existed. Raises
        NotAVolumeError if an existing table has another key schema."""

    async def exists(self) -> bool:
        """Whether the table exists (with the volume's key schema, else NotAVolumeError)."""

    async def space(self) -> StorageSpace:
        """The storage that holds the table; None for what the service does not report."""

    async def drop(self) -> None:
        """Remove the table and its items; absent is fine."""

    async def read_tag(self, name: str) -> str | None:
        """The value of a table tag, or None. Raises UnsupportedError where the engine has no tags,
        PermissionDeniedError where tags may not be read."""

    async def write_tag(self, name: str, value: str) -> None:
        """Set a table tag. Errors as for read_tag."""
