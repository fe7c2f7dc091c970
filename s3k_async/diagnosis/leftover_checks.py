"""Checks for what interrupted clients left: transactions and unfinished uploads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing
from functools import partial
from typing import Final

from s3k_async.backends.ports.service_inspection import DiskInspection
from s3k_async.diagnosis.check_result import CheckResult, HealthCheck, passed, skipped, warned
from s3k_async.diagnosis.volume_parts import BlobPart, VolumeParts
from s3k_async.errors import PermissionDeniedError
from s3k_async.txn.txn_record import TransactionRecords

__all__ = ["UPLOAD_AGE_MS", "leftover_checks"]

UPLOAD_AGE_MS: Final = 86_400_000
"""Age from which an unfinished upload counts as left over: younger ones may be in progress."""
_MOST: Final = 1000
"""Transactions and uploads that are looked at."""


def leftover_checks(parts: VolumeParts) -> Iterator[HealthCheck]:
    """The checks for leftovers, each bounded."""
    yield HealthCheck(
        "transactions",
        partial(_transactions, parts),
        "s3k fsck repair quarantines a damaged record",
    )
    for part in parts.blobs:
        if part.name != "log":
            yield HealthCheck(f"{part.name} uploads", partial(_uploads, parts, part))


async def _transactions(parts: VolumeParts) -> CheckResult:
    if parts.table.blocked:
        return skipped(f"table: {parts.table.blocked}")
    if parts.record is None:
        return skipped("the volume record is unknown")
    records = TransactionRecords(parts.table.items, parts.runtime)
    running, oldest, interrupted = 0, parts.runtime.now_ms(), 0
    try:
        async with aclosing(records.records()) as found:
            async for record in found:
                if records.lease_runs(record):
                    running += 1
                else:
                    interrupted += 1
                    oldest = min(oldest, record.started_ms)
                if running + interrupted >= _MOST:
                    break
    except PermissionDeniedError:
        return skipped("the credentials may not query the table")
    if interrupted:
        hours = (parts.runtime.now_ms() - oldest) / 3_600_000
        return warned(
            f"{interrupted:,} interrupted, the oldest {hours:,.1f} h ago, {running:,} running",
            "s3k transactions resolve finishes them; so does each client that meets one",
        )
    return passed(f"none interrupted, {running:,} running")


async def _uploads(parts: VolumeParts, part: BlobPart) -> CheckResult:
    if part.blocked:
        return skipped(part.blocked)
    if parts.record is None:
        return skipped("the volume record is unknown")
    old = young = 0
    try:
        now = await part.blobs.now_ms()
        async for upload in part.blobs.below(parts.record.scope).list_uploads():
            if now - upload.started_ms >= UPLOAD_AGE_MS:
                old += 1
            else:
                young += 1
            if old + young >= _MOST:
                break
    except PermissionDeniedError:
        if isinstance(part.inspection, DiskInspection):
            return skipped("this user may not read the directory")
        return skipped("the credentials may not list uploads; the role gc may")
    if old:
        return warned(
            f"{old:,} unfinished for more than a day, whose parts are paid for",
            "s3k gc --yes aborts them",
        )
    return passed(f"none unfinished for a day, {young:,} in progress")
