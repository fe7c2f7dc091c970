"""Maintained counters of buckets, in volumes with the feature `counters`.

| item | partition key | sort key | attributes |
|---|---|---|---|
| counter | `s3k:counters/<bucket>` | `#` | `objects`, `bytes`, `op` |
| journal item | `s3k:counters/<bucket>` | a random id | `objects`, `bytes`, `op` |
| mark | `s3k:counters` | `stale` | `op` |

A journal item says what one transaction of the table changes in the total of a bucket. It is
written in that transaction, so it exists if and only if the change was made, and no two writers
meet in an item. The total of a bucket is the sum of its counter and its journal. Folding is one
transaction that deletes journal items and adds their sum to the counter: a client folds its own
when it has enough of them, and when it closes; a reader folds what others have left.

The mark says that entries were changed without being counted: then a bucket is listed, until
`s3k migrate --enable counters` counts all of them again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from s3k_async._core.active_calls import optional
from s3k_async._core.runtime import Runtime
from s3k_async.backends.ports.items import (
    ABSENT,
    MAX_TRANSACTION,
    OPERATION,
    PARTITION,
    SORT,
    Action,
    Condition,
    Delete,
    Item,
    ItemStore,
    Key,
    Put,
    Update,
    Value,
)
from s3k_async.backends.ports.pagination import query_all
from s3k_async.errors import (
    ConditionFailedError,
    ItemFormatError,
    S3kError,
    TransactionConflictError,
)
from s3k_async.oplog.segments import Operations
from s3k_async.txn.bucket_totals import BucketTotal, TotalChanges, refuse_moves

__all__ = ["FOLDED", "BucketCounters", "counter_put", "is_counter_partition", "stale_mark"]

_LOG = logging.getLogger(__name__)

FOLDED: Final = MAX_TRANSACTION - 1
"""Journal items that one transaction folds, beside the counter."""
ATTEMPTS: Final = 16
"""How often a folding is tried that meets others, and a reading."""
PAUSE: Final = 0.05
"""Seconds before the next attempt at a folding that conflicts, at most."""

_PARTITION: Final = "s3k:counters"
_PREFIX: Final = f"{_PARTITION}/"
_COUNTER: Final = "#"
"""The sort key of a counter, before those of all journal items."""
_STALE: Final = Key(_PARTITION, "stale")
_OBJECTS: Final = "objects"
_BYTES: Final = "bytes"


class BucketCounters:
    """The counters of one volume, and the journal items of one client that are not folded yet."""

    def __init__(self, items: ItemStore, runtime: Runtime) -> None:
        self._items = items
        self._runtime = runtime
        self._journal: dict[str, dict[str, BucketTotal]] = {}
        self._seen: dict[str, Item | None] = {}
        """The counters as this client has written them last; others may have changed them."""
        self._is_stale = False

    # Writers

    async def changes(self, operations: Operations, counted_at: str = "") -> TotalChanges:
        """What operations that are about to be logged change in the totals; `counted_at` as for
        `TotalChanges`. If that is not known for all of them, the mark is set. Raises
        UnsupportedError for a directory that is moved to another bucket, and the table's errors."""
        refuse_moves(operations)
        changes = TotalChanges(operations, counted_at)
        if not changes.is_complete:
            await self.mark_stale()
        return changes

    def journal(self, totals: Mapping[str, BucketTotal]) -> list[Put]:
        """The journal items of a transaction that changes the totals of some buckets."""
        return [
            Put(_item(bucket, self._runtime.uuid(), change, self._runtime.uuid()), ABSENT)
            for bucket, change in totals.items()
        ]

    def written(self, journal: Iterable[Put]) -> None:
        """Note journal items that were written, to be folded by this client."""
        for put in journal:
            bucket = put.key.partition.removeprefix(_PREFIX)
            self._journal.setdefault(bucket, {})[put.key.sort] = _total(put.item)

    async def fold_full(self) -> None:
        """Fold the journal items of buckets that have enough of them for one transaction. A failure
        is only logged."""
        for bucket in [each for each, held in self._journal.items() if len(held) >= FOLDED]:
            await self._fold_own(bucket)

    async def close(self) -> None:
        """Fold the journal items that are left. A failure is only logged: readers do the rest."""
        for bucket in list(self._journal):
            while self._journal.get(bucket):
                await self._fold_own(bucket)

    async def mark_stale(self) -> None:
        """Note that entries are about to be changed without being counted. Raises the errors of
        the table."""
        if self._is_stale:
            return
        with suppress(ConditionFailedError):
            await self._items.write(stale_mark(self._runtime.uuid()))
        self._is_stale = True

    # Readers

    async def total(self, bucket: str) -> BucketTotal | None:
        """The total of a bucket; None if it has to be counted. What changes meanwhile may be in it
        or not, each transaction as a whole. Raises the errors of the table."""
        counter_key = Key(_PREFIX + bucket, _COUNTER)
        for _ in range(ATTEMPTS):
            found: list[Item] = []
            async for page in query_all(self._items, counter_key.partition):
                found += page
            # A folding between the pages changes the counter, which is read again after them.
            after = await self._items.get_many([counter_key, _STALE])
            if _STALE in after:
                return None
            first = found[0] if found and found[0][SORT] == _COUNTER else None
            if _version(first) != _version(after.get(counter_key)):
                continue
            try:
                totals = {str(item[SORT]): _total(item) for item in found}
            except ItemFormatError:
                return None
            left = {sort: total for sort, total in totals.items() if sort != _COUNTER}
            if len(left) > FOLDED:
                self._seen[bucket] = first
                await self._fold(bucket, dict(list(left.items())[:FOLDED]))
            return sum(totals.values(), BucketTotal())
        return None

    # Folding

    async def _fold_own(self, bucket: str) -> None:
        held = self._journal[bucket]
        some = {sort: held.pop(sort) for sort in list(held)[:FOLDED]}
        if not held:
            del self._journal[bucket]
        await self._fold(bucket, some)

    async def _fold(self, bucket: str, journal: dict[str, BucketTotal]) -> None:
        try:
            with optional():
                await self._move_to_counter(bucket, journal)
        except S3kError as error:
            _LOG.warning("the counter of bucket %s is left to others: %s", bucket, error)

    async def _move_to_counter(self, bucket: str, journal: dict[str, BucketTotal]) -> None:
        """Delete journal items, those that another client has not folded, and add them to the
        counter. After many conflicts they are left to others."""
        partition, runtime = _PREFIX + bucket, self._runtime
        for _ in range(ATTEMPTS):
            if not journal:
                return
            sorts, counter = list(journal), self._seen.get(bucket)
            before = BucketTotal() if counter is None else _total(counter)
            after = sum(journal.values(), before)
            changed = _item(bucket, _COUNTER, after, runtime.uuid())
            actions: list[Action] = [Delete(Key(partition, sort), Condition()) for sort in sorts]
            actions.append(_counter_write(changed, counter))
            try:
                await self._items.transact(actions, runtime.uuid())
            except ConditionFailedError as error:
                for place, item in error.current.items():
                    if place < len(sorts):
                        journal.pop(sorts[place], None)
                    else:
                        self._seen[bucket] = item
            except TransactionConflictError:
                await runtime.sleep(runtime.uniform(0, PAUSE))
            else:
                self._seen[bucket] = changed
                return


def counter_put(bucket: str, total: BucketTotal, operation: str) -> Put:
    """The write of a counter that does not exist, of a bucket without a journal."""
    return Put(_item(bucket, _COUNTER, total, operation), ABSENT)


def stale_mark(operation: str) -> Put:
    """The write of the mark, unless it is there."""
    return Put({PARTITION: _STALE.partition, SORT: _STALE.sort, OPERATION: operation}, ABSENT)


def is_counter_partition(partition: str) -> bool:
    """Whether a partition holds counters, journal items, or the mark."""
    return partition == _PARTITION or partition.startswith(_PREFIX)


def _item(bucket: str, sort: str, total: BucketTotal, operation: str) -> Item:
    return {
        PARTITION: _PREFIX + bucket,
        SORT: sort,
        _OBJECTS: total.objects,
        _BYTES: total.size,
        OPERATION: operation,
    }


def _counter_write(changed: Item, counter: Item | None) -> Action:
    """The write of a counter, on the condition that it is as it was read."""
    if counter is None:
        return Put(changed, ABSENT)
    key = Key(str(changed[PARTITION]), str(changed[SORT]))
    fresh: dict[str, Value] = {name: changed[name] for name in (_OBJECTS, _BYTES, OPERATION)}
    return Update(key, Condition(equals={OPERATION: counter[OPERATION]}), set=fresh)


def _version(counter: Item | None) -> Value | None:
    """What changes with each write of a counter."""
    return None if counter is None else counter.get(OPERATION)


def _total(item: Item) -> BucketTotal:
    """The total in an item. Raises ItemFormatError."""
    objects, size, operation = item.get(_OBJECTS), item.get(_BYTES), item.get(OPERATION)
    if type(objects) is not int or type(size) is not int or not isinstance(operation, str):
        raise ItemFormatError(
            "a damaged counter (s3k migrate --enable counters counts the buckets again)",
            path=f"{item[PARTITION]}/{item[SORT]}",
        )
    return BucketTotal(objects, size)
