"""What the tests of the Hadoop-shaped surface stand on: an empty volume, its log, and checks of
whole trees."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from s3k_async.adapters.hadoop import HadoopFileSystem
from s3k_async.adapters.hadoop.status import HadoopFileStatus
from s3k_async.backends.ports.items import Delete
from s3k_async.backends.ports.pagination import list_all
from s3k_async.client import S3kClient
from s3k_async.model import Entry
from s3k_async.oplog.log_reader import DamagedLog, LogReader, ObjectState, latest
from s3k_async.table.codec import unchanged
from s3k_async.volumes import Volume

__all__ = ["Ground", "Tree", "collect", "dataset", "names"]

T = TypeVar("T")
Tree = Mapping[str, "Tree | int"]
"""Names to lengths of files and to trees of directories."""


def dataset(length: int, base: int = 0, modulo: int = 256) -> bytes:
    """Bytes that tell where they are: they count from `base` on, modulo `modulo`."""
    return bytes((base + index) % modulo for index in range(length))


async def collect(stream: AsyncIterator[T]) -> list[T]:
    return [value async for value in stream]


@dataclass
class Ground:
    """A file system on a volume that is empty at first. `volume` is the same one, opened apart from
    the client."""

    fs: HadoopFileSystem
    client: S3kClient
    volume: Volume

    def path(self, path: str = "") -> str:
        """A path of the volume as a URL."""
        return f"{self.fs.get_uri()}/{path.lstrip('/')}"

    async def write(self, path: str, data: bytes = b"", *, overwrite: bool = False) -> None:
        async with await self.fs.create(path, overwrite) as stream:
            await stream.write(data)

    async def read(self, path: str) -> bytes:
        """The whole file, through a stream."""
        status = await self.fs.get_file_status(path)
        buffer = bytearray(status.length)
        async with await self.fs.open(path) as stream:
            await stream.read_fully(0, buffer)
        return bytes(buffer)

    async def is_file(self, path: str, length: int | None = None) -> bool:
        status = await self.fs.get_file_status(path)
        return status.is_file and length in (None, status.length)

    async def names(self, path: str) -> list[str]:
        """The names of the children of a directory."""
        return names(await self.fs.list_status(path))

    async def expect_tree(self, path: str, tree: Tree) -> None:
        """Below a directory is exactly this tree, by status and by listing."""
        status = await self.fs.get_file_status(path)
        assert (status.path, status.is_directory, status.is_file) == (path, True, False)
        children = await self.fs.list_status(path)
        assert names(children) == sorted(tree)
        for child in children:
            name = child.path.rpartition("/")[2]
            expected = tree[name]
            assert child.path == f"{path.rstrip('/')}/{name}"
            assert child == await self.fs.get_file_status(child.path)
            if isinstance(expected, int):
                assert (child.is_file, child.length) == (True, expected)
            else:
                await self.expect_tree(child.path, expected)

    async def expect_log(
        self, files: Mapping[str, tuple[int, int]] | None = None, directories: Iterable[str] = ()
    ) -> None:
        """The log knows exactly these files as alive, by path to version and length, and these
        directories; each is committed, nothing is pending, and of everything else the truth is a
        committed tombstone.
        """
        alive: dict[str, Entry] = {}
        for truth in (await self.truths()).values():
            assert truth.committed is not None
            assert not truth.pending
            assert not truth.conflict
            operation = truth.committed.operation
            if operation.after is None:
                assert operation.kind == "delete"
                continue
            assert operation.after.path not in alive
            assert operation.version == operation.after.version
            alive[operation.after.path] = operation.after
        assert {path for path, entry in alive.items() if entry.is_dir} == set(directories)
        found = {path: entry for path, entry in alive.items() if not entry.is_dir}
        assert {path: (entry.version, entry.size) for path, entry in found.items()} == (files or {})
        assert all(entry.committed for entry in found.values())
        for path, entry in found.items():
            current = await self.volume.store.get(path)
            assert current is not None
            assert (current.id, current.version, current.physical) == (
                entry.id,
                entry.version,
                entry.physical,
            )

    async def tombstones(self) -> set[str]:
        """The paths at which the log says that something was deleted."""
        operations = [
            truth.committed.operation for truth in (await self.truths()).values() if truth.committed
        ]
        return {
            operation.before.path
            for operation in operations
            if operation.kind == "delete" and operation.before
        }

    async def truths(self) -> dict[str, ObjectState]:
        assert self.volume.log_blobs is not None
        await self.client._volume().log.drained()
        findings = await collect(LogReader(self.volume.log_blobs).records())
        assert not [finding for finding in findings if isinstance(finding, DamagedLog)]
        return latest(findings)

    async def clear(self) -> None:
        """Make the volume as if it were new: no entries, no log."""
        await self.client._volume().log.drained()
        store, log = self.volume.store, self.volume.log_blobs
        assert log is not None
        for entry in [entry async for page in store.scan("/") for entry in page]:
            await self.volume.items.write(Delete(store.keys.key(entry.path), unchanged(entry)))
            self.client._volume().store.layout.discard(store.keys.directory(entry))
        keys = [
            info.key
            for prefix in ("entries/", "segments/")
            for info in await collect(list_all(log, prefix))
        ]
        assert await log.delete_many(keys) == []


def names(statuses: Iterable[HadoopFileStatus]) -> list[str]:
    return [status.path.rpartition("/")[2] for status in statuses]
