"""object upload: multipart uploads."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click

from s3k_async.cli.command import CommandGroup, VolumeCommand, for_each
from s3k_async.cli.commands.in_place import pieces
from s3k_async.cli.commands.object_places import ObjectPlace
from s3k_async.cli.durations import duration_option
from s3k_async.cli.invocation import Clients, Invocation
from s3k_async.cli.output import time_text
from s3k_async.cli.volume_addresses import Address, parse_volume_address, shown
from s3k_async.errors import CrossVolumeError

if TYPE_CHECKING:
    from s3k_async.objects import ObjectStore, PartInfo, UploadInfo

__all__ = ["upload"]

upload = CommandGroup(
    name="upload",
    help="""Multipart uploads of objects.

    An upload is named by its volume and id. Its parts can be added in any order, also by other
    processes, and become one object when it is completed.""",
)


async def _store(clients: Clients, address: Address) -> ObjectStore:
    from s3k_async.objects import ObjectStore

    return ObjectStore(await clients.of(address))


@upload.command(name="create", cls=VolumeCommand)
@click.argument("target", metavar="OBJECT")
@duration_option("--lifetime", help="After which gc may abort it, such as 12h [default: 7d].")
@click.pass_obj
def create(invocation: Invocation, target: str, lifetime: int | None) -> None:
    """Begin an upload, and print its id."""

    async def work(clients: Clients) -> None:
        place = ObjectPlace.of(target, needs_key=True)
        store = await place.store(clients)
        if lifetime is None:
            made = await store.create_upload(place.bucket, place.key)
        else:
            made = await store.create_upload(place.bucket, place.key, lifetime=lifetime)
        if invocation.json:
            volume = shown(await clients.of(place.address))
            invocation.output.json({"volume": volume, **_upload_fields(made)})
        else:
            invocation.output.line(made.id)

    invocation.run(work)


@upload.command(name="ls", cls=VolumeCommand)
@click.argument("bucket", metavar="BUCKET")
@click.pass_obj
def list_pending(invocation: Invocation, bucket: str) -> None:
    """List the pending uploads of a bucket: id, expiry (UTC), key. With --json, one JSON object per
    line."""

    async def work(clients: Clients) -> None:
        place = ObjectPlace.of_bucket(bucket)
        store, volume = await place.store(clients), shown(await clients.of(place.address))
        after = ""
        while page := await store.list_uploads(place.bucket, after=after):
            for each in page:
                if invocation.json:
                    invocation.output.json({"volume": volume, **_upload_fields(each)})
                else:
                    time = time_text(each.expires_ms)
                    invocation.output.line(f"{each.id}  {time}  {each.key}")
            after = page[-1].id

    invocation.run(work)


@upload.command(name="put", cls=VolumeCommand)
@click.argument("volume")
@click.argument("upload_id", metavar="ID")
@click.argument("number", type=int)
@click.argument("local")
@click.pass_obj
def put(invocation: Invocation, volume: str, upload_id: str, number: int, local: str) -> None:
    """Store the part NUMBER of an upload from a local file; - is standard input."""
    from s3k_async.client import volume_of
    from s3k_async.files.multipart import put_part

    async def work(clients: Clients) -> PartInfo:
        opened = volume_of(await clients.of(parse_volume_address(volume)))
        with opened.calls.running("put_part"):
            async with aclosing(pieces(local)) as data:
                return await put_part(opened, upload_id, number, data)

    _say_part(invocation, invocation.run(work))


@upload.command(name="copy", cls=VolumeCommand)
@click.argument("volume")
@click.argument("upload_id", metavar="ID")
@click.argument("number", type=int)
@click.argument("source", metavar="OBJECT")
@click.option("--offset", type=click.IntRange(0), default=0, help="First byte [default: 0].")
@click.option("--size", type=click.IntRange(0), help="Bytes [default: to the end].")
@click.pass_obj
def copy(
    invocation: Invocation,
    volume: str,
    upload_id: str,
    number: int,
    source: str,
    offset: int,
    size: int | None,
) -> None:
    """Store a range of an object of the same volume as the part NUMBER of an upload."""

    async def work(clients: Clients) -> PartInfo:
        place, address = ObjectPlace.of(source, needs_key=True), parse_volume_address(volume)
        named = address if place.address.volume is None else place.address
        if await clients.of(named) is not await clients.of(address):
            raise CrossVolumeError("the object is in another volume than the upload", path=source)
        return await (await _store(clients, address)).copy_part(
            upload_id, number, place.bucket, place.key, offset=offset, size=size
        )

    _say_part(invocation, invocation.run(work))


def _say_part(invocation: Invocation, part: PartInfo) -> None:
    invocation.say(f"stored part {part.number}, {part.size:,} bytes", **_part_fields(part))


@upload.command(name="parts", cls=VolumeCommand)
@click.argument("volume")
@click.argument("upload_id", metavar="ID")
@click.pass_obj
def parts(invocation: Invocation, volume: str, upload_id: str) -> None:
    """List the parts of an upload: number, bytes. With --json, one JSON object per line."""

    async def work(clients: Clients) -> list[PartInfo]:
        return await (await _store(clients, parse_volume_address(volume))).list_parts(upload_id)

    for each in invocation.run(work):
        if invocation.json:
            invocation.output.json(_part_fields(each))
        else:
            invocation.output.line(f"{each.number}  {each.size}")


@upload.command(name="complete", cls=VolumeCommand)
@click.argument("volume")
@click.argument("upload_id", metavar="ID")
@click.pass_obj
def complete(invocation: Invocation, volume: str, upload_id: str) -> None:
    """Publish the parts of an upload as the object, which is created or replaced."""

    async def work(clients: Clients) -> None:
        address = parse_volume_address(volume)
        made = await (await _store(clients, address)).complete_upload(upload_id)
        client = await clients.of(address)
        invocation.say(
            f"completed {shown(client, f'/{made.bucket}/{made.key}')}, {made.size:,} bytes",
            volume=shown(client),
            bucket=made.bucket,
            key=made.key,
            size=made.size,
        )

    invocation.run(work)


@upload.command(name="abort", cls=VolumeCommand)
@click.argument("volume")
@click.argument("upload_ids", nargs=-1, required=True, metavar="ID...")
@click.pass_obj
def abort(invocation: Invocation, volume: str, upload_ids: tuple[str, ...]) -> None:
    """Remove uploads and the data of their parts."""

    async def one(clients: Clients, upload_id: str) -> None:
        await (await _store(clients, parse_volume_address(volume))).abort_upload(upload_id)

    invocation.run(lambda clients: for_each(upload_ids, lambda each: one(clients, each)))


def _upload_fields(info: UploadInfo) -> dict[str, Any]:
    """The JSON fields of a pending upload."""
    return {
        "id": info.id,
        "bucket": info.bucket,
        "key": info.key,
        "started_ms": info.started_ms,
        "expires_ms": info.expires_ms,
    }


def _part_fields(part: PartInfo) -> dict[str, Any]:
    """The JSON fields of a part."""
    return {
        "number": part.number,
        "size": part.size,
        "etag": part.etag,
        "checksum": part.checksum,
        "modified_ms": part.modified_ms,
    }
