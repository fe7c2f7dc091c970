"""`s3k://` for fsspec, and so for pandas, Dask, zarr, universal-pathlib and other users of
fsspec."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from contextlib import suppress
from glob import has_magic
from typing import Any, cast

from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.compression import compr
from fsspec.core import get_compression
from fsspec.utils import other_paths, stringify_path

from s3k_async._core.worker_threads import in_thread
from s3k_async._native import ancestors
from s3k_async.adapters import fsspec_listing as looking
from s3k_async.adapters.fsspec_arguments import overwrites, texts
from s3k_async.adapters.fsspec_base import blocking
from s3k_async.adapters.fsspec_changes import Pairs, rename
from s3k_async.adapters.fsspec_files import (
    CompressedFile,
    S3kAsyncFile,
    S3kReadFile,
    S3kWriteFile,
)
from s3k_async.adapters.fsspec_listing import is_reserved, status_of
from s3k_async.adapters.fsspec_reading import FILES
from s3k_async.adapters.fsspec_transfer import (
    FileTasks,
    GatheredWrites,
    gathered_writes,
    upload,
)
from s3k_async.adapters.fsspec_update import S3kUpdateFile, UpdatableFileSystem
from s3k_async.bulk.expected_objects import delete_seen
from s3k_async.client import S3kClient, reader_of, volume_of
from s3k_async.errors import (
    ConflictError,
    DirectoryNotEmptyError,
    InvalidArgumentError,
    IsDirectoryError,
    NotDirectoryError,
    PathNotFoundError,
    UnsupportedError,
)
from s3k_async.files.edits import need_extents, require_changeable
from s3k_async.files.open_files import FileWriter, check_mode
from s3k_async.model import ROOT, Entry, FileStatus
from s3k_async.transaction import at_commit

__all__ = ["S3kFileSystem"]

GATHERED = 200
"""Files of one `put` in flight, of which small ones are written together."""


class S3kFileSystem(UpdatableFileSystem):
    """A volume for fsspec, with the promises of the client (`s3k_async.S3kClient`).

    `volume` is that of `S3kClient`: `s3k://name`, `./directory`, or nothing for the configured
    default; the URL of a path names a volume, too. All other settings of the client have the same
    names (`region`, `endpoint`, `table`, `max_concurrency`, ...; also `config`, `context`,
    `hadoop`, `session`). Supported options of fsspec: `asynchronous`, `loop`, `batch_size`,
    `skip_instance_cache`, and `use_listings_cache` with `listings_expiry_time` and `max_paths`:
    without it nothing is cached, and every lookup is a strongly consistent read.

    Paths are absolute in the volume (`/raw/x`), or URLs of it: the URL of another volume is refused
    (CrossVolumeError). Any thread, event loop, and forked or spawned process may use one object;
    each has connections of its own. A pickle holds the configuration without secrets, which are
    resolved again in the process that loads it. A new file does not exist before it is published.
    Raises ConfigError, and the errors of the client's verbs.
    """

    # Writes

    async def _pipe_file(
        self, path: str, value: Any, mode: str = "overwrite", **kwargs: Any
    ) -> None:
        path = self._strip_protocol(path)
        try:
            await (await self._changes()).write(path, value, overwrite=overwrites(mode))
        finally:
            self.invalidate_cache(path)

    async def _pipe(
        self, path: Any, value: Any = None, batch_size: int | None = None, **kwargs: Any
    ) -> None:
        """Write bytes to a path, or a mapping of paths to bytes, up to a hundred files in a
        request."""
        if not isinstance(path, dict):
            await self._pipe_file(stringify_path(path), value, **kwargs)
            return
        overwrite = overwrites(kwargs.get("mode", "overwrite"))
        files = [(self._strip_protocol(each), data) for each, data in path.items()]
        try:
            await (await self._changes()).write_many(files, overwrite=overwrite)
        finally:
            for each, _ in files:
                self.invalidate_cache(each)

    async def _put_file(
        self,
        lpath: Any,
        rpath: str,
        callback: Any = DEFAULT_CALLBACK,
        mode: str = "overwrite",
        tasks: FileTasks | None = None,
        **kwargs: Any,
    ) -> None:
        """Upload a local file; for a local directory, make a directory."""
        with (tasks or FileTasks()).task():
            changes = await self._changes()
            path = self._strip_protocol(rpath)
            exclusive = not overwrites(mode)
            try:
                if await in_thread(os.path.isdir, lpath):
                    await changes.make_directory(path, parents=True, exist_ok=True)
                else:
                    await upload(
                        changes,
                        os.fspath(lpath),
                        path,
                        callback,
                        exclusive=exclusive,
                        gathered=tasks if isinstance(tasks, GatheredWrites) else None,
                    )
            finally:
                self.invalidate_cache(path)

    async def _put(
        self,
        lpath: Any,
        rpath: Any,
        recursive: bool = False,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """As fsspec's; small files are written up to a hundred in a request."""
        source, target = texts(lpath), texts(rpath)
        together = not self.in_transaction and (recursive or not isinstance(source, str))
        kwargs["batch_size"] = batch_size or self.batch_size or (GATHERED if together else FILES)
        if not together:
            async with FileTasks() as tasks:
                return await super()._put(
                    source, target, recursive=recursive, tasks=tasks, **kwargs
                )
        overwrite = overwrites(kwargs.get("mode", "overwrite"))
        async with gathered_writes(await self._client(), overwrite=overwrite) as gathered:
            return await super()._put(source, target, recursive=recursive, tasks=gathered, **kwargs)

    async def _touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        """Make an empty file; without `truncate`, an existing one gets a new version with the
        current time."""
        changes = await self._changes()
        path = self._strip_protocol(path)
        try:
            await (changes.write(path, b"") if truncate else changes.touch(path))
        finally:
            self.invalidate_cache(path)

    # Changes of the tree

    async def _mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Make a new directory. Raises PathExistsError, PathNotFoundError (no parent, without
        `create_parents`)."""
        await self._make_directory(path, parents=create_parents, exist_ok=False)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        await self._make_directory(path, parents=True, exist_ok=exist_ok)

    async def _make_directory(self, path: str, *, parents: bool, exist_ok: bool) -> None:
        path = self._strip_protocol(path)
        try:
            await (await self._changes()).make_directory(path, parents=parents, exist_ok=exist_ok)
        finally:
            self.invalidate_cache(path)

    async def _rmdir(self, path: str) -> None:
        """Remove an empty directory. Raises NotDirectoryError, DirectoryNotEmptyError."""
        path = self._strip_protocol(path)
        status = await status_of(await self._client(), path)
        if not status.is_dir:
            raise NotDirectoryError("not a directory", path=path)
        try:
            await (await self._changes()).remove_directory(status)
        finally:
            self.invalidate_cache(path)

    async def _rm_file(self, path: str, **kwargs: Any) -> None:
        await self._rm(self._strip_protocol(path), assume_literal=True)

    async def _rm(
        self,
        path: Any,
        recursive: bool = False,
        batch_size: int | None = None,
        maxdepth: int | None = None,
        assume_literal: bool = False,
        **kwargs: Any,
    ) -> None:
        """Remove files and, with `recursive`, directories with their contents, each atomically; in
        layout `tree` into the trash.

        Nothing is removed unless all paths exist. Raises PathNotFoundError, IsDirectoryError (not
        `recursive`).
        """
        client = await self._client()
        if recursive and maxdepth is not None:
            await self._rm_levels(client, path, maxdepth)
            return
        paths = [path] if assume_literal else await self._expanded_sources(path)
        statuses = await client.stat_many(paths)
        for each, status in zip(paths, statuses, strict=True):
            if status is None or is_reserved(status):
                raise PathNotFoundError("no such file or directory", path=each)
            if status.is_dir and not recursive:
                raise IsDirectoryError("a directory is there; recursive=True removes it", path=each)
        try:
            await (await self._changes()).remove(
                [status for status in statuses if status is not None]
            )
        finally:
            for each in paths:
                self.invalidate_cache(each)

    async def _rm_levels(self, client: S3kClient, path: Any, maxdepth: int) -> None:
        if self.in_transaction:
            raise UnsupportedError(
                "a transaction removes directories as a whole, not down to a depth"
            )
        paths = await self._expanded_sources(path, recursive=True, maxdepth=maxdepth)
        try:
            result = await client.delete_many(paths)
        finally:
            for each in paths:
                self.invalidate_cache(each)
        for _, error in result.failures:
            raise error

    async def _copy(self, path1: Any, path2: Any, recursive: bool = False, **kwargs: Any) -> None:
        async with FileTasks() as tasks:
            await super()._copy(
                texts(path1), texts(path2), recursive=recursive, tasks=tasks, **kwargs
            )

    async def _cp_file(
        self, path1: str, path2: str, tasks: FileTasks | None = None, **kwargs: Any
    ) -> None:
        """Copy a file, inside the service if possible; of a directory, the directory alone."""
        with (tasks or FileTasks()).task():
            changes = await self._changes()
            source, target = self._strip_protocol(path1), self._strip_protocol(path2)
            try:
                await changes.copy(source, target)
            except IsDirectoryError:
                if not await self._isdir(source):
                    raise
                await changes.make_directory(target, parents=True, exist_ok=True)
            finally:
                self.invalidate_cache(target)

    async def _mv_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        try:
            await (await self._changes()).rename([(source, target)])
        finally:
            self.invalidate_cache(source)
            self.invalidate_cache(target)

    async def _mv(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Rename: no bytes are copied, and each path moves atomically. A file at the target is
        replaced. A directory at the target receives the source below it, or the source's children
        if the source ends in "/": then, and with `maxdepth`, each file moves by itself. Directories
        move with everything below them, `recursive` or not.
        """
        source, target = texts(path1), texts(path2)
        listed = isinstance(source, list) and isinstance(target, list)
        if (maxdepth is not None and not listed) or await self._merges(source, target):
            if self.in_transaction:
                raise UnsupportedError(
                    "a transaction moves directories as a whole, not into one another"
                )
            try:
                await self._merge(source, target, maxdepth)
            finally:
                self.invalidate_cache()
            return
        pairs = await self._pairs_of(source, target, recursive=recursive)
        try:
            await (await self._changes()).rename(pairs)
        finally:
            for pair in pairs:
                self.invalidate_cache(pair[0])
                self.invalidate_cache(pair[1])

    async def _merges(self, source: object, target: object) -> bool:
        """Whether fsspec would merge the contents of the source directory into the target:
        `mv("a/", "b")`."""
        if (
            not isinstance(source, str)
            or not isinstance(target, str)
            or not source.endswith("/")
            or await self._is_pattern(source)
        ):
            return False
        return (
            self._strip_protocol(source) != ROOT
            and await self._isdir(source)
            and await self._isdir(target)
        )

    async def _merge(
        self, source: str | list[str], target: str | list[str], maxdepth: int | None
    ) -> None:
        """Rename each file to the target path of fsspec's `copy`, then remove empty directories.
        Files that other clients add meanwhile are kept, and so are those deeper than `maxdepth`.

        Raises the first failure; the other files were moved.
        """
        client = await self._client()
        paths = await self._expanded_sources(source, recursive=True, maxdepth=maxdepth)
        into = self._strip_protocol(target)
        if await self._is_pattern(source):
            beneath = len(paths) == 1
        else:
            beneath = (
                isinstance(source, str)
                and not source.endswith("/")
                and await self._is_directory(target)
            )
        targets = other_paths(paths, into, exists=beneath, flatten=isinstance(source, list))
        files: Pairs = []
        directories: dict[str, tuple[FileStatus, str]] = {}
        for path, place, status in zip(paths, targets, await client.stat_many(paths), strict=True):
            if status is not None and status.is_dir:
                directories[path] = status, place or ROOT
            else:
                files.append((path, place or ROOT))
        made = {place for _, place in directories.values()}
        for place in made:
            await client.makedirs(place)
        await rename(client, files)
        for emptied in sorted(directories.keys() - {ROOT, *made}, reverse=True):
            with suppress(ConflictError, DirectoryNotEmptyError, PathNotFoundError):
                await client.delete(emptied, expected=directories[emptied][0])

    async def _is_directory(self, target: str | list[str]) -> bool:
        """Whether the target is a directory, or denotes one by its form."""
        return isinstance(target, str) and (target.endswith("/") or bool(await self._isdir(target)))

    async def _pairs_of(
        self, source: str | list[str], target: str | list[str], *, recursive: bool
    ) -> Pairs:
        """Sources and their targets. Patterns and lists have the meaning of fsspec's `copy`.

        Raises PathNotFoundError, before anything is changed.
        """
        client = await self._client()
        if isinstance(source, list) and isinstance(target, list):
            return list(
                zip(
                    map(self._strip_protocol, source),
                    map(self._strip_protocol, target),
                    strict=True,
                )
            )
        is_pattern = await self._is_pattern(source)
        if isinstance(source, str) and isinstance(target, str) and not is_pattern:
            old, new = self._strip_protocol(source), self._strip_protocol(target)
            await status_of(client, old)
            beneath = old != new and await self._is_directory(target)
            return [(old, f"{new.rstrip('/')}/{old.rpartition('/')[2]}" if beneath else new)]
        return await self._expanded(source, target, recursive=recursive)

    async def _expanded(
        self, source: str | list[str], target: str | list[str], *, recursive: bool
    ) -> Pairs:
        """The expansion of paths by fsspec for `copy`, without those below a moved directory."""
        paths = await self._expanded_sources(source, recursive=recursive)
        if isinstance(source, str) and not recursive:
            paths = [path for path in paths if not await self._isdir(path)]
        into = self._strip_protocol(target)
        targets = other_paths(
            paths,
            into,
            exists=isinstance(source, str) and len(paths) == 1,
            flatten=isinstance(source, list),
        )
        known = set(paths)
        return [
            pair
            for pair in zip(paths, targets, strict=True)
            if known.isdisjoint(ancestors(pair[0]))
        ]

    async def _is_pattern(self, path: object) -> bool:
        """Whether a path to be moved or removed stands for those that match. An existing path does
        not, whatever characters it has: pyarrow, universal-pathlib and others pass paths that they
        have listed."""
        return (
            isinstance(path, str) and has_magic(path) and not await self._exists(path, refresh=True)
        )

    async def _expanded_sources(
        self, paths: Any, *, recursive: bool = False, maxdepth: int | None = None
    ) -> list[str]:
        """As `_expand_path`, of paths to be moved or removed."""
        sources = texts(paths)
        sources = [sources] if isinstance(sources, str) else sources
        patterns = [each for each in sources if await self._is_pattern(each)]
        existing = [each for each in sources if each not in patterns]
        found: set[str] = set()
        for some, is_literal in ((existing, True), (patterns, False)):
            with suppress(FileNotFoundError):
                found.update(await self._expand_path(some, recursive, maxdepth, is_literal))
        if not found:
            raise PathNotFoundError("no such file or directory", path=", ".join(sources))
        return sorted(found)

    async def tree_at(self, path: str) -> list[FileStatus]:
        """The status of a path and of all entries below it, the top first. Raises
        PathNotFoundError."""
        client = await self._client()
        top = await status_of(client, self._strip_protocol(path))
        below = (
            [status async for status in client.list(top.path, recursive=True)] if top.is_dir else []
        )
        return [top, *below]

    async def remove_unchanged(self, tree: Sequence[FileStatus]) -> None:
        """Remove the entries of `tree_at`, except those changed since; in a transaction, at its
        end.

        Raises the first failure: ConflictError, DirectoryNotEmptyError.
        """
        try:
            if self.in_transaction:
                await (await self._changes()).remove(tree)
                return
            for error in (await delete_seen(await self._client(), tree)).values():
                raise error
        finally:
            for status in tree:
                self.invalidate_cache(status.path)

    # Files

    def open(
        self,
        path: Any,
        mode: str = "rb",
        block_size: int | None = None,
        cache_options: dict[str, Any] | None = None,
        compression: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """As fsspec's. Modes are `r`, `w`, `x`, `a` and `r+`, as text or bytes; see `S3kWriteFile`
        and `S3kUpdateFile`."""
        codec = get_compression(path, compression)
        if codec is None or "r" in mode:
            return super().open(path, mode, block_size, cache_options, codec, **kwargs)
        text = {key: kwargs.pop(key) for key in ("encoding", "errors", "newline") if key in kwargs}
        letters = mode.replace("t", "").replace("b", "")
        file = super().open(path, letters + "b", block_size, cache_options, **kwargs)
        compressed = CompressedFile(compr[codec](file, mode=letters), file)
        return compressed if "b" in mode else io.TextIOWrapper(cast("Any", compressed), **text)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        cache_type: str | None = None,
        **kwargs: Any,
    ) -> S3kReadFile | S3kWriteFile | S3kUpdateFile:
        if mode in ("r+b", "rb+"):
            return S3kUpdateFile(self, self.run_blocking(lambda: self._changeable(path)))
        if mode == "rb":
            entry = self.run_blocking(lambda: self._entry(path))
            return S3kReadFile(
                self,
                entry,
                block_size=block_size,
                cache_type=cache_type,
                cache_options=cache_options,
            )
        writer = self.run_blocking(lambda: self._writer(path, mode))
        # In a transaction `close` adds the file to it.
        autocommit = autocommit or self.in_transaction
        return S3kWriteFile(self, writer, mode, block_size=block_size, autocommit=autocommit)

    async def open_async(self, path: Any, mode: str = "rb", **kwargs: Any) -> S3kAsyncFile:
        """A file for coroutines, `rb`, `wb`, `xb` or `ab`."""
        if "b" not in mode or kwargs.get("compression"):
            raise InvalidArgumentError(
                "files for coroutines are opened as bytes, uncompressed", path=str(path)
            )
        inside = self._strip_protocol(path)
        if mode != "rb":
            return S3kAsyncFile(self, await self._writer(inside, mode), mode)
        entry = await self._entry(inside)
        return S3kAsyncFile(self, reader_of(await self._client(), entry), mode)

    async def _writer(self, path: str, mode: str) -> FileWriter:
        client = await self._client()
        path = self._strip_protocol(path)
        check_mode(mode, path, update="open with r+b")
        changes = await self._changes()
        if mode == "ab":
            with suppress(UnsupportedError):
                return await changes.open(path, mode)
        writer = await changes.open(path, "xb" if mode == "xb" else "wb")
        if mode == "ab" and writer.entry.committed:
            # In a transaction, of an adopted file, or in a volume without extents: a new version,
            # the current bytes followed by the written ones. Published only over the copied one.
            async with reader_of(client, writer.entry, cached=False) as reader:
                await looking.copy_into(writer, reader)
        if mode == "ab":
            at_commit(writer, unchanged=True)
        return writer

    # In place

    async def _changeable(self, path: str) -> Entry:
        """The entry of a file that can be changed in place. Raises UnsupportedError for others, and
        in a transaction."""
        if self._collected is not None:
            raise UnsupportedError("a transaction cannot change files in place", path=path)
        entry = await self._entry(path)
        volume = volume_of(await self._client())
        need_extents(volume, entry.path)
        require_changeable(volume, entry)
        return entry

    # Blocking forms

    pipe_file = blocking(_pipe_file)
    pipe = blocking(_pipe)
    put_file = blocking(_put_file)
    put = blocking(_put)
    touch = blocking(_touch)
    mkdir = blocking(_mkdir)
    makedirs = blocking(_makedirs)
    rmdir = blocking(_rmdir)
    rm_file = blocking(_rm_file)
    rm = blocking(_rm)
    cp_file = blocking(_cp_file)
    copy = blocking(_copy)
    mv_file = blocking(_mv_file)
    mv = blocking(_mv)
