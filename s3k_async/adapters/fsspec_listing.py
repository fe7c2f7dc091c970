"""Lookups of the fsspec adapter: descriptions, `find`, `glob`, byte ranges."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from hashlib import sha256
from stat import S_IFDIR, S_IFREG
from typing import Any, TypeAlias

from fsspec.utils import glob_translate

from s3k_async._core.active_calls import call
from s3k_async._core.concurrency import gather
from s3k_async._native import ancestors
from s3k_async.adapters.fsspec_arguments import Range
from s3k_async.client import S3kClient, volume_of
from s3k_async.errors import (
    CorruptDataError,
    DataMissingError,
    NotDirectoryError,
    PathNotFoundError,
)
from s3k_async.files.file_ranges import LOOKS, read_span, require_readable
from s3k_async.files.open_files import FileReader, FileWriter
from s3k_async.listing.listings import pages_of
from s3k_async.model import ROOT, Entry, FileStatus
from s3k_async.namespace.directories import DirectoryStore

__all__ = [
    "GAP",
    "Info",
    "Tree",
    "children",
    "copy_into",
    "divided",
    "find",
    "glob",
    "info_of",
    "is_reserved",
    "read_ranges",
    "readable",
    "status_of",
    "tops_of",
    "ukey_of",
]

Info: TypeAlias = dict[str, Any]
"""fsspec's description of a path."""
Tree: TypeAlias = dict[str, Info]
"""Status by path."""

DIRECTORIES = 8
"""Concurrent listings of directories in a walk of limited depth."""
RANGES = 16
"""Concurrent fetches of ranges of one file."""
GAP = 64 * 1024
"""Largest gap in bytes between ranges that are fetched as one."""

_BRACES_AND_SETS = re.compile(r"\[!?\]?[^\]/]*\]|[{}]")
"""Braces outside of a set: alternatives for the client, text for fsspec."""
_EVERYTHING_BELOW = re.compile(r"(/\*\*)+\Z")


def info_of(status: FileStatus) -> Info:
    """A description of `info` and `ls`: times are epoch seconds, sizes bytes.

    As in `stat`, `ctime` is the time of the last change, and `mode` has the bits of the file type;
    `mode`, `uid` and `gid` are there only if they were set.
    """
    info = {
        "name": status.path,
        "size": status.size,
        "type": "directory" if status.is_dir else "file",
        "created": status.ctime_ms / 1000,
        "mtime": status.mtime_ms / 1000,
        "ctime": status.mtime_ms / 1000,
        "id": status.id,
        "version": status.version,
        "checksum": status.checksum,
        "committed": status.committed,
    }
    if status.attributes_json:
        info |= _of_attributes(status)
    return info


def _of_attributes(status: FileStatus) -> Info:
    attributes = status.attributes
    changed = attributes.last_change(status.mtime_ms) / 1000
    kind = S_IFDIR if status.is_dir else S_IFREG
    mode = None if attributes.mode is None else kind | attributes.mode
    owned = {"mode": mode, "uid": attributes.uid, "gid": attributes.gid}
    return {"ctime": changed} | {name: each for name, each in owned.items() if each is not None}


def ukey_of(info: Info) -> str:
    """64 hex digits of an id and a version, different after every change."""
    return sha256(f"{info['id']} {info['version']}".encode()).hexdigest()


def is_reserved(status: FileStatus) -> bool:
    """Whether this is a new file that is not published yet."""
    return not status.is_dir and not status.committed


async def status_of(client: S3kClient, path: str) -> FileStatus:
    """The status of a path. Raises PathNotFoundError, also for a new file that is not published
    yet."""
    status = await client.stat(path)
    if is_reserved(status):
        raise PathNotFoundError("no such file yet: it is being written", path=path)
    return status


async def children(client: S3kClient, path: str) -> list[FileStatus]:
    """The children of a directory, sorted; of a file, the file itself. Raises PathNotFoundError."""
    found = [status async for status in client.list(path)]
    if not found:
        await status_of(client, path)
    return sorted(found, key=lambda status: status.path)


def divided(path: str, listing: Sequence[Info], *, detail: bool) -> tuple[Any, Any]:
    """A step of a walk: directories and files of a listing, as descriptions by name or as names."""
    named = [
        ("" if info["name"] == path else info["name"].rpartition("/")[2], info) for info in listing
    ]
    dirs = {name: info for name, info in named if info["type"] == "directory" and name}
    files = {name: info for name, info in named if info["type"] == "file"}
    return (dirs, files) if detail else (list(dirs), list(files))


async def find(
    client: S3kClient, path: str, *, maxdepth: int | None, withdirs: bool, prefix: str
) -> Tree:
    """The files below a directory in the order of their paths, with `withdirs` also directories,
    itself included.

    For a file, the file. Without `maxdepth` it is one listing. `prefix` is that of paths relative
    to the directory.
    """
    try:
        start = await status_of(client, path)
    except PathNotFoundError:
        return {}
    if not start.is_dir:
        return {start.path: info_of(start)}
    below = _whole(client, path) if maxdepth is None else _levels(client, path, maxdepth)
    begin = f"{path.rstrip('/')}/{prefix}"
    found = {start.path: info_of(start)} if withdirs else {}
    async for statuses in below:
        for status in statuses:
            if (withdirs or not status.is_dir) and status.path.startswith(begin):
                found[status.path] = info_of(status)
    return dict(sorted(found.items()))


async def _whole(client: S3kClient, path: str) -> AsyncIterator[Sequence[FileStatus]]:
    try:
        async for page in pages_of(client.list(path, recursive=True)):
            yield page
    except PathNotFoundError:
        return


async def _levels(client: S3kClient, path: str, depth: int) -> AsyncIterator[Sequence[FileStatus]]:
    async def listed(directory: str) -> list[FileStatus]:
        try:
            return [status async for status in client.list(directory)]
        except (PathNotFoundError, NotDirectoryError):
            return []  # removed since its parent was listed

    level = [path]
    for _ in range(depth):
        below = await gather(listed, level, limit=DIRECTORIES)
        for statuses in below:
            yield statuses
        level = [status.path for statuses in below for status in statuses if status.is_dir]


async def glob(
    client: S3kClient, pattern: str, *, maxdepth: int | None, withdirs: bool, only_dirs: bool
) -> Tree:
    """The matches of a pattern in fsspec's syntax, in the order of their paths.

    The client lists only directories in which an entry can match; fsspec's own expression decides.
    The directory before a final `/**` matches, too. `only_dirs`: the pattern ended in a slash.
    Raises ValueError for a `**` that is not a whole component.
    """
    matches = re.compile(glob_translate(pattern + ("/" if only_dirs else ""))).match
    with_slash = only_dirs or pattern.endswith("/**")
    translated = _BRACES_AND_SETS.sub(
        lambda found: f"[{found[0]}]" if found[0] in "{}" else found[0], pattern
    )
    looked_for = (
        [translated, _EVERYTHING_BELOW.sub("", translated) or ROOT]
        if translated.endswith("/**")
        else [translated]
    )
    deepest = _deepest(pattern, maxdepth)
    found: Tree = {}
    for each in looked_for:
        async for status in client.glob(each):
            path = status.path
            if not withdirs and status.is_dir:
                continue
            if deepest is not None and path.count("/") > deepest and path != ROOT:
                continue
            if matches(f"{path}/" if with_slash and status.is_dir else path):
                found[path] = info_of(status)
    return dict(sorted(found.items()))


def _deepest(pattern: str, maxdepth: int | None) -> int | None:
    """Most slashes of a path: `maxdepth` counts from the first `**` on."""
    if maxdepth is None or "**" not in pattern:
        return None
    return pattern[: pattern.index("**")].count("/") + maxdepth - 1


def readable(store: DirectoryStore, entry: Entry) -> Entry:
    """The entry of a readable file. Raises PathNotFoundError (not published yet),
    IsDirectoryError, PermissionDeniedError."""
    if entry.is_reservation:
        raise PathNotFoundError("no such file yet: it is being written", path=entry.path)
    require_readable(store, entry)
    return entry


@call
async def read_ranges(
    client: S3kClient, path: str, ranges: Sequence[Range], gap: int = GAP
) -> list[bytes]:
    """Ranges of one version of a file, found by one strongly consistent read; near ones are fetched
    together.

    Positions are those of slices: negative ones count from the end, None is the end. A version that
    was replaced and collected meanwhile is looked up again. Raises PathNotFoundError,
    IsDirectoryError, DataMissingError, CorruptDataError.
    """
    volume = volume_of(client)
    entry = readable(volume.store, await volume.store.lookup(path))
    for _ in range(LOOKS):
        try:
            return await _read_ranges(client, entry, ranges, gap)
        except (CorruptDataError, DataMissingError):
            gone, entry = entry, readable(volume.store, await volume.store.lookup(path))
            if entry.content == gone.content:
                raise
    return await _read_ranges(client, entry, ranges, gap)


async def _read_ranges(
    client: S3kClient, entry: Entry, ranges: Sequence[Range], gap: int
) -> list[bytes]:
    storage = volume_of(client).storage
    spans = [slice(start, end).indices(entry.size)[:2] for start, end in ranges]
    blocks = _joined(spans, gap)
    fetched = await gather(lambda block: read_span(storage, entry, *block), blocks, limit=RANGES)

    def cut(start: int, end: int) -> bytes:
        if start >= end:
            return b""
        place = bisect_right(blocks, start, key=lambda block: block[0]) - 1
        begin, data = blocks[place][0], fetched[place]
        return data if len(data) == end - start else data[start - begin : end - begin]

    return [cut(start, end) for start, end in spans]


def _joined(spans: Sequence[tuple[int, int]], gap: int) -> list[tuple[int, int]]:
    """The fewest blocks that hold all spans, with at most `gap` unrequested bytes between two."""
    blocks: list[tuple[int, int]] = []
    for start, end in sorted(span for span in spans if span[0] < span[1]):
        if blocks and start - blocks[-1][1] <= gap:
            blocks[-1] = blocks[-1][0], max(end, blocks[-1][1])
        else:
            blocks.append((start, end))
    return blocks


async def copy_into(writer: FileWriter, reader: FileReader) -> None:
    """Copy a reader to a writer. After a failure the writer is discarded."""
    async with AsyncExitStack() as stack:
        stack.push_async_callback(writer.discard)
        async for piece in reader:
            await writer.write(piece)
        stack.pop_all()


def tops_of(statuses: Sequence[FileStatus]) -> list[FileStatus]:
    """The entries that are not below a directory among them."""
    directories = {status.path for status in statuses if status.is_dir}
    return [status for status in statuses if directories.isdisjoint(ancestors(status.path))]
