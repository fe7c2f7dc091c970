"""What clients began, what they were told became of it, and whether the tree agrees.

Every content says by its first bytes which write it is of, so a file is known wherever it was
moved, and none may be there twice. An operation is noted before it begins and again when it was
answered; what has no answer was under way.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

__all__ = ["Kind", "Ledger", "Manifest", "Operation", "check", "content"]

Kind: TypeAlias = Literal["write", "move", "move tree", "delete tree"]
Outcome: TypeAlias = Literal["under way", "done", "failed", "unknown"]
Tree: TypeAlias = Mapping[str, bytes | None]


def content(name: str, size: int) -> bytes:
    """The bytes of the write of that name."""
    stem = f"{name}:{size}|".encode()
    return (stem * (size // len(stem) + 1))[: max(size, len(stem))]


def named(data: bytes) -> str:
    """The name of the write that these bytes are of, all of them. Raises AssertionError for
    anything else."""
    stem, bar, _ = data.partition(b"|")
    assert bar, f"foreign bytes: {data[:40]!r}"
    name, _, size = stem.decode().rpartition(":")
    assert data == content(name, int(size)), f"{name} is not whole: {len(data)} bytes of {size}"
    return name


@dataclass
class Operation:
    """One call, and its answer."""

    kind: Kind
    source: str = ""
    """What is moved or deleted."""
    target: str = ""
    """Where it is moved."""
    files: dict[str, str] = field(default_factory=dict)
    """Of a write: paths to the names of the contents."""
    outcome: Outcome = "under way"
    error: str = ""


class Ledger:
    """The operations of one client, one after the other."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []

    def begin(self, operation: Operation) -> None:
        self.operations.append(operation)

    def end(self, outcome: Outcome, error: str = "") -> None:
        self.operations[-1].outcome = outcome
        self.operations[-1].error = error


class Manifest(Ledger):
    """A ledger that survives its process: each note is on the disk before what follows it."""

    def __init__(self, place: Path) -> None:
        super().__init__()
        self._file = place.open("a", encoding="utf-8")

    def begin(self, operation: Operation) -> None:
        self._note(asdict(operation))

    def end(self, outcome: Outcome, error: str = "") -> None:
        self._note({"outcome": outcome, "error": error})

    def _note(self, note: object) -> None:
        self._file.write(json.dumps(note) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    @staticmethod
    def read(place: Path) -> Ledger:
        """The ledger of a process that is dead; a note that it was writing then does not count."""
        ledger = Ledger()
        for line in place.read_text(encoding="utf-8").split("\n")[:-1]:
            note = json.loads(line)
            if "kind" in note:
                ledger.begin(Operation(**note))
            else:
                ledger.end(**note)
        return ledger


def check(tree: Tree, ledgers: Iterable[Ledger]) -> None:
    """Whether the tree is one that these operations lead to, whatever became of those that had no
    answer."""
    operations = [operation for ledger in ledgers for operation in ledger.operations]
    found: dict[str, str] = {}
    for path, data in tree.items():
        if data is not None:
            name = named(data)
            assert name not in found, f"{name} is at {path} and at {found[name]}"
            found[name] = path
    begun = {name for operation in operations for name in operation.files.values()}
    assert found.keys() <= begun
    for ledger in (Ledger(), *ledgers):
        _check_writes(ledger, operations, found)
    for operation in operations:
        _check_change(operation, operations, tree)


def _check_writes(ledger: Ledger, operations: list[Operation], found: Mapping[str, str]) -> None:
    writes = [operation for operation in ledger.operations if operation.kind == "write"]
    for index, write in enumerate(writes):
        for path, name in write.files.items():
            places = set(_places(path, operations))
            if name in found:
                assert write.outcome != "failed", (
                    f"{name} was refused ({write.error}) and is at {found[name]}"
                )
                assert found[name] in places, f"{name} is at {found[name]}"
                continue
            replaced = any(path in later.files for later in writes[index + 1 :])
            deleted = any(
                place.startswith(operation.source + "/")
                for operation in operations
                if operation.kind == "delete tree" and operation.outcome != "failed"
                for place in places
            )
            assert write.outcome != "done" or replaced or deleted, (
                f"{name} was acknowledged at {path} and is lost"
            )


def _places(path: str, operations: list[Operation]) -> list[str]:
    """Where a file that was written at the path may be by now."""
    places = [path]
    for operation in operations:
        if operation.kind == "move" and operation.source == path:
            places.append(operation.target)
        if operation.kind == "move tree" and path.startswith(operation.source + "/"):
            places.append(operation.target + path[len(operation.source) :])
    return places


def _check_change(operation: Operation, operations: list[Operation], tree: Tree) -> None:
    done = operation.outcome == "done"
    if operation.kind == "move" and done:
        assert operation.source not in tree, f"{operation.source} was moved and is there"
        assert operation.target in tree, f"{operation.target} was moved here and is lost"
    if operation.kind == "delete tree" and done:
        left = [
            path
            for path in tree
            if path == operation.source or path.startswith(operation.source + "/")
        ]
        assert left == [], f"{operation.source} was deleted"
    if operation.kind == "move tree" and done:
        deleted = any(
            other.kind == "delete tree" and other.source == operation.target for other in operations
        )
        assert deleted or operation.target in tree, f"{operation.target} was moved here and is lost"
