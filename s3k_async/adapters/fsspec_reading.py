"""Lookups and reads of the fsspec adapter."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import UTC, datetime
from glob import has_magic
from typing import Any, cast

from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.utils import isfilelike, stringify_path

from s3k_async._core.concurrency import gather
from s3k_async.adapters import fsspec_listing as looking
from s3k_async.adapters.fsspec_arguments import Range, need_depth, ranges_of, texts
from s3k_async.adapters.fsspec_base import VolumeFileSystem, blocking
from s3k_async.adapters.fsspec_listing import Info, info_of, status_of
from s3k_async.adapters.fsspec_transfer import FileTasks, download, download_into
from s3k_async.client import volume_of
from s3k_async.errors import (
    InvalidPathError,
    IsDirectoryError,
    NotDirectoryError,
    PathNotFoundError,
    S3kError,
    UncommittedFileError,
)
from s3k_async.files.file_ranges import Check, fetch_into, fetch_span
from s3k_async.model import Entry

__all__ = ["FILES", "ReadableFileSystem"]

FILES = 16
"""Files that `put` and `get` stream concurrently; `batch_size` overrides it."""
PATHS = 16
"""Files that `cat_ranges` reads concurrently."""


class ReadableFileSystem(VolumeFileSystem):
    """Lookups, listings and reads of a volume, with fsspec's semantics."""

    # Lookups

    async def _info(self, path: str, refresh: bool = False, **kwargs: Any) -> Info:
        path = self._strip_protocol(path)
        known = None if refresh else self._known(path)
        return info_of(await status_of(await self._client(), path)) if known is None else known

    async def _exists(self, path: str, **kwargs: Any) -> bool:
        """As fsspec's: an invalid path (with a NUL, with too long a name) does not exist."""
        try:
            await self._info(path, **kwargs)
        except (PathNotFoundError, InvalidPathError):
            return False
        return True

    async def _isfile(self, path: str) -> bool:
        return await self._type(path) == "file"

    async def _isdir(self, path: str) -> bool:
        return await self._type(path) == "directory"

    async def _type(self, path: str) -> str | None:
        try:
            return cast(str, (await self._info(path))["type"])
        except (PathNotFoundError, InvalidPathError):
            return None

    async def _sizes(self, paths: Sequence[str], batch_size: int | None = None) -> list[int]:
        del batch_size
        places = [self._strip_protocol(path) for path in paths]
        statuses = await (await self._client()).stat_many(places)
        for place, status in zip(places, statuses, strict=True):
            if status is None:
                raise PathNotFoundError("no such file or directory", path=place)
        return [status.size for status in statuses if status is not None]

    async def _ls(
        self, path: str, detail: bool = True, refresh: bool = False, **kwargs: Any
    ) -> list[Any]:
        path = self._strip_protocol(path)
        infos = None if refresh else self._ls_from_cache(path)
        if infos is None:
            forgotten = self._forgotten
            infos = [
                info_of(status) for status in await looking.children(await self._client(), path)
            ]
            is_listing = not infos or infos[0]["name"] != path
            # A change during the listing has emptied the cache: do not fill it with the old state.
            if is_listing and forgotten == self._forgotten:
                self.dircache[path] = [dict(info) for info in infos]
                if forgotten != self._forgotten:  # by another thread meanwhile
                    self.dircache.pop(path, None)
        return infos if detail else [info["name"] for info in infos]

    async def _walk(
        self,
        path: str,
        maxdepth: int | None = None,
        topdown: bool = True,
        on_error: str | Callable[[OSError], object] = "omit",
        detail: bool = False,
        **kwargs: Any,
    ) -> AsyncIterator[tuple[str, Any, Any]]:
        """As fsspec's. By default a directory that does not exist, or no longer does, is omitted;
        other errors are raised, since they say nothing about what is in the directory."""
        need_depth(maxdepth)
        path = self._strip_protocol(path)
        try:
            listing = await self._ls(path, detail=True, **kwargs)
        except OSError as error:
            if callable(on_error):
                on_error(error)
            elif on_error == "raise" or not isinstance(
                error, PathNotFoundError | NotDirectoryError
            ):
                raise
            return
        dirs, files = looking.divided(path, listing, detail=detail)
        if topdown:
            yield path, dirs, files
        if maxdepth is None or maxdepth > 1:
            deeper = None if maxdepth is None else maxdepth - 1
            for name in list(dirs):
                below = f"{path.rstrip('/')}/{name}"
                async for found in self._walk(
                    below, deeper, topdown, on_error, detail=detail, **kwargs
                ):
                    yield found
        if not topdown:
            yield path, dirs, files

    async def _find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        detail: bool = False,
        prefix: str = "",
        **kwargs: Any,
    ) -> Any:
        need_depth(maxdepth)
        client = await self._client()
        path = self._strip_protocol(path)
        found = await looking.find(
            client, path, maxdepth=maxdepth, withdirs=withdirs, prefix=prefix
        )
        return found if detail else list(found)

    async def _glob(
        self,
        path: str,
        maxdepth: int | None = None,
        detail: bool = False,
        withdirs: bool = True,
        **kwargs: Any,
    ) -> Any:
        need_depth(maxdepth)
        pattern = self._strip_protocol(path)
        if has_magic(pattern):
            only_dirs = stringify_path(path).endswith("/")
            found = await looking.glob(
                await self._client(),
                pattern,
                maxdepth=maxdepth,
                withdirs=withdirs,
                only_dirs=only_dirs,
            )
        else:
            try:
                found = {pattern: await self._info(pattern, **kwargs)}
            except PathNotFoundError:
                found = {}
        return found if detail else list(found)

    async def _du(
        self,
        path: str,
        total: bool = True,
        maxdepth: int | None = None,
        withdirs: bool = False,
        **kwargs: Any,
    ) -> int | dict[str, int]:
        found = await self._find(path, maxdepth=maxdepth, withdirs=withdirs, detail=True, **kwargs)
        sizes = {name: info["size"] for name, info in found.items()}
        return sum(sizes.values()) if total else sizes

    async def _expand_path(
        self,
        path: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        assume_literal: bool = False,
    ) -> list[str]:
        path = stringify_path(path)
        return cast(
            "list[str]", await super()._expand_path(path, recursive, maxdepth, assume_literal)
        )

    async def _created(self, path: str) -> datetime:
        """Creation time, UTC."""
        return datetime.fromtimestamp((await self._info(path, refresh=True))["created"], tz=UTC)

    async def _modified(self, path: str) -> datetime:
        """Modification time, UTC."""
        return datetime.fromtimestamp((await self._info(path, refresh=True))["mtime"], tz=UTC)

    async def _ukey(self, path: str) -> str:
        """64 hex digits of the id and version at the path, different after each change."""
        return looking.ukey_of(await self._info(path, refresh=True))

    async def _checksum(self, path: str) -> int:
        """As `ukey`, a number."""
        return int(await self._ukey(path), 16)

    # Reads

    async def _cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> bytes:
        client = await self._client()
        path = self._strip_protocol(path)
        if start is not None or end is not None:
            return (await looking.read_ranges(client, path, [(start, end)]))[0]
        try:
            return await client.read(path)
        except UncommittedFileError as error:
            raise _not_yet(path) from error

    async def _cat(
        self,
        path: Any,
        recursive: bool = False,
        on_error: str = "raise",
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """As fsspec's; `recursive` reads the files below a directory. Whole files take a request
        for a hundred entries and one for the bytes of each; `batch_size` limits the concurrency."""
        paths = await self._expand_path(path, recursive=recursive)
        if len(paths) > 1 and batch_size is None and not kwargs:
            contents = await self._whole(paths)
        else:
            contents = await gather(
                lambda each: self._contents(each, kwargs), paths, limit=batch_size or PATHS
            )
        found = dict(zip(paths, contents, strict=True))
        if recursive:
            found = {
                each: data for each, data in found.items() if not isinstance(data, IsDirectoryError)
            }
        single = not isinstance(path, list | tuple | set) and list(found) == [
            self._strip_protocol(path)
        ]
        for data in found.values():
            if isinstance(data, Exception) and (
                on_error == "raise" or (single and on_error == "omit")
            ):
                raise data
        if single:
            return found[paths[0]]
        return {
            each: data
            for each, data in found.items()
            if on_error != "omit" or isinstance(data, bytes)
        }

    async def _whole(self, paths: list[str]) -> list[bytes | S3kError]:
        try:
            found = await (await self._client()).read_each(paths)
        except S3kError as error:
            return [error for _ in paths]
        return [
            _not_yet(path) if isinstance(data, UncommittedFileError) else data
            for path, data in zip(paths, found, strict=True)
        ]

    async def _contents(self, path: str, options: dict[str, Any]) -> bytes | S3kError:
        try:
            return await self._cat_file(path, **options)
        except S3kError as error:
            return error

    async def _cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        batch_size: int | None = None,
        on_error: str = "return",
        **kwargs: Any,
    ) -> list[Any]:
        """As fsspec's: one strongly consistent read of each file; ranges with at most `max_gap`
        bytes between them (default 64 KiB) are fetched as one."""
        wanted = ranges_of(paths, starts, ends)
        places = [self._strip_protocol(path) for path in paths]
        by_path: dict[str, list[Range]] = {}
        for place, each in zip(places, wanted, strict=True):
            by_path.setdefault(place, []).append(each)
        client = await self._client()
        gap = looking.GAP if max_gap is None else max_gap

        async def read(item: tuple[str, list[Range]]) -> Iterator[bytes | S3kError]:
            try:
                return iter(await looking.read_ranges(client, *item, gap=gap))
            except S3kError as error:
                if on_error != "return":
                    raise
                return iter([error] * len(item[1]))

        read_ones = await gather(read, by_path.items(), limit=batch_size or PATHS)
        found = dict(zip(by_path, read_ones, strict=True))
        return [next(found[place]) for place in places]

    async def _get_file(
        self,
        rpath: str,
        lpath: Any = None,
        callback: Any = DEFAULT_CALLBACK,
        outfile: Any = None,
        tasks: FileTasks | None = None,
        **kwargs: Any,
    ) -> None:
        """Download a file to a local path or into an open file; for a directory, make a local
        one."""
        with (tasks or FileTasks()).task():
            file = lpath if outfile is None and isfilelike(lpath) else outfile
            await self._download(rpath, lpath, file, callback)

    async def _download(self, rpath: str, lpath: Any, file: Any, callback: Any) -> None:
        client = await self._client()
        path = self._strip_protocol(rpath)
        if file is not None:
            await download_into(client, path, file, callback)
            return
        try:
            await download(client, path, os.fspath(lpath), callback)
        except IsDirectoryError:
            if not await self._isdir(path):
                raise
            os.makedirs(lpath, exist_ok=True)

    async def _get(self, rpath: Any, lpath: Any, recursive: bool = False, **kwargs: Any) -> Any:
        kwargs["batch_size"] = kwargs.get("batch_size") or self.batch_size or FILES
        async with FileTasks() as tasks:
            return await super()._get(
                texts(rpath), texts(lpath), recursive=recursive, tasks=tasks, **kwargs
            )

    async def _entry(self, path: str) -> Entry:
        inside = self._strip_protocol(path)
        volume = volume_of(await self._client())
        with volume.calls.running("open", inside):
            store = volume.store
            return looking.readable(store, await store.lookup(inside))

    async def fetch_span(
        self,
        entry: Entry,
        start: int,
        end: int,
        check: Check | None = None,
        *,
        cached: bool = True,
    ) -> bytes:
        """Bytes of a version. `cached`: as of FileReader."""
        volume = volume_of(await self._client())
        storage = volume.storage if cached else volume.storage.from_source()
        with volume.calls.running("file.read", entry.path):
            return await fetch_span(storage, entry, start, end, check=check)

    async def fetch_into(self, entry: Entry, start: int, buffer: memoryview, check: Check) -> None:
        volume = volume_of(await self._client())
        with volume.calls.running("file.read", entry.path):
            await fetch_into(volume.storage, entry, start, buffer, check=check)

    # Blocking forms

    info = blocking(_info)
    exists = blocking(_exists)
    isfile = blocking(_isfile)
    isdir = blocking(_isdir)
    sizes = blocking(_sizes)
    ls = blocking(_ls)
    find = blocking(_find)
    glob = blocking(_glob)
    du = blocking(_du)
    expand_path = blocking(_expand_path)
    created = blocking(_created)
    modified = blocking(_modified)
    ukey = blocking(_ukey)
    checksum = blocking(_checksum)
    cat_file = blocking(_cat_file)
    cat = blocking(_cat)
    cat_ranges = blocking(_cat_ranges)
    get_file = blocking(_get_file)
    get = blocking(_get)

    def size(self, path: str) -> int:
        """As fsspec's."""
        return cast(int, self.info(path)["size"])

    def walk(
        self, path: str, maxdepth: int | None = None, topdown: bool = True, **kwargs: Any
    ) -> Iterator[Any]:
        """As fsspec's."""
        steps = self._walk(path, maxdepth, topdown, **kwargs)
        while (step := self.run_blocking(lambda: anext(steps, None))) is not None:
            yield step


def _not_yet(path: str) -> PathNotFoundError:
    return PathNotFoundError("no such file yet: it is being written", path=path)
