"""Work on volumes of both layouts: a directory that is renamed there and back, or deleted again and
again, and files at the end of a chain of directories."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from benchmarks.contenders.keys import bounded, total_of
from benchmarks.contenders.ours import fill
from s3k_async import S3kClient

__all__ = ["Chain", "Deletion", "Swing"]

DATA = b"x" * 4096


class Swing:
    """A directory that is renamed there and back, so that it has to be filled once."""

    def __init__(self, rename: Callable[[str, str], Awaitable[object]], top: str) -> None:
        self.here, self._there = f"{top}/here", f"{top}/there"
        self._rename = rename

    async def __call__(self) -> None:
        await self._rename(self.here, self._there)
        self.here, self._there = self._there, self.here


@dataclass
class Deletion:
    """A directory that is deleted recursively, and is there again before the next time."""

    fs: S3kClient
    path: str
    files: int
    wait: bool = False
    """Whether the call reclaims the content as well, where the layout does not do so anyway."""

    async def ready(self) -> None:
        """Let the directory exist: from the trash if it is there, else filled anew."""
        if await self.fs.exists(self.path):
            return
        was = [each for each in await self.fs.trash().list() if each.was == self.path]
        if was and not was[0].state:
            await self.fs.trash().restore(was[0])
        else:
            await fill(self.fs, self.path, self.files)

    async def __call__(self) -> None:
        await self.fs.delete(self.path, recursive=True, wait=self.wait)


class Chain:
    """Files in one directory, below others; `depth` directories are above a file."""

    def __init__(self, fs: S3kClient, depth: int, top: str = "/files") -> None:
        self.fs = fs
        self.path = top + "".join(f"/level-{level}" for level in range(1, depth))
        self._made = 0

    async def put(self, files: int) -> None:
        """Write the files that are read."""
        await self.fs.write_many([(f"{self.path}/part-{n:08}", DATA) for n in range(files)])

    async def stat(self, files: int, in_flight: int) -> int:
        """Look at each file; bytes of all."""

        async def size(number: int) -> int:
            return (await self.fs.stat(f"{self.path}/part-{number:08}")).size

        return await total_of(size, files, in_flight)

    async def read(self, files: int, in_flight: int) -> int:
        """Read each file; bytes of all."""

        async def size(number: int) -> int:
            return len(await self.fs.read(f"{self.path}/part-{number:08}"))

        return await total_of(size, files, in_flight)

    async def create(self, files: int, in_flight: int) -> None:
        """Write new files, one a call."""
        first, self._made = self._made, self._made + files

        async def write(number: int) -> None:
            await self.fs.write(f"{self.path}/new-{number:08}", DATA)

        await bounded(write, range(first, first + files), in_flight)

    async def write_many(self, files: int) -> None:
        """Write new files by one call."""
        first, self._made = self._made, self._made + files
        await self.fs.write_many(
            [(f"{self.path}/new-{number:08}", DATA) for number in range(first, first + files)]
        )
