"""Changes of single entries, as rows of transactions; `column_plan` has those of whole listings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from s3k_async.backends.ports.items import Action, Check
from s3k_async.oplog.entries import Operation
from s3k_async.txn.executor import Lane, by_transaction

__all__ = ["RowPlan"]


class Row(Protocol):
    """A change of one entry."""

    @property
    def path(self) -> str: ...


T = TypeVar("T", bound=Row)


class RowPlan(Generic[T]):
    """The changes of some rows: an `executor.Plan`.

    `actions` gives the `width` actions of a row, `operations` its log records, and `checks` the
    conditions on other items. Rows of one transaction share equal checks, which come after all
    actions.
    """

    def __init__(
        self,
        rows: Sequence[T],
        actions: Callable[[T], Sequence[Action]],
        *,
        operations: Callable[[T], Sequence[Operation]] = lambda _: (),
        width: int = 1,
        checks: Callable[[T], Sequence[Check]] = lambda _: (),
    ) -> None:
        self.width = width
        self.operations = [each for row in rows for each in operations(row)]
        self._rows = rows
        self._actions = actions
        self._operations = operations
        self._checks = checks

    def __len__(self) -> int:
        return len(self._rows)

    def lanes(self) -> list[Lane]:
        """All rows, in full transactions that can be sent concurrently."""
        return [(rows,) for rows in by_transaction(range(len(self)), self.width)]

    def identities(self, rows: Iterable[int]) -> list[str]:
        return [each.id for row in rows for each in self._operations(self._rows[row])]

    def actions(self, rows: Sequence[int]) -> Sequence[Action]:
        actions = [action for row in rows for action in self._actions(self._rows[row])]
        return [*actions, *self._shared(rows)]

    def roles(self, rows: Sequence[int], position: int) -> list[tuple[int, int]]:
        place = position - self.width * len(rows)
        if place < 0:
            return [(rows[position // self.width], position % self.width)]
        check = self._shared(rows)[place]
        return [(row, self.width) for row in rows if check in self._checks(self._rows[row])]

    def path(self, row: int) -> str:
        return self._rows[row].path

    def _shared(self, rows: Sequence[int]) -> list[Check]:
        found = {check.key: check for row in rows for check in self._checks(self._rows[row])}
        return list(found.values())
