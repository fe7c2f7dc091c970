"""Tasks of a restore: evaluate the rules for a part's objects, and write files under the driver's
lock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, compress, islice
from typing import Any, Final

import pyarrow as pa
from pyspark.accumulators import Accumulator

from s3k_async import _native
from s3k_async._sync.loop_thread import current_bridge
from s3k_async.config import VolumeConfig
from s3k_async.integrity.audit import AuditTrail
from s3k_async.integrity.restore_plan import (
    TreePlan,
    deletions_line,
    deletions_of,
    entry_line,
    entry_of,
    is_plain,
)
from s3k_async.integrity.restore_rules import RestoreDecision, decide_object
from s3k_async.integrity.shuffle import Shuffle, facts_in
from s3k_async.model import Entry
from s3k_async.oplog.entries import LogRecord
from s3k_async.spark.delegate_tasks import delegated
from s3k_async.spark.shuffle_rows import parts_of
from s3k_async.spark.task_rows import (
    Batches,
    attempt_name,
    column_batch,
    dict_batches,
    row_batch,
)
from s3k_async.table.keys import KeyScheme
from s3k_async.volumes.restoration import write_entries

__all__ = ["DECIDED", "WRITTEN", "Decider", "decision_of", "writer"]

DECIDED: Final = pa.schema(
    [
        ("tag", pa.string()),
        ("place", pa.string()),
        ("path", pa.string()),
        ("name", pa.string()),
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
        ("after", pa.string()),
        ("last", pa.string()),
        ("deletions", pa.string()),
        ("newest", pa.int64()),
    ]
)
"""Decisions. Tags: `claim`, the restored state of an object (`line`; `before`, `after` and
`deletions` as of RestoreDecision; `published`: no reservation); `outcome` of an object that is not
restored (`last` and `newest` as of RestoreDecision); `removed`, a directory that was certainly
removed; `standing`, an existing entry of the table; `wanted`, in `place` what the plan looks for,
usually once for each task. `place` is the entry key, `parent` the directory key in it. `plain`:
whether the plan can do without the row, unless it looks for it."""
WRITTEN: Final = pa.schema([("written", pa.int64())])
AT_ONCE: Final = 20_000
"""Entries held in memory and written while the volume is open once."""
REMEMBERED: Final = 200_000
ROWS: Final = 2000

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Decider:
    """Decides the objects of parts: from rows of LINES to rows of DECIDED. The native core decides
    those that are certainly restored as the log has them, the rules all others."""

    plan: type[TreePlan]
    keys: KeyScheme
    now_ms: int
    path: str
    """Entries at and below it are restored."""
    within: str
    """As of the plan."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        told: set[str] = set()
        for _, parts in parts_of(batches):
            yield from self._of_part(parts, told)

    def _of_part(self, parts: Shuffle, told: set[str]) -> Batches:
        """The rows of a part. `told`: what the rows before it want, as far as it is remembered."""
        existing = list(parts.read("entries", 0))
        rows = [{**self._place_of(entry), "tag": "standing"} for entry in existing]
        present = {entry.id for entry in existing}
        for key, place in parts.read("directories", 0) if self.keys.by_id else ():
            if key not in present:  # a staged directory, of which there is no fact about an entry
                present.add(key)
                rows.append(self._staged(key, place))
        records = parts.lines("records", 0)
        decided = _native.committed_facts(
            records,
            parts.lines("blobs", 0),
            present,
            self.within,
            self.keys.authority,
            self.keys.suffix_count,
        )
        wanted: set[str] = set()
        if decided is not None:
            claims, left = decided
            if claims[0]:
                yield self._claims(*claims)
            wanted = self._wanted(claims[1], claims[3], claims[4])
            records = [left]
        rows += _wanted_rows(wanted, told)
        ruled = self._by_the_rules(parts, records, present, told) if any(records) else ()
        yield from dict_batches(DECIDED, chain(rows, ruled), ROWS)

    def _claims(
        self,
        object_ids: list[str],
        places: list[str],
        paths: list[str],
        parents: list[str],
        directories: list[bool],
        sizes: list[int],
        ctimes: list[int],
        lines: list[str],
        versions: list[int],
    ) -> pa.RecordBatch:
        """The rows of the objects that are restored as the log has them."""
        kept = self.plan.kept_names(self.path)
        names = [place.rpartition("/")[2] for place in places]
        found: dict[str, list[Any]] = {
            "tag": ["claim"] * len(places),
            "place": places,
            "path": paths,
            "name": names,
            "object_id": object_ids,
            "rule": ["committed"] * len(places),
            "detail": [""] * len(places),
            "parent": parents,
            "plain": [
                not is_dir and name not in kept
                for is_dir, name in zip(directories, names, strict=True)
            ],
            "isdir": directories,
            "published": [not is_dir for is_dir in directories],
            "size": sizes,
            "ctime": ctimes,
            "line": lines,
            "newest": versions,
        }
        nothing = [None] * len(places)
        return column_batch(DECIDED, [found.get(name, nothing) for name in DECIDED.names])

    def _wanted(
        self, places: Sequence[str], parents: Iterable[str], directories: Iterable[bool]
    ) -> set[str]:
        """What the plan looks for because of such objects."""
        return self.plan.looks_above(set(parents)) | set(compress(places, directories))

    def _by_the_rules(
        self, parts: Shuffle, records: Sequence[bytes], present: set[str], told: set[str]
    ) -> Iterator[Row]:
        """The rows of the objects with these records that the rules decide."""
        sizes = {blob.key: blob.size for blob in parts.read("blobs", 0)}
        objects: dict[str, list[LogRecord]] = {}
        for lines in records:
            for record in facts_in("records", lines):
                objects.setdefault(record.operation.object_id, []).append(record)
        for object_id, found in objects.items():
            decision, was_removed = decide_object(
                found,
                sizes,
                self.now_ms,
                self.within,
                present.__contains__,
                self.keys.is_current,
            )
            if decision is None:
                continue
            if was_removed and decision.last is not None:
                yield {**self._place_of(decision.last), "tag": "removed"}
            yield self._row(object_id, decision)
            if decision.entry:
                yield from _wanted_rows(self.plan.looks_for(decision), told)

    @staticmethod
    def _staged(object_id: str, place: str) -> Row:
        return {
            "tag": "standing",
            "place": place,
            "object_id": object_id,
            "isdir": True,
            "plain": False,
        }

    def _place_of(self, entry: Entry) -> Row:
        return {
            "place": entry.entry_key,
            "path": entry.path,
            "name": _native.split(entry.path)[1],
            "parent": self.keys.parent_key(entry.entry_key),
            "object_id": entry.id,
            "isdir": entry.is_dir,
            "plain": self.plan.leaves_out(entry, self.path),
        }

    def _row(self, object_id: str, decision: RestoreDecision) -> Row:
        entry, last = decision.entry, decision.last
        state = entry or last
        row: Row = {
            **({"plain": True} if state is None else self._place_of(state)),
            "object_id": object_id,
            "rule": decision.rule,
            "detail": decision.detail,
            "newest": decision.newest,
        }
        if entry is None:
            row |= {"tag": "outcome", "path": decision.path}
            if decision.rule == "other_layout":  # its path is that of the other layout
                row["parent"] = None
            return row if row["plain"] else row | {"last": _line(last)}
        return row | {
            "tag": "claim",
            "plain": row["plain"] and is_plain(decision),
            "published": entry.committed,
            "size": entry.size if entry.committed else 0,
            "ctime": entry.ctime,
            "line": entry_line(entry),
            "before": _line(decision.before),
            "after": _line(decision.after),
            "deletions": deletions_line(decision.deletions),
        }


def _wanted_rows(wanted: set[str], told: set[str]) -> Iterator[Row]:
    """The rows of what the plan looks for, without those that were told already."""
    found = wanted - told
    if len(told) + len(found) > REMEMBERED:
        told.clear()
    told |= found
    for value in found:
        yield {"tag": "wanted", "place": value}


def decision_of(row: Any) -> RestoreDecision:
    """The decision in a row with the tag `claim`, or `outcome`, of one that is not plain."""
    return RestoreDecision(
        row.rule,
        _entry(row.line),
        before=_entry(row.before),
        detail=row.detail,
        path=row.path,
        after=_entry(row.after),
        deletions=deletions_of(row.deletions),
        last=_entry(row.last),
        newest=row.newest,
    )


def _line(entry: Entry | None) -> str | None:
    return None if entry is None else entry_line(entry)


def _entry(line: str | None) -> Entry | None:
    return None if line is None else entry_of(line)


def writer(
    config: VolumeConfig, lock: str, run: str, counter: Accumulator[int]
) -> Callable[[Iterable[pa.RecordBatch]], Batches]:
    """The function that writes entries, given as lines and paths, under the lock, after recording
    each in the audit trail of the attempt; returns rows of WRITTEN. A second attempt writes the
    same entries.
    """

    def write(batches: Iterable[pa.RecordBatch]) -> Batches:
        attempt = f"files-{attempt_name()}"
        entries = (
            replace(entry_of(row["line"]), path=row["path"])
            for batch in batches
            for row in batch.to_pylist()
        )
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
