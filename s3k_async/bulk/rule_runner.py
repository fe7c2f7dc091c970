"""Runs of the lifecycle rules: what is due is found by the due index, without a scan of the table.

Any number of runs may be made at the same time. Each action is one change on the condition that the
file is as it was read, so one of several runs makes it. Then its item is removed, on the condition
that no writer has written it again.

An item whose entry is not due is removed if the change that it was written for is over: the entry
is at that version, or later. Otherwise the change may still come, and the entry is looked at again,
each time after as long as the item is old, until it is STALE_MS old.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from s3k_async._core.concurrency import run_all
from s3k_async._core.pace import Pace
from s3k_async._core.runtime import Runtime
from s3k_async.backends.ports.items import SORT, Item
from s3k_async.bulk.due_entries import (
    EARLIER_HOURS,
    FoundEntry,
    files_below,
    find_entries,
    hours_to_read,
)
from s3k_async.bulk.rule_changes import rule_index
from s3k_async.errors import (
    BusyError,
    ConflictError,
    ItemFormatError,
    PathNotFoundError,
    PermissionDeniedError,
    S3kError,
)
from s3k_async.lifecycle_rules import DueTime, RuleSet, RulesResult
from s3k_async.model import ROOT, ChangeTally, Entry, Progress
from s3k_async.namespace.attribute_changes import make_read_only
from s3k_async.namespace.due_index import SETTLE_MS, STALE_MS, DueIndex
from s3k_async.namespace.due_items import (
    HOUR_MS,
    SUFFIXES,
    DueItem,
    RequestedScan,
    due_partition,
)
from s3k_async.volumes.volume import Volume

__all__ = ["run_rules"]

PARTITIONS: Final = 16
"""Partitions that are worked on at the same time."""
CHANGES: Final = 16
"""Files of a page that are changed at the same time."""
FRESH_SECONDS: Final = 5.0
"""How long after it was read an entry is changed without being read again."""
FIRST_WAIT_MS: Final = 60_000
"""After which at the earliest an entry is looked at again."""
AHEAD_MS: Final = 60_000
"""How far the clock of this machine may be ahead of that of the data store, whose time is in whole
seconds and arrives with a delay."""

Outcome: TypeAlias = Literal["done", "stale", "later", "kept"]
"""What becomes of the item of an entry: it is removed, since the action was made or none will come;
it was put to a later time; it is left for the next run."""


@dataclass(frozen=True, slots=True)
class _RunnerClock:
    """The time by which rules are evaluated: that of this machine, but not ahead of the data store.

    A machine whose clock is ahead would apply actions too early, regard pending changes as ended,
    and make other runs skip the hours up to its own."""

    runtime: Runtime
    store_ms: int
    """The time of the data store at the start; that of this machine if reading it is denied."""

    @classmethod
    async def of(cls, volume: Volume) -> _RunnerClock:
        """Read the time of the data store. Raises the store's errors."""
        own, since = volume.store.runtime, volume.store.runtime.monotonic()
        try:
            store_ms = await volume.blobs.now_ms()
        except PermissionDeniedError:  # HeadBucket needs a permission that writers may lack
            return cls(own, own.now_ms())

        def now_ms() -> int:
            passed_ms = int((own.monotonic() - since) * 1000)
            return min(own.now_ms(), store_ms + passed_ms + AHEAD_MS)

        return cls(replace(own, now_ms=now_ms), store_ms)


@dataclass
class _Run:
    """One run. `pace`: the limit of actions."""

    volume: Volume
    index: DueIndex
    clock: _RunnerClock
    pace: Pace
    progress: Callable[[Progress], object] = lambda _: None
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("expire", "read_only", "stale", "scanned"), 0)
    )
    tally: ChangeTally = field(default_factory=ChangeTally)
    left: set[int] = field(default_factory=set)
    """Hours of which items are left."""

    def __post_init__(self) -> None:
        self.store = self.volume.store
        self.runtime = self.clock.runtime

    def result(self) -> RulesResult:
        """The result so far."""
        return RulesResult(
            expired=self.counts["expire"],
            read_only=self.counts["read_only"],
            stale=self.counts["stale"],
            scanned=self.counts["scanned"],
            failures=tuple(self.tally.failures),
            unlisted=self.tally.unlisted,
        )

    # Scans

    async def first_hour(self) -> int | None:
        """The oldest hour that may have items, if it is stored. An hour in the future was stored by
        a run whose clock was ahead, and other runs may have skipped hours since: then a listing of
        the volume is requested."""
        before = await self.index.first_hour()
        present = self.clock.store_ms // HOUR_MS
        if before is None or before <= present:
            return before
        await self.index.rewind(before, present - EARLIER_HOURS)
        return present - EARLIER_HOURS

    async def scan(self) -> None:
        """List the directories for which that is requested, and put their files into the index."""
        requested = await self.index.requested_scans()
        await self.index.rules.newest()  # after the requests, which are written with the rules
        now_ms = self.runtime.now_ms()
        for item in requested:
            try:
                request = RequestedScan.from_item(item)
                if request.is_due(now_ms, SETTLE_MS):
                    await self._scan(request)
            except S3kError as error:
                self.tally.fail(str(item.get("shown", item[SORT])), error)

    async def _scan(self, request: RequestedScan) -> None:
        began_ms = self.runtime.now_ms()
        exists = False
        async with aclosing(files_below(self.volume, request.path)) as pages:
            async for entries in pages:
                exists = True
                await self.index.add_entries(entries)
        self.counts["scanned"] += 1
        # A directory that is not there may still be moved to the path, by a long transaction.
        needed = SETTLE_MS if exists else STALE_MS
        complete = began_ms - request.time_ms >= needed
        await self.index.end_scan(request, began_ms, complete=complete)

    # Due items

    async def run(self, before: int | None) -> None:
        """Process all items up to now. `before`: the result of `first_hour`."""
        now_ms = self.runtime.now_ms()
        hours = hours_to_read(self.volume, before, now_ms)
        places = ((hour, number) for hour in hours for number in range(SUFFIXES))
        await run_all(self._partition, places, limit=PARTITIONS)
        first = min(self.left | {now_ms // HOUR_MS - EARLIER_HOURS})
        if before is None or first > before:
            await self.index.advance(before, first)

    async def _partition(self, place: tuple[int, int]) -> None:
        hour, number = place
        async with aclosing(self.index.due_pages(due_partition(hour, number))) as pages:
            async for items in pages:
                if not await self._page(items):
                    self.left.add(hour)

    async def _page(self, items: Sequence[Item]) -> bool:
        """Look at the entries of some items. Returns whether no item is left for the next run."""
        outcomes: dict[Outcome, list[Item]] = {"done": [], "stale": [], "later": [], "kept": []}
        rules = await self.index.rules.newest()
        since = self.runtime.monotonic()

        async def one(found: FoundEntry) -> None:
            try:
                outcome = await self._one(found, rules, since)
            except (BusyError, ConflictError, PathNotFoundError):
                outcome = "kept"  # another client was faster; the next run decides
            except S3kError as error:
                self.tally.fail(found.item.path, error)
                outcome = "kept"
            outcomes[outcome].append(found.item.item)

        found = await self._entries(items)
        await run_all(one, found, limit=CHANGES)
        await self.index.remove_many(outcomes["done"])
        self.counts["stale"] += await self.index.remove_many(outcomes["stale"])
        done = self.counts["expire"] + self.counts["read_only"]
        self.progress(Progress("rules", done, unit="files"))
        return not outcomes["kept"] and len(found) == len(items)

    async def _entries(self, items: Sequence[Item]) -> list[FoundEntry]:
        """The entries of some items, without those that cannot be read, and failed."""
        try:
            return await find_entries(self.volume, list(map(DueItem.from_item, items)))
        except ItemFormatError as error:
            if len(items) == 1:
                self.tally.fail(str(items[0].get("shown", items[0][SORT])), error)
                return []
        found = []
        for item in items:
            found += await self._entries([item])
        return found

    async def _one(self, found: FoundEntry, rules: RuleSet, since: float) -> Outcome:
        """Look at the entry of an item, and do what is due."""
        entry = found.entry
        if entry is not None and entry.pending:
            found = replace(found, entry=await self.store.resolved(entry))
        due = found.due_at(rules, self.runtime.now_ms())
        if due is None:
            return await self._not_due(found)
        await self.pace.turn()
        if self.runtime.monotonic() - since >= FRESH_SECONDS:
            (found,) = await find_entries(self.volume, [found.item])
            rules = await self.index.rules.newest()
            due = found.due_at(rules, self.runtime.now_ms())
            if due is None:
                return await self._not_due(found)
        assert found.entry is not None
        await self._apply(found.entry, due, anywhere=found.is_lost, known_path=found.item.path)
        return "done"

    async def _apply(self, entry: Entry, due: DueTime, *, anywhere: bool, known_path: str) -> None:
        """Make the change, through the verbs of clients. `anywhere`: the path is not known;
        `known_path`: the last one that was."""
        if anywhere:
            entry = self.store.keys.with_path(entry)
        # A rule applies to a path, and the move of a directory changes no entry below it in layout
        # `tree`: its place is read again right before the change.
        since = None if due.by_metadata else -math.inf
        if due.action == "expire":
            # The retention of a read-only file is over by then.
            await self.store.delete_file(
                entry, anywhere=anywhere, named=False, since=since, counted_at=known_path
            )
        else:
            await make_read_only(self.store, entry, anywhere=anywhere, since=since)
        self.counts[due.action] += 1

    async def _not_due(self, found: FoundEntry) -> Outcome:
        item, now_ms = found.item, self.runtime.now_ms()
        # Entry keys of the former layout get no writes.
        if self.store.keys.is_current(item.entry_key) and not found.is_settled(now_ms):
            await self.index.postpone(item, now_ms + max(FIRST_WAIT_MS, now_ms - item.time_ms))
            return "later"
        if found.entry is not None:  # something may be due later
            rules = await self.index.rules.current()
            await self.index.add(found.known_entry, found.next_due(rules))
        return "stale"


async def run_rules(
    volume: Volume,
    *,
    rate: float | None = None,
    progress: Callable[[Progress], object] | None = None,
) -> RulesResult:
    """Delete the files that have expired, and make those read-only whose time has come. `rate`:
    actions per second at most. Failures are listed in the result and do not end the run."""
    volume.store.access.require_superuser("run lifecycle rules", ROOT)
    index = rule_index(volume, ROOT)
    clock = await _RunnerClock.of(volume)
    pace = Pace(rate, volume.store.runtime)
    run = _Run(volume, index.by_clock(clock.runtime), clock, pace, progress or (lambda _: None))
    before = await run.first_hour()
    await run.scan()
    await run.run(before)
    return run.result()
