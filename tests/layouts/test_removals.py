"""Reads of layout `tree` during the removal of an empty directory in which a file is being created.

The file may be written after the remover has found the directory empty. Then its creator moves it
into another directory at its path. A reader must not see it before that move, since it would be
missing in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeAlias

import pytest

from s3k_async.errors import (
    BusyError,
    ConflictError,
    DirectoryNotEmptyError,
    PathExistsError,
    PermissionDeniedError,
    S3kError,
    TransactionConflictError,
)
from s3k_async.listing.listings import Listing, glob_pages, list_pages
from s3k_async.model import Entry, FileStatus
from s3k_async.namespace.file_batches import publish_many
from s3k_async.namespace.store import WriteTarget
from s3k_async.testing import Call, Died
from s3k_async.txn.txn_record import LEASE_SECONDS, TRANSACTION_PARTITION
from tests.engines.volumes import fresh_name
from tests.layouts.interleavings import interleavings, outcome_of
from tests.layouts.test_files import EMPTY, GROWN, PATH, content_of, remove_parent, write
from tests.layouts.trees import Client, TreeVolume
from tests.races.operations import Outcome

Read: TypeAlias = Callable[[Client], Awaitable[bool]]
"""Whether a read shows the file."""


async def by_path(client: Client) -> bool:
    return await client.store.get(PATH) is not None


async def among_others(client: Client) -> bool:
    found = await client.store.get_many(["/z/g", PATH, "/a/b/other", PATH, "/a/b"])
    assert [entry is not None for entry in found[::2]] == [True, False, found[4] is not None]
    assert found[1] == found[3]
    return found[1] is not None


async def each_by_path(client: Client) -> bool:
    (found,) = await client.store.get_each([PATH])
    assert found is None or isinstance(found, Entry)
    return found is not None


async def before_a_write(client: Client) -> bool:
    return (await client.store.prepare(PATH)).current is not None


async def _shows(pages: AsyncIterator[list[FileStatus]]) -> bool:
    return PATH in {status.path async for page in pages for status in page}


async def by_listing(client: Client) -> bool:
    return await _shows(list_pages(client.store, "/", Listing(recursive=True)))


async def by_sorted_listing(client: Client) -> bool:
    return await _shows(list_pages(client.store, "/a", Listing(recursive=True, sorted=True)))


async def by_pattern(client: Client) -> bool:
    return await _shows(glob_pages(client.store, "/{a,z}/b/f"))


async def by_wildcard(client: Client) -> bool:
    return await _shows(glob_pages(client.store, "/a/b/*"))


READS = [
    by_path,
    among_others,
    each_by_path,
    before_a_write,
    by_listing,
    by_sorted_listing,
    by_pattern,
    by_wildcard,
]


@dataclass
class Scene:
    """A client that has found `/a/b` empty and is about to remove it, and a client that has since
    written a file there and is about to read the directory again."""

    volume: TreeVolume
    remover: Client
    creator: Client
    removal: asyncio.Task[Outcome] = field(init=False)
    creation: asyncio.Task[Entry] = field(init=False)
    _found_empty: asyncio.Event = field(default_factory=asyncio.Event)
    _written: asyncio.Event = field(default_factory=asyncio.Event)
    _remove: asyncio.Event = field(default_factory=asyncio.Event)
    _look: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(self) -> None:
        await self.creator.need("/a/b")
        self.remover.faults.gate = self._until_empty
        self.creator.faults.gate = self._until_written
        self.creation = asyncio.create_task(write(self.creator))
        await self._written.wait()

    async def _until_empty(self, call: Call) -> None:
        if call.method == "transact":
            self._found_empty.set()
            await self._remove.wait()

    async def _until_written(self, call: Call) -> None:
        if call.method == "write":
            self.removal = asyncio.create_task(outcome_of(remove_parent(self.remover)))
            await self._found_empty.wait()
        elif call.method == "get" and self._found_empty.is_set():
            self._written.set()
            await self._look.wait()

    async def remove(self) -> Outcome:
        """Continue the removal; returns its outcome."""
        self._remove.set()
        return await self.removal

    async def refuse(self) -> Outcome:
        """Make the removal fail, as during a change of a directory above."""
        conflict = TransactionConflictError("another transaction")
        self.remover.faults.fail_when(lambda call: call.method == "transact", conflict, times=100)
        return await self.remove()

    async def die(self) -> None:
        """End the removal with a crash of its client."""
        self.remover.faults.fail_when(lambda _: True, Died("dead"), times=100)
        self._remove.set()
        with suppress(Died):
            await self.removal

    async def end(self) -> None:
        """Finish all calls, whatever their outcomes."""
        self.remover.faults.gate = self.creator.faults.gate = None
        self._remove.set()
        self._look.set()
        await asyncio.gather(self.removal, self.creation, return_exceptions=True)

    async def created(self) -> Entry:
        """The result of the creation."""
        self.creator.faults.gate = None
        self._look.set()
        return await self.creation


@asynccontextmanager
async def scene(
    before: Callable[[TreeVolume], Awaitable[object]] | None = None,
) -> AsyncIterator[Scene]:
    """`before`: called with the volume before the removal begins."""
    volume = await TreeVolume(fresh_name("removals")).start(*EMPTY)
    if before is not None:
        await before(volume)
    found = Scene(volume, volume.client(), volume.client())
    await found.start()
    try:
        yield found
    finally:
        await found.end()


async def warm_client(volume: TreeVolume) -> Client:
    client = volume.client()
    await client.store.get_many(["/a/b", "/z"])
    return client


@pytest.mark.parametrize("is_removed", [False, True])
@pytest.mark.parametrize("read", READS)
async def test_a_new_file_is_not_seen_before_a_removal_has_ended(
    read: Read, is_removed: bool
) -> None:
    """The removal ends before any of the reader's requests."""
    for number in range(1, 12):
        async with scene() as found:
            client = await warm_client(found.volume)
            client.faults.calls.clear()
            ended: list[Outcome] = []

            async def end(
                call: Call, found: Scene = found, ended: list[Outcome] = ended, number: int = number
            ) -> None:
                if call.number == number:
                    ended.append(await (found.remove() if is_removed else found.refuse()))

            client.faults.gate = end
            assert await read(client) == (not is_removed), number
            assert ended == [None if is_removed else ConflictError]
            entry = await found.created()
            assert entry.version == (3 if is_removed else 2)
            assert (await found.volume.tree())[PATH] == entry.id
            assert await read(client)


@pytest.mark.parametrize("read", READS)
async def test_a_read_does_not_wait_longer_than_the_busy_timeout(read: Read) -> None:
    async with scene() as found:
        client = await warm_client(found.volume)
        began = found.volume.clock.monotonic()
        with pytest.raises(BusyError) as raised:
            await read(client)
        assert 5.0 <= found.volume.clock.monotonic() - began < 10.0
        assert raised.value.path in {"/a/b", "/a", "/", "/a/b/*"}
        assert await found.remove() is None
        await found.created()
        assert await read(client)


@pytest.mark.parametrize("read", [read for read in READS if read is not before_a_write])
async def test_a_client_that_may_not_write_reads_after_the_lease_of_a_dead_remover(
    read: Read,
) -> None:
    async with scene() as found:
        client = await warm_client(found.volume)
        await found.die()
        found.volume.clock.advance(LEASE_SECONDS)
        denied = PermissionDeniedError("not authorized")
        writes = ("write", "transact")
        client.faults.fail_when(lambda call: call.method in writes, denied, times=1000)
        assert await read(client)
        await found.created()
        assert await read(client)


@pytest.mark.parametrize("read", READS)
async def test_a_read_ends_the_removal_of_a_client_that_died(read: Read) -> None:
    async with scene() as found:
        client = await warm_client(found.volume)
        await found.die()
        found.volume.clock.advance(LEASE_SECONDS)
        assert await read(client)
        entry = await found.created()
        assert entry.version == 2
        assert (await found.volume.tree())[PATH] == entry.id


@pytest.mark.parametrize("read", [by_path, among_others, each_by_path, before_a_write])
async def test_a_removal_that_goes_on_after_its_lease_is_refused(read: Read) -> None:
    async with scene() as found:
        client = await warm_client(found.volume)
        found.volume.clock.advance(LEASE_SECONDS)
        assert await read(client)
        assert await found.remove() is ConflictError
        assert (await found.created()).version == 2
        assert await read(client)


async def test_the_creator_ends_the_removal_of_a_directory_that_is_not_empty() -> None:
    async with scene() as found:
        client = await warm_client(found.volume)
        assert (await found.created()).version == 2
        assert await by_path(client)
        assert await found.remove() is ConflictError
        assert await by_path(client)


async def test_a_removal_is_not_refused_because_of_a_file_that_may_be_moved() -> None:
    """The removal waits for the end of the other one."""
    async with scene() as found:
        client = await warm_client(found.volume)
        with pytest.raises(BusyError):
            await remove_parent(client)
        assert await found.refuse() is ConflictError
        with pytest.raises(DirectoryNotEmptyError):
            await remove_parent(client)
        await found.created()


async def publish(client: Client, target: WriteTarget) -> None:
    await client.store.publish(target, content_of(client, target), overwrite=False)


async def publish_in_a_batch(client: Client, target: WriteTarget) -> None:
    files = [(target, content_of(client, target))]
    published = await publish_many(client.store, files, overwrite=False)
    error = published[target.path]
    assert isinstance(error, S3kError)
    raise error


@pytest.mark.parametrize("is_removed", [False, True])
@pytest.mark.parametrize("create", [publish, publish_in_a_batch])
async def test_an_exclusive_creation_is_not_refused_because_of_a_file_that_may_be_moved(
    create: Callable[[Client, WriteTarget], Awaitable[None]], is_removed: bool
) -> None:
    """A creation that read the directory before its removal began prepares the path again."""
    targets: list[tuple[Client, WriteTarget]] = []

    async def prepare(volume: TreeVolume) -> None:
        client = volume.client()
        targets.append((client, await client.store.prepare(PATH)))

    async with scene(prepare) as found:
        client, target = targets[0]
        if is_removed:
            assert await found.remove() is None
        with pytest.raises(ConflictError):
            await create(client, target)
        entry = await found.created()
        assert await outcome_of(write(client, exclusive=True)) is PathExistsError
        assert (await found.volume.tree())[PATH] == entry.id


async def test_a_directory_is_seen_while_it_is_being_removed() -> None:
    """Readers of missing entries or directories in it do not wait either."""
    async with scene() as found:
        client = await warm_client(found.volume)
        began = found.volume.clock.monotonic()
        paths = ["/a/b", "/a/b/other", "/a/b/f/below", "/a", "/z/g"]
        seen = [entry is not None for entry in await client.store.get_many(paths)]
        assert seen == [True, False, False, True, True]
        assert found.volume.clock.monotonic() == began
        await found.remove()
        await found.created()


async def test_files_that_were_there_before_are_seen_when_the_removal_is_refused() -> None:
    """This holds for every order of the requests."""
    outcomes = set()
    async for run in interleavings(*GROWN, ordered=is_ordered):
        remover, reader = run.client(), run.client()
        directory = await remover.need("/a/b")
        await reader.need("/a/b/old")
        listed: list[bool] = []

        async def read(reader: Client = reader, listed: list[bool] = listed) -> None:
            listed.append(await reader.store.get("/a/b/old") is not None)
            pages = list_pages(reader.store, "/a/b", Listing())
            listed.append([status.path async for page in pages for status in page] == ["/a/b/old"])

        found = await run.outcomes(
            (remover, remover.store.remove_directory(directory)), (reader, read())
        )
        outcomes |= set(found)
        assert listed == [True, True]
    assert outcomes == {DirectoryNotEmptyError, None}


def is_ordered(call: Call) -> bool:
    """All calls but the reads before a change and the writes of transaction records."""
    return (
        call.method in {"write", "transact", "get_many", "query"}
        and TRANSACTION_PARTITION not in call.key
    )


@pytest.mark.parametrize("read", [by_path, pytest.param(by_wildcard, marks=pytest.mark.slow)])
async def test_a_file_that_was_seen_stays(read: Read) -> None:
    """A file is created in a directory that is being removed, in every order of the relevant
    requests."""
    seen = set()
    async for run in interleavings(*EMPTY, ordered=is_change):
        creator, remover, reader = run.client(), run.client(), run.client()
        directory = await remover.need("/a/b")
        for client in (creator, reader):
            await client.store.get_many([PATH, "/z"])
        target = await creator.store.prepare(PATH)
        publishing = creator.store.publish(target, content_of(creator, target))
        shown: list[bool] = []

        async def read_twice(reader: Client = reader, shown: list[bool] = shown) -> None:
            shown.extend([await read(reader), await read(reader)])

        outcomes = await run.outcomes(
            (creator, publishing),
            (remover, remover.store.remove_directory(directory)),
            (reader, read_twice()),
        )
        assert outcomes[0] is None
        assert outcomes[1] in (None, DirectoryNotEmptyError, ConflictError)
        assert outcomes[2] is None
        assert PATH in await run.volume.tree()
        assert shown != [True, False]
        seen.add((outcomes[1], *shown))
    assert {(None, False, True), (DirectoryNotEmptyError, True, True)} <= seen


def is_change(call: Call) -> bool:
    return (
        call.method in {"write", "transact", "get_many"} and TRANSACTION_PARTITION not in call.key
    )
