"""The local runner of restore: rebuilds lost entries from the log and the existing data objects.

The log is sorted by object id in a temporary file, the rules decide each object
(`restore_rules`), and the restored entries are joined to a tree (`restore_plan`). Memory is
bounded. `spark.restore_job` does the same over Spark.

The runner holds the volume lock, so the table does not change meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, TypeAlias

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
from s3k_async.oplog.external_sort import ExternalSort
from s3k_async.oplog.log_reader import LogReader
from s3k_async.table.keys import KeyScheme

__all__ = ["ExistingEntries", "MakeTree", "RestorePlan", "plan_restore"]

MakeTree: TypeAlias = Callable[[ExternalSort, str, str], TreePlan]
"""Makes the plan of the restored tree, in a temporary file, for a volume id, and the path at and
below which entries are restored."""

_SCHEMA: Final = "CREATE TABLE blobs (key TEXT PRIMARY KEY, size INTEGER NOT NULL) WITHOUT ROWID"


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
    plan = RestorePlan(records, make_tree(records.sorter, volume_id, path))
    tell = progress or (lambda _: None)
    try:
        await plan.read_log(LogReader(log, has_key=keys.has), keys, tell)
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

    def __init__(self, records: SortedLog, tree: TreePlan) -> None:
        self.tree = tree
        self._records = records
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

    async def read_log(
        self, log: LogReader, keys: KeyScheme, tell: Callable[[Progress], object]
    ) -> None:
        """Read the log into the temporary file."""
        await self._records.read(log, keys, tell, operation="restore")
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
            "INSERT OR REPLACE INTO blobs VALUES (?, ?)", [(blob.key, blob.size) for blob in blobs]
        )

    def add_existing(self, page: ExistingEntries) -> None:
        """Add existing entries of the table."""
        self.tree.add_existing((entry.entry_key, entry.id, entry.is_dir) for entry in page.entries)
        self.tree.add_removed(page.removed)

    def decide(self, now_ms: int) -> None:
        """Apply the rules to each object."""
        self.tree.index_existing()
        claims: list[tuple[str, RestoreDecision]] = []
        removed: list[tuple[str, str]] = []
        for records in self._records.objects():
            object_id = records[0].operation.object_id
            sizes = self._sizes(named_keys(records))
            decision, was_removed = decide_object(
                records,
                sizes,
                now_ms,
                self.tree.within,
                self.tree.is_present,
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
            if len(claims) + len(removed) >= ROWS_AT_ONCE:
                self._keep(claims, removed)
        self._keep(claims, removed)

    def _keep(
        self, claims: list[tuple[str, RestoreDecision]], removed: list[tuple[str, str]]
    ) -> None:
        self.tree.claim(claims)
        self.tree.remove(removed)
        claims.clear()
        removed.clear()

    def _sizes(self, keys: set[str]) -> dict[str, int]:
        rows = [
            self._database.execute("SELECT key, size FROM blobs WHERE key = ?", (key,)).fetchone()
            for key in keys
        ]
        return {row[0]: row[1] for row in rows if row is not None}
