"""Lists of paths or path pairs in a file or on standard input: validated whole, then read in
chunks.

A line is a path, or two with a tab between them. If the first line begins like JSON, every line is
JSON: a text or an object with `path` for a path, a list of two texts or an object with `source` and
`target` for a pair. Or all paths are terminated by NUL, in pairs too. There are no comments and no
empty lines, except where a command allows them; there a byte order mark and CRLF line endings are
allowed, too. A list may be larger than memory.

A path is an address, except that a `/path` in a JSON object, as listings write it, is a path in the
default volume, whatever characters it has.
"""

from __future__ import annotations

import codecs
import json
import os
import stat
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO, Final, Literal

from s3k_async._core.paths import normalize
from s3k_async._core.worker_threads import in_thread
from s3k_async.bulk import local_tree
from s3k_async.cli.standard_input import pieces_of, standard_input
from s3k_async.cli.volume_addresses import Address, parse_address
from s3k_async.errors import InvalidArgumentError, InvalidPathError

__all__ = ["STANDARD_INPUT", "PathList", "open_list"]

STANDARD_INPUT: Final = "-"
LONGEST: Final = 64 * 1024
"""Most bytes of a record, far above the paths of a volume."""
CHUNK: Final = 10_000
"""Records in a chunk."""

_READ: Final = 1024 * 1024
_JSON: Final = (b"{", b"[", b'"')
_OBJECT: Final = b"{"
_FIELDS: Final = {1: ("path",), 2: ("source", "target")}

Record = tuple[str, ...]
"""The normalised paths of one record."""


@dataclass(frozen=True, slots=True)
class PathList:
    """A validated list."""

    volume: Address | None
    """The address in the first record: that of all records, unless the list has several volumes.
    None for an empty list."""
    count: int
    """Number of records."""
    name: str
    """The file, for errors."""
    _reader: _Reader

    async def chunks(self) -> AsyncGenerator[list[Record], None]:
        """The records, up to CHUNK at a time. Raises InvalidArgumentError if the file was changed
        since validation."""
        records = self._reader.records()
        while chunk := await in_thread(lambda: [each for each, _ in islice(records, CHUNK)]):
            yield chunk

    async def chunks_by_volume(self) -> AsyncGenerator[tuple[str | None, list[str]], None]:
        """The address of each volume, and its normalised paths in a chunk. Raises the errors of
        `chunks`."""
        records = self._reader.records()
        while chunk := await in_thread(lambda: list(islice(records, CHUNK))):
            found: dict[str | None, list[str]] = {}
            for paths, addresses in chunk:
                for path, address in zip(paths, addresses, strict=True):
                    found.setdefault(address.volume, []).append(path)
            for volume, some in found.items():
                yield volume, some


@asynccontextmanager
async def open_list(
    file: str, fields: Literal[1, 2], *, null: bool, literal: bool = False, annotated: bool = False
) -> AsyncIterator[PathList]:
    """A list of paths (1 field) or pairs (2). `literal`: every `/path` is one in the default
    volume, as in JSON objects. `annotated`: lines may be empty or begin with `#`, the list may
    begin with a byte order mark and have CRLF line endings, and the paths may be of several
    volumes. Raises InvalidArgumentError with the first invalid line, and the errors of local files.
    A stream is kept in a temporary file, since it cannot be read twice."""
    stream = await _opened(file)
    try:
        name = "standard input" if file == STANDARD_INPUT else file
        reader = _Reader(stream, name, fields, null, literal, annotated)
        volume, count = await in_thread(reader.check)
        yield PathList(volume, count, name, reader)
    finally:
        await in_thread(stream.close)


async def _opened(file: str) -> BinaryIO:
    if file == STANDARD_INPUT:
        return await _kept(standard_input())
    with local_tree.local_errors(file):
        descriptor = await in_thread(os.open, file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise InvalidArgumentError("a list is a file, not a directory", path=file)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return os.fdopen(os.dup(descriptor), "rb", buffering=0)
        return await _kept(pieces_of(descriptor))
    finally:
        os.close(descriptor)


async def _kept(pieces: AsyncGenerator[bytes, None]) -> BinaryIO:
    """A temporary file with the contents of a stream."""
    where = tempfile.gettempdir()
    with local_tree.local_errors(where):
        kept = await in_thread(tempfile.TemporaryFile)
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    await in_thread(kept.write, piece)
            await in_thread(kept.flush)
        except BaseException:
            kept.close()
            raise
    return kept


class _Reader:
    """Reader of a list's records, any number of times."""

    def __init__(
        self,
        stream: BinaryIO,
        name: str,
        fields: Literal[1, 2],
        null: bool,
        literal: bool,
        annotated: bool,
    ) -> None:
        self._stream = stream
        self._name = name
        self._fields = fields
        self._null = null
        self._literal = literal
        self._annotated = annotated

    def check(self) -> tuple[Address | None, int]:
        """Read the whole list; returns an address of its volume and the number of records."""
        first: Address | None = None
        count = 0
        for _, addresses in self.records():
            count += 1
            first = first or addresses[0]
            for address in addresses:
                if address.volume != first.volume and not self._annotated:
                    raise self._wrong(count, f"{address} is of another volume than {first}")
        return first, count

    def records(self) -> Iterator[tuple[Record, list[Address]]]:
        """Paths, and their addresses as given."""
        is_json: bool | None = False if self._null else None
        for number, raw in enumerate(self._raw(), start=1):
            if self._annotated and not self._null and _is_note(raw[0]):
                continue
            if is_json is None:
                is_json = raw[0].startswith(_JSON)
            texts = self._from_json(raw[0], number) if is_json else self._texts(raw, number)
            literal = self._literal or (is_json and raw[0].lstrip().startswith(_OBJECT))
            addresses = [self._address(text, number, literal=literal) for text in texts]
            if self._fields == 2 and addresses[1].is_into and addresses[1].path != "/":
                raise self._wrong(number, "a target is the new path itself, without a / at the end")
            yield tuple(self._normalized(address, number) for address in addresses), addresses

    def _raw(self) -> Iterator[list[bytes]]:
        """The raw records; with NUL the fields of each."""
        pieces = self._pieces(b"\0" if self._null else b"\n")
        if not self._null:
            yield from ([line] for line in (_lines(pieces) if self._annotated else pieces))
            return
        number = 0
        while fields := list(islice(pieces, self._fields)):
            number += 1
            if len(fields) < self._fields:
                raise self._wrong(number, "the last pair has no target")
            yield fields

    def _pieces(self, separator: bytes) -> Iterator[bytes]:
        rest = b""
        self._stream.seek(0)
        while True:
            with local_tree.local_errors(self._name):
                data = self._stream.read(_READ)
            *whole, rest = (rest + data).split(separator)
            yield from whole
            if len(rest) > LONGEST:
                raise InvalidArgumentError(
                    f"a path of more than {LONGEST:,} bytes: {rest[:60]!r}...", path=self._name
                )
            if not data:
                break
        if rest:
            yield rest

    def _texts(self, raw: list[bytes], number: int) -> list[str]:
        try:
            texts = [field.decode() for field in raw]
        except UnicodeDecodeError as error:
            raise self._wrong(number, "not UTF-8") from error
        if not self._null and self._fields == 2:
            texts = texts[0].split("\t")
        if len(texts) != self._fields:
            raise self._wrong(
                number, f"a pair is two paths with one tab between them, and here are {len(texts)}"
            )
        return texts

    def _from_json(self, raw: bytes, number: int) -> list[str]:
        try:
            value = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise self._wrong(number, f"not JSON: {error}") from error
        names = _FIELDS[self._fields]
        if isinstance(value, dict):
            value = [value.get(name) for name in names]
        elif self._fields == 1:
            value = [value]
        texts = [text for text in value if isinstance(text, str)] if isinstance(value, list) else []
        if len(texts) != self._fields or value != texts:
            what = "a text" if self._fields == 1 else "a list of two texts"
            raise self._wrong(number, f"not {what}, nor an object with {' and '.join(names)}")
        return texts

    def _address(self, text: str, number: int, *, literal: bool) -> Address:
        if not text:
            raise self._wrong(number, "a path is missing")
        if literal and text.startswith("/"):
            return Address(None, text, text)
        try:
            return parse_address(text)
        except InvalidArgumentError as error:
            raise self._wrong(number, error.message) from error

    def _normalized(self, address: Address, number: int) -> str:
        try:
            return normalize(address.path)
        except InvalidPathError as error:
            raise self._wrong(number, f"{error.message}: {address}") from error

    def _wrong(self, number: int, reason: str) -> InvalidArgumentError:
        what = "record" if self._null else "line"
        return InvalidArgumentError(f"{what} {number:,}: {reason}", path=self._name)


def _lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Lines without the byte order mark and the carriage returns that some editors add."""
    yield next(pieces, b"").removeprefix(codecs.BOM_UTF8).removesuffix(b"\r")
    for piece in pieces:
        yield piece.removesuffix(b"\r")


def _is_note(line: bytes) -> bool:
    """Whether a line is empty or a comment."""
    return not line.strip() or line.startswith(b"#")
