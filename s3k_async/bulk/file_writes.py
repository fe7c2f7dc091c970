"""Writes of many files: parallel uploads, entries published a hundred in a request.

The list is divided into windows. The paths of a window are read together, its data is uploaded
under one limit for the whole call, and its entries are published together. A file that lost a race
is written again individually.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import anyio

from s3k_async._core.concurrency import ByteBudget, run_all
from s3k_async.backends.ports.blobs import Buffer
from s3k_async.bulk.publish import write
from s3k_async.errors import (
    ArgumentTypeError,
    ConflictError,
    InvalidArgumentError,
    PathExistsError,
    S3kError,
)
from s3k_async.files.open_files import bytes_of, drop_unpublished
from s3k_async.model import ROOT, ChangeResult, Content, Entry
from s3k_async.namespace.file_batches import prepare_many, publish_many
from s3k_async.namespace.store import WriteTarget
from s3k_async.volumes.volume import Volume

__all__ = ["write_many"]

WINDOW_FILES = 1000
WINDOW_BYTES = 64 * 1024 * 1024
"""Limits of a window, of which the first one reached applies."""
WINDOWS = 2
"""Concurrent windows: one uploads while the other is published."""
UPLOADS = 64
"""Concurrent uploads of one window."""
UPLOAD_BYTES = 64 * 1024 * 1024
"""Bytes uploaded at the same time by one call; a larger file is uploaded alone."""
LOST = 16
"""Files that lost a race and are written individually, concurrently."""

_File: TypeAlias = tuple[str, memoryview]


async def write_many(
    volume: Volume,
    files: Iterable[tuple[str | os.PathLike[str], Buffer]],
    normalise: Callable[[str | os.PathLike[str]], str],
    *,
    overwrite: bool,
) -> ChangeResult:
    """Write each file of the list; the result lists the failures."""
    volume.store.require_writable(ROOT)
    load = _Load(volume, overwrite)
    fit = load.distinct(load.given(files, normalise))
    await run_all(load.window, _windows(fit), limit=WINDOWS)
    return ChangeResult(load.files, 0, load.bytes, failures=tuple(load.failures))


def _windows(files: list[_File]) -> Iterator[list[_File]]:
    window: list[_File] = []
    size = 0
    for path, view in files:
        window.append((path, view))
        size += len(view)
        if len(window) == WINDOW_FILES or size >= WINDOW_BYTES:
            yield window
            window, size = [], 0
    if window:
        yield window


@dataclass(slots=True)
class _Load:
    """The write of one list of files."""

    volume: Volume
    overwrite: bool
    files: int = 0
    bytes: int = 0
    failures: list[tuple[str, Exception]] = field(default_factory=list)
    budget: ByteBudget = field(default_factory=lambda: ByteBudget(UPLOAD_BYTES))
    preparing: anyio.Lock = field(default_factory=anyio.Lock)
    """Windows read directories one after the other, so that each can use the directories that
    earlier ones have read or created."""

    def given(
        self,
        files: Iterable[object],
        normalise: Callable[[str | os.PathLike[str]], str],
    ) -> list[_File]:
        """The list with normalised paths and buffers that can be sliced, without invalid paths or
        data."""
        found = []
        for each in files:
            if isinstance(each, str) or not isinstance(each, Sequence) or len(each) != 2:
                raise ArgumentTypeError(
                    f"a file to write is (path, data), not {type(each).__name__}"
                )
            given, data = each
            path = str(given)
            try:
                path = normalise(given)
                found.append((path, bytes_of(data, path)))
            except S3kError as error:
                self.failures.append((path, error))
        return found

    def distinct(self, files: list[_File]) -> list[_File]:
        """The files without duplicate paths, whose final content would be ambiguous."""
        named = Counter(path for path, _ in files)
        for path, count in named.items():
            if count > 1:
                error = InvalidArgumentError(
                    f"the path is named {count} times in one list", path=path
                )
                self.failures.append((path, error))
        return [file for file in files if named[file[0]] == 1]

    async def window(self, files: list[_File]) -> None:
        """Write some files together, and those that lost a race individually."""
        views = dict(files)
        contents: list[tuple[WriteTarget, Content]] = []

        async def upload(target: WriteTarget) -> None:
            view = views[target.path]
            try:
                async with self.budget.hold(len(view)):
                    contents.append((target, await self.volume.storage.put(target.object_id, view)))
            except S3kError as error:
                self.failures.append((target.path, error))

        await run_all(upload, await self._targets(list(views)), limit=UPLOADS)
        lost = await self._publish(contents)
        await run_all(lambda path: self._alone(path, views[path]), lost, limit=LOST)

    async def _targets(self, paths: list[str]) -> list[WriteTarget]:
        targets = []
        try:
            async with self.preparing:
                found = await prepare_many(self.volume.store, paths)
        except S3kError as error:
            self.failures += [(path, error) for path in paths]
            return []
        for path, prepared in found.items():
            if isinstance(prepared, S3kError):
                self.failures.append((path, prepared))
            elif prepared.current is not None and not self.overwrite:
                self.failures.append((path, PathExistsError("the file exists", path=path)))
            else:
                targets.append(prepared)
        return targets

    async def _publish(self, contents: list[tuple[WriteTarget, Content]]) -> list[str]:
        """Publish the uploads; returns the paths that other clients changed meanwhile."""
        published = await publish_many(self.volume.store, contents, overwrite=self.overwrite)
        lost = []
        unpublished = []
        for target, content in contents:
            outcome = published[target.path]
            if isinstance(outcome, Entry):
                self._done(outcome)
                continue
            unpublished.append((content.physical, outcome))
            if isinstance(outcome, ConflictError):
                lost.append(target.path)
            else:
                self.failures.append((target.path, outcome))
        await run_all(
            lambda one: drop_unpublished(self.volume.storage, *one), unpublished, limit=LOST
        )
        return lost

    async def _alone(self, path: str, view: memoryview) -> None:
        try:
            self._done(await write(self.volume, path, view, overwrite=self.overwrite))
        except S3kError as error:
            self.failures.append((path, error))

    def _done(self, entry: Entry) -> None:
        self.files += 1
        self.bytes += entry.size
