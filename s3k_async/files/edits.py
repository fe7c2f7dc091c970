"""Changes of a file's content that cost what changes, not what exists: append, write in place,
truncate, concatenate; and compaction, which undoes what many of them leave.

Each uploads new physical objects, if any, and publishes a new list of extents by one conditional
write. If another client changed the file meanwhile, the list is made again from its present
version; what was uploaded is used again. A reader keeps the version that it opened.

**Compaction.** An appended piece is stored together with the extents before it that are no longer
than itself, as in a log-structured merge tree, so that the number of extents grows with the
logarithm of the size, up to MERGED bytes. If a change would leave more than MOST_EXTENTS extents,
it joins neighbours until half of them are left, those with the fewest bytes first.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import Final, TypeAlias

from s3k_async._core.concurrency import gather
from s3k_async.backends.ports.blobs import Buffer
from s3k_async.errors import (
    ArgumentTypeError,
    ConflictError,
    CorruptDataError,
    DataMissingError,
    InvalidArgumentError,
    OutcomeUnknownError,
    PathExistsError,
    PathNotFoundError,
    S3kError,
    UnsupportedError,
)
from s3k_async.files.file_ranges import need_readable, require_readable
from s3k_async.files.open_files import FileWriter, bytes_of, drop_unpublished
from s3k_async.model import ChangeResult, Content, Entry
from s3k_async.namespace.conflict_backoff import ConflictBackoff
from s3k_async.namespace.entry_reader import existing
from s3k_async.namespace.multi_path_commit import commit_mutations
from s3k_async.namespace.mutations import Remove, WriteFile
from s3k_async.namespace.store import WriteTarget
from s3k_async.permissions import WRITE
from s3k_async.storage.extents import (
    Extent,
    content_of,
    cut,
    extents_of,
    format_extents,
    has_extents,
    joined,
    physical_keys,
    whole_object,
)
from s3k_async.storage.physical import PhysicalStorage
from s3k_async.storage.upload import PhysicalWriter
from s3k_async.volumes.volume import Volume

__all__ = [
    "COMPACTED",
    "LARGEST_FILE",
    "MERGED",
    "MOST_EXTENTS",
    "FileAppender",
    "append",
    "compact",
    "compacted",
    "concat",
    "need_extents",
    "need_range",
    "need_size",
    "open_appender",
    "publish_range",
    "require_changeable",
    "truncate",
    "write_range",
    "write_ranges",
]

MERGED: Final = 8 * 1024 * 1024
"""Most bytes of an object that an append makes of itself and the extents before it."""
MOST_EXTENTS: Final = 64
"""Extents of a file after which a change compacts it: some 8 KiB of its item."""
LEFT_EXTENTS: Final = 32
"""Extents that compaction leaves, if that rewrites no more than REWRITTEN bytes."""
REWRITTEN: Final = 1024 * 1024
"""Bytes that a change may rewrite for compaction, or twice its own if they are more, while a file
has at most HARD_LIMIT extents."""
HARD_LIMIT: Final = 128
"""Most extents of a file, some 16 KiB of its item: a hundred such items, each with the intent of a
transaction, fit into one of DynamoDB (4 MB). A change that would leave more joins them until half
are left, whatever that rewrites; only holes longer than COMPACTED are never filled."""
COMPACTED: Final = 64 * 1024 * 1024
"""Bytes of the objects that `compact` makes."""
LARGEST_FILE: Final = 5 * 1024**4
"""Bytes of the largest file: that of the largest object in S3, so that `compact` can always make
one object of it."""
UPLOADS: Final = 4
"""Objects of one change that are written at the same time."""

Piece: TypeAlias = Extent | memoryview
"""A part of a file's new content: one that is stored, or one to be uploaded."""
Run: TypeAlias = tuple[Piece, ...]
"""Pieces that are stored together. A run of one extent stays as it is."""
_AGAIN: Final = memoryview(b"")
"""With this piece, a run of one extent is stored again."""
Edit: TypeAlias = Callable[[tuple[Extent, ...]], Sequence[Run]]
"""The new content of a file, from its present extents."""


async def append(volume: Volume, path: str, data: Buffer) -> Entry:
    """Add bytes at the end of a file; a missing one is created. Of several concurrent appends each
    is in the file, in some order."""
    view = bytes_of(data, path)
    return await _change(volume, path, lambda extents: _appended(extents, view), create=True)


async def open_appender(volume: Callable[[], Volume], path: str) -> FileWriter:
    """Open a file to add bytes at its end, or to create it. Unlike that of `open_writer`, a new
    path is not reserved, so that several can append to a new file.

    Raises IsDirectoryError, NotDirectoryError, UncommittedFileError, BusyError,
    ReadOnlyVolumeError, UnsupportedError (a volume without extents, or an adopted file).
    """
    opened = volume()
    with opened.calls.running("open", path):
        need_extents(opened, path)
        store = opened.store
        current = await store.get(path, trusting=True)
        if current is None or store.ran_out(current):
            target = await store.prepare(path)
        else:
            target = store.target(path, current)
        if target.current is not None:
            need_readable(target.current)
            require_changeable(opened, target.current)
        entry = target.current or store.new_file(path, target.object_id)
        upload = opened.storage.at(path).writer(entry.id)
        return FileAppender(
            volume,
            replace(entry, lease_ms=target.lease_ms),
            upload,
            is_new=target.current is None,
        )


class FileAppender(FileWriter):
    """A file that bytes are added to. They become visible together, when it is closed: at the end
    of the file as it is then, so that concurrent appenders do not disturb each other. A file that
    was missing when it was opened is created, unless it exists by then.

    Closing raises ConflictError if the file was removed or replaced since it was opened.
    """

    def __init__(
        self,
        volume: Callable[[], Volume],
        entry: Entry,
        upload: PhysicalWriter,
        *,
        is_new: bool = False,
    ) -> None:
        super().__init__(volume, entry, upload, reserved=False)
        self._is_new = is_new

    def __repr__(self) -> str:
        return f"<FileAppender {self.entry.path!r} {self._upload.size} bytes>"

    @property
    def mode(self) -> str:
        """`ab`."""
        return "ab"

    @property
    def position(self) -> int:
        """As `tell`, unless another client appends."""
        return self.entry.size + self._upload.size

    async def _finish(self) -> Entry:
        volume, entry = self._volume(), self.entry
        data = self._upload.take_unsent()
        if data is not None:
            view = memoryview(data)
            return await _change(
                volume,
                entry.path,
                lambda extents: _appended(extents, view),
                expected="" if self._is_new else entry.id,
                create=self._is_new,
            )
        content = await self._upload.finish()
        if self._is_new:
            return await _publish_new(volume, entry, content)
        return await publish_range(
            volume, entry.path, None, content, expected=entry.id, lease_ms=entry.lease_ms
        )


async def _publish_new(volume: Volume, new: Entry, content: Content) -> Entry:
    """Publish data that was uploaded for a new file: as the file, or, if another client has created
    one at the path, at the end of that, as a copy."""
    store, storage = volume.store, volume.storage.at(new.path)
    race = ConflictBackoff(store)
    is_repeated = False
    try:
        while True:
            target = await store.prepare(new.path)
            current = target.current
            if current is not None:
                need_readable(current)
                require_changeable(volume, current)
            if current is None and not is_repeated:
                target = replace(target, object_id=new.id, lease_ms=new.lease_ms)
            else:
                # After a lost race not under the former object id either: if the file was withdrawn
                # since its directory was removed, the log has the removal of that object.
                copied = await storage.copy_from(storage, content, target.object_id)
                unused = ConflictError("copied", path=new.path)
                await drop_unpublished(storage, content.physical, unused)
                content = copied
            if current is not None:
                break
            try:
                return await store.publish(target, content, overwrite=False)
            except (ConflictError, PathExistsError) as error:
                await race.lost(error)
            is_repeated = True
    except S3kError as error:
        await drop_unpublished(storage, content.physical, error)
        raise
    return await publish_range(
        volume, new.path, None, content, expected=current.id, lease_ms=target.lease_ms
    )


async def write_range(
    volume: Volume, path: str, offset: int, data: Buffer, *, create: bool = False
) -> Entry:
    """Replace the bytes of a file from an offset on, and extend it if they end after it. A gap
    between its end and the offset becomes a hole, which reads as zeros. `create`: a missing file is
    created."""
    return await write_ranges(volume, path, [(offset, data)], create=create)


async def write_ranges(
    volume: Volume,
    path: str,
    ranges: Sequence[tuple[int, Buffer]],
    *,
    expected: str = "",
    create: bool = False,
) -> Entry:
    """As `write_range`, of several ranges that do not overlap, in the order of their offsets and in
    one change. `expected`: the object id that the file must have, else ConflictError."""
    views = [(offset, bytes_of(data, path)) for offset, data in ranges]
    for offset, view in views:
        need_range(path, offset, len(view))
    return await _change(
        volume,
        path,
        lambda extents: _overwritten(extents, views),
        expected=expected,
        create=create,
    )


async def publish_range(
    volume: Volume,
    path: str,
    offset: int | None,
    content: Content,
    *,
    expected: str,
    lease_ms: int,
) -> Entry:
    """As `write_range`, of bytes that were uploaded for the file with the object id `expected`;
    None is its end. `lease_ms`: the end of the lease of the upload, epoch milliseconds. The upload
    is removed if it was not published."""
    new = whole_object(content)
    uploads = _Uploads(volume.storage.at(path))
    uploads.give([new], expected, lease_ms)

    def edit(extents: tuple[Extent, ...]) -> Sequence[Run]:
        return _overwritten(extents, [(_length(extents) if offset is None else offset, new)])

    return await _change(volume, path, edit, uploads=uploads, expected=expected)


async def truncate(volume: Volume, path: str, size: int, *, expected: str = "") -> Entry:
    """Give a file a size: cut off what is beyond, or add a hole, which reads as zeros. `expected`:
    as for `write_ranges`."""
    need_size(path, size)

    def edit(extents: tuple[Extent, ...]) -> Sequence[Run]:
        more = size - _length(extents)
        hole = [Extent("", 0, more)] if more > 0 else []
        return _apart(joined([*cut(extents, 0, size), *hole]))

    return await _change(volume, path, edit, expected=expected)


async def compact(volume: Volume, path: str, *, whole: bool) -> Entry:
    """Join the extents of a file to objects of up to COMPACTED bytes, without the bytes that it no
    longer refers to; `whole`: to one object, whose holes become zeros. The modification time stays.
    A file that is one object, and an extent longer than COMPACTED, stay as they are.
    """

    def edit(extents: tuple[Extent, ...]) -> Sequence[Run]:
        if whole:
            return [(*extents, _AGAIN)] if extents else []
        return _grouped(extents)

    return await _change(
        volume, path, edit, keeps_time=True, skips=lambda content: not has_extents(content.physical)
    )


async def concat(volume: Volume, path: str, sources: Sequence[str]) -> ChangeResult:
    """Append files to another one and remove them, in one transaction. Their objects are copied,
    in the service where it can: each physical object belongs to one file. The result counts the
    files that were appended."""
    named = Counter((path, *sources))
    if named.total() > len(named):
        raise InvalidArgumentError("a file is named twice", path=named.most_common(1)[0][0])
    need_extents(volume, path)
    race = ConflictBackoff(volume.store)
    while True:
        entry, *others = [await existing(volume.store, each) for each in (path, *sources)]
        volume.store.refuse_read_only(entry, *others)
        need_readable(entry)
        volume.store.access.require(entry, WRITE)
        for each in others:
            require_readable(volume.store, each)
            await volume.store.access.permit_removal(each)
        done = ChangeResult(files=len(others), bytes=sum(each.size for each in others))
        if not others:
            return done
        need_size(path, entry.size + done.bytes)
        uploads = _Uploads(volume.storage.at(path))
        is_needed = False

        def keep() -> None:
            nonlocal is_needed
            is_needed = True

        try:
            await _concat(volume, entry, others, uploads, keep)
        except S3kError as error:
            if not is_needed and not isinstance(error, OutcomeUnknownError):
                await uploads.drop(ConflictError("nothing was changed", path=path))
            if not isinstance(error, ConflictError):
                raise
            await race.lost(error)
        else:
            return done


async def _concat(
    volume: Volume,
    entry: Entry,
    others: Sequence[Entry],
    uploads: _Uploads,
    keep_data: Callable[[], None],
) -> None:
    """One attempt, which raises ConflictError if one of the files was changed since."""
    storage = volume.storage.at(entry.path)
    lease_ms = volume.store.target(entry.path, entry).lease_ms
    extents = list(extents_of(entry.content, entry.id))
    for each in others:
        copied = await storage.copy_from(storage, each.content, entry.id)
        added = extents_of(copied, entry.id)
        uploads.give(added, entry.id, lease_ms)
        extents += added
    content = content_of(
        entry.id, await uploads.extents(_compacted(_apart(joined(extents)), entry.path))
    )
    write = WriteFile(
        entry.path,
        entry.id,
        content,
        lease_ms,
        replaces=True,
        overwrite=True,
        version=entry.version,
    )
    removals = [Remove(each, recursive=False, missing_ok=False) for each in others]
    await commit_mutations(volume.store, [write, *removals], keep_data=keep_data)
    await uploads.drop_unused(content.physical)


async def compacted(
    storage: PhysicalStorage, object_id: str, extents: Iterable[Extent], path: str
) -> list[Extent]:
    """The same content in as few extents as a file may have, for a file that is not published yet.
    The objects of extents that are joined stay. Raises UnsupportedError, and the errors of
    `PhysicalStorage.read`; then no new object is left."""
    made = _Uploads(storage.at(path))
    made.give((), object_id, 0)
    try:
        return joined(await made.extents(_compacted(_apart(joined(extents)), path)))
    except S3kError:
        await made.drop(ConflictError("nothing was published", path=path))
        raise


def require_changeable(volume: Volume, entry: Entry) -> None:
    """Raise UnsupportedError for an adopted file, which cannot be changed in place, and
    PermissionDeniedError if the identity may not write it."""
    volume.store.access.require(entry, WRITE)
    extents_of(entry.content, entry.id)


def need_extents(volume: Volume, path: str) -> None:
    """Raise UnsupportedError unless files of the volume may have extents, ReadOnlyVolumeError for
    a volume that cannot be changed."""
    volume.store.require_writable(path)
    if not volume.storage.extents:
        raise UnsupportedError(
            "files of the volume can only be written as a whole: s3k migrate --enable extents lets "
            "them be changed in place",
            path=path,
        )


async def _change(
    volume: Volume,
    path: str,
    edit: Edit,
    *,
    create: bool = False,
    uploads: _Uploads | None = None,
    expected: str = "",
    keeps_time: bool = False,
    skips: Callable[[Content], bool] = lambda _: False,
) -> Entry:
    """Publish the content that `edit` makes of a file's extents. No new version is made if nothing
    changes.

    `create`: a file that does not exist is created; else it has to exist. `uploads`: with objects
    that were uploaded for the file before. `expected`: the object id that the file must have.
    `keeps_time`: the modification time stays. `skips`: whether nothing is changed in a file with
    this content.
    """
    need_extents(volume, path)
    store = volume.store
    prepare = store.prepare if create else store.prepare_existing
    race = ConflictBackoff(store)
    made = uploads or _Uploads(volume.storage.at(path))
    try:
        while True:
            try:
                target = await prepare(path)
            except PathNotFoundError as error:
                if expected:
                    raise _gone(path) from error
                raise
            current = target.current
            if expected and (current is None or current.id != expected):
                raise _gone(path)
            if current is not None:
                need_readable(current)
            lease_ms = await made.begin(target)
            before = () if current is None else extents_of(current.content, current.id)
            is_done = current is not None and skips(current.content)
            runs = _apart(before) if is_done else edit(before)
            need_size(path, sum(map(_size, runs)))
            try:
                after = joined(await made.extents(_compacted(runs, path)))
            except (CorruptDataError, DataMissingError) as error:
                raise type(error)(error.message, path=path) from error  # not that of an object
            content = content_of(target.object_id, after)
            if current is not None and tuple(after) == before and not _is_renamed(current, content):
                await made.drop_unused(current.content.physical)
                return current
            try:
                entry = await store.publish(
                    replace(target, lease_ms=lease_ms),
                    content,
                    mtime_ms=current.mtime_ms if current is not None and keeps_time else None,
                )
            except ConflictError as error:
                await race.lost(error)
            else:
                await made.drop_unused(content.physical)
                return entry
    except S3kError as error:
        await made.drop(error)
        raise


def _is_renamed(current: Entry, content: Content) -> bool:
    """Whether the same extents have another physical name: that of the object that they are."""
    return content.size > 0 and content.physical != current.content.physical


def _gone(path: str) -> ConflictError:
    return ConflictError("the file was removed or replaced since it was opened", path=path)


class _Uploads:
    """The physical objects that one change has made for a file. Those of an earlier attempt are
    used again, unless another file is at the path by now."""

    def __init__(self, storage: PhysicalStorage) -> None:
        self._storage = storage
        self._object_id = ""
        self._lease_ms = 0
        self._made: dict[tuple[object, ...], Extent] = {}
        """By the run that each holds."""
        self._given: list[Extent] = []
        """Those that were made outside."""

    def give(self, extents: Iterable[Extent], object_id: str, lease_ms: int) -> None:
        """Take over extents of objects that were made for a file, before the lease ends."""
        self._object_id, self._lease_ms = object_id, lease_ms
        self._given += extents

    async def begin(self, target: WriteTarget) -> int:
        """Begin an attempt; returns the lease of the objects, epoch milliseconds."""
        if self._object_id != target.object_id:
            await self.drop(ConflictError("another file is at the path by now", path=target.path))
            self._made.clear()
            self._object_id, self._lease_ms = target.object_id, target.lease_ms
        return self._lease_ms

    async def extents(self, runs: Sequence[Run]) -> list[Extent]:
        """The extents that hold the runs; those of several pieces, or of new bytes, are stored."""
        return await gather(self._extent, runs, limit=UPLOADS)

    async def _extent(self, run: Run) -> Extent:
        if len(run) == 1 and isinstance(run[0], Extent):
            return run[0]
        if _is_again(run) and (found := await self._covering(run[0])):
            return found
        key = tuple(each if isinstance(each, Extent) else id(each) for each in run)
        if key not in self._made:
            self._made[key] = await self._stored(run)
        return self._made[key]

    async def _stored(self, run: Run) -> Extent:
        if len(run) == 1 and isinstance(run[0], memoryview):
            content = await self._storage.put(self._object_id, run[0])
        else:
            content = await self._joined(run)
        return whole_object(content)

    async def _covering(self, piece: Piece) -> Extent | None:
        """An extent that needs not be stored again, since it has all bytes of its object."""
        if not isinstance(piece, Extent) or piece.is_hole or piece.offset:
            return None
        is_all = piece.covers or await self._storage.has_size(piece.key, piece.length)
        return replace(piece, covers=True) if is_all else None

    async def _joined(self, run: Run) -> Content:
        """Store pieces as one object: long ranges of others are copied inside the service, where it
        can, and short ones read."""
        writer = self._storage.writer(self._object_id)
        pieces = [each for each in run if _size((each,))]
        try:
            for number, piece in enumerate(pieces, 1):
                if isinstance(piece, memoryview):
                    await writer.write(piece)
                    continue
                name = format_extents(self._object_id, [piece])
                content = Content(name, piece.length, "", "")
                is_last = number == len(pieces)
                await self._storage.add_range(writer, content, 0, piece.length, is_last=is_last)
            return await writer.finish()
        except BaseException:
            await writer.abort()
            raise

    async def drop(self, reason: S3kError) -> None:
        """Remove all of them, if the reason shows that no entry refers to them."""
        for each in (*self._made.values(), *self._given):
            if each.key:
                await drop_unpublished(self._storage, each.key, reason)

    async def drop_unused(self, physical: str) -> None:
        """Remove those that the published physical name does not refer to."""
        kept = physical_keys(physical)
        for each in (*self._made.values(), *self._given):
            if each.key and each.key not in kept:
                await drop_unpublished(
                    self._storage, each.key, ConflictError("not published", path=each.key)
                )


def _apart(extents: Iterable[Extent]) -> list[Run]:
    """Extents that stay as they are."""
    return [(each,) for each in extents]


def _overwritten(extents: Sequence[Extent], pieces: Iterable[tuple[int, Piece]]) -> list[Run]:
    """The content with pieces at these offsets, which are in order and do not overlap."""
    size, end = _length(extents), 0
    runs: list[Run] = []
    for offset, piece in pieces:
        if not _size((piece,)):
            continue
        gap = [Extent("", 0, offset - max(size, end))] if offset > max(size, end) else []
        runs += _apart(joined([*cut(extents, end, offset), *gap]))
        runs.append((piece,))
        end = offset + _size((piece,))
    return [*runs, *_apart(cut(extents, end, size))]


def _length(extents: Iterable[Extent]) -> int:
    return sum(each.length for each in extents)


def _size(run: Run) -> int:
    return sum(each.length if isinstance(each, Extent) else len(each) for each in run)


def _appended(extents: Sequence[Extent], data: memoryview) -> list[Run]:
    """The content with bytes at its end, stored together with the extents before them that are
    together no longer."""
    if not len(data):
        return _apart(extents)
    kept, taken, total = list(extents), deque[Piece]([data]), len(data)
    while kept and kept[-1].key and kept[-1].length <= min(total, MERGED - total):
        last = kept.pop()
        taken.appendleft(last)
        total += last.length
    return [*_apart(kept), tuple(taken)]


def _grouped(extents: Iterable[Extent]) -> list[Run]:
    """Neighbours that are stored together, up to COMPACTED bytes. Holes stay as they are, and of
    the extents without neighbours those that cover their object, and longer ones."""
    groups: list[list[Extent]] = []
    for each in extents:
        last = groups[-1] if groups else None
        if (
            last is not None
            and each.key
            and last[-1].key
            and _length(last) + each.length <= COMPACTED
        ):
            last.append(each)
        else:
            groups.append([each])
    return [
        (*group, _AGAIN) if len(group) == 1 and _is_partial(group[0]) else tuple(group)
        for group in groups
    ]


def _is_again(run: Run) -> bool:
    """Whether the run is one extent that is to be stored again."""
    return len(run) == 2 and run[1] is _AGAIN


def _is_partial(extent: Extent) -> bool:
    """Whether an object of up to COMPACTED bytes can replace one of which only a part is used."""
    return bool(extent.key) and not extent.checksum and extent.length <= COMPACTED


def _compacted(runs: Sequence[Run], path: str) -> list[Run]:
    """The same content in at most HARD_LIMIT runs, and in fewer if that rewrites little. Raises
    UnsupportedError if holes that are too long to be filled keep more apart."""
    if len(runs) <= MOST_EXTENTS:
        return list(runs)
    joins = _Joins(runs)
    new = sum(_size(run) for run in runs if _rewrites(run) == 0)
    joins.join(LEFT_EXTENTS, max(REWRITTEN, 2 * new))
    if joins.left > HARD_LIMIT:
        joins.join(HARD_LIMIT // 2, math.inf)
    if joins.left > HARD_LIMIT:
        raise UnsupportedError(
            f"the file would have {joins.left:,} extents, and not more than {HARD_LIMIT:,} are "
            "possible between long holes: write larger ranges, or fill its holes by s3k compact "
            "--whole",
            path=path,
        )
    return joins.runs()


class _Joins:
    """Runs of which neighbours are joined, those first that rewrite the fewest bytes."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.left = len(runs)
        """Runs that are left."""
        self._runs = runs
        self._costs = [math.inf if _is_long_hole(run) else _rewrites(run) for run in runs]
        """What joining a run to a neighbour rewrites, bytes: nothing, once it is joined to one."""
        self._is_joined = [False] * len(runs)
        """Whether a run is joined to the one before it."""
        self._heap = [(self._cost(place), place) for place in range(1, len(runs))]
        heapify(self._heap)

    def join(self, most: int, budget: float) -> None:
        """Join neighbours until `most` are left, or the next ones rewrite more than is left of the
        budget."""
        while self.left > most and self._heap:
            cost, place = self._heap[0]
            if self._is_joined[place] or cost != self._cost(place):
                heappop(self._heap)
                continue
            if cost > budget or cost == math.inf:
                return
            heappop(self._heap)
            budget -= cost
            self.left -= 1
            self._is_joined[place] = True
            self._costs[place - 1] = self._costs[place] = 0
            for near in (place - 1, place + 1):
                if 0 < near < len(self._runs) and not self._is_joined[near]:
                    heappush(self._heap, (self._cost(near), near))

    def runs(self) -> list[Run]:
        """The runs that are left."""
        found: list[list[Piece]] = []
        for run, is_joined in zip(self._runs, self._is_joined, strict=True):
            if is_joined:
                found[-1].extend(run)
            else:
                found.append(list(run))
        return [tuple(run) for run in found]

    def _cost(self, place: int) -> float:
        return self._costs[place - 1] + self._costs[place]


def _is_long_hole(run: Run) -> bool:
    only = run[0] if len(run) == 1 else None
    return isinstance(only, Extent) and only.is_hole and only.length > COMPACTED


def _rewrites(run: Run) -> int:
    """What joining the run to another one rewrites: nothing if it is to be written anyway."""
    only = run[0] if len(run) == 1 else None
    return only.length if isinstance(only, Extent) else 0


def need_range(path: str, offset: int, length: int = 0) -> None:
    """Raise ArgumentTypeError or InvalidArgumentError unless a file can have bytes in the range."""
    _need_bytes(offset, path, "an offset")
    need_size(path, offset + length)


def need_size(path: str, size: int) -> None:
    """Raise ArgumentTypeError or InvalidArgumentError unless a file can have the size."""
    _need_bytes(size, path, "a size")


def _need_bytes(value: int, path: str, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentTypeError(f"{what} is a number, not {type(value).__name__}", path=path)
    if not 0 <= value <= LARGEST_FILE:
        raise InvalidArgumentError(
            f"{what} of a file is 0 to {LARGEST_FILE:,} bytes, not {value:,}", path=path
        )
