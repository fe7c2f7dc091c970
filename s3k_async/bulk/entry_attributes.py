"""Attributes of entries: changes, and the search for entries by the name of a metadata value."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Final

from s3k_async.attributes import AttributeChange, Attributes, check_name
from s3k_async.errors import (
    ArgumentTypeError,
    PermissionDeniedError,
    S3kError,
    UnsupportedError,
)
from s3k_async.lifecycle_rules import check_values
from s3k_async.listing.listings import Filter, Listing
from s3k_async.model import ROOT, Entry, FileStatus, need_time
from s3k_async.namespace.attribute_changes import change_attributes
from s3k_async.namespace.metadata_index import IndexedEntry
from s3k_async.storage.tier_policy import check_tier
from s3k_async.table.codec import in_columns
from s3k_async.volumes.volume import Volume

__all__ = [
    "ListedDirectories",
    "check_lifecycle",
    "checked_attributes",
    "find_page",
    "metadata_pages",
    "need_attributes",
    "set_attributes",
]

PAGE: Final = 100
"""Entries that a search reads at the same time: one request."""


class ListedDirectories:
    """The directories that a search found when it listed the volume: those in the trash are not
    among them, so that other pages of the search need no listing for what is in the trash."""

    def __init__(self) -> None:
        self._keys: frozenset[str] | None = None

    def may_hold(self, directory_key: str) -> bool:
        """Whether a directory is, or may be, part of the tree."""
        return self._keys is None or directory_key in self._keys

    def found(self, directory_keys: Collection[str]) -> None:
        """Record the directory keys of a complete listing."""
        self._keys = frozenset(directory_keys)


def need_attributes(volume: Volume, path: str) -> None:
    """Raise UnsupportedError unless entries of the volume may have attributes, ReadOnlyVolumeError
    for a volume that cannot be changed."""
    volume.store.require_writable(path)
    if not volume.record.attributes:
        raise UnsupportedError(
            "entries of the volume have no attributes: s3k migrate --enable attributes adds them",
            path=path,
        )


def checked_attributes(volume: Volume, path: str, attributes: Attributes) -> Attributes:
    """Attributes that are given for a new file. Raises UnsupportedError, ArgumentTypeError,
    InvalidArgumentError."""
    need_attributes(volume, path)
    if not isinstance(attributes, Attributes):
        raise ArgumentTypeError(
            f"attributes are an Attributes, not {type(attributes).__name__}", path=path
        )
    check_lifecycle(volume, path, attributes.metadata)
    return attributes.checked(path)


def check_lifecycle(volume: Volume, path: str, metadata: Mapping[str, bytes | None] | None) -> None:
    """Raise InvalidArgumentError for metadata that would be a malformed rule of the file, in a
    volume with lifecycle rules, or a malformed tier, in one with tiers."""
    if volume.record.rules and metadata:
        check_values(metadata, path)
    if volume.record.hot and metadata:
        check_tier(metadata, path)


async def set_attributes(
    volume: Volume, path: str, change: AttributeChange, *, mtime_ms: int | None = None
) -> Entry:
    """Change attributes of an entry, and the modification time if one is given."""
    if mtime_ms is not None:
        need_time(mtime_ms, path)
    need_attributes(volume, path)
    check_lifecycle(volume, path, change.metadata)
    return await change_attributes(volume.store, path, change, mtime_ms=mtime_ms)


async def metadata_pages(
    volume: Volume, name: str, path: str, wanted: Filter
) -> AsyncIterator[list[FileStatus]]:
    """The entries below a directory (or a file itself) that have user metadata of a name and meet
    the filter, in pages, from the index."""
    check_name(name, path)
    if path != ROOT:
        await volume.store.lookup(path)
    after, listed = "", ListedDirectories()
    while True:
        found, after = await find_page(volume, name, path, listed, after=after, limit=PAGE)
        columns = in_columns(found, volume.store.keys)
        if selected := wanted.select(columns, path if path == ROOT else path + "/"):
            yield selected
        if not after:
            return


async def find_page(
    volume: Volume,
    name: str,
    path: str,
    listed: ListedDirectories,
    *,
    after: str,
    limit: int,
) -> tuple[list[Entry], str]:
    """Some entries below a directory, or a file itself, with user metadata of a name, and the token
    of the next page, empty at the end. A page may have fewer entries than `limit`, or none.
    `listed`: what all pages of one search share."""
    store = volume.store
    index = store.indexes.metadata
    page, token = await index.page(name, after, limit)
    hidden: set[str] = set()
    """Entry keys below directories that the caller may not search."""
    seen = []
    for each, entry in zip(page, await store.get_each([each.path for each in page]), strict=True):
        if isinstance(entry, S3kError):
            _raise_unless_elsewhere(entry, each.path, path)
            hidden.add(each.entry_key)
        seen.append(_at_key(entry, each.entry_key))
    lost = [
        each
        for each, entry in zip(page, seen, strict=True)
        if each.entry_key not in hidden and not _has(entry, name)
    ]
    kept = await _kept(volume, name, lost) if lost else set()
    moved = await _moved(volume, kept, listed, path) if kept and store.keys.by_id else {}
    kept |= hidden
    found: list[Entry] = []
    stale: list[IndexedEntry] = []
    for each, there in zip(page, seen, strict=True):
        entry = there or moved.get(each.entry_key)
        if entry is not None and _has(entry, name):
            if _is_below(entry, path):
                found.append(entry)
        elif each.entry_key not in kept:
            stale.append(each)
    with suppress(PermissionDeniedError):  # a client that may only read
        await index.remove_stale(stale, volume.blobs.now_ms)
    return found, token


async def _kept(volume: Volume, name: str, lost: Sequence[IndexedEntry]) -> set[str]:
    """The entry keys at which entries are stored that have the name, or can get it, though no entry
    with the name is at the path in the index: a transaction that has not ended hides or changes the
    entry; in layout `tree` its directory was renamed since, or is in the trash, from which it can
    come back."""
    store = volume.store
    # Those of the other layout are left from before it was changed.
    places = [each.entry_key for each in lost if store.keys.is_current(each.entry_key)]
    stored = await store.stored_many(places)
    return {
        entry.entry_key
        for entry in stored
        if entry is not None and (entry.pending or _has(entry, name))
    }


async def _moved(
    volume: Volume, kept: Collection[str], listed: ListedDirectories, top: str
) -> dict[str, Entry]:
    """The entries of these entry keys that a listing finds, by entry key: with their paths they are
    indexed anew. Those in the trash are not found, and not listed for again. `top`: where the
    search is."""
    store = volume.store.unrestricted()
    if not any(listed.may_hold(store.keys.parent_key(each)) for each in kept):
        return {}
    found: dict[str, Entry] = {}
    directories = {store.keys.directory(await store.lookup(ROOT)).key}
    async for page in Listing(recursive=True).pages(store, ROOT):
        directories.update(store.keys.directory_keys(page))
        for entry in page:
            if entry.entry_key in kept:
                found[entry.entry_key] = entry
    listed.found(directories)
    with suppress(PermissionDeniedError):
        await store.indexes.metadata.add_entries(found.values())
    if volume.store.access.is_enforced:
        there = list(found.values())
        for entry, seen in zip(
            there, await volume.store.get_each([each.path for each in there]), strict=True
        ):
            if isinstance(seen, S3kError):
                _raise_unless_elsewhere(seen, entry.path, top)
                del found[entry.entry_key]
    return found


def _at_key(entry: Entry | S3kError | None, entry_key: str) -> Entry | None:
    """An entry that was read, if it is stored under the key."""
    if isinstance(entry, S3kError) or entry is None or entry.entry_key != entry_key:
        return None
    return entry


def _raise_unless_elsewhere(error: S3kError, path: str, top: str) -> None:
    """Raise the error of an entry that was not read, unless it is a denial outside of the directory
    that is searched: who searches one directory does not depend on others."""
    if not isinstance(error, PermissionDeniedError) or f"{path}/".startswith(_below(top)):
        raise error


def _below(directory: str) -> str:
    return directory if directory == ROOT else directory + "/"


def _has(entry: Entry | None, name: str) -> bool:
    if entry is None or not entry.has_metadata:
        return False
    return name in Attributes.from_json(entry.attributes).metadata


def _is_below(entry: Entry, path: str) -> bool:
    """As of a recursive listing: the directory itself is not below itself, a file is."""
    if entry.path == path:
        return not entry.is_dir
    return entry.path.startswith(_below(path))
