"""The dump format: a header, entries with each directory before its children, and an end with
counts.

Forms with the same content: JSON lines, Parquet, and a directory of Parquet files (`dump_parts`).
`dump_reader.open_dump` reads each of them. A truncated file, or one that is no dump, raises
CorruptDataError with its path.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Literal, Protocol, TypeAlias, get_args

from s3k_async._native import Entries
from s3k_async.errors import CorruptDataError
from s3k_async.model import Entry, HashName

__all__ = [
    "CHUNK",
    "FORMAT",
    "DumpEnd",
    "DumpFile",
    "DumpForm",
    "DumpHeader",
    "DumpReader",
    "DumpWriter",
    "dump_line",
    "file_digest",
    "parse",
    "parse_end",
    "parse_header",
    "parse_record",
]

DumpForm: TypeAlias = Literal["jsonl", "parquet"]

FORMAT: Final = 2
"""The written format of dumps, and the newest readable one. Format 1 has no attributes."""
CHUNK: Final = 5000
"""Entries in memory at once."""
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class DumpHeader:
    """Header of a dump."""

    volume: str
    volume_id: str
    suffix_count: int
    hash: HashName
    data: str
    """The data location in the volume's record."""
    path: str
    """The dumped directory."""
    uncommitted: bool
    """Whether it includes reservations."""
    time_ms: int
    """Start time of the dump."""

    def document(self) -> dict[str, Any]:
        """The header as a JSON object."""
        return {"s3k": "dump", "format": FORMAT, **asdict(self)}


@dataclass(frozen=True, slots=True)
class DumpEnd:
    """Counts of a dump. `bytes`: of the files, by their entries."""

    entries: int = 0
    files: int = 0
    directories: int = 0
    bytes: int = 0

    def plus(self, files: int, directories: int, size: int) -> DumpEnd:
        """The sum with further counts."""
        return DumpEnd(
            self.entries + files + directories,
            self.files + files,
            self.directories + directories,
            self.bytes + size,
        )

    def of(self, entries: Sequence[Entry]) -> DumpEnd:
        """The sum with further entries."""
        directories = sum(entry.is_dir for entry in entries)
        return self.plus(
            len(entries) - directories, directories, sum(entry.size for entry in entries)
        )


class DumpWriter(Protocol):
    """Writer of one dump. For one thread at a time."""

    def write(self, entries: Entries) -> DumpEnd:
        """Add entries; returns their counts."""

    def finish(self, end: DumpEnd) -> None:
        """Write the end, which completes the dump."""


class DumpReader(Protocol):
    """Reader of one dump, any number of times."""

    def header(self) -> DumpHeader: ...

    def chunks(self) -> Iterator[tuple[list[Entry], DumpEnd | None]]:
        """The entries, at most CHUNK at once; the last chunk, which may be empty, comes with the
        dump's end."""


class DumpFile:
    """A dump in a file, or in a directory with the file `summed`, which has the checksums of all
    others."""

    def __init__(self, path: str, reader: DumpReader, *, summed: str | None = None) -> None:
        self.path = path
        self._reader = reader
        self._summed = summed or path
        self.header = reader.header()

    def chunks(self) -> Generator[list[Entry], None, None]:
        """The entries in chunks, always the same. Raises CorruptDataError at the latest at the
        end."""
        counted = DumpEnd()
        stated: DumpEnd | None = None
        for entries, end in self._reader.chunks():
            stated = end
            counted = counted.of(entries)
            if entries:
                yield entries
        if stated is None:
            raise CorruptDataError("the dump was cut: its end is missing", path=self.path)
        if stated != counted:
            raise CorruptDataError(
                f"the dump's end states {stated}, but it holds {counted}", path=self.path
            )

    def verify(self) -> DumpEnd:
        """Read the whole dump; returns its counts. Raises CorruptDataError."""
        end = DumpEnd()
        for chunk in self.chunks():
            end = end.of(chunk)
        return end

    def digest(self) -> str:
        """The dump's id: SHA-256 of the file, hexadecimal."""
        return file_digest(self._summed)


def file_digest(path: str) -> str:
    """SHA-256 of a file, hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def dump_line(document: Mapping[str, Any]) -> bytes:
    """A line of a dump: ASCII, so that any tool can split it into lines."""
    return (
        json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode(
            "ascii"
        )
        + b"\n"
    )


def parse_header(text: bytes, path: str) -> DumpHeader:
    """The header in its JSON text. Raises CorruptDataError."""
    document = parse(text, path)
    if document.get("s3k") != "dump" or type(document.get("format")) is not int:
        raise CorruptDataError("this is not a dump of a volume", path=path)
    if document["format"] > FORMAT:
        raise CorruptDataError(
            f"a dump of format {document['format']}; this version reads {FORMAT}", path=path
        )
    header: DumpHeader = parse_record(DumpHeader, document, path)
    if header.hash not in get_args(HashName) or header.suffix_count < 1:
        raise CorruptDataError("the dump's header is damaged", path=path)
    return header


def parse_end(document: Mapping[str, Any], path: str) -> DumpEnd:
    """The end of a dump. Raises CorruptDataError."""
    end: DumpEnd = parse_record(DumpEnd, document, path)
    return end


def parse(text: bytes, path: str) -> dict[str, Any]:
    """A JSON object. Raises CorruptDataError."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptDataError("a line of the dump is not JSON, or was cut", path=path) from error
    if not isinstance(document, dict):
        raise CorruptDataError("a line of the dump is no JSON object", path=path)
    return document


_KINDS: Final[dict[str, type]] = {
    "int": int,
    "str": str,
    "bool": bool,
    "HashName": str,
    "Holds": str,
}


def parse_record(cls: Any, document: Mapping[str, Any], path: str) -> Any:
    """A dataclass of plain fields from a JSON object. Raises CorruptDataError."""
    values = {field.name: document.get(field.name) for field in fields(cls)}
    for field in fields(cls):
        if type(values[field.name]) is not _KINDS[str(field.type)]:
            raise CorruptDataError(
                f"the field {field.name!r} of the dump is missing or damaged", path=path
            )
    return cls(**values)
