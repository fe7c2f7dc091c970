"""What gc computes about a file that was changed in place many times."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from s3k_async.backends.ports.blobs import BlobInfo
from s3k_async.integrity.gc_rules import GcFacts, History, judge
from s3k_async.model import Entry
from s3k_async.oplog.entries import LogRecord, Operation, OperationKind
from s3k_async.storage.extents import Extent, format_extents

OBJECT = str(UUID(int=1))
CHANGES = 300


def test_each_record_is_read_once_for_all_data_objects() -> None:
    asked: Counter[str] = Counter()

    def key_of(physical: str) -> str:
        asked[physical] += 1
        return physical

    blobs, records, extents = [], [], list[Extent]()
    before: Entry | None = None
    for number in range(CHANGES):
        key = f"{UUID(int=number)}.id={OBJECT}"
        blobs.append(BlobInfo(key, 5, "", 1))
        extents = [*extents[-3:], Extent(key, 0, 5)]
        version = number + 1
        after = Entry(
            "/f",
            False,
            OBJECT,
            version,
            1,
            version,
            size=5 * len(extents),
            physical=format_extents(OBJECT, extents),
            committed=True,
            operation=str(UUID(int=1000 + number)),
        )
        kind: OperationKind = "update" if before else "create"
        operation = Operation(after.operation, kind, OBJECT, version, version, before, after)
        records.append(LogRecord(operation, "committed"))
        before = after
    history = History(records, key_of)
    verdicts = [judge(GcFacts(blob, history, False, 10**9, True)) for blob in blobs]
    reasons = [verdict.reason for verdict in verdicts]
    assert reasons == ["replaced"] * (CHANGES - 4) + ["lost"] * 4
    # Four versions have it, and the fifth had it before.
    assert [version for version, _ in verdicts[10].operations] == [11, 12, 13, 14, 15]
    assert verdicts[10].since_ms == 15
    # Each state names four keys; in addition, each verdict asks about the last state.
    assert asked.total() <= CHANGES * 2 * 4 + CHANGES * 4
