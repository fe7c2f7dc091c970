"""The native entry format: one operation on one object, as versioned JSON that is never changed
once written.

An object of the log is lines of JSON, each ended by a newline, and ASCII only, so that any tool can
split it into lines. The first line has its kind (`s3k`: `oplog-entry` or `oplog-segment`) and its
`format`; the last is the seal, `{"sha256":"<hex of everything before>"}`, so that truncation or a
flipped bit is detected anywhere. Keys are written in one fixed order, and every field is always
present, but for `directory` and `attributes`, which are left out where they are empty: equal
records are equal bytes. Readers ignore unknown fields; a volume in which they must not ignore
`attributes` has that flag in its record.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, Literal, TypeAlias, cast, get_args

from s3k_async import _native
from s3k_async.errors import InvalidPathError, LogFormatError
from s3k_async.model import (
    ROOT,
    TRASH_ID,
    UNCOMMITTED,
    Deletion,
    Entry,
    Operation,
    OperationKind,
    TrashReason,
    TrashState,
)

__all__ = [
    "FORMAT",
    "PATH_FORMAT",
    "EntryKey",
    "LogRecord",
    "LogState",
    "Operation",
    "OperationKind",
    "SegmentKey",
    "committed_key",
    "decode",
    "deletion_document",
    "deletion_flaw",
    "deletion_from",
    "encode",
    "entry_document",
    "entry_from",
    "entry_key",
    "entry_of_line",
    "history_prefix",
    "is_id",
    "numbered_segment",
    "operation_from",
    "operation_line",
    "parse_key",
    "parse_line",
    "pending_segment",
    "read_field",
    "seal",
    "segment_id",
    "segment_key",
    "transaction_of_segment",
    "transaction_segments",
    "unseal",
]

FORMAT: Final = 2
"""The newest format of entries, in which states have a `directory`; written for those that do."""
PATH_FORMAT: Final = 1
"""The format of entries without directory keys, as in layout `path`."""

MAX_VERSION: Final = 9_999_999_999
"""The key has ten digits for the version, so that the keys of an object sort by it."""

LogState: TypeAlias = Literal["pending", "committed"]

_ENTRY: Final = "oplog-entry"
_ID: Final = r"[0-9A-Za-z_-]{1,64}"
_ENTRY_KEY: Final = re.compile(
    rf"entries/([^/]+)/({_ID})\.([0-9]{{10}})\.({_ID})\.(pending|committed)", re.ASCII
)
_SEGMENT_KEY: Final = re.compile(rf"segments/({_ID})\.(pending|committed)", re.ASCII)
_IS_ID: Final = re.compile(_ID, re.ASCII)
TRANSACTION_SEPARATOR: Final = "_"
"""Separator of the transaction id and the rest in a segment's id. No UUID contains it."""
_LEAST: Final = -(2**63)
_LARGEST: Final = 2**63 - 1
_SEAL_LENGTH: Final = len('{"sha256":""}\n') + 64

_TEXT = (str,)
_NUMBER = (int,)
_FLAG = (bool,)
_ENTRY_FIELDS: Final[dict[str, tuple[type, ...]]] = {
    "path": _TEXT,
    "is_dir": _FLAG,
    "id": _TEXT,
    "version": _NUMBER,
    "ctime": _NUMBER,
    "mtime_ms": _NUMBER,
    "size": _NUMBER,
    "physical": (str, type(None)),
    "committed": _FLAG,
    "etag": _TEXT,
    "checksum": _TEXT,
    "operation": _TEXT,
    "lease_ms": _NUMBER,
    "pending": _TEXT,
}
_values_of_entry: Final = attrgetter(*_ENTRY_FIELDS)
_ATTRIBUTES: Final = "attributes"
_TREE_FIELDS: Final[dict[str, tuple[type, ...]]] = {
    "path": _TEXT,
    "directory": _TEXT,
    **_ENTRY_FIELDS,
}
"""Of an entry with a directory key."""
_values_of_tree_entry: Final = attrgetter(*_TREE_FIELDS)
_TRASH: Final = "trash"
_DELETION_NAMES: Final[dict[str, tuple[str, tuple[type, ...]]]] = {
    "why": ("why", _TEXT),
    "from": ("origin", _TEXT),
    "was": ("was", _TEXT),
    "when": ("when_ms", _NUMBER),
    "by": ("by", _TEXT),
    "state": ("state", _TEXT),
    "since": ("since_ms", _NUMBER),
}
"""Of an operation that leads into the trash: the names of the attributes of its item, those of
`Deletion`, and their types."""
_DELETION_FIELDS: Final = {name: kinds for name, (_, kinds) in _DELETION_NAMES.items()}
_SIDE: Final = (dict, type(None))
_OPERATION_FIELDS: Final[dict[str, tuple[type, ...]]] = {
    "id": _TEXT,
    "kind": _TEXT,
    "object": _TEXT,
    "version": _NUMBER,
    "time_ms": _NUMBER,
    "before": _SIDE,
    "after": _SIDE,
}


@dataclass(frozen=True, slots=True)
class LogRecord:
    """An operation and its state according to the log."""

    operation: Operation
    state: LogState
    key: str = field(default="", compare=False)
    """Key of its log object; empty for a record that was not read."""


@dataclass(frozen=True, slots=True)
class EntryKey:
    """The parts of an entry's key."""

    object_id: str
    version: int
    operation_id: str
    state: LogState


@dataclass(frozen=True, slots=True)
class SegmentKey:
    """The parts of a segment's key."""

    segment_id: str
    state: LogState


def entry_key(operation: Operation, state: LogState) -> str:
    """The key of an operation's entry, below the log root. Raises LogFormatError for ids that are
    invalid in keys."""
    object_id = _id(operation.object_id, "object id")
    operation_id = _id(operation.id, "operation id")
    return f"entries/{object_id[:2]}/{object_id}.{operation.version:010d}.{operation_id}.{state}"


def segment_id(unique: str, txn: str = "") -> str:
    """The id of a segment: `<transaction id>_<unique>`, or `unique` alone outside a
    transaction."""
    return f"{txn}{TRANSACTION_SEPARATOR}{unique}" if txn else unique


def numbered_segment(series: str, number: int) -> str:
    """The id of a segment of a series, whose ids sort by number: `<series>-<number>`. The number is
    from 1; the series, a UUID."""
    return f"{series}-{number:012d}"


def transaction_of_segment(segment_id: str) -> str:
    """The transaction id in the id of a segment; empty outside a transaction."""
    return segment_id.rpartition(TRANSACTION_SEPARATOR)[0]


def transaction_segments(txn: str) -> str:
    """The key prefix of the segments of a transaction, below the log root."""
    return f"segments/{_id(txn, 'transaction id')}{TRANSACTION_SEPARATOR}"


def segment_key(segment_id: str, state: LogState) -> str:
    """The key of a segment, below the log root. Raises LogFormatError for an id that is invalid in
    keys."""
    return f"segments/{_id(segment_id, 'segment id')}.{state}"


def committed_key(pending_key: str) -> str:
    """The key of the committed twin of a pending object."""
    return pending_key.removesuffix("pending") + "committed"


def history_prefix(object_id: str) -> str:
    """The common prefix of the keys of one object's entries, and of no others."""
    return f"entries/{_id(object_id, 'object id')[:2]}/{object_id}."


def parse_key(key: str) -> EntryKey | SegmentKey:
    """The parts of a key. Raises LogFormatError for any other key."""
    if entry := _ENTRY_KEY.fullmatch(key):
        shard, object_id, version, operation_id, state = entry.groups()
        if shard == object_id[:2]:
            return EntryKey(object_id, int(version), operation_id, cast("LogState", state))
    elif segment := _SEGMENT_KEY.fullmatch(key):
        return SegmentKey(segment[1], cast("LogState", segment[2]))
    raise LogFormatError("not the key of an operation log object", path=key)


def pending_segment(key: str) -> str:
    """The segment id in the key of a pending object; empty for every other key."""
    segment = _SEGMENT_KEY.fullmatch(key)
    return segment[1] if segment and segment[2] == "pending" else ""


def encode(record: LogRecord) -> bytes:
    """The bytes of an entry. Raises LogFormatError for an operation that contradicts itself."""
    key = entry_key(record.operation, record.state)
    return entry_of_line(operation_line(record.operation, key), record.state)


def entry_of_line(line: bytes, state: LogState) -> bytes:
    """The bytes of an entry, from its `operation_line`."""
    number = FORMAT if _native.has_directories(line) else PATH_FORMAT
    return seal(_HEADS[state, number] + line[1:] + b"\n")


def decode(data: bytes, key: str) -> LogRecord:
    """The record in an entry's bytes.

    Raises LogFormatError, with the key, for bytes that are truncated, damaged, foreign or of a
    newer format, and for a record that contradicts itself or its key.
    """
    expected = parse_key(key)
    if not isinstance(expected, EntryKey):
        raise LogFormatError("not the key of an entry", path=key)
    lines = unseal(data, _ENTRY, FORMAT, key)
    if len(lines) != 1:
        raise LogFormatError("an entry holds one record", path=key)
    document = parse_line(lines[0], key)
    state = read_field(document, "state", _TEXT, key)
    operation = _operation(document, key)
    found = EntryKey(operation.object_id, operation.version, operation.id, state)
    if found != expected:
        raise LogFormatError("the entry's content does not belong to its key", path=key)
    return LogRecord(operation, expected.state, key)


def operation_line(operation: Operation, key: str) -> bytes:
    """One operation as a line of a segment, without the newline. Raises LogFormatError for one
    that `operation_from` would refuse: both make the same checks, of which the native core makes
    most."""
    line = _native.operation_line(operation)
    if line is not None:
        return line
    document = _document(operation, key)
    for entry in (operation.before, operation.after):
        if entry is not None and (flaw := _impossible(entry)):
            raise LogFormatError(flaw, path=key)
    if flaw := _flaw(operation):
        raise LogFormatError(flaw, path=key)
    return _line(document)


def _document(operation: Operation, key: str) -> dict[str, Any]:
    """An operation as a JSON object. Raises LogFormatError for a field of a wrong type."""
    document: dict[str, Any] = {
        "id": operation.id,
        "kind": operation.kind,
        "object": operation.object_id,
        "version": operation.version,
        "time_ms": operation.time_ms,
        "before": _side(operation.before, key),
        "after": _side(operation.after, key),
    }
    _require_fields(document, _OPERATION_FIELDS, key)
    if operation.trash is not None:
        document[_TRASH] = deletion_document(operation.trash)
        _require_fields(document[_TRASH], _DELETION_FIELDS, key)
    return document


def operation_from(line: bytes, key: str) -> Operation:
    """The operation in a line of a segment. Raises LogFormatError as `decode` does."""
    return _operation(parse_line(line, key), key)


def entry_document(entry: Entry) -> dict[str, Any]:
    """The state of an entry as a JSON object of a record."""
    if entry.directory == "":
        document = dict(zip(_ENTRY_FIELDS, _values_of_entry(entry), strict=True))
    else:
        document = dict(zip(_TREE_FIELDS, _values_of_tree_entry(entry), strict=True))
    return _with_attributes(document, entry.attributes) if entry.attributes else document


def entry_from(document: dict[str, Any], key: str) -> Entry:
    """The state of an entry in a JSON object. Raises LogFormatError, with the key, also for a state
    that is invalid in a table."""
    fields = _TREE_FIELDS if "directory" in document else _ENTRY_FIELDS
    _require_fields(document, fields, key)
    if _ATTRIBUTES in document:
        fields = {**fields, _ATTRIBUTES: _TEXT}
        _require_fields(document, {_ATTRIBUTES: _TEXT}, key)
    entry = Entry(**{name: document[name] for name in fields})
    if "directory" in document and not entry.directory:
        raise LogFormatError("an empty directory key", path=key)
    if flaw := _impossible(entry):
        raise LogFormatError(flaw, path=key)
    return entry


def _with_attributes(document: dict[str, Any], attributes: str) -> dict[str, Any]:
    """The fields of a state in their order, with attributes after the checksum."""
    found: dict[str, Any] = {}
    for name, value in document.items():
        found[name] = value
        if name == "checksum":
            found[_ATTRIBUTES] = attributes
    return found


def deletion_document(deletion: Deletion) -> dict[str, Any]:
    """The attributes of a directory in the trash as a JSON object of a record."""
    return {name: getattr(deletion, field) for name, (field, _) in _DELETION_NAMES.items()}


def deletion_from(document: object, key: str) -> Deletion:
    """The attributes of a directory in the trash in a JSON object. Raises LogFormatError, with the
    key."""
    if not isinstance(document, dict):
        raise LogFormatError(f"the field {_TRASH!r} is no JSON object", path=key)
    _require_fields(document, _DELETION_FIELDS, key)
    return Deletion(**{field: document[name] for name, (field, _) in _DELETION_NAMES.items()})


def seal(*lines: bytes) -> bytes:
    """A whole log object: lines, each ended by a newline, and their seal."""
    return b"".join((*lines, _seal_of(*lines)))


def unseal(data: bytes, content: str, newest: int, key: str) -> list[bytes]:
    """The lines of a sealed object of the kind `content`, in a format from 1 to `newest`.

    Raises LogFormatError, with the key. A newer format is reported as such even with another kind
    of seal.
    """
    head = data.partition(b"\n")[0]
    try:
        document = parse_line(head, key)
    except LogFormatError:
        document = {}
    format_number = document.get("format")
    known = document.get("s3k") == content and type(format_number) is int
    if known and cast("int", format_number) > newest:
        raise LogFormatError(
            f"operation log format {format_number}; this version reads up to {newest}, a newer one "
            "is needed",
            path=key,
        )
    body = data[:-_SEAL_LENGTH]
    if not body or data[-_SEAL_LENGTH:] != _seal_of(body):
        what = (
            "truncated or damaged" if data.startswith(b'{"s3k":') else "not an operation log object"
        )
        raise LogFormatError(what, path=key)
    if not known or cast("int", format_number) < 1 or not body.endswith(b"\n"):
        raise LogFormatError(f"not an {content} of a known format", path=key)
    return body[:-1].split(b"\n")


def parse_line(line: bytes, key: str) -> dict[str, Any]:
    """The JSON object in a line. Raises LogFormatError, with the key."""
    try:
        document = json.loads(
            line.decode("utf-8"), object_pairs_hook=_distinct, parse_constant=_no_constant
        )
    except (ValueError, RecursionError) as error:
        raise LogFormatError("not a line of JSON", path=key) from error
    if not isinstance(document, dict):
        raise LogFormatError("not a JSON object", path=key)
    return document


def read_field(document: dict[str, Any], name: str, kinds: tuple[type, ...], key: str) -> Any:
    """A required field of exactly one of the types. Raises LogFormatError, with the key."""
    _require_fields(document, {name: kinds}, key)
    return document[name]


def _require_fields(
    document: dict[str, Any], fields: dict[str, tuple[type, ...]], key: str
) -> None:
    """Raise LogFormatError unless every field is there, of exactly one of its types."""
    for name, kinds in fields.items():
        value = document.get(name, ...)
        if type(value) not in kinds:
            raise LogFormatError(f"the field {name!r} is missing or of a wrong type", path=key)
        if isinstance(value, str) and not value.isascii():
            _require_encodable(value, name, key)


def _require_encodable(value: str, name: str, key: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        what = f"the field {name!r} holds half a surrogate pair"
        raise LogFormatError(what, path=key) from error


_ENCODER: Final = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def _line(document: dict[str, Any]) -> bytes:
    return _ENCODER.encode(document).encode("ascii")


def _seal_of(*lines: bytes) -> bytes:
    digest = hashlib.sha256()
    for each in lines:
        digest.update(each)
    return b'{"sha256":"%s"}\n' % digest.hexdigest().encode("ascii")


_HEADS: Final[dict[tuple[LogState, int], bytes]] = {
    (state, number): _line({"s3k": _ENTRY, "format": number, "state": state})[:-1] + b","
    for state in get_args(LogState)
    for number in (PATH_FORMAT, FORMAT)
}
"""The beginning of an entry's line: all that precedes the fields of its operation."""


def _operation(document: dict[str, Any], key: str) -> Operation:
    _require_fields(document, _OPERATION_FIELDS, key)
    before, after = document["before"], document["after"]
    operation = Operation(
        id=document["id"],
        kind=document["kind"],
        object_id=document["object"],
        version=document["version"],
        time_ms=document["time_ms"],
        before=None if before is None else entry_from(before, key),
        after=None if after is None else entry_from(after, key),
        trash=deletion_from(document[_TRASH], key) if _TRASH in document else None,
    )
    if flaw := _flaw(operation):
        raise LogFormatError(flaw, path=key)
    return operation


def _side(entry: Entry | None, key: str) -> dict[str, Any] | None:
    """The state before or after an operation. Raises LogFormatError for a field of a wrong type."""
    if entry is None:
        return None
    _require_fields({_ATTRIBUTES: entry.attributes}, {_ATTRIBUTES: _TEXT}, key)
    document = entry_document(entry)
    _require_fields(document, _TREE_FIELDS if "directory" in document else _ENTRY_FIELDS, key)
    return document


_SIDES: Final[dict[OperationKind, frozenset[tuple[bool, bool]]]] = {
    "create": frozenset({(False, True)}),
    "update": frozenset({(False, True), (True, True)}),
    "rename": frozenset({(True, True)}),
    "delete": frozenset({(True, False)}),
}


def _impossible(entry: Entry) -> str | None:
    """The reason why no item can hold the entry, or None: entries from the log are looked up and
    restored at their paths."""
    try:
        is_path = entry.path != ROOT and _native.normalize(entry.path) == entry.path
        _native.ancestors(entry.path)  # refuses paths longer than every key
    except InvalidPathError as error:
        return f"an invalid path: {error.message}"
    if not is_path:
        return f"an invalid path: {entry.path!r} is the root, or not normalised"
    if entry.directory and not _IS_ID.fullmatch(entry.directory):
        return f"an invalid directory key: {entry.directory!r}"
    if (
        not 0 < entry.ctime <= _LARGEST // 1000
        or not 0 < entry.version <= _LARGEST
        or not 0 <= entry.size <= _LARGEST
    ):
        return "an invalid ctime, version or size"
    if (
        not entry.id
        or not _LEAST <= entry.mtime_ms <= _LARGEST
        or not _LEAST <= entry.lease_ms <= _LARGEST
    ):
        return "an invalid id or time"
    if entry.committed and (entry.is_dir or entry.physical in (None, UNCOMMITTED)):
        return "a committed file must name its physical object"
    return None


def _flaw(operation: Operation) -> str | None:
    """The contradiction in the operation, or None."""
    before, after = operation.before, operation.after
    object_id, version = operation.object_id, operation.version
    if operation.kind not in _SIDES:
        return f"unknown kind of operation {operation.kind!r}"
    if (before is not None, after is not None) not in _SIDES[operation.kind]:
        return f"a {operation.kind} with the wrong state before or after"
    if not 1 <= version <= MAX_VERSION or not _LEAST <= operation.time_ms <= _LARGEST:
        return f"version {version} or time {operation.time_ms} is out of range"
    if not _IS_ID.fullmatch(operation.id) or not _IS_ID.fullmatch(object_id):
        return "an operation id or object id that no key can hold"
    if (before is not None and before.id != object_id) or (
        after is not None and after.id != object_id
    ):
        return "the state is that of another object"
    if after is not None and after.version != version:
        return "the state after is of another version"
    if before is not None and (
        before.version + 1 != version if after is None else before.version >= version
    ):
        return "the state before is not of an earlier version"
    if (after is not None and after.directory == TRASH_ID) != (operation.trash is not None):
        return "the attributes of a deletion belong to a state in the trash, and to no other"
    if after is None or operation.trash is None:
        return None
    if not after.is_dir or after.path.rpartition("/")[2] != object_id:
        return "a state in the trash that is no directory under its object id"
    if operation.trash.why != "deleted":
        return "a removal marker or a staged directory, which are not logged"
    return deletion_flaw(operation.trash)


def deletion_flaw(deletion: Deletion) -> str | None:
    """The reason why no item in the trash has these attributes, or None."""
    if deletion.why not in get_args(TrashReason):
        return f"an unknown reason {deletion.why!r}"
    if deletion.state not in get_args(TrashState):
        return f"an unknown state {deletion.state!r}"
    if not is_id(deletion.origin) or not deletion.was.startswith(ROOT):
        return "no former place"
    if not 0 < deletion.when_ms <= _LARGEST or not 0 <= deletion.since_ms <= _LARGEST:
        return "no time of the deletion, or an invalid one of its reclamation"
    return None


def is_id(text: str) -> bool:
    """Whether a text is valid in keys of the log as an object id, operation id or segment id."""
    return _IS_ID.fullmatch(text) is not None


def _id(text: str, what: str) -> str:
    if not _IS_ID.fullmatch(text):
        raise LogFormatError(f"a key of the operation log cannot hold the {what} {text!r}")
    return text


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a name occurs twice")
    return document


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
