"""Layout `tree` of an open volume."""

from __future__ import annotations

from s3k_async.errors import UnsupportedError
from s3k_async.layouts.tree.tree_parents import TreeParents
from s3k_async.model import ChangeResult, ChangeTally, Entry
from s3k_async.namespace.layout import OnProgress
from s3k_async.txn.logged_write import TransactionLog
from s3k_async.txn.txn_record import OwnedTransaction

__all__ = ["TreeLayout"]


class TreeLayout(TreeParents):
    """An implementation of `namespace.layout.Layout`."""

    async def rename_directory(
        self, source: Entry, target: str, *, atomic: bool, progress: OnProgress = None
    ) -> ChangeResult:
        raise NotImplementedError

    async def delete_directory(
        self, entry: Entry, *, atomic: bool, progress: OnProgress = None
    ) -> ChangeResult:
        raise NotImplementedError

    def check_subtree(self, operation: str, path: str) -> None:
        """Raise UnsupportedError: transactions of a caller change no directories yet."""
        raise UnsupportedError(
            f"a transaction cannot {operation} a directory of a volume of layout tree; do it "
            "outside of the transaction",
            path=path,
        )

    async def prepare_subtree(
        self,
        txn: OwnedTransaction,  # noqa: ARG002
        log: TransactionLog,  # noqa: ARG002
        source: Entry,
        target: str,
        tally: ChangeTally,  # noqa: ARG002
    ) -> None:
        """Refused, as by `check_subtree`, which comes first."""
        self.check_subtree("rename" if target else "delete", source.path)

    async def end_trees(
        self,
        txn: OwnedTransaction,
        source: str,
        target: str,
        *,
        published: bool,
    ) -> None:
        """Nothing: no transaction has intents below a directory."""
