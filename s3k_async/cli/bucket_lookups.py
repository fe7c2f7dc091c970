"""ls and du of a bucket without a volume."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from s3k_async.cli.invocation import Clients, Invocation
from s3k_async.cli.listing_files import (
    STANDARD_OUTPUT,
    ListingFormat,
    write_jsonl,
    write_parquet,
)
from s3k_async.cli.output import human_size, plural, status_fields, time_text
from s3k_async.cli.reporting import FailedOperandsError
from s3k_async.cli.tree_addresses import TreeAddress, open_tree, parse_tree_address
from s3k_async.errors import PathNotFoundError, S3kError
from s3k_async.listing.listings import BATCH_ROWS, arrow_schema
from s3k_async.model import FileStatus

if TYPE_CHECKING:
    import pyarrow as pa

    from s3k_async.trees import BucketTree, TreeEntry

__all__ = ["bucket_address", "list_bucket", "list_bucket_to_file", "show_totals"]

_COLUMNS: Final = (
    "path",
    "is_dir",
    "size",
    "id",
    "version",
    "committed",
    "etag",
    "checksum",
    "physical",
)
"""Columns of a listing that a FileStatus has under the same name."""

Shown: TypeAlias = Callable[[str, int, int, int], object]
"""Called with each directory: its name, bytes, files and directories, itself included."""


def bucket_address(text: str) -> TreeAddress | None:
    """The address of a bucket; None for any other argument."""
    if not text.startswith(("s3://", "s3a://", "s3n://")):
        return None
    address = parse_tree_address(text)
    return address if address.kind == "bucket" else None


def list_bucket(
    invocation: Invocation, address: TreeAddress, *, recursive: bool, long: bool, human: bool
) -> None:
    """Show the names below a prefix, or with `recursive` the URIs of everything below it; or one
    object."""

    def show(tree: BucketTree, entry: TreeEntry, *, in_full: bool = recursive) -> None:
        if invocation.json:
            fields = {
                "path": tree.full_name(entry.path),
                "type": "directory" if entry.is_dir else "file",
                "size": entry.size,
                "mtime_ms": entry.mtime_ms,
                "etag": entry.etag,
            }
            invocation.output.json(fields)
            return
        name = tree.full_name(entry.path) if in_full else entry.path
        line = f"{name}/" if entry.is_dir else name
        if long:
            size = "-" if entry.is_dir else human_size(entry.size) if human else str(entry.size)
            time = "-" if entry.mtime_ms is None else time_text(entry.mtime_ms)
            kind = "d" if entry.is_dir else "-"
            line = f"{kind} {size:>{6 if human else 13}} {time:<20} {line}"
        invocation.output.line(line)

    async def work(clients: Clients) -> None:
        async def shown(tree: BucketTree, skipped: dict[str, S3kError]) -> None:
            note = skipped.__setitem__
            found = tree.entries(note) if recursive else tree.children(note)
            async with aclosing(found) as entries:
                async for entry in entries:
                    show(tree, entry)

        tree = await _tree(invocation, clients, address)
        single = await tree.single_object()
        if single is not None:
            show(*single, in_full=True)
        else:
            await _with_tree(tree, shown)

    invocation.run(work)


def list_bucket_to_file(
    invocation: Invocation,
    address: TreeAddress,
    file: str,
    kind: ListingFormat,
    *,
    recursive: bool,
) -> None:
    """Write the listing of a prefix, or of one object, to a local file, as of a volume in which the
    keys are the paths. Raises FailedOperandsError for keys that were skipped."""

    async def work(clients: Clients) -> tuple[int | None, dict[str, S3kError]]:
        tree = await _tree(invocation, clients, address)
        single = await tree.single_object()
        skipped: dict[str, S3kError] = {}
        if single is None:
            await _need_prefix(tree)
        statuses = _statuses(tree, single, skipped, recursive=recursive)
        async with aclosing(statuses):
            if kind == "parquet":
                return await write_parquet(_batches(statuses), file), skipped
            found = (status_fields(status) async for status in statuses)
            if file != STANDARD_OUTPUT:
                return await write_jsonl(found, file), skipped
            async for fields in found:
                invocation.output.json(fields)
            return None, skipped

    count, skipped = invocation.run(work)
    if count is not None:
        invocation.say(f"wrote {plural(count, 'entry')} to {file}", entries=count, file=file)
    if skipped:
        raise FailedOperandsError(list(skipped.items()), some_succeeded=True)


async def _statuses(
    tree: BucketTree,
    single: tuple[BucketTree, TreeEntry] | None,
    skipped: dict[str, S3kError],
    *,
    recursive: bool,
) -> AsyncGenerator[FileStatus, None]:
    if single is not None:
        yield _status(*single)
        return
    note = skipped.__setitem__
    found = tree.entries(note) if recursive else tree.children(note)
    async with aclosing(found) as entries:
        async for entry in entries:
            yield _status(tree, entry)


def _status(tree: BucketTree, entry: TreeEntry) -> FileStatus:
    time = entry.mtime_ms or 0
    path, etag = f"/{tree.prefix}{entry.path}", "" if entry.is_dir else entry.etag
    physical = None if entry.is_dir else tree.uri(entry.path)
    return FileStatus(
        path, entry.is_dir, entry.size, time, time, "", 0, True, etag, physical=physical
    )


async def _batches(statuses: AsyncIterator[FileStatus]) -> AsyncIterator[pa.RecordBatch]:
    import pyarrow as pa

    def batch(held: list[FileStatus]) -> pa.RecordBatch:
        rows = [
            {
                **{name: getattr(each, name) for name in _COLUMNS},
                "mtime": each.mtime_ms,
                "ctime": each.ctime_ms,
                "attributes": "",
            }
            for each in held
        ]
        return pa.RecordBatch.from_pylist(rows, schema=arrow_schema())

    held: list[FileStatus] = []
    async for status in statuses:
        held.append(status)
        if len(held) == BATCH_ROWS:
            yield batch(held)
            held = []
    yield batch(held)


async def show_totals(
    invocation: Invocation,
    clients: Clients,
    address: TreeAddress,
    show: Shown,
    *,
    summarize: bool,
) -> None:
    """Show the totals of each directory below a prefix, subdirectories first; with `summarize` that
    of the prefix alone."""

    async def shown(tree: BucketTree, skipped: dict[str, S3kError]) -> None:
        async with aclosing(_totals(tree, skipped)) as totals:
            async for total in totals:
                if not summarize or not total.path:
                    name = tree.full_name(total.path)
                    show(name, total.size, total.files, total.directories)

    await _with_tree(await _tree(invocation, clients, address), shown)


async def _tree(invocation: Invocation, clients: Clients, address: TreeAddress) -> BucketTree:
    from s3k_async.trees import BucketTree

    tree = await open_tree(invocation, clients, address)
    assert isinstance(tree, BucketTree)
    return tree


async def _with_tree(
    tree: BucketTree, work: Callable[[BucketTree, dict[str, S3kError]], Awaitable[None]]
) -> None:
    """Do the work for a bucket; raise FailedOperandsError for keys that were skipped."""
    await _need_prefix(tree)
    skipped: dict[str, S3kError] = {}
    await work(tree, skipped)
    if skipped:
        raise FailedOperandsError(list(skipped.items()), some_succeeded=True)


async def _need_prefix(tree: BucketTree) -> None:
    if not await tree.exists():
        raise PathNotFoundError("no object has this prefix", path=tree.label)


@dataclass(slots=True)
class _Total:
    """The totals of a directory so far, itself included."""

    path: str
    size: int = 0
    files: int = 0
    directories: int = 1

    def add(self, other: _Total) -> None:
        self.size += other.size
        self.files += other.files
        self.directories += other.directories


async def _totals(tree: BucketTree, skipped: dict[str, S3kError]) -> AsyncGenerator[_Total, None]:
    """The totals of all directories, each after those below it. The directories above the current
    one are in memory."""
    above = [_Total("")]
    async with aclosing(tree.entries(skipped.__setitem__)) as entries:
        async for entry in entries:
            while above[-1].path and not entry.path.startswith(f"{above[-1].path}/"):
                yield above[-1]
                done = above.pop()
                above[-1].add(done)
            if entry.is_dir:
                above.append(_Total(entry.path))
            else:
                above[-1].add(_Total(entry.path, entry.size, 1, 0))
    while above:
        yield above[-1]
        done = above.pop()
        if above:
            above[-1].add(done)
