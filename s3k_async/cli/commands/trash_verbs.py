"""trash: deleted directories. Lists, restores and reclaims them, and sets their retention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from s3k_async._core.duration_syntax import duration_text
from s3k_async._core.paths import normalize
from s3k_async.bulk.publish import is_below
from s3k_async.cli.command import CommandGroup, VolumeCommand, for_each
from s3k_async.cli.durations import duration_option, time_or_age
from s3k_async.cli.invocation import Clients, Invocation
from s3k_async.cli.output import plural, time_text
from s3k_async.cli.volume_addresses import (
    Address,
    entry_fields,
    object_id_of,
    parse_address,
    shown,
    whole_volume,
)
from s3k_async.errors import (
    CrossVolumeError,
    PathExistsError,
    PathNotFoundError,
)
from s3k_async.model import ROOT, ChangeResult, ContentSummary, TrashItem

if TYPE_CHECKING:
    from s3k_async.client import S3kClient

__all__ = ["deleted_below", "total_of", "trash"]

trash = CommandGroup(
    name="trash",
    help="""Directories that were deleted with everything below them.

    They can be restored until garbage collection reclaims them, or s3k trash empty. Only volumes of
    layout tree have a trash.""",
)


def _item_fields(item: TrashItem) -> dict[str, object]:
    """The JSON fields of a deleted directory."""
    return {
        "path": item.was,
        "id": item.id,
        "deleted_ms": item.when_ms,
        "by": item.by or None,
        "state": item.state or None,
    }


@trash.command(name="ls", cls=VolumeCommand)
@click.argument("path", default=":/")
@click.pass_obj
def list_trash(invocation: Invocation, /, path: str) -> None:
    """List the directories that were deleted at or below a path, newest first.

    Each line: id, time of the deletion (UTC), state (- or reclaiming), user and host, former path.
    With --json, one JSON object per line.
    """
    address = parse_address(path)

    async def work(clients: Clients) -> None:
        client = await clients.of(address)
        for item in await deleted_below(client, normalize(address.path)):
            if invocation.json:
                invocation.output.json({"volume": shown(client), **_item_fields(item)})
            else:
                time, state, by = time_text(item.when_ms), item.state or "-", item.by or "-"
                invocation.output.line(f"{item.id}  {time}  {state:<10}  {by}  {item.was}")

    invocation.run(work)


@trash.command(cls=VolumeCommand)
@click.argument("operands", nargs=-1, required=True, metavar="PATH|ID...")
@click.option(
    "--to", metavar="TARGET", help="The path of the restored directory [default: its former path]."
)
@click.pass_obj
def restore(invocation: Invocation, operands: tuple[str, ...], to: str | None) -> None:
    """Restore deleted directories with everything below them, each in one transaction.

    A PATH selects the directory that was deleted there last. An ID, as s3k trash ls shows it, is
    that of a directory in the default volume. A directory is restored into TARGET under its own
    name if TARGET ends with a /, or if there are several directories. Missing parents are created.
    With --json, one JSON object per line.
    """
    target = None if to is None else parse_address(to)

    async def one(clients: Clients, operand: str) -> None:
        client = await clients.of(_address(operand))
        item = await _operand(client, operand)
        place = item.was if isinstance(item, TrashItem) else item
        if target is not None:
            if await clients.of(target) is not client:
                raise CrossVolumeError("a directory is restored in its own volume", path=to)
            several = target.is_into or len(operands) > 1
            place = target.below(place.rpartition("/")[2]) if several else target.path
        try:
            status = await client.trash().restore(item, place)
        except PathExistsError as error:
            raise PathExistsError(
                f"{error.message}; --to restores the directory at another path", path=error.path
            ) from error
        invocation.say(f"restored {shown(client, status.path)}", **entry_fields(client, status))

    invocation.run(lambda clients: for_each(operands, lambda each: one(clients, each)))


@trash.command(cls=VolumeCommand)
@click.argument("operands", nargs=-1, metavar="[PATH|ID]...")
@click.option(
    "--older-than",
    metavar="TIME",
    help="Only directories deleted before a time (2026-11-21T04:30, UTC by default), or longer ago "
    "than an age (2d).",
)
@click.option("--yes", is_flag=True, help="Reclaim. Without it, only show what would be reclaimed.")
@click.pass_obj
def empty(
    invocation: Invocation, operands: tuple[str, ...], older_than: str | None, yes: bool
) -> None:
    """Reclaim deleted directories before their retention is over. A dry run without --yes.

    A PATH selects the directories that were deleted at or below it; the default is the whole trash
    of the default volume. An ID, as s3k trash ls shows it, is that of a directory in the default
    volume. They can no longer be restored. s3k gc frees their space later. With --json, one JSON
    object per line.
    """
    before_ms = time_or_age(older_than, "--older-than")

    async def one(clients: Clients, operand: str) -> None:
        client = await clients.of(_address(operand))
        items = await _selected(client, operand)
        if yes:
            with invocation.meter("empty the trash") as meter:
                result = await client.trash().empty(
                    items, older_than=before_ms, progress=meter.part()
                )
        else:
            result = await _expected(client, items, before_ms)
        where = shown(client, normalize(_address(operand).path))
        counts = [
            plural(result.files, "file"),
            plural(result.directories, "directory"),
            f"{result.bytes:,} bytes",
        ]
        text = f"from the trash of {where}: {', '.join(counts)}"
        invocation.say(
            f"reclaimed {text}" if yes else f"would reclaim {text} (--yes reclaims)",
            target=where,
            files=result.files,
            directories=result.directories,
            bytes=result.bytes,
            failed=result.failed,
            dry_run=not yes,
        )
        result.raise_for_failures(path=where)

    invocation.run(lambda clients: for_each(operands or (":/",), lambda each: one(clients, each)))


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
    address = whole_volume(volume)

    async def work(clients: Clients) -> None:
        client = await clients.of(address)
        place = shown(client)
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


def _address(operand: str) -> Address:
    """The address of a PATH; of an ID, that of the default volume."""
    return Address(None, ROOT, operand) if object_id_of(operand) else parse_address(operand)


async def _operand(client: S3kClient, operand: str) -> TrashItem | str:
    """The directory with an ID, or the path of a PATH. Raises PathNotFoundError."""
    if object_id_of(operand):
        (item,) = await _with_id(client, operand)
        return item
    return normalize(_address(operand).path)


async def _selected(client: S3kClient, operand: str) -> Sequence[TrashItem] | None:
    """The directories that an operand selects; None: the whole trash. Raises PathNotFoundError for
    an operand that selects none."""
    if object_id_of(operand):
        return await _with_id(client, operand)
    path = normalize(_address(operand).path)
    if path == ROOT:
        return None
    found = await deleted_below(client, path)
    if not found:
        raise PathNotFoundError("no such directory in the trash", path=path)
    return found


async def _with_id(client: S3kClient, operand: str) -> list[TrashItem]:
    found = [item for item in await client.trash().list() if item.id == object_id_of(operand)]
    if not found:
        raise PathNotFoundError("no such directory in the trash", path=operand)
    return found


async def total_of(client: S3kClient, item: TrashItem) -> ContentSummary | None:
    """The total of a deleted directory; None if it was restored or reclaimed meanwhile."""
    try:
        return await client.trash().summary(item)
    except PathNotFoundError:
        return None


async def deleted_below(client: S3kClient, path: str) -> list[TrashItem]:
    """The directories that were deleted at or below a path, newest first."""
    return [item for item in await client.trash().list() if is_below(item.was, path)]


async def _expected(
    client: S3kClient, items: Sequence[TrashItem] | None, before_ms: int | None
) -> ChangeResult:
    """What emptying would reclaim."""
    files = directories = size = 0
    chosen = await client.trash().list() if items is None else items
    due = [item for item in chosen if before_ms is None or item.when_ms < before_ms]
    for item in due:
        if total := await total_of(client, item):
            files += total.file_count
            directories += total.directory_count
            size += total.length
    return ChangeResult(files, directories, size)
