"""Leases of long changes.

A job record says that somebody is removing or moving a directory, and until when to believe it. A mark, the `next`
attribute of a directory, names the job. A mark holds others up only while its job's lease runs; a stale one is dropped
by whoever needs the entry, and the conditions on marks make the late owner's writes fail.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal, cast, get_args

import anyio

from s3k_async.concurrency import first_error
from s3k_async.errors import BusyError, ItemFormatError, LeaseExpiredError, S3kError
from s3k_async.sources import Sources
from s3k_async.stores.items import (
    ABSENT,
    OPERATION,
    PARTITION,
    SORT,
    Condition,
    Delete,
    Item,
    ItemStore,
    Key,
    Put,
    Update,
    Value,
)

__all__ = ["JOB_PARTITION", "Job", "JobKind", "JobRecord", "JobState", "Jobs", "job_key", "record_from"]

_LOG = logging.getLogger(__name__)

JOB_PARTITION = "s3k:job"
LEASE_SECONDS = 30.0
RENEW_SECONDS = 10.0
POLL_SECONDS = 0.05
POLL_CAP_SECONDS = 1.0

JobKind = Literal["rename", "delete", "transaction", "mark"]
"""`mark`: a change that is not atomic; its record only says until when to believe its marks."""
JobState = Literal["preparing", "published", "aborted", ""]
"""Empty for a job of kind `mark`, which is never published."""

PART_SEPARATOR = "#"
"""Between a job's id and the number of one of its parts, in the sort key of that part's item."""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What a job's record says. Times are epoch milliseconds."""

    id: str
    kind: JobKind
    state: JobState
    source: str
    """Of a rename or delete: the directory; empty for a transaction."""
    target: str
    """Of a rename: where the directory goes; empty for everything else."""
    parts: int
    """Of a transaction: how many more items list the paths that it marks."""
    lease_ms: int
    started_ms: int
    published_ms: int
    """0 for a job that is not published."""
    operation: str
    """The id of the last write of the record."""

    @property
    def is_published(self) -> bool:
        """Whether the job's marks mean their new side."""
        return self.state == "published"


def job_key(job_id: str) -> Key:
    """Where the record of a job is."""
    return Key(JOB_PARTITION, job_id)


def record_from(item: Item) -> JobRecord:
    """The record that an item holds. Raises ItemFormatError."""

    def text(name: str) -> str:
        value = item.get(name, "")
        if not isinstance(value, str):
            raise ItemFormatError(f"a job record whose {name!r} is no text", path=str(item.get(SORT)))
        return value

    def number(name: str) -> int:
        value = item.get(name, 0)
        if type(value) is not int:
            raise ItemFormatError(f"a job record whose {name!r} is no number", path=str(item.get(SORT)))
        return value

    kind, state = text("kind"), text("state")
    if kind not in get_args(JobKind) or state not in get_args(JobState):
        raise ItemFormatError(f"a job record of kind {kind!r} in state {state!r}", path=text(SORT))
    return JobRecord(
        id=text(SORT),
        kind=cast("JobKind", kind),
        state=cast("JobState", state),
        source=text("source"),
        target=text("target"),
        parts=number("parts"),
        lease_ms=number("lease"),
        started_ms=number("started"),
        published_ms=number("published"),
        operation=text(OPERATION),
    )


class Job:
    """A job that this client owns. `mark` is what its entries carry."""

    def __init__(self, identity: str, sources: Sources) -> None:
        self.id = identity
        self.mark = json.dumps({"job": identity}, separators=(",", ":"))
        self._sources = sources
        self._valid_until = sources.monotonic() + LEASE_SECONDS
        self._lease_ms = sources.now_ms() + int(LEASE_SECONDS * 1000)

    def extend(self, sent: float, lease_ms: int) -> None:
        """The lease was granted until `lease_ms`, by a write that began at monotonic time `sent`. One that has run out
        is not brought back: somebody may have acted on that.
        """
        if not self.expired:
            self._valid_until = sent + LEASE_SECONDS
            self._lease_ms = lease_ms

    def lose(self) -> None:
        """Somebody held the job for dead."""
        self._valid_until = -math.inf

    @property
    def expired(self) -> bool:
        """Whether the lease may have run out, by either clock: a monotonic one may stand still while the machine
        sleeps."""
        return self._sources.monotonic() >= self._valid_until or self._sources.now_ms() >= self._lease_ms

    def check(self) -> None:
        """Raise LeaseExpiredError unless the lease certainly still runs."""
        if self.expired:
            raise LeaseExpiredError("the job lost its lease; running the same call again finishes the work")


class Jobs:
    """The job records of a volume."""

    def __init__(self, items: ItemStore, sources: Sources, busy_timeout: float) -> None:
        self._items = items
        self._sources = sources
        self._busy_timeout = busy_timeout

    @asynccontextmanager
    async def hold(self, kind: JobKind, source: str, target: str = "") -> AsyncIterator[Job]:
        """Own a job for the time of the body, its lease renewed in the background."""
        job = Job(self._sources.uuid(), self._sources)
        sent, lease = self._sources.monotonic(), self._lease()
        record: dict[str, Value] = {
            PARTITION: JOB_PARTITION,
            SORT: job.id,
            "kind": kind,
            "source": source,
            "target": target,
            "lease": lease,
            OPERATION: job.id,
        }
        await self._items.write(Put(record, ABSENT))
        job.extend(sent, lease)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._renew, job)
                yield job
                tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            error = first_error(group)
            raise error from error.__cause__
        finally:
            with anyio.CancelScope(shield=True):
                await self._end(job)

    async def record(self, job_id: str) -> JobRecord | None:
        """The record of a job, or None: it is over, or never was. Raises ItemFormatError."""
        item = await self._items.get(job_key(job_id))
        return None if item is None else record_from(item)

    async def record_many(self, job_ids: Iterable[str]) -> dict[str, JobRecord]:
        """The records that there are of some jobs, by id. Raises ItemFormatError."""
        found = await self._items.get_many([job_key(job_id) for job_id in dict.fromkeys(job_ids)])
        return {key.sort: record_from(item) for key, item in found.items()}

    async def records(self) -> AsyncGenerator[JobRecord, None]:
        """The records of all jobs of the volume, by id. Raises ItemFormatError."""
        cursor: str | None = None
        while True:
            page = await self._items.query(JOB_PARTITION, cursor=cursor)
            for item in page.items:
                if PART_SEPARATOR not in str(item[SORT]):
                    yield record_from(item)
            if page.next is None:
                return
            cursor = page.next

    async def is_live(self, mark: str) -> bool:
        """Whether the job that a mark names still holds its lease."""
        item = await self._items.get(job_key(_job_id(mark)))
        lease = item.get("lease") if item else None
        return isinstance(lease, int) and lease > self._sources.now_ms()

    async def wait_until_over(self, mark: str, path: str) -> None:
        """Return when the job that a mark names is over. Raises BusyError after the busy timeout."""
        deadline = self._sources.monotonic() + self._busy_timeout
        delay = POLL_SECONDS
        while await self.is_live(mark):
            if self._sources.monotonic() >= deadline:
                raise BusyError("another client is moving or deleting it", path=path)
            await self._sources.sleep(self._sources.uniform(delay / 2, delay))
            delay = min(POLL_CAP_SECONDS, delay * 2)

    async def _renew(self, job: Job) -> None:
        while not job.expired:
            await self._sources.sleep(RENEW_SECONDS)
            sent, lease = self._sources.monotonic(), self._lease()
            renewal = Update(
                job_key(job.id),
                Condition(),
                set={"lease": lease, OPERATION: self._sources.uuid()},
            )
            try:
                await self._items.write(renewal)
            except S3kError:
                # Job.check stops the owner once the lease has run out; until then the next round may succeed.
                continue
            job.extend(sent, lease)

    async def _end(self, job: Job) -> None:
        try:
            await self._items.write(Delete(job_key(job.id), Condition()))
        except S3kError as error:
            # The work is done or failed already; a record that stays behind ends with its lease.
            _LOG.warning("the record of job %s could not be removed: %s", job.id, error)

    def _lease(self) -> int:
        return self._sources.now_ms() + int(LEASE_SECONDS * 1000)


def _job_id(mark: str) -> str:
    try:
        job = json.loads(mark)["job"]
    except (ValueError, KeyError, TypeError):
        return "-"
    return job if isinstance(job, str) and job else "-"
