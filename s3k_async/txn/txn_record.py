"""Transaction records of long changes: operation, state, progress, and the owner's lease.

A write intent, the `next` attribute of an item, names a transaction. The transaction's record
decides about all of its intents: one conditional write of it makes every prepared change visible at
once. A record has one owner at a time, which renews the lease; after the expiry any client that
needs an entry takes the transaction over (`intent_resolver`). Every write of a record is
conditional on its owner, so the writes of a former owner fail. Commands and stored fields call it a
job.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Literal, cast, get_args

import anyio

from s3k_async._core.active_calls import note_change
from s3k_async._core.concurrency import to_the_end
from s3k_async._core.runtime import Sources
from s3k_async.backends.ports.items import (
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
from s3k_async.backends.ports.pagination import query_all
from s3k_async.errors import (
    ConditionFailedError,
    ItemFormatError,
    LeaseExpiredError,
    OutcomeUnknownError,
    S3kError,
)
from s3k_async.model import utc
from s3k_async.txn.lease import Lease, Moment, expired, keep_renewed
from s3k_async.txn.write_intent import CREATED, REMOVED, WriteIntent

__all__ = [
    "JOB_PARTITION",
    "Job",
    "JobKind",
    "JobState",
    "Jobs",
    "TransactionRecord",
    "job_key",
    "record_from",
]

_LOG = logging.getLogger(__name__)

JOB_PARTITION = "s3k:job"
LEASE_SECONDS = 30.0
RENEW_SECONDS = 10.0
LATE_SECONDS = 3.0
"""Seconds after which a renewal without a response holds back the job's other requests."""
POLL_SECONDS = 0.05
POLL_CAP_SECONDS = 1.0

JobKind = Literal["rename", "delete", "transaction", "mark"]
"""`mark`: a change that is not atomic; its record only shows until when its marks are valid."""
JobState = Literal["preparing", "published", "aborted", ""]
"""Empty for a job of kind `mark`, which is never published."""

PART_SEPARATOR = "#"
"""Between a job's id and the number of one of its parts, in the sort key of that part's item."""


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """The stored record of a change of many entries. Times are epoch milliseconds.

    Until `lease_ms` its owner is considered alive; afterwards any client that needs an entry of it
    finishes the job.
    """

    id: str
    kind: JobKind
    state: JobState
    source: str
    """Of a rename or delete: the directory; empty for a transaction."""
    target: str
    """Of a rename: the new path of the directory; empty otherwise."""
    parts: int
    """Of a transaction: the number of manifest items."""
    lease_ms: int
    started_ms: int
    published_ms: int
    """0 for a job that is not published."""
    operation: str
    """The id of the last write of the record."""
    owner: str = ""
    """A random id of the client that renews the lease."""

    @property
    def is_published(self) -> bool:
        """Whether the job's marks mean their new side."""
        return self.state == "published"

    @property
    def started(self) -> datetime:
        """`started_ms` as a time in UTC."""
        return utc(self.started_ms)

    @property
    def published(self) -> datetime | None:
        """`published_ms` as a time in UTC; None for a job that is not published."""
        return utc(self.published_ms) if self.published_ms else None

    @property
    def expires(self) -> datetime:
        """`lease_ms` as a time in UTC."""
        return utc(self.lease_ms)


def job_key(job_id: str) -> Key:
    """The key of a job's record."""
    return Key(JOB_PARTITION, job_id)


def record_from(item: Item) -> TransactionRecord:
    """The record that an item holds. Raises ItemFormatError."""

    def text(name: str) -> str:
        value = item.get(name, "")
        if not isinstance(value, str):
            raise _damaged(item, f"{name!r} is no text")
        return value

    def number(name: str) -> int:
        value = item.get(name, 0)
        if type(value) is not int:
            raise _damaged(item, f"{name!r} is no number")
        return value

    kind, state = text("kind"), text("state")
    if kind not in get_args(JobKind) or state not in get_args(JobState):
        raise _damaged(item, f"kind {kind!r} in state {state!r}")
    return TransactionRecord(
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
        owner=text("owner"),
    )


def _damaged(item: Item, reason: str) -> ItemFormatError:
    remedy = "s3k fsck repair puts it into quarantine, and the entries it marked stay unchanged"
    return ItemFormatError(
        f"a damaged job record: {reason} ({remedy})", path=f"{JOB_PARTITION} / {item.get(SORT)}"
    )


class Job:
    """A transaction that this client owns, and the texts of the intents of its entries."""

    def __init__(
        self, identity: str, kind: JobKind, lease: Lease, sources: Sources, *, parts: int = 0
    ) -> None:
        self.id = identity
        self.kind = kind
        self.lease = lease
        self.parts = parts
        """Of a transaction: the number of manifest items."""
        self.hold_intent = WriteIntent(identity).text()
        self.removal_intent = WriteIntent(identity, REMOVED).text()
        self.creation_intent = WriteIntent(identity, CREATED).text()
        self.over = kind == "mark"
        """Whether no effective mark of it is left: then its record is removed."""
        self._sources = sources
        self._calm = asyncio.Event()
        self._calm.set()

    @property
    def owner(self) -> str:
        """The fencing token of the record's writes."""
        return self.lease.owner

    def extend(self, lease: Lease) -> None:
        """Record a renewal of the lease. An expired lease stays expired, since the operation may
        have reacted to that."""
        if not self.expired:
            self.lease = lease

    def lose(self) -> None:
        """Record that another client has taken the job over."""
        self.lease = Lease.none(self.owner)

    @property
    def expired(self) -> bool:
        """Whether the lease may have expired."""
        return not self.lease.valid(self._sources)

    def check(self) -> None:
        """Raise LeaseExpiredError unless the lease is certainly valid."""
        if self.expired:
            raise LeaseExpiredError(
                "transaction lease expired; repeat the call to finish the operation"
            )

    async def turn(self) -> None:
        """Called before each of many requests: while a renewal of the lease is late, wait, so that
        the service can process it; then raise as `check`."""
        await self._calm.wait()
        self.check()

    @contextmanager
    def renewing(self) -> Iterator[None]:
        """A context for one renewal."""
        late = asyncio.get_running_loop().call_later(LATE_SECONDS, self._calm.clear)
        try:
            yield
        finally:
            late.cancel()
            self._calm.set()


class Jobs:
    """The job records of a volume."""

    def __init__(self, items: ItemStore, sources: Sources) -> None:
        self._items = items
        self._sources = sources

    @asynccontextmanager
    async def hold(
        self, kind: JobKind, source: str, target: str = "", *, parts: int = 0
    ) -> AsyncIterator[Job]:
        """Own a new job for the time of the body, with its lease renewed in the background.

        Afterwards the record is removed if the job is `over`; otherwise it is left to the next
        client.
        """
        identity, lease = self._sources.uuid(), self._new_lease(self._sources.uuid())
        job = Job(identity, kind, lease, self._sources, parts=parts)
        record: dict[str, Value] = {
            PARTITION: JOB_PARTITION,
            SORT: job.id,
            "kind": kind,
            "source": source,
            "target": target,
            "lease": lease.expiry_ms,
            "started": self._sources.now_ms(),
            "owner": job.owner,
            OPERATION: job.id,
        }
        if kind != "mark":
            record["state"] = "preparing"
        if parts:
            record["parts"] = parts
        try:
            await to_the_end(partial(self._items.write, Put(record, ABSENT)))
        except (asyncio.CancelledError, OutcomeUnknownError):
            job.over = True  # no entry carries a mark of it
            await to_the_end(partial(self._end, job))
            raise
        async with self._owned(job):
            yield job

    @asynccontextmanager
    async def take_over(self, record: TransactionRecord) -> AsyncIterator[Job | None]:
        """Take over a job with an expired lease for the time of the body; if it is not published,
        this aborts it. None: another client was faster. Afterwards as for `hold`.
        """
        lease = self._new_lease(self._sources.uuid())
        job = Job(record.id, record.kind, lease, self._sources, parts=record.parts)
        job.over = False
        changed: dict[str, Value] = {
            "lease": lease.expiry_ms,
            "owner": job.owner,
            OPERATION: self._sources.uuid(),
        }
        if record.state == "preparing":
            changed["state"] = "aborted"
        # A renewal, or another client's takeover, changes the operation.
        try:
            await self._items.write(
                Update(
                    job_key(job.id), Condition(equals={OPERATION: record.operation}), set=changed
                )
            )
        except ConditionFailedError:
            yield None
            return
        async with self._owned(job):
            yield job

    async def publish(self, job: Job) -> None:
        """Publish the job: from this write on its marks mean their new side.

        Raises LeaseExpiredError (another client considered the job expired and aborted it),
        OutcomeUnknownError, and the service's errors: then it was not published.
        """
        job.check()
        try:
            await self._become(job, "published")
            note_change()
        except OutcomeUnknownError:
            note_change()
            raise
        except ConditionFailedError as error:
            if _state_of(error.current.get(0), job) == "published":
                note_change()
                return
            job.lose()
            raise LeaseExpiredError("transaction lease expired; no changes were applied") from error

    async def abort(self, job: Job) -> JobState:
        """Abort the job unless it is published, and return its state: `published` if that came
        first; empty if its record is missing or owned by another client. Raises the service's
        errors, including OutcomeUnknownError.
        """
        try:
            await self._become(job, "aborted")
        except ConditionFailedError as error:
            return _state_of(error.current.get(0), job)
        return "aborted"

    async def record(self, job_id: str) -> TransactionRecord | None:
        """The record of a job; None if the job is over or never existed. Raises ItemFormatError."""
        item = await self._items.get(job_key(job_id))
        return None if item is None else record_from(item)

    async def record_many(self, job_ids: Iterable[str]) -> dict[str, TransactionRecord]:
        """The existing records of some jobs, by id. Raises ItemFormatError."""
        found = await self._items.get_many([job_key(job_id) for job_id in dict.fromkeys(job_ids)])
        return {key.sort: record_from(item) for key, item in found.items()}

    async def records(self) -> AsyncGenerator[TransactionRecord, None]:
        """The records of all jobs of the volume, by id. Raises ItemFormatError."""
        async for page in query_all(self._items, JOB_PARTITION):
            for item in page:
                if PART_SEPARATOR not in str(item[SORT]):
                    yield record_from(item)

    def lease_runs(self, record: TransactionRecord) -> bool:
        """Whether the owner's lease is valid."""
        return not expired(record.lease_ms, self._sources.now_ms())

    async def _become(self, job: Job, state: JobState) -> None:
        now: dict[str, Value] = (
            {"published": self._sources.now_ms()} if state == "published" else {}
        )
        condition = Condition(equals={"state": "preparing", "owner": job.owner})
        changed: dict[str, Value] = {"state": state, OPERATION: self._sources.uuid()}
        await self._items.write(Update(job_key(job.id), condition, set=changed | now))

    @asynccontextmanager
    async def _owned(self, job: Job) -> AsyncIterator[None]:
        try:
            async with keep_renewed(partial(self._renew, job), RENEW_SECONDS, self._sources):
                yield
        finally:
            with anyio.CancelScope(shield=True):
                await self._end(job)

    async def _renew(self, job: Job) -> None:
        job.check()
        lease = self._new_lease(job.owner)
        renewal = Update(
            job_key(job.id),
            Condition(equals={"owner": job.owner}),
            set={"lease": lease.expiry_ms, OPERATION: self._sources.uuid()},
        )
        try:
            with job.renewing():
                await self._items.write(renewal)
        except ConditionFailedError:
            job.lose()
            job.check()
        job.extend(lease)

    async def _end(self, job: Job) -> None:
        """Remove the record of a job that is over; otherwise release its lease, so that no client
        waits for it."""
        mine = Condition(equals={"owner": job.owner})
        try:
            if job.over:
                await self._items.write(Delete(job_key(job.id), mine))
            else:
                given_up: dict[str, Value] = {"lease": 0, OPERATION: self._sources.uuid()}
                await self._items.write(Update(job_key(job.id), mine, set=given_up))
        except ConditionFailedError:
            return  # another client took the job over
        except S3kError as error:
            # A record that remains expires with its lease.
            _LOG.warning("the record of job %s could not be given up: %s", job.id, error)

    def _new_lease(self, owner: str) -> Lease:
        return Lease.granted(owner, Moment.now(self._sources), LEASE_SECONDS)


def _state_of(item: Item | None, job: Job) -> JobState:
    """The state of a job in the stored item, if this client still owns it."""
    if item is None or item.get("owner") != job.owner:
        return ""
    return record_from(item).state
