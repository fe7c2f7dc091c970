"""Tasks of a restore: evaluate the rules for a part's objects, and write files under the driver's
lock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

import pyarrow as pa
from pyspark.accumulators import Accumulator

from s3k_async import _native
from s3k_async._sync.loop_thread import current_bridge
from s3k_async.config import VolumeConfig
from s3k_async.integrity.audit import AuditTrail
from s3k_async.integrity.restore_plans.path import is_path, is_plain
from s3k_async.integrity.restore_plans.tree_plan import entry_line, entry_of
from s3k_async.integrity.restore_rules import RestoreDecision, decide_object
from s3k_async.integrity.shuffle import Shuffle
from s3k_async.model import Entry
from s3k_async.oplog.entries import LogRecord
from s3k_async.spark.delegate_tasks import delegated
from s3k_async.spark.shuffle_rows import parts_of
from s3k_async.spark.task_rows import Batches, attempt_name, dict_batches, row_batch
from s3k_async.volumes.restoration import write_entries

__all__ = ["DECIDED", "WRITTEN", "decider", "writer"]

DECIDED: Final = pa.schema(
    [
        ("tag", pa.string()),
        ("path", pa.string()),
        ("object_id", pa.string()),
        ("rule", pa.string()),
        ("detail", pa.string()),
        ("parent", pa.string()),
        ("plain", pa.bool_()),
        ("isdir", pa.bool_()),
        ("published", pa.bool_()),
        ("size", pa.int64()),
        ("ctime", pa.int64()),
        ("line", pa.string()),
        ("before", pa.string()),
        ("came_from", pa.string()),
    ]
)
"""Decisions. Tags: `claim`, the restored state of an object (`line`; `before` and `came_from`: its
state and path without the assumed operation; `published`: no reservation); `outcome` of an object
that is not restored; `removed`, the path of a directory that was certainly removed; `above`, a path
above a claim, usually once for each task; `standing`, an existing entry of the table."""
WRITTEN: Final = pa.schema([("written", pa.int64())])
AT_ONCE: Final = 20_000
"""Entries held in memory and written while the volume is open once."""
REMEMBERED: Final = 200_000
ROWS: Final = 2000

Row = dict[str, Any]


def decider(now_ms: int, within: str) -> Callable[[Iterable[pa.RecordBatch]], Batches]:
    """The function that decides the objects of parts: from rows of LINES to rows of DECIDED."""
    return lambda batches: dict_batches(DECIDED, _decided(batches, now_ms, within), ROWS)


def _decided(batches: Iterable[pa.RecordBatch], now_ms: int, within: str) -> Iterator[Row]:
    above: set[str] = set()
    for _, parts in parts_of(batches):
        for row in _of_part(parts, now_ms, within):
            yield row
            paths = (row["path"], row.get("came_from")) if row["tag"] == "claim" else ()
            found = {
                up for path in paths if path is not None for up in _native.ancestors(path)
            } - above
            if len(above) + len(found) > REMEMBERED:
                above.clear()
            above |= found
            yield from ({"tag": "above", "path": path} for path in found)


def _of_part(parts: Shuffle, now_ms: int, within: str) -> Iterator[Row]:
    sizes = {blob.key: blob.size for blob in parts.read("blobs", 0)}
    existing: set[str] = set()
    objects: dict[str, list[LogRecord]] = {}
    for entry in parts.read("entries", 0):
        existing.add(entry.id)
        yield {"tag": "standing", "path": entry.path, "object_id": entry.id, "isdir": entry.is_dir}
    for record in parts.read("records", 0):
        objects.setdefault(record.operation.object_id, []).append(record)
    for object_id, records in objects.items():
        decision, was_removed = decide_object(
            records, sizes, now_ms, within, existing.__contains__, is_path
        )
        if decision is None:
            continue
        if was_removed:
            yield {"tag": "removed", "path": decision.path}
        yield _row(object_id, decision, decision.entry)


def _row(object_id: str, decision: RestoreDecision, entry: Entry | None) -> Row:
    row: Row = {"object_id": object_id, "rule": decision.rule, "detail": decision.detail}
    if entry is None:
        return {**row, "tag": "outcome", "path": decision.path}
    before = decision.before
    return {
        **row,
        "tag": "claim",
        "path": entry.path,
        "parent": _native.split(entry.path)[0],
        "plain": is_plain(decision),
        "isdir": entry.is_dir,
        "published": entry.committed,
        "size": entry.size if entry.committed else 0,
        "ctime": entry.ctime,
        "line": entry_line(entry),
        "before": None if before is None else entry_line(before),
        "came_from": None if before is None else before.path,
    }


def writer(
    config: VolumeConfig, lock: str, run: str, counter: Accumulator[int]
) -> Callable[[Iterable[pa.RecordBatch]], Batches]:
    """The function that writes entries, given as lines, under the lock, after recording each in the
    audit trail of the attempt; returns rows of WRITTEN. A second attempt writes the same entries.
    """

    def write(batches: Iterable[pa.RecordBatch]) -> Batches:
        attempt = f"files-{attempt_name()}"
        entries = (entry_of(line) for batch in batches for line in batch.column(0).to_pylist())
        written = 0
        while some := list(islice(entries, AT_ONCE)):
            trail = f"{run}/{attempt}-{written}"
            current_bridge().run(partial(_write, config, lock, some, trail))
            written += len(some)
            counter.add(len(some))
        yield row_batch(WRITTEN, [(written,)])

    return write


async def _write(config: VolumeConfig, lock: str, entries: Sequence[Entry], trail: str) -> None:
    async with delegated(config, lock) as (volume, _):
        await write_entries(volume, entries, AuditTrail(volume.log_blobs, trail))
