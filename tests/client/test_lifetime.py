"""When and where a client may be used, and what is left of it in a pickle."""

from __future__ import annotations

import asyncio
import gc
import pickle
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from anyio import CapacityLimiter
from anyio.lowlevel import RunVar

from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.client import S3kClient
from s3k_async.config import AwsConfig, DynamoTable, S3Bucket, Secret, VolumeConfig
from s3k_async.errors import (
    ClosedClientError,
    ConfigError,
    ForkedClientError,
    ReadOnlyVolumeError,
    UnsupportedError,
    VolumeNotFoundError,
    WrongLoopError,
)
from s3k_async.files.open_files import FileReader, FileWriter
from s3k_async.volumes import init_volume
from tests.client.rig import memory_config
from tests.engines.volumes import fresh_name, volume_backends
from tests.support import fork_and_run

backends = volume_backends("memory", "embedded")


async def drained(stream: AsyncIterator[object]) -> None:
    async for _ in stream:
        pass


async def written_together(fs: S3kClient) -> None:
    async with fs.transaction() as tx:
        await tx.write("/f", b"")


async def staged(fs: S3kClient) -> None:
    async with fs.stage() as file:
        await file.write(b"")


async def opened(fs: S3kClient, mode: str) -> None:
    await fs.open("/f", mode)


VERBS: dict[str, Callable[[S3kClient], Awaitable[object]]] = {
    "stat": lambda fs: fs.stat("/f"),
    "exists": lambda fs: fs.exists("/f"),
    "is_file": lambda fs: fs.is_file("/f"),
    "is_dir": lambda fs: fs.is_dir("/f"),
    "list": lambda fs: drained(fs.list("/")),
    "list_batches": lambda fs: drained(fs.list_batches("/")),
    "walk": lambda fs: drained(fs.walk("/")),
    "find": lambda fs: drained(fs.find("/")),
    "glob": lambda fs: drained(fs.glob("/*")),
    "read": lambda fs: fs.read("/f"),
    "read_ranges": lambda fs: fs.read_ranges("/f", [(0, 1)]),
    "write": lambda fs: fs.write("/f", b""),
    "write_many": lambda fs: fs.write_many([("/f", b"")]),
    "stat_many": lambda fs: fs.stat_many(["/f"]),
    "exists_many": lambda fs: fs.exists_many(["/f"]),
    "read_each": lambda fs: fs.read_each(["/f"]),
    "read_many": lambda fs: fs.read_many(["/f"]),
    "open to read": lambda fs: opened(fs, "rb"),
    "open to write": lambda fs: opened(fs, "wb"),
    "append": lambda fs: fs.append("/f", b"1"),
    "write_range": lambda fs: fs.write_range("/f", 0, b"1"),
    "truncate": lambda fs: fs.truncate("/f", 5),
    "set_attributes": lambda fs: fs.set_attributes("/f", mode=1),
    "set_rule": lambda fs: fs.set_rule("/d", expire_after=1),
    "remove_rule": lambda fs: fs.remove_rule("/d"),
    "rules": lambda fs: fs.rules(),
    "run_rules": lambda fs: fs.run_rules(),
    "due_actions": lambda fs: drained(fs.due_actions()),
    "find by metadata": lambda fs: drained(fs.find(metadata="n")),
    "concat": lambda fs: fs.concat("/f", ["/g"]),
    "compact": lambda fs: fs.compact("/f"),
    "makedirs": lambda fs: fs.makedirs("/d"),
    "touch": lambda fs: fs.touch("/f"),
    "rename": lambda fs: fs.rename("/f", "/g"),
    "exchange": lambda fs: fs.exchange("/f", "/g"),
    "rename_many": lambda fs: fs.rename_many([("/f", "/g")]),
    "delete": lambda fs: fs.delete("/f"),
    "delete_many": lambda fs: fs.delete_many(["/f"]),
    "copy": lambda fs: fs.copy("/f", "/g"),
    "copy_to": lambda fs: fs.copy_to(fs, "/f", "/g"),
    "upload": lambda fs: fs.upload(__file__, "/f"),
    "download": lambda fs: fs.download("/f", "/dev/null"),
    "transaction": written_together,
    "content_summary": lambda fs: fs.content_summary("/f"),
    "storage_info": lambda fs: fs.storage_info(),
    "transactions": lambda fs: fs.transactions(),
    "health": lambda fs: fs.health(),
    "checksum": lambda fs: fs.checksum("/f"),
    "physical_path": lambda fs: fs.physical_path("/f"),
    "presign": lambda fs: fs.presign("/f"),
    "physical_paths": lambda fs: drained(fs.physical_paths("/")),
    "stage": staged,
    "discard_staged": lambda fs: fs.discard_staged([]),
    "adopt_many": lambda fs: fs.adopt_many([("/f", "file:///f")]),
    "trash": lambda fs: fs.trash().list(),
    "versions": lambda fs: fs.versions("/f"),
    "undelete": lambda fs: fs.undelete("/f"),
    "restore": lambda fs: fs.restore("/", 0),
}


def test_every_public_verb_is_among_them() -> None:
    no_verbs = {
        "cache_statistics",
        "close",
        "closed",
        "config",
        "count",
        "fill_statistics",
        "name",
        "open_volume",
        "requests",
    }
    named = {name for name in dir(S3kClient) if not name.startswith("_")} - no_verbs
    assert {verb.split()[0] for verb in VERBS} == named


@pytest.mark.parametrize("verb", VERBS)
async def test_a_client_that_was_not_entered(verb: str) -> None:
    client = S3kClient(config=memory_config())
    with pytest.raises(ClosedClientError):
        await VERBS[verb](client)


@pytest.mark.parametrize("verb", VERBS)
async def test_a_closed_client(verb: str) -> None:
    config = memory_config()
    await init_volume(config)
    client = S3kClient(config=config)
    async with client:
        await client.write("/f", b"1")
        assert not client.closed
    assert client.closed
    await client.close()
    with pytest.raises(ClosedClientError):
        await VERBS[verb](client)


@pytest.mark.parametrize("verb", VERBS)
def test_another_event_loop(verb: str) -> None:
    config = memory_config()
    client = S3kClient(config=config)

    async def enter() -> None:
        await init_volume(config)
        await client.open_volume()
        await client.write("/f", b"1")

    async def use() -> None:
        with pytest.raises(WrongLoopError):
            await VERBS[verb](client)

    with asyncio.Runner() as first:
        first.run(enter())
        asyncio.run(use())
        with pytest.raises(WrongLoopError):
            asyncio.run(client.close())
        first.run(client.close())


@pytest.mark.parametrize("verb", VERBS)
async def test_a_forked_child(verb: str) -> None:
    config = memory_config()
    await init_volume(config)

    async def use(client: S3kClient) -> None:
        with pytest.raises(ForkedClientError):
            await VERBS[verb](client)
        await client.close()

    async with S3kClient(config=config) as client:
        await client.write("/f", b"1")
        assert fork_and_run(lambda: in_a_loop_of_its_own(lambda: use(client))) == 0
        assert await client.read("/f") == b"1"


def in_a_loop_of_its_own(work: Callable[[], Awaitable[object]]) -> None:
    """As `asyncio.run`, in a child that was forked inside a running loop."""
    asyncio._set_running_loop(None)

    async def main() -> None:
        await work()

    asyncio.run(main())


async def test_open_files_of_a_closed_client() -> None:
    config = memory_config()
    await init_volume(config)
    async with S3kClient(config=config) as client:
        await client.write("/f", b"1")
        reader: FileReader = await client.open("/f")
        writer: FileWriter = await client.open("/g", "wb")
    for call in (reader.read(), reader.read_at(0, 1), writer.write(b"1"), writer.close()):
        with pytest.raises(ClosedClientError):
            await call
    await reader.close()
    await writer.discard()


async def test_entering_twice() -> None:
    config = memory_config()
    await init_volume(config)
    async with S3kClient(config=config) as client:
        with pytest.raises(UnsupportedError):
            await client.open_volume()
        await client.write("/f", b"1")
    async with client:
        assert await client.read("/f") == b"1"


@backends
async def test_a_client_closes_when_its_body_fails(config: VolumeConfig) -> None:
    client = S3kClient(config=config)
    with pytest.raises(KeyError):
        await fail_inside(client)
    assert client.closed


async def fail_inside(client: S3kClient) -> None:
    async with client:
        raise KeyError


async def test_a_volume_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(VolumeNotFoundError):
        async with S3kClient(f"memory://{fresh_name('none')}"):
            pass
    with pytest.raises(VolumeNotFoundError):
        async with S3kClient(tmp_path / "none"):
            pass


def test_settings_that_contradict_each_other() -> None:
    with pytest.raises(ConfigError):
        S3kClient("memory://x", config=memory_config())
    with pytest.raises(ConfigError):
        S3kClient("memory://x", no_such_setting=1)  # type: ignore[call-arg]


@backends
async def test_the_name_is_that_of_the_volume(config: VolumeConfig) -> None:
    async with S3kClient(config=config) as client:
        assert client.name == config.name
        assert client.config.suffix_count is not None
        assert client.name in repr(client)


SECRET = "wJalrXUtnFEMI-s3cr3t"


def aws_client(kind: type[S3kClient | S3kSyncClient]) -> S3kClient | S3kSyncClient:
    aws = AwsConfig(
        region="eu-west-1",
        access_key_id=Secret("AKIA-s3cr3t"),
        secret_access_key=Secret(SECRET),
        session_token=Secret("token-s3cr3t"),
    )
    config = VolumeConfig("v", DynamoTable("table", aws), S3Bucket("bucket", "prefix/", aws))
    return kind(config=config, session=object())


@pytest.mark.parametrize("kind", [S3kClient, S3kSyncClient])
@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps])
def test_a_pickle_holds_the_configuration_and_no_secret(
    dumps: Callable[[object], bytes], kind: type[S3kClient | S3kSyncClient]
) -> None:
    client = aws_client(kind)
    pickled = dumps(client)
    assert b"s3cr3t" not in pickled
    assert "s3cr3t" not in repr(client) + repr(client.config)
    copied = pickle.loads(pickled)
    assert type(copied) is kind
    config: Any = copied.config
    assert config.table.name == "table"
    assert config.data.aws.region == "eu-west-1"
    assert not config.table.aws.secret_access_key


@backends
@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps])
async def test_a_pickled_open_client_is_entered_anew(
    config: VolumeConfig, dumps: Callable[[object], bytes]
) -> None:
    async with S3kClient(config=config) as client:
        await client.write("/f", b"1")
        copied = pickle.loads(dumps(client))
        assert copied.closed
        async with copied:
            assert await copied.read("/f") == b"1"


async def test_a_volume_that_is_open_for_reading_only() -> None:
    config = memory_config()
    await init_volume(config)
    async with S3kClient(config=config) as client:
        await client.write("/f", b"1")
        client._volume().store.read_only = True
        for verb in ("write", "open to write", "makedirs", "touch", "rename", "delete", "copy"):
            with pytest.raises(ReadOnlyVolumeError):
                await VERBS[verb](client)
        with pytest.raises(ReadOnlyVolumeError):
            await client.delete("/f", recursive=True)
        assert await client.read("/f") == b"1"


@backends
async def test_a_client_that_is_closed_after_listings_were_left_early(config: VolumeConfig) -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    async with S3kClient(config=config) as client:
        for number in range(40):
            await client.write(f"/d{number % 4}/f{number}", b"1")
        for stream in (
            client.list("/", recursive=True),
            client.list_batches("/", recursive=True),
            client.walk("/"),
            client.find("/"),
            client.glob("/**/f*"),
        ):
            async for _ in stream:
                break
    await asyncio.sleep(0)
    gc.collect()
    await asyncio.sleep(0)
    assert complaints == []


def _in_time(is_so: Callable[[], bool]) -> bool:
    """Whether a condition becomes true. Threads may keep objects of their last call for a while."""
    for _ in range(500):
        gc.collect()
        if is_so():
            return True
        time.sleep(0.02)
    return False


def test_an_event_loop_is_freed_after_its_clients(tmp_path: Path) -> None:
    async def write() -> weakref.ref[asyncio.AbstractEventLoop]:
        async with S3kClient(tmp_path) as fs:
            await fs.write("/a", b"1")
        return weakref.ref(asyncio.get_running_loop())

    asyncio.run(init_volume(S3kSyncClient(tmp_path).config))
    found = asyncio.run(write())
    assert _in_time(lambda: found() is None)


async def test_clients_leave_nothing_in_the_event_loop(tmp_path: Path) -> None:
    def kept() -> int:
        return sum(isinstance(each, RunVar | CapacityLimiter) for each in gc.get_objects())

    async def use() -> None:
        async with S3kClient(tmp_path) as fs:
            await fs.write("/a", b"1")
            assert await fs.read("/a") == b"1"

    await init_volume(S3kSyncClient(tmp_path).config)
    await use()
    before = kept()
    for _ in range(5):
        await use()
    # The loop itself has some, which are created on first use.
    assert _in_time(lambda: kept() <= before + 3)
