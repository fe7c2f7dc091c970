"""Changes of files in place: append, truncate, concat, compact."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

import anyio
import click

from s3k_async.bulk.local_tree import local_errors
from s3k_async.bulk.transfer import CHUNK
from s3k_async.cli.command import Size, VolumeCommand, for_each, literal_option
from s3k_async.cli.invocation import Clients, Invocation
from s3k_async.cli.output import plural
from s3k_async.cli.path_patterns import expanded, for_each_path
from s3k_async.cli.standard_input import standard_input
from s3k_async.cli.volume_addresses import entry_fields, parse_address, shown
from s3k_async.errors import CrossVolumeError, InvalidArgumentError, IsDirectoryError
from s3k_async.model import ChangeResult, FileStatus
from s3k_async.storage.extents import has_extents

if TYPE_CHECKING:
    from s3k_async.client import S3kClient

__all__ = ["append", "compact", "concat", "pieces", "truncate"]


@click.command(cls=VolumeCommand)
@click.argument("sources", nargs=-1, required=True, metavar="LOCAL...")
@click.argument("target", metavar="PATH")
@literal_option
@click.pass_obj
def append(invocation: Invocation, sources: tuple[str, ...], target: str) -> None:
    """Add local files at the end of a file, which is created if it does not exist; LOCAL - is
    standard input. All of them become visible together. A pattern must match one file."""
    parse_address(target)
    if sources.count("-") > 1:
        raise click.UsageError("standard input can be read once")

    async def work(clients: Clients) -> tuple[S3kClient, FileStatus, int]:
        matches = await expanded(clients, [target])
        if len(matches) > 1:
            raise InvalidArgumentError(
                f"the pattern matches {len(matches):,} paths, and append changes one file",
                path=target,
            )
        address = parse_address(matches[0])
        client = await clients.of(address)
        async with client.open(address.path, "ab") as file:
            for source in sources:
                async with aclosing(pieces(source)) as found:
                    async for piece in found:
                        await file.write(piece)
            return client, await file.commit(), file.size

    client, status, size = invocation.run(work)
    _say(invocation, f"appended {size:,} bytes to {shown(client, status.path)}", client, status)


async def pieces(source: str) -> AsyncGenerator[bytes, None]:
    """The content of a local file; `-` is standard input."""
    if source == "-":
        async with aclosing(standard_input()) as found:
            async for piece in found:
                yield piece
        return
    if await anyio.Path(source).is_dir():
        raise IsDirectoryError("a local directory cannot be appended", path=source)
    with local_errors(source):
        file = await anyio.open_file(source, "rb")
    async with file:
        while piece := await file.read(CHUNK):
            yield piece


@click.command(cls=VolumeCommand)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "-s",
    "--size",
    type=Size(),
    required=True,
    metavar="SIZE",
    help="Size in bytes (500, 1k, 1MiB).",
)
@literal_option
@click.pass_obj
def truncate(invocation: Invocation, paths: tuple[str, ...], size: int) -> None:
    """Cut files off at a size, or extend them by zeros, which take no space. With --json, one JSON
    object per line."""

    async def one(clients: Clients, path: str) -> None:
        address = parse_address(path)
        client = await clients.of(address)
        _say(invocation, "", client, await client.truncate(address.path, size))

    invocation.run(lambda clients: for_each_path(clients, paths, one))


@click.command(cls=VolumeCommand)
@click.argument("target", metavar="TARGET")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.pass_obj
def concat(invocation: Invocation, target: str, sources: tuple[str, ...]) -> None:
    """Append files to TARGET, in their order, and remove them, in one transaction. All are in one
    volume."""
    address, others = parse_address(target), [parse_address(source) for source in sources]

    async def work(clients: Clients) -> tuple[str, ChangeResult]:
        client = await clients.of(address)
        for other, source in zip(others, sources, strict=True):
            if await clients.of(other) is not client:
                raise CrossVolumeError("the files are in several volumes", path=source)
        done = await client.concat(address.path, [other.path for other in others])
        return shown(client, address.path), done

    place, done = invocation.run(work)
    text = f"appended {plural(done.files, 'file')}, {plural(done.bytes, 'byte')} to {place}"
    invocation.say(text, target=[place], files=done.files, bytes=done.bytes)


@click.command(cls=VolumeCommand)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--whole",
    is_flag=True,
    help="Store each file in one object, which other programs can read; holes are filled.",
)
@click.option(
    "-r", "--recursive", is_flag=True, help="Include directories and everything below them."
)
@literal_option
@click.pass_obj
def compact(invocation: Invocation, paths: tuple[str, ...], whole: bool, recursive: bool) -> None:
    """Store the parts of files that were appended to or changed in place in fewer objects. Content
    and modification times stay. With --json, one JSON object per line."""

    async def one(clients: Clients, path: str) -> None:
        address = parse_address(path)
        client = await clients.of(address)
        if not recursive or not (await client.stat(address.path)).is_dir:
            _say(invocation, "", client, await client.compact(address.path, whole=whole))
            return
        await for_each(
            [path async for path in _files(client, address.path)],
            lambda each: _compact_one(invocation, client, each, whole=whole),
        )

    invocation.run(lambda clients: for_each_path(clients, paths, one))


async def _files(client: S3kClient, path: str) -> AsyncGenerator[str, None]:
    """The files below a directory that are not one object."""
    async for status in client.list(path, recursive=True):
        if has_extents(status.physical):
            yield status.path


async def _compact_one(
    invocation: Invocation, client: S3kClient, path: str, *, whole: bool
) -> None:
    _say(invocation, "", client, await client.compact(path, whole=whole))


def _say(invocation: Invocation, text: str, client: S3kClient, status: FileStatus) -> None:
    if invocation.json:
        invocation.output.json(entry_fields(client, status))
    elif text:
        invocation.say(text)
