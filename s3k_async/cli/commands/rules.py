"""Lifecycle rules: set, list, remove, run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from s3k_async._core.duration_syntax import duration_text
from s3k_async.cli.command import (
    Amount,
    CommandGroup,
    VolumeCommand,
    capacity_options,
    for_each,
)
from s3k_async.cli.durations import duration_option, time_of
from s3k_async.cli.invocation import Clients, Invocation
from s3k_async.cli.output import plural, time_text
from s3k_async.cli.reporting import FailedOperandsError
from s3k_async.cli.volume_addresses import (
    parse_address,
    shown,
    whole_volume,
)

if TYPE_CHECKING:
    from s3k_async.client import S3kClient
    from s3k_async.lifecycle_rules import LifecycleRule

__all__ = ["rules"]

rules = CommandGroup(
    name="rules",
    help="""Lifecycle rules: files that expire, or become read-only.

    A rule of a directory applies to all files below it, or with --name-prefix to those whose path
    begins with DIRECTORY/TEXT. User metadata of a file comes before it: ExpiresAt (epoch seconds),
    ExpiresAfter and ReadOnlyAfter (seconds), set by s3k attr --set.""",
)


def _not_empty(_context: click.Context, _option: click.Parameter, text: str | None) -> str:
    """The name prefix. Without one, the rule would be that of the directory: an option that is
    given and empty is refused, as from a variable that is not set."""
    if text == "":
        raise click.BadParameter("it is empty")
    return text or ""


_name_prefix = click.option(
    "--name-prefix",
    metavar="TEXT",
    callback=_not_empty,
    help="The rule applies only to files and directories in DIRECTORY whose names begin with TEXT.",
)


@rules.command(name="set", cls=VolumeCommand)
@click.argument("directory", metavar="DIRECTORY")
@_name_prefix
@duration_option(
    "--expire-after", help="Age after its last change at which a file is deleted, such as 30d."
)
@click.option("--expire-at", metavar="TIME", help="When the files are deleted (UTC by default).")
@duration_option(
    "--read-only-after",
    help="Age after its last change at which a file becomes read-only, such as 1h.",
)
@click.pass_obj
def set_rule(
    invocation: Invocation,
    directory: str,
    name_prefix: str,
    expire_after: int | None,
    expire_at: str | None,
    read_only_after: int | None,
) -> None:
    """Set the rule of a directory, or of names in it, in place of a former one."""
    if (expire_after, expire_at, read_only_after) == (None, None, None):
        raise click.UsageError("a rule needs --expire-at, --expire-after or --read-only-after")
    at_ms = time_of(expire_at, "--expire-at")

    async def work(clients: Clients) -> None:
        address = parse_address(directory)
        client = await clients.of(address)
        rule = await client.set_rule(
            address.path,
            name_prefix=name_prefix,
            expire_at=None if at_ms is None else at_ms // 1000,
            expire_after=expire_after,
            read_only_after=read_only_after,
        )
        text = f"{shown(client, rule.path)}{_names(rule)}: {_text(rule)}"
        invocation.say(text, volume=shown(client), **_fields(rule))

    invocation.run(work)


@rules.command(name="list", cls=VolumeCommand)
@click.argument("volume", required=False)
@click.pass_obj
def list_rules(invocation: Invocation, volume: str | None) -> None:
    """List the rules of a volume. With --json, one JSON object per line."""

    async def work(clients: Clients) -> None:
        client = await clients.of(whole_volume(volume))
        for rule in await client.rules():
            if invocation.json:
                invocation.output.json({"volume": shown(client), **_fields(rule)})
            else:
                invocation.output.line(f"{rule.path}{_names(rule)}: {_text(rule)}")

    invocation.run(work)


@rules.command(name="remove", cls=VolumeCommand)
@click.argument("directories", nargs=-1, required=True, metavar="DIRECTORY...")
@_name_prefix
@click.pass_obj
def remove_rule(invocation: Invocation, directories: tuple[str, ...], name_prefix: str) -> None:
    """Remove the rules of directories, or of names in them."""

    async def one(clients: Clients, directory: str) -> None:
        address = parse_address(directory)
        client = await clients.of(address)
        await client.remove_rule(address.path, name_prefix=name_prefix)

    invocation.run(lambda clients: for_each(directories, lambda each: one(clients, each)))


@rules.command(name="run", cls=VolumeCommand)
@click.argument("volume", required=False)
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@click.option(
    "--rate", type=Amount(min_open=True), metavar="FILES", help="Maximum files changed per second."
)
@capacity_options("read", "write")
@click.pass_obj
def run_rules(
    invocation: Invocation,
    volume: str | None,
    dry_run: bool,
    rate: float | None,
    read_units: float | None,
    write_units: float | None,
) -> None:
    """Delete the files that have expired, and make those read-only whose time has come.

    Any number of runs may be made at the same time. With --dry-run and --json, one JSON object per
    line for each file."""
    from s3k_async.client import volume_of
    from s3k_async.volumes.table_capacity import limited_capacity

    async def work(clients: Clients) -> None:
        client = await clients.of(whole_volume(volume))
        async with limited_capacity(
            volume_of(client), read_units=read_units, write_units=write_units
        ):
            if dry_run:
                await _show(invocation, client)
            else:
                await _run(invocation, client, rate)

    invocation.run(work)


async def _show(invocation: Invocation, client: S3kClient) -> None:
    """Show what is due; without --json, a summary follows."""
    counts: Counter[str] = Counter()
    async for each in client.due_actions():
        counts[each.action] += 1
        if invocation.json:
            fields = {"path": each.path, "action": each.action, "due_ms": each.due_ms}
            invocation.output.json({"volume": shown(client), **fields})
        else:
            action = each.action.replace("_", "-")
            invocation.output.line(f"{action}  {time_text(each.due_ms)}  {each.path}")
    if not invocation.json:
        invocation.say(
            f"dry run: {plural(counts['expire'], 'file')} would expire, "
            f"{plural(counts['read_only'], 'file')} would become read-only in {shown(client)}"
        )


async def _run(invocation: Invocation, client: S3kClient, rate: float | None) -> None:
    with invocation.meter("rules") as meter:
        result = await client.run_rules(rate=rate, progress=meter.part())
    place = shown(client)
    invocation.say(
        f"{plural(result.expired, 'file')} expired, {plural(result.read_only, 'file')} became "
        f"read-only in {place}",
        volume=place,
        expired=result.expired,
        read_only=result.read_only,
        stale=result.stale,
        scanned=result.scanned,
        failed=result.failed,
    )
    if result.failures:
        raise FailedOperandsError(
            result.failures,
            some_succeeded=result.expired + result.read_only > 0,
            count=result.failed,
        )


def _names(rule: LifecycleRule) -> str:
    """To which names a rule is restricted, in words."""
    return f" (names that begin with {rule.name_prefix})" if rule.name_prefix else ""


def _text(rule: LifecycleRule) -> str:
    """A rule in words: `expires after 30d, read-only after 1h`."""
    parts = []
    if rule.expire_at is not None:
        parts.append(f"expires at {time_text(rule.expire_at * 1000)}")
    if rule.expire_after is not None:
        parts.append(f"expires after {duration_text(rule.expire_after)}")
    if rule.read_only_after is not None:
        parts.append(f"read-only after {duration_text(rule.read_only_after)}")
    return ", ".join(parts)


def _fields(rule: LifecycleRule) -> dict[str, Any]:
    """The JSON fields of a rule."""
    return {
        "path": rule.path,
        "name_prefix": rule.name_prefix,
        "expire_at": rule.expire_at,
        "expire_after": rule.expire_after,
        "read_only_after": rule.read_only_after,
    }
