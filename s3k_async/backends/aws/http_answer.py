"""A parser of HTTP/1.1 answers, as bytes of a connection arrive.

Messages as in RFC 9112, read strictly: what that standard lets a recipient repair or guess is an
error here (line feeds alone, folded fields, two lengths, a length beside a transfer coding), since
another reading of the same bytes might be another body.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeVar, overload

from s3k_async import _native
from s3k_async._core.bytes_in_place import BytesInPlace
from s3k_async.errors import ResponseLostError

__all__ = ["AnswerHeaders", "AnswerParser", "broken_off", "too_long"]

T = TypeVar("T")

_MOST_HEAD: Final = 64 * 1024
"""Bytes of a head, at most."""
_MOST_LINE: Final = 8 * 1024
"""Bytes of the line of a chunk, or of the trailers, at most."""
_LARGE: Final = 64 * 1024
"""Bytes of a body from which on it is received in place, if its length is known."""
_MOST_INFORMATIONAL: Final = 16
"""Informational answers before the answer, at most."""
_SWITCHING: Final = 101
_PARTIAL: Final = 206

_TEXT = rb"[\t\x20-\x7e\x80-\xff]*+"
_FIELDS = rb"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]++:" + _TEXT + rb"\r\n)*+"
_START = b"HTTP/1."
_CHUNK = re.compile(rb"\r\n([0-9A-Fa-f]{1,15})(?:[ \t]*+;" + _TEXT + rb")?\r\n")
_PART_OF_CHUNK = re.compile(rb"(?:\r(?:\n(?:[0-9A-Fa-f]{1,15}[ \t]*+(?:;" + _TEXT + rb")?\r?)?)?)?")
_TRAILERS = re.compile(_FIELDS + rb"\r\n")


class AnswerHeaders(Mapping[str, str]):
    """The header fields of an answer, with names in any case."""

    __slots__ = ("_fields",)

    def __init__(self, fields: dict[str, str]) -> None:
        """`fields`: by name in lower case."""
        self._fields = fields

    def __repr__(self) -> str:
        return f"AnswerHeaders({self._fields!r})"

    def __getitem__(self, name: str) -> str:
        return self._fields[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    @overload
    def get(self, key: str, /) -> str | None: ...
    @overload
    def get(self, key: str, default: str | T, /) -> str | T: ...
    def get(self, key: str, default: str | T | None = None, /) -> str | T | None:
        return self._fields.get(key.lower(), default)


class AnswerParser:
    """One answer.

    `is_bodiless`: the request is HEAD; `most`: bytes of the body, at most. `into`: a buffer for the
    body of an answer with status 206 that has a length and fits; `body` is empty then.
    """

    status = 0
    """0 until the head is whole."""
    headers = AnswerHeaders({})
    size = 0
    """Bytes of the body so far."""
    is_whole = False
    is_persistent = True
    """Whether another request may follow on the connection."""
    may_continue = False
    """Whether the service asked for the body of the request (100 Continue)."""
    _informational = 0
    _is_chunked = False
    _left: int | None = None
    """Missing bytes of the body, or of the present chunk; None: until the connection ends."""
    _place: BytesInPlace | None = None
    """Of a large body: without a copy, and each page of memory is used once."""
    _space: memoryview | None = None
    """For the missing bytes of a large body, or of one that is put into the buffer."""

    def __init__(self, *, is_bodiless: bool, most: int, into: memoryview | None = None) -> None:
        self._is_bodiless = is_bodiless
        self._most = most
        self._into = into
        self._pieces: list[bytes] = []
        self._rest = bytearray()
        """The beginning of a head, or of the line of a chunk."""

    @property
    def body(self) -> bytes:
        """The whole body. Nothing more can be received."""
        if self._place is not None:
            self._space = None
            return self._place.getvalue()
        pieces = self._pieces
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def feed(self, data: bytes) -> None:
        """Read bytes. Raises ResponseLostError for a malformed answer and for one over the
        limit."""
        if self.status:
            self._read_body(data, 0)
        elif self._rest:
            self._continue_head(data)
        else:
            self._read_head(data)

    def room(self) -> memoryview | None:
        """Space for the rest of a large body, which saves a copy; None for other bytes."""
        return self._space if self._left else None

    def fill(self, size: int) -> None:
        """Note that the first `size` bytes of `room` were read."""
        assert self._space is not None
        assert self._left is not None
        self._space = self._space[size:]
        self._left -= size
        self.size += size
        self.is_whole = self._left == 0

    def end(self) -> None:
        """Note the orderly end of the connection. Raises ResponseLostError for half an answer."""
        if self.status and self._left is None:
            self.is_whole = True
        else:
            raise broken_off()

    def _continue_head(self, data: bytes) -> None:
        """Read on in a head of which a part came before; not all of it again for each byte."""
        rest = self._rest
        known = len(rest)
        rest += data
        if rest.find(b"\r\n\r\n", max(0, known - 3)) < 0:
            self._check_part(known)
            return
        self._rest = bytearray()
        self._read_head(bytes(rest))

    def _read_head(self, data: bytes) -> None:
        at = 0
        while (found := _native.answer_head(data, at)) is not None:
            status, end, fields, length, is_chunked, is_persistent = found
            if end - at > _MOST_HEAD:
                raise _malformed("a head over the limit")
            at = end
            if status >= 200:
                self.status = status
                self.headers = AnswerHeaders(fields)
                self.is_persistent = is_persistent
                if length == len(data) - at and self._is_simple(length):
                    self._left, self.size, self.is_whole = 0, length, True
                    self._pieces.append(data[at:])
                else:
                    self._frame(length, is_chunked=is_chunked)
                    self._read_body(data, at)
                return
            self._informational += 1
            if status == _SWITCHING or self._informational > _MOST_INFORMATIONAL:
                raise _malformed("informational answers")
            self.may_continue = self.may_continue or status == 100
        if data.find(b"\r\n\r\n", at) >= 0:
            raise _malformed("the head")
        self._rest += data[at:]
        self._check_part(0)

    def _check_part(self, known: int) -> None:
        """Raise ResponseLostError if no head can begin so, of which `known` bytes were checked."""
        rest = self._rest
        if (
            len(rest) > _MOST_HEAD
            or not _START.startswith(rest[: len(_START)])
            or rest.count(b"\n", known) != rest.count(b"\r\n", max(0, known - 1))
        ):
            raise _malformed("the head")

    def _is_simple(self, length: int) -> bool:
        """Whether an answer that came with its head is just the next `length` bytes, as most are:
        neither `_frame` nor `_read_body` is needed."""
        return (
            length <= self._most
            and self._into is None
            and not self._is_bodiless
            and self.status not in (204, 304)
        )

    def _frame(self, length: int | None, *, is_chunked: bool) -> None:
        """Find out where the body ends."""
        if self._is_bodiless:
            self._left = 0
        elif self.status in (204, 304):
            self._left = 0
            if is_chunked or length:
                # A body may follow against the rules.
                self.is_persistent = False
        elif is_chunked:
            self._is_chunked = True
            self._left = 0
            self._rest += b"\r\n"  # with that before each other chunk
        elif length is not None:
            self._left = length
            if length > self._most:
                raise too_long(self._most)
            if self._into is not None and self.status == _PARTIAL and length <= len(self._into):
                self._space = self._into[:length]
            elif length >= _LARGE:
                self._place = BytesInPlace(length)
                self._space = self._place.getbuffer()
        else:
            self.is_persistent = False

    def _read_body(self, data: bytes, at: int) -> None:
        if self._is_chunked:
            self._read_chunks(bytes(self._rest) + data[at:])
            return
        left = self._left
        found = len(data) - at
        if left is not None and found >= left:
            if found > left:
                self.is_persistent = False
            found, self._left, self.is_whole = left, 0, True
        elif left is not None:
            self._left = left - found
        if self._space is not None:
            self._space[:found] = memoryview(data)[at : at + found]
            self._space = self._space[found:]
            self.size += found
        elif found:
            self._pieces.append(data[at : at + found] if found < len(data) else data)
            self.size += found
            if self.size > self._most:
                raise too_long(self._most)

    def _read_chunks(self, data: bytes) -> None:
        self._rest.clear()
        pieces: list[bytes] = []
        at = 0
        while True:
            if self._left:
                piece = data[at : at + self._left]
                pieces.append(piece)
                at += len(piece)
                self.size += len(piece)
                self._left -= len(piece)
                if self._left:
                    break
            line = _CHUNK.match(data, at)
            if line is None:
                self._keep(data[at:], _PART_OF_CHUNK.fullmatch(data, at) is not None)
                break
            self._left = int(line[1], 16)
            if not self._left:
                last = _TRAILERS.match(data, line.end())
                if last is None:
                    self._keep(data[at:], data.find(b"\r\n\r\n", line.end() - 2) < 0)
                else:
                    self.is_whole = True
                    self.is_persistent = self.is_persistent and last.end() == len(data)
                break
            if self.size + self._left > self._most:
                raise too_long(self._most)
            at = line.end()
        if pieces:
            self._pieces.append(b"".join(pieces))

    def _keep(self, rest: bytes, is_possible: bool) -> None:
        """Keep the beginning of a chunk's line, or of the trailers, for the next bytes."""
        if not is_possible or len(rest) > _MOST_LINE:
            raise _malformed("a chunk")
        self._rest += rest


def broken_off() -> ResponseLostError:
    """The error for half an answer."""
    return ResponseLostError("the connection broke before the whole answer came")


def too_long(most: int) -> ResponseLostError:
    """The error for an answer over the limit."""
    return ResponseLostError(
        f"the answer has more than the {most} bytes that the request can ask for"
    )


def _malformed(what: str) -> ResponseLostError:
    return ResponseLostError(f"the answer cannot be understood ({what})")
