"""The record of the last check, repair and garbage collection of a volume.

Each is a small object beside the audit trails, `audit/last/<operation>` in the log location, which
the next run replaces. The records are informational: a damaged one is ignored, and no decision
depends on them.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Final, Literal, TypeAlias, get_args

from s3k_async._core.concurrency import gather
from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.errors import BlobNotFoundError, PermissionDeniedError, S3kError
from s3k_async.integrity.facts import PROBLEMS
from s3k_async.integrity.gc_sweep import Swept, failed_reclamations
from s3k_async.integrity.repair import RepairReport
from s3k_async.integrity.repair_actions import FsckVolume
from s3k_async.integrity.verify import VerifyReport
from s3k_async.model import ChangeResult

__all__ = [
    "LAST_RUNS",
    "LastRun",
    "last_collection",
    "last_repair",
    "last_verification",
    "read_last_runs",
    "record_run",
]

RunKind: TypeAlias = Literal["fsck_verify", "fsck_repair", "gc"]

LAST_RUNS: Final = "audit/last/"


@dataclass(frozen=True, slots=True)
class LastRun:
    """A completed run on a whole volume, and its findings. `counts`: problems by kind, and
    `repaired` for repairs; for gc deleted objects by reason, and `failed` for those that could not
    be deleted, and for entries of the trash that could not be reclaimed."""

    kind: RunKind
    time_ms: int
    """End of the run, milliseconds since the epoch."""
    clean: bool
    """Whether no problem remains and nothing failed."""
    counts: Mapping[str, int]


def last_verification(report: VerifyReport, time_ms: int) -> LastRun:
    """The record of a check."""
    return LastRun("fsck_verify", time_ms, report.clean, _problems(report))


def last_repair(report: RepairReport, time_ms: int) -> LastRun | None:
    """The record of a repair; None for a dry run."""
    if report.dry_run:
        return None
    repaired = {"repaired": report.done} if report.done else {}
    return LastRun(
        "fsck_repair", time_ms, report.left.clean, {**repaired, **_problems(report.left)}
    )


def last_collection(
    swept: Swept | None, reclaimed: ChangeResult | None, time_ms: int
) -> LastRun | None:
    """The record of a garbage collection; None for a dry run. `reclaimed`: None without a trash."""
    if swept is None:
        return None
    counts = {reason: count.objects for reason, count in sorted(swept.deleted.items())}
    failed = len(swept.failures) + len(failed_reclamations(reclaimed))
    if failed:
        counts["failed"] = failed
    return LastRun("gc", time_ms, not failed, counts)


def _problems(report: VerifyReport) -> dict[str, int]:
    return {kind: count for kind, count in sorted(report.kinds.items()) if kind in PROBLEMS}


async def record_run(volume: FsckVolume, run: LastRun | None) -> None:
    """Replace the record of the last run of this kind. Nothing is recorded in volumes without an
    operation log, in read-only ones, or without write permission. Other errors are warnings, and do
    not fail the run."""
    if run is None or volume.log_blobs is None or volume.read_only:
        return
    data = json.dumps(asdict(run), separators=(",", ":")).encode("ascii")
    try:
        await volume.log_blobs.put(LAST_RUNS + run.kind, data)
    except PermissionDeniedError:
        return
    except S3kError as error:
        warnings.warn(f"the run was not recorded for s3k info: {error}", stacklevel=1)


async def read_last_runs(blobs: BlobStore) -> list[LastRun]:
    """The records in a log location, in the order of `RunKind`. Raises the errors of the store."""

    async def one(kind: str) -> Iterator[LastRun]:
        try:
            return _parsed(kind, await blobs.get(LAST_RUNS + kind, 0, 64 * 1024))
        except BlobNotFoundError:
            return iter(())

    kinds = get_args(RunKind)
    return [run for found in await gather(one, kinds, limit=len(kinds)) for run in found]


def _parsed(kind: str, data: bytes) -> Iterator[LastRun]:
    """The record; none if it does not have this form."""
    try:
        found = json.loads(data)
        run = LastRun(
            found["kind"],
            int(found["time_ms"]),
            bool(found["clean"]),
            {str(name): int(count) for name, count in found["counts"].items()},
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return
    if run.kind == kind:
        yield run
