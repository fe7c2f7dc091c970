"""The candidate list between gc's mark and sweep phases: each candidate with the data for its
recheck.

A file of JSON lines: a header; the segments and checkpoints of the log; one line for each
candidate; an end with the counts. It gets its name when it is complete. Beside it, `<name>.done`
holds the number of candidates that a sweep has handled, so that an interrupted sweep can resume.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, Final, Self, TextIO

from s3k_async._core.file_modes import open_private
from s3k_async._core.file_replacement import replaceable
from s3k_async._core.os_errors import TEMPORARY_ROOM, os_errors
from s3k_async.backends.ports.blobs import BlobInfo
from s3k_async.errors import BusyError, InvalidArgumentError, PathNotFoundError
from s3k_async.integrity.gc_rules import Ages, Verdict
from s3k_async.oplog.segment_ids import SegmentIds

__all__ = ["CandidateReader", "CandidateWriter", "Header", "document_of", "verdict_from"]

FORMAT: Final = 1
_ROOM: Final = f"{TEMPORARY_ROOM}; or write the list to a file elsewhere (--list)"


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a list."""

    volume: str
    """Volume id."""
    marked_ms: int
    """The start of the mark phase, by the clock of the data store."""
    ages: Ages
    logged: bool
    """Whether the volume has a log."""


@dataclass(slots=True)
class End:
    """The last line of a list, with the results of the mark phase."""

    candidates: int = 0
    lost: int = 0
    digest: str = ""
    """The digest of the table; only for a volume without a log."""


class CandidateWriter:
    """Writes a list; after an exception no list remains. Raises NoSpaceError (the disk is full),
    PermissionDeniedError and ServiceError."""

    def __init__(self, path: str, header: Header) -> None:
        self._path = path
        self._header = header
        self.end = End()

    def __enter__(self) -> Self:
        self._place = replaceable(self._path)
        self._part = self._place + ".part"
        with self._writing():
            self._file = open(self._part, "w", encoding="ascii", opener=open_private)
        document = {"s3k": "gc-list", "format": FORMAT, **asdict(self._header)}
        self._line(document)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._discard()
            return
        try:
            self._line({"end": asdict(self.end)})
            with self._writing():
                self._file.flush()
                os.fsync(self._file.fileno())
                self._file.close()
                _forget(self._path + ".done")
                os.replace(self._part, self._place)
        except BaseException:
            self._discard()
            raise

    def segment(self, segment_id: str) -> None:
        """Add a segment of the log that was read."""
        self._line({"segment": segment_id})

    def checkpoint(self, key: str) -> None:
        """Add a checkpoint of the log that existed."""
        self._line({"checkpoint": key})

    def candidate(self, verdict: Verdict) -> None:
        """Add an unreferenced physical object."""
        self.end.candidates += 1
        self._line(document_of(verdict))

    def _line(self, document: dict[str, Any]) -> None:
        with self._writing():
            self._file.write(json.dumps(document, separators=(",", ":")) + "\n")

    def _writing(self) -> AbstractContextManager[None]:
        return os_errors(self._path, _ROOM)

    def _discard(self) -> None:
        with suppress(OSError):  # what is buffered does not fit either
            self._file.close()
        os.unlink(self._part)


@dataclass(slots=True)
class CandidateReader:
    """A list, open for a sweep. Raises PathNotFoundError, InvalidArgumentError (not a list of
    candidates)."""

    path: str
    header: Header = field(init=False)
    end: End = field(init=False)
    segments: SegmentIds = field(init=False, default_factory=SegmentIds)
    checkpoints: set[str] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        end: dict[str, Any] | None = None
        try:
            with _opened(self.path) as file:
                head = json.loads(file.readline())
                if head["s3k"] != "gc-list" or head["format"] != FORMAT:
                    raise InvalidArgumentError(
                        "not a list of candidates that this version reads", path=self.path
                    )
                self.header = Header(
                    head["volume"], head["marked_ms"], Ages(**head["ages"]), head["logged"]
                )
                for document in map(json.loads, file):
                    if "segment" in document:
                        self.segments.add(document["segment"])
                    elif "checkpoint" in document:
                        self.checkpoints.add(document["checkpoint"])
                    end = document.get("end")
            self.end = End(**(end or {})) if end is not None else _incomplete(self.path)
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, InvalidArgumentError):
                raise
            raise InvalidArgumentError("not a list of candidates", path=self.path) from error

    def batches(self, size: int) -> Iterator[list[Verdict]]:
        """The candidates that no sweep has handled yet."""
        batch: list[Verdict] = []
        skip = self._done()
        with _opened(self.path) as file:
            for document in map(json.loads, file):
                if "blob" not in document:
                    continue
                if skip:
                    skip -= 1
                    continue
                batch.append(verdict_from(document))
                if len(batch) == size:
                    yield batch
                    batch = []
        if batch:
            yield batch

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Exclude other sweeps of this list for the body. Raises BusyError if one is running."""
        with _opened(self.path) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise BusyError("another sweep of this list is running", path=self.path) from error
            yield

    def done(self, count: int) -> None:
        """Record that so many more candidates are handled."""
        total = self._done() + count
        part = self.path + ".done.part"
        with os_errors(part, _ROOM):
            with open(part, "w", encoding="ascii", opener=open_private) as file:
                file.write(f"{total}\n")
            os.replace(part, self.path + ".done")

    def _done(self) -> int:
        try:
            with open(self.path + ".done", encoding="ascii") as file:
                return int(file.read())
        except FileNotFoundError:
            return 0
        except ValueError as error:
            raise InvalidArgumentError(
                "not a progress file of a sweep", path=self.path + ".done"
            ) from error


def _incomplete(path: str) -> End:
    raise InvalidArgumentError("the list of candidates is incomplete; mark again", path=path)


def document_of(verdict: Verdict) -> dict[str, Any]:
    """The JSON object of a verdict."""
    return {**asdict(verdict), "blob": verdict.blob._asdict()}


def verdict_from(document: dict[str, Any]) -> Verdict:
    """A verdict from its JSON object."""
    document["blob"] = BlobInfo(**document["blob"])
    document["paths"] = tuple(document["paths"])
    document["operations"] = tuple(
        (version, operation) for version, operation in document["operations"]
    )
    return Verdict(**document)


def _opened(path: str) -> TextIO:
    try:
        return open(path, encoding="ascii")
    except FileNotFoundError as error:
        raise PathNotFoundError("no such list of candidates", path=path) from error


def _forget(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
