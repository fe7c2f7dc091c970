"""whois: the files of physical objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from s3k_async.cli.command import VolumeCommand, for_each
from s3k_async.cli.invocation import Clients, Invocation
from s3k_async.cli.volume_addresses import Address, shown
from s3k_async.client import volume_of
from s3k_async.errors import InvalidArgumentError, PathNotFoundError
from s3k_async.integrity.object_owner import ObjectOwner, OwnerState, owner_of
from s3k_async.model import ROOT
from s3k_async.storage.object_uris import key_below
from s3k_async.storage.physical import is_uri

if TYPE_CHECKING:
    from s3k_async.client import S3kClient

__all__ = ["whois"]

_TEXTS: dict[OwnerState, str] = {
    "current": "content of {path}, version {version}",
    "superseded": "earlier content of {path}, version {version}: garbage collection deletes it",
    "deleted": "content of {path}, which was deleted: garbage collection deletes it",
    "upload": "part of an open multipart upload of {path}",
    "unpublished": "data of a change that has not ended, or was interrupted",
    "unreferenced": "written for {path}, and named by no operation in the log",
    "unknown": "the operation log has nothing about it",
}


@click.command(cls=VolumeCommand)
@click.argument("objects", metavar="OBJECT...", nargs=-1, required=True)
@click.pass_obj
def whois(invocation: Invocation, objects: tuple[str, ...]) -> None:
    """Show the file that a physical object belongs to.

    An OBJECT is a key in the default volume, or the URI that a listing of its bucket or directory
    shows. The files that refer to an adopted object, which only a URI can name, are found by
    reading the whole tree, without the trash.
    """

    async def work(clients: Clients) -> None:
        client = await clients.of(Address(None, ROOT, ""))
        foreign: list[str] = []

        async def one(physical: str) -> None:
            try:
                _show(invocation, client, await owner_of(volume_of(client), physical))
            except InvalidArgumentError:
                if not is_uri(physical):
                    raise
                foreign.append(physical)

        await for_each(objects, one)
        if not foreign:
            return
        adopters = await _adopters(client, foreign)

        async def each(physical: str) -> None:
            if not adopters[physical]:
                raise PathNotFoundError(
                    "no file outside the trash refers to the object", path=physical
                )
            for owner in adopters[physical]:
                _show(invocation, client, owner)

        await for_each(foreign, each)

    invocation.run(work)


async def _adopters(client: S3kClient, uris: Sequence[str]) -> dict[str, list[ObjectOwner]]:
    """The files that refer to objects outside of the data of the volume."""
    found: dict[str, list[ObjectOwner]] = {uri: [] for uri in uris}
    async for status in client.list(ROOT, recursive=True):
        place = status.physical
        if place is None or not is_uri(place):
            continue
        for uri, owners in found.items():
            if key_below(place, uri) == "":
                owners.append(
                    ObjectOwner(uri, status.id, "current", status.path, status.version, status.size)
                )
    return {uri: sorted(owners, key=lambda each: each.path) for uri, owners in found.items()}


def _show(invocation: Invocation, client: S3kClient, owner: ObjectOwner) -> None:
    text = _TEXTS[owner.state].format(path=owner.path, version=owner.version)
    missing = "" if owner.size is not None else "; the object does not exist"
    place = shown(client)
    invocation.say(f"{owner.key}: {text}{missing}", volume=place, **asdict(owner))
