"""Whether what racing clients were told, and what they left behind, equals some sequential order of what they did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tests.races.operations import Operation, Outcome, Refusal, Tree, Write, with_parents

__all__ = ["Done", "explain"]


@dataclass(frozen=True)
class Done:
    """An operation, what its caller was told, and when it began and ended (seconds, one clock for all)."""

    operation: Operation
    outcome: Outcome
    begin: float
    end: float

    def __str__(self) -> str:
        told = self.outcome.__name__ if isinstance(self.outcome, type) else self.outcome
        return f"{self.begin:.4f} to {self.end:.4f}: {self.operation} -> {told!r}"


_Step: TypeAlias = tuple[str, frozenset[int], Tree]


def explain(start: Tree, done: Sequence[Done], end: Tree, *, real_time: bool = False) -> list[str] | None:
    """An order in which the operations, one after the other, give these answers and lead to `end`; None without one.

    With `real_time` an operation that had ended before another began comes before it. A write makes the parents that
    are missing before it makes its file, and again if they are removed meanwhile: such steps are part of an order.
    """
    seen: set[tuple[frozenset[int], frozenset[tuple[str, object]]]] = set()
    stack: list[tuple[frozenset[int], Tree, list[str]]] = [(frozenset(range(len(done))), start, [])]
    while stack:
        left, tree, order = stack.pop()
        if not left and tree == end:
            return order
        state = (left, frozenset(tree.items()))
        if state in seen:
            continue
        seen.add(state)
        stack += [(after, grown, [*order, step]) for step, after, grown in _steps(done, left, tree, real_time)]
    return None


def _steps(done: Sequence[Done], left: frozenset[int], tree: Tree, real_time: bool) -> Iterator[_Step]:
    for number in sorted(left):
        one = done[number]
        if real_time and any(done[other].end < one.begin for other in left):
            continue
        if isinstance(one.operation, Write):
            grown = with_parents(tree, one.operation.path)
            if grown is not None and grown != tree:
                yield f"parents of {one.operation.path}", left, grown
        result = one.operation.apply(tree)
        if isinstance(result, Refusal):
            if one.outcome in result:
                yield str(one), left - {number}, tree
        elif result[0] == one.outcome:
            yield str(one), left - {number}, result[1]
