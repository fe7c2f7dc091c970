"""Checks, and their results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal, TypeAlias

import anyio

from s3k_async._core.concurrency import gather
from s3k_async.errors import (
    CredentialsError,
    PermissionDeniedError,
    RequestTimeoutError,
    S3kError,
    ThrottledError,
    UnreachableError,
    UnsupportedError,
    VolumeNotFoundError,
)

__all__ = [
    "CheckResult",
    "CheckStatus",
    "HealthCheck",
    "failed",
    "passed",
    "run_checks",
    "skipped",
    "warned",
]

CheckStatus: TypeAlias = Literal["ok", "warning", "failure", "skipped"]

_CONCURRENCY: Final = 8
_ANY: Final = "docs/errors.md explains the error by its code; --json shows it"
_REMEDIES: Final[tuple[tuple[type[S3kError], str], ...]] = (
    (CredentialsError, "correct the credentials: profile, keys or role"),
    (PermissionDeniedError, "grant the permission: s3k policy prints that of a role"),
    (RequestTimeoutError, "try again, or with a longer --timeout"),
    (ThrottledError, "try again later; the service limits requests"),
    (UnreachableError, "correct the endpoint or the network, and try again"),
    (VolumeNotFoundError, "correct the name"),
)
"""By class of error, in the order in which they are looked up."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check."""

    name: str
    status: CheckStatus
    found: str
    """What was found; of a skipped check, why it was skipped."""
    remedy: str = ""
    """What to do, for a warning or a failure."""
    error: S3kError | None = None
    """The error of a failure."""


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """A check that has not been run. A result without a name gets that of the check; an error of
    the package is a failure."""

    name: str
    run: Callable[[], Awaitable[CheckResult]]
    remedy: str = ""
    """The remedy after an error."""


def passed(found: str) -> CheckResult:
    """The result of a check that found nothing wrong."""
    return CheckResult("", "ok", found)


def warned(found: str, remedy: str) -> CheckResult:
    """The result of a check that found a potential problem."""
    return CheckResult("", "warning", found, remedy)


def failed(error: S3kError, remedy: str) -> CheckResult:
    """The result of a check that found a problem to be fixed."""
    return CheckResult("", "failure", str(error), remedy, error)


def skipped(reason: str) -> CheckResult:
    """The result of a check that could not be run."""
    return CheckResult("", "skipped", reason)


async def run_checks(checks: Iterable[HealthCheck], seconds: float) -> list[CheckResult]:
    """Run checks concurrently, each for at most so many seconds. Results in the order of the
    checks, whatever fails."""
    return await gather(partial(_run, seconds=seconds), checks, limit=_CONCURRENCY)


async def _run(check: HealthCheck, *, seconds: float) -> CheckResult:
    try:
        with anyio.fail_after(seconds):
            result = await check.run()
    except UnsupportedError as error:
        result = skipped(error.message)
    except S3kError as error:
        result = failed(error, check.remedy or _remedy(error))
    except TimeoutError:
        late = RequestTimeoutError(f"no result within {seconds:g} s")
        result = failed(late, check.remedy or _remedy(late))
    except OSError as error:
        lost = S3kError(error.strerror or str(error), path=error.filename)
        result = failed(lost, check.remedy or _remedy(lost))
    return replace(result, name=check.name)


def _remedy(error: S3kError) -> str:
    """The remedy for an error of a check that has none of its own."""
    return next((text for kind, text in _REMEDIES if isinstance(error, kind)), _ANY)
