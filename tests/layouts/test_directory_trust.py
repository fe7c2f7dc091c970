"""`Tuning.directory_trust`: for a while, reads do without the directories above the parent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from s3k_async import S3kClient
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.items import Item, Key
from s3k_async.errors import ConfigError, PathNotFoundError
from s3k_async.settings import resolve
from s3k_async.testing import FaultPlan
from s3k_async.volumes import init_volume
from tests.client.rig import TUNING, faulty_client, memory_config
from tests.support import FakeClock, fake_runtime

FILE = "/a/b/c/file"
TRUST = 20.0


@pytest.fixture
def read_keys(monkeypatch: pytest.MonkeyPatch) -> list[Key]:
    """The keys of all items that were read in batches."""
    found: list[Key] = []
    get_many = MemoryItems.get_many

    async def counted(self: MemoryItems, keys: list[Key]) -> dict[Key, Item]:
        found.extend(keys)
        return dict(await get_many(self, keys))

    monkeypatch.setattr(MemoryItems, "get_many", counted)
    return found


@dataclass
class Pair:
    """Two clients with one clock, of which the first trusts directories."""

    trusting: S3kClient
    other: S3kClient
    clock: FakeClock


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    clock = FakeClock()
    config = memory_config(replace(TUNING, directory_trust=TRUST), layout="tree")
    await init_volume(config)
    strict = replace(config, tuning=TUNING)
    async with AsyncExitStack() as stack:
        one, other = [
            await stack.enter_async_context(
                faulty_client(FaultPlan(), each, fake_runtime(clock, seed=seed))
            )
            for seed, each in enumerate((config, strict))
        ]
        await other.write(FILE, b"first")
        yield Pair(one, other, clock)


async def test_a_read_within_the_time_reads_parent_and_entry_alone(
    pair: Pair, read_keys: list[Key]
) -> None:
    def number() -> int:
        count = len(read_keys)
        read_keys.clear()
        return count

    await pair.trusting.stat(FILE)
    number()
    await pair.trusting.stat(FILE)
    assert number() == 2
    assert await pair.trusting.read(FILE) == b"first"
    assert await pair.trusting.exists_many([FILE]) == [True]
    assert number() == 4
    pair.clock.advance(TRUST + 1)
    await pair.trusting.stat(FILE)
    assert number() == 4
    await pair.other.stat(FILE)
    number()
    await pair.other.stat(FILE)
    assert number() == 4


async def test_a_former_path_is_shown_for_the_time_and_no_longer(pair: Pair) -> None:
    await pair.trusting.stat(FILE)
    await pair.other.rename("/a", "/z")
    pair.clock.advance(TRUST - 1)
    assert await pair.trusting.read(FILE) == b"first"
    pair.clock.advance(2)
    with pytest.raises(PathNotFoundError):
        await pair.trusting.stat(FILE)
    assert await pair.trusting.read("/z/b/c/file") == b"first"


async def test_what_is_not_found_is_resolved_from_the_root(pair: Pair) -> None:
    await pair.trusting.stat(FILE)
    await pair.other.rename("/a", "/z")
    await pair.other.write("/a/b/c/new", b"in another directory")
    assert await pair.trusting.read("/a/b/c/new") == b"in another directory"


async def test_a_change_of_the_parent_and_changes_of_the_client_itself_are_seen(
    pair: Pair,
) -> None:
    await pair.trusting.stat(FILE)
    await pair.other.rename("/a/b/c", "/a/b/moved")
    assert not await pair.trusting.exists(FILE)
    await pair.trusting.stat("/a/b/moved/file")
    await pair.trusting.rename("/a", "/z")
    assert not await pair.trusting.exists("/a/b/moved/file")
    assert await pair.trusting.exists("/z/b/moved/file")


async def rename(fs: S3kClient) -> None:
    await fs.rename("/a", "/z")


async def rename_by_a_transaction(fs: S3kClient) -> None:
    async with fs.transaction() as txn:
        await txn.rename("/a", "/z")


async def rename_many(fs: S3kClient) -> None:
    (await fs.rename_many([("/a", "/z")])).raise_for_failures()


async def delete(fs: S3kClient) -> None:
    await fs.delete("/a", recursive=True)


async def delete_and_wait(fs: S3kClient) -> None:
    await fs.delete("/a", recursive=True, wait=True)


async def delete_by_a_transaction(fs: S3kClient) -> None:
    async with fs.transaction() as txn:
        await txn.delete("/a", recursive=True)


async def delete_many(fs: S3kClient) -> None:
    (await fs.delete_many(["/a"], recursive=True)).raise_for_failures()


@pytest.mark.parametrize(
    "change",
    [
        rename,
        rename_by_a_transaction,
        rename_many,
        delete,
        delete_and_wait,
        delete_by_a_transaction,
        delete_many,
    ],
)
async def test_a_client_sees_each_of_its_own_changes(
    pair: Pair, change: Callable[[S3kClient], Awaitable[None]]
) -> None:
    await pair.trusting.stat(FILE)
    await change(pair.trusting)
    assert not await pair.trusting.exists(FILE)
    await pair.trusting.write("/a/b/c/new", b"new")
    assert await pair.trusting.exists("/a/b/c/new")
    assert not await pair.trusting.exists(FILE)


async def test_no_change_and_no_listing_trusts(pair: Pair) -> None:
    await pair.trusting.stat(FILE)
    await pair.other.rename("/a", "/z")
    with pytest.raises(PathNotFoundError):
        await anext(pair.trusting.list("/a/b/c"))
    await pair.trusting.write("/a/b/c/new", b"new")
    assert await pair.other.read("/a/b/c/new") == b"new"
    await pair.trusting.stat("/z/b/c/file")
    await pair.other.rename("/z", "/y")
    for change in (
        pair.trusting.delete("/z/b/c/file"),
        pair.trusting.rename("/z/b/c/file", "/elsewhere"),
        pair.trusting.copy("/z/b/c/file", "/elsewhere"),
    ):
        with pytest.raises(PathNotFoundError):
            await change
    assert await pair.other.read("/y/b/c/file") == b"first"


def test_the_setting_has_a_limit(tmp_path: Path) -> None:
    assert resolve(tmp_path, directory_trust=60).tuning.directory_trust == 60
    with pytest.raises(ConfigError, match="at most 60"):
        resolve(tmp_path, directory_trust=61)
