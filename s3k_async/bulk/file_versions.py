"""The versions of a file: what was at a path according to the operation log, and whether its data
still exists.

No operation deletes the data of a file that is deleted or replaced: garbage collection does, a
grace period later. Until then the log, which has the state before each operation, leads to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from s3k_async import _native
from s3k_async._core.concurrency import gather
from s3k_async._core.object_version import digest_in
from s3k_async._core.worker_threads import in_thread
from s3k_async.attributes import Attributes
from s3k_async.bulk.publish import is_below
from s3k_async.errors import (
    CorruptDataError,
    DataMissingError,
    InvalidArgumentError,
    IsDirectoryError,
    UnsupportedError,
)
from s3k_async.integrity.sorted_log import SortedLog, unreadable
from s3k_async.model import ROOT, Entry, OperationKind
from s3k_async.namespace.store import MetadataStore
from s3k_async.oplog.damage import DamagedLog
from s3k_async.oplog.entries import is_id
from s3k_async.oplog.entry_states import EntryState, ObjectHistory, history_of
from s3k_async.oplog.log_reader import LogReader
from s3k_async.table.stored_reader import ROOT_ENTRY
from s3k_async.volumes.volume import Volume

__all__ = [
    "FileVersion",
    "FormerAccess",
    "LoggedVersion",
    "VersionState",
    "has_data",
    "histories_at",
    "list_versions",
    "log_of",
    "logged_versions",
    "place_of",
    "read_log",
    "require_visible",
    "was_directory",
    "was_there",
]

VersionState: TypeAlias = Literal["current", "overwritten", "deleted", "moved", "trash"]
"""`current`: the file at the path. `overwritten`: it has had another content since. `deleted`: the
file was deleted, or another one was moved over it. `moved`: it is at another path since. `trash`:
it is below a directory in the trash."""

LOOKS: Final = 32
"""Versions whose data is checked concurrently."""
_ENDED: Final[dict[str, VersionState]] = {
    "update": "overwritten",
    "rename": "moved",
    "delete": "deleted",
    "create": "overwritten",
}


@dataclass(frozen=True, slots=True)
class FileVersion:
    """One content that a file had at a path."""

    id: str
    """`<object id>.<version of the entry>`."""
    path: str
    state: VersionState
    operation: Literal["", "create", "update", "rename", "delete"]
    """The kind of the operation that led to it: `update` of content, `rename` to the path; empty if
    compaction has removed it from the log."""
    since_ms: int
    """When that began, epoch milliseconds; without the operation, the modification time, or that
    of the creation if it is later."""
    until_ms: int | None
    """When it was overwritten, deleted or moved, epoch milliseconds; None if it is current, or if
    a directory above was moved or deleted."""
    size: int
    mtime_ms: int
    checksum: str
    has_data: bool
    """Whether its data exists, in the recorded size."""
    attributes: Attributes = field(default_factory=Attributes)

    @property
    def object_id(self) -> str:
        """The object id of the file."""
        return self.id.rpartition(".")[0]

    @property
    def version(self) -> int:
        """The version of the entry, 2 for a file that was written once."""
        return int(self.id.rpartition(".")[2])


@dataclass(frozen=True, slots=True)
class LoggedVersion:
    """A version according to the log and the table, whose data may be gone."""

    entry: Entry
    """The entry as it was at the path."""
    state: VersionState
    operation: OperationKind | Literal[""]
    since_ms: int
    until_ms: int | None

    @property
    def id(self) -> str:
        """As `FileVersion.id`."""
        return f"{self.entry.id}.{self.entry.version}"

    def shown(self, *, data: bool) -> FileVersion:
        """The version for users. `data`: whether its data exists."""
        entry = self.entry
        return FileVersion(
            self.id,
            entry.path,
            self.state,
            self.operation,
            self.since_ms,
            self.until_ms,
            entry.size,
            entry.mtime_ms,
            digest_in(entry.checksum),
            data,
            Attributes.from_json(entry.attributes),
        )


async def list_versions(volume: Volume, path: str) -> list[FileVersion]:
    """The versions of the files that were at a path, newest first."""
    found = await logged_versions(volume, path)
    data = await gather(lambda each: has_data(volume, each.entry), found, limit=LOOKS)
    return [each.shown(data=exists) for each, exists in zip(found, data, strict=True)]


async def logged_versions(volume: Volume, path: str, version: str = "") -> list[LoggedVersion]:
    """As `list_versions`, without a check of the data. `version`: the id of a single version, so
    that the records of other files need not be read.

    Raises UnsupportedError, InvalidArgumentError, IsDirectoryError, LogFormatError,
    PermissionDeniedError.
    """
    log_of(volume, path)
    current = await require_visible(volume, path)
    if current is not None and current.is_dir:
        raise IsDirectoryError("the path is a directory, which has no versions", path=path)
    place = await place_of(volume, path)
    if version:
        histories = await _history_of_version(volume, path, version)
    else:
        histories = await histories_at(volume, path)
    found: list[LoggedVersion] = []
    for history in histories:
        found += _of_history(history, path, place, current)
    if current is not None and not any(each.state == "current" for each in found):
        # The record of the last operation is pending, or is missing.
        found.append(LoggedVersion(current, "current", "", current.mtime_ms, None))
    access = FormerAccess(volume)
    found = [
        each
        for each in found
        if (not version or each.id == version) and await access.may_see(each.entry)
    ]
    found = await _with_trash(volume, path, found)
    return sorted(found, key=_newest_first)


def _newest_first(version: LoggedVersion) -> tuple[bool, int, str, int]:
    entry = version.entry
    return version.state != "current", -version.since_ms, entry.id, -entry.version


def log_of(volume: Volume, path: str) -> LogReader:
    """The log of a volume. Raises UnsupportedError for one without, or one of S3-FileSystem 1.0,
    whose log keeps no earlier states."""
    if volume.log_blobs is None or volume.record.log_mode == "binary":
        raise UnsupportedError(
            "the operation log of the volume has no earlier states of files", path=path
        )
    return LogReader(volume.log_blobs, has_key=volume.store.keys.has)


async def read_log(volume: Volume, path: str) -> SortedLog:
    """The whole log, with the operations of this client committed; to be closed. Raises
    LogFormatError if a part of it is unreadable, which may concern any file."""
    reader = log_of(volume, path)
    await volume.log.drained()
    log = SortedLog()
    try:
        await log.read(reader, volume.store.keys, operation="versions")
        log.require_readable()
    except BaseException:
        log.close()
        raise
    return log


async def histories_at(volume: Volume, path: str) -> list[ObjectHistory]:
    """The histories of the files that were at a path, at any time: by their paths of that time, and
    in layout `tree` also by the directory that is at the parent's path now."""
    place = await place_of(volume, path)
    name = "/" + path.rpartition("/")[2]

    def find() -> list[ObjectHistory]:
        found = map(history_of, log.objects_with(name))
        return [
            each for each in found if any(_is_at(state.entry, path, place) for state in each.states)
        ]

    with closing(await read_log(volume, path)) as log:
        return await in_thread(find)


async def was_directory(volume: Volume, path: str) -> bool:
    """Whether anything was below a path, at any time."""

    def find() -> bool:
        return any(
            state.entry.path != path and is_below(state.entry.path, path)
            for records in log.objects_with(path)
            for state in history_of(records).states
        )

    with closing(await read_log(volume, path)) as log:
        return await in_thread(find)


def was_there(log: SortedLog, store: MetadataStore, path: str) -> bool:
    """Whether anything may have been at or below a path, at any time. In layout `tree`, where the
    log does not have all former paths of a file, any former name counts that is the path's."""
    name = "/" + path.rpartition("/")[2]
    return any(
        is_below(state.entry.path, path) or (store.keys.by_id and state.entry.path.endswith(name))
        for records in log.objects_with(name)
        for state in history_of(records).states
    )


async def require_visible(volume: Volume, path: str) -> Entry | None:
    """The entry at a path. Raises PermissionDeniedError unless the identity may list the directory
    that the path is in, or the lowest one above that exists."""
    store = volume.store
    current = await store.get(path)
    if store.access.is_enforced:
        above = (await store.layout.chain(path))[:-1] or [(ROOT, ROOT_ENTRY)]
        there = [entry for _, entry in above if entry is not None and entry.is_dir]
        store.access.require_listable(there[-1])
    return current


class FormerAccess:
    """What the identity may see of former versions in directories that it may list. If the
    directory of a version is not at the path any more, its mode is not known, and only the owner of
    the file may see it."""

    def __init__(self, volume: Volume) -> None:
        self._volume = volume
        self._arrivals: dict[str, int] = {}
        """When directories came to their paths, epoch milliseconds, by id."""

    async def may_see(self, entry: Entry) -> bool:
        """Whether a former version may be seen. Raises LogFormatError."""
        store = self._volume.store
        access = store.access
        if not access.is_enforced or access.of(entry).is_owner(access.identity):
            return True
        parent = await store.get(_native.split(entry.path)[0])
        if parent is None or not parent.is_dir:
            return False
        if store.keys.by_id:
            return entry.directory == store.keys.directory(parent).key
        if parent.ctime > entry.ctime:
            return False
        if parent.id not in self._arrivals:
            self._arrivals[parent.id] = await self._arrival(parent)
        return self._arrivals[parent.id] < entry.ctime * 1000

    async def _arrival(self, directory: Entry) -> int:
        """When a directory was moved to its path, according to the log; 0 if it never was."""
        histories = await _history_of_object(self._volume, directory.path, directory.id)
        elsewhere = [
            state.until_ms or 0
            for history in histories
            for state in history.states
            if state.entry.path != directory.path
        ]
        return max(elsewhere, default=0)


async def has_data(volume: Volume, entry: Entry) -> bool:
    """Whether the data of a version exists, in the recorded size."""
    with suppress(DataMissingError, CorruptDataError, UnsupportedError):
        await volume.storage.check(entry.content)
        return True
    return False


async def place_of(volume: Volume, path: str) -> str | None:
    """In layout `tree` the entry key of a path in the directory that is at its parent's path now;
    None in layout `path`, and if there is none."""
    keys = volume.store.keys
    if not keys.by_id:
        return None
    parent = await volume.store.get(_native.split(path)[0])
    if parent is None or not parent.is_dir:
        return None
    return keys.child(keys.directory(parent).key, path.rpartition("/")[2])


async def _history_of_version(volume: Volume, path: str, version: str) -> list[ObjectHistory]:
    object_id, _, number = version.rpartition(".")
    if not (is_id(object_id) and number.isascii() and number.isdecimal()):
        raise InvalidArgumentError(
            f"{version!r} is not the id of a version, as s3k versions shows it", path=path
        )
    return await _history_of_object(volume, path, object_id)


async def _history_of_object(volume: Volume, path: str, object_id: str) -> list[ObjectHistory]:
    reader = log_of(volume, path)
    await volume.log.drained()
    records = []
    for finding in await reader.history(object_id):
        if isinstance(finding, DamagedLog):
            raise unreadable(finding)
        records.append(finding)
    return [history_of(records)] if records else []


def _is_at(entry: Entry, path: str, place: str | None) -> bool:
    return entry.path == path or (place is not None and entry.entry_key == place)


def _of_history(
    history: ObjectHistory, path: str, place: str | None, current: Entry | None
) -> Iterator[LoggedVersion]:
    """The versions of one file at a path. States with the same content, which differ in attributes
    or times, are one version."""
    for states in _by_content(each for each in history.states if _is_at(each.entry, path, place)):
        entry, first, last = replace(states[-1].entry, path=path), states[0], states[-1]
        is_current = current is not None and (entry.id, entry.physical) == (
            current.id,
            current.physical,
        )
        if is_current and current is not None:
            entry = current
        elif last.ended is None and any(each.after is None for each in history.pending):
            yield LoggedVersion(entry, "deleted", _began(first), first.since_ms, None)
            continue
        state: VersionState = "current" if is_current else _ended(last)
        until_ms = None if is_current else last.until_ms
        yield LoggedVersion(entry, state, _began(first), first.since_ms, until_ms)


def _ended(state: EntryState) -> VersionState:
    """How a state ended that is not the current one. Without an operation, its directory has left
    the path; in layout `path`, whose directories take no entries along, the table lacks the entry.
    """
    return _ENDED.get(state.end) or ("moved" if state.entry.directory else "deleted")


def _began(state: EntryState) -> OperationKind | Literal[""]:
    return "" if state.began is None else state.began.kind


def _by_content(states: Iterable[EntryState]) -> Iterator[list[EntryState]]:
    """Successive states of files with the same content. Directories and reservations have none."""
    some: list[EntryState] = []
    for state in states:
        entry = state.entry
        if entry.is_dir or entry.is_reservation or entry.physical is None:
            continue
        follows = some and some[-1].ended is not None and some[-1].ended.version == entry.version
        if follows and some[-1].entry.physical == entry.physical:
            some.append(state)
            continue
        if some:
            yield some
        some = [state]
    if some:
        yield some


async def _with_trash(volume: Volume, path: str, found: list[LoggedVersion]) -> list[LoggedVersion]:
    """The versions, with the state of those that are below a directory in the trash."""
    store = volume.store
    if not store.layout.has_trash or not any(_has_left(each) for each in found):
        return found
    deleted = [item.was for item in await store.layout.trash().items()]
    if not any(is_below(path, was) for was in deleted):
        return found
    return [
        replace(each, state="trash")
        if _has_left(each) and await store.stored(each.entry.entry_key) is not None
        else each
        for each in found
    ]


def _has_left(version: LoggedVersion) -> bool:
    """Whether the file is in a directory that has left the path."""
    return version.state == "moved" and version.until_ms is None
