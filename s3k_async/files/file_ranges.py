"""Byte ranges of committed files: one version, several requests at once."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from s3k_async._core.bytes_in_place import BytesInPlace
from s3k_async._core.concurrency import gather
from s3k_async._core.error_handling import on_error
from s3k_async._native import Xxh3_128
from s3k_async.backends.ports.blobs import Buffer
from s3k_async.errors import (
    ConflictError,
    CorruptDataError,
    DataMissingError,
    InvalidArgumentError,
    IsDirectoryError,
    UncommittedFileError,
)
from s3k_async.model import Content, Entry, FileStatus
from s3k_async.namespace.directories import DirectoryStore
from s3k_async.permissions import READ
from s3k_async.storage.change_detection import missing_version
from s3k_async.storage.extents import has_extents, parse_extents
from s3k_async.storage.physical import PhysicalStorage, is_uri
from s3k_async.storage.upload import CHECKSUM_PREFIX
from s3k_async.volumes.volume import Volume

__all__ = [
    "LONG_RANGE",
    "LOOKS",
    "SPAN_REQUESTS",
    "Check",
    "SequentialCheck",
    "assembled",
    "check_empty",
    "distrusting",
    "fetch_into",
    "fetch_range",
    "fetch_range_into",
    "fetch_span",
    "naming_file",
    "need_readable",
    "need_same",
    "read_file",
    "read_ranges",
    "read_span",
    "read_span_into",
    "read_spans",
    "read_version",
    "require_readable",
]

Check: TypeAlias = Callable[[int, Buffer], None]
"""Receives the position and the bytes of each fetched range of a file, in order."""

SPAN_REQUESTS = 4
"""Concurrent requests for one long span of bytes."""
LONG_SPAN = 32
"""Parts in a span from which on each of its requests is for LONG_RANGE parts."""
LONG_RANGE = 2
"""Parts in the longest request: services and clients need less processor time for longer ones."""
RANGES = 16
"""Spans of one call that are fetched at the same time."""
LOOKS = 3
"""Attempts to look up a file whose data was replaced and collected during the read."""


def need_same(seen: FileStatus, entry: Entry) -> None:
    """Raise ConflictError unless the entry is the same version of the file, or the same directory,
    as seen before."""
    if entry.id != seen.id:
        raise ConflictError("another object is at this path since it was listed", path=entry.path)
    if not entry.is_dir and entry.version != seen.version:
        raise ConflictError("the file was changed since it was listed", path=entry.path)


def need_readable(entry: Entry) -> None:
    """Raise IsDirectoryError or UncommittedFileError unless the entry has bytes."""
    if entry.is_dir:
        raise IsDirectoryError("a directory is at the path", path=entry.path)
    if not entry.committed or entry.physical is None:
        raise UncommittedFileError(
            "the file is being written: its bytes are not durable yet", path=entry.path
        )


def require_readable(store: DirectoryStore, entry: Entry) -> None:
    """As `need_readable`, for a caller that is about to read the bytes: raise PermissionDeniedError
    as well if the identity may not."""
    need_readable(entry)
    store.access.require(entry, READ)


class _Verified(NamedTuple):
    """Bytes of a file that have a checksum: all, or an extent."""

    end: int
    """Where they end in the file."""
    checksum: str
    """`xxh128:<32 hex digits>`; empty if it is not known."""
    physical: str


def _verified(entry: Entry) -> list[_Verified]:
    """The parts of a file, in their order, each with its checksum."""
    known = entry.checksum if entry.checksum.startswith(CHECKSUM_PREFIX) else ""
    if known or not has_extents(entry.physical):
        return [_Verified(entry.size, known, entry.physical or "")]
    with naming_file(entry):
        extents = parse_extents(entry.physical or "")
    parts, end = [], 0
    for extent in extents:
        end += extent.length
        parts.append(_Verified(end, extent.checksum, extent.key))
    return parts


class SequentialCheck:
    """Verifies the checksum of a file, or of each of its extents, while it is fetched in order from
    its start to its end.

    Bytes that are fetched again count once, and bytes beyond a gap count when the gap has been
    fetched: random reads are not verified. Concurrent fetches by several threads end the
    verification.
    """

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self._parts = _verified(entry)
        self._digest = Xxh3_128() if any(part.checksum for part in self._parts) else None
        """Of the bytes so far of the first of the parts, which are those that are not complete, or
        wrong, or the last one; None if nothing is verified."""
        self._hashed = 0
        self._lock = threading.Lock()

    def copy(self) -> SequentialCheck:
        """An independent check of the same bytes so far."""
        check = SequentialCheck(self._entry)
        check._parts = list(self._parts)
        check._digest = None if self._digest is None else self._digest.copy()
        check._hashed = self._hashed
        return check

    def is_due(self, end: int) -> bool:
        """Whether bytes up to this position must be added before they are returned; those that end
        the file, or an extent that is wrong, always: a wrong checksum is an error each time."""
        return self._digest is not None and (self._hashed < end or end == self._parts[0].end)

    def add(self, start: int, data: Buffer) -> None:
        """Add fetched bytes before they are returned. Raises CorruptDataError when they complete
        the file or an extent and its checksum is not the recorded one, and on every later call.
        """
        if self._digest is None or not start <= self._hashed <= start + len(data):
            return
        # Not awaited: a child forked while another thread holds it would wait for ever.
        if not self._lock.acquire(blocking=False):
            self._digest = None
            return
        try:
            with memoryview(data) as view:
                self._add(view, self._hashed - start)
        finally:
            self._lock.release()

    def _add(self, data: memoryview, at: int) -> None:
        """Add the bytes from a position on; no view of them is kept, also not by an error."""
        while (digest := self._digest) is not None:
            part = self._parts[0]
            stop = min(len(data), at + part.end - self._hashed)
            if part.checksum:
                with data[at:stop] as piece:
                    digest.update(piece)
            self._hashed += stop - at
            at = stop
            if self._hashed < part.end:
                return
            if part.checksum:
                self._require(part, CHECKSUM_PREFIX + digest.hexdigest())
            if len(self._parts) == 1:
                return
            del self._parts[0]
            self._digest = Xxh3_128()

    def _require(self, part: _Verified, checksum: str) -> None:
        if checksum != part.checksum:
            raise CorruptDataError(
                f"the checksum of the bytes of {part.physical} is {checksum} instead of "
                f"{part.checksum}: restore them from a copy, or delete the file",
                path=self._entry.path,
            )


async def read_span(storage: PhysicalStorage, entry: Entry, start: int, end: int) -> bytes:
    """As `fetch_span`; a span that is the whole file is verified. Raises CorruptDataError for a
    wrong checksum, too."""
    is_whole = start == 0 and end == entry.size
    check = SequentialCheck(entry).add if is_whole else None
    return await fetch_span(storage, entry, start, end, check=check)


async def read_span_into(
    storage: PhysicalStorage, entry: Entry, start: int, buffer: memoryview
) -> None:
    """As `fetch_into`, and verifies as `read_span`."""
    is_whole = start == 0 and len(buffer) == entry.size
    check = SequentialCheck(entry).add if is_whole else None
    await fetch_into(storage, entry, start, buffer, check=check)


async def fetch_span(
    storage: PhysicalStorage,
    entry: Entry,
    start: int,
    end: int,
    *,
    check: Check | None = None,
) -> bytes:
    """Bytes [start, end) of the version in the entry; a long span by several concurrent requests.

    `check` is called as by `fetch_into`. Raises DataMissingError, CorruptDataError (the physical
    object has another size than the entry says, or is an adopted one that was replaced).
    """
    physical = entry.physical
    if physical is None or start >= end:
        if not entry.size:
            await check_empty(storage, entry)
            if check is not None:
                check(0, b"")
        return b""
    if end - start > max(1, storage.tuning.part_size):
        return await assembled(
            end - start, lambda buffer: fetch_into(storage, entry, start, buffer, check=check)
        )
    data = await fetch_range(storage, entry, start, end)
    if check is not None:
        with distrusting(storage, entry):
            check(start, data)
    return data


async def fetch_range(storage: PhysicalStorage, entry: Entry, start: int, end: int) -> bytes:
    """Bytes [start, end) of the version in the entry, by one request. Errors as of `fetch_span`."""
    assert entry.physical is not None
    with naming_file(entry):
        data = await storage.read(
            entry.physical,
            start,
            end,
            size=entry.size,
            etag=entry.etag,
            checksum=entry.checksum,
        )
    _require_length(entry, start, end, len(data))
    return data


async def fetch_range_into(
    storage: PhysicalStorage, entry: Entry, start: int, buffer: memoryview
) -> None:
    """As `fetch_range`, into a buffer."""
    assert entry.physical is not None
    with naming_file(entry):
        size = await storage.read_into(
            entry.physical,
            start,
            buffer,
            size=entry.size,
            etag=entry.etag,
            checksum=entry.checksum,
        )
    _require_length(entry, start, start + len(buffer), size)


async def fetch_into(
    storage: PhysicalStorage,
    entry: Entry,
    start: int,
    buffer: memoryview,
    *,
    check: Check | None = None,
) -> None:
    """Fill a buffer with the bytes from `start` on of the version in the entry, which has as many;
    a long one by several concurrent requests, each into its own place.

    `check` is called with the position and bytes of each range, in order, while later ones are on
    their way. Errors as of `fetch_span`. After an error or a cancellation the content of the
    buffer is undefined, and nothing more is written to it.
    """
    physical, end = entry.physical, start + len(buffer)
    if physical is None or start >= end:
        if not entry.size:
            await check_empty(storage, entry)
        return
    step = max(1, storage.tuning.part_size)
    if len(buffer) >= LONG_SPAN * step:
        step *= LONG_RANGE
    arrived: set[int] = set()
    checked = start

    async def fetch(begin: int) -> None:
        nonlocal checked
        stop = min(end, begin + step)
        # Released, because the traceback of an error keeps this frame.
        with buffer[begin - start : stop - start] as place:
            await fetch_range_into(storage, entry, begin, place)
        if check is None:
            return
        arrived.add(begin)
        while checked in arrived:
            stop = min(end, checked + step)
            with buffer[checked - start : stop - start] as place, distrusting(storage, entry):
                check(checked, place)
            checked = stop

    await gather(fetch, range(start, end, step), limit=SPAN_REQUESTS)


async def assembled(size: int, fill: Callable[[memoryview], Awaitable[None]]) -> bytes:
    """The bytes that `fill` writes to a buffer of this size. They are not copied."""
    place = BytesInPlace(size)
    with place.getbuffer() as buffer:
        await fill(buffer)
    return place.getvalue()


def naming_file(entry: Entry) -> on_error:
    """Name the file in errors about its physical object."""
    return on_error(partial(_name_file, entry))


def _name_file(entry: Entry, error: BaseException) -> None:
    if isinstance(error, DataMissingError):
        what = f"the physical object {entry.physical} is gone"
        if version := entry.object_version:
            what = f"{entry.physical}: {missing_version(version)}"
        raise DataMissingError(what, path=entry.path) from error
    if isinstance(error, CorruptDataError):
        raise CorruptDataError(error.message, path=entry.path) from error


def distrusting(storage: PhysicalStorage, entry: Entry) -> on_error:
    """Read the file from its source from now on, if its checksum turns out to be wrong."""
    return on_error(partial(_distrust, storage, entry))


def _distrust(storage: PhysicalStorage, entry: Entry, error: BaseException) -> None:
    if isinstance(error, CorruptDataError):
        storage.distrust(entry.content)


def _require_length(entry: Entry, start: int, end: int, size: int) -> None:
    """Raise CorruptDataError unless [start, end) was read completely."""
    if size != end - start:
        raise CorruptDataError(
            f"the physical object ends before byte {end} of {entry.size}", path=entry.path
        )


async def check_empty(storage: PhysicalStorage, entry: Entry) -> None:
    """Check that the adopted object of an empty file is still empty. The volume's own objects are
    not requested.

    Raises DataMissingError, CorruptDataError.
    """
    if entry.physical is None or not is_uri(entry.physical):
        return
    try:
        await storage.check(entry.content)
    except (CorruptDataError, DataMissingError) as error:
        raise type(error)(error.message, path=entry.path) from error


async def read_spans(
    volume: Volume, path: str, spans: Sequence[tuple[int, int | None]]
) -> tuple[Entry, list[bytes]]:
    """Spans [start, end) of one version of a file, cut at its end, and that version; None is the
    end.

    A version that was replaced and collected meanwhile is looked up again, and one with a wrong
    checksum is read again without the cache. Raises PathNotFoundError, IsDirectoryError,
    UncommittedFileError, DataMissingError, CorruptDataError.
    """
    gone: CorruptDataError | DataMissingError | None = None
    seen: Content | None = None
    with_cache = volume.storage.cache is not None
    for _ in range(LOOKS):
        entry = await volume.store.lookup(path)
        require_readable(volume.store, entry)
        if gone is not None and entry.content == seen:
            if not with_cache:
                break
            with_cache = False
        seen = entry.content

        async def fetch(span: tuple[int, int | None], entry: Entry = entry) -> bytes:
            start, end = span
            return await read_span(
                volume.storage, entry, start, entry.size if end is None else min(end, entry.size)
            )

        try:
            return entry, await gather(fetch, spans, limit=RANGES)
        except (CorruptDataError, DataMissingError) as error:
            gone = error
    assert gone is not None
    raise gone


async def read_ranges(volume: Volume, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    """The bytes [start, end) of each range. Raises InvalidArgumentError, and as `read_spans`."""
    for start, end in ranges:
        if not 0 <= start <= end:
            raise InvalidArgumentError(f"[{start}, {end}) is not a byte range", path=path)
    return (await read_spans(volume, path, ranges))[1]


async def read_file(volume: Volume, path: str) -> bytes:
    """A whole file, its size and checksum verified. Raises as `read_spans`."""
    return (await read_spans(volume, path, [(0, None)]))[1][0]


async def read_version(volume: Volume, entry: Entry) -> bytes | None:
    """The content of the version in the entry, size and checksum verified; None if the data is
    gone.

    Raises IsDirectoryError, UncommittedFileError, CorruptDataError.
    """
    require_readable(volume.store, entry)
    try:
        return await read_span(volume.storage, entry, 0, entry.size)
    except DataMissingError:
        return None
