"""whois: the files of physical objects."""

from __future__ import annotations

from dataclasses import asdict

import click

from s3k_async.cli.command import VolumeCommand
from s3k_async.cli.event_loop import run_loop
from s3k_async.cli.invocation import Invocation
from s3k_async.integrity.object_owner import ObjectOwner, OwnerState, owner_of
from s3k_async.volumes import open_volume

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
    shows.
    """
    config = invocation.resolve(None)

    async def work() -> list[ObjectOwner]:
        opened = await open_volume(config)
        try:
            return [await owner_of(opened, each) for each in objects]
        finally:
            await opened.close()

    for owner in run_loop(work):
        text = _TEXTS[owner.state].format(path=owner.path, version=owner.version)
        missing = "" if owner.size is not None else "; the object does not exist"
        invocation.say(f"{owner.key}: {text}{missing}", **asdict(owner))
