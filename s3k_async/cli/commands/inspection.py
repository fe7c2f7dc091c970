"""Properties of single paths for scripts: checksum, count, test."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import click

from s3k_async._native import Xxh3_128
from s3k_async.bulk.transfer import verified
from s3k_async.cli.command import VolumeCommand, literal_option
from s3k_async.cli.invocation import Clients, Invocation
from s3k_async.cli.output import human_size, version_field
from s3k_async.cli.path_patterns import expanded, for_each_path
from s3k_async.cli.volume_addresses import parse_address, shown
from s3k_async.errors import PathNotFoundError
from s3k_async.storage.upload import CHECKSUM_PREFIX

if TYPE_CHECKING:
    from s3k_async.files.open_files import FileReader
    from s3k_async.model import FileStatus

__all__ = ["checksum", "count", "test"]


@click.command(cls=VolumeCommand)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--verify", is_flag=True, help="Read the files, and compare them with their checksums."
)
@literal_option
@click.pass_obj
def checksum(invocation: Invocation, paths: tuple[str, ...], verify: bool) -> None:
    """Show the recorded checksum and ETag of files, - for none, without reading the files.

    With --verify each file is read, and its content compared with its size and checksum; a checksum
    that is not recorded is computed. With --json, one JSON object per line.
    """

    async def one(clients: Clients, path: str) -> None:
        address = parse_address(path)
        client = await clients.of(address)
        async with client.open(address.path, "rb") as reader:
            status = reader.status
            digest = status.checksum
            if verify:
                digest = await _verified_checksum(reader)
        if invocation.json:
            document = {
                "volume": shown(client),
                "path": status.path,
                "size": status.size,
                "checksum": digest,
                "etag": status.etag,
                "verified": bool(verify and status.checksum),
                **version_field(status),
            }
            invocation.output.json(document)
            return
        place = shown(client, status.path)
        invocation.output.line(f"{digest or '-'}  {status.etag or '-'}  {place}")

    invocation.run(lambda clients: for_each_path(clients, paths, one))


async def _verified_checksum(reader: FileReader) -> str:
    """The checksum of a whole file that is read. Raises CorruptDataError if it differs from the
    recorded one."""
    digest = Xxh3_128()
    async with aclosing(verified(reader)) as pieces:
        async for piece in pieces:
            digest.update(piece)
    return CHECKSUM_PREFIX + digest.hexdigest()


@click.command(cls=VolumeCommand)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("-h", "--human", is_flag=True, help="Show sizes in K, M and G (powers of 1,024).")
@literal_option
@click.pass_obj
def count(invocation: Invocation, paths: tuple[str, ...], human: bool) -> None:
    """Show the number of directories (including PATH itself), of files, and of bytes of each PATH.

    The columns are those of hadoop fs -count. With --json, one JSON object per line, as of du.
    """

    async def one(clients: Clients, path: str) -> None:
        address = parse_address(path)
        client = await clients.of(address)
        total = await client.content_summary(address.path)
        top = await client.stat(address.path)
        if invocation.json:
            document = {
                "volume": shown(client),
                "path": top.path,
                "bytes": total.length,
                "files": total.file_count,
                "directories": total.directory_count,
            }
            invocation.output.json(document)
            return
        size = human_size(total.length) if human else str(total.length)
        counts = f"{total.directory_count:>12} {total.file_count:>12} {size:>18}"
        invocation.output.line(f"{counts} {shown(client, top.path)}")

    invocation.run(lambda clients: for_each_path(clients, paths, one))


_CONDITIONS: Final[dict[str, Callable[[FileStatus], bool]]] = {
    "exists": lambda _: True,
    "file": lambda status: status.is_file,
    "directory": lambda status: status.is_dir,
    "not-empty": lambda status: status.is_file and status.size > 0,
    "empty": lambda status: status.is_file and status.size == 0,
}


@click.command(cls=VolumeCommand)
@click.argument("path")
@click.option("-e", "--exists", "conditions", multiple=True, flag_value="exists", help="It exists.")
@click.option("-f", "--file", "conditions", multiple=True, flag_value="file", help="It is a file.")
@click.option(
    "-d",
    "--directory",
    "conditions",
    multiple=True,
    flag_value="directory",
    help="It is a directory.",
)
@click.option(
    "-s",
    "--not-empty",
    "conditions",
    multiple=True,
    flag_value="not-empty",
    help="It is a file with at least one byte.",
)
@click.option(
    "-z",
    "--empty",
    "conditions",
    multiple=True,
    flag_value="empty",
    help="It is a file without bytes.",
)
@literal_option
@click.pass_context
def test(context: click.Context, path: str, conditions: tuple[str, ...]) -> None:
    """Exit with 0 if PATH fulfils the condition, and with 1 if not.

    Without an option, whether PATH exists; with several, whether it fulfils all of them. A pattern
    must match, and each match fulfil the condition. Nothing is printed, except with --json. Other
    exit codes are those of errors.
    """
    invocation: Invocation = context.obj

    async def fulfils(clients: Clients, text: str) -> bool:
        address = parse_address(text)
        client = await clients.of(address)
        try:
            status = await client.stat(address.path)
        except PathNotFoundError:
            return False
        return all(_CONDITIONS[each](status) for each in conditions)

    async def work(clients: Clients) -> bool:
        return all([await fulfils(clients, each) for each in await expanded(clients, [path])])

    result = invocation.run(work)
    if invocation.json:
        invocation.output.json({"path": path, "result": result})
    context.exit(0 if result else 1)
