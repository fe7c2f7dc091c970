"""Dumps as JSON lines: header, an entry a line in the form of the operation log, and an end with a
checksum of all before it. ASCII, so that any tool can split it into lines."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import BinaryIO

from s3k_async._native import Entries
from s3k_async.errors import CorruptDataError, LogFormatError
from s3k_async.migrate.dump_format import (
    CHUNK,
    DumpEnd,
    DumpHeader,
    dump_line,
    parse,
    parse_end,
    parse_header,
)
from s3k_async.model import Entry
from s3k_async.oplog.entries import entry_document, entry_from

__all__ = ["JsonLinesReader", "JsonLinesWriter"]

_END = b'{"s3k":"dump-end",'
_LONGEST = 1 << 20
"""Most bytes of a line, far above a partition key, a name and a physical key."""


class JsonLinesWriter:
    """Writer of a dump to an open binary file."""

    def __init__(self, file: BinaryIO, header: DumpHeader) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self._put(dump_line(header.document()))

    def write(self, entries: Entries) -> DumpEnd:
        """As DumpWriter."""
        # Without directory keys, so that either layout can load the dump.
        plain = [replace(entry, pending="", directory="") for entry in entries]
        self._put(b"".join(dump_line(entry_document(entry)) for entry in plain))
        return DumpEnd().of(plain)

    def finish(self, end: DumpEnd) -> None:
        """As DumpWriter."""
        self._put(dump_line({"s3k": "dump-end", **asdict(end), "sha256": self._digest.hexdigest()}))

    def _put(self, data: bytes) -> None:
        self._digest.update(data)
        self._file.write(data)


class JsonLinesReader:
    """Reader of a dump of JSON lines."""

    def __init__(self, path: str) -> None:
        self._path = path

    def header(self) -> DumpHeader:
        """As DumpReader."""
        with open(self._path, "rb") as file:
            return parse_header(self._line_of(file), self._path)

    def chunks(self) -> Iterator[tuple[list[Entry], DumpEnd | None]]:
        """As DumpReader."""
        digest = hashlib.sha256()
        entries: list[Entry] = []
        with open(self._path, "rb") as file:
            digest.update(self._line_of(file))
            while line := self._line_of(file):
                if line.startswith(_END):
                    yield entries, self._end(line, digest.hexdigest(), file)
                    return
                digest.update(line)
                entries.append(self._entry(line))
                if len(entries) == CHUNK:
                    yield entries, None
                    entries = []
        yield entries, None

    def _line_of(self, file: BinaryIO) -> bytes:
        line = file.readline(_LONGEST)
        if line and not line.endswith(b"\n"):
            raise CorruptDataError("the file is no dump, or was cut", path=self._path)
        return line

    def _entry(self, line: bytes) -> Entry:
        try:
            entry = entry_from(parse(line, self._path), self._path)
        except LogFormatError as error:
            raise CorruptDataError(
                f"an entry of the dump is damaged: {error.message}", path=self._path
            ) from error
        # A draft of layout `tree` wrote directory keys.
        return replace(entry, directory="") if entry.directory else entry

    def _end(self, line: bytes, digest: str, file: BinaryIO) -> DumpEnd:
        document = parse(line, self._path)
        if document.get("sha256") != digest:
            raise CorruptDataError("the dump is damaged: its checksum is another", path=self._path)
        if file.read(1):
            raise CorruptDataError("the file continues after the dump's end", path=self._path)
        return parse_end(document, self._path)
