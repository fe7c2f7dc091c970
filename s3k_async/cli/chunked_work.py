"""Work on path lists larger than memory: in chunks, with failures reported immediately."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import click

from s3k_async.bulk.transfer import ProgressCallback
from s3k_async.cli.exit_codes import ExitCode, exit_code
from s3k_async.cli.invocation import Clients, Invocation
from s3k_async.cli.output import plural
from s3k_async.cli.path_lists import PathList, Record
from s3k_async.cli.reporting import SHOWN, FailedOperandsError, failure_fields
from s3k_async.cli.transfers import TrashNotice
from s3k_async.cli.volume_addresses import shown
from s3k_async.model import Progress

if TYPE_CHECKING:
    from s3k_async.client import S3kClient

__all__ = ["ChunkResult", "OperandOutcome", "in_chunks", "need_one_way"]


class OperandOutcome(Protocol):
    """Result of a verb on many paths."""

    @property
    def files(self) -> int: ...
    @property
    def directories(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def failures(self) -> Sequence[tuple[str, Exception]]: ...


@dataclass(slots=True)
class ChunkResult:
    """Sum of the results so far. Kept are only the failures to show, and one of each kind."""

    invocation: Invocation
    files: int = 0
    directories: int = 0
    bytes: int = 0
    failed: int = 0
    target: str = ""
    """The volume of the list; empty for an empty list."""
    kept: list[tuple[str, Exception]] = field(default_factory=list)
    codes: set[ExitCode] = field(default_factory=set)

    def add(self, outcome: OperandOutcome) -> None:
        """Add a chunk's outcome; with --json each failure is a line."""
        self.files += outcome.files
        self.directories += outcome.directories
        self.bytes += outcome.bytes
        self.failed += len(outcome.failures)
        for path, error in outcome.failures:
            if len(self.kept) < SHOWN or exit_code(error) not in self.codes:
                self.kept.append((path, error))
                self.codes.add(exit_code(error))
            if self.invocation.json:
                self.invocation.output.json(failure_fields(path, error))

    def finish(self, what: str, undo: TrashNotice | None = None) -> None:
        """Print the summary, and how to undo it. Raises FailedOperandsError if there are
        failures."""
        undo = undo or TrashNotice()
        counts = [plural(self.files, "file"), f"{self.bytes:,} bytes"]
        if self.directories:
            counts.insert(1, plural(self.directories, "directory"))
        changed = bool(self.files or self.directories)
        if changed or self.invocation.json or not self.failed:
            self.invocation.say(
                f"{what} {', '.join(counts)}{self.target and f' in {self.target}'}"
                f"{undo.text(listed=True)}",
                target=[self.target] if self.target else [],
                files=self.files,
                directories=self.directories,
                bytes=self.bytes,
                failed=self.failed,
                **undo.fields(),
            )
        if self.failed:
            raise FailedOperandsError(self.kept, some_succeeded=changed, count=self.failed)


def need_one_way(
    operands: Sequence[str],
    file: str | None,
    option: str,
    of_lists: Mapping[str, bool],
    *,
    at_least: int,
) -> None:
    """Raise a usage error unless there are either enough operands without options of lists, or a
    list."""
    for name, given in of_lists.items():
        if file is None and given:
            raise click.UsageError(f"{name} goes with {option}")
    if file is not None and operands:
        raise click.UsageError(f"either paths or {option}, not both")
    if file is None and len(operands) < at_least:
        missing = "SOURCE... TARGET" if at_least > 1 else "PATH..."
        raise click.UsageError(f"missing: {missing}, or a list with {option}")


async def in_chunks(
    clients: Clients,
    records: PathList,
    done: ChunkResult,
    progress: ProgressCallback | None,
    work: Callable[[S3kClient, list[Record], ProgressCallback | None], Awaitable[OperandOutcome]],
) -> None:
    """Process a list chunk by chunk, in its order. An empty list succeeds without opening a
    volume."""
    if records.volume is None:
        return
    client = await clients.of(records.volume)
    done.target = shown(client, "/")
    async for chunk in records.chunks():
        done.add(
            await work(
                client,
                chunk,
                None if progress is None else _Following(progress, done, records.count),
            )
        )


@dataclass(slots=True)
class _Following:
    """The progress of one chunk, added to that of earlier ones."""

    progress: ProgressCallback
    done: ChunkResult
    total: int

    def __call__(self, chunk: Progress) -> None:
        before = self.done.files + self.done.directories
        size = self.done.bytes + chunk.bytes
        self.progress(Progress(chunk.operation, before + chunk.done, self.total, size, chunk.path))
