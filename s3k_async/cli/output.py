"""Standard output: lines, JSON and bytes."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from s3k_async.attributes import Attributes
from s3k_async.model import FileStatus

__all__ = [
    "Output",
    "attribute_fields",
    "attribute_texts",
    "human_size",
    "one_line",
    "plural",
    "safe_text",
    "status_fields",
    "time_text",
]

_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Characters that move a terminal's cursor, end a line or change the direction of text, and halves
of surrogate pairs."""


_GAP: Final = 2
"""Spaces between columns."""


def one_line(text: str) -> str:
    """The text with unprintable characters as escapes."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def safe_text(text: str, encoding: str | None) -> str:
    """The text with unencodable characters as escapes."""
    name = encoding or "utf-8"
    return text.encode(name, "backslashreplace").decode(name)


class Output:
    """The output stream of results. On a terminal control characters in names are escaped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_terminal = stream.isatty()

    def line(self, text: str) -> None:
        """One line of text."""
        shown = one_line(text) if self.is_terminal else text
        self._stream.write(safe_text(shown, self._stream.encoding) + "\n")

    def json(self, value: Mapping[str, Any]) -> None:
        """One JSON document, on a line of its own, in ASCII."""
        self._stream.write(json.dumps(value) + "\n")

    def bytes(self, data: bytes) -> None:
        """Raw bytes."""
        self._stream.flush()
        self._stream.buffer.write(data)

    def flush(self) -> None:
        """Flush the stream."""
        self._stream.flush()

    def columns(self, names: Sequence[str]) -> None:
        """Names in columns that fit the terminal, sorted downwards, as `ls` has them."""
        from rich.cells import cell_len

        shown = [safe_text(one_line(name), self._stream.encoding) for name in names]
        for line in _in_columns(shown, [cell_len(each) for each in shown], _terminal_width()):
            self._stream.write(line + "\n")

    def branches(self) -> tuple[str, str, str, str]:
        """The branches of a tree: to a child, to the last one, past a child, past the last one."""
        try:
            "│├└─".encode(self._stream.encoding or "utf-8")
        except UnicodeEncodeError:
            return "|-- ", "`-- ", "|   ", "    "
        return "├── ", "└── ", "│   ", "    "


def _terminal_width() -> int:
    return shutil.get_terminal_size().columns


def _in_columns(names: Sequence[str], widths: Sequence[int], room: int) -> Iterator[str]:
    """Lines of names in as many columns as fit into `room`; `widths` are those of the names."""
    most = max(1, room // (min(widths, default=room) + _GAP))
    for count in range(min(most, len(names)), 0, -1):
        rows = -(-len(names) // count)
        column = [max(widths[start : start + rows]) for start in range(0, len(names), rows)]
        if count == 1 or sum(column) + _GAP * (len(column) - 1) <= room:
            for row in range(rows):
                places = range(row, len(names), rows)
                padded = (
                    names[at] + " " * (column[at // rows] - widths[at] + _GAP) for at in places
                )
                yield "".join(padded).rstrip(" ")
            return


def status_fields(status: FileStatus) -> dict[str, Any]:
    """The JSON fields of a file or directory. Times are epoch milliseconds, sizes bytes."""
    attributes = status.attributes
    return {
        "path": status.path,
        "type": "directory" if status.is_dir else "file",
        "size": status.size,
        "mtime_ms": status.mtime_ms,
        "ctime_ms": status.ctime_ms,
        "changed_ms": attributes.last_change(status.mtime_ms),
        "id": status.id,
        "version": status.version,
        "committed": status.committed,
        "etag": status.etag,
        "checksum": status.checksum,
        "physical": status.physical,
        **version_field(status),
        **attribute_fields(attributes),
    }


def version_field(status: FileStatus) -> dict[str, str]:
    """The JSON field with the version id of an adopted object, if one is recorded."""
    version = status.object_version
    return {"object_version": version} if version else {}


def attribute_fields(attributes: Attributes) -> dict[str, Any]:
    """The JSON fields of attributes, without those that were never set; metadata in base64. The
    time of their last change is not among them."""
    document: dict[str, Any] = json.loads(replace(attributes, changed_ms=None).to_json() or "{}")
    return {"attributes": document} if document else {}


def attribute_texts(attributes: Attributes) -> Iterator[tuple[str, str]]:
    """The names and values of attributes as text, without those that were never set; one for each
    value of user metadata, `metadata` and `NAME=VALUE`."""
    for name, value in attribute_fields(attributes).get("attributes", {}).items():
        if name == "metadata":
            for key, data in sorted(attributes.metadata.items()):
                yield name, f"{key}={data.decode(errors='backslashreplace')}"
        else:
            yield name, f"{value:04o}" if name == "mode" else str(value).lower()


def human_size(size: int) -> str:
    """A size in units of 1,024: `999B`, `1.5K`, `12M`."""
    if size < 1024:
        return f"{size}B"
    value = float(size)
    for unit in "KMGTPE":
        value /= 1024
        if value < 1023.5 or unit == "E":
            return f"{value:.1f}{unit}" if value < 9.95 else f"{value:.0f}{unit}"
    raise AssertionError


def time_text(milliseconds: int) -> str:
    """A time as `2026-11-21T04:30:12Z`; one outside of the calendar, from a damaged record, in
    ms."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OSError, OverflowError, ValueError):
        return f"{milliseconds} ms"


def plural(count: int, noun: str) -> str:
    """`1 file`, `2,450 files`, `3 directories`."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun[:-1]}ies" if noun.endswith("y") else f"{count:,} {noun}s"
