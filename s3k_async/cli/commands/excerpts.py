"""The first and the last part of files: head, tail."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from s3k_async.bulk.transfer import CHUNK
from s3k_async.cli.command import Size, VolumeCommand, for_each, literal_option
from s3k_async.cli.invocation import Clients, Invocation
from s3k_async.cli.path_patterns import expanded
from s3k_async.cli.volume_addresses import parse_address, shown

if TYPE_CHECKING:
    from s3k_async.files.open_files import FileReader

__all__ = ["head", "span", "tail"]

F = TypeVar("F", bound=Callable[..., Any])

LINES: Final = 10
"""Default number of lines."""
BLOCK: Final = 64 * 1024
"""Bytes of the first range read to find lines; each further one is twice as long, up to CHUNK."""


def _options(which: str) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        lines = click.option(
            "-n",
            "--lines",
            type=click.IntRange(min=0),
            metavar="N",
            help=f"The {which} N lines [default: {LINES}].",
        )
        size = click.option(
            "-c",
            "--bytes",
            "size",
            type=Size(),
            metavar="SIZE",
            help=f"The {which} SIZE bytes (500, 1k, 1MiB) instead of lines.",
        )
        return lines(size(function))

    return decorate


@click.command(cls=VolumeCommand)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@_options("first")
@literal_option
@click.pass_obj
def head(
    invocation: Invocation, paths: tuple[str, ...], lines: int | None, size: int | None
) -> None:
    """Write the first lines or bytes of files to standard output.

    Only the beginning of a file is read, up to the end of the last line. Several files have a
    header each, unless --quiet or --json is given.
    """

    async def end(reader: FileReader) -> tuple[int, int]:
        if size is not None:
            return 0, min(size, reader.size)
        return 0, await _end_of_lines(reader, LINES if lines is None else lines)

    _write_excerpts(invocation, paths, lines, size, end)


@click.command(cls=VolumeCommand)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@_options("last")
@literal_option
@click.pass_obj
def tail(
    invocation: Invocation, paths: tuple[str, ...], lines: int | None, size: int | None
) -> None:
    """Write the last lines or bytes of files to standard output.

    Only the end of a file is read. Several files have a header each, unless --quiet or --json is
    given.
    """

    async def start(reader: FileReader) -> tuple[int, int]:
        if size is not None:
            return max(0, reader.size - size), reader.size
        return await _start_of_lines(reader, LINES if lines is None else lines), reader.size

    _write_excerpts(invocation, paths, lines, size, start)


def _write_excerpts(
    invocation: Invocation,
    paths: tuple[str, ...],
    lines: int | None,
    size: int | None,
    bounds: Callable[[FileReader], Awaitable[tuple[int, int]]],
) -> None:
    """Write the bytes between the bounds of each file."""
    if lines is not None and size is not None:
        raise click.UsageError("-n and -c cannot be combined")
    with_header = False
    is_first = True

    async def one(clients: Clients, path: str) -> None:
        nonlocal is_first
        address = parse_address(path)
        client = await clients.of(address)
        async with client.open(address.path, "rb") as reader:
            first, end = await bounds(reader)
            if with_header:
                if not is_first:
                    invocation.output.line("")
                invocation.output.line(f"==> {shown(client, reader.name)} <==")
                is_first = False
            async with aclosing(span(reader, first, end)) as pieces:
                async for piece in pieces:
                    invocation.output.bytes(piece)

    async def work(clients: Clients) -> None:
        nonlocal with_header
        found = await expanded(clients, paths)
        with_header = len(found) > 1 and not invocation.quiet and not invocation.json
        await for_each(found, lambda path: one(clients, path))

    invocation.run(work)


async def span(reader: FileReader, start: int, end: int) -> AsyncGenerator[bytes, None]:
    """The bytes of an open file from `start` up to `end`, which it has, in pieces."""
    while start < end:
        piece = await reader.read_at(start, min(CHUNK, end - start))
        yield piece
        start += len(piece)


async def _end_of_lines(reader: FileReader, count: int) -> int:
    """The end of the first `count` lines."""
    at, length = 0, BLOCK
    while count and at < reader.size:
        block = await reader.read_at(at, min(length, reader.size - at))
        found = block.count(b"\n")
        if found >= count:
            return at + _after_line(block, count)
        count -= found
        at += len(block)
        length = min(2 * length, CHUNK)
    return at


def _after_line(block: bytes, count: int) -> int:
    """The end of line `count` of a block."""
    end = 0
    for _ in range(count):
        end = block.index(b"\n", end) + 1
    return end


async def _start_of_lines(reader: FileReader, count: int) -> int:
    """The start of the last `count` lines. A line feed at the end of the file starts no line."""
    if not count:
        return reader.size
    at, length = reader.size, BLOCK
    while at > 0:
        begin = max(0, at - length)
        block = await reader.read_at(begin, at - begin)
        # The last byte of the file ends its last line, or is part of it.
        body = block[:-1] if at == reader.size else block
        found = body.count(b"\n")
        if found >= count:
            return begin + _after_line(body, found - count + 1)
        count -= found
        at = begin
        length = min(2 * length, CHUNK)
    return 0
