"""The dump format: a header, entries with each directory before its children, and an end with
counts.

All forms hold the same: JSON lines, Parquet, and a directory of Parquet files (`dump_parts`).
`dump_reader.open_dump` reads each of them. A file that was cut, or is no dump, raises
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

FORMAT: Final = 1
"""The format of dumps that is written, and the newest that is read."""
CHUNK: Final = 5000
"""Entries that are in memory at once."""
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class DumpHeader:
    """What was dumped."""

    volume: str
    volume_id: str
    suffix_count: int
    hash: HashName
    data: str
    """Where the volume's bytes are, as its record names it."""
    path: str
    """The directory that was dumped."""
    uncommitted: bool
    """Whether reservations are in it."""
    time_ms: int
    """When the dump began."""

    def document(self) -> dict[str, Any]:
        """The header as a JSON object."""
        return {"s3k": "dump", "format": FORMAT, **asdict(self)}


@dataclass(frozen=True, slots=True)
class DumpEnd:
    """What a dump holds. `bytes`: of the files, as their entries tell it."""

    entries: int = 0
    files: int = 0
    directories: int = 0
    bytes: int = 0

    def plus(self, files: int, directories: int, size: int) -> DumpEnd:
        """With so many more."""
        return DumpEnd(
            self.entries + files + directories,
            self.files + files,
            self.directories + directories,
            self.bytes + size,
        )

    def of(self, entries: Sequence[Entry]) -> DumpEnd:
        """With these entries more."""
        directories = sum(entry.is_dir for entry in entries)
        return self.plus(
            len(entries) - directories, directories, sum(entry.size for entry in entries)
        )


class DumpWriter(Protocol):
    """Writes one dump. Used from one thread at a time."""

    def write(self, entries: Entries) -> DumpEnd:
        """Add entries; what they come to."""

    def finish(self, end: DumpEnd) -> None:
        """End the dump; it is whole from then on."""


class DumpReader(Protocol):
    """Reads one dump, as often as it is asked to."""

    def header(self) -> DumpHeader: ...

    def chunks(self) -> Iterator[tuple[list[Entry], DumpEnd | None]]:
        """The entries, at most CHUNK at once; with the last ones, which may be none, what the
        dump's end tells."""


class DumpFile:
    """A dump in a file, or in a directory that has the file `summed`, which names all others by
    their checksums."""

    def __init__(self, path: str, reader: DumpReader, *, summed: str | None = None) -> None:
        self.path = path
        self._reader = reader
        self._summed = summed or path
        self.header = reader.header()

    def chunks(self) -> Generator[list[Entry], None, None]:
        """The entries in portions, the same ones each time. Raises CorruptDataError at the latest
        at the end."""
        counted = DumpEnd()
        told: DumpEnd | None = None
        for entries, end in self._reader.chunks():
            told = end
            counted = counted.of(entries)
            if entries:
                yield entries
        if told is None:
            raise CorruptDataError("the dump was cut: its end is missing", path=self.path)
        if told != counted:
            raise CorruptDataError(
                f"the dump's end tells of {told}, but it holds {counted}", path=self.path
            )

    def verify(self) -> DumpEnd:
        """Read all of it; what it holds. Raises CorruptDataError."""
        end = DumpEnd()
        for chunk in self.chunks():
            end = end.of(chunk)
        return end

    def digest(self) -> str:
        """What names the dump: SHA-256 of the file, hexadecimal."""
        return file_digest(self._summed)


def file_digest(path: str) -> str:
    """SHA-256 of a file, hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def dump_line(document: Mapping[str, Any]) -> bytes:
    """A line of a dump: ASCII, so that any tool can cut it at its lines."""
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
