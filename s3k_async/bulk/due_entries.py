"""What is due, by the due index and the entries that it names; nothing is written."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

from s3k_async.bulk.rule_changes import rule_index
from s3k_async.lifecycle_rules import DueAction, DueTime, RuleSet
from s3k_async.model import ROOT, Entry
from s3k_async.namespace.due_index import SETTLE_MS, STALE_MS
from s3k_async.namespace.due_items import (
    HOUR_MS,
    SUFFIXES,
    DueItem,
    RequestedScan,
    due_partition,
)
from s3k_async.namespace.ordered_walk import walk
from s3k_async.volumes.volume import Volume

__all__ = [
    "EARLIER_HOURS",
    "FoundEntry",
    "due_actions",
    "files_below",
    "find_entries",
    "hours_to_read",
]

EARLIER_HOURS: Final = 2
"""Hours before the present one that each run looks at: clients whose clocks are behind write items
into them."""
AHEAD_HOURS: Final = 24
"""How far the clock of the client that created the volume may have been ahead: other clients write
items into hours before the creation."""


@dataclass(frozen=True, slots=True)
class FoundEntry:
    """An item of the due index with the entry that it is about."""

    item: DueItem
    entry: Entry | None
    """None if there is none, or none that any path leads to."""
    is_lost: bool = False
    """Whether the entry is not at the path in the item: in layout `tree`, a directory above it was
    moved, or is in the trash."""

    def due_at(self, rules: RuleSet, now_ms: int) -> DueTime | None:
        """What is due on the entry. Rules of directories do not apply to one whose path is not
        known: a scan was requested if it was moved to where they do."""
        if self.entry is None:
            return None
        return (RuleSet() if self.is_lost else rules).due_at(self.entry, now_ms)

    def action(self, rules: RuleSet, now_ms: int) -> DueAction | None:
        """`due_at`, with the path of the entry, or the last one that is known."""
        due = self.due_at(rules, now_ms)
        if due is None or self.entry is None:
            return None
        path = self.item.path if self.is_lost else self.entry.path
        return DueAction(path, due.action, due.time_ms)

    def next_due(self, rules: RuleSet) -> DueTime | None:
        """As `due_at`, whether or not the time has come."""
        if self.entry is None:
            return None
        return (RuleSet() if self.is_lost else rules).next_due(self.entry)

    @property
    def known_entry(self) -> Entry | None:
        """The entry, with the last path that is known."""
        if self.entry is None or not self.is_lost:
            return self.entry
        return replace(self.entry, path=self.item.path)

    def is_settled(self, now_ms: int) -> bool:
        """Whether the change that the item was written for is over."""
        entry, item = self.entry, self.item
        if now_ms - item.time_ms >= STALE_MS:
            return True
        return entry is not None and entry.id == item.id and entry.version >= item.version


async def due_actions(volume: Volume) -> AsyncGenerator[list[DueAction], None]:
    """What a run would do now, in pages; nothing is written. A file that several items of the index
    are about is in them once, but for one below a directory that was moved and is still to be
    scanned for a rule: its former path may be listed, too."""
    index, runtime = rule_index(volume, ROOT), volume.store.runtime
    volume.store.access.require_superuser("look at what is due", ROOT)
    requests = [RequestedScan.from_item(item) for item in await index.requested_scans()]
    rules = await index.rules.newest()
    scanned: list[str] = []
    for request in sorted(requests, key=lambda each: each.path):
        if request.is_due(runtime.now_ms(), SETTLE_MS) and not is_below(request.path, scanned):
            async with aclosing(files_below(volume, request.path)) as pages:
                async for entries in pages:
                    if request.path not in scanned:  # none if no directory is there
                        scanned.append(request.path)
                    due = ((entry, rules.due_at(entry, runtime.now_ms())) for entry in entries)
                    yield [
                        DueAction(entry.path, each.action, each.time_ms)
                        for entry, each in due
                        if each is not None
                    ]
    hours = hours_to_read(volume, await index.first_hour(), runtime.now_ms())
    for number in range(SUFFIXES):
        # Each change of when something is due adds an item, and the older ones stay until a run.
        # The version in an item cannot tell which one is valid: a change that leaves the time as it
        # is adds none. All items of an entry are in partitions of one number.
        listed: set[str] = set()
        lost: dict[str, DueAction] = {}
        for hour in hours:
            async with aclosing(index.due_pages(due_partition(hour, number))) as found:
                async for items in found:
                    looked_at = await find_entries(volume, list(map(DueItem.from_item, items)))
                    actions: list[DueAction] = []
                    for each in looked_at:
                        # Those below a directory that was listed above are known.
                        if not each.is_lost and is_below(each.item.path, scanned):
                            continue
                        key, action = each.item.entry_key, each.action(rules, runtime.now_ms())
                        if action is None or key in listed:
                            continue
                        if each.is_lost:
                            lost.setdefault(key, action)
                        else:
                            listed.add(key)
                            actions.append(action)
                    yield actions
        # An entry's former path is shown only if no item has its present one.
        yield [action for key, action in lost.items() if key not in listed]


def hours_to_read(volume: Volume, first: int | None, now_ms: int) -> range:
    """The hours that may have due items, oldest first. `first`: the oldest, if it is stored."""
    present = now_ms // HOUR_MS
    oldest = volume.record.created_ms // HOUR_MS - AHEAD_HOURS if first is None else first
    return range(min(oldest, present - EARLIER_HOURS), present + 1)


def is_below(path: str, directories: Sequence[str]) -> bool:
    """Whether a path is one of some directories or below one."""
    return any(each in (ROOT, path) or path.startswith(f"{each}/") for each in directories)


async def files_below(volume: Volume, path: str) -> AsyncGenerator[Sequence[Entry], None]:
    """The entries below a directory in pages, one page at least, as they are found; no pages if it
    does not exist. Files that come meanwhile are put into the index by their writers."""
    store = volume.store
    top = await store.get(path)
    if top is None or not top.is_dir:
        return
    yield []
    async with aclosing(walk(store, store.keys.directory(top))) as pages:
        async for page in pages:
            yield list(page.files())


async def find_entries(volume: Volume, items: Sequence[DueItem]) -> list[FoundEntry]:
    """The entries of some items, in their order, in as few requests as possible."""
    store = volume.store
    at_path = await store.get_many([each.path for each in items]) if items else []
    found = [
        FoundEntry(item, entry if entry is not None and entry.entry_key == item.entry_key else None)
        for item, entry in zip(items, at_path, strict=True)
    ]
    if not store.keys.by_id:
        return found
    lost = [
        place
        for place, each in enumerate(found)
        if each.entry is None and store.keys.is_current(each.item.entry_key)
    ]
    stored = await store.stored_many([found[place].item.entry_key for place in lost])
    for place, entry in zip(lost, stored, strict=True):
        if entry is not None and not entry.pending:
            found[place] = replace(found[place], entry=entry, is_lost=True)
    return found
