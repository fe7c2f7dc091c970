"""Keys in straightforward Python, checked as the native ones are. Hashes come from the `xxhash`
package, which is C."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import xxhash

from s3k_async.errors import InvalidPathError, ItemFormatError
from s3k_async.model import HashName

__all__ = [
    "decode_key",
    "item_key",
    "item_keys",
    "normalize",
    "physical_key",
    "sixteens",
    "suffix_index",
    "uuid_text",
]


def normalize(path: str) -> str:
    if not path:
        raise InvalidPathError("the path is empty", path=path)
    if "\0" in path:
        raise InvalidPathError("the path contains a NUL character", path=path)
    names: list[str] = []
    for name in path.split("/"):
        if name in {"", "."}:
            continue
        if name == "..":
            if not names:
                raise InvalidPathError("'..' leads above the root", path=path)
            names.pop()
            continue
        if len(name.encode()) > 1024:
            raise InvalidPathError("a name is longer than 1024 bytes", path=path)
        names.append(name)
    return "/" + "/".join(names)


def suffix_index(name: str, count: int, algorithm: HashName) -> int:
    if algorithm == "xxh3":
        return int(xxhash.xxh3_64_intdigest(name.encode())) % count
    units = name.encode("utf-16-le")
    value = 0
    for position in range(0, len(units), 2):
        value = (31 * value + units[position] + (units[position + 1] << 8)) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >= 1 << 31 else value
    return signed % count if signed == -(1 << 31) else abs(signed) % count


def item_key(volume: str, path: str, count: int, algorithm: HashName) -> tuple[str, str]:
    path = normalize(path)
    parent, _, name = path.rpartition("/")
    if not name:
        raise InvalidPathError("the root has no item", path=path)
    parent = parent or "/"
    if len(f"ks://{volume}{parent}-sf{count - 1}".encode()) > 2048:
        raise InvalidPathError("the partition key is too long", path=path)
    return f"ks://{volume}{parent}-sf{suffix_index(name, count, algorithm)}", name


def item_keys(
    volume: str, paths: Sequence[str], count: int, algorithm: HashName
) -> tuple[list[str], list[str]]:
    """All partition keys and all sort keys."""
    partitions: list[str] = []
    sorts: list[str] = []
    for path in paths:
        partition, sort = item_key(volume, path, count, algorithm)
        partitions.append(partition)
        sorts.append(sort)
    return partitions, sorts


def decode_key(volume: str, partition: str, sort: str) -> str:
    authority = f"ks://{volume}"
    parent, hyphen, suffix = partition.removeprefix(authority).rpartition("-")
    if (
        not partition.startswith(authority + "/")
        or not hyphen
        or not suffix.startswith("sf")
        or "/" in sort
    ):
        raise ItemFormatError("not an item key", path=partition)
    if not suffix[2:].isdecimal() or normalize(parent) != parent:
        raise ItemFormatError("not an item key", path=partition)
    return f"{parent.rstrip('/')}/{sort}"


def uuid_text(entropy: bytes) -> str:
    return str(uuid.UUID(bytes=entropy, version=4))


def physical_key(object_id: str, entropy: bytes) -> str:
    return f"{uuid_text(entropy)}.id={object_id}"


def sixteens(entropy: bytes) -> list[bytes]:
    return [entropy[start : start + 16] for start in range(0, len(entropy), 16)]
