"""The order of the keys of a store in memory."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from operator import itemgetter
from typing import Generic, TypeVar

from s3k_async.backends.ports.items import Key

__all__ = ["SortedKeys"]

K = TypeVar("K", str, Key)

_BLOCK = 1000
"""The most keys of a block."""
_first = itemgetter(0)


class SortedKeys(Generic[K]):
    """Distinct keys in ascending order. They are in blocks, none of them empty, so that a key that
    is added or removed moves few others, however many there are."""

    __slots__ = ("_blocks",)

    def __init__(self) -> None:
        self._blocks: list[list[K]] = []

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def add(self, key: K) -> None:
        """Insert a key that is absent."""
        if not self._blocks:
            self._blocks.append([key])
            return
        place = self._place(key)
        block = self._blocks[place]
        insort(block, key)
        if len(block) > _BLOCK:
            half = len(block) // 2
            self._blocks.insert(place + 1, block[half:])
            del block[half:]

    def remove(self, key: K) -> None:
        """Remove a key that is present."""
        place = self._place(key)
        block = self._blocks[place]
        del block[bisect_left(block, key)]
        if not block:
            del self._blocks[place]

    def page(self, start: K, size: int) -> list[K]:
        """The keys from `start` on, at most `size`."""
        keys: list[K] = []
        for place in range(self._place(start), len(self._blocks)):
            block = self._blocks[place]
            begin = bisect_left(block, start)
            keys += block[begin : begin + size - len(keys)]
            if len(keys) == size:
                break
        return keys

    def since(self, start: K) -> Iterator[K]:
        """All keys from `start` on, as long as none is added or removed."""
        for place in range(self._place(start), len(self._blocks)):
            block = self._blocks[place]
            yield from block[bisect_left(block, start) :]

    def _place(self, key: K) -> int:
        """The block that has the key, or else the one to add it to."""
        return max(bisect_right(self._blocks, key, key=_first) - 1, 0)
