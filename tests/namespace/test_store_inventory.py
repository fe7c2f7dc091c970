"""The counterparts of S3-FileSystem 1.0's integration tests of its metadata store, under their old
names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from s3k_async._core.paths import normalize
from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.ports.items import Delete
from s3k_async.errors import PathExistsError
from s3k_async.layouts.path.recursive import Tree
from s3k_async.model import Content, Entry
from s3k_async.namespace.ordered_walk import walk
from s3k_async.namespace.store import MetadataStore
from s3k_async.oplog.log_reader import DamagedLog, LogReader, ObjectState, latest
from s3k_async.table.codec import unchanged
from s3k_async.table.keys import Directory
from s3k_async.volumes import Volume, init_volume, open_volume
from tests.engines.volumes import VolumeMaker, module_volume_backends

pytestmark = [
    module_volume_backends(
        "memory", "embedded", "dynoxide+seaweedfs", "dynamodb_local+seaweedfs", "redis", "rocksdb"
    ),
    pytest.mark.asyncio(loop_scope="module"),
]


@dataclass
class Ground:
    """A metadata store of three suffixes, as in the old tests, and its log."""

    store: MetadataStore
    log: LogReader

    @property
    def tree(self) -> Tree:
        return Tree(self.store)

    async def file(self, path: str, size: int = 100) -> Entry:
        target = await self.store.prepare(path)
        content = Content(SYSTEM.physical_key(target.object_id), size, "etag", "")
        return await self.store.publish(target, content, overwrite=False)

    async def orphan(self, path: str) -> Entry:
        """A file whose parents have no entries, as damage would leave it."""
        identity = SYSTEM.uuid()
        entry = Entry(
            path,
            False,
            identity,
            2,
            1_600_000_000,
            1_600_000_000_000,
            7,
            SYSTEM.physical_key(identity),
            True,
        )
        await self.store.restore(entry, None)
        return entry

    async def listing(self, path: str) -> list[Entry]:
        return _by_path(
            [entry async for page in self.store.children(Directory.at(path)) for entry in page]
        )

    async def recursive(self, path: str) -> list[Entry]:
        return _by_path(
            [entry async for page in walk(self.store, Directory.at(path)) for entry in page]
        )

    async def scan(self, path: str, segments: int = 4) -> list[Entry]:
        found = [
            entry
            for segment in range(segments)
            async for page in self.store.scan(path, segment, segments)
            for entry in page
        ]
        return _by_path(found)

    async def truths(self) -> dict[str, ObjectState]:
        await self.store.changes.log.drained()
        findings = [finding async for finding in self.log.records()]
        assert not [finding for finding in findings if isinstance(finding, DamagedLog)]
        return latest(findings)

    async def operations(self, entry: Entry) -> list[tuple[str, int, str]]:
        """(kind, version, state) of everything the log holds of an object, oldest first."""
        await self.store.changes.log.drained()
        records = [
            record
            for record in await self.log.history(entry.id)
            if not isinstance(record, DamagedLog)
        ]
        committed = {record.operation.id for record in records if record.state == "committed"}
        return [
            (record.operation.kind, record.operation.version, record.state)
            for record in records
            if record.state == "committed" or record.operation.id not in committed
        ]

    async def assert_logged_as(self, *entries: Entry) -> None:
        """The log's truth of each object is exactly this entry."""
        truths = await self.truths()
        for entry in entries:
            record = truths[entry.id].committed
            assert record is not None
            assert record.operation.after is not None
            assert (record.operation.after.path, record.operation.after.version) == (
                entry.path,
                entry.version,
            )
            assert (record.operation.after.size, record.operation.after.physical) == (
                entry.size,
                entry.physical,
            )
            assert not truths[entry.id].pending

    async def assert_gone_from_log(self, *entries: Entry) -> None:
        """The log's truth of each object is a committed tombstone that names what was deleted."""
        truths = await self.truths()
        for entry in entries:
            record = truths[entry.id].committed
            assert record is not None
            assert (record.operation.kind, record.operation.version) == (
                "delete",
                entry.version + 1,
            )
            assert record.operation.before is not None
            assert record.operation.before.physical == entry.physical
            assert not truths[entry.id].pending


def _by_path(entries: list[Entry]) -> list[Entry]:
    assert len({entry.path for entry in entries}) == len(entries), "an entry was listed twice"
    return sorted(entries, key=lambda entry: entry.path)


def paths(entries: list[Entry]) -> list[str]:
    return [entry.path for entry in entries]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def volume(new_module_volume: VolumeMaker) -> AsyncIterator[Volume]:
    config = new_module_volume("bucket", suffix_count=3)
    await init_volume(config)
    volume = await open_volume(config)
    yield volume
    await volume.close()


@pytest_asyncio.fixture(loop_scope="module")
async def ground(volume: Volume) -> AsyncIterator[Ground]:
    assert volume.log_blobs is not None
    ground = Ground(volume.store, LogReader(volume.log_blobs))
    yield ground
    for entry in await ground.scan("/"):
        await volume.items.write(Delete(volume.store.keys.key(entry.path), unchanged(entry)))


async def test_get_inexistent_object_returns_empty(ground: Ground) -> None:
    assert await ground.store.get("/file") is None
    assert await ground.store.get_many(["/file", "/dir/file"]) == [None, None]


async def test_get_returns_previously_added_key(ground: Ground) -> None:
    created = await ground.file("/file", size=100)

    assert await ground.store.get("/file") == created
    assert (created.is_dir, created.size, created.committed, created.version) == (
        False,
        100,
        True,
        2,
    )
    assert await ground.operations(created) == [("update", 2, "committed")]
    await ground.assert_logged_as(created)


async def test_list_returns_first_level_children(ground: Ground) -> None:
    directory = await ground.store.make_directory("/dir")
    expected = [
        await ground.store.make_directory("/dir/a"),
        await ground.file("/dir/f1"),
        await ground.file("/dir/f2"),
    ]
    await ground.file("/dir/a/grandchild")

    assert await ground.listing("/dir") == expected
    assert await ground.listing("/") == [directory]


async def test_list_return_empty_when_there_are_no_children(ground: Ground) -> None:
    directory = await ground.store.make_directory("/dir")

    assert await ground.listing("/dir") == []
    assert await ground.recursive("/dir") == []
    assert await ground.scan("/dir") == []
    assert await ground.scan("/") == [directory]
    assert not await ground.store.has_children(Directory.at("/dir"))


async def test_file_objects_are_deleted(ground: Ground) -> None:
    file = await ground.file("/file")

    await ground.store.delete_file(file)

    assert await ground.store.get("/file") is None
    assert await ground.listing("/") == []
    assert await ground.recursive("/") == []
    assert await ground.scan("/") == []
    assert await ground.operations(file) == [("update", 2, "committed"), ("delete", 3, "committed")]
    await ground.assert_gone_from_log(file)


async def test_directory_objects_are_deleted(ground: Ground) -> None:
    directory = await ground.store.make_directory("/dir")
    below = await ground.store.make_directory("/dir/sub")
    files = [await ground.file("/dir/f1", size=3), await ground.file("/dir/sub/f2", size=4)]

    result = await ground.tree.delete(directory)

    assert (result.files, result.directories, result.bytes, result.failures) == (2, 2, 7, ())
    assert await ground.store.get_many(["/dir", "/dir/sub", "/dir/f1", "/dir/sub/f2"]) == [None] * 4
    assert await ground.listing("/") == []
    assert await ground.scan("/") == []
    await ground.assert_gone_from_log(directory, below, *files)


async def test_recursive_listing(ground: Ground) -> None:
    await ground.store.make_directory("/dir")
    expected = [
        await ground.store.make_directory("/dir/a"),
        await ground.store.make_directory("/dir/a/b"),
        await ground.file("/dir/a/b/f3"),
        await ground.file("/dir/a/f2"),
        await ground.file("/dir/f1"),
    ]
    await ground.file("/dirty")

    assert await ground.recursive("/dir") == expected
    assert await ground.scan("/dir") == expected
    seen: set[str] = {"/dir"}
    async for page in walk(ground.store, Directory.at("/dir")):
        for entry in page:
            assert entry.path.rpartition("/")[0] in seen, "a child came before its directory"
            seen.add(entry.path)


async def test_file_object_rename(ground: Ground) -> None:
    source, target = (
        await ground.store.make_directory("/source"),
        await ground.store.make_directory("/target"),
    )
    file = await ground.file("/source/file")

    moved = await ground.store.rename_file(file, "/target/moved")

    assert (moved.id, moved.version, moved.physical) == (file.id, 3, file.physical)
    assert await ground.store.get("/source/file") is None
    assert await ground.store.get("/target/moved") == moved
    assert await ground.listing("/source") == []
    assert await ground.listing("/target") == [moved]
    assert await ground.recursive("/") == [source, target, moved]
    assert await ground.scan("/") == [source, target, moved]
    assert await ground.operations(file) == [("update", 2, "committed"), ("rename", 3, "committed")]
    await ground.assert_logged_as(moved)


async def test_directory_object_rename(ground: Ground) -> None:
    source = await ground.store.make_directory("/source")
    below = await ground.store.make_directory("/source/sub")
    files = [await ground.file("/source/f1"), await ground.file("/source/sub/f2", size=5)]
    old_paths = paths([source, below, *files])

    result = await ground.tree.rename(source, "/target")

    assert (result.files, result.directories, result.bytes, result.failures) == (2, 2, 105, ())
    new_paths = ["/target" + path.removeprefix("/source") for path in old_paths]
    assert await ground.store.get_many(old_paths) == [None] * 4
    moved = [entry for entry in await ground.store.get_many(new_paths) if entry is not None]
    assert paths(moved) == new_paths
    assert [(entry.id, entry.version) for entry in moved] == [
        (entry.id, entry.version + 1) for entry in [source, below, *files]
    ]
    assert [entry.pending for entry in moved] == [""] * 4
    assert await ground.recursive("/") == _by_path(moved)
    assert await ground.scan("/") == _by_path(moved)
    await ground.assert_logged_as(*moved)


async def test_scan_listing(ground: Ground) -> None:
    reachable = [await ground.store.make_directory("/dir"), await ground.file("/dir/file")]
    orphan = await ground.orphan("/dir/missing/orphan")

    assert await ground.recursive("/") == reachable
    assert await ground.scan("/") == [*reachable, orphan]
    assert await ground.scan(normalize("//dir")) == [reachable[1], orphan]
    assert await ground.scan("/dir/missing") == [orphan]
    assert await ground.scan("/di") == []


async def test_rename_returns_false_when_renaming_over_an_existing_file(ground: Ground) -> None:
    source, target = await ground.file("/source", size=1), await ground.file("/target", size=2)

    with pytest.raises(PathExistsError):
        await ground.store.rename_file(source, "/target")

    assert await ground.store.get_many(["/source", "/target"]) == [source, target]
    assert await ground.operations(source) == [("update", 2, "committed")]
    assert await ground.operations(target) == [("update", 2, "committed")]
