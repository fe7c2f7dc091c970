"""A directory of a volume as a tree."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import PurePosixPath

from s3k_async._core.active_calls import call
from s3k_async._core.object_version import digest_in
from s3k_async._native import normalize
from s3k_async.bulk.copying import copied_file, make_directory_like
from s3k_async.bulk.expected_objects import delete_seen
from s3k_async.bulk.file_writes import NewFile, write_files
from s3k_async.bulk.transfer import verified
from s3k_async.client import S3kClient, volume_of
from s3k_async.errors import NotDirectoryError, PathNotFoundError, PermissionDeniedError, S3kError
from s3k_async.listing.listings import Listing
from s3k_async.model import Entry, status_of
from s3k_async.namespace.addresses import Path, inside
from s3k_async.trees.file_tree import (
    FailedFile,
    FileTree,
    Skipped,
    TreeEntry,
    TreePlace,
    WrittenFile,
)
from s3k_async.volumes.connections import hot_location
from s3k_async.volumes.volume import Volume

__all__ = ["VolumeTree"]


class VolumeTree:
    """A directory of a volume. `client` is open; `path` need not exist. Reservations are left
    out."""

    lists_directories = True
    is_local = False
    has_contents = True

    def __init__(self, client: S3kClient, path: Path = "/") -> None:
        self.client = client
        self.root = normalize(inside(path, client.name))

    def __repr__(self) -> str:
        return f"<VolumeTree {self.label}>"

    @property
    def label(self) -> str:
        """The root as an address."""
        return self.full_name("")

    @property
    def places(self) -> Sequence[TreePlace]:
        """The directory in the volume, and the local directories of the volume, without symbolic
        links."""
        volume = volume_of(self.client)
        found = [TreePlace(volume.record.volume_id, self.root)]
        return [*found, *(TreePlace("", os.path.realpath(each)) for each in _directories(volume))]

    def full_name(self, path: str) -> str:
        """The path of an entry, with the volume."""
        prefix = self.client.config.path_prefix or f"s3k://{self.client.name}"
        return prefix + self.path_of(path)

    def path_of(self, path: str) -> str:
        """The path of an entry in the volume."""
        return normalize(f"{self.root}/{path}")

    async def exists(self) -> bool:
        """Whether the directory exists. A missing one costs a request for each directory above."""
        root = PurePosixPath(self.root)
        for place in (root, *root.parents):
            try:
                status = await self.client.stat(str(place))
            except PathNotFoundError:
                continue
            if status.is_dir:
                return place == root
            reason = "a tree is a directory; s3k cp and s3k get copy single files"
            raise NotDirectoryError(
                reason if place == root else f"the path leads through a file, {place}",
                path=self.label,
            )
        return False

    async def entries(self, skipped: Skipped) -> AsyncGenerator[TreeEntry, None]:
        """Everything below the directory, as a sorted listing shows it. The content of a directory
        that may not be listed is skipped. Raises PermissionDeniedError for the root."""
        volume = volume_of(self.client)
        start = len(self.root.rstrip("/")) + 1

        def denied(error: PermissionDeniedError) -> None:
            if error.path is None or error.path == self.root:
                raise error
            skipped(self.full_name(error.path[start:]), error)

        pages = Listing(recursive=True, sorted=True).pages(volume.store, self.root, denied=denied)
        async with aclosing(volume.calls.stream(pages, "list", self.root)) as found:
            async for page in found:
                for entry in page:
                    yield _tree_entry(entry, entry.path[start:])

    async def content(self, entry: TreeEntry) -> AsyncGenerator[bytes, None]:
        """The bytes of the file at the path, verified by its checksum."""
        async with (
            self.client.open(self.path_of(entry.path), "rb") as reader,
            aclosing(verified(reader)) as pieces,
        ):
            async for piece in pieces:
                yield piece

    def new_file(
        self, entry: TreeEntry, volume: Volume, path: str, *, overwrite: bool = True
    ) -> NewFile:
        """A copy inside the service where that is possible, with the attributes of the file."""
        assert entry.entry is not None
        origin = volume_of(self.client)
        return copied_file(
            origin, entry.entry, volume, path, overwrite=overwrite, mtime_ms=entry.mtime_ms
        )

    async def make_directory(self, source: FileTree, entry: TreeEntry) -> None:
        """A directory, with the attributes of that of another volume."""
        if entry.entry is not None and isinstance(source, VolumeTree):
            await _make_like(self.client, entry.entry, self.path_of(entry.path))
        else:
            await self.client.makedirs(self.path_of(entry.path))

    async def copy_files(
        self,
        source: FileTree,
        files: AsyncIterable[TreeEntry],
        *,
        overwrite: bool = True,
        done: WrittenFile,
        failed: FailedFile,
    ) -> None:
        """Windows of files are written together, as by `write_many`."""
        volume = volume_of(self.client)
        known: dict[str, TreeEntry] = {}

        async def new_files() -> AsyncGenerator[NewFile, None]:
            async for entry in files:
                try:
                    path = self.path_of(entry.path)
                    file = source.new_file(entry, volume, path, overwrite=overwrite)
                except S3kError as error:
                    failed(entry, error)
                else:
                    known[path] = entry
                    yield replace(file, mtime_ms=entry.mtime_ms)

        await _write(
            self.client,
            new_files(),
            overwrite=overwrite,
            done=lambda file, size: done(known.pop(file.path), size),
            failed=lambda file, error: failed(known.pop(file.path), error),
        )

    async def write_file(self, file: NewFile, *, overwrite: bool) -> None:
        """Write a file, and its missing parent directories."""
        failures: list[S3kError] = []
        await _write(
            self.client,
            _one(file),
            overwrite=overwrite,
            done=lambda *_: None,
            failed=lambda _, error: failures.append(error),
        )
        for error in failures:
            raise error

    async def remove_listed(self, entries: Sequence[TreeEntry], *, failed: FailedFile) -> None:
        """Removals on the condition that an entry has the id and version that was listed."""
        seen = {each.entry.path: each for each in entries if each.entry is not None}
        statuses = [status_of(each.entry) for each in seen.values() if each.entry is not None]
        for path, error in (await delete_seen(self.client, statuses)).items():
            failed(seen[path], error)


def _directories(volume: Volume) -> list[str]:
    """The local directories of a volume: that of its table, and what is its own in the locations of
    its data and log."""
    config, record = volume.config, volume.record
    places = [config.data, config.log, hot_location(config, record.hot)]
    found = [each.directory for each in places if each is not None]
    own = [os.path.join(each, record.scope) for each in found if each is not None]
    return own if config.table.directory is None else [*own, config.table.directory]


async def _one(file: NewFile) -> AsyncGenerator[NewFile, None]:
    yield file


def _tree_entry(entry: Entry, path: str) -> TreeEntry:
    if entry.is_dir:
        return TreeEntry(path, True, entry=entry)
    return TreeEntry(
        path,
        False,
        entry.size,
        entry.mtime_ms,
        etag=entry.etag,
        checksum=digest_in(entry.checksum),
        entry=entry,
    )


@call
async def _write(
    client: S3kClient,
    files: AsyncIterable[NewFile],
    *,
    overwrite: bool,
    done: Callable[[NewFile, int], object],
    failed: Callable[[NewFile, S3kError], object],
) -> None:
    await write_files(volume_of(client), files, overwrite=overwrite, done=done, failed=failed)


@call
async def _make_like(client: S3kClient, entry: Entry, path: str) -> None:
    await make_directory_like(entry, volume_of(client), path)
