"""Adoption: existing objects become files without a copy."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

import anyio

from s3k_async._core.concurrency import run_all
from s3k_async._core.object_version import as_version, version_in
from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.bulk.publish import ProgressCallback, ProgressTally
from s3k_async.errors import (
    ArgumentTypeError,
    ConflictError,
    DataMissingError,
    InvalidArgumentError,
    PathExistsError,
    S3kError,
    UnsupportedError,
)
from s3k_async.model import ROOT, ChangeResult, Content, Entry
from s3k_async.namespace.conflict_backoff import ConflictBackoff
from s3k_async.namespace.file_batches import prepare_many, publish_many
from s3k_async.namespace.store import WriteTarget
from s3k_async.storage.object_uris import key_below, root_of
from s3k_async.volumes.claims import belongs_to_a_volume
from s3k_async.volumes.volume import Volume

__all__ = ["LOOKS", "adopt_many", "canonical_uri", "is_own", "look_at", "require_adoptable"]

WINDOW = 1000
"""Pairs of a list that are checked and published together."""
WINDOWS = 2
"""Concurrent windows: one is checked while the other is published."""
LOOKS = 64
"""Objects of one window that are checked concurrently."""
LOST = 16
"""Files that lost a race and are published individually, concurrently."""

_LOST = ConflictError, PathExistsError

_Pair: TypeAlias = tuple[str, str]
"""A normalised path and a canonical URI."""


async def look_at(volume: Volume, uri: str) -> Content:
    """The content of an existing object, by one request. The checksum is unknown; any version id
    takes its place.

    Raises ArgumentTypeError, UnsupportedError (neither in the data location nor in another bucket
    of its service, or an object of a volume), DataMissingError (missing).
    """
    blobs, key = _located(volume, uri)
    info = await blobs.head(key)
    if info is None:
        raise DataMissingError("the object to adopt does not exist", path=uri)
    version = as_version(info.version)
    return Content(blobs.uri(key), info.size, info.etag, version)


def canonical_uri(volume: Volume, uri: str) -> str:
    """The canonical URI of an object, as stored in entries. Raises as `look_at`, without a
    request."""
    blobs, key = _located(volume, uri)
    return blobs.uri(key)


def require_adoptable(volume: Volume, uri: str) -> None:
    """Raises UnsupportedError for the URI of an object that the volume cannot reach by its data
    location."""
    if volume.storage.find(uri) is None:
        raise UnsupportedError(
            "only objects in the data location of the volume can be adopted, and for data in S3 "
            "those in other buckets of its service: import without adoption, which copies them",
            path=uri,
        )


def is_own(volume: Volume, blobs: BlobStore, key: str) -> bool:
    """Whether an object of a store belongs to a volume, this or another: data, log or mark."""
    log = volume.log_blobs
    return belongs_to_a_volume(key) or (
        log is not None and key_below(root_of(log), blobs.uri(key)) is not None
    )


def _located(volume: Volume, uri: str) -> tuple[BlobStore, str]:
    """Store and key of an object that can be adopted."""
    if not isinstance(uri, str):
        raise ArgumentTypeError(f"a URI is text, not {type(uri).__name__}")
    # The JVM writes `file:/path`.
    full = (
        f"file://{uri[5:]}" if uri.startswith("file:/") and not uri.startswith("file://") else uri
    )
    if "://" not in full:
        raise UnsupportedError("an object to adopt is given by its URI", path=uri)
    found = volume.storage.find(full)
    if found is None:
        raise UnsupportedError(
            "the object to adopt is neither in the data location of the volume nor in another "
            "bucket of its service, or its URI is invalid: copy it instead",
            path=uri,
        )
    if is_own(volume, *found):
        raise UnsupportedError("the object belongs to a volume and cannot be adopted", path=uri)
    return found


async def adopt_many(
    volume: Volume,
    pairs: Iterable[tuple[str | os.PathLike[str], str]],
    normalise: Callable[[str | os.PathLike[str]], str],
    *,
    overwrite: bool,
    progress: ProgressCallback | None,
) -> ChangeResult:
    """Adopt each object of the list; the result lists the failures."""
    volume.store.require_writable(ROOT)
    adoption = _Adoption(volume, overwrite, ProgressTally("adopt", progress), normalise)
    await run_all(adoption.window, _windows(pairs), limit=WINDOWS)
    return adoption.tally.result


def _windows(pairs: Iterable[tuple[str | os.PathLike[str], str]]) -> Iterator[list[object]]:
    rest = iter(pairs)
    while window := list(islice(rest, WINDOW)):
        yield list(window)


@dataclass(slots=True)
class _Adoption:
    """The adoption of one list of objects."""

    volume: Volume
    overwrite: bool
    tally: ProgressTally
    normalise: Callable[[str | os.PathLike[str]], str]
    preparing: anyio.Lock = field(default_factory=anyio.Lock)
    """Windows read directories one after the other, so that each can use the directories that
    earlier ones have read or created."""

    async def window(self, given: Sequence[object]) -> None:
        """Adopt some objects together, and those that lost a race individually."""
        contents: dict[str, Content] = {}

        async def look(pair: _Pair) -> None:
            path, uri = pair
            with self.tally.noting(path):
                contents[path] = await look_at(self.volume, uri)

        await run_all(look, self._distinct(self._pairs(given)), limit=LOOKS)
        targets = await self._targets(contents)
        published = await publish_many(
            self.volume.store,
            [(target, contents[target.path]) for target in targets],
            overwrite=self.overwrite,
        )
        # The present file may be the same object, adopted by another client.
        lost = [path for path, outcome in published.items() if isinstance(outcome, _LOST)]
        for path, outcome in published.items():
            if isinstance(outcome, Entry):
                self.tally.add(outcome)
            elif not isinstance(outcome, _LOST):
                self.tally.failures.append((path, outcome))
        await run_all(lambda path: self._alone(path, contents[path]), lost, limit=LOST)

    def _pairs(self, given: Sequence[object]) -> list[_Pair]:
        found = []
        for each in given:
            if isinstance(each, str) or not isinstance(each, Sequence) or len(each) != 2:
                raise ArgumentTypeError(
                    f"a file to adopt is (path, uri), not {type(each).__name__}"
                )
            path, uri = each
            try:
                path = self.normalise(path)
                found.append((path, canonical_uri(self.volume, uri)))
            except S3kError as error:
                self.tally.failures.append((str(path), error))
        return found

    def _distinct(self, pairs: list[_Pair]) -> list[_Pair]:
        """The pairs without duplicates of a path or an object, whose result would be ambiguous."""
        paths, uris = Counter(path for path, _ in pairs), Counter(uri for _, uri in pairs)
        for path, uri in pairs:
            if paths[path] > 1 or uris[uri] > 1:
                what = "path" if paths[path] > 1 else "object"
                error = InvalidArgumentError(
                    f"the {what} occurs several times in the list", path=path
                )
                self.tally.failures.append((path, error))
        return [(path, uri) for path, uri in pairs if paths[path] == uris[uri] == 1]

    async def _targets(self, contents: dict[str, Content]) -> list[WriteTarget]:
        """The targets to publish, without objects that are already adopted at their paths."""
        targets: list[WriteTarget] = []
        try:
            async with self.preparing:
                found = await prepare_many(
                    self.volume.store, list(contents), overwrite=self.overwrite
                )
        except S3kError as error:
            self.tally.failures += [(path, error) for path in contents]
            return targets
        for path, prepared in found.items():
            if isinstance(prepared, S3kError):
                self.tally.failures.append((path, prepared))
            elif prepared.current is None or (
                self.overwrite and not self._is(prepared.current, contents[path])
            ):
                targets.append(prepared)
            elif not self._is(prepared.current, contents[path]):
                self.tally.failures.append((path, PathExistsError("the file exists", path=path)))
        return targets

    async def _alone(self, path: str, content: Content) -> None:
        store = self.volume.store
        race = ConflictBackoff(store)
        try:
            while True:
                target = await store.prepare(path, overwrite=self.overwrite)
                if target.current is not None and self._is(target.current, content):
                    return
                if target.current is not None and not self.overwrite:
                    raise PathExistsError("the file exists", path=path)
                try:
                    self.tally.add(await store.publish(target, content, overwrite=self.overwrite))
                except _LOST as error:
                    await race.lost(error)
                else:
                    return
        except S3kError as error:
            self.tally.failures.append((path, error))

    def _is(self, entry: Entry, content: Content) -> bool:
        """Whether the entry references this object in its current state. With `overwrite`, also at
        the current version id, which differs if the same bytes were stored again, or if versioning
        was enabled."""
        if (entry.physical, entry.size, entry.etag) != (
            content.physical,
            content.size,
            content.etag,
        ):
            return False
        return not self.overwrite or entry.object_version == version_in(content.checksum)
