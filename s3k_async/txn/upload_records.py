"""Records of multipart uploads: one item for each upload, and one for each of its parts.

The id of an upload is the object id that it has chosen for the file. All data of its parts is
stored under that object id, and the key of its record follows from it. Other partitions than those
of entries hold the records, whatever the layout and the suffix count of the volume.

An upload is `open` until the transaction of the table that publishes its parts makes it
`completed`, or a client makes it `aborted`: one conditional write either way. Until then garbage
collection keeps all data with its object id. Part items of an upload that is not open are removed
by the client that ended it, or else by garbage collection.

**Parts and completion.** A completion writes an id of its own, a random token, into the record,
reads the parts, and publishes them on the condition that the token is still there. A client that
stores a part writes its item first, and then reads the record: it removes a token that it finds. So
a part that was acknowledged is in the file, or its completion begins again; and no two clients
that store parts write to one item. Every write of a token is on the condition that the record is as
it was read: a request that arrives late does not write a token again that was removed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Final, TypeAlias

from s3k_async._core.concurrency import gather, run_all
from s3k_async._core.runtime import Runtime
from s3k_async.attributes import Attributes
from s3k_async.backends.ports.items import (
    ABSENT,
    MAX_TRANSACTION,
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
from s3k_async.errors import ArgumentTypeError, ConditionFailedError, UploadNotFoundError
from s3k_async.model import Content
from s3k_async.storage.extents import physical_keys
from s3k_async.txn.upload_items import (
    COMPLETION,
    ENDED,
    STATE,
    UPLOAD_ID,
    MultipartUpload,
    PartInfo,
    part_from,
    part_item,
    part_key,
    record_partitions,
    upload_from,
    upload_item,
    upload_key,
)

__all__ = ["DeleteData", "UploadRecords", "has_uploads", "open_uploads"]

_DELETES: Final = 8
"""Transactions that remove items of parts at the same time."""
_PARTITIONS_AT_ONCE: Final = 4
"""Partitions of records that are listed at the same time."""
DeleteData: TypeAlias = Callable[[list[str]], Awaitable[object]]
"""Deletes the physical objects with these keys. After an error the items that name them are kept.
"""


async def open_uploads(items: ItemStore, object_ids: Iterable[str]) -> set[str]:
    """Those of the object ids that an open upload has chosen, by strongly consistent reads. An
    upload with an unreadable record is taken for open."""
    keys = [upload_key(each) for each in sorted(set(object_ids)) if UPLOAD_ID.fullmatch(each)]
    found = await items.get_many(keys) if keys else {}
    return {key.sort for key, item in found.items() if item.get(STATE) not in ENDED}


async def has_uploads(items: ItemStore) -> bool:
    """Whether a volume has an open upload, or one with an unreadable record."""
    for partition in record_partitions():
        async with aclosing(query_all(items, partition)) as pages:
            async for page in pages:
                if any(item.get(STATE) not in ENDED for item in page):
                    return True
    return False


class UploadRecords:
    """The records of the multipart uploads of a volume."""

    def __init__(self, items: ItemStore, runtime: Runtime) -> None:
        self._items = items
        self._runtime = runtime

    # Uploads

    async def create(
        self,
        path: str,
        lifetime_ms: int,
        attributes: Attributes | None = None,
        bucket: str = "",
    ) -> MultipartUpload:
        """Begin an upload."""
        now_ms, identity = self._runtime.now_ms(), self._runtime.uuid()
        upload = MultipartUpload(
            identity,
            path,
            now_ms,
            now_ms + lifetime_ms,
            operation=self._runtime.uuid(),
            attributes=attributes,
            bucket=bucket,
        )
        await self._items.write(Put(upload_item(upload), ABSENT))
        return upload

    async def get(self, upload_id: str) -> MultipartUpload | None:
        """The record of an upload; None for an upload that does not exist, or no longer. Raises
        ArgumentTypeError, ItemFormatError."""
        if not isinstance(upload_id, str):
            raise ArgumentTypeError(
                f"the id of an upload is text, not {type(upload_id).__name__}", path=str(upload_id)
            )
        if UPLOAD_ID.fullmatch(upload_id) is None:
            return None
        item = await self._items.get(upload_key(upload_id))
        return None if item is None else upload_from(item)

    async def need_open(self, upload_id: str) -> MultipartUpload:
        """The record of an open upload. Raises UploadNotFoundError, ItemFormatError."""
        upload = await self.get(upload_id)
        if upload is None or not upload.is_open:
            raise UploadNotFoundError(
                "no such multipart upload: it was completed or aborted, has expired, or never "
                "existed",
                path=upload_id,
            )
        return upload

    async def pages(self, *, after: str = "") -> AsyncGenerator[list[MultipartUpload], None]:
        """The uploads with ids after the given one, in the order of the ids, those that are not
        open included. Raises ItemFormatError."""
        partitions = record_partitions(after)
        for start in range(0, len(partitions), _PARTITIONS_AT_ONCE):
            some = partitions[start : start + _PARTITIONS_AT_ONCE]
            for found in await gather(self._partition, some, limit=_PARTITIONS_AT_ONCE):
                yield [each for each in found if each.id > after]

    async def _partition(self, partition: str) -> list[MultipartUpload]:
        return [
            upload_from(item) async for page in query_all(self._items, partition) for item in page
        ]

    # Completion

    async def begin_completion(self, upload_id: str) -> MultipartUpload:
        """Write a new token into the record of an open upload; returns the record. Raises
        UploadNotFoundError."""
        while True:
            upload = await self.need_open(upload_id)
            token = self._runtime.uuid()
            set_token: dict[str, Value] = {COMPLETION: token, OPERATION: token}
            # A request that arrives late, when the token was removed, must not write it again.
            unchanged = Condition(equals={STATE: "open", OPERATION: upload.operation})
            try:
                await self._items.write(Update(upload_key(upload_id), unchanged, set_token))
            except ConditionFailedError:
                continue
            return replace(upload, completion=token, operation=token)

    def completed(self, upload: MultipartUpload) -> Update:
        """The action that completes an upload, if its token is still there."""
        ended: dict[str, Value] = {STATE: "completed", OPERATION: self._runtime.uuid()}
        still = Condition(equals={STATE: "open", COMPLETION: upload.completion})
        return Update(upload_key(upload.id), still, ended, (COMPLETION,))

    async def is_current(self, upload: MultipartUpload) -> bool:
        """Whether the token of a completion is still there. Raises UploadNotFoundError."""
        return (await self.need_open(upload.id)).completion == upload.completion

    # Parts

    async def part(self, upload_id: str, number: int) -> PartInfo | None:
        """A part, or None. Raises ItemFormatError."""
        item = await self._items.get(part_key(upload_id, number))
        return None if item is None else part_from(item)

    async def parts(self, upload_id: str) -> list[PartInfo]:
        """All parts, by number. Raises ItemFormatError."""
        return [part_from(item) for item in await self._part_items(upload_id)]

    async def _part_items(self, upload_id: str) -> list[Item]:
        partition = part_key(upload_id, 0).partition
        return [item async for page in query_all(self._items, partition) for item in page]

    async def put_part(
        self, upload_id: str, number: int, content: Content, before: PartInfo | None
    ) -> PartInfo:
        """Store the item of a part, in place of the one that was read before. Raises
        ConditionFailedError if another client has stored the part since."""
        now_ms = self._runtime.now_ms()
        part = PartInfo(number, content, now_ms, self._runtime.uuid())
        unchanged = ABSENT if before is None else Condition(equals={OPERATION: before.operation})
        await self._items.write(Put(part_item(upload_id, part), unchanged))
        return part

    async def confirm_part(self, upload_id: str) -> None:
        """Called after the item of a part was stored: makes completions begin again that may have
        read the parts before. Raises UploadNotFoundError if the upload is not open any more; then
        the file may have the part, or not."""
        while True:
            upload = await self.need_open(upload_id)
            if not upload.completion:
                return
            unchanged = Condition(equals={STATE: "open", COMPLETION: upload.completion})
            stamp: dict[str, Value] = {OPERATION: self._runtime.uuid()}
            try:
                await self._items.write(
                    Update(upload_key(upload_id), unchanged, stamp, (COMPLETION,))
                )
            except ConditionFailedError:
                continue
            return

    async def withdraw_part(self, upload_id: str, part: PartInfo) -> None:
        """Remove the item of a part that this client has stored, unless it was replaced."""
        stored = Condition(equals={OPERATION: part.operation})
        await self._delete([Delete(part_key(upload_id, part.number), stored)])

    # The end

    async def abort(self, upload_id: str, delete_data: DeleteData) -> None:
        """Abort an open upload, or one whose abort was interrupted, and remove its parts with their
        data. Raises UploadNotFoundError, and the errors of `delete_data`."""
        upload = await self.get(upload_id)
        if upload is None or upload.state != "aborted":
            await self._end(upload_id)
        items = await self._part_items(upload_id)
        keys = [key for item in items for key in physical_keys(str(item.get("physpath", "")))]
        if keys:
            await delete_data(keys)
        await self._remove_items(upload_id, items)

    async def _end(self, upload_id: str) -> None:
        """Make an open upload aborted. Raises UploadNotFoundError."""
        await self.need_open(upload_id)
        ended: dict[str, Value] = {STATE: "aborted", OPERATION: self._runtime.uuid()}
        is_open = Condition(equals={STATE: "open"})
        try:
            await self._items.write(Update(upload_key(upload_id), is_open, ended, (COMPLETION,)))
        except ConditionFailedError:
            await self.need_open(upload_id)
            raise

    async def forget(self, upload_id: str) -> None:
        """Remove the items of an upload that is not open, and not their data: of a completed
        upload, they belong to the file."""
        await self._remove_items(upload_id, await self._part_items(upload_id))

    async def end_if_over(self, upload_id: str) -> bool:
        """Abort an upload that has expired, and remove the items of one that is not open. False if
        there was nothing to do. Raises UploadNotFoundError, ItemFormatError.

        Data is left to garbage collection, which reads the log: in a table from a backup an upload
        may be open, or half aborted, that was completed after the backup.
        """
        if UPLOAD_ID.fullmatch(upload_id) is None:
            return False
        upload = await self.get(upload_id)
        if upload is not None and upload.is_open:
            if upload.expires_ms > self._runtime.now_ms():
                return False
            await self._end(upload_id)
        left = await self._part_items(upload_id)
        await self._remove_items(upload_id, left)
        return upload is not None or bool(left)

    async def _remove_items(self, upload_id: str, parts: Sequence[Item]) -> None:
        """Remove the items of parts, then the record."""
        deletes = [
            Delete(
                Key(str(item[PARTITION]), str(item[SORT])),
                Condition(equals={OPERATION: item[OPERATION]} if OPERATION in item else {}),
            )
            for item in parts
        ]
        steps = [
            deletes[start : start + MAX_TRANSACTION]
            for start in range(0, len(deletes), MAX_TRANSACTION)
        ]
        await run_all(self._delete, steps, limit=_DELETES)
        key = upload_key(upload_id)
        item = await self._items.get(key)
        if item is not None and item.get(STATE) in ENDED:
            await self._delete([Delete(key, Condition(equals={STATE: item[STATE]}))])

    async def _delete(self, deletes: Collection[Delete]) -> None:
        """Remove items that are unchanged; others were removed, or written again, by another
        client."""
        left = list(deletes)
        while left:
            try:
                await self._items.transact(left, self._runtime.uuid())
            except ConditionFailedError as error:
                left = [each for place, each in enumerate(left) if place not in error.current]
            else:
                return
