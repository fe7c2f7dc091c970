"""Checks of the volume record, its copy in the table's tag, and the marks of the locations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from s3k_async.backends.ports.items import Item
from s3k_async.diagnosis.check_result import (
    CheckResult,
    HealthCheck,
    failed,
    passed,
    skipped,
    warned,
)
from s3k_async.diagnosis.volume_parts import BlobPart, VolumeParts
from s3k_async.errors import (
    NotAVolumeError,
    PermissionDeniedError,
    S3kError,
    UnsupportedError,
    VolumeFormatError,
    VolumeMismatchError,
    VolumeNotFoundError,
)
from s3k_async.txn.volume_record import (
    DESTROYING,
    LOCK,
    RECORD_KEY,
    STATE,
    TAG,
    VolumeRecord,
    is_empty,
    locked_message,
    require_tag,
)
from s3k_async.volumes.claims import CLAIM, read_claim, require_claim, table_identity
from s3k_async.volumes.volume import is_beside, needs_mark, require_agreement

__all__ = ["mark_checks", "record_checks"]

_NEWER: Final = "use the version of s3k-async that made the volume, or a later one"
_TAKE_OVER: Final = "s3k init --take-over writes it again"


@dataclass(slots=True)
class _Record:
    """Item and tag, each read by its check; the record is the item, else the tag."""

    parts: VolumeParts
    item: Item | None = None
    stored: VolumeRecord | None = None
    tagged: VolumeRecord | None = None

    @property
    def _where(self) -> str:
        return self.parts.config.where

    async def check_item(self) -> CheckResult:
        if self.parts.table.blocked:
            return skipped(f"table: {self.parts.table.blocked}")
        self.item = await self.parts.table.items.get(RECORD_KEY)
        if self.item is None:
            return await self._without_item()
        try:
            self.stored = VolumeRecord.from_item(self.item, self._where)
        except S3kError as error:
            self.parts.table.blocked = "its volume record cannot be read"
            return failed(error, _remedy(error))
        self.parts.record = self.stored
        if self.item.get(STATE) == DESTROYING:
            gone = VolumeNotFoundError("the volume is being destroyed", path=self._where)
            return failed(gone, "s3k destroy, again, finishes it")
        if LOCK in self.item:
            found = locked_message(self.item, self.parts.runtime.now_ms())
            return warned(found, "wait for the other client, or repeat what was interrupted")
        stored = self.stored
        features = ", ".join(stored.flags) or "none"
        return passed(
            f"volume {stored.name!r}, layout {stored.layout}, {stored.suffix_count} suffixes, "
            f"flags {features}"
        )

    async def _without_item(self) -> CheckResult:
        if await self._tag() is not None:
            return warned(
                "the record item is missing; the table's tag has it",
                "s3k stat opens the volume, which writes the item again",
            )
        if self.parts.config.kind != "native":
            return skipped("a volume of S3-FileSystem 1.0 has no record")
        if await is_empty(self.parts.table.items, self.parts.table.store):
            self.parts.table.blocked = "it holds no volume"
            prefix = self.parts.config.table_prefix
            empty = (
                f"the table has no volume with the prefix {prefix}"
                if prefix
                else "the table is empty"
            )
            error: S3kError = VolumeNotFoundError(empty, path=self._where)
            return failed(error, "s3k init makes a volume in it")
        self.parts.table.blocked = "it holds no volume"
        error = NotAVolumeError("the table holds items but no volume record", path=self._where)
        return failed(error, "give the table of the volume, or restore it from a backup")

    async def _tag(self) -> VolumeRecord | None:
        """The tag; None without one, and if it cannot be read."""
        try:
            text = await self.parts.table.store.read_tag(TAG)
            found = None if text is None else VolumeRecord.from_tag(text, self._where)
        except S3kError:
            return None
        self.parts.record = found
        return found

    async def check_tag(self) -> CheckResult:
        if self.parts.table.blocked and self.stored is None:
            return skipped(f"table: {self.parts.table.blocked}")
        try:
            text = await self.parts.table.store.read_tag(TAG)
        except (PermissionDeniedError, UnsupportedError) as error:
            return skipped(error.message)
        if text is None and self.stored is not None:
            return warned("the tag is missing", "s3k stat opens the volume, which writes it again")
        if text is None:
            return skipped("neither item nor tag")
        self.tagged = VolumeRecord.from_tag(text, self._where)
        if self.stored is not None:
            require_tag(self.stored, self.tagged, self._where)
        return passed("agrees with the item" if self.stored else "is there")

    async def check_settings(self) -> CheckResult:
        record = self.parts.record
        if record is None:
            return skipped("the volume record is unknown")
        if self.parts.config.kind == "s3k-1.0":
            return skipped("a volume of S3-FileSystem 1.0 has no record")
        require_agreement(record, self.parts.config, self._where)
        return passed("agree with the record")


def record_checks(parts: VolumeParts) -> Iterator[HealthCheck]:
    """The checks of the record; each is to be run before the next one."""
    record = _Record(parts)
    yield HealthCheck("record", record.check_item)
    yield HealthCheck(
        "tag",
        record.check_tag,
        "restore the one that was changed from a backup: s3k opens the volume only if both agree",
    )
    yield HealthCheck(
        "settings",
        record.check_settings,
        "correct the settings; s3k info shows those of the volume",
    )


def _remedy(error: S3kError) -> str:
    if isinstance(error, VolumeFormatError):
        return _NEWER
    if isinstance(error, VolumeMismatchError):
        return "give the prefix of the volume in the table: s3k volumes lists them"
    return "restore the item s3k:volume / record from a backup, or remove it: the tag restores it"


def mark_checks(parts: VolumeParts) -> Iterator[HealthCheck]:
    """The checks of the marks at the roots of the locations."""
    for part in parts.blobs:
        if part.name != "log" or not is_beside(part.location, parts.config):
            yield HealthCheck(
                f"{part.name} mark",
                partial(_mark, parts, part),
                "give the location of this volume; s3k init --take-over, if this table replaces "
                "the other for good",
            )


async def _mark(parts: VolumeParts, part: BlobPart) -> CheckResult:
    if part.blocked:
        return skipped(part.blocked)
    if parts.record is None:
        return skipped("the volume record is unknown")
    try:
        found = await read_claim(part.blobs)
    except PermissionDeniedError:
        return skipped(f"{CLAIM} may not be read")
    if found is None and needs_mark(part.location, parts.record, parts.config):
        part.blocked = "it has no mark of the volume"
        missing = VolumeNotFoundError("the mark is missing", path=part.blobs.uri(CLAIM))
        return failed(missing, f"mount the disk; if only the mark was lost, {_TAKE_OVER}")
    if found is None:
        return warned(f"{part.blobs.uri(CLAIM)} is missing", _TAKE_OVER)
    await require_claim(part.blobs, parts.record, table_identity(parts.config, part.location))
    return passed(f"names this volume and its table, {found.table}")
