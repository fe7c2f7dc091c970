"""object: buckets, objects and multipart uploads of a volume."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from s3k_async._core.concurrency import run_all
from s3k_async.cli.command import CommandGroup, VolumeCommand, for_each
from s3k_async.cli.commands.object_places import ObjectPlace, chosen
from s3k_async.cli.commands.object_transfers import (
    PAST,
    CopyOptions,
    ObjectCopy,
    Verb,
    fetched,
    is_local,
    local_hint,
    stored,
    within,
)
from s3k_async.cli.commands.upload_verbs import upload
from s3k_async.cli.invocation import Clients, Invocation
from s3k_async.cli.output import attribute_fields, plural, time_text
from s3k_async.cli.transfers import local_name, need_distinct, some_of
from s3k_async.cli.volume_addresses import shown
from s3k_async.errors import (
    DirectoryNotEmptyError,
    InvalidArgumentError,
    PartialFailureError,
    S3kError,
)
from s3k_async.listing.selection import Selection
from s3k_async.model import Failure

if TYPE_CHECKING:
    from s3k_async.objects import BucketInfo, ObjectInfo

__all__ = ["object"]

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])

PAGE: Final = 1000
"""Objects in a page of a listing."""
AT_ONCE: Final = 16
"""Objects of one command that are changed at the same time."""

object = CommandGroup(  # noqa: A001 - the name of the command
    name="object",
    help="""Buckets and objects of a volume.

    A bucket is a directory of the root, and the object a/b of bucket x the file /x/a/b: BUCKET is
    s3k://NAME/x or DIRECTORY:/x, and OBJECT s3k://NAME/x/a/b. The other commands see the same data:
    s3k put and get transfer objects, s3k attr changes their attributes.""",
)


def _selection(command: Command) -> Command:
    """`--include` and `--exclude` of a recursive command."""
    for name, effect in (("exclude", "Leave out"), ("include", "Take only")):
        command = click.option(
            f"--{name}",
            multiple=True,
            metavar="GLOB",
            help=f"{effect} keys that match: the last component, or, if GLOB contains a /, what "
            "follows the prefix. Repeatable; exclude takes precedence.",
        )(command)
    return command


def _transferring(command: Command) -> Command:
    """The arguments and options of `cp` and `mv`."""
    for option in (
        _selection,
        click.option(
            "--local", is_flag=True, help="Operands that begin with a / are local paths, too."
        ),
        click.option("--no-overwrite", is_flag=True, help="Fail if an object or file exists."),
        click.option(
            "-r",
            "--recursive",
            is_flag=True,
            help="All objects whose keys begin with PREFIX, or all files below a local directory.",
        ),
        click.argument("target", metavar="OBJECT|PREFIX|LOCAL"),
        click.argument("sources", nargs=-1, required=True, metavar="OBJECT|PREFIX|LOCAL..."),
    ):
        command = option(command)
    return command


async def _each(
    found: AsyncIterator[T], change: Callable[[Sequence[T]], Awaitable[Sequence[Failure]]]
) -> int:
    """Change objects, a page at a time, and return their number. `change` returns the failures; all
    objects are tried that are found. Raises PartialFailureError at the end, also if finding them
    failed after the first."""
    done, failures = 0, list[Failure]()

    async def some(page: Sequence[T]) -> None:
        nonlocal done
        failed = await change(page)
        done += len(page) - len(failed)
        failures.extend(failed)

    async for page in _pages(found, failures):
        await some(page)
    if failures:
        raise PartialFailureError(
            f"{plural(len(failures), 'object')} of {done + len(failures)} failed",
            path=failures[0][0],
            failures=failures,
        )
    return done


async def _pages(found: AsyncIterator[T], failures: list[Failure]) -> AsyncIterator[list[T]]:
    """What is found, in pages, so that a listing is not held open while objects change. An error
    after the first object ends them, and is added to the failures."""
    held: list[T] = []
    is_first = True
    try:
        async for each in found:
            held.append(each)
            if len(held) == PAGE:
                yield held
                held, is_first = [], False
    except S3kError as error:
        if is_first and not held:
            raise
        failures.append((error.path or "", error))
    yield held


# Buckets


@object.command(cls=VolumeCommand)
@click.argument("buckets", nargs=-1, required=True, metavar="BUCKET...")
@click.option("--uid", type=click.IntRange(0), help="Id of the owner.")
@click.pass_obj
def mb(invocation: Invocation, buckets: tuple[str, ...], uid: int | None) -> None:
    """Make buckets."""

    async def one(clients: Clients, text: str) -> None:
        place = ObjectPlace.of_bucket(text)
        client, store = await clients.of(place.address), await place.store(clients)
        made = await store.create_bucket(place.bucket, uid=uid)
        if invocation.json:
            invocation.output.json({"volume": shown(client), **_bucket_fields(made)})

    invocation.run(lambda clients: for_each(buckets, lambda text: one(clients, text)))


@object.command(cls=VolumeCommand)
@click.argument("buckets", nargs=-1, required=True, metavar="BUCKET...")
@click.option("-f", "--force", is_flag=True, help="Delete objects and pending uploads, too.")
@click.pass_obj
def rb(invocation: Invocation, buckets: tuple[str, ...], force: bool) -> None:
    """Remove buckets, which must be empty without --force. A bucket with a read-only object is
    kept as it is."""

    async def one(clients: Clients, text: str) -> None:
        place = ObjectPlace.of_bucket(text)
        try:
            await (await place.store(clients)).delete_bucket(place.bucket, force=force)
        except DirectoryNotEmptyError as error:
            message = error.message.replace("`force`", "--force")
            raise DirectoryNotEmptyError(message, path=error.path) from error

    invocation.run(lambda clients: for_each(buckets, lambda text: one(clients, text)))


@object.command(name="ls", cls=VolumeCommand)
@click.argument("place", default=":/", metavar="[VOLUME|BUCKET[/PREFIX]]")
@click.option("--after", default="", metavar="KEY", help="Only keys that follow this one.")
@click.option("--limit", type=click.IntRange(1), help="Most objects [default: all].")
@click.option(
    "--metadata",
    metavar="NAME",
    help="Only objects of a BUCKET that have user metadata of this name, from the index, in its "
    "order.",
)
@click.pass_obj
def list_objects(
    invocation: Invocation, /, place: str, after: str, limit: int | None, metadata: str | None
) -> None:
    """List the buckets of a volume, or the keys of a bucket that begin with PREFIX, in order.

    All pages are listed, without an upper limit. With --json, one JSON object per line.
    """
    if metadata is not None and after:
        raise click.UsageError("--after belongs to the order of keys, and --metadata has another")
    where = ObjectPlace.of(place) if metadata is None else ObjectPlace.of_bucket(place)

    async def work(clients: Clients) -> None:
        store, volume = await where.store(clients), shown(await clients.of(where.address))
        if not where.bucket:
            async for bucket in store.list_buckets():
                _say(invocation, bucket.name, {"volume": volume, **_bucket_fields(bucket)})
            return
        left, token = limit, after
        while True:
            size = min(PAGE, left or PAGE)
            if metadata is None:
                page = await store.list(where.bucket, where.key, after=token, limit=size)
            else:
                page = await store.list_with_metadata(
                    where.bucket, metadata, after=token, limit=size
                )
            for each in page.objects:
                _say(invocation, each.key, {"volume": volume, **_object_fields(each)})
            if left is not None:
                left -= len(page.objects)
            if page.token is None or left == 0:
                return
            token = page.token

    invocation.run(work)


def _say(invocation: Invocation, text: str, fields: dict[str, Any]) -> None:
    if invocation.json:
        invocation.output.json(fields)
    else:
        invocation.output.line(text)


@object.command(cls=VolumeCommand)
@click.argument("places", nargs=-1, required=True, metavar="BUCKET|OBJECT...")
@click.option(
    "--newest",
    is_flag=True,
    help="List buckets though they have counters, where the latest modification may be that of an "
    "object that was deleted, moved away or given an earlier time.",
)
@click.pass_obj
def info(invocation: Invocation, places: tuple[str, ...], newest: bool) -> None:
    """Show buckets with the number and size of their objects, and objects. With --json, one JSON
    object per line."""

    async def one(clients: Clients, text: str) -> None:
        place = ObjectPlace.of(text)
        if not place.bucket:
            raise InvalidArgumentError("expected a bucket or an object", path=text)
        store = await place.store(clients)
        if place.key:
            fields = _object_fields(await store.info(place.bucket, place.key))
        else:
            bucket = await store.bucket_info(place.bucket, statistics=True, newest=newest)
            fields = _bucket_fields(bucket)
        if invocation.json:
            volume = shown(await clients.of(place.address))
            invocation.output.json({"volume": volume, **fields})
            return
        for name, value in fields.items():
            if name.endswith("_ms") and value is not None:
                invocation.output.line(f"{name[:-3]:>10}: {time_text(value)}")
            elif value not in ("", None):
                invocation.output.line(f"{name:>10}: {value}")

    invocation.run(lambda clients: for_each(places, lambda text: one(clients, text)))


def _bucket_fields(bucket: BucketInfo) -> dict[str, Any]:
    """The JSON fields of a bucket; statistics only if they were asked for."""
    fields: dict[str, Any] = {
        "bucket": bucket.name,
        "created_ms": bucket.created_ms,
        "uid": bucket.uid,
    }
    if bucket.objects is not None:
        fields |= {
            "objects": bucket.objects,
            "bytes": bucket.bytes,
            "newest_ms": bucket.newest_ms,
        }
    return fields


def _object_fields(info: ObjectInfo) -> dict[str, Any]:
    """The JSON fields of an object."""
    return {
        "bucket": info.bucket,
        "key": info.key,
        "size": info.size,
        "created_ms": info.created_ms,
        "modified_ms": info.modified_ms,
        "changed_ms": info.changed_ms,
        "version": info.version,
        "etag": info.etag,
        "checksum": info.checksum,
        **attribute_fields(info.attributes),
    }


# Objects


@object.command(cls=VolumeCommand)
@_transferring
@click.pass_obj
def cp(invocation: Invocation, /, **given: Any) -> None:
    """Copy an object with its metadata, within a bucket or between buckets of a volume; local files
    to objects; or objects to local files.

    A LOCAL path has no volume and does not begin with a /. A file is stored, and an object written,
    under its own name below a target that ends with a /, is a bucket or a local directory, or has
    several sources.
    """
    _transfer(invocation, "copy", **given)


@object.command(cls=VolumeCommand)
@_transferring
@click.pass_obj
def mv(invocation: Invocation, /, **given: Any) -> None:
    """Move an object, in one transaction and without a copy, within a bucket or between buckets of
    a volume; local files to objects; or objects to local files.

    Local paths and targets are those of cp. With a local side, the source is removed after its copy
    is complete, unless it was changed meanwhile.
    """
    _transfer(invocation, "move", **given)


def _transfer(
    invocation: Invocation,
    verb: Verb,
    sources: tuple[str, ...],
    target: str,
    recursive: bool,
    no_overwrite: bool,
    local: bool,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
) -> None:
    """Copy or move objects and local files, or all below a prefix or directory."""
    selected = _need_recursive(recursive, include, exclude)
    options = CopyOptions(verb, recursive, not no_overwrite, selected)
    found = _copies(sources, target, options, absolute=local)

    async def work(clients: Clients) -> tuple[int, str]:
        copies, count = found(clients), 0
        with local_hint(() if local else (*sources, target)):
            if recursive or len(sources) > 1:
                count = await _each(copies, _tried)
            else:
                async for each in copies:
                    await each.run()
                    count += 1
        is_here = is_local(target, absolute=local)
        return count, target if is_here else await ObjectPlace.of(target).shown(clients)

    done, place = invocation.run(work)
    text = f"{PAST[verb]} {plural(done, 'object')} to {place}"
    invocation.say(text, target=[place], objects=done)


def _copies(
    sources: tuple[str, ...], target: str, options: CopyOptions, *, absolute: bool
) -> Callable[[Clients], AsyncIterator[ObjectCopy]]:
    """The copies of the operands. Raises InvalidArgumentError, UsageError."""
    if "-" in (*sources, target):
        raise click.UsageError("s3k put - and s3k get transfer standard input and output")
    local = {each for each in (*sources, target) if is_local(each, absolute=absolute)}
    if target not in local and local.issuperset(sources):
        # Below sources without a name, keys are compared.
        need_distinct([name for name in map(local_name, sources) if name])
        place = ObjectPlace.of(target)
        return lambda clients: stored(clients, sources, place, options)
    if target in local and not local.intersection(sources):
        needs_key = not options.recursive
        places = [ObjectPlace.of(each, needs_key=needs_key) for each in sources]
        return lambda clients: fetched(clients, places, target, options)
    if local:
        wrong = next(each for each in sources if each in local)
        raise InvalidArgumentError(
            "either the sources or the target are local; an object of the default volume is "
            "written /BUCKET/KEY",
            path=wrong,
        )
    if len(sources) > 1:
        raise click.UsageError("one object, or prefix with -r, is copied at a time to another one")
    origin = ObjectPlace.of(sources[0], needs_key=not options.recursive)
    goal = ObjectPlace.of(target)
    if not goal.bucket:
        raise InvalidArgumentError("expected BUCKET or BUCKET/KEY", path=target)
    return lambda clients: within(clients, origin, goal, options)


async def _tried(copies: Sequence[ObjectCopy]) -> list[Failure]:
    """Make copies, and return those that failed."""
    failures: list[Failure] = []

    async def tried(each: ObjectCopy) -> None:
        try:
            await each.run()
        except S3kError as error:
            failures.append((each.source, error))

    await run_all(tried, copies, limit=AT_ONCE)
    return failures


@object.command(cls=VolumeCommand)
@click.argument("places", nargs=-1, required=True, metavar="OBJECT|PREFIX...")
@click.option("-r", "--recursive", is_flag=True, help="All objects whose keys begin with PREFIX.")
@_selection
@click.pass_obj
def rm(
    invocation: Invocation,
    places: tuple[str, ...],
    recursive: bool,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
) -> None:
    """Delete objects; with -r, all whose keys begin with PREFIX, the bucket itself is kept."""
    found = {text: ObjectPlace.of(text, needs_key=not recursive) for text in places}
    selected = _need_recursive(recursive, include, exclude)
    count = 0

    async def one(clients: Clients, place: ObjectPlace) -> None:
        nonlocal count
        store, client = await place.store(clients), await clients.of(place.address)

        async def page(objects: Sequence[ObjectInfo]) -> Sequence[Failure]:
            paths = [f"/{each.bucket}/{each.key}" for each in objects]
            return (await client.delete_many(paths, missing_ok=True)).failures

        if recursive:
            count += await _each(chosen(store, place, selected), page)
        else:
            await store.delete(place.bucket, place.key)
            count += 1

    async def work(clients: Clients) -> list[str]:
        await for_each(places, lambda text: one(clients, found[text]))
        return [await each.shown(clients) for each in found.values()]

    targets = invocation.run(work)
    text = f"deleted {plural(count, 'object')} from {some_of(targets)}"
    invocation.say(text, target=targets, objects=count)


def _need_recursive(
    recursive: bool, include: tuple[str, ...], exclude: tuple[str, ...]
) -> Selection:
    if (include or exclude) and not recursive:
        raise click.UsageError("--include and --exclude belong to -r")
    return Selection(include, exclude)


object.add_command(upload)
