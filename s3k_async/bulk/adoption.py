"""Adoption: existing objects of a volume's data location become files without a copy."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

import anyio

from s3k_async._core.concurrency import run_all
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
from s3k_async.volumes.claims import belongs_to_a_volume
from s3k_async.volumes.volume import Volume

__all__ = ["LOOKS", "adopt_many", "canonical_uri", "is_own", "look_at"]

WINDOW = 1000
"""Pairs of a list that are looked at and published together."""
WINDOWS = 2
"""Windows under way at the same time: one is looked at while the other is published."""
LOOKS = 64
"""Objects of one window that are looked at at the same time."""
LOST = 16
"""Files that lost a race and are published by themselves, at the same time."""

_LOST = ConflictError, PathExistsError

_Pair: TypeAlias = tuple[str, str]
"""A normalised path and a canonical URI."""


async def look_at(volume: Volume, uri: str) -> Content:
    """What an object that others have stored is, by one request: no checksum is known of it.

    Raises ArgumentTypeError, UnsupportedError (not in the data location, or one of the volume's
    own), DataMissingError (not there).
    """
    key = _key(volume, uri)
    info = await volume.storage.place.head(key)
    if info is None:
        raise DataMissingError("the object to adopt does not exist", path=uri)
    return Content(volume.storage.place.uri(key), info.size, info.etag, "")


def canonical_uri(volume: Volume, uri: str) -> str:
    """The URI by which entries name an object, however it is spelled. Raises as `look_at`, without
    a request."""
    return volume.storage.place.uri(_key(volume, uri))


def is_own(volume: Volume, key: str) -> bool:
    """Whether an object of the data location belongs to this volume or to another: bytes of a file,
    log, mark."""
    log = volume.log_blobs and volume.storage.place_key(volume.log_blobs.uri("-"))
    return belongs_to_a_volume(key) or bool(log and key.startswith(log.removesuffix("-")))


def _key(volume: Volume, uri: str) -> str:
    """The key of an object that can be adopted."""
    if not isinstance(uri, str):
        raise ArgumentTypeError(f"a URI is text, not {type(uri).__name__}")
    full = (
        f"file://{uri[5:]}" if uri.startswith("file:/") and not uri.startswith("file://") else uri
    )  # as the JVM says
    if "://" not in full:
        raise UnsupportedError("an object to adopt is given by its URI", path=uri)
    key = volume.storage.place_key(full)
    if key is None:
        raise UnsupportedError(
            "the object to adopt is outside the data location of the volume, or its URI is invalid",
            path=uri,
        )
    if is_own(volume, key):
        raise UnsupportedError("the object belongs to a volume and cannot be adopted", path=uri)
    return key


async def adopt_many(
    volume: Volume,
    pairs: Iterable[tuple[str | os.PathLike[str], str]],
    normalise: Callable[[str | os.PathLike[str]], str],
    *,
    overwrite: bool,
    progress: ProgressCallback | None,
) -> ChangeResult:
    """Adopt each object of the list; the result says what failed."""
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
    """One list of objects on their way into the tree."""

    volume: Volume
    overwrite: bool
    tally: ProgressTally
    normalise: Callable[[str | os.PathLike[str]], str]
    preparing: anyio.Lock = field(default_factory=anyio.Lock)
    """Windows take turns, so that what one has read and made of their directories is known to the
    next."""

    async def window(self, given: Sequence[object]) -> None:
        """Adopt some objects together, and those that lost a race each by itself."""
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
        # What is there now may be the same object, which another client has adopted.
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
        """Without what is named twice: which object would be at the path, or at which path the
        object, is not told."""
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
        """What to publish: not what is adopted at its path already."""
        targets: list[WriteTarget] = []
        try:
            async with self.preparing:
                found = await prepare_many(self.volume.store, list(contents))
        except S3kError as error:
            self.tally.failures += [(path, error) for path in contents]
            return targets
        for path, prepared in found.items():
            if isinstance(prepared, S3kError):
                self.tally.failures.append((path, prepared))
            elif prepared.current is None or (
                self.overwrite and not _is(prepared.current, contents[path])
            ):
                targets.append(prepared)
            elif not _is(prepared.current, contents[path]):
                self.tally.failures.append((path, PathExistsError("the file exists", path=path)))
        return targets

    async def _alone(self, path: str, content: Content) -> None:
        store = self.volume.store
        race = ConflictBackoff(store)
        try:
            while True:
                target = await store.prepare(path)
                if target.current is not None and _is(target.current, content):
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


def _is(entry: Entry, content: Content) -> bool:
    """Whether the entry is the very object, as it is now."""
    return (entry.physical, entry.size, entry.etag) == (
        content.physical,
        content.size,
        content.etag,
    )
