"""Transaction records of long changes: operation, state, progress, and the owner's lease.

A write intent, the `next` attribute of an item, names a transaction. The transaction's record
decides about all of its intents: one conditional write of it makes every prepared change visible at
once. A record has one owner at a time, which renews the lease; after the expiry any client that
needs an entry takes the transaction over (`intent_resolver`). Every write of a record is
conditional on its owner, so the writes of a former owner fail. Stored fields call it a job.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Literal, cast, get_args

from s3k_async._core.active_calls import note_change
from s3k_async._core.concurrency import to_the_end
from s3k_async._core.runtime import Runtime
from s3k_async.backends.ports.items import (
    ABSENT,
    OPERATION,
    PARTITION,
    SORT,
    Action,
    Check,
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
from s3k_async.txn.lease import Lease, LeaseWatch, Moment, ends_late, keep_renewed
from s3k_async.txn.write_intent import CREATED, REMOVED, WriteIntent

__all__ = [
    "TRANSACTION_PARTITION",
    "OwnedTransaction",
    "TransactionKind",
    "TransactionRecord",
    "TransactionRecords",
    "TransactionState",
    "record_from",
    "transaction_key",
]

_LOG = logging.getLogger(__name__)

TRANSACTION_PARTITION = "s3k:job"
LEASE_SECONDS = 30.0
RENEW_SECONDS = 10.0
LATE_SECONDS = 3.0
"""Seconds after which a renewal without a response holds back the transaction's other requests."""
POLL_SECONDS = 0.05
POLL_CAP_SECONDS = 1.0

TransactionKind = Literal["rename", "delete", "transaction", "mark"]
"""`mark`: a change that is not atomic; its record only shows until when its intents are valid."""
TransactionState = Literal["preparing", "published", "aborted", ""]
"""Empty for a transaction of kind `mark`, which is never published."""

PART_SEPARATOR = "#"
"""Between a transaction's id and the number of one of its parts, in the sort key of that part's
item."""


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """The stored record of a change of many entries. Times are epoch milliseconds.

    Until `lease_ms` its owner is considered alive; afterwards any client that needs an entry of it
    finishes the transaction.
    """

    id: str
    kind: TransactionKind
    state: TransactionState
    source: str
    """Of a rename or delete: the directory; empty for a transaction."""
    target: str
    """Of a rename: the new path of the directory; empty otherwise."""
    parts: int
    """Of a transaction: the number of manifest items."""
    lease_ms: int
    started_ms: int
    published_ms: int
    """0 for a transaction that is not published."""
    operation: str
    """The id of the last write of the record."""
    owner: str = ""
    """A random id of the client that renews the lease."""

    @property
    def is_published(self) -> bool:
        """Whether the transaction's intents mean their new side."""
        return self.state == "published"

    @property
    def started(self) -> datetime:
        """`started_ms` as a time in UTC."""
        return utc(self.started_ms)

    @property
    def published(self) -> datetime | None:
        """`published_ms` as a time in UTC; None for a transaction that is not published."""
        return utc(self.published_ms) if self.published_ms else None

    @property
    def expires(self) -> datetime:
        """`lease_ms` as a time in UTC."""
        return utc(self.lease_ms)


def transaction_key(transaction_id: str) -> Key:
    """The key of a transaction's record."""
    return Key(TRANSACTION_PARTITION, transaction_id)


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
    if kind not in get_args(TransactionKind) or state not in get_args(TransactionState):
        raise _damaged(item, f"kind {kind!r} in state {state!r}")
    return TransactionRecord(
        id=text(SORT),
        kind=cast("TransactionKind", kind),
        state=cast("TransactionState", state),
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
    remedy = "s3k fsck repair puts it into quarantine, and the entries it held stay unchanged"
    return ItemFormatError(
        f"a damaged transaction record: {reason} ({remedy})",
        path=f"{TRANSACTION_PARTITION} / {item.get(SORT)}",
    )


class OwnedTransaction:
    """A transaction that this client owns, and the texts of the intents of its entries."""

    def __init__(
        self,
        identity: str,
        kind: TransactionKind,
        lease: Lease,
        runtime: Runtime,
        *,
        parts: int = 0,
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
        """Whether no effective intent of it is left: then its record is removed."""
        self.journal: Sequence[Put] = ()
        """What its publication changes in the totals of buckets, written by the same transaction of
        the table."""
        self._runtime = runtime
        self._calm = asyncio.Event()
        self._calm.set()

    @property
    def owner(self) -> str:
        """The fencing token of the record's writes."""
        return self.lease.owner

    @property
    def can_be_published(self) -> Check:
        """The condition that this client owns the transaction, and has neither published nor
        aborted it. A write with it cannot arrive after another client has taken the transaction
        over."""
        return Check(
            transaction_key(self.id), Condition(equals={"owner": self.owner, "state": "preparing"})
        )

    def extend(self, lease: Lease) -> None:
        """Record a renewal of the lease. An expired lease stays expired, since the operation may
        have reacted to that."""
        if not self.expired:
            self.lease = lease

    def lose(self) -> None:
        """Record that another client has taken the transaction over."""
        self.lease = Lease.none(self.owner)

    @property
    def expired(self) -> bool:
        """Whether the lease may have expired."""
        return not self.lease.valid(self._runtime)

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


class TransactionRecords:
    """The transaction records of a volume."""

    def __init__(self, items: ItemStore, runtime: Runtime) -> None:
        self._items = items
        self._runtime = runtime
        self._watch = LeaseWatch(LEASE_SECONDS, runtime)

    @asynccontextmanager
    async def hold(
        self, kind: TransactionKind, source: str, target: str = "", *, parts: int = 0
    ) -> AsyncIterator[OwnedTransaction]:
        """Own a new transaction for the time of the body, with its lease renewed in the background.

        Afterwards the record is removed if the transaction is `over`; otherwise it is left to the
        next client.
        """
        identity, lease = self._runtime.uuid(), self._new_lease(self._runtime.uuid())
        txn = OwnedTransaction(identity, kind, lease, self._runtime, parts=parts)
        record: dict[str, Value] = {
            PARTITION: TRANSACTION_PARTITION,
            SORT: txn.id,
            "kind": kind,
            "source": source,
            "target": target,
            "lease": lease.expiry_ms,
            "started": self._runtime.now_ms(),
            "owner": txn.owner,
            OPERATION: txn.id,
        }
        if kind != "mark":
            record["state"] = "preparing"
        if parts:
            record["parts"] = parts
        try:
            await to_the_end(partial(self._items.write, Put(record, ABSENT)))
        except (asyncio.CancelledError, OutcomeUnknownError):
            txn.over = True  # no entry carries an intent of it
            await to_the_end(partial(self._end, txn))
            raise
        async with self._owned(txn):
            yield txn

    @asynccontextmanager
    async def take_over(self, record: TransactionRecord) -> AsyncIterator[OwnedTransaction | None]:
        """Take over a transaction with an expired lease for the time of the body; if it is not
        published, this aborts it. None: another client was faster. Afterwards as for `hold`.
        """
        lease = self._new_lease(self._runtime.uuid())
        txn = OwnedTransaction(record.id, record.kind, lease, self._runtime, parts=record.parts)
        txn.over = False
        changed: dict[str, Value] = {
            "lease": lease.expiry_ms,
            "owner": txn.owner,
            OPERATION: self._runtime.uuid(),
        }
        if record.state == "preparing":
            changed["state"] = "aborted"
        # A renewal, or another client's takeover, changes the operation.
        try:
            await self._items.write(
                Update(
                    transaction_key(txn.id),
                    Condition(equals={OPERATION: record.operation}),
                    set=changed,
                )
            )
        except ConditionFailedError:
            yield None
            return
        async with self._owned(txn):
            yield txn

    async def publish(self, txn: OwnedTransaction, others: Sequence[Action] = ()) -> None:
        """Publish the transaction: from this write on its intents mean their new side. `others`:
        further actions of the same transaction of the table.

        Raises LeaseExpiredError (another client considered the transaction expired and aborted it),
        ConditionFailedError (of one of `others`), OutcomeUnknownError, and the service's errors:
        then it was not published.
        """
        txn.check()
        try:
            await self._become(txn, "published", [*others, *txn.journal])
            note_change()
        except OutcomeUnknownError:
            note_change()
            raise
        except ConditionFailedError as error:
            if _state_of(error.current.get(0), txn) == "published":
                note_change()
                return
            if others and 0 not in error.current:
                raise
            txn.lose()
            raise LeaseExpiredError("transaction lease expired; no changes were applied") from error

    async def abort(self, txn: OwnedTransaction) -> TransactionState:
        """Abort the transaction unless it is published, and return its state: `published` if that
        came first; empty if its record is missing or owned by another client. Raises the service's
        errors, including OutcomeUnknownError.
        """
        try:
            await self._become(txn, "aborted")
        except ConditionFailedError as error:
            return _state_of(error.current.get(0), txn)
        return "aborted"

    async def record(self, transaction_id: str) -> TransactionRecord | None:
        """The record of a transaction; None if the transaction is over or never existed. Raises
        ItemFormatError."""
        item = await self._items.get(transaction_key(transaction_id))
        return None if item is None else record_from(item)

    async def record_many(self, transaction_ids: Iterable[str]) -> dict[str, TransactionRecord]:
        """The existing records of some transactions, by id. Raises ItemFormatError."""
        found = await self._items.get_many(
            [transaction_key(transaction_id) for transaction_id in dict.fromkeys(transaction_ids)]
        )
        return {key.sort: record_from(item) for key, item in found.items()}

    async def records(self) -> AsyncGenerator[TransactionRecord, None]:
        """The records of all transactions of the volume, by id. Raises ItemFormatError."""
        async for page in query_all(self._items, TRANSACTION_PARTITION):
            for item in page:
                if PART_SEPARATOR not in str(item[SORT]):
                    yield record_from(item)

    def lease_runs(self, record: TransactionRecord) -> bool:
        """Whether the owner's lease is valid."""
        return self._watch.runs(record.id, record.lease_ms)

    async def wait_for_renewals(self, records: Iterable[TransactionRecord]) -> bool:
        """If the lease of a record ends so late that the clock of its owner must be ahead, wait for
        the duration of a lease: if the lease is unchanged afterwards, the owner has died. Returns
        whether to read the records again."""
        now_ms = self._runtime.now_ms()
        late = [each for each in records if ends_late(each.lease_ms, now_ms, LEASE_SECONDS)]
        running = [each for each in late if self.lease_runs(each)]  # watched from now on
        if not running:
            return False
        await self._runtime.sleep(LEASE_SECONDS)
        return True

    async def _become(
        self, txn: OwnedTransaction, state: TransactionState, others: Sequence[Action] = ()
    ) -> None:
        now: dict[str, Value] = (
            {"published": self._runtime.now_ms()} if state == "published" else {}
        )
        condition = Condition(equals={"state": "preparing", "owner": txn.owner})
        changed: dict[str, Value] = {"state": state, OPERATION: self._runtime.uuid()}
        update = Update(transaction_key(txn.id), condition, set=changed | now)
        if others:
            await self._items.transact([update, *others], self._runtime.uuid())
        else:
            await self._items.write(update)

    @asynccontextmanager
    async def _owned(self, txn: OwnedTransaction) -> AsyncIterator[None]:
        try:
            async with keep_renewed(partial(self._renew, txn), RENEW_SECONDS, self._runtime):
                yield
        finally:
            await to_the_end(partial(self._end, txn))

    async def _renew(self, txn: OwnedTransaction) -> None:
        txn.check()
        lease = self._new_lease(txn.owner)
        renewal = Update(
            transaction_key(txn.id),
            Condition(equals={"owner": txn.owner}),
            set={"lease": lease.expiry_ms, OPERATION: self._runtime.uuid()},
        )
        try:
            with txn.renewing():
                await self._items.write(renewal)
        except ConditionFailedError:
            txn.lose()
            txn.check()
        txn.extend(lease)

    async def _end(self, txn: OwnedTransaction) -> None:
        """Remove the record of a transaction that is over; otherwise release its lease, so that no
        client waits for it."""
        mine = Condition(equals={"owner": txn.owner})
        try:
            if txn.over:
                await self._items.write(Delete(transaction_key(txn.id), mine))
            else:
                given_up: dict[str, Value] = {"lease": 0, OPERATION: self._runtime.uuid()}
                await self._items.write(Update(transaction_key(txn.id), mine, set=given_up))
        except ConditionFailedError:
            return  # another client took the transaction over
        except S3kError as error:
            # A record that remains expires with its lease.
            _LOG.warning("the record of transaction %s could not be given up: %s", txn.id, error)

    def _new_lease(self, owner: str) -> Lease:
        return Lease.granted(owner, Moment.now(self._runtime), LEASE_SECONDS)


def _state_of(item: Item | None, txn: OwnedTransaction) -> TransactionState:
    """The state of a transaction in the stored item, if this client still owns it."""
    if item is None or item.get("owner") != txn.owner:
        return ""
    return record_from(item).state
