"""Renames by a list of (source, target): batched reads, many files in a transaction, a result for
each pair.

Each pair has the guarantees of a single rename: if source, target or the target's parent has
changed since the read, the pair is not moved with the others but by itself, by
`MetadataStore.rename_file`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from s3k_async import _native
from s3k_async._core.concurrency import run_all
from s3k_async.backends.ports.items import MAX_TRANSACTION, Action
from s3k_async.errors import (
    BusyError,
    LogFormatError,
    PathExistsError,
    PathNotFoundError,
    S3kError,
    UncommittedFileError,
)
from s3k_async.model import ROOT, Entry
from s3k_async.namespace.bulk_changes import BulkOutcome
from s3k_async.namespace.conflict_backoff import ObstructedError
from s3k_async.namespace.directories import require_directories
from s3k_async.namespace.store import MetadataStore
from s3k_async.oplog.entries import Operation
from s3k_async.table.keys import Directory
from s3k_async.table.stored_reader import ROOT_ENTRY
from s3k_async.txn.executor import ExecutionResult, Lane, Refusal, execute
from s3k_async.txn.row_plan import RowPlan

__all__ = ["PairRenames", "RenamePair"]

ALONE = 8
"""Pairs moved by themselves at the same time."""
_SOURCE, _TARGET = range(2)


@dataclass(frozen=True, slots=True)
class RenamePair:
    """A source and a target path; both normalised, neither in any other pair of the list."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class _Move:
    """A pair that passed the checks."""

    source: Entry
    moved: Entry
    parent: Directory
    operations: Sequence[Operation]
    actions: Sequence[Action]

    @property
    def path(self) -> str:
        return self.source.path


class PairRenames:
    """The renames of one call. `missing_ok`: a pair with a missing source is done if its target
    exists. `need` raises for a source that is not the expected object; `by_itself` moves a pair
    that cannot be moved with others.
    """

    def __init__(
        self,
        store: MetadataStore,
        *,
        overwrite: bool,
        missing_ok: bool,
        need: Callable[[str, Entry | None], object] | None = None,
        by_itself: Callable[[Entry, str], Awaitable[Entry]] | None = None,
    ) -> None:
        self._store = store
        self._overwrite = overwrite
        self._missing_ok = missing_ok
        self._need = need
        self._rename = by_itself or partial(store.rename_file, overwrite=overwrite)
        self._alone: list[tuple[Entry, str]] = []
        self.done = BulkOutcome()
        self.directories: list[RenamePair] = []
        """Pairs whose source is a directory; they are not renamed here."""

    async def rename(self, pairs: Sequence[RenamePair]) -> None:
        """Rename the files of some pairs. Failures are recorded with the source's path."""
        since = self._store.runtime.monotonic()
        try:
            moves = await self._fit(pairs)
        except S3kError as error:
            # The entries could not be read, and nothing was changed.
            for pair in pairs:
                self._fail(pair.source, error)
            return
        if moves:
            await self._together(moves, since)
        alone, self._alone = self._alone, []
        await run_all(self._by_itself, alone, limit=ALONE)

    async def _fit(self, pairs: Sequence[RenamePair]) -> list[_Move]:
        """The pairs that, according to the reads, can be moved together with others."""
        wanted = list(dict.fromkeys(path for pair in pairs for path in _paths(pair)))
        found: dict[str, Entry | None] = {}
        broken: dict[str, S3kError] = {}
        for path, entry in zip(wanted, await self._store.get_each(wanted), strict=True):
            if isinstance(entry, S3kError):
                broken[path] = entry
            else:
                found[path] = entry
        moves = []
        for pair in pairs:
            if error := next((broken[path] for path in _paths(pair) if path in broken), None):
                self._fail(pair.source, error)
                continue
            source = found[pair.source]
            if source is not None and source.is_dir:
                self.directories.append(pair)
                continue
            try:
                move = self._move(pair, source, found)
                if move is not None:
                    await self._store.access.permit_move(
                        move.source, pair.target, found[pair.target]
                    )
            except S3kError as error:
                self._fail(pair.source, error)
            else:
                moves += [move] if move is not None else []
        return moves

    def _move(
        self, pair: RenamePair, source: Entry | None, found: dict[str, Entry | None]
    ) -> _Move | None:
        """The move of a pair; None if there is nothing to do, or it cannot be moved together with
        others."""
        if self._need is not None:
            self._need(pair.source, source)
        target = found[pair.target]
        if source is None:
            if self._missing_ok and target is not None:
                return None
            raise PathNotFoundError("no such file", path=pair.source)
        if pair.source == pair.target:
            return None
        if source.is_reservation:
            raise UncommittedFileError(
                "the file is still being written and cannot be renamed", path=pair.source
            )
        require_directories((path, found[path]) for path in _native.ancestors(pair.target))
        if pair.target == ROOT or (target is not None and (target.is_dir or not self._overwrite)):
            raise PathExistsError("the target exists", path=pair.target)
        parent = {ROOT: ROOT_ENTRY, **found}[_native.split(pair.target)[0]]
        assert parent is not None
        if any(entry is not None and entry.pending for entry in (source, target, parent)):
            self._alone.append((source, pair.target))
            return None
        directory = self._store.keys.directory(parent)
        try:
            moved, operations, actions = self._store.plan_move(
                source, pair.target, directory, target
            )
        except ObstructedError:
            self._alone.append((source, pair.target))
            return None
        return _Move(source, moved, directory, operations, actions)

    async def _together(self, moves: Sequence[_Move], since: float) -> None:
        store = self._store
        plan = RowPlan(
            moves,
            lambda move: move.actions,
            operations=lambda move: move.operations,
            width=2,
            checks=lambda move: store.require_parent(move.parent),
        )
        try:
            report = await execute(
                store.items,
                store.changes.run_parts,
                plan,
                _lanes(moves),
                store.runtime.uuid,
                withheld=store.withheld(lambda row: [moves[row].source, moves[row].moved], since),
            )
        except LogFormatError:
            # It cannot hold one of them, and nothing was changed.
            self._alone += [(move.source, move.moved.path) for move in moves]
        except S3kError as error:
            # The log could not be written, and nothing was changed.
            for move in moves:
                self._fail(move.source.path, error)
        else:
            self._sort_out(moves, report)

    def _sort_out(self, moves: Sequence[_Move], report: ExecutionResult) -> None:
        succeeded = set(report.succeeded)
        for row, move in enumerate(moves):
            if row in succeeded:
                self._count(move.source)
            elif row in report.refused:
                self._refused(move, report.refused[row])
            elif isinstance(error := report.failed[row], BusyError):
                self._alone.append((move.source, move.moved.path))
            else:
                self._fail(move.source.path, error)

    def _refused(self, move: _Move, refusal: Refusal) -> None:
        there = refusal.get(_TARGET)
        if (
            _SOURCE in refusal
            and refusal[_SOURCE] is None
            and there is not None
            and there.get("id") == move.source.id
        ):
            self._count(move.source)  # another client has made the same change
        else:
            self._alone.append((move.source, move.moved.path))

    async def _by_itself(self, pair: tuple[Entry, str]) -> None:
        source, target = pair
        try:
            if source.directory:
                # in layout `tree` the condition on the source does not tell where it is
                source = await self._again(source.path)
            moved = await self._rename(source, target)
        except S3kError as error:
            self._fail(source.path, error)
        else:
            self._count(moved)

    async def _again(self, path: str) -> Entry:
        source = await self._store.get(path)
        if self._need is not None:
            self._need(path, source)
        if source is None:
            raise PathNotFoundError("no such file", path=path)
        return source

    def _count(self, entry: Entry) -> None:
        self.done.files += 1
        self.done.bytes += entry.size

    def _fail(self, path: str, error: S3kError) -> None:
        self.done.failures.append((path, error))


def _paths(pair: RenamePair) -> tuple[str, ...]:
    """The paths to read for a pair."""
    return (pair.source, pair.target, *_native.ancestors(pair.target))


def _lanes(moves: Sequence[_Move]) -> list[Lane]:
    """The rows divided into transactions. Transactions with a common item are serialised by the
    table, so those that check the same parent are in one lane.
    """
    by_parent: dict[str, list[int]] = {}
    for row, move in enumerate(moves):
        by_parent.setdefault(move.parent.key, []).append(row)
    most = (MAX_TRANSACTION - 1) // 2
    lanes: list[Lane] = []
    shared: list[int] = []
    room = MAX_TRANSACTION
    for rows in by_parent.values():
        cost = 2 * len(rows) + 1
        if len(rows) > most:
            lanes.append([rows[start : start + most] for start in range(0, len(rows), most)])
            continue
        if cost > room:
            lanes.append([shared])
            shared, room = [], MAX_TRANSACTION
        shared = shared + rows
        room -= cost
    if shared:
        lanes.append([shared])
    return lanes
