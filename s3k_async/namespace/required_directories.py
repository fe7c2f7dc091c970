"""Directories that a transaction of the table requires to be in place, without an intent.

In layout `tree`, a change of a directory requires every directory above it. While none of these is
moved, the paths of the change lead to the entries that the client has read
(docs/design/011-directories-by-id.md, section 6).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import chain

from s3k_async.backends.ports.items import OPERATION, Action, Check, Value
from s3k_async.errors import ConditionFailedError
from s3k_async.model import ROOT, Entry
from s3k_async.namespace.conflict_backoff import ObstructedError
from s3k_async.namespace.store import MetadataStore
from s3k_async.oplog.entries import Operation
from s3k_async.table.keys import ROOT_KEY, Directory

__all__ = ["RequiredDirectories"]


class RequiredDirectories:
    """The required directories of one transaction, with one action each: parents of changed entries
    are touched, so that listings detect the change; the others are checked."""

    def __init__(
        self,
        store: MetadataStore,
        path: str,
        parents: Iterable[Directory],
        others: Iterable[Directory] = (),
    ) -> None:
        """`path` is named in errors. Raises ObstructedError for two directories with one entry key:
        one of them was read before a change, the other after it."""
        self._store = store
        self._path = path
        parents = list(parents)
        self.touched = self._distinct(parents)
        self.checked = self._distinct(chain(parents, others))[len(self.touched) :]
        stamp: dict[str, Value] = {OPERATION: store.runtime.uuid()}
        self.actions: list[Action] = [store.touching(each, stamp) for each in self.touched]
        self.actions += self.checks()

    def checks(self) -> list[Check]:
        """The conditions on the directories that are not touched."""
        return [check for each in self.checked for check in self._store.require_parent(each)]

    async def transact(
        self,
        operations: Sequence[Operation],
        actions: Sequence[Action],
        placed: Sequence[Entry] = (),
        since: float = 0.0,
    ) -> None:
        """Call `MetadataStore.transact` with actions that include those of the directories. Raises
        ObstructedError if two actions concern one item: a directory was moved between the reads of
        two paths."""
        await self.send(actions, lambda: self._store.transact(operations, actions, placed, since))

    async def send(
        self, actions: Sequence[Action], transact: Callable[[], Awaitable[object]], first: int = 0
    ) -> None:
        """As `transact`, with the call that sends the actions; `first`: the number of actions that
        it sends before them."""
        store = self._store
        if len({action.key for action in actions}) < len(actions):
            raise ObstructedError(self._path)
        root = next((each for each in self.touched if each.path == ROOT), None)
        if root is not None and not store.root_has_record:
            # After a lost response, a failure because the record is missing could not be told from
            # other failures.
            await store.touch(root)
        try:
            await transact()
        except ConditionFailedError as error:
            if any(
                position >= first and actions[position - first].key == ROOT_KEY
                for position in error.current
            ):
                store.root_has_record = False  # the record may be missing: it is created again
            raise

    def _distinct(self, directories: Iterable[Directory]) -> list[Directory]:
        by_key: dict[str, Directory] = {}
        for each in directories:
            if by_key.setdefault(each.entry_key, each).key != each.key:
                raise ObstructedError(self._path)
        return list(by_key.values())
