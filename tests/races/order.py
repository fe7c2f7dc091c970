"""Whether what racing clients were told, and what they left behind, equals some sequential order of
what they did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tests.races.operations import (
    Create,
    Operation,
    Outcome,
    Refusal,
    Reserved,
    Tree,
    Write,
    with_parents,
)

__all__ = ["Done", "explain"]


@dataclass(frozen=True)
class Done:
    """An operation, what its caller was told, and when it began and ended (seconds, one clock for
    all)."""

    operation: Operation
    outcome: Outcome
    begin: float
    end: float

    def __str__(self) -> str:
        told = self.outcome.__name__ if isinstance(self.outcome, type) else self.outcome
        return f"{self.begin:.4f} to {self.end:.4f}: {self.operation} -> {told!r}"


_Step: TypeAlias = tuple[str, "_Left", Tree]
_Left: TypeAlias = tuple[frozenset[int], frozenset[int]]
"""The operations that are still to come, and those whose file is reserved and not yet published."""


def explain(
    start: Tree, done: Sequence[Done], end: Tree, *, real_time: bool = False
) -> list[str] | None:
    """An order in which the operations, one after the other, give these answers and lead to `end`;
    None without one.

    With `real_time` an operation that had ended before another began comes before it. A write makes
    the parents that are missing before it makes its file, and again if they are removed meanwhile:
    such steps are part of an order.
    """
    seen: set[tuple[_Left, frozenset[tuple[str, bool, object]]]] = set()
    first: _Left = (frozenset(range(len(done))), frozenset())
    stack: list[tuple[_Left, Tree, list[str]]] = [(first, start, [])]
    while stack:
        left, tree, order = stack.pop()
        if not any(left) and tree == end:
            return order
        state = (
            left,
            frozenset((path, isinstance(data, Reserved), data) for path, data in tree.items()),
        )
        if state in seen:
            continue
        seen.add(state)
        stack += [
            (after, grown, [*order, step])
            for step, after, grown in _steps(done, left, tree, real_time)
        ]
    return None


def _steps(done: Sequence[Done], left: _Left, tree: Tree, real_time: bool) -> Iterator[_Step]:
    waiting, reserved = left
    for number in sorted(waiting | reserved):
        one = done[number]
        if real_time and any(done[other].end < one.begin for other in waiting | reserved):
            continue
        if number in reserved:
            yield from _publications(one, (waiting, reserved - {number}), tree)
            continue
        if isinstance(one.operation, Write):
            grown = with_parents(tree, one.operation.path)
            if grown is not None and grown != tree:
                yield f"parents of {one.operation.path}", left, grown
        result = one.operation.apply(tree)
        after = (waiting - {number}, reserved)
        if isinstance(result, Refusal):
            if one.outcome in result:
                yield str(one), after, tree
        elif isinstance(one.operation, Create):
            yield f"reservation of {one.operation.path}", (after[0], reserved | {number}), result[1]
        elif result[0] == one.outcome:
            yield str(one), after, result[1]


def _publications(one: Done, after: _Left, tree: Tree) -> Iterator[_Step]:
    assert isinstance(one.operation, Create)
    result = one.operation.publish(tree)
    if isinstance(result, Refusal):
        if one.outcome in result:
            yield str(one), after, tree
    elif one.outcome is None:
        yield str(one), after, result[1]
