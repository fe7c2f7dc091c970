"""The rules of restore: the lost entry of one object, from its log records and the existing data
objects.

A state of the object is known if the operation that led to it was committed, or if a later
operation has it as its previous state. The known state with the highest version is the last one.
One pending operation may follow it. The table OBJECTS decides whether it took effect, and what is
restored. The rules do no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Literal, TypeAlias

from s3k_async.integrity.rule_table import Rule, RuleTable
from s3k_async.model import ROOT, TRASH_ID, UNCOMMITTED, Deletion, Entry
from s3k_async.oplog.entries import LogRecord, Operation
from s3k_async.oplog.log_reader import order_of_effect
from s3k_async.storage.extents import has_extents, is_stored, physical_keys
from s3k_async.table.stored_reader import ROOT_ENTRY
from s3k_async.txn.lease import expired

__all__ = [
    "OBJECTS",
    "PROBLEMS",
    "RestoreDecision",
    "RestoreFacts",
    "RuleName",
    "decide_object",
    "decide_restore",
    "named_keys",
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
    "other_layout",
    "parent_is_file",
    "parent_made",
    "path_conflict",
    "present",
    "reclaimed",
    "rename_done",
    "rename_undone",
    "reservation_kept",
    "reservation_over",
    "rivals",
    "update_done",
    "update_undone",
    "yielded",
]


RestoreAction: TypeAlias = Literal["restore", "apply", "undo", "skip"]
"""`restore`: the known state. `apply`: the state after the pending operation. `undo`: the state
before it."""

PROBLEMS: Final[frozenset[RuleName]] = frozenset(
    {
        "bytes_missing",
        "delete_undone",
        "log_conflict",
        "log_damaged",
        "occupied",
        "other_layout",
        "parent_is_file",
        "path_conflict",
        "rivals",
    }
)
"""Outcomes that need a manual decision."""


@dataclass(frozen=True, slots=True)
class RestoreDecision:
    """The decision about one object."""

    rule: RuleName
    entry: Entry | None
    """The entry to restore; None for none."""
    before: Entry | None = None
    """The state without the pending operation that was assumed to be done, or without the removal
    that was assumed not to be, if any."""
    detail: str = ""
    path: str = ""
    """The last known path of the object."""
    after: Entry | None = None
    """The state in the trash after the removal that was assumed not to have happened, if any; of
    `rivals`, the state after one that moves the object."""
    deletions: Mapping[int, Deletion] = field(default_factory=dict)
    """The attributes of the states in the trash among `entry`, `before` and `after`, by version."""
    last: Entry | None = None
    """The last state in its records, pending operations included."""
    newest: int = 0
    """The highest version in its records."""

    @property
    def is_certain(self) -> bool:
        """Whether the log itself shows this state, as opposed to an assumption of the rules."""
        return self.rule in {"committed", "adopted", "reservation_kept"}


def named_keys(records: Sequence[LogRecord]) -> set[str]:
    """The physical keys, within the volume's data, in the records."""
    states = [
        state for record in records for state in (record.operation.before, record.operation.after)
    ]
    keys = {
        key
        for state in states
        if state is not None and not state.is_dir
        for key in physical_keys(state.physical)
    }
    return {key for key in keys if key != UNCOMMITTED and "://" not in key}


@dataclass(frozen=True)
class RestoreFacts:
    """The log records of one object, and the sizes of the data objects that exist."""

    records: Sequence[LogRecord]
    sizes: Mapping[str, int]
    """By physical key."""
    now_ms: int

    @cached_property
    def known(self) -> dict[int, list[Entry | None]]:
        """The known states of the object, by version; None: deleted."""
        return _known(self.records)

    @cached_property
    def version(self) -> int:
        """The last known version."""
        return max(self.known, default=0)

    @cached_property
    def states(self) -> list[Entry | None]:
        """The states of the last known version: one, unless the log is inconsistent."""
        return self.known.get(self.version, [None])

    @cached_property
    def later(self) -> list[Operation]:
        """The pending operations after the last known state."""
        return [each for each in _pending(self.records) if each.version > self.version]

    @cached_property
    def incomplete(self) -> list[Operation]:
        """Pending updates whose data was never uploaded."""
        return [
            each
            for each in self.later
            if each.kind == "update"
            and each.trash is None
            and not _bytes_there(each.after, self.sizes)
        ]

    @cached_property
    def pending(self) -> list[Operation]:
        """The pending operations that may have taken effect."""
        return [each for each in self.later if each not in self.incomplete]

    @property
    def result(self) -> Entry | None:
        """The state after the first pending operation."""
        return self.pending[0].after if self.pending else None

    @property
    def is_removal(self) -> bool:
        """Whether the first pending operation removes the object, or moves it into the trash."""
        return bool(self.pending) and (
            self.result is None or (_in_trash(self.result) and not _in_trash(self.states[0]))
        )

    @property
    def moved(self) -> Entry | None:
        """The state after the first pending operation that moves the object, into the trash rather
        than to another place."""
        known = self.states[0]
        moved = [
            each.after
            for each in self.pending
            if known is not None
            and each.after is not None
            and each.after.entry_key != known.entry_key
            and _is_whole(each.after, self.sizes)
        ]
        return min(moved, key=lambda each: not _in_trash(each), default=None)

    @property
    def is_reclamation(self) -> bool:
        """Whether every pending operation begins to reclaim the directory in the trash, or is a
        part of that."""
        return bool(self.pending) and all(
            each.trash is not None and each.trash.state == "reclaiming" for each in self.pending
        )

    def deletion_of(self, state: Entry) -> Deletion:
        """The attributes of a state in the trash. A state that is known by a later operation alone,
        since the log is damaged, counts as deleted now: it stays for the whole retention."""
        found = [
            (record.state, record.operation.trash)
            for record in self.records
            if record.operation.version == state.version and record.operation.trash is not None
        ]
        if not found:
            return Deletion("deleted", ROOT_ENTRY.id, state.path, max(1, self.now_ms))
        # A committed one, if there is one.
        return min(found, key=lambda each: each[0])[1]

    @property
    def state(self) -> Entry | None:
        """The state to decide about: after the pending operation, else the known one."""
        return self.result if self.pending else self.states[0]

    @property
    def is_pending_reservation(self) -> bool:
        after = self.result
        return after is not None and self.pending[0].kind == "create" and not after.is_dir

    @property
    def known_entry(self) -> Entry | None:
        """The known state, if it can be restored."""
        current = self.states[0]
        kept = _is_whole(current, self.sizes) or (
            _is_reservation(current) and _lease_runs(current, self.now_ms)
        )
        return current if kept else None

    @property
    def entry_before(self) -> Entry | None:
        """The state before the pending operation, if it can be restored; None for a reservation."""
        current = None if self.is_pending_reservation else self.states[0]
        return current if _is_whole(current, self.sizes) else None

    @property
    def stored(self) -> str:
        """The data found instead of that of the state, as text."""
        state = self.state
        keys = physical_keys(state.physical) if state is not None else ()
        found = [self.sizes[key] for key in keys if key in self.sizes]
        size = sum(found) if found and len(found) == len(keys) else None
        return "missing" if state is None or size is None else f"{size} bytes, not {state.size}"


OBJECTS: Final[RuleTable[RestoreFacts, RuleName, RestoreAction]] = RuleTable(
    "objects",
    "each object id of the log, by itself",
    {
        "several states of the last version": lambda facts: len(facts.states) > 1,
        "several operations pending": lambda facts: len(facts.pending) > 1,
        "operation pending": lambda facts: bool(facts.pending),
        "reclamation pending": lambda facts: facts.is_reclamation,
        "deletion pending": lambda facts: facts.is_removal,
        "rename pending": lambda facts: bool(facts.pending) and facts.pending[0].kind == "rename",
        "reservation pending": lambda facts: facts.is_pending_reservation,
        "update without bytes pending": lambda facts: bool(facts.incomplete),
        "nothing known": lambda facts: not facts.known,
        "deleted": lambda facts: facts.state is None,
        "directory": lambda facts: facts.state is not None and facts.state.is_dir,
        "reservation": lambda facts: _is_reservation(facts.state),
        "lease runs": lambda facts: _lease_runs(facts.state, facts.now_ms),
        "bytes missing": lambda facts: not _is_whole(facts.state, facts.sizes),
        "adopted": lambda facts: facts.state is not None and "://" in str(facts.state.physical),
    },
    (
        Rule(
            ("several states of the last version",),
            "log_conflict",
            "skip",
            "version {facts.version} was committed {states} times",
        ),
        Rule(("reclamation pending",), "reclaimed", "apply", "{pending} is pending"),
        Rule(("several operations pending",), "rivals", "restore", "pending at once: {kinds}"),
        Rule(("deletion pending",), "delete_undone", "undo", "{pending} is pending"),
        Rule(
            ("rename pending", "bytes missing"),
            "bytes_missing",
            "skip",
            "{facts.state.physical}: missing",
        ),
        Rule(("rename pending",), "rename_done", "apply", "{pending} is pending"),
        Rule(
            ("reservation pending", "lease runs"),
            "reservation_kept",
            "apply",
            "{pending} is pending",
        ),
        Rule(("reservation pending",), "reservation_over", "skip", "{pending} is pending"),
        Rule(("operation pending", "directory"), "create_done", "apply", "{pending} is pending"),
        Rule(("operation pending",), "update_done", "apply", "{pending} is pending"),
        Rule(("nothing known",), "update_undone", "skip", "{incomplete}"),
        Rule(("deleted",), "deleted", "skip"),
        Rule(("reservation", "lease runs"), "reservation_kept", "restore"),
        Rule(("reservation",), "reservation_over", "skip"),
        Rule(("bytes missing",), "bytes_missing", "skip", "{facts.state.physical}: {facts.stored}"),
        Rule(("update without bytes pending",), "update_undone", "restore", "{incomplete}"),
        Rule(("directory",), "committed", "restore"),
        Rule(("adopted",), "adopted", "restore"),
        Rule((), "committed", "restore"),
    ),
)
"""The decision about each object by itself; `make_a_tree` of the plan of a layout resolves
conflicts between objects. A pending move of a directory into the trash is a pending deletion."""


def decide_restore(
    records: Sequence[LogRecord], sizes: Mapping[str, int], now_ms: int
) -> RestoreDecision:
    """What to restore of the object with these records. `sizes`: bytes of the existing physical
    objects."""
    facts = RestoreFacts(records, sizes, now_ms)
    rule = OBJECTS.first(facts)
    entries: dict[RestoreAction, Entry | None] = {
        "restore": facts.known_entry,
        "apply": facts.result,
        "undo": facts.entry_before,
        "skip": None,
    }
    entry = entries[rule.action]
    before = facts.entry_before if rule.action in {"apply", "undo"} else None
    after = facts.result if rule.action == "undo" else None
    if rule.outcome == "rivals":
        after = facts.moved
    last = _last_state(records)
    return RestoreDecision(
        rule.outcome,
        _without_intent(entry),
        before=_without_intent(before),
        detail=_detail(rule.detail, facts) if rule.detail else "",
        path="" if last is None else last.path,
        after=_without_intent(after),
        deletions={
            state.version: facts.deletion_of(state)
            for state in (entry, before, after)
            if state is not None and _in_trash(state)
        },
        last=last,
        newest=max(record.operation.version for record in records),
    )


def _detail(template: str, facts: RestoreFacts) -> str:
    return template.format(
        facts=facts,
        states=len(facts.states),
        kinds=", ".join(each.kind for each in facts.pending),
        pending="".join(f"{each.kind} to version {each.version}" for each in facts.pending[:1]),
        incomplete="".join(f"version {each.version} has no bytes" for each in facts.incomplete[:1]),
    )


def decide_object(
    records: Sequence[LogRecord],
    sizes: Mapping[str, int],
    now_ms: int,
    within: str,
    is_present: Callable[[str], bool],
    is_current: Callable[[str], bool],
) -> tuple[RestoreDecision | None, bool]:
    """As `decide_restore`, for an object at or below the path `within` (None for others), which may
    already have an entry in the table (`is_present`). States whose entry key is not of the volume's
    layout (`is_current`) are not restored. Also returns whether the object was a
    directory that is certainly removed.
    """
    object_id = records[0].operation.object_id
    # Sorted, so that the order of reading does not matter.
    known = sorted(
        records, key=lambda each: (each.operation.version, each.operation.id, each.state)
    )
    if within == ROOT and is_present(object_id):
        return _present(_last_state(known)), False
    decision = decide_restore(known, sizes, now_ms)
    path = decision.entry.path if decision.entry else decision.path
    if within not in {ROOT, path} and not path.startswith(within + "/"):
        return None, False
    if is_present(object_id):
        return _present(decision.last), False
    return _of_layout(decision, is_current), decision.rule == "deleted" and any(
        _removes_directory(record.operation) for record in records
    )


def _present(last: Entry | None) -> RestoreDecision:
    return RestoreDecision("present", None, path="" if last is None else last.path, last=last)


def _of_layout(decision: RestoreDecision, is_current: Callable[[str], bool]) -> RestoreDecision:
    """The decision without states of another layout, which the log has of the time before a change
    of the layout. The change logged every entry that the table had: an object that has such states
    alone was not in it."""

    def kept(state: Entry | None) -> Entry | None:
        return state if state is not None and is_current(state.entry_key) else None

    decision = replace(decision, before=kept(decision.before), after=kept(decision.after))
    if decision.entry is None or is_current(decision.entry.entry_key):
        return decision
    if decision.before is not None:
        detail = "a change of the layout was not finished"
        return replace(
            decision, rule="update_undone", entry=decision.before, before=None, detail=detail
        )
    detail = f"{decision.rule}: its last state is of the layout that the volume had before"
    path = decision.entry.path
    return replace(decision, rule="other_layout", entry=None, detail=detail, path=path)


def _removes_directory(operation: Operation) -> bool:
    return operation.after is None and operation.before is not None and operation.before.is_dir


def _known(records: Sequence[LogRecord]) -> dict[int, list[Entry | None]]:
    """The known states of the object, by version; None: removed."""
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
    """Whether two states of a version are the same; write intents change the operation id of an
    entry, but not its content, and renames of directories above it the path, but not its place in
    layout `tree`."""
    if one is None or other is None:
        return one is other
    left, right = (replace(each, path="", operation="", pending="") for each in (one, other))
    return left == right and one.entry_key == other.entry_key


def _pending(records: Sequence[LogRecord]) -> list[Operation]:
    found = {record.operation: None for record in records if record.state == "pending"}
    return sorted(found, key=lambda operation: (operation.version, operation.id))


def _last_state(records: Sequence[LogRecord]) -> Entry | None:
    last = max((record.operation for record in records), key=order_of_effect)
    return last.after or last.before


def _in_trash(entry: Entry | None) -> bool:
    return entry is not None and entry.directory == TRASH_ID


def _bytes_there(entry: Entry | None, sizes: Mapping[str, int]) -> bool:
    if entry is None or entry.physical is None:
        return False
    if has_extents(entry.physical):
        return is_stored(entry.physical, entry.size, sizes)
    return "://" in entry.physical or sizes.get(entry.physical) == entry.size


def _is_whole(entry: Entry | None, sizes: Mapping[str, int]) -> bool:
    """Whether it is a directory, or a file with complete data."""
    return (
        entry is not None
        and not entry.is_reservation
        and (entry.is_dir or _bytes_there(entry, sizes))
    )


def _is_reservation(entry: Entry | None) -> bool:
    return entry is not None and entry.is_reservation


def _lease_runs(entry: Entry | None, now_ms: int) -> bool:
    return entry is not None and not expired(entry.lease_ms, now_ms)


def _without_intent(entry: Entry | None) -> Entry | None:
    return None if entry is None else entry.without_intent()
