"""Changes of the tree: cp, mv, rm, mkdir, touch."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import click

from s3k_async._core.paths import normalize, split
from s3k_async.bulk.transfer import ProgressCallback
from s3k_async.bulk.volume_moves import move_to
from s3k_async.cli.chunked_work import ChunkResult, OperandOutcome, in_chunks, need_one_way
from s3k_async.cli.command import VolumeCommand, for_each, literal_option
from s3k_async.cli.invocation import Clients, Invocation
from s3k_async.cli.path_lists import Record, open_list
from s3k_async.cli.path_patterns import expanded, for_each_path
from s3k_async.cli.transfers import (
    Transfer,
    TrashNotice,
    destination,
    finish,
    last_name,
    need_distinct,
    transfer_each,
)
from s3k_async.cli.volume_addresses import Address, entry_fields, parse_address, shown
from s3k_async.errors import InvalidArgumentError, PathExistsError, PathNotFoundError
from s3k_async.model import ROOT, ChangeResult, FileStatus

if TYPE_CHECKING:
    from s3k_async.client import S3kClient

__all__ = ["cp", "mkdir", "mv", "rm", "touch"]


@click.command(cls=VolumeCommand)
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.argument("target")
@click.option(
    "-r", "--recursive", is_flag=True, help="Include directories and everything below them."
)
@click.option(
    "--no-overwrite", is_flag=True, help="Fail if a target file or the target directory exists."
)
@literal_option
@click.pass_obj
def cp(
    invocation: Invocation,
    sources: tuple[str, ...],
    target: str,
    recursive: bool,
    no_overwrite: bool,
) -> None:
    """Copy files and directories within a volume or between two volumes.

    TARGET is the path of the copy. A source is copied into TARGET under its own name if TARGET ends
    with a /, if there are several sources, or if a file is copied to an existing directory.
    Existing directories are merged.
    """
    goal = _address(target, "s3k get copies to local files")
    for source in sources:
        _address(source)

    async def one(
        clients: Clients, source: Address, several: bool, progress: ProgressCallback | None
    ) -> Transfer:
        client, other, place = await _both_ends(clients, source, goal, several=several)
        done = await client.copy_to(
            other,
            source.path,
            place,
            overwrite=not no_overwrite,
            recursive=recursive,
            progress=progress,
        )
        return done, shown(other, normalize(place))

    async def work(clients: Clients) -> tuple[ChangeResult, list[str]]:
        addresses = _addresses(await expanded(clients, sources))
        several = len(addresses) > 1
        with invocation.meter("copy") as meter:
            return await transfer_each(
                addresses, lambda source: one(clients, source, several, meter.part())
            )

    finish(invocation, "copied", *invocation.run(work), to="to")


@click.command(cls=VolumeCommand)
@click.argument("operands", nargs=-1, metavar="SOURCE... TARGET")
@click.option(
    "-f",
    "--overwrite",
    is_flag=True,
    help="Replace an existing file; between volumes, merge into an existing directory.",
)
@click.option(
    "--pairs",
    metavar="FILE",
    help="Rename pairs of paths (old, new) from a list; - is standard input.",
)
@click.option("-0", "--null", is_flag=True, help="The paths in the list are terminated by NUL.")
@click.option(
    "--resume",
    is_flag=True,
    help="Continue an interrupted list: a pair of which only the target exists is done.",
)
@click.option(
    "--no-atomic",
    is_flag=True,
    help="Move a directory entry by entry, with half as many writes; not atomic.",
)
@click.option(
    "--exchange",
    is_flag=True,
    help="Let SOURCE and TARGET change places atomically. In layout path, files only.",
)
@literal_option
@click.pass_obj
def mv(
    invocation: Invocation,
    operands: tuple[str, ...],
    overwrite: bool,
    pairs: str | None,
    null: bool,
    resume: bool,
    no_atomic: bool,
    exchange: bool,
) -> None:
    """Move or rename files and directories. Within a volume no data is copied, and a directory of
    any size is moved atomically.

    TARGET is the new path; its parent must exist. A source is moved into TARGET under its own name
    if TARGET ends with a /, if there are several sources, or if a file is moved to an existing
    directory. Between two volumes everything is copied, and deleted after all of it was copied.

    A line of a list holds the old and the new path separated by a tab, or JSON: ["/old", "/new"] or
    an object with source and target. The whole list is checked before anything is changed.
    """
    need_one_way(operands, pairs, "--pairs", {"-0": null, "--resume": resume}, at_least=2)
    if pairs is not None and (no_atomic or exchange):
        option = "--exchange" if exchange else "--no-atomic"
        raise click.UsageError(f"{option} cannot be combined with a list")
    if pairs is not None:
        _rename_pairs(invocation, pairs, null=null, overwrite=overwrite, resume=resume)
        return
    *sources, target = operands
    if exchange:
        if overwrite or no_atomic or len(sources) > 1:
            raise click.UsageError("--exchange has two operands and no other options")
        _exchange(invocation, _address(sources[0]), _address(target))
        return
    goal = _address(target, "s3k get copies to local files")
    for source in sources:
        _address(source)

    async def one(
        clients: Clients, source: Address, several: bool, progress: ProgressCallback | None
    ) -> Transfer:
        client, other, place = await _both_ends(clients, source, goal, several=several)
        target = shown(other, normalize(place))
        if client is not other:
            return await move_to(
                client, other, source.path, place, overwrite=overwrite, progress=progress
            ), target
        try:
            done = await client.rename(
                source.path, place, overwrite=overwrite, atomic=not no_atomic, progress=progress
            )
        except PathExistsError as error:
            if place != goal.path or not await client.is_dir(place):
                raise
            hint = (
                f"the directory exists already; to move into it, end the target with a /: {place}/"
            )
            raise PathExistsError(hint, path=place) from error
        return done, target

    async def work(clients: Clients) -> tuple[ChangeResult, list[str]]:
        addresses = _addresses(await expanded(clients, sources))
        several = len(addresses) > 1
        with invocation.meter("move") as meter:
            return await transfer_each(
                addresses, lambda source: one(clients, source, several, meter.part())
            )

    finish(invocation, "moved", *invocation.run(work), to="to")


def _exchange(invocation: Invocation, first: Address, second: Address) -> None:
    async def work(clients: Clients) -> tuple[ChangeResult, list[str]]:
        client, other = await clients.of(first), await clients.of(second)
        if client is not other:
            raise InvalidArgumentError(
                "only paths of one volume can be exchanged", path=second.path
            )
        return await client.exchange(first.path, second.path), [shown(client, second.path)]

    finish(invocation, "exchanged", *invocation.run(work), to="with")


def _rename_pairs(
    invocation: Invocation, file: str, *, null: bool, overwrite: bool, resume: bool
) -> None:
    async def rename(
        client: S3kClient, pairs: list[Record], progress: ProgressCallback | None
    ) -> OperandOutcome:
        renames = [(source, target) for source, target in pairs]
        return await client.rename_many(
            renames, overwrite=overwrite, missing_ok=resume, progress=progress
        )

    async def work(clients: Clients) -> ChunkResult:
        done = ChunkResult(invocation)
        async with open_list(file, 2, null=null, literal=bool(invocation.volume)) as records:
            with invocation.meter("move") as meter:
                await in_chunks(clients, records, done, meter.part(), rename)
        return done

    invocation.run(work).finish("moved")


def _addresses(sources: Sequence[str]) -> list[Address]:
    """The addresses of sources with different names."""
    addresses = [_address(source) for source in sources]
    need_distinct([last_name(address) for address in addresses])
    return addresses


def _address(operand: str, hint: str = "s3k put copies local files") -> Address:
    """The address in an operand. `hint`: what to do with a local one, for the error."""
    try:
        return parse_address(operand)
    except InvalidArgumentError as error:
        if not os.path.lexists(operand):
            raise
        raise InvalidArgumentError(f"{error.message}; {hint}", path=error.path) from error


async def _both_ends(
    clients: Clients, source: Address, target: Address, *, several: bool
) -> tuple[S3kClient, S3kClient, str]:
    """The source's client, the target's, and the path there."""
    client, other = await clients.of(source), await clients.of(target)
    status = await client.stat(source.path)
    return (
        client,
        other,
        await destination(other, target, status.name, is_dir=status.is_dir, several=several),
    )


@click.command(cls=VolumeCommand)
@click.argument("paths", nargs=-1, metavar="PATH...")
@click.option(
    "-r", "--recursive", is_flag=True, help="Include directories and everything below them."
)
@click.option("-f", "--missing-ok", is_flag=True, help="Ignore missing paths.")
@click.option(
    "--skip-trash",
    is_flag=True,
    help="Delete the files in directories at once, so that they cannot be restored.",
)
@click.option(
    "--permanently",
    is_flag=True,
    help="Delete the data of all versions at once, also for a path that was deleted "
    "before: nothing can be undeleted.",
)
@click.option(
    "--from", "file", metavar="FILE", help="Remove the paths in a list; - is standard input."
)
@click.option("-0", "--null", is_flag=True, help="The paths in the list are terminated by NUL.")
@click.option(
    "--no-atomic",
    is_flag=True,
    help="Delete a directory entry by entry, with half as many writes; not atomic.",
)
@literal_option
@click.pass_obj
def rm(
    invocation: Invocation,
    paths: tuple[str, ...],
    recursive: bool,
    missing_ok: bool,
    skip_trash: bool,
    permanently: bool,
    file: str | None,
    null: bool,
    no_atomic: bool,
) -> None:
    """Remove files and empty directories. s3k gc deletes their data later; until then s3k undelete
    brings them back.

    In a volume with a trash, -r moves directories into it: s3k trash restore brings them back. With
    a retention of 0, and with --skip-trash, it deletes the files in them.

    A line of a list is a path, or JSON: a string, or an object with path. The whole list is checked
    before anything is removed.
    """
    need_one_way(paths, file, "--from", {"-0": null}, at_least=1)
    if file is not None and (no_atomic or permanently):
        option = "--permanently" if permanently else "--no-atomic"
        raise click.UsageError(f"{option} cannot be combined with a list")
    if file is not None:
        _remove_listed(
            invocation,
            file,
            null=null,
            recursive=recursive,
            missing_ok=missing_ok,
            skip_trash=skip_trash,
        )
        return
    for path in paths:
        parse_address(path)
    undo = TrashNotice()

    async def one(
        clients: Clients, address: Address, progress: ProgressCallback | None
    ) -> Transfer:
        client = await clients.of(address)
        place = shown(client, normalize(address.path))
        retention = 0 if skip_trash or permanently else client.config.trash_retention
        done = await client.delete(
            address.path,
            recursive=recursive,
            missing_ok=missing_ok,
            atomic=not no_atomic,
            wait=retention == 0,
            permanently=permanently,
            progress=progress,
        )
        if recursive and retention:
            undo.add(place, done, retention)
        return done, place

    async def work(clients: Clients) -> tuple[ChangeResult, list[str]]:
        addresses = [parse_address(path) for path in await expanded(clients, paths)]
        with invocation.meter("remove") as meter:
            return await transfer_each(
                addresses, lambda address: one(clients, address, meter.part())
            )

    finish(invocation, "removed", *invocation.run(work), to="from", undo=undo)


def _remove_listed(
    invocation: Invocation,
    file: str,
    *,
    null: bool,
    recursive: bool,
    missing_ok: bool,
    skip_trash: bool,
) -> None:
    undo = TrashNotice()

    async def remove(
        client: S3kClient, paths: list[Record], progress: ProgressCallback | None
    ) -> OperandOutcome:
        retention = 0 if skip_trash else client.config.trash_retention
        done = await client.delete_many(
            [path for (path,) in paths],
            recursive=recursive,
            missing_ok=missing_ok,
            wait=retention == 0,
            progress=progress,
        )
        if recursive and retention:
            undo.add(shown(client), done, retention)
        return done

    async def work(clients: Clients) -> ChunkResult:
        done = ChunkResult(invocation)
        async with open_list(file, 1, null=null, literal=bool(invocation.volume)) as records:
            with invocation.meter("remove") as meter:
                await in_chunks(clients, records, done, meter.part(), remove)
        return done

    invocation.run(work).finish("removed", undo)


@click.command(cls=VolumeCommand)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "-p", "--parents", is_flag=True, help="Create missing parents; accept existing directories."
)
@click.pass_obj
def mkdir(invocation: Invocation, paths: tuple[str, ...], parents: bool) -> None:
    """Create directories. With --json, one JSON object per line."""

    async def make(client: S3kClient, path: str) -> FileStatus:
        place = normalize(path)
        if not parents and place != ROOT and not await client.exists(split(place)[0]):
            raise PathNotFoundError("no such parent directory; -p creates it", path=split(place)[0])
        return await client.makedirs(place, exist_ok=parents)

    async def one(clients: Clients, path: str) -> None:
        await _make_one(invocation, clients, path, make)

    invocation.run(lambda clients: for_each(paths, lambda path: one(clients, path)))


@click.command(cls=VolumeCommand)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@literal_option
@click.pass_obj
def touch(invocation: Invocation, paths: tuple[str, ...]) -> None:
    """Create empty files, or update the modification time of files. With --json, one JSON object
    per line."""

    async def one(clients: Clients, path: str) -> None:
        await _make_one(invocation, clients, path, lambda client, place: client.touch(place))

    invocation.run(lambda clients: for_each_path(clients, paths, one))


async def _make_one(
    invocation: Invocation,
    clients: Clients,
    path: str,
    make: Callable[[S3kClient, str], Awaitable[FileStatus]],
) -> None:
    address = parse_address(path)
    client = await clients.of(address)
    status = await make(client, address.path)
    if invocation.json:
        invocation.output.json(entry_fields(client, status))
