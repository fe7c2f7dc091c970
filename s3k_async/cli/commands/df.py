"""df: the storage of the locations of a volume."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from s3k_async.cli.command import VolumeCommand
from s3k_async.cli.invocation import Clients, Invocation
from s3k_async.cli.output import human_size
from s3k_async.cli.volume_addresses import shown, whole_volume

if TYPE_CHECKING:
    from s3k_async.storage_space import StorageInfo

__all__ = ["df"]


@click.command(cls=VolumeCommand)
@click.argument("volume", required=False)
@click.option("-h", "--human", is_flag=True, help="Show sizes in K, M and G (powers of 1,024).")
@click.pass_obj
def df(invocation: Invocation, volume: str | None, human: bool) -> None:
    """Show the total, used and free bytes of the storage of VOLUME: table, data, log, hot location.

    These are the figures of the disks or servers, which other programs may share. What a service
    does not report is unknown. For the content of the volume, see s3k count and s3k tier status.
    """
    address = whole_volume(volume)

    async def work(clients: Clients) -> tuple[StorageInfo, str]:
        client = await clients.of(address)
        return await client.storage_info(), shown(client)

    info, place = invocation.run(work)
    found = asdict(info)
    if invocation.json:
        invocation.output.json({"volume": place, **found})
        return
    invocation.output.line(f"{'':5} {'total':>18} {'used':>18} {'free':>18}")
    for name, space in found.items():
        if space is not None:
            sizes = (_size(space[column], human) for column in ("total", "used", "free"))
            invocation.output.line(f"{name:5} {' '.join(f'{size:>18}' for size in sizes)}")


def _size(size: int | None, human: bool) -> str:
    if size is None:
        return "unknown"
    return human_size(size) if human else str(size)
