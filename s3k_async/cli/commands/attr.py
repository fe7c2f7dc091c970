"""Attributes of entries: mode, owner, read-only and user metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from s3k_async.cli.command import VolumeCommand, literal_option
from s3k_async.cli.invocation import Clients, Invocation
from s3k_async.cli.output import attribute_texts
from s3k_async.cli.path_patterns import for_each_path
from s3k_async.cli.volume_addresses import entry_fields, parse_address
from s3k_async.model import FileStatus

if TYPE_CHECKING:
    from s3k_async.client import S3kClient

__all__ = ["attr"]


@click.command(cls=VolumeCommand)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--mode", metavar="OCTAL", help="Permission bits, such as 640.")
@click.option("--uid", type=click.IntRange(0), help="Id of the owner.")
@click.option("--gid", type=click.IntRange(0), help="Id of the group.")
@click.option(
    "--read-only/--writable",
    default=None,
    help="Refuse, or allow again, that the entry is changed, replaced, moved or deleted.",
)
@click.option(
    "--set", "values", multiple=True, metavar="NAME=VALUE", help="User metadata; may be repeated."
)
@click.option("--unset", multiple=True, metavar="NAME", help="Remove a value of user metadata.")
@literal_option
@click.pass_obj
def attr(
    invocation: Invocation,
    paths: tuple[str, ...],
    mode: str | None,
    uid: int | None,
    gid: int | None,
    read_only: bool | None,
    values: tuple[str, ...],
    unset: tuple[str, ...],
) -> None:
    """Change attributes of files and directories, or, without an option, show them. With --json,
    one JSON object per line."""
    metadata = _metadata(values, unset)
    bits = None if mode is None else _mode(mode)
    shows = (bits, uid, gid, read_only) == (None,) * 4 and not metadata

    async def one(clients: Clients, path: str) -> None:
        address = parse_address(path)
        client = await clients.of(address)
        if shows:
            _show(invocation, path, client, await client.stat(address.path))
            return
        status = await client.set_attributes(
            address.path, mode=bits, uid=uid, gid=gid, read_only=read_only, metadata=metadata
        )
        if invocation.json:
            invocation.output.json(entry_fields(client, status))

    invocation.run(lambda clients: for_each_path(clients, paths, one))


def _show(invocation: Invocation, path: str, client: S3kClient, status: FileStatus) -> None:
    if invocation.json:
        invocation.output.json(entry_fields(client, status))
        return
    invocation.output.line(f"{path}:")
    for name, text in attribute_texts(status.attributes):
        invocation.output.line(f"  {text}" if name == "metadata" else f"  {name}: {text}")


def _mode(text: str) -> int:
    try:
        return int(text, 8)
    except ValueError as error:
        raise click.UsageError(f"--mode: {text!r} is not an octal number") from error


def _metadata(values: tuple[str, ...], unset: tuple[str, ...]) -> dict[str, bytes | None]:
    metadata: dict[str, bytes | None] = dict.fromkeys(unset)
    for each in values:
        name, equals, value = each.partition("=")
        if not equals:
            raise click.UsageError(f"--set: {each!r} is not NAME=VALUE")
        if name in metadata:
            raise click.UsageError(f"{name!r} is named twice")
        metadata[name] = value.encode("utf-8", "surrogateescape")
    return metadata
