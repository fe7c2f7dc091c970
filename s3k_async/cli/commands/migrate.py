"""Migration: dump, load, reshard, migrate."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import click

from s3k_async._core.paths import normalize
from s3k_async.cli.command import OutputFile, VolumeCommand
from s3k_async.cli.event_loop import run_loop
from s3k_async.cli.invocation import Invocation
from s3k_async.cli.output import plural
from s3k_async.cli.volume_addresses import Address, parse_volume_address, shown_in, whole_volume
from s3k_async.config import VolumeConfig
from s3k_async.errors import PartialFailureError
from s3k_async.migrate import (
    DumpResult,
    LayoutResult,
    LoadResult,
    ReshardResult,
    add_hot_location,
    change_layout,
    dump_volume,
    enable_features,
    load_volume,
    reshard_volume,
)
from s3k_async.migrate.dump_format import DumpForm
from s3k_async.model import FEATURES, ROOT, Feature, HashName, LayoutName
from s3k_async.volumes import Volume, open_volume

__all__ = [
    "dump",
    "load",
    "migrate",
    "print_dump",
    "print_load",
    "print_reshard",
    "reshard",
    "resharding",
]


@click.command(cls=VolumeCommand)
@click.argument("volume", required=False)
@click.option(
    "-o",
    "--output",
    "target",
    type=OutputFile(),
    metavar="FILE",
    required=True,
    help="File to write.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "parquet"]),
    default="jsonl",
    show_default=True,
    help="File format.",
)
@click.option("--path", metavar="PATH", help="Dump only this path and everything below it.")
@click.option("--uncommitted", is_flag=True, help="Include reservations of unfinished writers.")
@click.pass_obj
def dump(
    invocation: Invocation,
    volume: str | None,
    target: str,
    form: DumpForm,
    path: str | None,
    uncommitted: bool,
) -> None:
    """Export the file tree of a volume, without file contents, to FILE.

    VOLUME may include a path (./vol:/a), as with --path. Concurrent changes are included as of some
    moment during the run.
    """
    address = parse_volume_address(volume) if volume is not None else Address(None, ROOT, "")
    if path is not None and address.path != ROOT:
        raise click.UsageError("give the path either in VOLUME or by --path")
    top = normalize(path if path is not None else address.path)
    config = invocation.resolve(address.volume)

    async def work() -> DumpResult:
        opened = await open_volume(config)
        try:
            with invocation.meter("dump") as meter:
                return await dump_volume(
                    opened,
                    target,
                    form=form,
                    path=top,
                    include_uncommitted=uncommitted,
                    progress=meter.part(),
                )
        finally:
            await opened.close()

    print_dump(invocation, config, top, run_loop(work), target, format=form)


def print_dump(
    invocation: Invocation,
    config: VolumeConfig,
    top: str,
    done: DumpResult,
    target: str,
    **more: object,
) -> None:
    """Print the result of a dump of a path of a volume; `more`: further fields of the JSON
    document. Raises PartialFailureError if entries could not be reached."""
    invocation.say(
        f"dumped {plural(done.files, 'file')}, {plural(done.directories, 'directory')} of "
        f"{shown_in(config, top)} to {target}",
        volume=shown_in(config),
        path=top,
        file=target,
        entries=done.entries,
        files=done.files,
        directories=done.directories,
        bytes=done.bytes,
        **more,
    )
    if done.unreachable:
        raise PartialFailureError(
            f"{plural(done.unreachable, 'entry')} without a parent directory not dumped: s3k fsck"
            " lists them; create their directories with S3-FileSystem 1.0, and repeat the dump",
            path=top,
        )


@click.command(
    cls=VolumeCommand,
    epilog="A missing volume is created, with the suffix count and hash of the dump unless "
    "--suffix-count and"
    " --hash are given. An existing volume must be empty; loading then first waits 40 seconds, "
    "until open clients have stopped.",
)
@click.argument("source", metavar="FILE")
@click.argument("volume")
@click.option(
    "--check",
    is_flag=True,
    help="First verify that the data of every file exists.",
)
@click.option(
    "--copy-bytes-from",
    "origin",
    metavar="VOLUME",
    help="Copy the file contents from the dumped volume.",
)
@click.option(
    "--adopt",
    is_flag=True,
    help="Adopt the data objects of a volume of S3-FileSystem 1.0 in place.",
)
@click.pass_obj
def load(
    invocation: Invocation, source: str, volume: str, check: bool, origin: str | None, adopt: bool
) -> None:
    """Import a dump into the empty VOLUME. FILE is the output of dump.

    The volume is locked while it is loaded. Repeat the command to finish an interrupted load.
    """
    if check and origin is not None:
        raise click.UsageError("--check and --copy-bytes-from cannot be combined")
    if adopt and origin is not None:
        raise click.UsageError("--adopt and --copy-bytes-from cannot be combined")
    config = invocation.resolve(whole_volume(volume).volume)

    async def work() -> LoadResult:
        async with AsyncExitStack() as stack:
            bytes_from: Volume | None = None
            if origin is not None:
                # Settings given as flags apply to the target.
                plain = Invocation(
                    config=invocation.config, context=invocation.context, hadoop=invocation.hadoop
                )
                bytes_from = await open_volume(plain.resolve(whole_volume(origin).volume))
                stack.push_async_callback(bytes_from.close)
            meter = stack.enter_context(invocation.meter("load"))
            return await load_volume(
                source,
                config,
                check=check,
                adopt=adopt,
                bytes_from=bytes_from,
                progress=meter.part(),
            )

    print_load(invocation, run_loop(work), source, volume)


def print_load(
    invocation: Invocation, done: LoadResult, source: str, volume: str, **more: object
) -> None:
    """Print the result of a load; `more`: further fields of the JSON document."""
    text = (
        f"loaded {plural(done.files, 'file')}, {plural(done.directories, 'directory')} into "
        f"{volume}"
    )
    if done.made:
        text += f"; made {plural(done.made, 'directory')} above them"
    if done.new_ids:
        text += (
            f"; gave new ids to {plural(done.new_ids, 'directory')} that the dump has at two paths"
        )
        more["new_ids"] = done.new_ids
    invocation.say(
        text,
        file=source,
        volume=volume,
        entries=done.entries,
        files=done.files,
        directories=done.directories,
        bytes=done.bytes,
        skipped=done.skipped,
        made=done.made,
        **more,
    )


def resharding(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of reshards: suffix_count, hash_name."""
    count = click.option(
        "--suffix-count",
        type=click.IntRange(1, 1000),
        required=True,
        metavar="N",
        help="New suffix count.",
    )
    name = click.option(
        "--hash",
        "hash_name",
        type=click.Choice(["xxh3", "java31"]),
        help="New hash [default: unchanged].",
    )
    return count(name(command))


@click.command(cls=VolumeCommand)
@click.argument("volume")
@resharding
@click.pass_obj
def reshard(
    invocation: Invocation, volume: str, suffix_count: int, hash_name: HashName | None
) -> None:
    """Change the suffix count of VOLUME, in place.

    The volume is locked: other clients cannot use it, and must open it again afterwards. The
    command first waits 40 seconds, until open clients have stopped. Repeat it to finish an
    interrupted run.
    """
    config = invocation.resolve(whole_volume(volume).volume)

    async def work() -> ReshardResult:
        with invocation.meter("reshard") as meter:
            return await reshard_volume(config, suffix_count, hash=hash_name, progress=meter.part())

    done = run_loop(work)
    differs = config.suffix_count not in (None, done.suffix_count) or config.hash not in (
        None,
        done.hash,
    )
    print_reshard(
        invocation,
        done,
        volume,
        "; the settings of the volume name others, change them" if differs else "",
    )


def print_reshard(
    invocation: Invocation, done: ReshardResult, volume: str, advice: str = "", **more: object
) -> None:
    """Print the result of a reshard, with advice; `more`: further fields of the JSON document."""
    text = (
        f"{volume} has suffix count {done.suffix_count}, hash {done.hash}; moved "
        f"{plural(done.moved, 'entry')}"
    )
    invocation.say(
        text + advice,
        volume=volume,
        suffix_count=done.suffix_count,
        hash=done.hash,
        entries=done.entries,
        moved=done.moved,
        **more,
    )


@click.command(cls=VolumeCommand)
@click.argument("volume")
@click.option(
    "--layout",
    type=click.Choice(["path", "tree"]),
    help="New layout.",
)
@click.option(
    "--enable",
    type=click.Choice(FEATURES),
    multiple=True,
    help="A feature to add; earlier versions cannot open the volume any more.",
)
@click.option(
    "--hot",
    default="",
    metavar="LOCATION",
    help="A hot data location to add, as of s3k init; earlier versions cannot open the volume any "
    "more.",
)
@click.option(
    "--hot-on-this-machine",
    is_flag=True,
    help="Accept a directory as hot location, as of s3k init.",
)
@click.option(
    "--no-check",
    is_flag=True,
    help="Skip the check by fsck, after s3k fsck repair or s3k spark fsck-repair.",
)
@click.pass_obj
def migrate(
    invocation: Invocation,
    volume: str,
    layout: LayoutName | None,
    enable: tuple[Feature, ...],
    hot: str,
    hot_on_this_machine: bool,
    no_check: bool,
) -> None:
    """Change the layout of VOLUME, in place, or add features or a hot data location to it.

    A change of the layout is refused while fsck has something to repair by the log. The volume is
    locked: other clients cannot use it, and must open it again afterwards. The command first waits
    40 seconds, until open clients have stopped. Repeat it to finish an interrupted run.
    """
    config = invocation.resolve(whole_volume(volume).volume)
    if sum(map(bool, (enable, layout, hot))) != 1:
        raise click.UsageError("expected --layout, or --enable, or --hot")
    if layout is None and no_check:
        raise click.UsageError("--no-check belongs to --layout")
    if hot:
        is_new = run_loop(
            lambda: add_hot_location(config, hot, on_this_machine=hot_on_this_machine)
        )
        invocation.say(f"{volume} has the hot location {hot}", volume=volume, hot=hot, added=is_new)
        return
    if layout is None:
        added = run_loop(enable_features, config, enable)
        invocation.say(
            f"{volume} has the features {', '.join(enable)}",
            volume=volume,
            enabled=list(enable),
            added=list(added),
        )
        return
    _change_layout(invocation, volume, config, layout, check=not no_check)


def _change_layout(
    invocation: Invocation, volume: str, config: VolumeConfig, layout: LayoutName, *, check: bool
) -> None:
    async def work() -> LayoutResult:
        with invocation.meter("migrate") as meter:
            return await change_layout(config, layout, check=check, progress=meter.part())

    done = run_loop(work)
    differs = config.layout not in (None, done.layout)
    advice = "; the settings of the volume name another, change them" if differs else ""
    invocation.say(
        f"{volume} has layout {done.layout}; moved {plural(done.moved, 'entry')}{advice}",
        volume=volume,
        layout=done.layout,
        entries=done.entries,
        moved=done.moved,
    )
