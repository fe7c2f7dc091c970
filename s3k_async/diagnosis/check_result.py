"""Checks, and their results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal, TypeAlias

import anyio

from s3k_async._core.concurrency import gather
from s3k_async.errors import RequestTimeoutError, S3kError, UnsupportedError

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
    """The result of a check that found something that may do harm later."""
    return CheckResult("", "warning", found, remedy)


def failed(error: S3kError, remedy: str) -> CheckResult:
    """The result of a check that found something that has to be changed."""
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
        result = failed(error, check.remedy)
    except TimeoutError:
        late = RequestTimeoutError(f"no result within {seconds:g} s")
        result = failed(late, check.remedy or "try again, or with a longer --timeout")
    except OSError as error:
        result = failed(S3kError(error.strerror or str(error), path=error.filename), check.remedy)
    return replace(result, name=check.name)
