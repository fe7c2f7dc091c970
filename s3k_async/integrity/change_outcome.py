"""The outcome of an interrupted change, read from the table for a whole log segment at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from s3k_async.errors import ItemFormatError
from s3k_async.model import Entry
from s3k_async.namespace.store import MetadataStore
from s3k_async.oplog.entries import Operation
from s3k_async.oplog.segments import Segment, SegmentCommit
from s3k_async.table.codec import from_item
from s3k_async.txn.write_intent import parse_intent, transaction_of

__all__ = ["happened", "segment_commit"]

ROWS: Final = 500
"""Operations whose entries are read together."""


async def segment_commit(
    store: MetadataStore, begun: Segment, txn: str, *, published: bool
) -> SegmentCommit | None:
    """The committed object of a segment; None if none of its operations took effect or can still do
    so. It names operations as unknown whose outcome the table does not show; these are decided per
    object.

    `txn`: id of the transaction that logged the segment and can no longer be published, or empty.
    `published`: whether its record says that it was published. Raises the store's errors.
    """
    verdicts: dict[str, set[bool | None]] = {}
    for start in range(0, len(begun.operations), ROWS):
        some = begun.operations[start : start + ROWS]
        stored = await _stored(store, some)
        for operation in some:
            verdicts.setdefault(operation.id, set()).add(
                happened(operation, stored, txn, published=published)
            )
    succeeded = tuple(identity for identity, said in verdicts.items() if said == {True})
    unknown = tuple(
        identity for identity, said in verdicts.items() if said not in ({True}, {False})
    )
    if not succeeded and not unknown:
        return None
    everything = len(succeeded) == len(verdicts)
    return SegmentCommit(
        begun.id, len(begun.operations), None if everything else succeeded, unknown
    )


def happened(
    operation: Operation, stored: Mapping[str, Entry], txn: str, *, published: bool
) -> bool | None:
    """Whether an operation took effect, according to the entries stored with its entry keys; None
    if they do not show it. Arguments as for `segment_commit`.

    An entry with the id and version of the operation proves that it took effect. The version alone
    does not prove it: a repeated rename leads a directory to the same path and version. An entry
    that is unchanged since the operation began proves that it did not take effect; it never will,
    since its transaction can no longer be published. An unchanged entry with the `gone` intent of a
    published transaction counts as removed.
    """
    after, before = operation.after, operation.before
    there = stored.get(after.entry_key) if after is not None else None
    if there is not None:
        side = _side(there, txn, published=published)
        if side is not None and (side.id, side.version, side.operation) == (
            operation.object_id,
            operation.version,
            operation.id,
        ):
            return True
    here = stored.get(before.entry_key) if before is not None else None
    if not txn or before is None or here is None:
        return None
    if (here.id, here.version) != (before.id, before.version):
        return None
    if not published or not here.pending:
        return False
    if transaction_of(here.pending) != txn:
        return None
    side = _side(here, txn, published=True)
    return True if side is None or side.id != operation.object_id else None


def _side(entry: Entry, txn: str, *, published: bool) -> Entry | None:
    """The state of a stored entry, with an intent of this transaction resolved; None if it does
    not exist."""
    if not entry.pending or transaction_of(entry.pending) != txn:
        return entry
    return parse_intent(entry.pending).resolve(entry, published=published)


async def _stored(store: MetadataStore, operations: Sequence[Operation]) -> dict[str, Entry]:
    states = [
        state for each in operations for state in (each.before, each.after) if state is not None
    ]
    entry_keys = sorted(filter(store.keys.is_current, {state.entry_key for state in states}))
    keys = store.keys.keys(entry_keys)
    items = await store.items.get_many(keys)
    found: dict[str, Entry] = {}
    for entry_key, key in zip(entry_keys, keys, strict=True):
        if key in items:
            try:
                found[entry_key] = from_item(items[key], store.keys)
            except ItemFormatError:
                continue  # a damaged item proves nothing
    return found
