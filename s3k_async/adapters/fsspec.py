"""`s3k://` for fsspec, and so for pandas, Dask, zarr, universal-pathlib and all that speaks
fsspec."""

from __future__ import annotations

import io
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import UTC, datetime
from glob import has_magic
from typing import Any, TypeVar, cast

from anyio import to_thread
from fsspec.asyn import AsyncFileSystem
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.compression import compr
from fsspec.core import get_compression
from fsspec.utils import isfilelike, stringify_path

from s3k_async._core.concurrency import gather
from s3k_async.adapters import fsspec_listing as looking
from s3k_async.adapters.fsspec_arguments import (
    Range,
    need_depth,
    overwrites,
    ranges_of,
    texts,
)
from s3k_async.adapters.fsspec_base import VolumeFileSystem, blocking
from s3k_async.adapters.fsspec_files import (
    CompressedFile,
    S3kAsyncFile,
    S3kReadFile,
    S3kWriteFile,
)
from s3k_async.adapters.fsspec_listing import Info, info_of, is_reserved, status_of
from s3k_async.adapters.fsspec_renames import merge, merges, pairs_of
from s3k_async.adapters.fsspec_transfer import download, download_into, upload
from s3k_async.client import S3kClient, reader_of, volume_of
from s3k_async.errors import (
    InvalidArgumentError,
    InvalidPathError,
    IsDirectoryError,
    NotDirectoryError,
    PathNotFoundError,
    S3kError,
    UncommittedFileError,
    UnsupportedError,
)
from s3k_async.file_ranges import fetch_span
from s3k_async.files import FileWriter, check_mode
from s3k_async.metadata.entry_reader import existing
from s3k_async.model import Entry

__all__ = ["S3kFileSystem"]

T = TypeVar("T")

FILES = 16
"""Files that `put` and `get` stream at the same time, unless `batch_size` says otherwise."""
PATHS = 16
"""Files that `cat_ranges` reads at the same time."""


class S3kFileSystem(VolumeFileSystem):
    """A volume for fsspec. Everything it promises is the client's (`s3k_async.S3kClient`).

    `volume` is what `S3kClient` takes: `s3k://name`, `./directory`, or nothing for the configured
    default; the URL of a path names a volume, too. All other settings of the client are taken by
    the same names (`region`, `endpoint`, `table`, `max_concurrency`, ...; also `config`, `context`,
    `hadoop`, `session`). Of fsspec's own options these mean something: `asynchronous`, `loop`,
    `batch_size`, `skip_instance_cache`, and `use_listings_cache` with `listings_expiry_time` and
    `max_paths`: without it nothing is cached, and every look is a strong read.

    Paths are absolute in the volume (`/raw/x`), or URLs of it: the URL of another volume is refused
    (CrossVolumeError). Any thread, event loop, and forked or spawned process may use one object;
    each has connections of its own. A pickle is the configuration without secrets, which are looked
    for anew where it arrives. A file that is being written for the first time is not there for
    anybody before it is published. Raises ConfigError, and what the client's verbs raise.
    """

    # Looking

    async def _info(self, path: str, refresh: bool = False, **kwargs: Any) -> Info:
        path = self._strip_protocol(path)
        known = None if refresh else self._known(path)
        return info_of(await status_of(await self._client(), path)) if known is None else known

    async def _exists(self, path: str, **kwargs: Any) -> bool:
        """As fsspec's: at a path that nothing can have (with a NUL, with too long a name) there is
        nothing."""
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
            changes = self._changes
            infos = [
                info_of(status) for status in await looking.children(await self._client(), path)
            ]
            is_listing = not infos or infos[0]["name"] != path
            if is_listing and changes == self._changes:
                self.dircache[path] = [dict(info) for info in infos]
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
        """As fsspec's. A directory that cannot be listed yields nothing, as with local files."""
        need_depth(maxdepth)
        path = self._strip_protocol(path)
        try:
            listing = await self._ls(path, detail=True, **kwargs)
        except OSError as error:
            if on_error == "raise":
                raise
            if callable(on_error):
                on_error(error)
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
        """When what is at the path was made, UTC."""
        return datetime.fromtimestamp((await self._info(path, refresh=True))["created"], tz=UTC)

    async def _modified(self, path: str) -> datetime:
        """When what is at the path was last changed, UTC."""
        return datetime.fromtimestamp((await self._info(path, refresh=True))["mtime"], tz=UTC)

    async def _ukey(self, path: str) -> str:
        """64 hex digits of what is at the path: its id and version, so other ones after each
        change."""
        return looking.ukey_of(await self._info(path, refresh=True))

    async def _checksum(self, path: str) -> int:
        """As `ukey`, a number."""
        return int(await self._ukey(path), 16)

    # Reading

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
        for a hundred entries and one for the bytes of each, unless `batch_size` says how many are
        read at once.
        """
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
        """As fsspec's: one strong read of each file; ranges with at most `max_gap` bytes between
        them (64 KiB unless given) are fetched as one.
        """
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
        **kwargs: Any,
    ) -> None:
        """A file to a local path, or into an open file; of a directory, a local directory."""
        client = await self._client()
        path = self._strip_protocol(rpath)
        file = lpath if outfile is None and isfilelike(lpath) else outfile
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
        return await super()._get(texts(rpath), texts(lpath), recursive=recursive, **kwargs)

    # Writing

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
        """Bytes to a path, or a mapping of paths to bytes, up to a hundred files in a request."""
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
        **kwargs: Any,
    ) -> None:
        """A local file to a path; of a local directory, a directory."""
        changes = await self._changes()
        path = self._strip_protocol(rpath)
        exclusive = not overwrites(mode)
        try:
            if await to_thread.run_sync(os.path.isdir, lpath):
                await changes.make_directory(path, parents=True, exist_ok=True)
            else:
                await upload(changes, os.fspath(lpath), path, callback, exclusive=exclusive)
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
        kwargs["batch_size"] = batch_size or self.batch_size or FILES
        return await super()._put(texts(lpath), texts(rpath), recursive=recursive, **kwargs)

    async def _touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        """An empty file; without `truncate`, what is there already gets a new version with the time
        of now."""
        changes = await self._changes()
        path = self._strip_protocol(path)
        try:
            await (changes.write(path, b"") if truncate else changes.touch(path))
        finally:
            self.invalidate_cache(path)

    # Changing the tree

    async def _mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """A directory that was not there. Raises PathExistsError, PathNotFoundError (no parent, and
        none to make)."""
        path = self._strip_protocol(path)
        await (await self._changes()).make_directory(path, parents=create_parents, exist_ok=False)
        self.invalidate_cache(path)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        path = self._strip_protocol(path)
        await (await self._changes()).make_directory(path, parents=True, exist_ok=exist_ok)
        self.invalidate_cache(path)

    async def _rmdir(self, path: str) -> None:
        """Remove a directory that is empty. Raises NotDirectoryError, DirectoryNotEmptyError."""
        path = self._strip_protocol(path)
        status = await status_of(await self._client(), path)
        if not status.is_dir:
            raise NotDirectoryError("not a directory", path=path)
        await (await self._changes()).remove_directory(status)
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
        """Remove files and, with `recursive`, directories with all that is in them, each at once.

        Nothing is removed unless all paths are there. Raises PathNotFoundError, IsDirectoryError
        (not `recursive`).
        """
        client = await self._client()
        if recursive and maxdepth is not None:
            await self._rm_levels(client, path, maxdepth)
            return
        paths = [path] if assume_literal else await self._expand_path(path)
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
        if self._together is not None:
            raise UnsupportedError(
                "a transaction removes directories as a whole, not down to a depth"
            )
        paths = await self._expand_path(path, recursive=True, maxdepth=maxdepth)
        result = await client.delete_many(paths)
        for each in paths:
            self.invalidate_cache(each)
        for _, error in result.failures:
            raise error

    async def _copy(self, path1: Any, path2: Any, recursive: bool = False, **kwargs: Any) -> None:
        await super()._copy(texts(path1), texts(path2), recursive=recursive, **kwargs)

    async def _cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Copy a file, inside the service where it can; of a directory, the directory alone."""
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
        """Rename: no bytes are copied, and each path moves at once. A file at the target is
        replaced; a directory there receives the source beneath it, or among what is in it if the
        source ends in "/": then, and with `maxdepth`, each file moves by itself. Directories move
        with all that is in them, `recursive` or not.
        """
        source, target = texts(path1), texts(path2)
        listed = isinstance(source, list) and isinstance(target, list)
        if (maxdepth is not None and not listed) or await merges(self, source, target):
            if self._together is not None:
                raise UnsupportedError(
                    "a transaction moves directories as a whole, not into one another"
                )
            try:
                await merge(self, source, target, maxdepth)
            finally:
                self.invalidate_cache()
            return
        pairs = await pairs_of(self, source, target, recursive=recursive)
        try:
            await (await self._changes()).rename(pairs)
        finally:
            for pair in pairs:
                self.invalidate_cache(pair[0])
                self.invalidate_cache(pair[1])

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
        """As fsspec's. Modes are those of reading, `w`, `x` and `a`, as text or bytes; see
        `S3kWriteFile`."""
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
    ) -> S3kReadFile | S3kWriteFile:
        if mode == "rb":
            entry = self._wait(lambda: self._entry(path))
            return S3kReadFile(
                self,
                entry,
                block_size=block_size,
                cache_type=cache_type,
                cache_options=cache_options,
            )
        writer = self._wait(lambda: self._writer(path, mode))
        # In a transaction closing a file makes it a part of that.
        autocommit = autocommit or self._together is not None
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

    async def _entry(self, path: str) -> Entry:
        volume = volume_of(await self._client())
        with volume.calls.running():
            return looking.readable(await existing(volume.store, self._strip_protocol(path)))

    async def _fetch_span(self, entry: Entry, start: int, end: int) -> bytes:
        volume = volume_of(await self._client())
        with volume.calls.running():
            return await fetch_span(volume.storage, entry, start, end)

    async def _writer(self, path: str, mode: str) -> FileWriter:
        client = await self._client()
        path = self._strip_protocol(path)
        if mode != "ab":
            check_mode(mode, path)
        writer = await (await self._changes()).open(path, "xb" if mode == "xb" else "wb")
        if mode == "ab" and writer._entry.committed:
            # A new version: what is there, and what is written. Published only over the version
            # that was copied.
            async with reader_of(client, writer._entry) as reader:
                await looking.copy_into(writer, reader)
        return writer

    # The same, blocking

    info = blocking(_info)
    exists = blocking(_exists)
    isfile = blocking(_isfile)
    isdir = blocking(_isdir)
    size = blocking(AsyncFileSystem._size)
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

    def walk(
        self, path: str, maxdepth: int | None = None, topdown: bool = True, **kwargs: Any
    ) -> Iterator[Any]:
        """As fsspec's."""
        steps = self._walk(path, maxdepth, topdown, **kwargs)
        while (step := self._wait(lambda: anext(steps, None))) is not None:
            yield step


def _not_yet(path: str) -> PathNotFoundError:
    return PathNotFoundError("no such file yet: it is being written", path=path)
