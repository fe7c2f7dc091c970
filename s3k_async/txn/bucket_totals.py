"""The totals of buckets, and how operations of the log change them.

A bucket is a directory of the root. Its objects are the committed files below it; reservations and
directories do not count, nor do files in the root itself. The time of the latest modification is a
maximum, which no change lowers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from s3k_async.errors import UnsupportedError
from s3k_async.model import Entry, Operation
from s3k_async.oplog.segments import Operations
from s3k_async.table.keys import BY_ID, TRASH_FOLDER, TRASH_ID

__all__ = [
    "BucketTotal",
    "TotalChanges",
    "added",
    "bucket_above",
    "refuse_move",
    "refuse_moves",
]


@dataclass(frozen=True, slots=True)
class BucketTotal:
    """The number of objects and their bytes, or a change of both, and the latest modification."""

    objects: int = 0
    size: int = 0
    """Bytes."""
    newest_ms: int | None = None
    """The latest modification that an object has or had, epoch ms; None if there was no object."""

    def __add__(self, other: BucketTotal) -> BucketTotal:
        times = [each for each in (self.newest_ms, other.newest_ms) if each is not None]
        return BucketTotal(
            self.objects + other.objects, self.size + other.size, max(times, default=None)
        )

    def __bool__(self) -> bool:
        return self.objects != 0 or self.size != 0 or self.newest_ms is not None


class TotalChanges:
    """What operations change in the totals of buckets, by operation id."""

    def __init__(self, operations: Operations, counted_at: str = "") -> None:
        """`counted_at`: a path in the bucket of the entries whose path is not known, as below a
        directory in the trash of layout `tree`; empty if there is none."""
        self._by_id: dict[str, dict[str, BucketTotal]] = {}
        self.is_complete = True
        """Whether the buckets of all entries are known."""
        unknown = bucket_above(counted_at) if counted_at else None
        for operation in (operations[place] for place in range(len(operations))):
            self._add(operation, unknown)

    def __bool__(self) -> bool:
        return bool(self._by_id)

    @property
    def buckets(self) -> set[str | None]:
        """The buckets whose totals change by at least one operation."""
        return {bucket for changes in self._by_id.values() for bucket in changes}

    def of(self, identities: Iterable[str] | None = None) -> dict[str, BucketTotal]:
        """The changes of some operations together, None: of all, by bucket; only those that change
        something. Several operations of one id are applied together."""
        chosen = self._by_id if identities is None else dict.fromkeys(identities)
        return added(self._by_id.get(identity, {}) for identity in chosen)

    def _add(self, operation: Operation, unknown: str | None) -> None:
        changes: dict[str | None, BucketTotal] = {}
        times: dict[str | None, int] = {}
        for entry, sign in ((operation.before, -1), (operation.after, 1)):
            if entry is None or entry.is_dir or not entry.committed:
                continue
            bucket = unknown if has_no_path(entry) else bucket_of(entry.path)
            change = BucketTotal(sign, sign * entry.size)
            if sign < 0:
                times[bucket] = entry.mtime_ms
            elif times.get(bucket) != entry.mtime_ms:
                change = replace(change, newest_ms=entry.mtime_ms)
            changes[bucket] = changes.get(bucket, BucketTotal()) + change
        changes.pop("", None)
        moved = {bucket: change for bucket, change in changes.items() if change}
        if moved.pop(None, None) is not None:
            self.is_complete = False
        if moved:
            known = {bucket: change for bucket, change in moved.items() if bucket is not None}
            former = self._by_id.get(operation.id, {})
            self._by_id[operation.id] = added([former, known])


def added(parts: Iterable[Mapping[str, BucketTotal]]) -> dict[str, BucketTotal]:
    """The sums of changes by bucket; only those that change something."""
    sums: dict[str, BucketTotal] = {}
    for part in parts:
        for bucket, change in part.items():
            sums[bucket] = sums.get(bucket, BucketTotal()) + change
    return {bucket: change for bucket, change in sums.items() if change}


def bucket_of(path: str) -> str:
    """The bucket of a file; empty for one in the root."""
    bucket, separator, _ = path[1:].partition("/")
    return bucket if separator else ""


def bucket_above(path: str) -> str | None:
    """The bucket of what is below a directory; None if the path is one that stands for an entry
    whose path is not known."""
    if path.startswith((f"{BY_ID}/", f"{TRASH_FOLDER}/")):
        return None
    return path[1:].partition("/")[0]


def has_no_path(entry: Entry) -> bool:
    """Whether an entry is shown by the id of a directory, since no path leads to it."""
    return bool(entry.directory) and bucket_above(entry.path) is None


def refuse_moves(operations: Operations) -> None:
    """Raise UnsupportedError if a directory of layout `tree` is moved to another bucket: what is
    below it is not read, so that it cannot be counted there."""
    if not isinstance(operations, (list, tuple)):
        return  # columns have no moves of single directories
    for each in operations:
        before, after = each.before, each.after
        if before is None or after is None or not before.is_dir or not before.directory:
            continue
        if TRASH_ID in (before.directory, after.directory) or has_no_path(before):
            continue
        refuse_move(before.path, after.path)


def refuse_move(source: str, target: str) -> None:
    """Raise UnsupportedError unless directories at both paths are in one bucket."""
    if bucket_above(source) != bucket_above(target):
        raise UnsupportedError(
            f"a volume of layout tree with the feature counters cannot move a directory to another "
            f"bucket ({target}), nor rename a bucket: move the files, as by rename_many, or copy "
            "and delete them",
            path=source,
        )
