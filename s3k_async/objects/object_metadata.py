"""User metadata of objects: removal of a name, copies and moves between objects, and search."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from s3k_async.attributes import AttributeChange, Attributes, check_name
from s3k_async.bulk.entry_attributes import (
    ListedDirectories,
    find_page,
    need_attributes,
    set_attributes,
)
from s3k_async.errors import MetadataNotFoundError
from s3k_async.model import Entry, FileStatus, status_of
from s3k_async.namespace.attribute_changes import change_pair
from s3k_async.volumes.volume import Volume

__all__ = ["copy_metadata", "move_metadata", "objects_with", "remove_metadata", "value_of"]


def value_of(attributes: Attributes, name: str, path: str) -> bytes:
    """One value. Raises MetadataNotFoundError, InvalidArgumentError."""
    check_name(name, path)
    try:
        return attributes.metadata[name]
    except KeyError:
        raise MetadataNotFoundError(f"the object has no metadata {name!r}", path=path) from None


async def remove_metadata(volume: Volume, path: str, name: str) -> None:
    """Remove one value. Raises MetadataNotFoundError, also if another client removes it first."""
    check_name(name, path)
    change = AttributeChange(metadata={name: None}, present=frozenset({name}))
    await set_attributes(volume, path, change)


async def copy_metadata(volume: Volume, source: Entry, target: str) -> Entry:
    """Give a file all values of another one; those of other names stay."""
    metadata = Attributes.from_json(source.attributes).metadata
    return await set_attributes(volume, target, AttributeChange(metadata={**metadata}))


async def move_metadata(volume: Volume, source: str, target: str) -> Entry:
    """As `copy_metadata`, and remove the values from the source in the same transaction."""
    need_attributes(volume, target)

    def moved(first: Attributes, second: Attributes) -> tuple[Attributes, Attributes]:
        merged = MappingProxyType({**second.metadata, **first.metadata})
        return replace(first, metadata=MappingProxyType({})), replace(second, metadata=merged)

    return (await change_pair(volume.store, source, target, moved))[1]


async def objects_with(
    volume: Volume, name: str, bucket: str, *, after: str, limit: int
) -> tuple[list[FileStatus], str]:
    """Files below a bucket that have a name, at most `limit`, and the token of the next page; empty
    at the end."""
    check_name(name, bucket)
    found: list[FileStatus] = []
    listed = ListedDirectories()
    while True:
        left = limit - len(found)
        page, after = await find_page(volume, name, bucket, listed, after=after, limit=left)
        found += [status_of(each) for each in page if each.committed]
        if not after or len(found) >= limit:
            return found, after
