"""The binary log entries of S3-FileSystem 1.0: Java object streams of block data alone.

A stream is the header `AC ED 00 05` and blocks, each `77` and a length of one byte or `7A` and a
length of four, cut at 1,024 bytes. The joined blocks are a version byte and the fields, big-endian;
text is a length of two bytes and Java's modified UTF-8 (NUL as `C0 80`, characters above U+FFFF as
two surrogates of three bytes). Source: the Java Object Serialization Specification, chapter 6, and
`DataOutput.writeUTF`.

V1, of old releases: logical path, size, creation time, committed. V2: all of `JavaEntryV2`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast, get_args

from s3k_async.errors import LogFormatError

__all__ = [
    "JavaEntry",
    "JavaEntryV1",
    "JavaEntryV2",
    "JavaKind",
    "JavaState",
    "read_java",
    "write_java",
]

JavaState: TypeAlias = Literal["PENDING", "COMMITTED"]
JavaKind: TypeAlias = Literal["CREATE", "UPDATE", "DELETE"]

_HEADER: Final = b"\xac\xed\x00\x05"
_SHORT_BLOCK: Final = 0x77
_LONG_BLOCK: Final = 0x7A
_BLOCK_SIZE: Final = 1024
_MAX_TEXT: Final = 65_535


@dataclass(frozen=True, slots=True)
class JavaEntryV1:
    """The legacy entry, without the object's id, its version, its physical path and the
    operation."""

    logical: str
    """Logical path with scheme and authority: `ks://<bucket>/a/b`."""
    size: int
    ctime: int
    """Epoch seconds."""
    committed: bool
    """Whether the file's bytes were durable."""


@dataclass(frozen=True, slots=True)
class JavaEntryV2:
    """The current entry: the state after a create or update, the state before a delete."""

    ctime: int
    """Epoch seconds."""
    size: int
    physical: str
    """URI of the physical object, or `<uncommitted>`."""
    logical: str
    """Logical path with scheme and authority: `ks://<bucket>/a/b`."""
    committed: bool
    """Whether the file's bytes were durable."""
    version: int
    """The version after the operation; a delete does not increment it."""
    id: str
    state: JavaState
    kind: JavaKind
    """`UPDATE` means new content or a rename."""


JavaEntry: TypeAlias = JavaEntryV1 | JavaEntryV2


def write_java(entry: JavaEntry) -> bytes:
    """The bytes of the Java writer for the entry.

    Raises LogFormatError for numbers out of range, text of more than 65,535 bytes, or half a
    surrogate pair.
    """
    try:
        if isinstance(entry, JavaEntryV1):
            payload = b"".join(
                (
                    b"\x01",
                    _text_bytes(entry.logical),
                    struct.pack(">qq?", entry.size, entry.ctime, entry.committed),
                )
            )
        else:
            payload = b"".join(
                (
                    struct.pack(">Bqq", 2, entry.ctime, entry.size),
                    _text_bytes(entry.physical),
                    _text_bytes(entry.logical),
                    struct.pack(">?i", entry.committed, entry.version),
                    _text_bytes(entry.id),
                    _text_bytes(entry.state),
                    _text_bytes(entry.kind),
                )
            )
    except (struct.error, UnicodeEncodeError) as error:
        raise LogFormatError(f"cannot be written as a Java log entry ({error})") from error
    blocks = (payload[start : start + _BLOCK_SIZE] for start in range(0, len(payload), _BLOCK_SIZE))
    return _HEADER + b"".join(_block_head(len(block)) + block for block in blocks)


def read_java(data: bytes, key: str | None = None) -> JavaEntry:
    """The entry in a Java log object's bytes, with any division into blocks.

    Raises LogFormatError, with the key, for anything that is not exactly one V1 or V2 entry.
    """
    fields = _Fields(_payload(data, key), key)
    (version,) = fields.numbers("B")
    entry: JavaEntry
    if version == 1:
        logical = fields.text()
        size, ctime = fields.numbers("qq")
        entry = JavaEntryV1(logical=logical, size=size, ctime=ctime, committed=fields.flag())
    elif version == 2:
        ctime, size = fields.numbers("qq")
        entry = JavaEntryV2(
            ctime=ctime,
            size=size,
            physical=fields.text(),
            logical=fields.text(),
            committed=fields.flag(),
            version=fields.numbers("i")[0],
            id=fields.text(),
            state=cast("JavaState", fields.name(get_args(JavaState))),
            kind=cast("JavaKind", fields.name(get_args(JavaKind))),
        )
    else:
        raise LogFormatError(f"Java log entry of unknown version {version}", path=key)
    fields.end()
    return entry


class _Fields:
    """Sequential reader of a payload's fields; raises LogFormatError if bytes are missing."""

    def __init__(self, payload: bytes, key: str | None) -> None:
        self._payload = payload
        self._key = key
        self._at = 0

    def numbers(self, layout: str) -> tuple[int, ...]:
        return struct.unpack(f">{layout}", self._take(struct.calcsize(f">{layout}")))

    def flag(self) -> bool:
        (value,) = self.numbers("B")
        if value > 1:
            raise LogFormatError(f"a Java log entry with {value} for a boolean", path=self._key)
        return bool(value)

    def text(self) -> str:
        (length,) = self.numbers("H")
        raw = self._take(length)
        try:
            surrogates = raw.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
            text = surrogates.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
            canonical = _modified_utf8(text)
        except UnicodeError as error:
            raise LogFormatError(
                "a Java log entry with text that is not modified UTF-8", path=self._key
            ) from error
        if canonical != raw:
            raise LogFormatError(
                "a Java log entry with text that is not modified UTF-8", path=self._key
            )
        return text

    def name(self, known: tuple[str, ...]) -> str:
        text = self.text()
        if text not in known:
            raise LogFormatError(
                f"a Java log entry with {text!r} for one of {', '.join(known)}", path=self._key
            )
        return text

    def end(self) -> None:
        if self._at != len(self._payload):
            raise LogFormatError(
                "a Java log entry with more bytes than its fields have", path=self._key
            )

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._payload):
            raise LogFormatError("a truncated Java log entry", path=self._key)
        taken = self._payload[self._at : end]
        self._at = end
        return taken


def _payload(data: bytes, key: str | None) -> bytes:
    if not data.startswith(_HEADER):
        what = (
            "a truncated Java log entry"
            if data and _HEADER.startswith(data)
            else "not a Java log entry"
        )
        raise LogFormatError(what, path=key)
    at, parts = len(_HEADER), []
    while at < len(data):
        layout = {_SHORT_BLOCK: ">BB", _LONG_BLOCK: ">Bi"}.get(data[at])
        if layout is None:
            raise LogFormatError("a Java log entry with content other than block data", path=key)
        start = at + struct.calcsize(layout)
        if start > len(data):
            raise LogFormatError("a truncated Java log entry", path=key)
        _, length = struct.unpack_from(layout, data, at)
        at = start + length
        if length <= 0:
            raise LogFormatError(f"a Java log entry with a block of {length} bytes", path=key)
        if at > len(data):
            raise LogFormatError("a truncated Java log entry", path=key)
        parts.append(data[start:at])
    return b"".join(parts)


def _block_head(length: int) -> bytes:
    return (
        struct.pack(">BB", _SHORT_BLOCK, length)
        if length <= 255
        else struct.pack(">Bi", _LONG_BLOCK, length)
    )


def _text_bytes(text: str) -> bytes:
    raw = _modified_utf8(text)
    if len(raw) > _MAX_TEXT:
        raise LogFormatError(
            f"text of {len(raw)} bytes; a Java log entry holds at most {_MAX_TEXT}"
        )
    return struct.pack(">H", len(raw)) + raw


def _modified_utf8(text: str) -> bytes:
    units = text.encode("utf-16-be")
    surrogates = "".join(map(chr, struct.unpack(f">{len(units) // 2}H", units)))
    return surrogates.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")
