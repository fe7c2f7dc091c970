"""Parents of new entries: created before a file is written, and read again after it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from s3k_async import _native
from s3k_async.backends.ports.items import ABSENT, Action, Check, Condition, Delete, Put
from s3k_async.errors import ConditionFailedError, S3kError
from s3k_async.layouts.path.parent_cache import AncestorReads, ParentCache
from s3k_async.layouts.path.path_resolver import PathResolver
from s3k_async.model import ROOT, Entry
from s3k_async.namespace.directories import require_directories
from s3k_async.namespace.layout import Chain, ConfirmedChain, PreparedPaths
from s3k_async.namespace.single_flight import SingleFlight
from s3k_async.namespace.store import MetadataStore
from s3k_async.table.codec import NEXT, to_item, unchanged
from s3k_async.table.keys import Directory
from s3k_async.txn.write_intent import transaction_of

__all__ = ["ParentDirectories"]


class ParentDirectories(PathResolver):
    """The methods of `namespace.layout.Layout` for parents of new entries."""

    def __init__(self, store: MetadataStore) -> None:
        super().__init__(store)
        self.known = ParentCache(store.runtime.monotonic)
        self._looks = AncestorReads(self.known)
        self._shared: SingleFlight[str] = SingleFlight(
            lambda path: store.directory_exists(Directory.at(path))
        )

    def is_directory(self, directory: Directory) -> Condition:
        """The condition that a directory is at the path, whatever its id: children are keyed by the
        path."""
        return Condition(equals={"isdir": True}, missing=(NEXT,))

    def remember(self, directory: Entry) -> None:
        """Add a directory to the parent cache."""
        self.known.add(directory.path)
        self._store.access.note(directory.path, directory)

    def discard(self, directory: Directory) -> None:
        """Remove a directory from the parent cache."""
        self.known.discard(directory.path)
        self._store.access.forget(directory.path)

    async def prepare(self, path: str) -> tuple[Entry | None, None]:
        """The entry at a path that is to be written.

        Below a cached directory only the path is read; for a new file the parent is read after the
        write. Of several tasks that need the same unknown directory, one reads it for all.
        """
        parent = _native.split(path)[0]
        if parent == ROOT:
            return await self.get(path), None
        looked, entry = await self._looks.first(parent, lambda: self._look_whole(path))
        if looked:
            return entry, None
        return None if await self.get(path) is None else await self._look_whole(path), None

    async def _look_whole(self, path: str) -> Entry | None:
        """The entry at the path, read while its parents existed without intents; missing ones are
        created, and transactions on them are awaited. A file that is read while its directory is
        being removed could be a creation that is about to be withdrawn.
        """
        deadline = self._store.deadline()
        while True:
            chain = await self.chain(path)
            if not await self._need(chain) or chain[-1][1] is None:
                return chain[-1][1]
            self._store.still_time(deadline, path)

    async def _need(self, chain: Chain) -> bool:
        """Create missing parents and wait for those with intents. False if all existed without
        intents when they were read."""
        require_directories(chain[:-1], missing_ok=True)
        if len(chain) <= 2:  # in the root
            return False
        parent, above = chain[-2]
        if (
            above is not None
            and not above.pending
            and all(entry is not None for _, entry in chain[:-1])
        ):
            self.known.add(parent)
            return False
        await self._store.need_directory(parent)
        return True

    async def is_leaving(self, directory: Entry) -> bool:
        """Always False: creators do not move new files in this layout."""
        return False

    async def misplaced(self, entries: Sequence[Entry]) -> Collection[str]:
        """No paths: the place of an entry does not depend on its ancestors."""
        return ()

    async def confirm_publication(self, entry: Entry, chain: ConfirmedChain) -> None:
        """Do nothing: the write that publishes requires the reservation at its path."""

    async def has_parent(
        self,
        entry: Entry,
        chain: ConfirmedChain | None,
    ) -> bool:
        """Whether the parent is a directory without an intent of a live transaction. Concurrent
        calls for the same parent share a read that begins after all of them."""
        parent = _native.split(entry.path)[0]
        return parent == ROOT or await self._shared.ask(parent)

    async def give_parents(
        self,
        entry: Entry,
        chain: ConfirmedChain | None,
    ) -> Entry:
        """Create the parents of a created entry again, if it still has none."""
        await self._give_parents(entry)
        return entry

    async def _give_parents(self, entry: Entry) -> None:
        store, deadline = self._store, self._store.deadline()
        while True:
            chain = await self.chain(entry.path)
            parent, ours = chain[-2][1], chain[-1][1]
            if ours is None or (ours.id, ours.version) != (entry.id, entry.version):
                return
            if (
                ours.pending
                and parent is not None
                and parent.is_dir
                and transaction_of(parent.pending) == transaction_of(ours.pending)
            ):
                return  # the transaction moves or removes both, or neither
            has_parent = parent is not None and not parent.pending
            if has_parent and all(above is not None and above.is_dir for _, above in chain[:-1]):
                return
            store.still_time(deadline, entry.path)
            try:
                if ours.pending:
                    # An aborted transaction leaves it without its parents.
                    await store.resolve(ours)
                elif parent is not None and parent.pending:
                    await store.resolve(parent)
                else:
                    require_directories(chain[:-1], missing_ok=True)
                    there = Check(store.keys.of(entry), unchanged(entry))
                    await store.make_missing(chain[:-1], there)
            except ConditionFailedError as error:
                await store.resolve_refusal(error, entry.path)

    async def keep_moved(
        self,
        moved: Entry,
        source: Entry,
        chain: ConfirmedChain | None,
        *,
        replaced: bool,
    ) -> Entry | None:
        """Undo the rename. If a file was replaced, which cannot be restored, or the old path is
        taken, the parent directories are created again."""
        store = self._store
        if replaced:
            await self._need_parents(moved)
            return moved
        back = moved.moved(source.path, operation=store.runtime.uuid())
        actions: list[Action] = [
            Delete(store.keys.of(moved), unchanged(moved)),
            Put(to_item(back, store.keys), ABSENT),
        ]
        try:
            await store.transact([store.changes.operation("rename", moved, back)], actions)
        except ConditionFailedError as error:
            if 0 in error.current:
                # The client that removed the parent saw the file and removed it too: the rename
                # came first.
                return moved
            # The file must not be lost.
            await self._need_parents(moved)
            return moved
        if not await store.check_parent(back):
            await self._need_parents(back)
        return None

    async def _need_parents(self, entry: Entry) -> None:
        """Create missing parents of an entry, and wait for those with intents."""
        await self._need(await self.chain(entry.path))

    async def prepare_many(self, paths: Sequence[str]) -> PreparedPaths:
        """The entries at different paths, read a hundred in a request. Missing parents are created
        once."""
        parents = {_native.split(path)[0] for path in paths} - {ROOT}
        unknown = [parent for parent in parents if parent not in self.known]
        above = {each for parent in unknown for each in [*_native.ancestors(parent), parent]}
        wanted = [*paths, *(above - set(paths))]
        found = dict(zip(wanted, await self.get_many(wanted), strict=True))
        refused = await self._make_parents(unknown, found)
        errors: dict[str, S3kError] = {}
        for path in paths:
            if (error := refused.get(_native.split(path)[0])) is not None:
                errors[path] = error
        entries = {path: found[path] for path in paths if path not in errors}
        existing = [path for path, entry in entries.items() if entry is not None]
        plain = await self._without_intents({_native.split(path)[0] for path in existing})
        again = {path for path in existing if _native.split(path)[0] not in plain}
        return PreparedPaths(entries, errors, again)

    async def _make_parents(
        self, parents: Sequence[str], found: dict[str, Entry | None]
    ) -> dict[str, S3kError]:
        """Create missing parents, topmost first, and wait for those with intents; returns the
        errors by parent."""
        refused: dict[str, S3kError] = {}
        missing: dict[int, list[str]] = {}
        for parent in parents:
            chain = [found[path] for path in [*_native.ancestors(parent), parent]]
            if all(entry is not None and entry.is_dir for entry in chain) and not _is_held(
                chain[-1]
            ):
                self.known.add(parent)
            else:
                missing.setdefault(len(chain), []).append(parent)

        for depth in sorted(missing):
            refused |= await self._store.need_directories(missing[depth])
        return refused

    async def _without_intents(self, parents: set[str]) -> set[str]:
        """The parents that exist without an intent, read after the files below them: see
        `_look_whole`."""
        wanted = sorted(parents)
        found = await self.get_each(wanted) if wanted else []
        return {
            path
            for path, entry in zip(wanted, found, strict=True)
            if isinstance(entry, Entry) and entry.is_dir and not entry.pending
        }


def _is_held(entry: Entry | None) -> bool:
    return entry is not None and bool(entry.pending)
