"""Two blob stores as one: new blobs in the hot one, older ones in the cold one.

A blob in both is a move that has not ended (`storage.tier_moves`), or a copy that was made in
advance. Moves write to the cold store before they delete from the hot one, and nothing but a
deletion of the blob removes it from the cold store. So a reader that looks in the hot store first,
then in the cold one, finds every blob, and a listing, too.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from s3k_async._core.concurrency import to_the_end
from s3k_async.backends.ports.blob_keys import check_copied_part, check_unchanged
from s3k_async.backends.ports.blobs import (
    BlobInfo,
    BlobPage,
    BlobStore,
    Buffer,
    DeleteFailure,
    Unfinished,
    Upload,
    get_into,
)
from s3k_async.errors import (
    BlobChangedError,
    BlobExistsError,
    BlobNotFoundError,
    ConfigError,
    S3kError,
    UnsupportedError,
)
from s3k_async.storage_space import StorageSpace

__all__ = ["TieredBlobs", "TieredPage", "need_tiers", "require_apart"]

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

_HOT: Final = "hot:"
_COLD: Final = "cold:"
"""Prefixes of the ids of unfinished uploads."""
_DIGEST: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_PARTS_TAG: Final = re.compile(r"[0-9a-f]{32}-[0-9]{1,5}", re.ASCII)
_FILE_TAG: Final = re.compile(r"[0-9a-f]+-[0-9a-f]+", re.ASCII)
"""Etags: of a blob that was stored by one request, of one in parts, and of a file."""


@dataclass(frozen=True, slots=True)
class TieredPage:
    """A page of both stores. `doubled`: the blobs of it that both have, the hot one first."""

    page: BlobPage
    doubled: Sequence[tuple[BlobInfo, BlobInfo]]


class TieredBlobs:
    """A BlobStore over a hot store, which gets what is written, and a cold one.

    Of a blob in both the hot one counts. The two need not have one clock: `now_ms` is the earlier
    time, so that no blob appears older than it is. Conditions of `put` are checked in the store
    that has the blob, but not in one step with a move; physical keys are fresh, and need none.

    An etag that a read or copy requires is that of the store to which the blob was written. The
    other store has another one for it, unless both give the digest of the bytes; so it is compared
    only where it can be right. A copy in the hot store that was made in advance may have another
    one, too: `ChangeDetection` then compares the bytes.
    """

    def __init__(self, hot: BlobStore, cold: BlobStore, *, through: bool = False) -> None:
        """`through`: write to the cold store, and whole blobs then to the hot one, too, where a
        failure is no error."""
        self.hot = hot
        self.cold = cold
        self.through = through
        self.on_cold_read: Callable[[str, int], object] | None = None
        """Called with the key of each blob that is read from the cold store, and the number of
        bytes that were read."""
        self.min_part = max(hot.min_part, cold.min_part)
        self.composes = False
        """Never: the source may be in one store and the upload in the other."""
        self._have_files = _has_files(hot), _has_files(cold)
        self._share_tags = not any(map(_is_express, (hot, cold)))

    def notifying(self, on_cold_read: Callable[[str, int], object]) -> TieredBlobs:
        """The same stores; `on_cold_read` is called with the key of each blob that is read from the
        cold one, and the number of bytes that were read."""
        view = copy(self)
        view.on_cold_read = on_cold_read
        return view

    def __repr__(self) -> str:
        return f"TieredBlobs({self.hot!r}, {self.cold!r})"

    def uri(self, key: str) -> str:
        """The URI in the cold store, where the blob is, or will be after its move."""
        return self.cold.uri(key)

    async def put(
        self, key: str, data: Buffer, *, if_absent: bool = False, if_match: str | None = None
    ) -> BlobInfo:
        if if_absent and await self.cold.head(key) is not None:
            raise BlobExistsError("a blob has this key", path=self.cold.uri(key))
        if self.through and not if_absent and if_match is None:
            info = await self.cold.put(key, data)
            try:
                await self.hot.put(key, data)
            except S3kError as error:
                _LOG.debug("%s is in the cold location only: %s", key, error)
            return info
        if if_match is not None and await self.hot.head(key) is None:
            return await self.cold.put(key, data, if_match=if_match)
        return await self.hot.put(key, data, if_absent=if_absent, if_match=if_match)

    async def get(
        self,
        key: str,
        start: int = 0,
        end: int | None = None,
        *,
        if_match: str | None = None,
        if_size: int | None = None,
    ) -> bytes:
        async def read(store: BlobStore, tag: str | None) -> bytes:
            return await store.get(key, start, end, if_match=tag, if_size=if_size)

        return await self._found(key, read, len, if_match)

    async def get_into(
        self,
        key: str,
        start: int,
        buffer: memoryview,
        *,
        if_match: str | None = None,
        if_size: int | None = None,
    ) -> int:
        """As `DirectReads.get_into`."""

        async def read(store: BlobStore, tag: str | None) -> int:
            return await get_into(store, key, start, buffer, if_match=tag, if_size=if_size)

        return await self._found(key, read, int, if_match)

    async def _found(
        self,
        key: str,
        read: Callable[[BlobStore, str | None], Awaitable[T]],
        length: Callable[[T], int],
        if_match: str | None,
    ) -> T:
        """A read of a blob, in the store that has it, on the condition of the etag there. `length`:
        of a result, the number of bytes that were read."""
        try:
            return await read(self.hot, self._tag_in(self.hot, if_match))
        except BlobNotFoundError:
            found = await read(self.cold, self._tag_in(self.cold, if_match))
        if self.on_cold_read is not None:
            self.on_cold_read(key, length(found))
        return found

    def _tag_in(self, store: BlobStore, tag: str | None) -> str | None:
        """The etag that a blob must have in a store, if `tag` is the one that it was given by the
        store to which it was written; None if that cannot be known."""
        if tag is None:
            return None
        hot_has_files, cold_has_files = self._have_files
        has_files = hot_has_files if store is self.hot else cold_has_files
        if _is_of_file(tag) != has_files:
            return None
        is_ambiguous = hot_has_files == cold_has_files
        if is_ambiguous and (store is self.cold or self.through):
            return tag if self._share_tags and _DIGEST.fullmatch(tag) else None
        return tag

    async def head(self, key: str) -> BlobInfo | None:
        return await self.hot.head(key) or await self.cold.head(key)

    def can_copy_from(self, source: BlobStore) -> bool:
        """Not if it writes through: the copy of a hot blob would be in the hot store alone."""
        return (
            not self.through
            and isinstance(source, TieredBlobs)
            and self.hot.can_copy_from(source.hot)
            and self.cold.can_copy_from(source.cold)
        )

    async def copy(
        self,
        source: BlobStore,
        source_key: str,
        key: str,
        *,
        found: BlobInfo | None = None,  # noqa: ARG002 - it may be of the other store
        if_match: str | None = None,
    ) -> BlobInfo:
        """Copy inside the store that has the source."""
        if not isinstance(source, TieredBlobs) or not self.can_copy_from(source):
            raise UnsupportedError(
                "only the blobs of the same two services are copied", path=source.uri(source_key)
            )
        if (there := await source.hot.head(source_key)) is not None:
            tag = self._tag_in(self.hot, if_match)
            check_unchanged(there, tag)
            try:
                return await self.hot.copy(source.hot, source_key, key, found=there, if_match=tag)
            except BlobNotFoundError:
                pass  # moved in the meantime
        there = await source.cold.head(source_key)
        if there is None:
            raise BlobNotFoundError("no blob has this key", path=source.uri(source_key))
        tag = self._tag_in(self.cold, if_match)
        check_unchanged(there, tag)
        copied = await self.cold.copy(source.cold, source_key, key, found=there, if_match=tag)
        await self.hot.delete(key)  # a former blob of this key, which would hide the copy
        return copied

    async def delete(self, key: str) -> None:
        """Remove the blob from the cold store first: until the end it is where `s3k tier run` and
        garbage collection find it."""
        await self.cold.delete(key)
        await self.hot.delete(key)

    async def delete_many(self, keys: Sequence[str]) -> list[DeleteFailure]:
        failures = list(await self.cold.delete_many(keys))
        kept = {failure.key for failure in failures}
        left = [key for key in keys if key not in kept]
        if left:
            failures += await self.hot.delete_many(left)
        return failures

    async def list(
        self,
        prefix: str = "",
        *,
        cursor: str | None = None,
        limit: int | None = None,
        after: str = "",
    ) -> BlobPage:
        """One page of both. The hot store is listed first: a blob that is moved in between is seen
        in the cold one."""
        return (await self.list_both(prefix, cursor=cursor, limit=limit, after=after)).page

    async def list_both(
        self,
        prefix: str = "",
        *,
        cursor: str | None = None,
        limit: int | None = None,
        after: str = "",
    ) -> TieredPage:
        """As `list`, with the blobs that are in both stores."""
        start = after if cursor is None else cursor
        hot = await _page(self.hot, prefix, start, limit)
        cold = await _page(self.cold, prefix, start, limit)
        merged = {info.key: info for info in [*cold.blobs, *hot.blobs]}
        keys = sorted(merged, key=str.encode)
        # What follows the end of a page that is not the last one is not known.
        ends = [page.blobs[-1].key for page in (hot, cold) if page.next is not None]
        if ends:
            end = min(ends, key=str.encode)
            keys = [key for key in keys if key.encode() <= end.encode()]
        more = bool(ends)
        if limit is not None and len(keys) > limit:
            keys, more = keys[:limit], True
        page = BlobPage([merged[key] for key in keys], keys[-1] if more else None)
        there = {info.key: info for info in cold.blobs}
        here = {info.key: info for info in hot.blobs}
        doubled = [(here[key], there[key]) for key in keys if key in here and key in there]
        return TieredPage(page, doubled)

    async def start_upload(self, key: str) -> Upload:
        return _TieredUpload(await (self.cold if self.through else self.hot).start_upload(key))

    async def list_uploads(self, prefix: str = "") -> AsyncIterator[Unfinished]:
        for mark, store in ((_HOT, self.hot), (_COLD, self.cold)):
            async for upload in store.list_uploads(prefix):
                yield Unfinished(upload.key, mark + upload.id, upload.started_ms)

    async def abort_upload(self, upload: Unfinished) -> None:
        store, mark = (self.hot, _HOT) if upload.id.startswith(_HOT) else (self.cold, _COLD)
        own = Unfinished(upload.key, upload.id.removeprefix(mark), upload.started_ms)
        await store.abort_upload(own)

    async def now_ms(self) -> int:
        return min(await self.hot.now_ms(), await self.cold.now_ms())

    async def space(self) -> StorageSpace:
        """Of both stores, also where one disk holds them."""
        return await self.hot.space() + await self.cold.space()

    async def create(self) -> bool:
        made = await self.cold.create()
        return await self.hot.create() or made

    async def exists(self) -> bool:
        return await self.cold.exists() and await self.hot.exists()

    async def drop(self, *, if_empty: bool = False) -> bool:
        if if_empty and (await self.list(limit=1)).blobs:
            return False
        dropped = await self.cold.drop(if_empty=if_empty)
        return await self.hot.drop(if_empty=if_empty) and dropped

    async def close(self) -> None:
        try:
            await self.hot.close()
        finally:
            await self.cold.close()


def _has_files(store: BlobStore) -> bool:
    """Whether the blobs of a store are files of a directory."""
    return store.uri("-").startswith("file:")


def _is_of_file(tag: str) -> bool:
    """Whether an etag is that of a file: modification time and size, in hexadecimal digits."""
    return _FILE_TAG.fullmatch(tag) is not None and _PARTS_TAG.fullmatch(tag) is None


def _is_express(store: BlobStore) -> bool:
    """Whether a store is a directory bucket of S3, whose etags are no digests. Source: Amazon S3
    User Guide, directory buckets: names end in `--x-s3`, and the ETag is not an MD5 digest."""
    return "--x-s3" in store.uri("-")


class _TieredUpload:
    """An upload to one of the stores."""

    def __init__(self, upload: Upload) -> None:
        self._upload = upload

    async def put_part(self, number: int, data: Buffer) -> None:
        await self._upload.put_part(number, data)

    async def copy_part(
        self,
        number: int,
        source: BlobStore,
        source_key: str,
        start: int,
        end: int,
        *,
        if_match: str | None = None,
    ) -> None:
        """By a read: the source may be in the other store."""
        check_copied_part(number, start, end)
        if not isinstance(source, TieredBlobs):
            raise UnsupportedError(
                "only the blobs of the same two services are copied", path=source.uri(source_key)
            )
        data = await source.get(source_key, start, end, if_match=if_match)
        if len(data) < end - start:
            raise BlobChangedError("the blob ends before the range", path=source.uri(source_key))
        await self._upload.put_part(number, data)

    async def complete(self) -> BlobInfo:
        return await self._upload.complete()

    async def abort(self) -> None:
        await self._upload.abort()


def need_tiers(blobs: BlobStore, path: str) -> TieredBlobs:
    """The blobs of a volume with tiers. Raises UnsupportedError for another volume, at `path`."""
    if not isinstance(blobs, TieredBlobs):
        raise UnsupportedError(
            "the volume has no hot location; s3k migrate --hot LOCATION adds one", path=path
        )
    return blobs


async def require_apart(hot: BlobStore, cold: BlobStore, name: str) -> None:
    """Check that two stores are not the same place under two names, such as a directory and a
    symbolic link to it: what is deleted from one would be gone from the other. `name`: a new one,
    for an empty object that is written to the hot store, and removed again. Raises ConfigError."""
    key = f"tiers-{name}"
    await hot.put(key, b"")
    try:
        found = await cold.head(key)
    finally:
        await to_the_end(partial(hot.delete, key))
    if found is not None:
        raise ConfigError(
            f"the hot location is the data location, {_place(cold)}, under another name: what is "
            "deleted from the one would be gone from the other; give two different places",
            path=_place(hot),
        )


def _place(store: BlobStore) -> str:
    return store.uri("-").removesuffix("-")


async def _page(store: BlobStore, prefix: str, after: str, limit: int | None) -> BlobPage:
    """The first page after a key that has blobs, or the last one."""
    page = await store.list(prefix, limit=limit, after=after)
    while not page.blobs and page.next is not None:
        page = await store.list(prefix, cursor=page.next, limit=limit, after=after)
    return page
