"""What object cp and mv copy or move: objects to objects, local files to objects, and objects to
local files. Each is one `ObjectCopy`, so that all of them can be tried."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from s3k_async._core.worker_threads import in_thread
from s3k_async.bulk import local_tree
from s3k_async.bulk.transfer import download, upload
from s3k_async.cli.commands.object_places import ObjectPlace, chosen, path_of
from s3k_async.cli.invocation import Clients
from s3k_async.cli.transfers import local_name
from s3k_async.cli.volume_addresses import is_volume, volume_directory
from s3k_async.errors import (
    ConfigError,
    ConflictError,
    CrossVolumeError,
    InvalidArgumentError,
    IsDirectoryError,
    PathNotFoundError,
    RenameIntoSelfError,
    S3kError,
)
from s3k_async.listing.selection import Selection

if TYPE_CHECKING:
    from s3k_async.client import S3kClient
    from s3k_async.objects import ObjectInfo

__all__ = [
    "PAST",
    "CopyOptions",
    "ObjectCopy",
    "Verb",
    "fetched",
    "is_local",
    "local_hint",
    "stored",
    "within",
]

Verb: TypeAlias = Literal["copy", "move"]
PAST: Final = {"copy": "copied", "move": "moved"}


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """The options of the command; `move`: remove the source after each success."""

    verb: Verb
    recursive: bool
    overwrite: bool
    selected: Selection


@dataclass(frozen=True, slots=True)
class ObjectCopy:
    """One file or object to be copied or moved."""

    source: str
    run: Callable[[], Awaitable[object]]


def is_local(text: str, *, absolute: bool) -> bool:
    """Whether an operand is a local path: it has no volume, and does not begin with a `/`, unless
    `absolute`. Raises InvalidArgumentError for a path below the directory of an embedded volume."""
    if not text or ":/" in text or (text.startswith("/") and not absolute):
        return False
    if is_volume(text.rstrip("/") or "/"):
        return False
    if (found := volume_directory(os.path.abspath(text))) is not None:
        directory, path = found
        raise InvalidArgumentError(
            f"{directory} is the directory of an embedded volume: write {directory}:{path} for an "
            "object in that volume",
            path=text,
        )
    return True


@contextmanager
def local_hint(operands: Sequence[str]) -> Iterator[None]:
    """Name `--local` in the error about an operand that begins with a `/`, if that is also a local
    path."""
    try:
        yield
    except (ConfigError, PathNotFoundError) as error:
        for each in operands:
            if each.startswith("/") and os.path.lexists(each):
                message = f"{error.message}; with --local, {each} is a local path"
                raise type(error)(message, path=error.path) from error
        raise


# Objects to objects


async def within(
    clients: Clients, origin: ObjectPlace, place: ObjectPlace, options: CopyOptions
) -> AsyncIterator[ObjectCopy]:
    """Copies of an object, or of all below a prefix, in its volume. A single object has the last
    part of its key below a place that ends with a `/` or is a bucket. An object whose target is
    below the prefix fails: it would replace another source, or be listed once more. Raises
    CrossVolumeError, RenameIntoSelfError."""
    store = await origin.store(clients)
    if await clients.of(place.address) is not await clients.of(origin.address):
        raise CrossVolumeError(
            "the buckets are in two volumes: use s3k cp", path=str(place.address)
        )
    is_within = place.bucket == origin.bucket and place.key.startswith(origin.key)
    if options.recursive and is_within:
        raise RenameIntoSelfError(
            "the target prefix begins with the source prefix: the new objects would be "
            f"{PAST[options.verb]} again and again",
            path=place.address.text,
        )
    change = store.copy if options.verb == "copy" else store.move
    is_into = not options.recursive and (not place.key or place.key.endswith("/"))
    start = origin.key.rfind("/") + 1 if is_into else len(origin.key)

    def one(each: ObjectInfo) -> ObjectCopy:
        target, source = place.key + each.key[start:], f"/{each.bucket}/{each.key}"
        is_source = place.bucket == origin.bucket and target.startswith(origin.key)
        if options.recursive and is_source:
            error = RenameIntoSelfError(
                f"its target, {target}, is below the source prefix, and may be another source: use "
                "a prefix elsewhere",
                path=source,
            )
            return ObjectCopy(source, partial(_fail, error))
        run = partial(
            change,
            each.bucket,
            each.key,
            target,
            overwrite=options.overwrite,
            target_bucket=place.bucket,
        )
        return ObjectCopy(source, run)

    if not options.recursive:
        yield one(await store.info(origin.bucket, origin.key))
        return
    async for each in chosen(store, origin, options.selected):
        yield one(each)


# Local files to objects


async def stored(
    clients: Clients, sources: Sequence[str], place: ObjectPlace, options: CopyOptions
) -> AsyncIterator[ObjectCopy]:
    """Uploads of local files, and with `recursive` of those below local directories. A source has
    its own name below the place if that ends with a `/`, if there are several sources, or if it is
    a file and the place a bucket. Raises OverlapError if files of the volume would be moved."""
    from s3k_async.objects.names import check_prefix
    from s3k_async.trees import DirectoryTree, VolumeTree
    from s3k_async.trees.synchronization import require_apart

    if place.address.is_into:
        check_prefix(place.key)
    store = await place.store(clients)
    await store.bucket_info(place.bucket)
    client = await clients.of(place.address)
    if options.verb == "move":
        for source in filter(os.path.isdir, sources):
            require_apart(DirectoryTree(source), VolumeTree(client))
    is_into = len(sources) > 1 or place.address.is_into
    taken: set[str] = set()

    def one(local: str, key: str, top: str = "") -> ObjectCopy:
        if len(sources) > 1:  # below one directory all differ
            if key in taken:  # of two directories without names, such as `dir/.`
                again = InvalidArgumentError(f"another source was copied to {key}", path=local)
                return ObjectCopy(local, partial(_fail, again))
            taken.add(key)
        return ObjectCopy(local, partial(_store, client, local, place.bucket, key, options, top))

    for source in sources:
        name, key = local_name(source), place.key.removesuffix("/")
        is_dir = await in_thread(os.path.isdir, source)
        if is_into or not (is_dir or key):
            key = f"{key}/{name}" if key and name else key or name
        if not (is_dir and options.recursive):
            yield one(source, key)
            continue
        for each, relative, error in await in_thread(_below, source, options.selected):
            if error is not None:
                yield ObjectCopy(each, partial(_fail, error))
            else:
                yield one(each, f"{key}/{relative}" if key else relative, source)


def _below(top: str, selected: Selection) -> list[tuple[str, str, Exception | None]]:
    """The selected files below a local directory: path, path relative to it, and why it cannot be
    read. So is a directory that cannot be read, unless it is excluded: it may have such files."""
    tree = local_tree.survey(top)
    found: list[tuple[str, str, Exception | None]] = []
    for path, error in tree.failures:
        relative = os.path.relpath(path, top)
        left_out = (
            selected.excludes(relative) if os.path.isdir(path) else not selected.takes(relative)
        )
        if not left_out:
            found.append((path, relative, error))
    found += [
        (os.path.join(top, each), each, None) for each, _ in tree.files if selected.takes(each)
    ]
    return found


async def _fail(error: Exception) -> None:
    raise error


async def _store(
    client: S3kClient, local: str, bucket: str, key: str, options: CopyOptions, top: str
) -> None:
    """Upload a local file, and remove it, and the directories up to `top` that are empty then, if
    it is moved."""
    from s3k_async.client import volume_of

    before = await in_thread(_state, local)
    path = path_of(client, bucket, key)
    await upload(client, volume_of(client), local, path, overwrite=options.overwrite)
    if options.verb == "move":
        await in_thread(_remove, local, before, top)


def _state(local: str) -> tuple[int, ...]:
    """What tells one content of a local file from another one. Raises PathNotFoundError,
    IsDirectoryError."""
    if not os.path.lexists(local):
        hint = f"; an object of the default volume is written /{local}"
        hint = "" if local.startswith(("/", ".", "~")) else hint
        raise PathNotFoundError(f"no such local file{hint}", path=local)
    if os.path.isdir(local):
        raise IsDirectoryError("a local directory needs -r", path=local)
    with local_tree.local_errors(local):
        found = os.stat(local)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _remove(local: str, before: tuple[int, ...], top: str) -> None:
    if _state(local) != before:
        raise ConflictError("it was changed while it was copied, and is kept", path=local)
    with local_tree.local_errors(local):
        os.unlink(local)
    above = local
    while top and len(above) > len(top.rstrip("/")):
        above = os.path.dirname(above)
        try:
            os.rmdir(above)
        except OSError:  # it has other files
            return


# Objects to local files


async def fetched(
    clients: Clients, places: Sequence[ObjectPlace], local: str, options: CopyOptions
) -> AsyncIterator[ObjectCopy]:
    """Downloads of objects, and with `recursive` of all below prefixes. An object has the last part
    of its key as its name below the local path if that ends with a `/` or is a directory, or if
    there are several; those below a prefix have what follows the last `/` of the prefix."""
    is_into = len(places) > 1 or local.endswith("/") or await in_thread(os.path.isdir, local)
    taken: set[str] = set()

    def one(client: S3kClient, bucket: str, key: str, target: str) -> ObjectCopy:
        path = f"/{bucket}/{key}"
        if len(places) > 1:  # below one prefix all differ
            if target in taken:
                again = InvalidArgumentError(f"another source was copied to {target}", path=path)
                return ObjectCopy(path, partial(_fail, again))
            taken.add(target)
        return ObjectCopy(path, partial(_fetch, client, bucket, key, target, options))

    for place in places:
        store, client = await place.store(clients), await clients.of(place.address)
        start = place.key.rfind("/") + 1
        if not options.recursive:
            target = os.path.join(local, place.key[start:]) if is_into else local
            yield one(client, place.bucket, place.key, target)
            continue
        try:
            async for each in chosen(store, place, options.selected):
                yield one(client, each.bucket, each.key, os.path.join(local, each.key[start:]))
        except S3kError as error:
            if len(places) == 1:
                raise
            yield ObjectCopy(place.address.text, partial(_fail, error))


async def _fetch(
    client: S3kClient, bucket: str, key: str, target: str, options: CopyOptions
) -> None:
    path = path_of(client, bucket, key)
    status = await client.stat(path)
    if status.is_dir:
        raise PathNotFoundError("no such object; -r copies all below a prefix", path=path)
    await download(client, path, target, overwrite=options.overwrite)
    if options.verb == "move":
        await client.delete(path, expected=status)
