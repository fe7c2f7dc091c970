"""Items and keys as every contender writes them by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, TypeVar

import anyio

from benchmarks.servers import VOLUME

__all__ = ["ITEM", "bounded", "condition_fields", "item_of", "key_of", "partitions", "total_of"]

T = TypeVar("T")

ITEM: dict[str, Any] = {
    "isdir": {"BOOL": False},
    "ctime": {"N": "1767225600"},
    "ver": {"N": "2"},
    "id": {"S": "00000000-0000-4000-8000-000000000000"},
    "mtime": {"N": "1767225600123"},
    "op": {"S": "11111111-1111-4111-8111-111111111111"},
    "size": {"N": "1048576"},
    "physpath": {
        "S": "22222222-2222-4222-8222-222222222222.id=00000000-0000-4000-8000-000000000000"
    },
    "physcommitted": {"BOOL": True},
    "etag": {"S": "9bb58f26192e4ba00f01e2e7b136bbd8"},
}


def partitions(path: str, suffixes: int) -> list[str]:
    """The partitions of a directory."""
    return [f"ks://{VOLUME}{path}-sf{suffix}" for suffix in range(suffixes)]


def key_of(number: int, path: str = "/single") -> dict[str, Any]:
    """A file's key."""
    return {
        "path": {"S": f"ks://{VOLUME}{path}-sf{number % 16}"},
        "children": {"S": f"part-{number:08}"},
    }


def item_of(number: int, path: str = "/single") -> dict[str, Any]:
    """A file's item."""
    return {**key_of(number, path), **ITEM}


def condition_fields() -> dict[str, Any]:
    """The condition on id and version that a changed or deleted item carries."""
    return {
        "ConditionExpression": "#n0 = :v0 AND #n1 = :v1 AND attribute_not_exists(#n2)",
        "ExpressionAttributeNames": {"#n0": "id", "#n1": "ver", "#n2": "next"},
        "ExpressionAttributeValues": {":v0": ITEM["id"], ":v1": ITEM["ver"]},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


async def bounded(
    work: Callable[[T], Awaitable[object]], values: Iterable[T] | AsyncIterator[T], in_flight: int
) -> None:
    """Do the work for each value, so many at the same time: workers that take turns, the cheapest
    way asyncio has."""
    pending = iter(values) if isinstance(values, Iterable) else None

    async def worker() -> None:
        if pending is not None:
            for value in pending:
                await work(value)
        else:
            async for value in values:  # type: ignore[union-attr]
                await work(value)

    async with anyio.create_task_group() as tasks:
        for _ in range(in_flight):
            tasks.start_soon(worker)


async def total_of(size: Callable[[int], Awaitable[int]], files: int, in_flight: int) -> int:
    """The sum of the sizes of numbered files, so many at the same time."""
    total = 0

    async def add(number: int) -> None:
        nonlocal total
        found = await size(number)
        total += found

    await bounded(add, range(files), in_flight)
    return total
