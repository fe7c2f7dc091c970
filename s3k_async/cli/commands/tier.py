"""tier: moves of data from the hot location of a volume to the cold one, copies in the other
direction, and statistics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import click

from s3k_async._core.runtime import SYSTEM
from s3k_async.bulk.tier_overrides import tier_overrides
from s3k_async.bulk.tier_warming import TierWarming, WarmResult
from s3k_async.cli.command import CommandGroup, VolumeCommand, for_each
from s3k_async.cli.durations import duration_option
from s3k_async.cli.event_loop import run_loop
from s3k_async.cli.invocation import Clients, Invocation
from s3k_async.cli.output import plural
from s3k_async.cli.progress import ProgressMeter
from s3k_async.cli.reporting import FailedOperandsError
from s3k_async.cli.volume_addresses import parse_address, shown_in, whole_volume
from s3k_async.client import volume_of
from s3k_async.errors import CorruptDataError
from s3k_async.storage.tier_moves import TierMoves, TierRun, TierUsage, tier_usage
from s3k_async.storage.tier_policy import MovePolicy
from s3k_async.storage.tiered_blobs import TieredBlobs, need_tiers
from s3k_async.volumes import Volume, open_volume

__all__ = ["tier"]

T = TypeVar("T")

tier = CommandGroup(
    name="tier",
    help="""The hot and the cold data location of a volume.

    Clients write to the hot location; run moves data to the cold one, and warm copies it back.
    Files stay readable all the time.""",
)


def _with_tiers(
    invocation: Invocation,
    volume: str | None,
    work: Callable[[Volume, TieredBlobs], Awaitable[T]],
) -> T:
    """Open a volume with tiers for some work. Raises InvalidArgumentError, UnsupportedError."""
    config = invocation.resolve(whole_volume(volume).volume)

    async def opened() -> T:
        found = await open_volume(config)
        try:
            return await work(found, need_tiers(found.blobs, config.where))
        finally:
            await found.close()

    return run_loop(opened)


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
@click.option("--low", type=_BYTES, metavar="BYTES", help="See --high.")
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
    """Move data of VOLUME from the hot location to the cold one: all of it, or what the options
    select.

    Files whose user metadata Tier is hot stay, those where it is cold are always moved, and those
    with an age, such as hot:7d, when they are older than that. Each object is copied, the copy is
    read back and compared, and then the hot one is deleted. Safe beside writers, readers, gc and
    other runs; an interrupted run is finished by the next one.
    """
    policy = MovePolicy(older_than, high, low)

    async def work(opened: Volume, blobs: TieredBlobs) -> tuple[str, TierRun]:
        with invocation.meter("tier") as meter:
            overrides = partial(tier_overrides, opened)
            moves = TierMoves(blobs, SYSTEM, opened.config.tuning, rate, meter.part(), overrides)
            return shown_in(opened.config), await moves.run(policy, dry_run=dry_run)

    place, done = _with_tiers(invocation, volume, work)
    verb = "would move" if dry_run else "moved"
    text = f"{verb} {plural(done.moved, 'object')}, {plural(done.bytes, 'byte')} in {place}"
    text += f"; hot: {plural(done.left, 'object')}, {plural(done.left_bytes, 'byte')}"
    fields: dict[str, Any] = {
        "volume": place,
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
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "-r", "--recursive", is_flag=True, help="Include directories and everything below them."
)
@click.option("--dry-run", is_flag=True, help="Only show what would be copied.")
@click.option("--rate", type=click.IntRange(min=1), metavar="BYTES", help="Most bytes per second.")
@click.pass_obj
def warm(
    invocation: Invocation,
    paths: tuple[str, ...],
    recursive: bool,
    dry_run: bool,
    rate: int | None,
) -> None:
    """Copy the data of files to the hot location, where reads then find it; the cold data stays.
    The next run that moves the files deletes the copies.
    """

    async def one(clients: Clients, path: str, meter: ProgressMeter) -> None:
        address = parse_address(path)
        volume = volume_of(await clients.of(address))
        warming = TierWarming(volume, rate=rate, dry_run=dry_run, progress=meter.part())
        done.append(warming.result)
        await warming.add(address.path, recursive=recursive)

    async def work(clients: Clients) -> None:
        with invocation.meter("tier") as meter:
            await for_each(paths, lambda path: one(clients, path, meter))

    done: list[WarmResult] = []
    try:
        invocation.run(work)
    finally:
        if done:
            _say_warm(invocation, done, dry_run=dry_run)
    damaged = [key for each in done for key in each.damaged]
    if damaged:
        error = CorruptDataError(
            "the cold object, or its copy, does not have the recorded bytes: s3k fsck --deep"
        )
        copied = any(each.copied for each in done)
        raise FailedOperandsError([(key, error) for key in sorted(damaged)], some_succeeded=copied)


def _say_warm(invocation: Invocation, done: Sequence[WarmResult], *, dry_run: bool) -> None:
    total = {
        name: sum(getattr(each, name) for each in done)
        for name in ("files", "copied", "bytes", "hot", "vanished")
    }
    verb = "would copy" if dry_run else "copied"
    text = f"{verb} {plural(total['copied'], 'object')}, {plural(total['bytes'], 'byte')}"
    text += f", of {plural(total['files'], 'file')}"
    damaged = sorted(key for each in done for key in each.damaged)
    invocation.say(text, dry_run=dry_run, **total, damaged=damaged)


@tier.command(cls=VolumeCommand)
@click.argument("volume", required=False)
@click.pass_obj
def status(invocation: Invocation, volume: str | None) -> None:
    """Show the objects and bytes of VOLUME in the hot location, in the cold one, and in both.

    An object is in both during or after an interrupted move, or after warm: run deletes the hot
    one."""

    async def work(opened: Volume, blobs: TieredBlobs) -> tuple[TierUsage, str]:
        return await tier_usage(blobs), shown_in(opened.config)

    usage, place = _with_tiers(invocation, volume, work)
    rows = {
        "hot": (usage.hot_objects, usage.hot_bytes),
        "cold": (usage.cold_objects, usage.cold_bytes),
        "both": (usage.both_objects, usage.both_bytes),
    }
    if invocation.json:
        fields = {
            name: {"objects": objects, "bytes": size} for name, (objects, size) in rows.items()
        }
        invocation.output.json({"volume": place, **fields, "differing": list(usage.differing)})
        return
    for name, (objects, size) in rows.items():
        invocation.output.line(f"{name:<5} {plural(objects, 'object')}, {plural(size, 'byte')}")
    for key in usage.differing:
        invocation.output.line(f"differs in size: {key}")
