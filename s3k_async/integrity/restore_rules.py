"""The rules of restore: the lost entry of one object, from its log records and the existing data
objects.

A state of the object is known if the operation that led to it was committed, or if a later
operation has it as its previous state. The known state with the highest version is the last one.
One pending operation may follow it; `decide_restore` decides whether it took effect, and `RULES`
describes the outcomes. Nothing here reads or writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from s3k_async.metadata.lease import expired
from s3k_async.model import ROOT, UNCOMMITTED, Entry
from s3k_async.oplog.entries import LogRecord, Operation

__all__ = [
    "PROBLEMS",
    "RULES",
    "RestoreDecision",
    "Rule",
    "RuleName",
    "decide_object",
    "decide_restore",
    "named_keys",
    "rules_table",
]

RuleName = Literal[
    "adopted",
    "bytes_missing",
    "committed",
    "create_done",
    "delete_done",
    "delete_undone",
    "deleted",
    "log_conflict",
    "log_damaged",
    "occupied",
    "parent_is_file",
    "parent_made",
    "path_conflict",
    "rename_done",
    "rename_undone",
    "reservation_kept",
    "reservation_over",
    "rivals",
    "stands",
    "update_done",
    "update_undone",
    "yielded",
]


@dataclass(frozen=True, slots=True)
class Rule:
    """One row: when it applies, and what is done then."""

    name: RuleName
    when: str
    then: str
    is_problem: bool = False


RULES: Final = (
    Rule("committed", "a file whose bytes are there in full, or a directory", "restored as it was"),
    Rule(
        "adopted",
        "a file whose bytes lie outside of the volume's data",
        "restored; its bytes are not looked for",
    ),
    Rule("deleted", "the last thing known is its removal", "stays deleted"),
    Rule(
        "bytes_missing",
        "a file whose bytes are missing or of another length",
        "not restored",
        is_problem=True,
    ),
    Rule(
        "log_conflict",
        "several operations were committed for its last version",
        "not restored",
        is_problem=True,
    ),
    Rule("reservation_kept", "a reservation whose lease runs", "restored"),
    Rule("reservation_over", "a reservation whose lease is over", "not restored"),
    Rule("create_done", "the creation of a directory is pending", "made"),
    Rule("update_done", "an update is pending, and its bytes are there in full", "taken as done"),
    Rule(
        "update_undone",
        "an update is pending, and its bytes are not there",
        "what was before is restored",
    ),
    Rule("rename_done", "a rename is pending", "taken as done"),
    Rule(
        "rename_undone",
        "as above, but something stays in the directory that is moved",
        "all of it stays",
    ),
    Rule("delete_undone", "a removal is pending", "what was before is restored", is_problem=True),
    Rule(
        "delete_done",
        "as above, and a directory above it was removed, or its path was taken",
        "stays deleted",
    ),
    Rule(
        "rivals",
        "several pending operations follow one state",
        "that state is restored",
        is_problem=True,
    ),
    Rule(
        "yielded",
        "what was taken as done is at a path that is another's",
        "what was before is restored",
    ),
    Rule("path_conflict", "two objects claim one path", "neither is restored", is_problem=True),
    Rule(
        "parent_is_file",
        "a file stands where a directory above it should be",
        "not restored",
        is_problem=True,
    ),
    Rule("parent_made", "a directory above it is unknown", "the directory is made, and logged"),
    Rule("stands", "the table has the object", "left as it is"),
    Rule("occupied", "the table has another object at its path", "not restored", is_problem=True),
    Rule(
        "log_damaged",
        "an object of the log cannot be understood",
        "what it says is not known",
        is_problem=True,
    ),
)
"""The table that is rebuilt: of one object from the log and the bytes, then of all of them
together."""
PROBLEMS: Final = frozenset(rule.name for rule in RULES if rule.is_problem)


@dataclass(frozen=True, slots=True)
class RestoreDecision:
    """What becomes of one object."""

    rule: RuleName
    entry: Entry | None
    """The entry to restore; None for none."""
    before: Entry | None = None
    """Of a pending operation that was taken as done, or of a removal that was not: the state
    without it, if any."""
    detail: str = ""
    path: str = ""
    """Where the object was seen last."""

    @property
    def is_certain(self) -> bool:
        """Whether the log says so, as opposed to this decision."""
        return self.rule in {"committed", "adopted", "reservation_kept"}


def named_keys(records: Sequence[LogRecord]) -> set[str]:
    """The physical keys, within the volume's data, that the records name."""
    states = [
        state for record in records for state in (record.operation.before, record.operation.after)
    ]
    keys = {state.physical for state in states if state is not None and not state.is_dir}
    return {key for key in keys if key is not None and key != UNCOMMITTED and "://" not in key}


def decide_restore(
    records: Sequence[LogRecord], sizes: Mapping[str, int], now_ms: int
) -> RestoreDecision:
    """What to restore of the object that the records are about. `sizes`: bytes of the physical
    objects that exist."""
    known = _known(records)
    version = max(known, default=0)
    states = known.get(version, [None])
    path = _last_path(records)
    if len(states) > 1:
        return RestoreDecision(
            "log_conflict",
            None,
            detail=f"version {version} was committed {len(states)} times",
            path=path,
        )
    current = states[0]
    following = [
        operation
        for operation in _pending(records)
        if operation.version > version
        and not (operation.kind == "update" and not _bytes_there(operation.after, sizes))
    ]
    failed = [
        operation
        for operation in _pending(records)
        if operation.version > version and operation not in following
    ]
    if len(following) > 1:
        kinds = ", ".join(operation.kind for operation in following)
        settled = _settled(current, known, sizes, now_ms, path)
        return replace(settled, rule="rivals", detail=f"pending at once: {kinds}")
    if following:
        return _follow(following[0], current, sizes, now_ms, path)
    settled = _settled(current, known, sizes, now_ms, path)
    if failed and settled.rule in {"committed", "adopted"}:
        return replace(
            settled, rule="update_undone", detail=f"version {failed[0].version} has no bytes"
        )
    if failed and not known:
        return RestoreDecision(
            "update_undone", None, detail=f"version {failed[0].version} has no bytes", path=path
        )
    return settled


def decide_object(
    records: Sequence[LogRecord],
    sizes: Mapping[str, int],
    now_ms: int,
    within: str,
    stands: Callable[[str], bool],
) -> tuple[RestoreDecision | None, bool]:
    """As `decide_restore`, at and below the path `within` (else None), of an object of which the
    table may have an entry (`stands`); and whether a directory that it was is certainly gone.
    """
    object_id = records[0].operation.object_id
    # In one order, whatever order they were read in.
    known = sorted(
        records, key=lambda each: (each.operation.version, each.operation.id, each.state)
    )
    decision = decide_restore(known, sizes, now_ms)
    path = decision.entry.path if decision.entry else decision.path
    if within not in {ROOT, path} and not path.startswith(within + "/"):
        return None, False
    if stands(object_id):
        return RestoreDecision("stands", None, path=decision.path), False
    return decision, decision.rule == "deleted" and any(
        _removes_directory(record.operation) for record in records
    )


def _removes_directory(operation: Operation) -> bool:
    return operation.after is None and operation.before is not None and operation.before.is_dir


def _known(records: Sequence[LogRecord]) -> dict[int, list[Entry | None]]:
    """The states that the object certainly had, by version; None: it was gone."""
    known: dict[int, list[Entry | None]] = {}

    def note(version: int, state: Entry | None) -> None:
        states = known.setdefault(version, [])
        if not any(_same(state, other) for other in states):
            states.append(state)

    for record in records:
        operation = record.operation
        if record.state == "committed":
            note(operation.version, operation.after)
    for record in records:
        before = record.operation.before
        if before is not None and before.version not in known:
            note(before.version, before)
    return known


def _same(one: Entry | None, other: Entry | None) -> bool:
    """Whether two states of a version are one; marks change the operation that an entry names, but
    not what it is."""
    if one is None or other is None:
        return one is other
    return replace(one, operation="", pending="") == replace(other, operation="", pending="")


def _pending(records: Sequence[LogRecord]) -> list[Operation]:
    found = {record.operation: None for record in records if record.state == "pending"}
    return sorted(found, key=lambda operation: (operation.version, operation.id))


def _last_path(records: Sequence[LogRecord]) -> str:
    last = max(records, key=lambda record: record.operation.version).operation
    state = last.after or last.before
    return state.path if state is not None else ""


def _bytes_there(entry: Entry | None, sizes: Mapping[str, int]) -> bool:
    if entry is None or entry.physical is None:
        return False
    return "://" in entry.physical or sizes.get(entry.physical) == entry.size


def _settled(
    current: Entry | None,
    known: Mapping[int, object],
    sizes: Mapping[str, int],
    now_ms: int,
    path: str,
) -> RestoreDecision:
    """Of an object with nothing pending."""
    if current is None:
        return RestoreDecision("deleted" if known else "update_undone", None, path=path)
    entry = replace(current, pending="")
    if entry.is_dir:
        return RestoreDecision("committed", entry, path=path)
    if entry.is_reservation:
        if not expired(entry.lease_ms, now_ms):
            return RestoreDecision("reservation_kept", entry, path=path)
        return RestoreDecision("reservation_over", None, path=path)
    if "://" in str(entry.physical):
        return RestoreDecision("adopted", entry, path=path)
    if not _bytes_there(entry, sizes):
        found = sizes.get(str(entry.physical))
        detail = f"{entry.physical}: " + (
            "missing" if found is None else f"{found} bytes, not {entry.size}"
        )
        return RestoreDecision("bytes_missing", None, detail=detail, path=path)
    return RestoreDecision("committed", entry, path=path)


def _follow(
    operation: Operation, current: Entry | None, sizes: Mapping[str, int], now_ms: int, path: str
) -> RestoreDecision:
    """Of an object with one operation pending that can have happened."""
    before = _restorable(current, sizes)
    detail = f"{operation.kind} to version {operation.version} is pending"
    after = operation.after
    if after is None:
        return RestoreDecision("delete_undone", before, before=before, detail=detail, path=path)
    entry = replace(after, pending="")
    if operation.kind == "rename":
        if _restorable(entry, sizes) is None:
            return RestoreDecision(
                "bytes_missing", None, detail=f"{entry.physical}: missing", path=path
            )
        return RestoreDecision("rename_done", entry, before=before, detail=detail, path=path)
    if operation.kind == "create" and not entry.is_dir:
        if not expired(entry.lease_ms, now_ms):
            return RestoreDecision("reservation_kept", entry, detail=detail, path=path)
        return RestoreDecision("reservation_over", None, detail=detail, path=path)
    return RestoreDecision(
        "create_done" if entry.is_dir else "update_done",
        entry,
        before=before,
        detail=detail,
        path=path,
    )


def _restorable(entry: Entry | None, sizes: Mapping[str, int]) -> Entry | None:
    if entry is None or entry.is_reservation or not (entry.is_dir or _bytes_there(entry, sizes)):
        return None
    return replace(entry, pending="")


def rules_table() -> str:
    """`RULES` as a table of the documentation."""
    rows = [
        f"| `{rule.name}`{' **needs a person**' if rule.is_problem else ''} | {rule.when} | "
        f"{rule.then} |"
        for rule in RULES
    ]
    return "\n".join(["| name | when | then |", "|---|---|---|", *rows])
