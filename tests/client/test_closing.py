"""Closing a client while its calls are under way: each ends with a definite result, and nothing is
left behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from s3k_async import S3kClient, S3kSyncClient
from s3k_async.backends.ports.pagination import list_all
from s3k_async.config import VolumeConfig
from s3k_async.errors import ClosedClientError, OutcomeUnknownError
from s3k_async.listing.listings import pages_of
from s3k_async.testing import Call, FaultPlan
from s3k_async.volumes import init_volume, open_volume
from tests.client.rig import TUNING, faulty_client, memory_config
from tests.engines.volumes import VolumeMaker, volume_backends

WRITES = 50


class Gate(FaultPlan):
    """Holds the calls of a method until it is opened."""

    def __init__(self, store: str, method: str, key: str = "", *, number: int = 1) -> None:
        super().__init__(self._hold)
        self._matches: Callable[[Call], bool] = lambda call: (
            (call.store, call.method) == (store, method) and key in call.key
        )
        self._left = number
        self._opened = asyncio.Event()
        self.held = asyncio.Event()
        self.on = False

    async def _hold(self, call: Call) -> None:
        if self.on and self._matches(call):
            self._left -= 1
            if self._left <= 0:
                self.held.set()
                await self._opened.wait()

    async def open_when_closing(self, client: S3kClient) -> None:
        await until(lambda: client.closed)
        await turns()
        self._opened.set()


async def turns() -> None:
    """Let every other task run as far as it can in memory."""
    for _ in range(50):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - nothing signals it
        await asyncio.sleep(0)


def patient(seconds: float) -> VolumeConfig:
    return memory_config(replace(TUNING, close_timeout=seconds))


async def left_pending(config: VolumeConfig) -> set[str]:
    """What the log holds as pending."""
    volume = await open_volume(config)
    try:
        assert volume.log_blobs is not None
        keys = {blob.key async for blob in list_all(volume.log_blobs)}
    finally:
        await volume.close()
    pending = {key.removesuffix(".pending") for key in keys if key.endswith(".pending")}
    return pending - {key.removesuffix(".committed") for key in keys}


async def bytes_left(config: VolumeConfig) -> int:
    volume = await open_volume(config)
    try:
        return len([blob.key async for blob in list_all(volume.blobs) if ".id=" in blob.key])
    finally:
        await volume.close()


@pytest.fixture(autouse=True)
async def quiet(caplog: pytest.LogCaptureFixture) -> AsyncIterator[None]:
    """No warnings, and no tasks that go on."""
    before = asyncio.all_tasks()
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    yield
    assert [record.getMessage() for record in caplog.records if record.levelname != "DEBUG"] == []
    assert asyncio.all_tasks() - before <= {asyncio.current_task()}
    assert complaints == []


@volume_backends("memory", "embedded", "dynoxide+seaweedfs")
async def test_leaving_waits_for_writes_under_way(new_volume: VolumeMaker) -> None:
    config = new_volume()
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        large = asyncio.create_task(fs.write("/large", bytes(60_000_000)))
        await until(lambda: fs.requests.of("data"))
        large.cancel()
        tasks = [
            asyncio.create_task(fs.write(f"/d{number % 5}/{number}", b"data"))
            for number in range(WRITES)
        ]
    assert {status.version for status in await asyncio.gather(*tasks)} == {2}
    with pytest.raises(asyncio.CancelledError):
        await large
    assert await left_pending(config) == set()
    async with S3kClient(config=config) as fs:
        assert len([status async for status in fs.find("/", type="file")]) == WRITES


async def test_calls_that_begin_while_it_closes_are_refused() -> None:
    gate = Gate("items", "write")
    async with faulty_client(gate, await made(patient(60))) as fs:
        gate.on = True
        writing = asyncio.create_task(fs.write("/f", b""))
        await gate.held.wait()
        closing = asyncio.create_task(fs.close())
        await turns()
        with pytest.raises(ClosedClientError):
            await fs.read("/f")
        with pytest.raises(ClosedClientError):
            await anext(fs.list("/"))
        assert not closing.done()
        await asyncio.gather(gate.open_when_closing(fs), closing)
        assert (await writing).path == "/f"


async def made(config: VolumeConfig) -> VolumeConfig:
    await init_volume(config)
    return config


async def test_what_cannot_be_waited_for_has_changed_nothing() -> None:
    config = await made(patient(0))
    gate = Gate("blobs", "put")
    async with faulty_client(gate, config) as fs:
        gate.on = True
        writing = asyncio.create_task(fs.write("/a/f", b"data"))
        await gate.held.wait()
    with pytest.raises(ClosedClientError, match="no changes were applied"):
        await writing
    assert writing.cancelling() == 0
    async with S3kClient(config=config) as fs:
        assert not await fs.exists("/a/f")
    assert await left_pending(config) == set()


@pytest.mark.parametrize("held", [("items", "write", ""), ("blobs", "put", ".committed")])
async def test_a_change_that_is_being_decided_is_seen_to_its_end(
    held: tuple[str, str, str],
) -> None:
    config = await made(patient(0))
    gate = Gate(*held)
    async with faulty_client(gate, config) as fs:
        gate.on = True
        writing = asyncio.create_task(fs.write("/f", b"data"))
        await gate.held.wait()
        opening = asyncio.create_task(gate.open_when_closing(fs))
    await opening
    assert (await writing).size == 4
    assert await left_pending(config) == set()
    async with S3kClient(config=config) as fs:
        assert await fs.read("/f") == b"data"


async def test_an_atomic_change_that_is_published_has_happened() -> None:
    """Other clients resolve its intents."""
    config = await made(patient(0))
    gate = Gate("items", "transact")
    async with faulty_client(gate, config) as fs:
        await fs.write_many([(f"/d/{number}", b"") for number in range(5)])
        resolver = fs._volume().store.resolver
        end = resolver.end

        async def held_end(*arguments: object, **options: object) -> None:
            gate.on = True
            await end(*arguments, **options)  # type: ignore[arg-type]

        resolver.end = held_end  # type: ignore[method-assign]
        removing = asyncio.create_task(fs.delete("/d", recursive=True))
        await gate.held.wait()
        opening = asyncio.create_task(gate.open_when_closing(fs))
    await opening
    assert (await removing).files == 5
    async with S3kClient(config=config) as fs:
        assert not await fs.exists("/d")


async def test_a_change_of_many_that_is_cut_short_is_not_said_to_have_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("s3k_async._core.active_calls.RETURNING", 0)
    monkeypatch.setattr("s3k_async.bulk.path_changes.CHUNK", 2)
    monkeypatch.setattr("s3k_async.bulk.path_changes.DELETING", 1)
    config = await made(patient(0))
    gate = Gate("items", "get_many", number=2)
    async with faulty_client(gate, config) as fs:
        await fs.write_many([(f"/{number}", b"") for number in range(6)])
        gate.on = True
        removing = asyncio.create_task(fs.delete_many([f"/{number}" for number in range(6)]))
        await gate.held.wait()
    with pytest.raises(OutcomeUnknownError, match="closed"):
        await removing
    assert await left_pending(config) == set()


@pytest.mark.parametrize("kind", [KeyError, asyncio.CancelledError])
async def test_an_exception_shortens_the_wait(
    kind: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("s3k_async.client.HURRY", 0)
    config = await made(patient(3600))
    gate = Gate("blobs", "put")
    async with faulty_client(gate, config) as client:
        gate.on = True
        writing = asyncio.create_task(client.write("/f", b"data"))
        await gate.held.wait()
        await client.__aexit__(kind, kind(), None)
        with pytest.raises(ClosedClientError):
            await writing


async def test_a_cancellation_cuts_the_wait_short_and_is_raised() -> None:
    config = await made(patient(3600))
    gate = Gate("blobs", "put")
    async with faulty_client(gate, config) as client:
        gate.on = True
        writing = asyncio.create_task(client.write("/f", b"data"))
        await gate.held.wait()
        closing = asyncio.create_task(client.close())
        await turns()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        with pytest.raises(ClosedClientError):
            await writing
        assert client.closed


async def test_listings_that_are_left_half_way_end() -> None:
    config = await made(patient(30))
    async with S3kClient(config=config) as fs:
        await fs.write_many([(f"/{number % 9}/{number}", b"1") for number in range(300)])
        listings = [
            fs.list("/", recursive=True),
            fs.walk("/"),
            fs.glob("/**"),
            fs.find("/"),
            fs.physical_paths("/"),
        ]
        for listing in listings:
            await anext(listing)
        pages = pages_of(fs.walk("/"))
        await anext(pages)
    with pytest.raises(ClosedClientError):
        await anext(pages)


async def test_open_files_and_transactions_are_dropped() -> None:
    config = await made(patient(30))
    async with S3kClient(config=config) as fs:
        await fs.write("/old", b"old")
        writer = await fs.open("/new", "wb")
        await writer.write(bytes(1000))
        reader = await fs.open("/old")
        transaction = fs.transaction()
        await transaction.write("/t", bytes(1000))
        staged = await fs.stage()
        await staged.write(b"data")
    for use in (writer.close, staged.close, lambda: reader.read(1)):
        with pytest.raises(ClosedClientError):
            await use()
    with pytest.raises(ClosedClientError):
        await transaction.commit()
    assert await bytes_left(config) == 1
    async with S3kClient(config=config) as fs:
        assert {status.path async for status in fs.list("/", include_uncommitted=True)} == {"/old"}


async def test_a_transaction_in_a_task_of_its_own_does_not_end_as_if_it_had_happened() -> None:
    config = await made(patient(30))
    closed = asyncio.Event()

    async def change(fs: S3kClient) -> None:
        async with fs.transaction() as transaction:
            await transaction.write("/t", bytes(1000))
            await closed.wait()

    async with S3kClient(config=config) as fs:
        changing = asyncio.create_task(change(fs))
        await turns()
    closed.set()
    with pytest.raises(ClosedClientError, match="nothing"):
        await changing
    assert await bytes_left(config) == 0


async def test_a_writer_in_a_task_of_its_own_is_told_and_clears_away() -> None:
    config = await made(patient(30))
    gate = Gate("blobs", "put_part")

    async def write(fs: S3kClient) -> None:
        async with fs.open("/f", "wb") as writer:
            for _ in range(10):
                await writer.write(bytes(400))

    async with faulty_client(gate, config) as fs:
        gate.on = True
        writing = asyncio.create_task(write(fs))
        await gate.held.wait()
        opening = asyncio.create_task(gate.open_when_closing(fs))
    await opening
    with pytest.raises(ClosedClientError):
        await writing
    async with S3kClient(config=config) as fs:
        assert [status async for status in fs.list("/", include_uncommitted=True)] == []
    assert await bytes_left(config) == 0


async def test_the_blocking_client_waits_for_other_threads() -> None:
    config = await made(memory_config())
    client = S3kSyncClient(config=config)
    client.open_volume()
    results: list[object] = []
    begun = threading.Barrier(11)

    def write(number: int) -> None:
        begun.wait()
        try:
            results.append(client.write(f"/{number}", b"").path)
        except ClosedClientError:
            results.append(None)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    begun.wait()
    await asyncio.to_thread(client.close)
    for thread in threads:
        thread.join()
    async with S3kClient(config=config) as fs:
        assert {status.path async for status in fs.list("/")} == {path for path in results if path}
    assert await left_pending(config) == set()
