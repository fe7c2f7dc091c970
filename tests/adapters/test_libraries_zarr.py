"""zarr on `s3k://` paths, and zarr's own suite for stores."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import fsspec
import numpy as np
import pytest
import zarr
import zarr.api.asynchronous
from upath import UPath
from zarr.core.buffer import Buffer, cpu
from zarr.errors import ContainsArrayError
from zarr.storage import FsspecStore
from zarr.testing.store import StoreTests

from s3k_async import S3kSyncClient
from tests.adapters.lake import embedded_volume

DATA = np.arange(120 * 80, dtype="f4").reshape(120, 80)

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with embedded_volume(tmp_path_factory.mktemp("lake")) as url:
        yield url


@pytest.fixture
def place(lake: str) -> str:
    """The URL of a directory that does not exist yet."""
    return f"{lake}/arrays/{next(_numbers)}"


def test_an_array_is_read_as_it_was_written(place: str) -> None:
    array = zarr.create_array(
        f"{place}/a.zarr", shape=DATA.shape, chunks=(30, 20), dtype=DATA.dtype
    )
    array[:] = DATA
    array.attrs["unit"] = "m"
    found = zarr.open_array(f"{place}/a.zarr", mode="r")
    np.testing.assert_array_equal(found[:], DATA)
    np.testing.assert_array_equal(found[35:95, 10:30], DATA[35:95, 10:30])
    assert found.attrs["unit"] == "m"


def test_a_shard_is_read_in_pieces(place: str) -> None:
    array = zarr.create_array(
        f"{place}/a.zarr", shape=DATA.shape, chunks=(10, 10), shards=(60, 80), dtype=DATA.dtype
    )
    array[:] = DATA
    fs, path = fsspec.url_to_fs(f"{place}/a.zarr")
    assert len([name for name in fs.find(path) if "/c/" in name]) == 2
    np.testing.assert_array_equal(
        zarr.open_array(f"{place}/a.zarr", mode="r")[17:23, 70:], DATA[17:23, 70:]
    )


def test_arrays_grow_and_are_replaced(place: str) -> None:
    url = f"{place}/a.zarr"
    array = zarr.create_array(url, shape=(100, 80), chunks=(50, 80), dtype=DATA.dtype)
    array[:] = DATA[:100]
    array.append(DATA[100:])
    np.testing.assert_array_equal(zarr.open_array(url, mode="r")[:], DATA)
    with pytest.raises(ContainsArrayError):
        zarr.create_array(url, shape=(2, 2), dtype="i8")
    np.testing.assert_array_equal(zarr.open_array(url, mode="r")[:], DATA)
    zarr.create_array(url, data=np.zeros((2, 2), dtype="i8"), overwrite=True)
    found = zarr.open_array(url, mode="r")
    assert found.shape == (2, 2)
    assert len([name for name in fsspec.url_to_fs(url)[0].find(url) if "/c/" in name]) <= 1


def test_groups_have_members_that_come_and_go(place: str) -> None:
    group = zarr.open_group(f"{place}/g.zarr", mode="w")
    for name in ("north", "south/inner", "south-west"):
        group.create_array(name, data=DATA)
    assert sorted(group.keys()) == ["north", "south", "south-west"]
    del group["south"]
    found = zarr.open_group(f"{place}/g.zarr", mode="r")
    assert sorted(found.keys()) == ["north", "south-west"]
    np.testing.assert_array_equal(zarr.open_array(f"{place}/g.zarr/north", mode="r")[:], DATA)


def test_a_path_of_universal_pathlib_is_a_store(place: str) -> None:
    path = UPath(f"{place}/a.zarr", asynchronous=True)
    zarr.create_array(FsspecStore.from_upath(path), data=DATA)
    np.testing.assert_array_equal(zarr.open_array(str(path), mode="r")[:], DATA)
    assert UPath(str(path), "zarr.json").is_file()


async def copied(source: str, target: str) -> None:
    """By zarr's async interface, on the caller's own loop."""
    store = FsspecStore.from_url(source, read_only=True)
    array = await zarr.api.asynchronous.open_array(store=store)
    data = np.asarray(await array.getitem(...))
    await zarr.api.asynchronous.create_array(FsspecStore.from_url(target), data=data)


def test_the_async_interface_works_on_one_loop_after_the_other(place: str) -> None:
    """fsspec keeps filesystems by their arguments: the second loop is given what the first, closed
    one used."""
    zarr.create_array(f"{place}/0.zarr", data=DATA)
    for number in range(3):
        asyncio.run(copied(f"{place}/{number}.zarr", f"{place}/{number + 1}.zarr"))
    np.testing.assert_array_equal(zarr.open_array(f"{place}/3.zarr", mode="r")[:], DATA)


@pytest.fixture(scope="module")
def beside(lake: str) -> Iterator[S3kSyncClient]:
    """A client of the volume, to look past zarr and fsspec."""
    with S3kSyncClient(lake) as client:
        yield client


class TestZarrStore(StoreTests[FsspecStore, cpu.Buffer]):
    """zarr's suite, unchanged; what it skips needs blocking methods, which no fsspec store has."""

    store_cls = FsspecStore
    buffer_cls = cpu.Buffer

    @pytest.fixture
    def store_kwargs(self, place: str, beside: S3kSyncClient) -> dict[str, Any]:
        self.beside = beside
        fs, path = fsspec.url_to_fs(place, asynchronous=True)
        return {"fs": fs, "path": path}

    @pytest.fixture
    async def store(self, store_kwargs: dict[str, Any]) -> FsspecStore:
        return await self.store_cls.open(**store_kwargs)

    async def get(self, store: FsspecStore, key: str) -> Buffer:
        return self.buffer_cls.from_bytes(self.beside.read(f"{store.path}/{key}"))

    async def set(self, store: FsspecStore, key: str, value: Buffer) -> None:
        self.beside.write(f"{store.path}/{key}", value.to_bytes())

    def test_store_repr(self, store: FsspecStore) -> None:
        assert str(store) == f"<FsspecStore(S3kFileSystem, {store.path})>"

    def test_store_supports_writes(self, store: FsspecStore) -> None:
        assert store.supports_writes

    def test_store_supports_listing(self, store: FsspecStore) -> None:
        assert store.supports_listing
