"""Detection of physical objects that other programs have replaced.

Reads and copies are conditional on the entity tag that was recorded when the object was written or
adopted. Copies of the volume's own objects, as in a restored data location, keep the bytes but not
the tags: so a different tag of such an object is accepted if its bytes have the recorded
checksum. The modes are those of S3A (`fs.s3a.change.detection.mode`).
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, TypeVar

import anyio

from s3k_async._native import Xxh3_128
from s3k_async.backends.ports.blobs import BlobInfo, BlobStore, Buffer
from s3k_async.errors import BlobChangedError, BlobNotFoundError, CorruptDataError
from s3k_async.storage.upload import CHECKSUM_PREFIX

__all__ = ["ChangeDetection", "RecordedObject", "checksum_of", "is_uri", "missing_version"]

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

Mode: TypeAlias = Literal["server", "client", "warn", "none"]
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.*", re.DOTALL)
_READ_AT_ONCE: Final = 8 * 1024 * 1024
"""Bytes that are read at once to compute a checksum."""
_ACCEPTED: Final = 10_000
"""Accepted tags that a client remembers."""
_OTHER: Final = ""
"""Instead of a tag: another one than recorded, which is not known, since only the bytes of whole
reads were compared."""


def is_uri(physical: str) -> bool:
    """Whether an entry's physical name is a full URI."""
    return _URI.fullmatch(physical) is not None


def missing_version(version: str) -> str:
    """The text of an error about a deleted version of an adopted object, with the remedy."""
    return (
        f"the version {version} of the adopted object was deleted: delete the file, and adopt the "
        "current object"
    )


def checksum_of(data: Buffer) -> str:
    """`xxh128:<32 hex digits>`: XXH3 of 128 bits over the data, canonical form."""
    digest = Xxh3_128()
    digest.update(data)
    return CHECKSUM_PREFIX + digest.hexdigest()


@dataclass(frozen=True, slots=True)
class RecordedObject:
    """A physical object where it is, and its recorded facts; an unknown one is empty or None."""

    blobs: BlobStore
    key: str
    physical: str
    """The physical name in the entry."""
    size: int | None = None
    etag: str = ""
    checksum: str = ""
    version: str = ""
    """The version id of an adopted object, at which `blobs` reads."""

    @property
    def is_adopted(self) -> bool:
        """Whether the object is not the volume's own."""
        return is_uri(self.physical)


class ChangeDetection:
    """Compares objects with what was recorded, for one client. Belongs to its event loop.

    Modes: `server`, a condition of each request; `client`, a comparison with its answer; `warn`, as
    `server`, but another tag is logged once for each object and accepted; `none`. The recorded size
    is required in every mode.
    """

    def __init__(self, mode: Mode, *, tags_change: bool = False) -> None:
        """`tags_change`: whether the volume itself gives its objects other tags, as moves between
        tiers do. Then a tag is compared only where the bytes can decide, by a checksum."""
        self._mode = mode
        self._tags_change = tags_change
        self._accepted: OrderedDict[str, str] = OrderedDict()
        """Physical name to the tag that the object has instead of the recorded one, or `_OTHER`."""
        self._doubtful: set[str] = set()
        """The volume's own objects with a different tag that was accepted in mode `warn`."""
        self._locks: dict[str, anyio.Lock] = {}

    def expected(self, source: RecordedObject) -> str | None:
        """The tag that the object must have; None if it is not compared."""
        if not source.etag or self._mode == "none":
            return None
        if self._tags_change and not source.is_adopted and not source.checksum:
            return None
        return self._accepted.get(source.physical) or source.etag

    def is_doubtful(self, physical: str) -> bool:
        """Whether an own object may have other bytes than those that were recorded, so that they
        must not be cached."""
        return physical in self._doubtful

    async def unchanged(
        self,
        source: RecordedObject,
        read: Callable[[str | None], Awaitable[T]],
        whole: Callable[[T], Buffer] | None = None,
    ) -> T:
        """The result of `read`, a request that requires the tag that it is given.

        `whole`: of a read of the whole object, the bytes in its result. If the object is known to
        have another tag, they are compared without a request that requires the recorded one. Raises
        CorruptDataError if the object was replaced, BlobNotFoundError.
        """
        expected = self.expected(source)
        if not source.checksum or source.is_adopted:
            whole = None
        if whole is None or expected is None or self._accepted.get(source.physical) != _OTHER:
            try:
                return await read(expected)
            except BlobChangedError as error:
                if expected is None:
                    raise await self._other_size(source) from error
        if whole is not None:
            found = await _read_whole(read, whole, source.checksum)
            if found is not None:
                self._remember(source, _OTHER)
                return found
        await self._judge(source, expected)
        # Replaced once more meanwhile: the next call judges it.
        try:
            return await read(self.expected(source))
        except BlobChangedError as error:
            raise await self._other_size(source) from error

    async def check(self, source: RecordedObject, found: BlobInfo) -> None:
        """Check an object that was just found. Raises as `unchanged`."""
        expected = self.expected(source)
        if source.size is not None and found.size != source.size:
            raise _resized(source, found)
        if expected is not None and found.etag not in ("", expected):
            await self._judge(source, expected)

    async def _judge(self, source: RecordedObject, expected: str) -> None:
        """Accept the present tag of an object, or raise CorruptDataError; concurrent calls for one
        object wait for the first of them."""
        lock = self._locks.setdefault(source.physical, anyio.Lock())
        try:
            async with lock:
                if self.expected(source) == expected:
                    await self._accept(source, expected)
        finally:
            if not lock.statistics().tasks_waiting:
                self._locks.pop(source.physical, None)

    async def _accept(self, source: RecordedObject, expected: str) -> None:
        found = await source.blobs.head(source.key)
        if found is None:
            raise BlobNotFoundError("no blob has this key", path=source.physical)
        if source.size is not None and found.size != source.size:
            raise _resized(source, found)
        if found.etag == expected:
            return
        if self._mode == "warn":
            _LOG.warning(
                "%s was replaced by another program: its entity tag is %s instead of %s",
                source.physical,
                found.etag,
                expected,
            )
            if not source.is_adopted:
                self._doubtful.add(source.physical)
        elif source.is_adopted or not source.checksum:
            raise _replaced(source, f"its entity tag is {found.etag} instead of {expected}")
        else:
            await self._require_bytes(source, found, expected)
            _LOG.info(
                "%s has the entity tag %s instead of %s, and the recorded bytes: it is a copy",
                source.physical,
                found.etag,
                expected,
            )
        self._remember(source, found.etag)

    def _remember(self, source: RecordedObject, tag: str) -> None:
        """Note the tag that an object has instead of the recorded one."""
        self._accepted[source.physical] = tag
        while len(self._accepted) > _ACCEPTED:
            self._doubtful.discard(self._accepted.popitem(last=False)[0])

    async def _require_bytes(self, source: RecordedObject, found: BlobInfo, expected: str) -> None:
        """Raise CorruptDataError unless the bytes of the object have the recorded checksum."""
        digest = Xxh3_128()
        try:
            for start in range(0, found.size, _READ_AT_ONCE):
                end = min(found.size, start + _READ_AT_ONCE)
                digest.update(
                    await source.blobs.get(source.key, start, end, if_match=found.etag or None)
                )
        except BlobChangedError as error:
            raise _replaced(source, "it is being replaced") from error
        checksum = CHECKSUM_PREFIX + digest.hexdigest()
        if checksum != source.checksum:
            raise _replaced(
                source,
                f"its entity tag is {found.etag} instead of {expected}, and the checksum of its "
                f"bytes {checksum} instead of {source.checksum}",
            )

    async def _other_size(self, source: RecordedObject) -> CorruptDataError:
        """The error about an object that is not the expected one, after a HeadObject."""
        found = await source.blobs.head(source.key)
        if found is None or found.size == source.size:
            return _replaced(source, "it is being replaced")
        return _resized(source, found)


async def _read_whole(
    read: Callable[[str | None], Awaitable[T]], whole: Callable[[T], Buffer], checksum: str
) -> T | None:
    """The result of an unconditional read, if it is the object as it was recorded. So a copied
    object that is read whole is not read twice."""
    try:
        result = await read(None)
    except BlobChangedError:
        return None
    return result if checksum_of(whole(result)) == checksum else None


def _resized(source: RecordedObject, found: BlobInfo) -> CorruptDataError:
    tags = ""
    if source.etag and found.etag not in ("", source.etag):
        tags = f", and its entity tag is {found.etag} instead of {source.etag}"
    return _replaced(source, f"it has {found.size} bytes instead of {source.size}{tags}")


def _replaced(source: RecordedObject, how: str) -> CorruptDataError:
    """The error about a replaced object, with the remedy."""
    if source.is_adopted:
        return CorruptDataError(
            f"the object {source.physical} was replaced since it was adopted ({how}): put the old "
            "object back, or adopt the new one in its place",
            path=source.physical,
        )
    copied = (
        ""
        if source.checksum
        else "; if it is a copy already, its tag may differ: then read it with change_detection "
        "= warn"
    )
    return CorruptDataError(
        f"the physical object {source.physical} is not the one that was written ({how}): restore "
        f"it from a copy, or delete the file{copied}",
        path=source.physical,
    )
