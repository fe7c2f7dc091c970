"""Checks of a service or a disk: it answers, its clock, credentials, region, and that the table or
the bucket exists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from s3k_async.backends.ports.service_inspection import (
    BucketInspection,
    Contact,
    DiskInspection,
    TableInspection,
)
from s3k_async.diagnosis.check_result import (
    CheckResult,
    HealthCheck,
    failed,
    passed,
    run_checks,
    skipped,
    warned,
)
from s3k_async.diagnosis.volume_parts import BlobPart, TablePart
from s3k_async.errors import (
    ConfigError,
    CredentialsError,
    NoSpaceError,
    PermissionDeniedError,
    ReadOnlyVolumeError,
    S3kError,
    VolumeNotFoundError,
)

__all__ = ["CLOCK_FAILURE_MS", "CLOCK_WARNING_MS", "access_check", "contact_checks"]

CLOCK_WARNING_MS: Final = 10_000
"""Clock skew from which leases of clients overlap."""
CLOCK_FAILURE_MS: Final = 5 * 60_000
"""Clock skew with which DynamoDB refuses signatures; S3 allows fifteen minutes."""
_LITTLE: Final = 1024**3
"""Free bytes of a disk below which there is a warning."""
_NONE_LEFT: Final = 1024**2


@dataclass(slots=True)
class _Contacts:
    """The contact of one service, made by its first check and used by the others."""

    part: TablePart | BlobPart
    inspection: TableInspection | BucketInspection
    contact: Contact | None = None

    async def endpoint(self) -> CheckResult:
        try:
            self.contact = await self.inspection.contact()
        except S3kError as error:
            self.part.blocked = "its endpoint does not answer"
            return failed(
                error, f"correct --{_option(self.part.name)}-endpoint, the network or TLS"
            )
        return passed(f"{self.contact.address} answers in {self.contact.milliseconds} ms")

    async def clock(self) -> CheckResult:
        ahead = None if self.contact is None else self.contact.ahead_ms
        if ahead is None:
            return skipped("the service does not report its time")
        # The header has whole seconds.
        skew = abs(ahead + 500) / 1000
        found = f"this machine's clock is {skew:,.0f} s {'slow' if ahead > 0 else 'fast'}"
        remedy = "synchronise the clock of this machine (chrony, NTP)"
        if abs(ahead) >= CLOCK_FAILURE_MS:
            return failed(ConfigError(found), remedy)
        if abs(ahead) >= CLOCK_WARNING_MS:
            return warned(found, remedy)
        return passed("agrees with the service's")

    async def credentials(self) -> CheckResult:
        try:
            source = await self.inspection.key_source()
        except CredentialsError as error:
            self.part.blocked = "there are no credentials"
            return failed(
                error, "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or --profile, or a role"
            )
        return passed(f"key …{source.key}, from {source.method or 'the session'}")

    async def region(self) -> CheckResult:
        assert self.contact is not None
        here, there = self.contact.region, self.contact.there
        if there and there != here:
            return warned(
                f"the bucket is in {there}, its client in {here}",
                f"give --{_option(self.part.name)}-region {there}",
            )
        return passed(here)


def _option(part: str) -> str:
    """The part in the names of options."""
    return "data" if part == "hot" else part


async def contact_checks(part: TablePart | BlobPart, seconds: float) -> list[CheckResult]:
    """The results of the checks that come before any other of a part, which set its `blocked`."""
    return [
        result for check in _contact_checks(part) for result in await run_checks([check], seconds)
    ]


def _contact_checks(part: TablePart | BlobPart) -> Iterator[HealthCheck]:
    """One after the other: a check is made after the one before was run."""
    name, inspection = part.name, part.inspection
    if inspection is None:
        return
    if isinstance(inspection, DiskInspection):
        yield HealthCheck(f"{name} disk", partial(_disk, inspection))
        return
    contacts = _Contacts(part, inspection)
    yield HealthCheck(f"{name} endpoint", contacts.endpoint, f"correct --{_option(name)}-endpoint")
    if contacts.contact is None and not part.blocked:
        part.blocked = "its endpoint does not answer in time"
    if contacts.contact is not None:
        yield HealthCheck(f"{name} clock", contacts.clock)
        yield HealthCheck(f"{name} region", contacts.region)
    yield HealthCheck(f"{name} credentials", contacts.credentials)


async def _disk(inspection: DiskInspection) -> CheckResult:
    space = await inspection.space()
    found = f"{space.free / 1024**3:,.1f} of {space.total / 1024**3:,.1f} GiB are free"
    if not space.is_writable:
        return failed(
            ReadOnlyVolumeError("this user cannot write to the directory", path=space.directory),
            "change the owner or mode of the directory, or how the file system is mounted",
        )
    remedy = "free space on the disk; s3k rm and s3k gc work on a full disk"
    if space.free < _NONE_LEFT:
        return failed(NoSpaceError("the disk is full", path=space.directory), remedy)
    return warned(found, remedy) if space.free < _LITTLE else passed(found)


def access_check(part: TablePart | BlobPart) -> HealthCheck:
    """The check that the table, bucket or directory exists, by a signed request."""
    return HealthCheck(f"{part.name} access", partial(_access, part))


async def _access(part: TablePart | BlobPart) -> CheckResult:
    if part.blocked:
        return skipped(part.blocked)
    try:
        exists = await _exists(part)
    except CredentialsError as error:
        part.blocked = "its credentials are not accepted"
        return failed(error, _credentials_remedy(error))
    except PermissionDeniedError:
        if isinstance(part.inspection, DiskInspection):
            return _unreadable(part)
        return skipped("the credentials may not ask whether it exists")
    except S3kError as error:
        part.blocked = f"it cannot be used ({error.code})"
        return failed(error, "give another table, or correct the settings")
    if not exists:
        what = "table" if isinstance(part, TablePart) else "bucket or directory"
        part.blocked = "it does not exist"
        return failed(
            VolumeNotFoundError(f"the {what} does not exist", path=part.location.label),
            f"s3k init makes it; or correct its {_address(part)}",
        )
    return passed(f"{part.location.label} exists")


def _unreadable(part: TablePart | BlobPart) -> CheckResult:
    """The result for a file or directory on a disk that this user may not read."""
    what = "table" if isinstance(part, TablePart) else "directory"
    part.blocked = f"the {what} may not be read"
    return failed(
        PermissionDeniedError(part.blocked, path=part.location.label),
        f"change the owner or mode of the {what} and of the directories above it, or run as "
        "another user",
    )


async def _exists(part: TablePart | BlobPart) -> bool:
    if isinstance(part, TablePart):
        return await part.store.exists()
    try:
        return await part.blobs.exists()
    except CredentialsError:
        raise
    except PermissionDeniedError:
        # An answer to HEAD does not distinguish a missing permission from refused credentials.
        await part.blobs.list(limit=1)
        return True


def _address(part: TablePart | BlobPart) -> str:
    """What its address consists of."""
    return "path" if isinstance(part.inspection, DiskInspection) else "name, region or endpoint"


def _credentials_remedy(error: CredentialsError) -> str:
    if "clock" in error.message:
        return "synchronise the clock of this machine (chrony, NTP)"
    if "expired" in error.message:
        return "renew the session (aws sso login, or new keys)"
    return "correct the access key or the secret key, or the region they are for"
