"""The local runner of restore: rebuilds lost entries from the log and the existing data objects.

The log is sorted by object id in a temporary file. The native core decides most objects from the
lines of their records, the rules all others (`restore_rules`), and the restored entries are joined
to a tree (`restore_plan`). Memory is bounded. `spark.restore_job` does the same over Spark.

The runner holds the volume lock, so the table does not change meanwhile.
"""

from __future__ import annotations

import json
from collections import ChainMap
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, TypeAlias

from s3k_async import _native
from s3k_async._core.concurrency import merge
from s3k_async._core.runtime import Runtime
from s3k_async._core.worker_threads import in_thread
from s3k_async.backends.ports.blobs import BlobInfo, BlobStore
from s3k_async.backends.ports.key_ranges import HEX
from s3k_async.backends.ports.pagination import list_pages
from s3k_async.integrity.restore_plan import ROWS_AT_ONCE, TreePlan
from s3k_async.integrity.restore_report import RestoreOutcome, RestoreReport
from s3k_async.integrity.restore_rules import RestoreDecision, decide_object, named_keys
from s3k_async.integrity.sorted_log import SortedLog
from s3k_async.model import ROOT, Entry, Progress
from s3k_async.oplog.entries import LogRecord
from s3k_async.oplog.external_sort import ExternalSort, records_in
from s3k_async.oplog.log_reader import LogReader
from s3k_async.table.keys import KeyScheme

__all__ = ["ExistingEntries", "MakeTree", "RestorePlan", "plan_restore"]

MakeTree: TypeAlias = Callable[[ExternalSort, str, str], TreePlan]
"""Makes the plan of the restored tree, in a temporary file, for a volume id, and the path at and
below which entries are restored."""

_SCHEMA: Final = (
    "CREATE TABLE blobs (object TEXT NOT NULL, key TEXT NOT NULL, size INTEGER NOT NULL)"
)
"""Data objects by the object id in their key, or by the key if it has none."""
_INDEX: Final = "CREATE INDEX IF NOT EXISTS blobs_by_object ON blobs (object, key, size)"
"""Made by sorting, after all rows were added, and read in its order."""


@dataclass(frozen=True, slots=True)
class ExistingEntries:
    """Items of the table."""

    entries: Sequence[Entry]
    removed: Sequence[str] = ()
    """The ids of directories that were removed as empty, by their removal markers."""


async def plan_restore(
    log: BlobStore,
    data: BlobStore,
    runtime: Runtime,
    *,
    make_tree: MakeTree,
    volume_id: str,
    keys: KeyScheme,
    existing: AsyncIterator[ExistingEntries] | None = None,
    path: str = ROOT,
    directory: str | None = None,
    progress: Callable[[Progress], object] | None = None,
) -> RestorePlan:
    """Read the log, the data keys and the existing entries of the table (`existing`), and decide
    what to restore at and below `path`.

    `make_tree`: the plan of the restored tree. `keys`: of the table. `directory`: where the
    temporary file is made. The plan has to be closed. Raises the stores' errors; damage is an
    outcome.
    """
    records = SortedLog(directory)
    plan = RestorePlan(records, make_tree(records.sorter, volume_id, path), keys)
    tell = progress or (lambda _: None)
    try:
        await plan.read_log(LogReader(log, has_key=keys.has), tell)
        await plan.read_data(data, tell)
        if existing is not None:
            async for page in existing:
                plan.add_existing(page)
        # In a thread, so that the lock can be renewed meanwhile.
        now_ms = runtime.now_ms()
        await in_thread(plan.decide, now_ms)
        await in_thread(plan.tree.make_a_tree, now_ms)
    except BaseException:
        plan.close()
        raise
    return plan


class RestorePlan:
    """The plan of a restore, in a temporary file."""

    def __init__(self, records: SortedLog, tree: TreePlan, keys: KeyScheme) -> None:
        """`keys`: of the table."""
        self.tree = tree
        self._records = records
        self._keys = keys
        self._sorter = records.sorter
        self._database = records.sorter.database
        self._database.execute(_SCHEMA)

    @property
    def report(self) -> RestoreReport:
        """The report of the decisions."""
        return self.tree.report

    def close(self) -> None:
        """Remove the temporary files."""
        self.tree.close()
        self._records.close()

    async def read_log(self, log: LogReader, tell: Callable[[Progress], object]) -> None:
        """Read the log into the temporary file."""
        await self._records.read(log, self._keys, tell, operation="restore")
        self.report.log_records += self._records.count
        for damage in self._records.damaged:
            outcome = RestoreOutcome("log_damaged", damage.key, detail=str(damage.error))
            self.report.note(outcome)

    async def read_data(self, data: BlobStore, tell: Callable[[Progress], object]) -> None:
        """Read the list of data objects into the temporary file."""
        seen = 0
        pages = merge([list_pages(data, digit) for digit in HEX], limit=len(HEX))
        async with aclosing(pages):
            async for page in pages:
                seen += len(page)
                self._add_blobs(page)
                tell(Progress("restore", seen, phase="data", unit="objects"))

    def _add_blobs(self, blobs: Sequence[BlobInfo]) -> None:
        self._sorter.many(
            "INSERT INTO blobs VALUES (?, ?, ?)",
            [(_owner(blob.key), blob.key, blob.size) for blob in blobs],
        )

    def add_existing(self, page: ExistingEntries) -> None:
        """Add existing entries of the table."""
        self.tree.add_existing((entry.entry_key, entry.id, entry.is_dir) for entry in page.entries)
        self.tree.add_removed(page.removed)

    def decide(self, now_ms: int) -> None:
        """Decide each object: by the native core, if it is certainly restored as the log has it,
        else by the rules."""
        self._database.execute(_INDEX)
        self.tree.index_existing()
        keys = self._keys
        for lines in self._sorter.batches(ROWS_AT_ONCE):
            object_ids = json.dumps(list(dict.fromkeys(line[0] for line in lines)))
            sizes, present = self._sizes(object_ids), self.tree.present(object_ids)
            claims, others = _native.committed_claims(
                lines,
                sizes,
                present,
                self.tree.within,
                keys.authority,
                keys.suffix_count,
            )
            self.tree.claim_committed(claims)
            objects = (records_in(lines[start:end]) for start, end in others)
            self._apply_rules(objects, sizes, present, now_ms)

    def _apply_rules(
        self,
        objects: Iterable[list[LogRecord]],
        sizes: dict[str, int],
        present: set[str],
        now_ms: int,
    ) -> None:
        """Decide objects by the rules. `sizes`: of the data objects with their ids. `present`:
        those that the table has."""
        claims: list[tuple[str, RestoreDecision]] = []
        removed: list[tuple[str, str]] = []
        for records in objects:
            object_id = records[0].operation.object_id
            others = [_owner(key) for key in named_keys(records) if key not in sizes]
            decision, was_removed = decide_object(
                records,
                ChainMap(sizes, self._sizes(json.dumps(others))) if others else sizes,
                now_ms,
                self.tree.within,
                present.__contains__,
                self.tree.is_current,
            )
            if decision is None:
                continue
            if decision.entry is None:
                self.tree.note(decision, object_id)
            else:
                claims.append((object_id, decision))
            if was_removed:
                removed.append((object_id, decision.path))
        self.tree.claim(claims)
        self.tree.remove(removed)

    def _sizes(self, object_ids: str) -> dict[str, int]:
        """The bytes of the data objects with one of these ids, a JSON array, in their keys."""
        return dict(
            self._database.execute(
                "SELECT key, size FROM blobs WHERE object IN (SELECT value FROM json_each(?))",
                (object_ids,),
            )
        )


def _owner(key: str) -> str:
    """The object id in the key of a data object, or the key if it has none."""
    return _native.object_id_of(key) or key
