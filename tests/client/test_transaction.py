"""Transactions of the caller's own: what they do, refuse and leave behind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.client import S3kClient
from s3k_async.errors import (
    ArgumentTypeError,
    ClosedClientError,
    CrossVolumeError,
    InvalidArgumentError,
    InvalidPathError,
    IsDirectoryError,
    NotDirectoryError,
    OutcomeUnknownError,
    PathExistsError,
    PathNotFoundError,
    PermissionDeniedError,
    S3kError,
    ServiceError,
    StreamClosedError,
    UncommittedFileError,
    UnsupportedError,
)
from s3k_async.model import ChangeResult
from s3k_async.testing import FaultPlan
from s3k_async.transaction import Transaction
from s3k_async.volumes import init_volume
from tests.client.rig import faulty_client, memory_config, paths
from tests.client.transacting import (
    CHANGED,
    START,
    both_ways,
    change,
    contents,
    delete,
    fill,
    makedirs,
    move_from,
    move_to,
    problems,
    replace_at,
    stored_bytes,
    transaction_items,
    write,
)
from tests.engines.volumes import volume_backends

pytestmark = pytest.mark.layouts("path", "tree")

backends = volume_backends("memory", "embedded")
everywhere = volume_backends("memory", "embedded", "dynoxide+seaweedfs", "dynoxide+moto")


@everywhere
@both_ways
async def test_all_of_it_happens_at_the_end(fs: S3kClient) -> None:
    await fill(fs)
    before = {path: await fs.stat(path) for path in START}
    async with fs.transaction() as tx:
        await change(tx)
        assert await contents(fs) == START
        assert not tx.closed
        with pytest.raises(UnsupportedError):
            tx.result  # noqa: B018  # asking is what raises
    assert await contents(fs) == CHANGED
    assert tx.result == ChangeResult(5, 4, 3 + 4 + 800 + 3 + 5)
    assert tx.result.requests.of("data", "PutObject") == 2
    assert tx.closed
    assert repr(tx) == "<Transaction of 6 over>"
    assert await fs.transactions() == []
    after = await fs.stat("/d/f")
    assert (after.id, after.version) == (before["/d/f"].id, before["/d/f"].version + 1)
    assert (await fs.stat("/e/k")).id == before["/d/g"].id
    assert (await fs.stat("/o/h")).version == before["/d/h"].version + 1
    assert await problems(fs) == []
    assert [item async for item in transaction_items(fs)] == []


@both_ways
async def test_what_the_body_raises_leaves_everything_as_it_was() -> None:
    config = memory_config()
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        await fill(fs)
        before = await stored_bytes(config)
        tx = fs.transaction()
        files = []

        async def body() -> None:
            async with tx:
                await change(tx)
                files.append(await tx.open("/d/unfinished", "wb"))
                await files[0].write(b"some" * 100)
                assert await stored_bytes(config) > before
                raise KeyError("no")

        with pytest.raises(KeyError):
            await body()
        assert await contents(fs) == START
        assert await stored_bytes(config) == before
        assert files[0].closed
        assert tx.closed
        assert await problems(fs) == []


async def test_nothing_to_do_is_nothing_done() -> None:
    async with faulty_client(FaultPlan()) as fs:
        async with fs.transaction() as tx:
            await tx.delete("/not/there", missing_ok=True)
            await tx.makedirs("/")
        assert tx.result == ChangeResult()
        assert await contents(fs) == {}


async def test_without_a_body() -> None:
    async with faulty_client(FaultPlan()) as fs:
        tx = fs.transaction()
        await tx.write("/f", b"1")
        assert (await tx.commit()).files == 1
        assert await tx.commit() == tx.result == ChangeResult(1, 0, 1)
        await tx.discard()
        assert await fs.read("/f") == b"1"
        given_up = fs.transaction()
        await given_up.write("/f", b"2")
        await given_up.discard()
        with pytest.raises(StreamClosedError):
            await given_up.commit()
        assert await fs.read("/f") == b"1"


@everywhere
@both_ways
async def test_a_directory_is_replaced_with_everything_below_it(fs: S3kClient) -> None:
    for path in ("/d/f", "/d/g", "/d/x/h", "/d/x/y/k", "/d/z/m", "/e/n"):
        await fs.write(path, b"old")
    async with fs.transaction() as tx:
        await tx.replace("/d")
        await tx.write("/d/f", b"new")
        await tx.write("/d/x/new", b"new")
        await tx.makedirs("/d/empty")
        await tx.rename("/e/n", "/d/n")
        await tx.replace("/o/p")
    assert await contents(fs) == {
        "/d": None,
        "/d/empty": None,
        "/d/f": b"new",
        "/d/n": b"old",
        "/d/x": None,
        "/d/x/new": b"new",
        "/e": None,
        "/o": None,
        "/o/p": None,
    }
    assert await fs.transactions() == []
    assert await problems(fs) == []


async def test_what_cannot_be_replaced() -> None:
    async with faulty_client(FaultPlan()) as fs:
        await fs.write("/d/f", b"1")
        tx = fs.transaction()
        with pytest.raises(PermissionDeniedError):
            await tx.replace("/")
        await tx.replace("/d/f")
        with pytest.raises(NotDirectoryError) as caught:
            await tx.commit()
        assert caught.value.path == "/d/f"
        assert await fs.read("/d/f") == b"1"


async def opened(tx: Transaction, path: str) -> None:
    await tx.open(path, "wb")


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ((write, "/d/f"), (write, "/d/f")),
        ((write, "/d/f"), (delete, "/d/f")),
        ((write, "/d/f"), (move_from, "/d/f")),
        ((write, "/d/n"), (move_to, "/d/n")),
        ((write, "/d/n"), (makedirs, "/d/n")),
        ((makedirs, "/d/n"), (write, "/d/n")),
        ((write, "/d/n"), (write, "/d/n/below")),
        ((write, "/n/m"), (write, "/n")),
        ((delete, "/d/f"), (write, "/d/f")),
        ((delete, "/d/f"), (makedirs, "/d/f/x")),
        ((move_from, "/d/f"), (write, "/d/f")),
        ((move_from, "/d/f"), (write, "/e/zz")),
        ((move_to, "/d/n"), (makedirs, "/d/n/x")),
        ((opened, "/d/n"), (write, "/d/n")),
        ((makedirs, "/n/m"), (delete, "/n")),
        ((replace_at, "/d"), (delete, "/d/f")),
        ((replace_at, "/d"), (move_from, "/d/f")),
        ((delete, "/d/f"), (replace_at, "/d")),
        ((move_from, "/d/f"), (replace_at, "/d")),
        ((write, "/d/f"), (replace_at, "/d/f")),
        ((replace_at, "/d"), (write, "/d")),
    ],
)
async def test_two_operations_on_one_path_are_refused(
    first: tuple[Callable[[Transaction, str], Awaitable[None]], str],
    then: tuple[Callable[[Transaction, str], Awaitable[None]], str],
) -> None:
    async with faulty_client(FaultPlan()) as fs:
        await fill(fs)
        tx = fs.transaction()
        await first[0](tx, first[1])
        with pytest.raises(InvalidArgumentError) as raised:
            await then[0](tx, then[1])
        assert raised.value.path is not None
        await tx.discard()
        assert await contents(fs) == START


async def test_what_is_below_a_directory_that_it_makes_is_fine() -> None:
    async with faulty_client(FaultPlan()) as fs:
        await fill(fs)
        async with fs.transaction() as tx:
            await tx.rename("/d/f", "/n/m/f")
            await tx.makedirs("/n/m")
            await tx.makedirs("/n/m")
            await tx.makedirs("/n")
            await tx.write("/n/m/x", b"x")
            await tx.makedirs("/n/m/below")
        assert {"/n", "/n/m", "/n/m/f", "/n/m/x", "/n/m/below"} <= await paths(fs)
        assert tx.result.directories == 3


async def test_a_path_that_could_not_be_written_may_be_tried_again() -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        async with fs.transaction() as tx:
            faults.fail_when(
                lambda call: call.method == "put", ServiceError("no", service_code="No")
            )
            with pytest.raises(ServiceError):
                await tx.write("/f", b"1")
            await tx.write("/f", b"2")
            async with tx.open("/g", "wb") as file:
                await file.write(b"never")
                await file.discard()
            async with tx.open("/g", "wb") as file:
                await file.write(b"3")
        assert await contents(fs) == {"/f": b"2", "/g": b"3"}


async def test_a_file_whose_upload_is_unknown_does_not_hold_up_the_rest() -> None:
    """Nobody else could publish its bytes: to the transaction it has failed."""
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        async with fs.transaction() as tx:
            file = await tx.open("/f", "wb")
            await file.write(b"x")
            faults.fail_when(lambda call: call.method == "put", OutcomeUnknownError("lost"))
            with pytest.raises(OutcomeUnknownError):
                await file.close()
            await tx.write("/f", b"again")
        assert await contents(fs) == {"/f": b"again"}


async def test_after_its_end_every_verb_is_refused() -> None:
    async with faulty_client(FaultPlan()) as fs:
        async with fs.transaction() as tx:
            late = tx.open("/late", "wb")
        for call in (
            lambda: tx.write("/f", b""),
            lambda: tx.rename("/f", "/g"),
            lambda: tx.delete("/f"),
            lambda: tx.makedirs("/f"),
            tx.__aenter__,
            late.__aenter__,
        ):
            with pytest.raises(StreamClosedError):
                await call()
        with pytest.raises(StreamClosedError):
            tx.open("/f", "wb")
        assert await contents(fs) == {}


async def test_bad_input_is_named_and_changes_nothing() -> None:
    async with faulty_client(FaultPlan()) as fs:
        await fill(fs)
        reserved = await fs.open("/d/reserved", "wb")
        tx = fs.transaction()
        long = "/" + "n" * 1025
        for error, call in (
            (ArgumentTypeError, lambda: tx.write("/f", "text")),  # type: ignore[arg-type]  # refused
            (ArgumentTypeError, lambda: tx.write(7, b"")),  # type: ignore[arg-type]  # refused
            (InvalidPathError, lambda: tx.write(long, b"")),
            (InvalidPathError, lambda: tx.makedirs(long)),
            (InvalidPathError, lambda: tx.rename("/d/f", long)),
            (CrossVolumeError, lambda: tx.write("s3k://another/f", b"")),
            (IsDirectoryError, lambda: tx.write("/d", b"")),
            (IsDirectoryError, lambda: tx.write("/", b"")),
            (PathExistsError, lambda: tx.write("/d/f", b"", overwrite=False)),
            (PathExistsError, lambda: tx.open("/d/f", "xb").__aenter__()),
            (PathExistsError, lambda: tx.open("/d/reserved", "xb").__aenter__()),
            (PathExistsError, lambda: tx.rename("/d/f", "/")),
            (PathExistsError, lambda: tx.rename("/d/f", "/d")),
            (NotDirectoryError, lambda: tx.rename("/d/f", "/d/f/x")),
            (PathNotFoundError, lambda: tx.rename("/nowhere", "/d/x")),
            (PathNotFoundError, lambda: tx.delete("/nowhere")),
            (UncommittedFileError, lambda: tx.rename("/d/reserved", "/d/x")),
            (PermissionDeniedError, lambda: tx.delete("/", recursive=True)),
        ):
            with pytest.raises(error):
                await call()
        for mode in ("rb", "ab", "w", "nonsense"):
            with pytest.raises(S3kError):
                tx.open("/f", mode)
        assert (await tx.commit()) == ChangeResult()
        await reserved.discard()
        assert await contents(fs) == START


@both_ways
async def test_a_file_that_is_not_closed_refuses_the_end() -> None:
    async with faulty_client(FaultPlan()) as fs:
        tx = fs.transaction()
        await tx.write("/f", b"1")
        file = await tx.open("/g", "wb")
        await file.write(b"half")
        with pytest.raises(InvalidArgumentError) as raised:
            async with tx:
                pass
        assert raised.value.path == "/g"
        assert await contents(fs) == {}
        assert file.closed


async def test_closing_the_client_ends_what_is_being_written() -> None:
    config = memory_config()
    await init_volume(config)
    client = S3kClient(config=config)
    await client.open_volume()
    tx = client.transaction()
    file = await tx.open("/g", "wb")
    await client.close()
    with pytest.raises(ClosedClientError):
        await file.write(b"more")
    with pytest.raises(ClosedClientError):
        await tx.write("/f", b"")
    with pytest.raises(ClosedClientError):
        client.transaction()


@backends
def test_the_blocking_client_has_them_too(sync_fs: S3kSyncClient) -> None:
    fs = sync_fs
    fs.write("/d/f", b"one")
    fs.write("/d/g", b"two")
    with fs.transaction() as tx:
        tx.write("/d/f", b"new")
        with tx.open("/n/x") as file:
            file.write(b"deep")
        tx.rename("/d/g", "/n/g")
        tx.makedirs("/n/m")
        assert not fs.exists("/n")
        assert repr(tx) == "<SyncTransaction of 4 open>"
    assert tx.closed
    assert tx.result == ChangeResult(3, 2, 10)
    assert fs.read_many(["/d/f", "/n/x", "/n/g"]) == [b"new", b"deep", b"two"]

    def body() -> None:
        with fs.transaction() as tx:
            tx.delete("/d/f")
            tx.write("/d/h", b"never")
            raise KeyError("no")

    with pytest.raises(KeyError):
        body()
    assert {status.path for status in fs.list("/d")} == {"/d/f"}
    tx = fs.transaction()
    tx.delete("/d/f")
    assert tx.commit() == ChangeResult(1, 0, 3)
    given_up = fs.transaction()
    given_up.write("/d/z", b"")
    given_up.discard()
    with pytest.raises(StreamClosedError):
        given_up.write("/d/z", b"")
    assert list(fs.list("/d")) == []
