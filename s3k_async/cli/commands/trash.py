"""trash: deleted directories that can be restored."""

from __future__ import annotations

import click

from s3k_async.cli.command import CommandGroup, VolumeCommand
from s3k_async.cli.durations import duration_option, duration_text
from s3k_async.cli.invocation import Clients, Invocation
from s3k_async.cli.volume_addresses import Address, parse_volume_address, shown
from s3k_async.errors import InvalidArgumentError
from s3k_async.model import ROOT

__all__ = ["trash"]

trash = CommandGroup(
    name="trash",
    help="""Directories that were deleted with everything below them, and can be restored.

    Only volumes of layout tree have a trash.""",
)


@trash.command(cls=VolumeCommand)
@click.argument("volume", required=False)
@duration_option(
    "--set",
    "seconds",
    help="Change it: seconds, or a number with a unit, s, m, h, d or w. 0: no retention.",
)
@click.pass_obj
def retention(invocation: Invocation, /, volume: str | None, seconds: int | None) -> None:
    """Show or change how long garbage collection leaves a deleted directory in the trash.

    A change applies to all clients, and to directories that are already in the trash.
    """
    address = Address(None, ROOT, "") if volume is None else parse_volume_address(volume)
    if address.path != ROOT:
        raise InvalidArgumentError("expected a volume, not a path in a volume", path=volume)

    async def work(clients: Clients) -> None:
        client = await clients.of(address)
        place = shown(client, ROOT)
        if seconds is None:
            _show_retention(invocation, place, await client.trash().retention())
            return
        before = await client.trash().set_retention(seconds)
        invocation.say(
            f"retention of the trash in {place}: {duration_text(seconds)}, "
            f"before {duration_text(before)}",
            volume=place,
            trash_retention=seconds,
            previous=before,
        )

    invocation.run(work)


def _show_retention(invocation: Invocation, place: str, seconds: int | None) -> None:
    if invocation.json:
        invocation.output.json({"volume": place, "trash_retention": seconds})
    elif seconds is None:
        invocation.output.line(f"{place} has layout path, which has no trash")
    else:
        invocation.output.line(f"retention of the trash in {place}: {duration_text(seconds)}")
