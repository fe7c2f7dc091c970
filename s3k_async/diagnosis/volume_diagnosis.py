"""Diagnosis of a volume: all checks, in an order in which causes come before effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from platform import python_version
from typing import Final

from s3k_async._core.concurrency import gather
from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.config import BlobLocation, S3Bucket, TableLocation, VolumeConfig
from s3k_async.diagnosis.check_result import (
    CheckResult,
    CheckStatus,
    HealthCheck,
    failed,
    passed,
    run_checks,
)
from s3k_async.diagnosis.leftover_checks import leftover_checks
from s3k_async.diagnosis.permission_checks import (
    adopted_checks,
    permission_checks,
    write_checks,
)
from s3k_async.diagnosis.record_checks import mark_checks, record_checks
from s3k_async.diagnosis.service_checks import access_check, contact_checks
from s3k_async.diagnosis.setting_checks import setting_checks
from s3k_async.diagnosis.volume_parts import BlobPart, TablePart, VolumeParts, open_parts
from s3k_async.errors import UnsupportedError
from s3k_async.volumes.iam_policies import Role

__all__ = ["TIMEOUT", "Diagnosis", "diagnose", "versions_check"]

TIMEOUT: Final = 10.0
"""Seconds for each check."""
_OTHERS: Final = ("aioboto3", "aiohttp", "anyio", "redis", "rocksdict", "pyarrow", "pyspark")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The results of all checks."""

    results: Sequence[CheckResult]

    def of(self, status: CheckStatus) -> list[CheckResult]:
        """The results with a status."""
        return [each for each in self.results if each.status == status]


async def diagnose(
    config: VolumeConfig,
    *,
    role: Role | None = None,
    adopted: Sequence[S3Bucket] = (),
    read_only: bool = False,
    seconds: float = TIMEOUT,
    session: object | Mapping[str, object] | None = None,
    runtime: Runtime = SYSTEM,
) -> Diagnosis:
    """Check a volume and what it depends on, without opening it: nothing is restored or repaired.

    Without a role nothing is written. With one its permissions are checked; a role that writes
    puts, reads and removes an object of its own in each location, and with BatchWriteItem an item,
    unless `read_only`. `adopted`: other buckets, whose adopted objects the role has to read. Each
    check takes at most so many `seconds`; none raises.
    """
    results = await run_checks([versions_check()], seconds)
    async with AsyncExitStack() as stack:
        parts = open_parts(config, stack, session=session, runtime=runtime)
        results += await run_checks(
            [HealthCheck("capabilities", partial(_capabilities, parts))], seconds
        )
        results += await _services(parts.all, seconds)
        for check in record_checks(parts):
            results += await run_checks([check], seconds)
        results += await _recorded(parts, seconds)
        results += await run_checks([*mark_checks(parts), *leftover_checks(parts)], seconds)
        if role is not None:
            checks = [
                *permission_checks(parts, role, read_only=read_only),
                *adopted_checks(parts, role, adopted),
                *write_checks(parts, role, read_only=read_only),
            ]
            results += await run_checks(checks, seconds)
    return Diagnosis(results)


async def _services(services: Sequence[TablePart | BlobPart], seconds: float) -> list[CheckResult]:
    """The checks of services and disks, and of their settings."""
    contacts = partial(contact_checks, seconds=seconds)
    results = [each for found in await gather(contacts, services, limit=4) for each in found]
    results += await run_checks(map(access_check, services), seconds)
    settings = [each for part in services for each in setting_checks(part)]
    return results + await run_checks(settings, seconds)


async def _recorded(parts: VolumeParts, seconds: float) -> list[CheckResult]:
    """The checks of the locations that the record names."""
    added: list[BlobPart] = []

    async def opened() -> CheckResult:
        try:
            added.extend(parts.add_recorded())
        except UnsupportedError as error:
            return failed(error, remedy)
        return passed(", ".join(part.location.label for part in parts.all))

    remedy = "install the backend, or use the version of s3k-async that made the volume"
    results = await run_checks([HealthCheck("locations", opened, remedy)], seconds)
    return results + await _services(added, seconds)


def versions_check() -> HealthCheck:
    """The check of the versions of Python and of the packages."""
    return HealthCheck("versions", _versions)


async def _versions() -> CheckResult:
    found = [f"s3k-async {version('s3k-async')}", f"Python {python_version()}"]
    for name in _OTHERS:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return passed(", ".join(found))


async def _capabilities(parts: VolumeParts) -> CheckResult:
    locations: list[TableLocation | BlobLocation] = [parts.config.table]
    locations += [part.location for part in parts.blobs]
    for location in locations:
        if lacking := location.capabilities.lacking():
            return failed(
                UnsupportedError(f"it lacks {', '.join(lacking)}", path=location.label),
                "use another backend",
            )
    return passed(", ".join(dict.fromkeys(each.scheme for each in locations)))
