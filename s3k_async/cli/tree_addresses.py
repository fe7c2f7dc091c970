"""Trees as written on the command line.

s3k://NAME/path, DIRECTORY:/path, :/path     a directory of a volume, as for other commands
s3://BUCKET/PREFIX                           objects of a bucket, which need no volume
FILE.jsonl, FILE.parquet, FILE.jsonl:/path   a listing, or a directory in it
anything else                                a local directory; that of an embedded volume: its root
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from s3k_async.cli.invocation import Clients, Invocation
from s3k_async.cli.volume_addresses import (
    Address,
    is_volume,
    parse_address,
    volume_directory,
)
from s3k_async.errors import InvalidArgumentError, PathNotFoundError

if TYPE_CHECKING:
    from s3k_async.trees import FileTree

__all__ = ["TreeAddress", "need_listing", "open_tree", "parse_tree_address"]

TreeKind: TypeAlias = Literal["volume", "bucket", "listing", "directory"]

_BUCKET: Final = re.compile(r"s3[an]?://([^/]+)(?:/(.*))?", re.DOTALL)
_VOLUME: Final = re.compile(r"(?:s3k|memory|file)://.*", re.DOTALL)
_LISTING: Final = re.compile(r"(.+\.(?:jsonl|parquet))(?::(/.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TreeAddress:
    """A tree."""

    kind: TreeKind
    text: str
    """The address as given."""
    volume: Address | None = None
    """Of a directory of a volume."""

    @property
    def directory(self) -> str:
        """Of a local directory, the path without symbolic links."""
        return os.path.realpath(os.path.expanduser(self.text))


def parse_tree_address(text: str) -> TreeAddress:
    """The tree in an argument. Raises InvalidArgumentError."""
    if not text:
        raise InvalidArgumentError("the address of a tree cannot be empty")
    if _BUCKET.fullmatch(text):
        return TreeAddress("bucket", text)
    if _VOLUME.match(text):
        return TreeAddress("volume", text, parse_address(text))
    found = _LISTING.fullmatch(text)
    if found and os.path.isfile(found[1]):
        return TreeAddress("listing", text)
    if ":/" in text:
        return TreeAddress("volume", text, parse_address(text))
    for divide in re.finditer(":", text if not os.path.lexists(text) else ""):
        volume, path = text[: divide.start()], text[divide.end() :]
        if volume and is_volume(os.path.expanduser(volume)):
            raise InvalidArgumentError(
                f"for a path in the volume {volume}, write {volume}:/{path}", path=text
            )
    inside = volume_directory(os.path.abspath(os.path.expanduser(text)))
    if inside is None:
        return TreeAddress("directory", text)
    directory, path = inside
    if path == "/":
        return TreeAddress("volume", text, Address(directory, "/", text))
    raise InvalidArgumentError(
        f"{directory} is the directory of an embedded volume: write {directory}:{path} for a path "
        "in that volume",
        path=text,
    )


def need_listing(address: TreeAddress) -> None:
    """Raise PathNotFoundError for an address that names a listing file which does not exist."""
    found = _LISTING.fullmatch(address.text)
    if found is None or os.path.lexists(found[1]):
        return
    is_volume_path = address.kind == "volume" and not found[2]  # a path that ends like a listing
    if address.kind in ("directory", "volume") and not is_volume_path:
        raise PathNotFoundError(
            "the listing file does not exist; s3k ls -R -o writes one", path=found[1]
        )


async def open_tree(
    invocation: Invocation,
    clients: Clients,
    address: TreeAddress,
    *,
    beside: TreeAddress | None = None,
) -> FileTree:
    """The tree of an address; its volume or bucket stays open until the end of the command.
    `beside`: another operand; a bucket is reached like the data of its volume."""
    from s3k_async.trees import DirectoryTree, ListingTree, VolumeTree

    if address.volume is not None:
        return VolumeTree(await clients.of(address.volume), address.volume.path)
    if address.kind == "bucket":
        from s3k_async.config import S3Bucket

        found = _BUCKET.fullmatch(address.text)
        assert found is not None
        near = beside.volume.volume if beside is not None and beside.volume is not None else None
        location = S3Bucket(found[1], "", invocation.service(near, found[1]))
        return await clients.bucket(location, found[2] or "")
    if address.kind == "listing":
        listing = _LISTING.fullmatch(address.text)
        assert listing is not None
        return ListingTree(listing[1], listing[2] or "/")
    return DirectoryTree(address.text)
