"""Dumps as a directory of parts, for concurrent writers and readers: Parquet files and a manifest.

Each file, a *part*, is a dump by itself (`parquet.py`), of directories or of files. The manifest is
written last, so that a directory without one is no dump. It is JSON lines: the header of the dump,
a line for each part in the order in which they are read, the end with a checksum of all before it.
Parts of directories come first, those of a lower level before those of a higher one, so that a
directory precedes its children.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO, Final, Literal, TypeAlias

from s3k_async._core.file_modes import make_directories, open_private
from s3k_async._core.os_errors import os_errors, sync_directory
from s3k_async._native import Entries
from s3k_async.errors import CorruptDataError, InvalidArgumentError
from s3k_async.migrate.atomic_file import appearing, flush
from s3k_async.migrate.dump_format import (
    DumpEnd,
    DumpFile,
    DumpHeader,
    dump_line,
    file_digest,
    parse,
    parse_end,
    parse_header,
    parse_record,
)
from s3k_async.migrate.dump_parquet import ParquetReader, ParquetWriter
from s3k_async.model import Entry

__all__ = [
    "MANIFEST",
    "DumpPart",
    "Manifest",
    "PartWriter",
    "PartsReader",
    "make_room",
    "part_chunks",
    "read_manifest",
    "sweep_parts",
    "write_manifest",
]

MANIFEST: Final = "manifest.jsonl"
PART_ENTRIES: Final = 1_000_000
"""Entries of a part after which another one starts."""
_OURS: Final = re.compile(rf"s3k-dump-.+\.parquet|{re.escape(MANIFEST)}\..+\.part")
"""Files of an interrupted dump."""

Holds: TypeAlias = Literal["directories", "files"]


@dataclass(frozen=True, slots=True)
class DumpPart:
    """One file of a dump."""

    name: str
    holds: Holds
    level: int
    """Level of directories, read in ascending order: parents are of lower levels. 0 for files."""
    entries: int
    bytes: int
    """Bytes of the files, by their entries."""
    size: int
    sha256: str

    @property
    def end(self) -> DumpEnd:
        """Its counts."""
        if self.holds == "directories":
            return DumpEnd(self.entries, 0, self.entries, self.bytes)
        return DumpEnd(self.entries, self.entries, 0, self.bytes)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The header and parts of a dump."""

    header: DumpHeader
    parts: tuple[DumpPart, ...]
    """In the order of reading."""

    @classmethod
    def of(cls, header: DumpHeader, parts: Iterable[DumpPart]) -> Manifest:
        """The manifest of parts; those of one writer are given in the order of writing."""
        return cls(
            header, tuple(sorted(parts, key=lambda part: (part.holds == "files", part.level)))
        )

    @property
    def end(self) -> DumpEnd:
        """The counts of the dump."""
        end = DumpEnd()
        for part in self.parts:
            end = end.plus(part.end.files, part.end.directories, part.bytes)
        return end


class PartWriter:
    """Writes entries of one kind into the parts `s3k-dump-<name>-<number>.parquet` of a
    directory."""

    def __init__(
        self, directory: str, header: DumpHeader, name: str, holds: Holds, level: int = 0
    ) -> None:
        self._directory = directory
        self._header = header
        self._name = name
        self._holds: Holds = holds
        self._level = level
        self._parts: list[DumpPart] = []
        self._file: BinaryIO | None = None
        self._writer: ParquetWriter | None = None
        self._end = DumpEnd()

    def write(self, entries: Entries) -> None:
        """Add entries."""
        if not entries:
            return
        with os_errors(self._path):
            if self._writer is None:
                # Open until the part is finished.
                self._file = open(self._path, "xb", opener=open_private)  # noqa: SIM115
                self._writer = ParquetWriter(self._file, self._header)
            more = self._writer.write(entries)
            self._end = self._end.plus(more.files, more.directories, more.bytes)
            if self._end.entries >= PART_ENTRIES:
                self._finish_part()

    def finish(self) -> list[DumpPart]:
        """The parts, durable."""
        with os_errors(self._path):
            if self._writer is not None:
                self._finish_part()
            if self._parts:
                sync_directory(self._directory)
        return self._parts

    def drop(self) -> None:
        """Remove the written files."""
        names = [part.name for part in self._parts]
        if self._writer is not None:
            self._writer.drop()
        if self._file is not None:
            self._file.close()
            names.append(os.path.basename(self._path))
        for name in names:
            with suppress(OSError):
                os.unlink(os.path.join(self._directory, name))

    @property
    def _path(self) -> str:
        return os.path.join(
            self._directory, f"s3k-dump-{self._name}-{len(self._parts):04d}.parquet"
        )

    def _finish_part(self) -> None:
        assert self._writer is not None
        assert self._file is not None
        self._writer.finish(self._end)
        flush(self._file)
        self._file.close()
        path, end = self._path, self._end
        self._writer, self._file, self._end = None, None, DumpEnd()
        self._parts.append(
            DumpPart(
                name=os.path.basename(path),
                holds=self._holds,
                level=self._level,
                entries=end.entries,
                bytes=end.bytes,
                size=os.path.getsize(path),
                sha256=file_digest(path),
            )
        )


class PartsReader:
    """Reader of a dump in a directory, part by part."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._manifest = read_manifest(path)

    def header(self) -> DumpHeader:
        """As DumpReader."""
        return self._manifest.header

    def chunks(self) -> Iterator[tuple[list[Entry], DumpEnd | None]]:
        """As DumpReader."""
        for part in self._manifest.parts:
            for entries in part_chunks(self._path, self._manifest.header, part):
                yield entries, None
        yield [], self._manifest.end


def part_chunks(
    directory: str, header: DumpHeader, part: DumpPart
) -> Generator[list[Entry], None, None]:
    """The entries of one part, at most CHUNK at once. Raises CorruptDataError at the latest at its
    end, unless it is the part in the manifest."""
    path = os.path.join(directory, part.name)
    try:
        if (os.path.getsize(path), file_digest(path)) != (part.size, part.sha256):
            raise CorruptDataError("a part of the dump was cut, or is another", path=path)
    except FileNotFoundError as error:
        raise CorruptDataError("a part of the dump is missing", path=path) from error
    dump, found = DumpFile(path, ParquetReader(path)), DumpEnd()
    if dump.header != header:
        raise CorruptDataError("a part of the dump is another dump's", path=path)
    for entries in dump.chunks():
        found = found.of(entries)
        yield entries
    if found != part.end:
        raise CorruptDataError(
            f"the manifest of the dump states {part.end}, but there is {found}", path=path
        )


def read_manifest(directory: str) -> Manifest:
    """The manifest of a dump in a directory. Raises CorruptDataError, also if it is no dump."""
    path = os.path.join(directory, MANIFEST)
    try:
        with open(path, "rb") as file:
            lines = file.read().splitlines(keepends=True)
    except FileNotFoundError as error:
        raise CorruptDataError(
            "no dump, or one that was interrupted: the manifest is missing", path=path
        ) from error
    if len(lines) < 2 or not lines[-1].endswith(b"\n"):
        raise CorruptDataError("the manifest was cut", path=path)
    end = parse(lines[-1], path)
    if end.get("sha256") != hashlib.sha256(b"".join(lines[:-1])).hexdigest():
        raise CorruptDataError(
            "the manifest was cut or is damaged: its checksum is another", path=path
        )
    parts = tuple(_part(parse(line, path), path) for line in lines[1:-1])
    manifest = Manifest(parse_header(lines[0], path), parts)
    if parse_end(end, path) != manifest.end:
        raise CorruptDataError("the manifest's end is another than that of its parts", path=path)
    return manifest


def write_manifest(directory: str, manifest: Manifest) -> None:
    """Write the manifest, which completes a dump. Raises InvalidArgumentError if the directory
    lacks parts: their writers do not share it."""
    for part in manifest.parts:
        path = os.path.join(directory, part.name)
        with os_errors(path):
            if not os.path.exists(path) or os.path.getsize(path) != part.size:
                raise InvalidArgumentError(
                    "a part of the dump that was written is not here: all that write it need to "
                    "share the directory",
                    path=path,
                )
    body = b"".join(
        dump_line(each) for each in (manifest.header.document(), *map(asdict, manifest.parts))
    )
    end = {"s3k": "dump-end", **asdict(manifest.end), "sha256": hashlib.sha256(body).hexdigest()}
    with appearing(os.path.join(directory, MANIFEST)) as file:
        file.write(body + dump_line(end))


def make_room(directory: str) -> None:
    """Make the directory for a dump; files of an interrupted one are removed. Raises
    InvalidArgumentError if there are others."""
    with os_errors(directory):
        if os.path.lexists(directory) and not os.path.isdir(directory):
            raise InvalidArgumentError("a dump in parts needs a directory", path=directory)
        make_directories(directory)
        for name in os.listdir(directory):
            if name == MANIFEST:
                raise InvalidArgumentError(
                    "there is a dump in the directory already", path=directory
                )
            if not _OURS.fullmatch(name):
                raise InvalidArgumentError(
                    f"there is something else in the directory: {name}", path=directory
                )
    sweep_parts(directory, keep=())


def sweep_parts(directory: str, keep: Iterable[DumpPart]) -> None:
    """Remove the files of superseded attempts."""
    kept = {MANIFEST, *(part.name for part in keep)}
    for name in os.listdir(directory):
        if name not in kept and _OURS.fullmatch(name):
            with suppress(OSError):
                os.unlink(os.path.join(directory, name))


def _part(document: dict[str, Any], path: str) -> DumpPart:
    part: DumpPart = parse_record(DumpPart, document, path)
    if (
        part.holds not in ("directories", "files")
        or os.path.basename(part.name) != part.name
        or not part.name
    ):
        raise CorruptDataError("a line of the manifest is damaged", path=path)
    return part
