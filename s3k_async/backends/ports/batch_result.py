"""Batch results: the keys and items that the service did not process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from s3k_async.backends.ports.items import (
    MAX_BATCH,
    Item,
    Key,
    UnloadedItemsError,
    UnprocessedKeysError,
)

__all__ = ["read_batches", "require_loaded"]


async def read_batches(
    keys: Sequence[Key],
    read: Callable[[Sequence[Key], dict[Key, Item]], Awaitable[Sequence[Key]]],
    table: str,
) -> dict[Key, Item]:
    """The items of distinct keys. `read` requests at most MAX_BATCH keys, adds the received items,
    and returns the unprocessed keys. Raises UnprocessedKeysError if there are any."""
    wanted = list(dict.fromkeys(keys))
    found: dict[Key, Item] = {}
    for start in range(0, len(wanted), MAX_BATCH):
        end = start + MAX_BATCH
        left = await read(wanted[start:end], found)
        if left:
            raise UnprocessedKeysError(
                "the table left out some keys of a batch",
                path=table,
                found=found,
                left=[*left, *wanted[end:]],
            )
    return found


def require_loaded(
    items: Sequence[Item], keys: Sequence[Key], left: Sequence[Key], table: str
) -> None:
    """Raises UnloadedItemsError if the service did not write some of the items, those of `left`."""
    if left:
        unwritten = set(left)
        raise UnloadedItemsError(
            "the table left out some items of a batch",
            path=table,
            left=[item for key, item in zip(keys, items, strict=True) if key in unwritten],
        )
