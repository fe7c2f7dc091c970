"""Checks of the settings of a table and of buckets that would lose data or cause needless cost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from s3k_async.backends.ports.service_inspection import BucketInspection, TableInspection
from s3k_async.diagnosis.check_result import (
    CheckResult,
    HealthCheck,
    failed,
    passed,
    skipped,
    warned,
)
from s3k_async.diagnosis.volume_parts import BlobPart, TablePart
from s3k_async.errors import ConfigError, PermissionDeniedError

__all__ = ["setting_checks"]


def setting_checks(part: TablePart | BlobPart) -> Iterator[HealthCheck]:
    """The checks of a part's settings; none for a backend that reports none."""
    inspection = part.inspection
    if isinstance(part, TablePart) and isinstance(inspection, TableInspection):
        yield _check(part, "settings", partial(_table, inspection))
        yield _check(part, "expiry", partial(_expiry, inspection, part.location.label))
        yield _check(part, "backups", partial(_backups, inspection))
    elif isinstance(part, BlobPart) and isinstance(inspection, BucketInspection):
        yield _check(part, "versioning", partial(_versioning, inspection))
        yield _check(part, "lifecycle", partial(_lifecycle, inspection, part))
        yield _check(part, "encryption", partial(_encryption, inspection))


def _check(
    part: TablePart | BlobPart, what: str, run: Callable[[], Awaitable[CheckResult]]
) -> HealthCheck:
    async def allowed() -> CheckResult:
        if part.blocked:
            return skipped(part.blocked)
        try:
            return await run()
        except PermissionDeniedError:
            return skipped("the credentials may not read it; the role operator may")

    return HealthCheck(f"{part.name} {what}", allowed)


async def _table(inspection: TableInspection) -> CheckResult:
    table = await inspection.description()
    found = f"{table.status.lower()}, {table.capacity}, encrypted by {table.encryption}"
    if table.replicas:
        return warned(
            f"the table is replicated to {', '.join(table.replicas)}",
            "use the volume in one region only: conditions hold in one replica",
        )
    if table.status != "ACTIVE":
        return warned(found, "wait until the table is active")
    return passed(found)


async def _expiry(inspection: TableInspection, table: str) -> CheckResult:
    attribute = await inspection.expiry()
    if attribute:
        return failed(
            ConfigError(f"the service deletes items by their attribute {attribute!r}", path=table),
            "disable TTL on the table: no entry of a volume expires by itself",
        )
    return passed("TTL is off")


async def _backups(inspection: TableInspection) -> CheckResult:
    if await inspection.backups():
        return passed("the table can be restored to a point in time")
    return passed("none; s3k fsck restore rebuilds a lost table from the operation log")


async def _versioning(inspection: BucketInspection) -> CheckResult:
    found = await inspection.versioning()
    if found == "suspended":
        return warned(
            "suspended: versions from before remain, and are paid for",
            "delete former versions by a lifecycle rule (NoncurrentVersionExpiration)",
        )
    if found == "enabled" and not any(each.former for each in await inspection.expiry_rules()):
        return warned(
            "enabled: what garbage collection deletes remains as former versions",
            "add a lifecycle rule that deletes them (NoncurrentVersionExpiration)",
        )
    return passed(found)


async def _lifecycle(inspection: BucketInspection, part: BlobPart) -> CheckResult:
    rules = await inspection.expiry_rules()
    own = (part.location.iam_objects or ("", ""))[1]
    harmful = [
        each.name or "(without a name)"
        for each in rules
        if each.deletes and (each.prefix.startswith(own) or own.startswith(each.prefix))
    ]
    if harmful:
        return failed(
            ConfigError(
                f"a rule of the bucket deletes objects of the volume: {', '.join(harmful)}",
                path=part.location.label,
            ),
            "remove the rule, or restrict it to another prefix; lifecycle rules of the volume "
            "itself are s3k rules",
        )
    if any(each.aborts for each in rules):
        return passed("no rule deletes objects; unfinished uploads are aborted by one")
    return passed("no rule deletes objects; s3k gc aborts unfinished uploads")


async def _encryption(inspection: BucketInspection) -> CheckResult:
    return passed(await inspection.encryption() or "the service reports no default")
