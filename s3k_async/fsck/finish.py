"""What became of the operations of an interrupted change: read from the table, for a whole segment
of the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from s3k_async.errors import ItemFormatError
from s3k_async.metadata.codec import from_item
from s3k_async.metadata.marks import job_of, parse_mark
from s3k_async.metadata.store import MetadataStore
from s3k_async.model import Entry
from s3k_async.oplog.entries import Operation
from s3k_async.oplog.segments import Mark, Segment

__all__ = ["happened", "mark_of"]

ROWS: Final = 500
"""Operations whose paths are looked at together."""


async def mark_of(
    store: MetadataStore, begun: Segment, job: str, *, published: bool
) -> Mark | None:
    """The mark that ends a segment; None: none of its operations happened, or will. What the table
    does not tell is unknown by it, so that it is decided object by object.

    `job`: the id of the job whose operations these are, which nobody can publish any more;
    `published`: whether it was, by its record. Empty: the change was no job's. Raises the store's
    errors.
    """
    verdicts: dict[str, set[bool | None]] = {}
    for start in range(0, len(begun.operations), ROWS):
        some = begun.operations[start : start + ROWS]
        stored = await _stored(store, some)
        for operation in some:
            verdicts.setdefault(operation.id, set()).add(
                happened(operation, stored, job, published=published)
            )
    succeeded = tuple(identity for identity, said in verdicts.items() if said == {True})
    unknown = tuple(
        identity for identity, said in verdicts.items() if said not in ({True}, {False})
    )
    if not succeeded and not unknown:
        return None
    everything = len(succeeded) == len(verdicts)
    return Mark(begun.id, len(begun.operations), None if everything else succeeded, unknown)


def happened(
    operation: Operation, stored: Mapping[str, Entry], job: str, *, published: bool
) -> bool | None:
    """Whether an operation happened, by the entries that are stored at its paths; None: they do not
    tell. Arguments as for `mark_of`.

    An entry that bears the operation's id and version proves that it happened. A directory's id of
    the operation changes whenever something in it does, so of a directory the same version proves
    nothing: a rename that was repeated has the same ones. An entry that is still what the operation
    began from proves that it did not happen, and will not if it can only happen with a job that is
    over. If that entry carries the mark of a published job as going, it is about to go.
    """
    after, before = operation.after, operation.before
    there = stored.get(after.path) if after is not None else None
    if there is not None:
        side = _side(there, job, published=published)
        if side is not None and (side.id, side.version, side.operation) == (
            operation.object_id,
            operation.version,
            operation.id,
        ):
            return True
    here = stored.get(before.path) if before is not None else None
    if not job or before is None or here is None:
        return None
    if (here.id, here.version) != (before.id, before.version):
        return None
    if not published or not here.pending:
        return False
    if job_of(here.pending) != job:
        return None
    side = _side(here, job, published=True)
    return True if side is None or side.id != operation.object_id else None


def _side(entry: Entry, job: str, *, published: bool) -> Entry | None:
    """What a stored entry is, as far as a mark of this job decides that; None: nothing."""
    if not entry.pending or job_of(entry.pending) != job:
        return entry
    return parse_mark(entry.pending).side(entry, published=published)


async def _stored(store: MetadataStore, operations: Sequence[Operation]) -> dict[str, Entry]:
    states = [
        state for each in operations for state in (each.before, each.after) if state is not None
    ]
    paths = sorted({state.path for state in states})
    keys = store.keys.keys(paths)
    items = await store.items.get_many(keys)
    found: dict[str, Entry] = {}
    for path, key in zip(paths, keys, strict=True):
        if key in items:
            try:
                found[path] = from_item(items[key], store.keys)
            except ItemFormatError:
                continue  # nothing is known of it
    return found
