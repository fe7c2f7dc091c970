"""presign: URLs by which files can be read without credentials."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import click

from s3k_async.backends.ports.presigning import PresignedMethod
from s3k_async.cli.command import VolumeCommand, literal_option
from s3k_async.cli.durations import duration_option
from s3k_async.cli.invocation import Clients, Invocation
from s3k_async.cli.path_patterns import for_each_path
from s3k_async.cli.volume_addresses import parse_address, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["presign"]

_HOUR = 3600


@click.command(cls=VolumeCommand)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@duration_option("--expires", help="How long the URL is valid, at most 7d [default: 1h].")
@click.option(
    "--method",
    type=click.Choice(get_args(PresignedMethod), case_sensitive=False),
    default="GET",
    show_default=True,
    help="The HTTP method that it is for.",
)
@literal_option
@click.pass_obj
def presign(
    invocation: Invocation, paths: Sequence[str], expires: int | None, method: PresignedMethod
) -> None:
    """Print a URL of each file by which anybody can read it, without credentials.

    Only of data in S3. The URL is signed with your credentials, and ends with them if they are
    temporary. It leads to the content that the file has now, until garbage collection has deleted
    that. Treat it as a secret. Of data with a customer key, the reader has to send the key, which
    is not printed, in the headers that --json names. With --json, one JSON object per line.
    """
    seconds = _HOUR if expires is None else expires

    async def one(clients: Clients, path: str) -> None:
        address = parse_address(path)
        client = await clients.of(address)
        url = await client.presign(address.path, expires=seconds, method=method)
        if invocation.json:
            document = {
                "volume": shown(client),
                "path": address.path,
                "url": url,
                "method": method,
                "expires": seconds,
            }
            if url.headers:
                document["headers"] = list(url.headers)
            invocation.output.json(document)
            return
        invocation.output.line(url)

    invocation.run(lambda clients: for_each_path(clients, paths, one))
