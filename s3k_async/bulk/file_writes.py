"""Writes of many files: parallel uploads, entries published a hundred in a request.

The files are divided into windows. The paths of a window are read together, its data is uploaded
under one limit for the whole call, and its entries are published together. A file that lost a race
is written again individually, and so is a large file, concurrently with its window.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from functools import partial

import anyio

from s3k_async._core.concurrency import ByteBudget, iterate, run_all
from s3k_async.attributes import Attributes
from s3k_async.backends.ports.blobs import Buffer
from s3k_async.bulk.publish import Plan, Upload, publish_new
from s3k_async.errors import (
    ArgumentTypeError,
    BlobChangedError,
    ConflictError,
    InvalidArgumentError,
    PathExistsError,
    S3kError,
)
from s3k_async.files.open_files import bytes_of, drop_unpublished
from s3k_async.model import ROOT, ChangeResult, ChangeTally, Content, Entry
from s3k_async.namespace.file_batches import FileBatch, Published, prepare_many
from s3k_async.namespace.store import WriteTarget
from s3k_async.storage.planned_upload import PlannedUpload
from s3k_async.volumes.volume import Volume

__all__ = ["LARGE", "NewFile", "write_files", "write_many", "written_alone"]

LARGE = 8 * 1024 * 1024
"""Bytes from which on a file of a tree is written individually: the others of its window would
wait for it, and be published late."""

WINDOW_FILES = 1000
WINDOW_BYTES = 64 * 1024 * 1024
"""Limits of a window, of which the first one reached applies."""
WINDOWS = 2
"""Concurrent windows: one uploads while the other is published or prepared."""
UPLOADS = 128
"""Concurrent uploads of one call."""
UPLOAD_BYTES = 64 * 1024 * 1024
"""Bytes uploaded at the same time by one call; a larger file is uploaded alone."""
LOST = 16
"""Files that lost a race and are written individually, concurrently."""


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file to be written. Its content is read when it is uploaded."""

    path: str
    size: int
    """Bytes that the upload holds in memory."""
    upload: Upload
    alone: Callable[[], Awaitable[int]] | None = None
    """For a large file, how it is written by itself, which returns its size."""
    source: str = ""
    """What is copied to the path, in messages."""
    attributes: Attributes | None = None
    """Its attributes; None: a file that is replaced keeps its own."""
    mtime_ms: int | None = None
    """Its modification time; None is when it is published."""
    plan: Plan | None = None
    """How it is uploaded if its content is known in advance."""


def written_alone(volume: Volume, file: NewFile, *, overwrite: bool) -> NewFile:
    """The file, to be written individually: a large one."""

    async def alone() -> int:
        published = await publish_new(
            volume,
            file.path,
            file.upload,
            overwrite=overwrite,
            attributes=file.attributes,
            mtime_ms=file.mtime_ms,
        )
        return published.size

    return replace(file, alone=alone)


async def write_many(
    volume: Volume,
    files: Iterable[tuple[str | os.PathLike[str], Buffer]],
    normalise: Callable[[str | os.PathLike[str]], str],
    *,
    overwrite: bool,
) -> ChangeResult:
    """Write each file of the list; the result lists the failures."""
    volume.store.require_writable(ROOT)
    tally = ChangeTally()

    def done(_: NewFile, size: int) -> None:
        tally.files += 1
        tally.bytes += size

    def failed(file: NewFile, error: S3kError) -> None:
        tally.failures.append((file.path, error))

    fit = _distinct(_given(volume, files, normalise, tally), tally)
    await write_files(volume, fit, overwrite=overwrite, done=done, failed=failed)
    return tally.result()


def _given(
    volume: Volume,
    files: Iterable[object],
    normalise: Callable[[str | os.PathLike[str]], str],
    tally: ChangeTally,
) -> list[NewFile]:
    """The list with normalised paths, without invalid paths or data."""
    found = []
    for each in files:
        if isinstance(each, str) or not isinstance(each, Sequence) or len(each) != 2:
            raise ArgumentTypeError(f"a file to write is (path, data), not {type(each).__name__}")
        given, data = each
        path = str(given)
        try:
            path = normalise(given)
            view = bytes_of(data, path)
        except S3kError as error:
            tally.failures.append((path, error))
        else:
            upload, plan = partial(_put, volume, view), partial(_planned, volume, view)
            found.append(NewFile(path, len(view), upload, plan=plan))
    return found


async def _put(volume: Volume, view: memoryview, target: WriteTarget) -> Content:
    return await volume.storage.at(target.path).put_in_bulk(target.object_id, view)


def _planned(volume: Volume, view: memoryview, target: WriteTarget) -> PlannedUpload | None:
    return volume.storage.at(target.path).planned(target.object_id, view) if len(view) else None


def _distinct(files: list[NewFile], tally: ChangeTally) -> list[NewFile]:
    """The files without duplicate paths, whose final content would be ambiguous."""
    named = Counter(file.path for file in files)
    for path, count in named.items():
        if count > 1:
            error = InvalidArgumentError(f"the path is named {count} times in one list", path=path)
            tally.failures.append((path, error))
    return [file for file in files if named[file.path] == 1]


async def write_files(
    volume: Volume,
    files: Iterable[NewFile] | AsyncIterable[NewFile],
    *,
    overwrite: bool,
    done: Callable[[NewFile, int], object],
    failed: Callable[[NewFile, S3kError], object],
) -> None:
    """Write files at different paths; missing parents are created. Each of them succeeds or fails
    by itself: one of `done`, with its size, and `failed` is called. What these raise ends the
    call. Files are taken from `files` as they can be written."""
    load = _Load(volume, overwrite, done, failed)
    await run_all(load.window, _windows(files), limit=WINDOWS)


async def _windows(
    files: Iterable[NewFile] | AsyncIterable[NewFile],
) -> AsyncGenerator[list[NewFile], None]:
    window: list[NewFile] = []
    size = 0
    async for file in iterate(files):
        window.append(file)
        size += file.size
        if len(window) == WINDOW_FILES or size >= WINDOW_BYTES:
            yield window
            window, size = [], 0
    if window:
        yield window


@dataclass(slots=True)
class _Load:
    """The write of some files."""

    volume: Volume
    overwrite: bool
    done: Callable[[NewFile, int], object]
    failed: Callable[[NewFile, S3kError], object]
    budget: ByteBudget = field(default_factory=lambda: ByteBudget(UPLOAD_BYTES))
    uploading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(UPLOADS))
    beginning: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Windows begin their uploads one after the other, so that the first can be published while
    the others upload."""
    preparing: anyio.Lock = field(default_factory=anyio.Lock)
    """Windows read directories one after the other, so that each can use the directories that
    earlier ones have read or created."""

    async def window(self, files: list[NewFile]) -> None:
        """Write some files."""
        large = [file for file in files if file.alone is not None]
        small = [file for file in files if file.alone is None]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(run_all, self._alone, large, limit=LOST))
            await self._together(small)

    async def _together(self, files: list[NewFile]) -> None:
        """Write some files together, and those that lost a race individually."""
        named = {file.path: file for file in files}
        targets = await self._targets(named)
        window = _Window(self, named, targets)
        async with anyio.create_task_group() as tasks:
            async with self.beginning:
                tasks.start_soon(partial(run_all, window.upload, targets, limit=UPLOADS))
                await window.all_begun.wait()
            published = await window.publish()
        lost = await self._sort_out(published, named, window.uploads)
        await run_all(self._alone, lost, limit=LOST)

    async def _targets(self, named: Mapping[str, NewFile]) -> list[WriteTarget]:
        targets = []
        try:
            async with self.preparing:
                found = await prepare_many(self.volume.store, list(named), overwrite=self.overwrite)
        except S3kError as error:
            for file in named.values():
                self.failed(file, error)
            return []
        for path, prepared in found.items():
            if isinstance(prepared, S3kError):
                self.failed(named[path], prepared)
            elif prepared.current is not None and not self.overwrite:
                self.failed(named[path], PathExistsError("the file exists", path=path))
            else:
                targets.append(prepared)
        return targets

    async def _sort_out(
        self, published: Published, named: Mapping[str, NewFile], uploads: Mapping[str, Content]
    ) -> list[NewFile]:
        """Report the uploads that were published; returns the files that lost a race."""
        lost = []
        unpublished = []
        failures = []
        for path, content in uploads.items():
            file, outcome = named[path], published[path]
            if isinstance(outcome, Entry):
                self.done(file, outcome.size)
                continue
            unpublished.append((content.physical, outcome))
            if isinstance(outcome, ConflictError):
                lost.append(file)
            else:
                failures.append((file, outcome))
        await run_all(
            lambda one: drop_unpublished(self.volume.storage, *one), unpublished, limit=LOST
        )
        for failure in failures:
            self.failed(*failure)
        return lost

    async def _alone(self, file: NewFile) -> None:
        try:
            if file.alone is not None:
                size = await file.alone()
            else:
                entry = await publish_new(
                    self.volume,
                    file.path,
                    file.upload,
                    overwrite=self.overwrite,
                    attributes=file.attributes,
                    mtime_ms=file.mtime_ms,
                )
                size = entry.size
        except S3kError as error:
            self.failed(file, error)
        else:
            self.done(file, size)


class _Window:
    """Files whose entries are published together. They are logged as soon as the content of all is
    known, while the data of planned uploads is still being stored."""

    def __init__(
        self, load: _Load, named: Mapping[str, NewFile], targets: Sequence[WriteTarget]
    ) -> None:
        self.uploads: dict[str, Content] = {}
        """The data that was stored, by path."""
        self._load = load
        self._named = named
        self._batch = FileBatch(load.volume.store, overwrite=load.overwrite)
        self._storing: dict[str, asyncio.Future[bool]] = {}
        """Planned uploads, by path."""
        self.all_begun = _Countdown(len(targets))
        """Ends when all uploads have begun."""
        self._all_known = _Countdown(len(targets))
        """Ends when each file is in the batch, or has failed."""

    async def publish(self) -> Published:
        """Publish the files, once the content of all is known."""
        await self._all_known.wait()
        if self._storing:
            self._batch.stored = self._stored
        return await self._batch.publish()

    async def upload(self, target: WriteTarget) -> None:
        """Upload a file. A failure is reported."""
        load, file = self._load, self._named[target.path]
        planned = None
        try:
            async with load.uploading, load.budget.hold(file.size):
                self.all_begun.count()
                planned = None if file.plan is None else file.plan(target)
                if planned is None:
                    content = await file.upload(target)
                else:
                    self._add(file, target, planned.content)
                    content = await self._store(file.path, planned)
        except S3kError as error:
            load.failed(file, error)
            if planned is None:
                self._all_known.count()
        else:
            self.uploads[file.path] = content
            if planned is None:
                self._add(file, target, content)

    def _add(self, file: NewFile, target: WriteTarget, content: Content) -> None:
        """Add a file to the batch: now, while others wait for the service."""
        attributes = None if file.attributes is None else file.attributes.to_json()
        try:
            self._batch.add(target, content, attributes, mtime_ms=file.mtime_ms)
        finally:
            self._all_known.count()

    async def _store(self, path: str, planned: PlannedUpload) -> Content:
        """The content as it was stored. If it is not as planned, the file is not published."""
        stored = self._storing[path] = asyncio.get_running_loop().create_future()
        as_planned = False
        try:
            await planned.store()
            as_planned = True
        except BlobChangedError:
            if planned.stored is None:
                raise
        finally:
            stored.set_result(as_planned)
        assert planned.stored is not None
        return planned.stored

    async def _stored(self) -> Collection[str]:
        """Wait for the planned uploads; returns the paths whose data was not stored as planned."""
        await asyncio.wait(self._storing.values())
        return [path for path, stored in self._storing.items() if not stored.result()]


class _Countdown:
    """Ends after a number of events."""

    def __init__(self, left: int) -> None:
        self._left = left
        self._ended = asyncio.Event()
        if not left:
            self._ended.set()

    def count(self) -> None:
        """One event has occurred."""
        self._left -= 1
        if not self._left:
            self._ended.set()

    async def wait(self) -> None:
        """Wait for the last event."""
        await self._ended.wait()
