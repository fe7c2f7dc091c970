"""tier: moves of data from the hot location of a volume to the cold one, and statistics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import anyio
import click

from s3k_async._core.runtime import SYSTEM
from s3k_async.bulk.tier_overrides import tier_overrides
from s3k_async.cli.command import CommandGroup, VolumeCommand
from s3k_async.cli.durations import duration_option
from s3k_async.cli.invocation import Invocation
from s3k_async.cli.output import plural
from s3k_async.cli.reporting import FailedOperandsError
from s3k_async.cli.volume_addresses import parse_volume_address
from s3k_async.errors import CorruptDataError, InvalidArgumentError
from s3k_async.model import ROOT
from s3k_async.storage.tier_moves import TierMoves, TierRun, TierUsage, tier_usage
from s3k_async.storage.tier_policy import MovePolicy
from s3k_async.storage.tiered_blobs import TieredBlobs, need_tiers
from s3k_async.volumes import Volume, open_volume

__all__ = ["tier"]

T = TypeVar("T")

tier = CommandGroup(
    name="tier",
    help="""The hot and the cold data location of a volume.

    What clients write goes to the hot location; run moves it to the cold one. Files stay readable
    all the time.""",
)


def _with_tiers(
    invocation: Invocation,
    volume: str | None,
    work: Callable[[Volume, TieredBlobs], Awaitable[T]],
) -> T:
    """Open a volume with tiers for some work. Raises InvalidArgumentError, UnsupportedError."""
    address = parse_volume_address(volume) if volume is not None else None
    if address is not None and address.path != ROOT:
        raise InvalidArgumentError("expected a volume, not a path in a volume", path=volume)
    config = invocation.resolve(address.volume if address else None)

    async def opened() -> T:
        found = await open_volume(config)
        try:
            return await work(found, need_tiers(found.blobs, config.table.label))
        finally:
            await found.close()

    return anyio.run(opened)


_BYTES = click.IntRange(min=0)


@tier.command(cls=VolumeCommand)
@click.argument("volume", required=False)
@click.option("--dry-run", is_flag=True, help="Only show what would be moved.")
@click.option("--rate", type=click.IntRange(min=1), metavar="BYTES", help="Most bytes per second.")
@duration_option("--older-than", help="Move what was written longer ago than this, such as 7d.")
@click.option(
    "--high",
    type=_BYTES,
    metavar="BYTES",
    help="If more bytes than this are hot, move the oldest objects until --low are left.",
)
@click.option("--low", type=_BYTES, metavar="BYTES", help="As of --high.")
@click.pass_obj
def run(
    invocation: Invocation,
    volume: str | None,
    dry_run: bool,
    rate: int | None,
    older_than: int | None,
    high: int | None,
    low: int | None,
) -> None:
    """Move data of VOLUME from the hot location to the cold one: all, or what the options name.

    Files whose user metadata Tier is hot stay, and those with Tier cold are moved regardless of the
    options. Each object is copied, the copy is read back and compared, and then the hot one is
    deleted.
    Safe beside writers, readers, gc and other runs; an interrupted run is finished by the next one.
    """
    policy = MovePolicy(older_than, high, low)

    async def work(opened: Volume, blobs: TieredBlobs) -> TierRun:
        with invocation.meter("tier") as meter:
            overrides = partial(tier_overrides, opened)
            moves = TierMoves(blobs, SYSTEM, opened.config.tuning, rate, meter.part(), overrides)
            return await moves.run(policy, dry_run=dry_run)

    done = _with_tiers(invocation, volume, work)
    verb = "would move" if dry_run else "moved"
    text = f"{verb} {plural(done.moved, 'object')}, {plural(done.bytes, 'byte')}"
    text += f"; hot: {plural(done.left, 'object')}, {plural(done.left_bytes, 'byte')}"
    fields: dict[str, Any] = {
        "dry_run": dry_run,
        "moved": done.moved,
        "bytes": done.bytes,
        "completed": done.completed,
        "vanished": done.vanished,
        "damaged": sorted(done.damaged),
        "left": done.left,
        "left_bytes": done.left_bytes,
        "pinned": done.pinned,
    }
    invocation.say(text, **fields)
    if done.damaged:
        error = CorruptDataError(
            "the copy in the cold location has other bytes than the hot object, which is kept"
        )
        raise FailedOperandsError(
            [(key, error) for key in sorted(done.damaged)], some_succeeded=bool(done.moved)
        )


@tier.command(cls=VolumeCommand)
@click.argument("volume", required=False)
@click.pass_obj
def status(invocation: Invocation, volume: str | None) -> None:
    """Show the objects and bytes of VOLUME in the hot location, in the cold one, and in both.

    An object in both is a move that has not ended: run ends it."""

    async def work(_: Volume, blobs: TieredBlobs) -> TierUsage:
        return await tier_usage(blobs)

    usage = _with_tiers(invocation, volume, work)
    rows = {
        "hot": (usage.hot_objects, usage.hot_bytes),
        "cold": (usage.cold_objects, usage.cold_bytes),
        "both": (usage.both_objects, usage.both_bytes),
    }
    if invocation.json:
        fields = {
            name: {"objects": objects, "bytes": size} for name, (objects, size) in rows.items()
        }
        invocation.output.json({**fields, "differing": list(usage.differing)})
        return
    for name, (objects, size) in rows.items():
        invocation.output.line(f"{name:<5} {plural(objects, 'object')}, {plural(size, 'byte')}")
    for key in usage.differing:
        invocation.output.line(f"differs in size: {key}")
