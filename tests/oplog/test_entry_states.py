"""The states of an object, from its records in the log."""

from __future__ import annotations

from dataclasses import replace

from s3k_async.model import Entry, Operation, OperationKind
from s3k_async.oplog.entries import LogRecord, LogState
from s3k_async.oplog.entry_states import history_of
from s3k_async.oplog.log_size import measure_log
from tests.oplog.operations import CONTENT, DIRECTORY, OBJECT, PUBLISHED, RESERVED, log_blobs

NEXT = PUBLISHED.with_content(CONTENT, mtime_ms=5000, operation="third")


def record(
    before: Entry | None, after: Entry | None, time_ms: int, state: LogState = "committed"
) -> LogRecord:
    kind: OperationKind = "delete" if after is None else "update"
    version = after.version if after is not None else before.version + 1 if before else 0
    operation = Operation(f"op-{time_ms}", kind, OBJECT, version, time_ms, before, after)
    return LogRecord(operation, state)


CREATED = record(None, RESERVED, 1000)
WRITTEN = record(RESERVED, PUBLISHED, 2000)
OVERWRITTEN = record(PUBLISHED, NEXT, 3000)
DELETED = record(NEXT, None, 4000)


def test_each_state_lasts_until_the_next_operation() -> None:
    for records in (
        [CREATED, WRITTEN, OVERWRITTEN, DELETED],
        [DELETED, OVERWRITTEN, WRITTEN, WRITTEN, CREATED],
    ):
        history = history_of(records)
        assert (history.object_id, history.is_deleted, history.pending) == (OBJECT, True, ())
        assert [(each.entry.version, each.since_ms, each.until_ms) for each in history.states] == [
            (1, 1000, 2000),
            (2, 2000, 3000),
            (3, 3000, 4000),
        ]
        assert [each.end for each in history.states] == ["update", "update", "delete"]
        at = {time: [each.was_at(time) for each in history.states] for time in (999, 2000, 4000)}
        assert at == {999: [False] * 3, 2000: [False, True, False], 4000: [False] * 3}


def test_a_compacted_log_has_the_state_before_the_last_operation() -> None:
    history = history_of([OVERWRITTEN])
    first, last = history.states
    assert (first.entry, first.began, first.ended) == (PUBLISHED, None, OVERWRITTEN.operation)
    assert first.since_ms == PUBLISHED.mtime_ms
    assert (last.entry, last.until_ms, last.end) == (NEXT, None, "")
    assert not history.is_deleted
    moved = replace(DIRECTORY, version=2, path="/e", operation="second")
    (before, _) = history_of([record(DIRECTORY, moved, 9000)]).states
    assert before.since_ms == DIRECTORY.ctime * 1000


def test_of_several_operations_with_one_version_the_last_one_counts() -> None:
    """A former item was restored in the table, and then deleted."""
    deleted = record(PUBLISHED, None, 4000)
    assert deleted.operation.version == OVERWRITTEN.operation.version
    for records in (
        [CREATED, WRITTEN, OVERWRITTEN, deleted],
        [deleted, OVERWRITTEN, WRITTEN, CREATED],
    ):
        history = history_of(records)
        assert history.is_deleted
        assert [each.entry for each in history.states] == [RESERVED, PUBLISHED]
        assert (history.states[-1].end, history.states[-1].until_ms) == ("delete", 4000)


def test_what_is_pending_did_not_happen() -> None:
    pending = record(PUBLISHED, NEXT, 3000, "pending")
    history = history_of([WRITTEN, pending])
    assert [each.entry.version for each in history.states] == [1, 2]
    assert history.states[-1].ended is None
    assert history.pending == (pending.operation,)
    lost = record(PUBLISHED, None, 2500, "pending")
    assert history_of([WRITTEN, lost, OVERWRITTEN]).pending == ()
    assert not history_of([WRITTEN, lost, OVERWRITTEN]).is_deleted


async def test_the_size_of_a_log() -> None:
    blobs = await log_blobs()
    for key in ("entries/ab/x", "segments/x", "audit/1/0", "checkpoints/parts/x.0", "other"):
        await blobs.put(key, b"1234")
    old = await blobs.now_ms() + 60_000
    found = await measure_log(blobs, old)
    assert (found.objects, found.bytes, found.compactable) == (4, 16, 2)
    assert (await measure_log(blobs, 1)).compactable == 0
    assert found.kinds["audit"].objects == 1
