"""Versions of files: versions, undelete, restore."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from s3k_async._core.paths import normalize
from s3k_async.bulk.transfer import ProgressCallback
from s3k_async.cli.command import VolumeCommand, literal_option
from s3k_async.cli.durations import past_time
from s3k_async.cli.exit_codes import ExitCode
from s3k_async.cli.invocation import Clients, Invocation
from s3k_async.cli.output import plural, time_text
from s3k_async.cli.path_patterns import for_each_path, is_pattern
from s3k_async.cli.transfers import Transfer, finish, last_name, need_distinct, transfer_each
from s3k_async.cli.volume_addresses import Address, parse_address, shown
from s3k_async.errors import CrossVolumeError, PathNotFoundError
from s3k_async.model import ChangeResult

if TYPE_CHECKING:
    from s3k_async.bulk.file_versions import FileVersion
    from s3k_async.bulk.point_in_time import PastChange, PastResult
    from s3k_async.client import S3kClient

__all__ = ["restore", "undelete", "versions"]

_DONE = {
    "restore_directory": "from the trash",
    "create_directory": "create",
    "create": "create",
    "replace": "replace",
    "delete": "delete",
    "none": "cannot recover",
}
"""What `restore` prints for each kind of change."""


@click.command(cls=VolumeCommand)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@literal_option
@click.pass_obj
def versions(invocation: Invocation, paths: tuple[str, ...]) -> None:
    """List the contents that files had at a path, newest first.

    Each line: id of the version, state (current, overwritten, deleted, moved, or trash for a file
    below a deleted directory), when it began and ended (UTC), bytes, and "no data" once s3k gc has
    deleted its data. Reads the whole operation log. With --json, one JSON object per line.
    """

    async def one(clients: Clients, path: str) -> None:
        address = parse_address(path)
        client = await clients.of(address)
        found = await client.versions(address.path)
        if not found:
            raise PathNotFoundError(
                "no file is or was at the path, as far as the operation log goes back", path=path
            )
        for each in found:
            if invocation.json:
                invocation.output.json({"volume": shown(client), **_version_fields(each)})
            else:
                invocation.output.line(_version_line(each))

    invocation.run(lambda clients: for_each_path(clients, paths, one))


@click.command(cls=VolumeCommand)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--version",
    "version",
    metavar="ID",
    help="The version of a single PATH, as s3k versions shows it.",
)
@click.option(
    "--to", metavar="TARGET", help="The path of the file or directory [default: its former path]."
)
@click.option("-r", "--recursive", is_flag=True, help="Bring deleted directories back.")
@click.option(
    "--since",
    metavar="TIME",
    help="With -r, only what was deleted at a time (2026-11-21T04:30, UTC by default) or later, or "
    "within an age (2d).",
)
@literal_option
@click.pass_obj
def undelete(
    invocation: Invocation,
    paths: tuple[str, ...],
    version: str | None,
    to: str | None,
    recursive: bool,
    since: str | None,
) -> None:
    """Bring deleted files back, until s3k gc has deleted their data.

    The newest version of each file that was deleted or overwritten is copied to a free path; s3k
    versions lists them. With -r, a directory comes from the trash of the volume, as by s3k trash
    restore; if it is not there, the files that were deleted below it are undeleted, the last one at
    each path. A PATH can be a pattern of deleted files, with -r also of deleted directories; the
    paths that are not free are omitted. If TARGET ends with a /, or if there are several paths,
    each is restored into TARGET under its own name.
    """
    if version is not None and (recursive or len(paths) > 1):
        raise click.UsageError("--version is for one file")
    if since is not None and not recursive:
        raise click.UsageError("--since needs -r")
    since_ms = past_time(since, "--since")
    target = None if to is None else parse_address(to)
    addresses = [parse_address(path) for path in paths]

    def is_wild(path: str) -> bool:
        return is_pattern(path) and not invocation.literal

    if target is not None:
        need_distinct([last_name(each) for each in addresses if not is_wild(each.path)])

    async def one(
        clients: Clients, address: Address, progress: ProgressCallback | None
    ) -> Transfer:
        client = await clients.of(address)
        place = normalize(address.path)
        if target is not None and await clients.of(target) is not client:
            raise CrossVolumeError("a file is undeleted in its own volume", path=to)
        if is_wild(place) and version is None and not await client.exists(place):
            into = None if target is None else normalize(target.path)
            done = await _matching(client, place, into, recursive, since_ms, progress)
            if done is not None:
                return done, shown(client, into or place)
        if target is not None:
            several = target.is_into or len(paths) > 1
            place = target.below(place.rpartition("/")[2]) if several else target.path
        done = await client.undelete(
            address.path,
            version=version or "",
            target=place,
            recursive=recursive,
            since=since_ms,
            progress=progress,
        )
        return done, shown(client, normalize(place))

    async def work(clients: Clients) -> tuple[ChangeResult, list[str]]:
        with invocation.meter("undelete") as meter:
            return await transfer_each(
                addresses, lambda address: one(clients, address, meter.part())
            )

    finish(invocation, "undeleted", *invocation.run(work), to="to")


async def _matching(
    client: S3kClient,
    pattern: str,
    target: str | None,
    recursive: bool,
    since_ms: int | None,
    progress: ProgressCallback | None,
) -> ChangeResult | None:
    """As `undelete_matching`."""
    from s3k_async.bulk.undeletion import undelete_matching
    from s3k_async.client import volume_of

    return await undelete_matching(
        volume_of(client),
        pattern,
        target=target,
        recursive=recursive,
        since_ms=since_ms,
        progress=progress,
    )


@click.command(cls=VolumeCommand)
@click.argument("path")
@click.option(
    "--at",
    required=True,
    metavar="TIME",
    help="The time (2026-11-21T04:30, UTC by default), or an age (90s, 15m, 2h, 3d).",
)
@click.option("--delete", is_flag=True, help="Also delete files that were created later.")
@click.option("--yes", is_flag=True, help="Apply the changes. Without it, only show them.")
@click.pass_obj
def restore(invocation: Invocation, path: str, at: str, delete: bool, yes: bool) -> None:
    """Restore everything at and below a path to its state at an earlier time. A dry run without
    --yes.

    Deleted files are brought back, and overwritten ones get their content of that time, unless s3k
    gc has deleted their data. Prints a line for each difference; exits with 9 if one cannot be
    undone.
    """
    time_ms = past_time(at, "--at")
    address = parse_address(path)

    async def work(clients: Clients) -> tuple[PastResult, str, str]:
        client = await clients.of(address)
        assert time_ms is not None
        with invocation.meter("restore") as meter:
            done = await client.restore(
                address.path, time_ms, delete=delete, dry_run=not yes, progress=meter.part()
            )
        return done, shown(client, normalize(address.path)), shown(client)

    result, place, volume = invocation.run(work)
    for change in result.changes:
        if invocation.json:
            invocation.output.json({"volume": volume, **_change_fields(change)})
        else:
            invocation.output.line(_change_line(change))
    _say_restored(invocation, result, place, yes=yes)
    result.done.raise_for_failures(path=place)
    if result.unrecoverable:
        raise click.exceptions.Exit(ExitCode.DAMAGE)


def _version_line(version: FileVersion) -> str:
    until = "-" if version.until_ms is None else time_text(version.until_ms)
    line = (
        f"{version.id}  {version.state:<11}  {time_text(version.since_ms)}  {until:<20}  "
        f"{version.size:>12,}"
    )
    return line if version.has_data else f"{line}  no data"


def _version_fields(version: FileVersion) -> dict[str, Any]:
    """The JSON fields of a version."""
    return {
        "id": version.id,
        "path": version.path,
        "state": version.state,
        "operation": version.operation or None,
        "since_ms": version.since_ms,
        "until_ms": version.until_ms,
        "size": version.size,
        "mtime_ms": version.mtime_ms,
        "checksum": version.checksum,
        "has_data": version.has_data,
    }


def _change_line(change: PastChange) -> str:
    text = f"{_DONE[change.kind]}: {change.path}"
    if change.kind.endswith("directory"):
        return f"{text}/"
    return (
        f"{text}: {change.problem}" if change.problem else f"{text}  {plural(change.size, 'byte')}"
    )


def _change_fields(change: PastChange) -> dict[str, Any]:
    """The JSON fields of a difference."""
    return {
        "path": change.path,
        "change": change.kind,
        "size": change.size,
        "version": change.version or None,
        "problem": change.problem or None,
    }


def _say_restored(invocation: Invocation, result: PastResult, place: str, *, yes: bool) -> None:
    done, lost = result.done, result.unrecoverable
    changes = len(result.changes) - lost
    if yes:
        text = f"made {plural(changes - done.failed, 'change')} in {place}"
    else:
        text = f"would make {plural(changes, 'change')} in {place} (--yes makes them)"
    if lost:
        text += f"; {plural(lost, 'path')} cannot be recovered"
    if result.history_ms is not None:
        text += (
            "; compaction has removed history of that time, so files that were deleted or moved "
            f"may be missing; the history is complete since {time_text(result.history_ms)}"
        )
    invocation.say(
        text,
        target=place,
        changes=changes,
        unrecoverable=lost,
        history_ms=result.history_ms,
        files=done.files,
        directories=done.directories,
        bytes=done.bytes,
        failed=done.failed,
        dry_run=not yes,
    )
