"""A change that one conditional write of its transaction record commits.

Prepare: write intents are put, and invisible entries. Commit: the write of the record makes all
intents take effect. An error before the commit removes the intents and leaves the tree unchanged.
After the commit the change can no longer fail: the next client that finds a remaining intent
applies it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

import anyio

from s3k_async._core.active_calls import optional
from s3k_async._core.concurrency import to_the_end
from s3k_async.errors import OutcomeUnknownError, S3kError, ServiceError
from s3k_async.namespace.store import MetadataStore
from s3k_async.table.keys import Directory
from s3k_async.txn.logged_write import TransactionLog
from s3k_async.txn.txn_record import OwnedTransaction

__all__ = ["RecordedChange"]

_LOG = logging.getLogger(__name__)

UNDO_SECONDS = 10.0
"""Seconds that a cancelled change may spend on removing its intents; the next client removes the
rest."""


class RecordedChange:
    """One change in progress, owned by a transaction: prepare, publish, resolve the intents, or
    undo.

    `source` and `target` are directories at and below which every entry gets an intent; empty for
    none. `stores_entries`: entries are stored without intents, so that the log must contain them
    until an undo has removed them.
    """

    def __init__(
        self,
        store: MetadataStore,
        txn: OwnedTransaction,
        source: str = "",
        target: str = "",
        *,
        stores_entries: bool = False,
    ) -> None:
        self.log = TransactionLog(store.changes, txn.id)
        self._store = store
        self._txn = txn
        self._source = source
        self._target = target
        self._stores_entries = stores_entries
        self.left_entries = False
        """Whether entries of a change that has failed may still be in the table, with their data,
        until another client removes them."""
        self._published: bool | None = False
        """None: unknown."""

    async def run(
        self,
        prepare: Callable[[], Awaitable[object]],
        touched: Iterable[Directory] = (),
        publish: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """Prepare, touch directories, publish and resolve the intents. After a failure before
        publication, undo. `publish`: by default a write of the record alone. If it raises an error
        other than OutcomeUnknownError, the transaction is not published."""
        try:
            await prepare()
            for directory in touched:
                self._txn.check()
                await self._store.touch(directory)
            await to_the_end(partial(self._publish, publish))
        except BaseException as error:
            if self._published is False:
                await self._take_back(error)
            raise
        await self._fold()
        await self._store.changes.fold()

    async def _publish(self, publish: Callable[[], Awaitable[object]] | None) -> None:
        self._published = None  # until the answer, also if the task is stopped meanwhile
        self._txn.journal = journal = self.log.journal()
        try:
            await (publish() if publish else self._store.transactions.publish(self._txn))
        except OutcomeUnknownError as error:
            await self._find_out(error)
        except S3kError:
            self._published = False
            raise
        self._published = True
        await self.log.commit(journal)

    async def _find_out(self, unknown: OutcomeUnknownError) -> None:
        """Return if the transaction is published after all: trying to abort it decides, whether the
        abort comes first or too late."""
        try:
            state = await self._store.transactions.abort(self._txn)
        except S3kError as error:
            # an unreachable service is no proof that nothing has happened
            raise unknown from error
        if state == "aborted":
            self._published = False
            raise ServiceError(
                "the change could not be published; nothing was changed", path=self._source
            ) from unknown
        if state != "published":
            raise unknown

    async def _fold(self) -> None:
        try:
            with optional():
                await self._end(published=True)
        except S3kError as error:
            # The change is committed. The next client resolves the remaining intents.
            _LOG.warning(
                "transaction %s is published, but not all of it could be folded in: %s",
                self._txn.id,
                error,
            )

    async def _take_back(self, error: BaseException) -> None:
        if isinstance(error, S3kError):
            await self._undo()
            return

        async def while_there_is_time() -> None:
            with anyio.move_on_after(UNDO_SECONDS):
                await self._undo()

        await to_the_end(while_there_is_time)

    async def _undo(self) -> None:
        """The change was not applied and cannot be any more, since only this client could publish
        it. The next client removes the intents that cannot be removed now.
        """
        removed = False
        self.left_entries = self._stores_entries
        try:
            transactions = self._store.transactions
            if await transactions.abort(self._txn) == "aborted":
                await self._end(published=False)
                removed = True
            elif self._stores_entries:
                # Another client has taken the transaction over; at the end it removes the record.
                removed = await transactions.record(self._txn.id) is None
        except S3kError as error:
            _LOG.warning(
                "transaction %s is aborted, but its intents could not be dropped: %s",
                self._txn.id,
                error,
            )
        self.left_entries = self._stores_entries and not removed
        if not self.left_entries:
            await self.log.rollback()

    async def _end(self, *, published: bool) -> None:
        resolver = self._store.resolver
        await resolver.end(self._txn, self._source, self._target, published=published)
