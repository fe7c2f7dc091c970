"""Buckets, keys and prefixes as operands of the object commands."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from s3k_async.cli.invocation import Clients
from s3k_async.cli.volume_addresses import Address, parse_address, shown
from s3k_async.errors import InvalidArgumentError
from s3k_async.listing.selection import Selection

if TYPE_CHECKING:
    from s3k_async.client import S3kClient
    from s3k_async.objects import ObjectInfo, ObjectStore

__all__ = ["ObjectPlace", "chosen", "path_of"]


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """A bucket, and a key or prefix in it; both may be empty."""

    address: Address
    bucket: str
    key: str

    @classmethod
    def of(cls, text: str, *, needs_key: bool = False) -> ObjectPlace:
        """The place in an operand. Raises InvalidArgumentError."""
        address = parse_address(text)
        bucket, _, key = address.path.lstrip("/").partition("/")
        if needs_key and not key:
            raise InvalidArgumentError("expected BUCKET/KEY", path=text)
        return cls(address, bucket, key)

    @classmethod
    def of_bucket(cls, text: str) -> ObjectPlace:
        """The bucket in an operand. Raises InvalidArgumentError."""
        place = cls.of(text)
        if not place.bucket or place.key.strip("/"):
            raise InvalidArgumentError("expected a bucket: one name below the root", path=text)
        return place

    async def store(self, clients: Clients) -> ObjectStore:
        """The object API of its volume."""
        from s3k_async.objects import ObjectStore

        return ObjectStore(await clients.of(self.address))

    async def shown(self, clients: Clients) -> str:
        """The place with its volume, in the form of an operand."""
        return shown(await clients.of(self.address), self.address.path)


async def chosen(
    store: ObjectStore, place: ObjectPlace, selected: Selection
) -> AsyncIterator[ObjectInfo]:
    """The objects whose keys begin with a prefix, and that are selected."""
    async for each in store.iterate(place.bucket, place.key):
        if selected.takes(each.key[len(place.key) :].lstrip("/")):
            yield each


def path_of(client: S3kClient, bucket: str, key: str) -> str:
    """The file of an object. A key is not a path: nothing in it is resolved. Raises
    InvalidArgumentError, NameTooLongError."""
    from s3k_async.client import volume_of
    from s3k_async.objects.names import object_path

    return object_path(volume_of(client).store.layout, bucket, key)
