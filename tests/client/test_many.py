"""stat_many, exists_many, read_many: order, repetition, limits, and each failure by its path."""

from __future__ import annotations

from typing import Any

import pytest

from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.backends.ports.items import PARTITION, SORT, Condition, Put
from s3k_async.bulk import file_reads
from s3k_async.client import S3kClient
from s3k_async.errors import (
    ArgumentTypeError,
    CorruptDataError,
    CrossVolumeError,
    DataMissingError,
    InvalidPathError,
    IsDirectoryError,
    ItemFormatError,
    PartialFailureError,
    PathNotFoundError,
    UncommittedFileError,
)
from tests.engines.volumes import volume_backends

pytestmark = [
    volume_backends("memory", "embedded", "dynoxide+seaweedfs"),
    pytest.mark.layouts("path", "tree"),
]

FILES = {f"/d{number % 3}/file-{number}": b"x" * number for number in range(130)}


@pytest.fixture
async def filled(fs: S3kClient) -> S3kClient:
    for path in ("/d0/file-0", "/d1/file-1", "/d2/file-2"):
        await fs.write(path, FILES[path])
    return fs


async def test_answers_come_in_the_order_of_the_paths(fs: S3kClient) -> None:
    """More than one request reads the entries."""
    for path in list(FILES)[::10]:
        await fs.write(path, FILES[path])
    asked = [*reversed(FILES), "/", "d0", *FILES]
    written = {*list(FILES)[::10], "/", "/d0", "/d1", "/d2"}
    assert await fs.exists_many(asked) == [f"/{path.lstrip('/')}" in written for path in asked]
    found = await fs.stat_many(asked)
    assert [status is not None for status in found] == await fs.exists_many(asked)
    for path, status in zip(asked, found, strict=True):
        if status is not None:
            assert status == await fs.stat(path)
    present = [path for path in reversed(FILES) if path in written] * 2
    assert await fs.read_many(present) == [FILES[path] for path in present]


async def test_no_paths(fs: S3kClient) -> None:
    assert await fs.stat_many([]) == []
    assert await fs.exists_many(()) == []
    assert await fs.read_many(iter([])) == []


async def test_every_failure_is_named(filled: S3kClient) -> None:
    async with filled.open("/d0/later", "xb"):
        paths = ["/d1/file-1", "/none", "/d0", "/d0/later", "/d2/file-2", "/none"]
        outcomes = await filled.read_each(paths)
        assert [
            data if isinstance(data, bytes) else (type(data), data.path) for data in outcomes
        ] == [
            b"x",
            (PathNotFoundError, "/none"),
            (IsDirectoryError, "/d0"),
            (UncommittedFileError, "/d0/later"),
            b"xx",
            (PathNotFoundError, "/none"),
        ]
        with pytest.raises(PartialFailureError) as caught:
            await filled.read_many(paths)
        assert [(path, type(error)) for path, error in caught.value.failures] == [
            ("/none", PathNotFoundError),
            ("/d0", IsDirectoryError),
            ("/d0/later", UncommittedFileError),
        ]
        assert await filled.exists_many(["/d0/later"]) == [True]


@pytest.mark.parametrize(
    ("bad", "error"), [("a\0b", InvalidPathError), ("s3k://elsewhere/x", CrossVolumeError)]
)
async def test_a_bad_path_is_refused_before_anything_is_asked_for(
    filled: S3kClient, bad: str, error: type[Exception]
) -> None:
    asked = filled.requests
    for verb in (filled.stat_many, filled.exists_many, filled.read_many):
        with pytest.raises(error):
            await verb(["/d1/file-1", bad])
    assert filled.requests == asked


async def test_bytes_that_are_gone_or_wrong(filled: S3kClient) -> None:
    gone, wrong = await filled.stat("/d1/file-1"), await filled.stat("/d2/file-2")
    blobs = filled._volume().storage.blobs
    await blobs.delete(gone.physical or "")
    await blobs.put(wrong.physical or "", b"yy")
    outcomes = await filled.read_each(["/d0/file-0", "/d1/file-1", "/d2/file-2"])
    assert outcomes[0] == b""
    assert [type(error) for error in outcomes[1:]] == [DataMissingError, CorruptDataError]


@pytest.mark.layouts("path")
async def test_an_item_that_cannot_be_read_spoils_no_other_file(filled: S3kClient) -> None:
    items, keys = filled._volume().store.items, filled._volume().store.keys
    key = keys.key("/d1/file-1")
    await items.write(
        Put({PARTITION: key.partition, SORT: key.sort, "isdir": "perhaps"}, Condition())
    )
    outcomes = await filled.read_each(["/d0/file-0", "/d1/file-1", "/d2/file-2"])
    assert (outcomes[0], outcomes[2]) == (b"", b"xx")
    assert isinstance(outcomes[1], ItemFormatError)
    with pytest.raises(ItemFormatError):
        await filled.stat_many(["/d0/file-0", "/d1/file-1"])


async def test_a_large_file_among_small_ones(
    fs: S3kClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The budget is smaller than it; so it waits, and is read all the same."""
    monkeypatch.setattr(file_reads, "IN_FLIGHT", 100)
    await fs.write("/large", b"l" * 1000)
    for number in range(10):
        await fs.write(f"/small-{number}", b"s" * 30)
    paths = [
        *(f"/small-{number}" for number in range(5)),
        "/large",
        *(f"/small-{number}" for number in range(5, 10)),
    ]
    assert [len(data) for data in await fs.read_many(paths)] == [30] * 5 + [1000] + [30] * 5


def test_the_blocking_client_has_them(sync_fs: S3kSyncClient) -> None:
    sync_fs.write("/a", b"1")
    assert sync_fs.exists_many(["/a", "/b"]) == [True, False]
    assert [status and status.size for status in sync_fs.stat_many(["/a", "/b"])] == [1, None]
    assert sync_fs.read_many(["/a", "/a"]) == [b"1", b"1"]
    assert isinstance(sync_fs.read_each(["/b"])[0], PathNotFoundError)


async def test_what_is_no_list_of_paths(fs: S3kClient) -> None:
    for wrong in ("/a", b"/a"):
        strange: Any = wrong
        for verb in (fs.stat_many, fs.exists_many, fs.read_many):
            with pytest.raises(ArgumentTypeError):
                await verb(strange)
