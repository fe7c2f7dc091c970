"""Lookups: ls, tree, stat, find, du."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import click

from s3k_async._core.paths import normalize
from s3k_async.cli.bucket_lookups import (
    bucket_address,
    list_bucket,
    list_bucket_to_file,
    show_totals,
)
from s3k_async.cli.command import OutputFile, VolumeCommand, for_each, literal_option
from s3k_async.cli.durations import time_or_age
from s3k_async.cli.invocation import Clients, Invocation
from s3k_async.cli.listing_files import (
    FORMATS,
    STANDARD_OUTPUT,
    ListingFormat,
    listing_format,
    write_jsonl,
    write_parquet,
)
from s3k_async.cli.output import (
    attribute_texts,
    human_size,
    plural,
    status_fields,
    time_text,
)
from s3k_async.cli.path_patterns import expanded, for_each_path
from s3k_async.cli.volume_addresses import Address, entry_fields, parse_address, shown
from s3k_async.errors import ConfigError, InvalidArgumentError, S3kError
from s3k_async.listing.globbing import compile_pattern
from s3k_async.model import ROOT, FileStatus
from s3k_async.settings.options import Option, parse

if TYPE_CHECKING:
    import pyarrow as pa

    from s3k_async.client import S3kClient

__all__ = ["du", "find", "ls", "stat", "tree"]

SORTED = 10_000
"""Most entries of a sorted listing; longer ones are unsorted, so that memory is bounded."""


async def _in_order(found: AsyncIterator[FileStatus]) -> AsyncGenerator[FileStatus, None]:
    held: list[FileStatus] = []
    async with aclosing(cast("AsyncGenerator[FileStatus, None]", found)):
        async for status in found:
            held.append(status)
            if len(held) > SORTED:
                break
        for status in sorted(held, key=lambda status: status.path) if len(held) <= SORTED else held:
            yield status
        if len(held) > SORTED:
            async for status in found:
                yield status


@click.command(cls=VolumeCommand)
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("-R", "--recursive", is_flag=True, help="List everything below, with full paths.")
@click.option("-l", "--long", is_flag=True, help="Include type, size and modification time.")
@click.option("-h", "--human", is_flag=True, help="Show sizes in K, M and G (powers of 1,024).")
@click.option(
    "-a", "--all", "everything", is_flag=True, help="Include files that are still being written."
)
@click.option(
    "-o",
    "--output",
    "file",
    type=OutputFile(streams=True),
    metavar="FILE",
    help="Write the complete entries to a local file; - is standard output.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(FORMATS),
    help="Format of FILE [default: from its file name extension].",
)
@literal_option
@click.pass_obj
def ls(
    invocation: Invocation,
    paths: tuple[str, ...],
    recursive: bool,
    long: bool,
    human: bool,
    everything: bool,
    file: str | None,
    kind: str | None,
) -> None:
    """List the names in a directory, directories with a trailing /; or one file. Also of a bucket
    without a volume: s3://BUCKET/PREFIX.

    Of several PATHs or a pattern, files are listed first, then the contents of each directory, all
    with full paths; with the volume if there are several volumes. On a terminal, names are in
    columns; full paths, and output elsewhere, are one per line. With -l the type is d (directory),
    - (file) or w (being written), and times are in UTC. Listings of up to 10,000 entries are sorted
    by path. With --json, one JSON object per line. With -o, all attributes of each entry in no
    particular order, as JSON lines or Parquet, with bounded memory; of a bucket, paths are keys
    after a /, and times of directories 0.
    """
    operands = paths or (":/",)
    buckets = [found for path in operands if (found := bucket_address(path)) is not None]
    if buckets and len(operands) > 1:
        raise click.UsageError("list a bucket without a volume alone: one s3://BUCKET/PREFIX")
    for bucket in buckets:
        if everything:
            raise click.UsageError("-a needs a volume")
        if (target := _listing_file(file, kind, long=long, human=human)) is not None:
            list_bucket_to_file(invocation, bucket, *target, recursive=recursive)
        else:
            list_bucket(invocation, bucket, recursive=recursive, long=long, human=human)
        return
    for path in operands:
        parse_address(path)
    if (target := _listing_file(file, kind, long=long, human=human)) is not None:
        if target[1] == "parquet" and _several_volumes(operands):
            raise click.UsageError(
                "a Parquet listing has no column for the volume: list the paths of one"
            )
        _list_to_file(invocation, operands, *target, recursive, everything)
        return
    _list_names(invocation, operands, recursive, long, human, everything)


def _listing_file(
    file: str | None, kind: str | None, *, long: bool, human: bool
) -> tuple[str, ListingFormat] | None:
    """The file of `-o` and its format; None without one."""
    if file is None:
        if kind is not None:
            raise click.UsageError("--format requires -o FILE")
        return None
    if long or human:
        raise click.UsageError("-l and -h cannot be combined with -o")
    return file, listing_format(file, kind)


def _list_names(
    invocation: Invocation,
    operands: Sequence[str],
    recursive: bool,
    long: bool,
    human: bool,
    everything: bool,
) -> None:
    async def one(clients: Clients, path: str, *, in_full: bool, with_volume: bool) -> None:
        address = parse_address(path)
        client = await clients.of(address)
        top = normalize(address.path)
        found = client.list(top, recursive=recursive, include_uncommitted=everything)
        names: list[str] = []
        in_columns = invocation.output.is_terminal and not (invocation.json or long or in_full)
        async with aclosing(_in_order(found)) as statuses:
            async for status in statuses:
                if invocation.json:
                    invocation.output.json(entry_fields(client, status))
                    continue
                name = status.path if in_full or status.path == top else status.name
                if with_volume:
                    name = shown(client, status.path)
                text = name + "/" if status.is_dir else name
                if not in_columns:
                    invocation.output.line(_long_line(status, text, human) if long else text)
                    continue
                names.append(text)
                if len(names) > SORTED:
                    in_columns = False
                    for each in names:
                        invocation.output.line(each)
        if in_columns:
            invocation.output.columns(names)

    async def work(clients: Clients) -> None:
        paths = await _files_first(clients, operands)
        in_full = recursive or len(paths) > 1 or paths != list(operands)
        several = _several_volumes(paths)
        await for_each(paths, lambda path: one(clients, path, in_full=in_full, with_volume=several))

    invocation.run(work)


async def _files_first(clients: Clients, operands: Sequence[str]) -> list[str]:
    """The operands and the paths that match patterns among them, directories last."""
    paths = await expanded(clients, operands)
    if len(paths) == 1:
        return paths
    files: list[str] = []
    directories: list[str] = []
    for path in paths:
        (directories if await _is_directory(clients, path) else files).append(path)
    return files + directories


async def _is_directory(clients: Clients, path: str) -> bool:
    """Whether a directory is at a path; not, if the volume cannot be read, which a listing of the
    path reports."""
    address = parse_address(path)
    try:
        return await (await clients.of(address)).is_dir(address.path)
    except S3kError:
        return False


def _list_to_file(
    invocation: Invocation,
    operands: Sequence[str],
    file: str,
    kind: ListingFormat,
    recursive: bool,
    everything: bool,
) -> None:
    async def listed(
        addresses: Sequence[Address], clients: Clients
    ) -> AsyncIterator[dict[str, Any]]:
        for address in addresses:
            client = await clients.of(address)
            async for status in client.list(
                address.path, recursive=recursive, include_uncommitted=everything
            ):
                yield entry_fields(client, status)

    async def batches(
        addresses: Sequence[Address], clients: Clients
    ) -> AsyncIterator[pa.RecordBatch]:
        for address in addresses:
            client = await clients.of(address)
            async for batch in client.list_batches(
                address.path, recursive=recursive, include_uncommitted=everything
            ):
                yield batch

    async def work(clients: Clients) -> int | None:
        addresses = [parse_address(path) for path in await expanded(clients, operands)]
        if kind == "parquet":
            return await write_parquet(batches(addresses, clients), file)
        found = listed(addresses, clients)
        if file != STANDARD_OUTPUT:
            return await write_jsonl(found, file)
        async for fields in found:
            invocation.output.json(fields)
        return None

    count = invocation.run(work)
    if count is not None:
        invocation.say(f"wrote {plural(count, 'entry')} to {file}", entries=count, file=file)


def _long_line(status: FileStatus, name: str, human: bool) -> str:
    kind = "d" if status.is_dir else "-" if status.committed else "w"
    size = "-" if status.is_dir else human_size(status.size) if human else str(status.size)
    return f"{kind} {size:>{6 if human else 13}} {time_text(status.mtime_ms)} {name}"


@click.command(cls=VolumeCommand)
@click.argument("path", default=":/")
@click.option(
    "-L", "--depth", type=click.IntRange(min=1), metavar="N", help="Maximum number of levels."
)
@click.option(
    "-a", "--all", "everything", is_flag=True, help="Include files that are still being written."
)
@literal_option
@click.pass_obj
def tree(invocation: Invocation, path: str, depth: int | None, everything: bool) -> None:
    """Show a directory as a tree, or each one that matches a pattern.

    With --json, one JSON object per line, each directory before its children; `depth` starts at
    1.
    """
    address = parse_address(path)

    async def work(clients: Clients) -> None:
        client = await clients.of(address)
        drawing = _Drawing(invocation, client, depth, everything)
        await for_each(await expanded(clients, [path]), drawing.draw_at)
        if not invocation.json:
            invocation.output.line("")
            invocation.output.line(
                f"{plural(drawing.directories, 'directory')}, {plural(drawing.files, 'file')}"
            )

    invocation.run(work)


class _Drawing:
    """A tree, depth first; only the children of the directories on the current path are in
    memory."""

    def __init__(
        self, invocation: Invocation, client: S3kClient, depth: int | None, everything: bool
    ) -> None:
        self._invocation = invocation
        self._client = client
        self._depth = depth
        self._everything = everything
        self._branches = invocation.output.branches()
        self.files = 0
        self.directories = 0

    async def draw_at(self, argument: str) -> None:
        """Draw the directory that an argument names, or show a file by its path."""
        top = await self._client.stat(parse_address(argument).path)
        if not self._invocation.json:
            self._invocation.output.line(top.path)
        if top.is_dir:
            await self._draw(top.path)

    async def _draw(self, top: str) -> None:
        waiting = [(await self._children(top), "")]
        while waiting:
            children, prefix = waiting[-1]
            if not children:
                waiting.pop()
                continue
            status = children.pop()
            self._show(status, prefix, len(waiting), is_last=not children)
            if status.is_dir and (self._depth is None or len(waiting) < self._depth):
                below = self._branches[2] if children else self._branches[3]
                waiting.append((await self._children(status.path), prefix + below))

    async def _children(self, path: str) -> list[FileStatus]:
        """Last first."""
        found = self._client.list(path, include_uncommitted=self._everything)
        return sorted(
            [status async for status in found], key=lambda status: status.path, reverse=True
        )

    def _show(self, status: FileStatus, prefix: str, depth: int, *, is_last: bool) -> None:
        self.directories += status.is_dir
        self.files += status.is_file
        if self._invocation.json:
            self._invocation.output.json(entry_fields(self._client, status) | {"depth": depth})
            return
        branch = self._branches[1] if is_last else self._branches[0]
        self._invocation.output.line(f"{prefix}{branch}{status.name}{'/' if status.is_dir else ''}")


@click.command(cls=VolumeCommand)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@literal_option
@click.pass_obj
def stat(invocation: Invocation, paths: tuple[str, ...]) -> None:
    """Show all attributes of files and directories. With --json, one JSON object per line."""
    several = _several_volumes(paths)

    async def one(clients: Clients, path: str) -> None:
        address = parse_address(path)
        client = await clients.of(address)
        status = await client.stat(address.path)
        if invocation.json:
            invocation.output.json(entry_fields(client, status))
            return
        for name, text in _rows(status, shown(client, status.path) if several else status.path):
            invocation.output.line(f"{name:>10}: {text}")

    invocation.run(lambda clients: for_each_path(clients, paths, one))


def _rows(status: FileStatus, path: str) -> Iterator[tuple[str, str]]:
    """The names and values of what `stat` shows, without those that are empty."""
    for name, value in {**status_fields(status), "path": path}.items():
        if name == "attributes":
            yield from attribute_texts(status.attributes)
        elif name.endswith("_ms"):
            yield name[:-3], time_text(value)
        elif value not in ("", None):
            yield name, str(value).lower() if isinstance(value, bool) else str(value)


def _several_volumes(operands: Iterable[str]) -> bool:
    """Whether the operands are in several volumes, so that results are shown with theirs."""
    return len({_volume_of(each) for each in operands}) > 1


def _volume_of(operand: str) -> str | None:
    """The volume in an operand, or its bucket; None for the default one, and for an operand whose
    error is reported when its turn comes."""
    try:
        return operand if bucket_address(operand) else parse_address(operand).volume
    except InvalidArgumentError:
        return None


@click.command(cls=VolumeCommand)
@click.argument("path", default=":/")
@click.option(
    "--name",
    metavar="GLOB",
    help="Match the name; or, if GLOB contains a /, the path relative to PATH.",
)
@click.option(
    "--type", "kind", type=click.Choice(["f", "d"]), help="Type: f (file) or d (directory)."
)
@click.option(
    "--size",
    "sizes",
    multiple=True,
    metavar="[+-]N",
    help="File size in bytes (500, 1k, 1MiB); +N: larger, -N: smaller.",
)
@click.option(
    "--newer",
    metavar="TIME",
    help="Modified after a time (2026-11-21T04:30, UTC by default) or within an age (2d).",
)
@click.option("--older", metavar="TIME", help="Modified before a time, or longer ago than an age.")
@click.option("--metadata", metavar="NAME", help="With user metadata of that name, from an index.")
@literal_option
@click.pass_obj
def find(
    invocation: Invocation,
    path: str,
    name: str | None,
    kind: str | None,
    sizes: tuple[str, ...],
    newer: str | None,
    older: str | None,
    metadata: str | None,
) -> None:
    """Search for files and directories below PATH that match all conditions. PATH may be a pattern.

    In GLOB, * matches any text, ? one character, [abc] one of a set, {a,b} either alternative, **
    any number of directories. Ages have a unit: s, m, h, d or w. With --json, one JSON object per
    line.
    """
    parse_address(path)
    if name is not None:
        compile_pattern(name)
    smallest, largest = _size_bounds(sizes)
    conditions: dict[str, Any] = {
        "pattern": name,
        "type": {"f": "file", "d": "directory", None: None}[kind],
        "min_size": smallest,
        "max_size": largest,
        "newer_than": time_or_age(newer, "--newer"),
        "older_than": time_or_age(older, "--older"),
        "metadata": metadata,
    }

    async def one(clients: Clients, text: str) -> None:
        address = parse_address(text)
        client = await clients.of(address)
        async with aclosing(_in_order(client.find(address.path, **conditions))) as statuses:
            async for status in statuses:
                if invocation.json:
                    invocation.output.json(entry_fields(client, status))
                else:
                    invocation.output.line(status.path + "/" if status.is_dir else status.path)

    invocation.run(lambda clients: for_each_path(clients, [path], one))


def _size_bounds(sizes: tuple[str, ...]) -> tuple[int | None, int | None]:
    """The smallest and the largest size under all conditions."""
    smallest: list[int] = []
    largest: list[int] = []
    for text in sizes:
        try:
            size = cast("int", parse(_SIZE, text[1:] if text[:1] in ("+", "-") else text, "--size"))
        except ConfigError as error:
            raise click.UsageError(error.message) from error
        if not text.startswith("-"):
            smallest.append(size + text.startswith("+"))
        if not text.startswith("+"):
            largest.append(size - text.startswith("-"))
    return max(smallest, default=None), min(largest, default=None)


_SIZE = Option("size", "size", "client", "")


@click.command(cls=VolumeCommand)
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("-h", "--human", is_flag=True, help="Show sizes in K, M and G (powers of 1,024).")
@click.option("-s", "--summarize", is_flag=True, help="Show only the total of each PATH.")
@click.option(
    "--trash",
    "deleted",
    is_flag=True,
    help="Show the directories in the trash that were deleted at or below PATH, and their total.",
)
@literal_option
@click.pass_obj
def du(
    invocation: Invocation, paths: tuple[str, ...], human: bool, summarize: bool, deleted: bool
) -> None:
    """Show bytes, files, directories (including itself) and path of each directory, subdirectories
    first. Also of a bucket without a volume: s3://BUCKET/PREFIX. Paths of several volumes are
    shown with theirs.

    With --json, one JSON object per line.
    """
    operands = paths or (":/",)
    several = _several_volumes(operands)

    def show(path: str, size: int, files: int, directories: int, **more: str) -> None:
        if invocation.json:
            counts = {"bytes": size, "files": files, "directories": directories}
            invocation.output.json({**more, "path": path, **counts})
            return
        text = human_size(size) if human else str(size)
        invocation.output.line(f"{text:>{6 if human else 13}} {files:>8} {directories:>7}  {path}")

    def showing(client: S3kClient) -> Callable[..., object]:
        """`show` for the paths of a volume."""
        if invocation.json:
            return partial(show, volume=shown(client))
        if not several:
            return show
        return lambda path, *counts, **more: show(shown(client, path), *counts, **more)

    async def one(clients: Clients, path: str) -> None:
        if (bucket := bucket_address(path)) is not None:
            if deleted:
                raise click.UsageError("a bucket without a volume has no trash")
            await show_totals(invocation, clients, bucket, show, summarize=summarize)
            return
        address = parse_address(path)
        client = await clients.of(address)
        if deleted:
            await _show_deleted(
                client, normalize(address.path), showing(client), summarize=summarize
            )
            return
        top = await client.stat(address.path)
        if summarize or top.is_file:
            total = await client.content_summary(top.path)
            showing(client)(top.path, total.length, total.file_count, total.directory_count)
            return
        for directory, (size, files, directories) in (await _totals(client, top.path)).items():
            showing(client)(directory, size, files, directories)

    invocation.run(lambda clients: for_each_path(clients, operands, one))


async def _show_deleted(
    client: S3kClient, path: str, show: Callable[..., object], *, summarize: bool
) -> None:
    """Show the directories in the trash that were deleted at or below a path, and their total."""
    # Imported here: it loads what no other lookup needs before a volume is opened.
    from s3k_async.cli.commands.trash_verbs import deleted_below, total_of

    size = files = directories = 0
    for item in await deleted_below(client, path):
        total = await total_of(client, item)
        if total is None:
            continue
        size += total.length
        files += total.file_count
        directories += total.directory_count
        if not summarize:
            counts = total.length, total.file_count, total.directory_count
            show(item.was, *counts, id=item.id)
    show(path, size, files, directories)


async def _totals(client: S3kClient, top: str) -> dict[str, list[int]]:
    """Bytes, files and directories of each directory, subdirectories first."""
    totals = {top: [0, 0, 1]}
    async for status in client.list(top, recursive=True):
        above = status.path if status.is_dir else status.path.rpartition("/")[0] or ROOT
        while True:
            total = totals.setdefault(above, [0, 0, 0])
            total[0] += status.size
            total[1] += status.is_file
            total[2] += status.is_dir
            if above == top:
                break
            above = above.rpartition("/")[0] or ROOT
    return dict(
        sorted(totals.items(), key=lambda item: [*filter(None, item[0].split("/")), "\U0010ffff"])
    )
