"""The due index: when an action of a lifecycle rule may be due on which file.

An item for the next action on each file, in partitions by hour. It is written in the transaction of
the table that writes the entry, even if the entry takes effect only with the publication of a
transaction record. For entries that are written without being logged, as by a restore, and where
the publication has no room, it is written in advance. So the index may have too much, never too
little: a runner reads the entry of an item and decides by what is due for it at that time.

What no writer can add is found by listing a directory, on request: files that existed before a rule
was set, or were written by clients that did not know the rule yet, and in layout `tree` files below
a directory that was moved, whose entries do not change. A request is an item as well, written with
the rule, or before the directory is moved. A runner lists the directory at once, and again when the
request is older than SETTLE_MS: every write that began before it has ended by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Final, TypeAlias

from s3k_async._core.concurrency import gather, run_all
from s3k_async._core.runtime import Runtime
from s3k_async._native import Operations as NativeOperations
from s3k_async.backends.ports.items import (
    ABSENT,
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
    refusal_of,
)
from s3k_async.backends.ports.pagination import query_all
from s3k_async.errors import (
    ConditionFailedError,
    OutcomeUnknownError,
    TransactionConflictError,
)
from s3k_async.lifecycle_rules import DueTime, LifecycleRule, RuleSet
from s3k_async.model import ROOT, TRASH_ID, Entry, Operation
from s3k_async.namespace.due_items import (
    FIRST_HOUR,
    HOUR,
    HOUR_MS,
    SUFFIXES,
    DueItem,
    RequestedScan,
    due_item,
    due_text,
    hour_from,
    postponed,
    rule_item,
    rule_key,
    same_write,
    scan_item,
    scan_partition,
)
from s3k_async.namespace.rule_cache import RuleCache
from s3k_async.oplog.segments import Operations
from s3k_async.table.keys import BY_ID

__all__ = ["SETTLE_MS", "STALE_MS", "DueIndex", "DueItems", "begin_index"]

SETTLE_MS: Final = 3_600_000
"""The age of a request at which the writes that it has to find have ended: those of clients that
had read the rules before, and the longest change."""
STALE_MS: Final = 86_400_000
"""How long an item is kept whose entry is not there: far longer than any change takes."""
PAGE: Final = 100
"""Items whose entries are read at the same time: one request."""
WRITES: Final = 32
"""Items that are written at the same time."""

_Wanted: TypeAlias = tuple[Entry, DueTime]
"""An entry as it will be, and its next action."""


class DueItems:
    """The due items of operations, for the transactions of the table that apply them: the
    `IndexItems` of lifecycle rules."""

    def __init__(self, wanted: Mapping[str, Sequence[_Wanted]], runtime: Runtime) -> None:
        """`wanted`: by operation id; those of one id are applied together."""
        self._wanted = wanted
        self._runtime = runtime
        self._stored: dict[Key, Item | None] = {}

    def count(self, identities: Iterable[str] | None = None) -> int:
        return sum(len(self._wanted.get(each, ())) for each in self._chosen(identities))

    def puts(self, identities: Iterable[str] | None = None) -> list[Put]:
        now_ms, runtime = self._runtime.now_ms(), self._runtime
        wanted = (one for each in self._chosen(identities) for one in self._wanted.get(each, ()))
        items = [due_item(entry, due.time_ms, now_ms, runtime.uuid()) for entry, due in wanted]
        # Two operations may write one key; a transaction has one action for each.
        by_key = {_key_of(item): item for item in items}
        return [Put(item, _replacing(self._stored.get(key))) for key, item in by_key.items()]

    def note_stored(self, put: Put, item: Item | None) -> None:
        self._stored[put.key] = item

    def _chosen(self, identities: Iterable[str] | None) -> Iterable[str]:
        return self._wanted if identities is None else dict.fromkeys(identities)


class DueIndex:
    """The due index of one volume."""

    def __init__(
        self, items: ItemStore, runtime: Runtime, *, rules: RuleCache | None = None
    ) -> None:
        self._items = items
        self._runtime = runtime
        self.rules = RuleCache(items, runtime) if rules is None else rules

    def by_clock(self, runtime: Runtime) -> DueIndex:
        """The same index with another clock."""
        return DueIndex(self._items, runtime, rules=self.rules)

    # Writers

    async def items_of(self, operations: Operations) -> DueItems | None:
        """The items for the states of files after operations that are about to be applied, to be
        written in the transactions of the table that apply them; None if there are none. Requests
        scans of moved directories."""
        wanted, moved = _wanted(operations, await self.rules.current())
        await self._request_scans(moved)
        return DueItems(wanted, self._runtime) if wanted else None

    async def size_of(self, operations: Operations) -> int:
        """The number of items that `items_of` would return."""
        wanted, _ = _wanted(operations, await self.rules.current())
        return sum(map(len, wanted.values()))

    async def add_entries(self, entries: Iterable[Entry]) -> None:
        """Add files that are about to be written without being logged, as by a restore, or that a
        listing has found."""
        rules = await self.rules.current()
        wanted = []
        for entry in entries:
            due = rules.next_due(entry)
            if due is not None:
                wanted.append((entry, due))
            elif not entry.is_dir and not _is_known(entry.path):
                await self._request_scans(sorted(rules.rules))
        await self._add_all(wanted)

    async def add(self, entry: Entry | None, due: DueTime | None) -> None:
        """Add what is due on an entry, if anything is."""
        if entry is not None and due is not None:
            await self._add((entry, due))

    async def add_subtree(self, top: Entry) -> None:
        """As `add_entries`, for an entry that is put back together with what is below it."""
        rules = await self.rules.current()
        if not top.is_dir or not rules.relates_to(top.path):
            await self.add_entries([top])
        else:
            await self._request_scans([top.path])

    async def set_rule(self, rule: LifecycleRule) -> None:
        """Set a rule, in place of one of the same directory and name prefix."""
        await self._change_rule(rule.path, rule.name_prefix, rule)

    async def remove_rule(self, path: str, name_prefix: str) -> bool:
        """Remove the rule of a directory, or of names in it. False: there was none."""
        return await self._change_rule(path, name_prefix, None)

    # Runners

    async def due_pages(self, partition: str) -> AsyncGenerator[Sequence[Item], None]:
        """The items of a partition whose time has come, in its order, in pages."""
        async with aclosing(query_all(self._items, partition, limit=PAGE)) as pages:
            async for page in pages:
                bound = due_text(self._runtime.now_ms() + 1)
                due = [item for item in page if str(item[SORT]) < bound]
                if due:
                    yield due
                if len(due) < len(page):
                    return

    async def remove(self, item: Item) -> bool:
        """Remove an item of these partitions; False if it was written again since it was read."""
        try:
            await self._items.write(Delete(_key_of(item), same_write(item)))
        except ConditionFailedError as error:
            return error.current.get(0) is None
        return True

    async def remove_many(self, items: Sequence[Item]) -> int:
        """`remove` for the items of a page, in one request unless some were written again. Returns
        how many are gone."""
        if len(items) > 1:
            actions = [Delete(_key_of(item), same_write(item)) for item in items]
            try:
                await self._items.transact(actions, self._runtime.uuid())
            except (ConditionFailedError, TransactionConflictError):
                pass  # one by one
            else:
                return len(items)
        return sum(await gather(self.remove, items, limit=WRITES))

    async def postpone(self, found: DueItem, due_ms: int) -> None:
        """Have the entry of an item looked at again at a later time. Of several runners, one puts
        the item there."""
        later = postponed(found, due_ms, self._runtime.uuid())
        actions: list[Action] = [Delete(found.key, same_write(found.item)), Put(later, ABSENT)]
        try:
            await self._items.transact(actions, self._runtime.uuid())
        except ConditionFailedError as error:
            if 0 not in error.current:  # another item of the entry is there
                await self.remove(found.item)
        except TransactionConflictError:
            return  # another runner does it

    async def requested_scans(self) -> list[Item]:
        """The items of all requests, in no order."""
        found: list[Item] = []

        async def read(number: int) -> None:
            async for page in query_all(self._items, scan_partition(number)):
                found.extend(page)

        await run_all(read, range(SUFFIXES), limit=SUFFIXES)
        return found

    async def end_scan(self, found: RequestedScan, began_ms: int, *, complete: bool) -> None:
        """Note that a directory was listed; `complete`: nothing that the request is about can come
        any more, so that it is removed."""
        if complete:
            await self.remove(found.item)
            return
        try:
            await self._items.write(
                Update(found.key, same_write(found.item), {"scanned": began_ms})
            )
        except ConditionFailedError:
            return  # requested again, or removed by another runner

    async def first_hour(self) -> int | None:
        """The oldest hour that may have items; None if no runner has stored it yet."""
        item = await self._items.get(FIRST_HOUR)
        return None if item is None else hour_from(item)

    async def advance(self, before: int | None, hour: int) -> None:
        """Store the oldest hour that may have items, unless another runner did."""
        item: Item = {PARTITION: FIRST_HOUR.partition, SORT: FIRST_HOUR.sort, HOUR: hour}
        condition = ABSENT if before is None else Condition(equals={HOUR: before})
        try:
            await self._items.write(Put(item, condition))
        except ConditionFailedError:
            return
        except OutcomeUnknownError:
            # The answer was lost: either this write or that of another runner is there, or neither.
            if await self.first_hour() == before:
                raise

    async def rewind(self, before: int, hour: int) -> None:
        """Set the oldest hour back, after requesting a scan of the whole volume for the files of
        skipped hours."""
        await self._request_scans([ROOT])
        await self.advance(before, hour)

    # Internal

    async def _change_rule(self, path: str, name_prefix: str, rule: LifecycleRule | None) -> bool:
        """Set a rule, or remove it, and request a scan of the directory, since other rules may
        apply from then on. False: there was none to remove. Concurrent calls take effect one after
        the other."""
        while True:
            request = scan_item(path, self._runtime.now_ms(), self._runtime.uuid())
            key, request_key = rule_key(path, name_prefix), _key_of(request)
            found = await self._items.get_many([key, request_key])
            there = found.get(key)
            if there is None and rule is None:
                return False
            actions: list[Action] = [Put(request, _replacing(found.get(request_key)))]
            if rule is not None:
                actions.append(Put(rule_item(rule, self._runtime.uuid()), _replacing(there)))
            elif there is not None:
                actions.append(Delete(key, same_write(there)))
            try:
                await self._items.transact(actions, self._runtime.uuid())
            except (ConditionFailedError, TransactionConflictError):
                await asyncio.sleep(0)
            else:
                return True
            finally:
                self.rules.forget()

    async def _request_scans(self, paths: Iterable[str]) -> None:
        now_ms = self._runtime.now_ms()

        async def request(path: str) -> None:
            await self._put(scan_item(path, now_ms, self._runtime.uuid()))

        await run_all(request, paths, limit=WRITES)

    async def _add_all(self, wanted: Iterable[_Wanted]) -> None:
        await run_all(self._add, wanted, limit=WRITES)

    async def _add(self, wanted: _Wanted) -> None:
        entry, due = wanted
        now_ms = self._runtime.now_ms()
        await self._put(due_item(entry, due.time_ms, now_ms, self._runtime.uuid()))

    async def _put(self, item: Item) -> None:
        """Write an item. One that is there is replaced on the condition of being unchanged, so that
        a runner that has read it keeps the new one. A write with an unknown outcome is refused by
        the item of another one, too, and is repeated: an index may have too much."""
        condition = ABSENT
        while True:
            try:
                await self._items.write(Put(item, condition))
            except (ConditionFailedError, OutcomeUnknownError) as error:
                refusal = refusal_of(error)
                if refusal is None:
                    raise
                condition = _replacing(refusal.current.get(0))
                await asyncio.sleep(0)
            else:
                return


async def begin_index(items: ItemStore, runtime: Runtime) -> None:
    """Begin the due index of a volume that gets the feature now: no runner needs to look at earlier
    hours, and the next one lists the whole volume, for metadata that is there already. Can be
    repeated."""
    now_ms = runtime.now_ms()
    first: Item = {
        PARTITION: FIRST_HOUR.partition,
        SORT: FIRST_HOUR.sort,
        HOUR: now_ms // HOUR_MS,
    }
    for item in (first, scan_item(ROOT, now_ms, runtime.uuid())):
        with suppress(ConditionFailedError):
            await items.write(Put(item, ABSENT))


def _key_of(item: Item) -> Key:
    return Key(str(item[PARTITION]), str(item[SORT]))


def _replacing(there: Item | None) -> Condition:
    return ABSENT if there is None else same_write(there)


def _wanted(operations: Operations, rules: RuleSet) -> tuple[dict[str, list[_Wanted]], list[str]]:
    """The files that need an item after operations, by operation id, and the directories whose
    move requires a scan."""
    wanted: dict[str, list[_Wanted]] = {}
    moved: list[str] = []
    for each in _looked_at(operations, rules):
        after = each.after
        if after is None:
            continue
        if after.is_dir:
            if _moves_tree(each, after) and rules.relates_to(after.path):
                moved.append(after.path)
            continue
        due = rules.next_due(after)
        if due is not None and due != _due_before(each, after, rules):
            wanted.setdefault(each.id, []).append((after, due))
    return wanted, moved


def _looked_at(operations: Operations, rules: RuleSet) -> Iterable[Operation]:
    """The operations that may need an item."""
    if isinstance(operations, Sequence) and not isinstance(operations, NativeOperations):
        return operations
    places = range(len(operations)) if rules else operations.with_metadata()
    return (operations[place] for place in places)


def _due_before(operation: Operation, after: Entry, rules: RuleSet) -> DueTime | None:
    """The next action on the entry before an operation, if its item serves it afterwards, too."""
    before = operation.before
    if before is None or before.entry_key != after.entry_key:
        return None
    return rules.next_due(before)


def _moves_tree(operation: Operation, after: Entry) -> bool:
    """Whether an operation gives a directory of layout `tree` another place in the tree. The
    entries below it do not change."""
    before = operation.before
    if not after.directory or after.directory == TRASH_ID or before is None:
        return False
    return before.entry_key != after.entry_key


def _is_known(path: str) -> bool:
    """Whether this is the path of an entry, and not what is shown instead of it."""
    return path.startswith(ROOT) and not path.startswith(f"{BY_ID}/")
