"""Changes of an entry's attributes and modification time, each one conditional write, logged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from s3k_async.attributes import AttributeChange, Attributes
from s3k_async.backends.ports.items import Put
from s3k_async.errors import (
    ConditionFailedError,
    ConflictError,
    PermissionDeniedError,
    TransactionConflictError,
    UncommittedFileError,
)
from s3k_async.lifecycle_rules import LIFECYCLE_NAMES
from s3k_async.model import ROOT, Entry
from s3k_async.namespace.conflict_backoff import ConflictBackoff
from s3k_async.namespace.store import MetadataStore
from s3k_async.table.codec import to_item, unchanged

__all__ = ["change_attributes", "change_pair", "make_read_only"]


async def change_attributes(
    store: MetadataStore,
    path: str,
    change: AttributeChange,
    *,
    mtime_ms: int | None = None,
    is_timed: bool = True,
) -> Entry:
    """Change attributes of a file or directory, and the modification time if one is given. No new
    version is made if nothing changes. A change that another client makes meanwhile is kept.
    `is_timed`: whether the time of the change is recorded, which takes a volume with attributes.

    Raises PathNotFoundError, InvalidArgumentError, PermissionDeniedError (the root; the time of a
    read-only entry), UncommittedFileError, BusyError.
    """
    if path == ROOT:
        raise PermissionDeniedError("the root has no attributes", path=path)
    race = ConflictBackoff(store)
    while True:
        entry, chain = await store.read_for_update(path)
        if entry.is_reservation:
            raise UncommittedFileError("the file is being written", path=path)
        before = Attributes.from_json(entry.attributes)
        wanted = change.of(before, path)
        time = entry.mtime_ms if mtime_ms is None else mtime_ms
        after = replace(entry, attributes=wanted.to_json(), mtime_ms=time)
        _refuse_retained(store, entry, after.attributes)
        store.access.permit_change(entry, after)
        if time != entry.mtime_ms:
            store.refuse_read_only(entry)
        if (wanted, time) == (before, entry.mtime_ms):
            return entry
        if is_timed:
            wanted = before.changed_to(wanted, store.runtime.now_ms())
        after = _next_version(store, after, wanted)
        try:
            changed = await _write(
                store, entry, after, None if chain is None else chain.since.monotonic
            )
        except ConflictError as error:
            await race.lost(error)
        else:
            store.access.note(path, changed)
            return changed


async def change_pair(
    store: MetadataStore,
    first: str,
    second: str,
    edit: Callable[[Attributes, Attributes], tuple[Attributes, Attributes]],
) -> tuple[Entry, Entry]:
    """Change the attributes of two different entries in one transaction. Raises as
    `change_attributes`."""
    race = ConflictBackoff(store)
    while True:
        since = store.runtime.monotonic()
        one, two = [(await store.read_for_update(path))[0] for path in (first, second)]
        for entry in (one, two):
            if entry.is_reservation:
                raise UncommittedFileError("the file is being written", path=entry.path)
        former = Attributes.from_json(one.attributes), Attributes.from_json(two.attributes)
        changed = edit(*former)
        now = store.runtime.now_ms()
        pair = [
            (
                entry,
                _next_version(store, entry, before.replaced_by(after.checked(entry.path), now)),
            )
            for entry, before, after in zip((one, two), former, changed, strict=True)
        ]
        for before, after in pair:
            store.access.permit_change(before, after)
            _refuse_retained(store, before, after.attributes)
        if former == changed:
            return one, two
        try:
            await store.transact(
                [store.changes.operation("update", before, after) for before, after in pair],
                [Put(to_item(after, store.keys), unchanged(before)) for before, after in pair],
                [after for _, after in pair if after.directory],
                since,
            )
        except ConditionFailedError as error:
            await store.resolve_refusal(error, first)
            await race.lost(
                ConflictError("another client kept changing one of the entries", path=first)
            )
        except ConflictError as error:
            await race.lost(error)
        else:
            return pair[0][1], pair[1][1]


async def make_read_only(
    store: MetadataStore, entry: Entry, *, anywhere: bool = False, since: float | None = None
) -> Entry:
    """Make a file read-only that was just read, unless it has changed since. `anywhere`: in layout
    `tree` also if its directory has moved since. `since`: when its path was resolved, monotonic;
    None is now.

    Raises ConflictError (it has changed, or is gone), BusyError.
    """
    former = Attributes.from_json(entry.attributes)
    attributes = replace(former, read_only=True).checked(entry.path)
    before = entry.without_intent()
    after = _next_version(store, before, former.replaced_by(attributes, store.runtime.now_ms()))
    if anywhere or not store.keys.by_id:
        since = None
    elif since is None:
        since = store.runtime.monotonic()
    return await _write(store, before, after, since)


def _next_version(store: MetadataStore, entry: Entry, attributes: Attributes) -> Entry:
    return replace(
        entry,
        version=entry.version + 1,
        attributes=attributes.to_json(),
        operation=store.runtime.uuid(),
    )


def _refuse_retained(store: MetadataStore, entry: Entry, attributes: str) -> None:
    """Raise PermissionDeniedError for a change that would end or shorten the retention of a file:
    it is read-only, stays so, and would get other metadata of lifecycle rules."""
    if not (store.indexes.due is not None and entry.read_only and entry.attributes != attributes):
        return
    before, after = Attributes.from_json(entry.attributes), Attributes.from_json(attributes)
    names = [
        name for name in LIFECYCLE_NAMES if before.metadata.get(name) != after.metadata.get(name)
    ]
    if names and after.read_only:
        raise PermissionDeniedError(
            f"it is read-only, so that its metadata {names[0]} cannot be changed: s3k attr "
            "--writable lets it be changed",
            path=entry.path,
        )


async def _write(store: MetadataStore, before: Entry, after: Entry, since: float | None) -> Entry:
    """`since`: when the directories of the path were read, in layout `tree`; None: they need not be
    confirmed."""

    async def put() -> Entry:
        if since is not None:
            await store.confirm([after], since)
        await store.changes.run(
            [store.changes.operation("update", before, after)],
            lambda outcome: outcome.write(
                store.items, Put(to_item(after, store.keys), unchanged(before)), store.runtime.uuid
            ),
        )
        return after

    try:
        return await store.retry_past_intents(put, before.path)
    except (ConditionFailedError, TransactionConflictError) as error:
        raise ConflictError(
            "another client changed the entry; no changes were applied", path=before.path
        ) from error
