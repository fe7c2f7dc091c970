"""File contents: cat, put, get."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

import click

from s3k_async._core.paths import normalize
from s3k_async._core.worker_threads import in_thread
from s3k_async.bulk.transfer import ProgressCallback, download, upload, verified
from s3k_async.cli.command import VolumeCommand, literal_option
from s3k_async.cli.commands.excerpts import span
from s3k_async.cli.invocation import Clients, Invocation
from s3k_async.cli.path_patterns import expanded, for_each_path
from s3k_async.cli.standard_input import standard_input
from s3k_async.cli.transfers import (
    Transfer,
    destination,
    finish,
    last_name,
    local_name,
    need_distinct,
    transfer_each,
)
from s3k_async.cli.volume_addresses import parse_address, shown, volume_directory
from s3k_async.errors import EndOfFileError, InvalidArgumentError, IsDirectoryError
from s3k_async.model import ChangeResult

if TYPE_CHECKING:
    from s3k_async.client import S3kClient
    from s3k_async.files.open_files import FileReader

__all__ = ["cat", "get", "put"]

SOURCES = 8
"""Concurrent transfers."""


@click.command(cls=VolumeCommand)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--range",
    "wanted",
    metavar="A-B",
    help="Bytes A to B, inclusive; A-: from A to the end; -N: the last N bytes.",
)
@literal_option
@click.pass_obj
def cat(invocation: Invocation, paths: tuple[str, ...], wanted: str | None) -> None:
    """Write files to standard output. Complete files are verified by checksum."""
    _write_out(invocation, paths, None if wanted is None else _range(wanted))


def _write_out(
    invocation: Invocation, paths: tuple[str, ...], wanted: tuple[int | None, int | None] | None
) -> None:
    async def one(clients: Clients, path: str) -> None:
        address = parse_address(path)
        client = await clients.of(address)
        async with client.open(address.path, "rb") as reader:
            pieces = verified(reader) if wanted is None else _part(reader, *wanted)
            async with aclosing(pieces):
                async for piece in pieces:
                    invocation.output.bytes(piece)

    invocation.run(lambda clients: for_each_path(clients, paths, one))


def _range(text: str) -> tuple[int | None, int | None]:
    """First and last byte; (None, N) for the last N bytes, (A, None) for those from A."""
    found = re.fullmatch(r"(\d*)-(\d*)", text, re.ASCII)
    first, last = (
        (int(each) if each else None for each in found.groups()) if found else (None, None)
    )
    if (first is None and not last) or (first is not None and last is not None and last < first):
        raise click.UsageError(f"--range: {text!r} is not a byte range such as 0-99, 100- or -100")
    return first, last


def _part(reader: FileReader, first: int | None, last: int | None) -> AsyncGenerator[bytes, None]:
    start = max(0, reader.size - (last or 0)) if first is None else first
    end = reader.size if first is None or last is None else min(reader.size, last + 1)
    if first and start >= reader.size:
        raise EndOfFileError(
            f"the file has {reader.size} bytes and none from {start} on", path=reader.name
        )
    return span(reader, start, end)


@click.command(cls=VolumeCommand)
@click.argument("sources", nargs=-1, required=True, metavar="LOCAL...")
@click.argument("target")
@click.option(
    "-r", "--recursive", is_flag=True, help="Include directories and everything below them."
)
@click.option("--no-overwrite", is_flag=True, help="Fail if a file exists.")
@click.option("--skip-existing", is_flag=True, help="Keep existing files, and upload the others.")
@click.pass_obj
def put(
    invocation: Invocation,
    sources: tuple[str, ...],
    target: str,
    recursive: bool,
    no_overwrite: bool,
    skip_existing: bool,
) -> None:
    """Upload local files; LOCAL - is standard input.

    TARGET is the path of the copy. A source is copied into TARGET under its own name if TARGET ends
    with a /, if there are several sources, or if a file is copied to an existing directory.
    Existing directories are merged. Symbolic links to files are followed; links to directories
    count as failures.
    """
    address = parse_address(target)
    several = len(sources) > 1
    if "-" in sources and (several or address.is_into):
        raise click.UsageError("standard input is a single file: put - PATH, without a trailing /")
    if skip_existing and (no_overwrite or "-" in sources):
        raise click.UsageError(
            "--skip-existing cannot be combined with --no-overwrite or with standard input"
        )
    need_distinct([local_name(local) for local in sources])
    overwrite = not (no_overwrite or skip_existing)
    skipped: list[str] = []

    async def one(client: S3kClient, local: str, progress: ProgressCallback | None) -> Transfer:
        if local == "-":
            done = await _put_stream(client, address.path, overwrite=not no_overwrite)
            return done, shown(client, normalize(address.path))
        is_dir = await in_thread(os.path.isdir, local)
        if is_dir and not recursive:
            raise IsDirectoryError("a local directory needs -r", path=local)
        place = await destination(
            client, address, local_name(local), is_dir=is_dir, several=several
        )
        from s3k_async.client import volume_of

        done = await upload(
            client,
            volume_of(client),
            local,
            place,
            overwrite=overwrite,
            skip=skipped.append if skip_existing else None,
            progress=progress,
        )
        return done, shown(client, normalize(place))

    async def work(clients: Clients) -> tuple[ChangeResult, list[str]]:
        client = await clients.of(address)
        with invocation.meter("put") as meter:
            return await transfer_each(
                sources, lambda local: one(client, local, meter.part()), limit=SOURCES
            )

    result, targets = invocation.run(work)
    finish(
        invocation,
        "put",
        result,
        targets,
        to="to",
        skipped=len(skipped) if skip_existing else None,
    )


async def _put_stream(client: S3kClient, path: str, *, overwrite: bool) -> ChangeResult:
    async with (
        client.open(path, "wb" if overwrite else "xb") as writer,
        aclosing(standard_input()) as pieces,
    ):
        async for piece in pieces:
            await writer.write(piece)
        size = await writer.tell()
    return ChangeResult(files=1, bytes=size)


@click.command(cls=VolumeCommand)
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.argument("local")
@click.option(
    "-r", "--recursive", is_flag=True, help="Include directories and everything below them."
)
@click.option("--no-overwrite", is_flag=True, help="Fail if a local file exists.")
@literal_option
@click.pass_obj
def get(
    invocation: Invocation,
    sources: tuple[str, ...],
    local: str,
    recursive: bool,
    no_overwrite: bool,
) -> None:
    """Download files; LOCAL - is standard output.

    A source is copied into LOCAL under its own name if LOCAL ends with a /, if there are several
    sources, or if a file is copied to an existing directory. A local file appears only after it is
    complete and its checksum is verified.
    """
    if local == "-":
        if len(sources) > 1 or recursive:
            raise click.UsageError(
                "only one file can go to standard output; s3k cat writes several"
            )
        _write_out(invocation, sources, None)
        return
    for source in sources:
        parse_address(source)
    if (found := volume_directory(local)) is not None:
        directory, path = found
        raise InvalidArgumentError(
            f"{directory} is the directory of an embedded volume; s3k cp SOURCE {directory}:{path} "
            "copies into it",
            path=local,
        )
    copied: dict[str, str] = {}
    """The complete sources, with their volumes."""

    async def one(
        clients: Clients, source: str, several: bool, progress: ProgressCallback | None
    ) -> Transfer:
        address = parse_address(source)
        client = await clients.of(address)
        status = await client.stat(address.path)
        if status.is_dir and not recursive:
            raise IsDirectoryError("a directory needs -r", path=status.path)
        into = (
            several
            or local.endswith("/")
            or (status.is_file and await in_thread(os.path.isdir, local))
        )
        place = os.path.join(local, status.name) if into else local
        done = await download(
            client, status.path, place, overwrite=not no_overwrite, progress=progress
        )
        copied[source] = shown(client, status.path)
        return done, place

    async def work(clients: Clients) -> tuple[ChangeResult, list[str], list[str]]:
        found = await expanded(clients, sources)
        _need_distinct_names(found)
        several = len(found) > 1
        with invocation.meter("get") as meter:
            result, targets = await transfer_each(
                found, lambda source: one(clients, source, several, meter.part()), limit=SOURCES
            )
        return result, targets, [copied[source] for source in found if source in copied]

    result, targets, origins = invocation.run(work)
    places = [os.path.abspath(each) for each in targets]
    finish(invocation, "got", result, places, to="to", sources=origins)


def _need_distinct_names(sources: Sequence[str]) -> None:
    """Raise a usage error if two sources have the same target."""
    need_distinct([last_name(parse_address(source)) for source in sources])
