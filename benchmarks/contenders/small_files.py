"""One small file a call: putting, reading, looking at, copying and deleting it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from benchmarks.contenders.keys import bounded

__all__ = ["VERBS", "BlockingFiles", "SmallFiles", "Verb", "Work", "small_tree"]

Verb: TypeAlias = Literal["put", "read", "stat", "copy", "rename", "delete"]
VERBS: tuple[Verb, ...] = ("put", "read", "stat", "copy", "delete")
"""Those of a store of objects."""


@dataclass(frozen=True)
class Work:
    """A verb for many files."""

    verb: Verb
    source: str
    """Files are named by this and a number."""
    target: str
    """Likewise the copies."""
    data: bytes
    count: int
    in_flight: int


class SmallFiles(ABC):
    """A contender that asyncio calls."""

    async def many(self, work: Work) -> int:
        """Do the work; how many bytes the files had that were put, read or looked at."""
        seen = 0

        async def one(number: int) -> None:
            nonlocal seen
            size = await self._one(work, f"{work.source}-{number:08}", f"{work.target}-{number:08}")
            seen += size

        await bounded(one, range(work.count), work.in_flight)
        return seen

    async def _one(self, work: Work, source: str, target: str) -> int:
        match work.verb:
            case "put":
                await self.put(source, work.data)
                return len(work.data)
            case "read":
                return await self.read(source)
            case "stat":
                return await self.stat(source)
            case "copy":
                await self.copy(source, target)
            case "rename":
                await self.rename(source, target)
            case "delete":
                await self.delete(target)
        return 0

    @abstractmethod
    async def put(self, path: str, data: bytes) -> object:
        """Write a file."""

    @abstractmethod
    async def read(self, path: str) -> int:
        """How many bytes came."""

    @abstractmethod
    async def stat(self, path: str) -> int:
        """Its size."""

    @abstractmethod
    async def copy(self, source: str, target: str) -> object:
        """Copy it to where nothing is."""

    async def rename(self, source: str, target: str) -> object:
        """Move it to where nothing is."""
        await self.copy(source, target)
        return await self.delete(source)

    @abstractmethod
    async def delete(self, path: str) -> object:
        """Remove it."""


class BlockingFiles(ABC):
    """A contender that threads call."""

    def __init__(self, top: str) -> None:
        self._top = top
        """What precedes the paths of files."""

    async def many(self, work: Work) -> int:
        """As `SmallFiles.many`, with as many threads as requests may be in flight."""

        def one(number: int) -> int:
            source, target = (
                f"{self._top}{path}-{number:08}" for path in (work.source, work.target)
            )
            return self._one(work, source, target)

        def run() -> int:
            with ThreadPoolExecutor(work.in_flight) as pool:
                return sum(pool.map(one, range(work.count)))

        return await asyncio.to_thread(run)

    @abstractmethod
    def _one(self, work: Work, source: str, target: str) -> int:
        """Do the work for one file; the bytes that it had if it was put, read or looked at."""


def small_tree(place: Path, files: int) -> str:
    """A local directory with so many files of 100 bytes, 500 in each of its directories."""
    local = place / "tree"
    for number in range(files):
        directory = local / f"{number // 500:04}"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"part-{number:08}").write_bytes(b"x" * 100)
    return str(local)
