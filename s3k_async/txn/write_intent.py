"""Write intents: the content of an item's `next` attribute.

An intent names a transaction (`job`) and the state of the entry after it commits. It is JSON with
the names in this order and without spaces, so that equal intents are equal texts and a condition
can compare them:

    {"job": J}                   no change: a change that is not atomic holds the entry
    {"job": J, "then": "gone"}   the entry is removed
    {"job": J, "then": "here"}   the entry does not exist yet, and is created as stored
    {"job": J, "then": {...}}    the entry is replaced by this one, in the operation log's form

Before the commit, an item with a `here` intent is no entry, and every other item is its stored
entry.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal, TypeAlias

from s3k_async.errors import ItemFormatError, LogFormatError
from s3k_async.model import Entry
from s3k_async.oplog.entries import entry_document, entry_from

__all__ = [
    "CREATED",
    "NOBODY",
    "REMOVED",
    "NewState",
    "WriteIntent",
    "parse_intent",
    "transaction_of",
]

REMOVED: Literal["gone"] = "gone"
CREATED: Literal["here"] = "here"

NOBODY = "-"
"""An id that no transaction has, used for an unreadable intent."""

NewState: TypeAlias = Entry | Literal["gone", "here"] | None


@dataclass(frozen=True, slots=True)
class WriteIntent:
    """A transaction id and the state of the entry after the transaction is published; None:
    unchanged."""

    txn: str
    new_state: NewState = None

    @property
    def is_hidden(self) -> bool:
        """Whether the entry is invisible as long as the transaction is not published."""
        return self.new_state == CREATED

    def text(self) -> str:
        """The stored text of the intent. Never raises UnicodeEncodeError for an entry that was
        stored."""
        document: dict[str, object] = {"job": self.txn}
        if isinstance(self.new_state, Entry):
            document["then"] = entry_document(self.new_state)
        elif self.new_state is not None:
            document["then"] = self.new_state
        return json.dumps(document, separators=(",", ":"))

    def resolve(self, entry: Entry, *, published: bool) -> Entry | None:
        """The visible state of a held entry, before or after its transaction is published; None: no
        entry.

        The stored entry keeps its intent; the entry of `new_state` has none.
        """
        if not published:
            return None if self.new_state == CREATED else entry
        if self.new_state == REMOVED:
            return None
        return self.new_state if isinstance(self.new_state, Entry) else entry


def parse_intent(text: str) -> WriteIntent:
    """The intent that a `next` attribute holds (`Entry.pending`). Raises ItemFormatError for
    anything else."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ItemFormatError("a pending change that is no JSON") from error
    txn = document.get("job") if isinstance(document, dict) else None
    if not isinstance(txn, str) or not txn:
        raise ItemFormatError("a pending change that names no transaction")
    state = document.get("then")
    if state in (None, REMOVED, CREATED):
        return WriteIntent(txn, state)
    if not isinstance(state, dict):
        raise ItemFormatError("a pending change of an unknown kind")
    try:
        return WriteIntent(txn, entry_from(state, "next"))
    except LogFormatError as error:
        raise ItemFormatError("a pending change whose entry cannot be read") from error


def transaction_of(text: str) -> str:
    """The transaction id in an intent; `NOBODY` for an unreadable one."""
    try:
        return parse_intent(text).txn
    except ItemFormatError:
        return NOBODY
