"""Redis: URLs and secrets, errors, the server's settings, lost connections and killed servers."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from s3k_async import S3kClient
from s3k_async._core.concurrency import gather
from s3k_async.backends.aws.access import AwsConfig, Secret
from s3k_async.backends.location import OpenContext, TableStore
from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.backends.ports.items import ABSENT, Condition, Delete, Key, Put
from s3k_async.backends.redis import RedisBlobs, RedisServer, RedisTable
from s3k_async.backends.registry import BLOBS, TABLES
from s3k_async.cli import main
from s3k_async.errors import (
    ClosedClientError,
    ConfigError,
    CredentialsError,
    NoSpaceError,
    NotAVolumeError,
    PermissionDeniedError,
    RequestTimeoutError,
    ResponseLostError,
    S3kError,
    ServiceError,
    ThrottledError,
    UnreachableError,
    UnsupportedError,
)
from tests.backends.aws.doors import Authority, tls_door
from tests.engines import redis_server as engine
from tests.engines.process import Engine, free_ports
from tests.engines.volumes import fresh_name

Start = Callable[..., "Server"]


class Server(engine.Server):
    """A server of one test, and how it is reached by URLs."""

    def url(self, user: str = f"default:{engine.PASSWORD}", options: str = "") -> str:
        return f"redis://{user}@127.0.0.1:{self.port}/0/v{options}"

    def table(self, *url: str, **service: float) -> TableStore:
        location = TABLES.location(self.url(*url), AwsConfig(**service))  # type: ignore[arg-type]
        return location.open(OpenContext())

    def blobs(self) -> BlobStore:
        return BLOBS.location(self.url(), AwsConfig()).open(OpenContext())

    async def command(self, *words: str) -> bytes:
        """The answer to a command by another client."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"AUTH {engine.PASSWORD}\r\n{' '.join(words)}\r\n".encode())
        assert await reader.readline() == b"+OK\r\n"
        answer = await reader.readline()
        writer.close()
        await writer.wait_closed()
        return answer


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    if engine.missing():
        from tests.conftest import unavailable

        unavailable(str(engine.missing()))
    servers: list[Server] = []

    def start(*options: str, durable: tuple[str, ...] = engine.DURABLE) -> Server:
        directory = tmp_path / f"server-{len(servers)}"
        directory.mkdir()
        servers.append(Server(directory, *options, durable=durable))
        return servers[-1]

    yield start
    for each in servers:
        each.process.stop()


def put(name: str) -> Put:
    return Put({"path": "p", "children": name, "ver": 1}, ABSENT)


# URLs


@pytest.mark.parametrize(
    ("url", "server", "prefix"),
    [
        ("redis://h", RedisServer("h"), ""),
        ("redis://h/3", RedisServer("h", database=3), ""),
        ("redis://h:1/3/a/b/", RedisServer("h", 1, 3), "a/b"),
        ("redis://h/0?prefix=a/b", RedisServer("h"), "a/b"),
        ("rediss://[::1]:7/0", RedisServer("::1", 7, tls=True), ""),
        ("redis://u@h/0", RedisServer("h", user="u"), ""),
        ("redis://:p@h/0", RedisServer("h", user="default"), ""),
        ("redis://h/0?durability=relaxed", RedisServer("h", relaxed=True), ""),
    ],
)
def test_urls(url: str, server: RedisServer, prefix: str) -> None:
    for registry in (TABLES, BLOBS):
        location = registry.location(url, AwsConfig())
        assert isinstance(location, RedisTable | RedisBlobs)
        assert (location.server, location.prefix) == (server, prefix)


@pytest.mark.parametrize(
    "end",
    ["/x", "/0?a=b", "/0#f", "/0/a?prefix=b", "/0?durability=none", ":port/0", "/0?prefix"],
)
def test_a_wrong_url_is_refused_without_its_password(end: str) -> None:
    with pytest.raises(ConfigError) as raised:
        TABLES.location(f"redis://u:hidden@h{end}", AwsConfig())
    assert "hidden" not in f"{raised.value} {raised.value.__cause__}"


def test_the_password_is_in_no_text_and_no_pickle() -> None:
    for registry in (TABLES, BLOBS):
        location = registry.location("redis://u:hidden@h/0/v", AwsConfig())
        assert isinstance(location, RedisTable | RedisBlobs)
        texts = [repr(location), location.label, repr(location.open(OpenContext()))]
        assert "hidden" not in " ".join(texts)
        data = pickle.dumps(location)
        assert b"hidden" not in data
        arrived = pickle.loads(data)
        assert location.server.password(location.aws) == "hidden"
        assert arrived.server.password(arrived.aws) is None
        again = arrived.with_service(
            AwsConfig(access_key_id=Secret("u"), secret_access_key=Secret("hidden"))
        )
        assert again.server.password(again.aws) == "hidden"
        assert location.with_service(AwsConfig()) == location


def test_credentials_of_another_service_are_not_sent() -> None:
    aws = AwsConfig(access_key_id=Secret("AKIA"), secret_access_key=Secret("of aws"))
    for url in ("redis://h/0", "redis://u@h/0"):
        location = TABLES.location(url, aws)
        assert isinstance(location, RedisTable)
        assert location.server.password(location.aws) is None


def test_a_text_is_parsed_to_the_same_place() -> None:
    for url in ("redis://h/0", "redis://h/1/a b/c", "rediss://[::1]:7/0"):
        location = BLOBS.location(url, AwsConfig())
        again = BLOBS.location(location.text(None), AwsConfig())
        assert again.place == location.place
        assert location.text(None).endswith("/")
        assert location.below("log").text(None) == f"{location.text(None)}log/"


# Errors


async def test_no_server() -> None:
    (port,) = free_ports(1)
    table = TABLES.location(f"redis://127.0.0.1:{port}/0", AwsConfig()).open(OpenContext())
    with pytest.raises(UnreachableError):
        await table.create()
    await table.close()
    with pytest.raises(ClosedClientError):
        await table.exists()


async def test_wrong_or_missing_credentials(start: Start) -> None:
    server = start()
    for user in ("default:wrong", "nobody:x", "somebody"):
        table = server.table(user)
        with pytest.raises(CredentialsError) as raised:
            await table.create()
        assert "wrong" not in raised.value.message.replace("WRONGPASS", "")
        await table.close()
    table = TABLES.location(f"redis://127.0.0.1:{server.port}/0", AwsConfig()).open(OpenContext())
    with pytest.raises(CredentialsError):
        await table.create()
    await table.close()


async def test_a_user_who_may_not_write_or_read_settings(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    server = start()
    await server.command(
        "ACL", "SETUSER", "reader", "on", ">pw", "~*", "+@read", "+eval", "+evalsha"
    )
    await server.command("ACL", "SETUSER", "reader", "+select", "+time")
    owner = server.table()
    await owner.create()
    await owner.write(put("a"))
    with caplog.at_level(logging.WARNING):
        table = server.table("reader:pw")
        assert await table.get(Key("p", "a"))
    assert "durability is unknown" in caplog.text
    with pytest.raises(PermissionDeniedError):
        await table.write(put("b"))
    await table.close()
    await owner.close()


async def test_a_full_server_refuses_writes_and_serves_the_rest(start: Start) -> None:
    server = start()
    table = server.table()
    await table.create()
    await table.write(put("a"))
    await server.command("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(NoSpaceError):
        await table.write(put("b"))
    with pytest.raises(NoSpaceError):
        await table.transact([put("b"), put("c")], "token")
    assert await table.get(Key("p", "a"))
    await table.write(Delete(Key("p", "a"), Condition()))
    await server.command("CONFIG", "SET", "maxmemory", "0")
    assert await table.get(Key("p", "b")) is None
    await table.transact([put("b"), put("c")], "token")
    await table.close()


async def test_a_replica_refuses_writes(start: Start) -> None:
    server = start()
    table = server.table()
    await table.create()
    (unused,) = free_ports(1)
    await server.command("REPLICAOF", "127.0.0.1", str(unused))
    with pytest.raises(ServiceError) as raised:
        await table.write(put("a"))
    assert raised.value.service_code == "READONLY"
    await server.command("CONFIG", "SET", "replica-serve-stale-data", "no")
    with pytest.raises(UnreachableError):
        await table.get(Key("p", "a"))
    await table.close()


async def test_a_server_that_cannot_save(start: Start) -> None:
    server = start()
    table = server.table()
    await table.create()
    assert await server.command("CONFIG", "SET", "save", '"3600 1"') == b"+OK\r\n"
    (server.directory / "dump.rdb").mkdir()
    await server.command("BGSAVE")

    async def write_until_refused() -> None:
        for _ in range(600):
            await table.write(put(fresh_name("x")))
            await asyncio.sleep(0.05)

    with pytest.raises(ServiceError) as raised:
        await write_until_refused()
    assert raised.value.service_code == "MISCONF"
    await table.close()


async def test_a_stopped_server_is_a_timeout_for_reads_and_a_lost_response_for_writes(
    start: Start,
) -> None:
    server = start()
    table = server.table(f"default:{engine.PASSWORD}", "", read_timeout=0.3)
    await table.create()
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        with pytest.raises(RequestTimeoutError):
            await table.get(Key("p", "a"))
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    assert await table.get(Key("p", "a")) is None
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        with pytest.raises(ResponseLostError):
            await table.write(put("a"))
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    await table.close()


async def test_too_many_clients(start: Start) -> None:
    server = start()
    await server.command("CONFIG", "SET", "maxclients", "1")
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(f"AUTH {engine.PASSWORD}\r\n".encode())
    await reader.readline()
    table = server.table()
    with pytest.raises((ThrottledError, UnreachableError)):
        await table.create()
    await table.close()
    writer.close()
    await writer.wait_closed()


async def test_a_table_of_another_format(start: Start) -> None:
    server = start()
    table = server.table()
    await table.create()
    await server.command("HSET", "s3k:{v}:table:table", "format", "2")
    for call in (table.create, table.exists):
        with pytest.raises(NotAVolumeError, match="format 2"):
            await call()
    await table.close()


async def test_scripts_that_the_server_forgot_are_sent_again(start: Start) -> None:
    server = start()
    table = server.table()
    await table.create()
    await table.write(put("a"))
    await server.command("SCRIPT", "FLUSH")
    await table.write(put("b"))
    assert len((await table.query("p")).items) == 2
    await table.close()


async def test_tls(start: Start, tmp_path: Path) -> None:
    server, authority = start(), Authority.new(tmp_path)
    async with tls_door(authority.server("127.0.0.1"), server.port) as port:
        url = f"rediss://default:{engine.PASSWORD}@127.0.0.1:{port}/0/v"
        trusting = AwsConfig(ca_bundle=str(authority.bundle))
        for service in (trusting, AwsConfig(verify_tls=False)):
            table = TABLES.location(url, service).open(OpenContext())
            await table.create()
            assert await table.exists()
            await table.close()
        table = TABLES.location(url, AwsConfig()).open(OpenContext())
        with pytest.raises(UnreachableError, match="certificate"):
            await table.exists()
        await table.close()
        plain = TABLES.location(url.replace("rediss", "redis"), trusting).open(OpenContext())
        with pytest.raises(S3kError):
            await plain.exists()
        await plain.close()


async def test_without_redis_py_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    table = TABLES.location("redis://127.0.0.1/0", AwsConfig()).open(OpenContext())
    with pytest.raises(ConfigError, match=r"pip install 's3k-async\[redis\]'"):
        await table.exists()


def test_a_location_is_opened_without_the_import_of_redis_py() -> None:
    code = (
        "import sys\nfrom s3k_async.backends.registry import TABLES, BLOBS\n"
        "from s3k_async.backends.aws.access import AwsConfig\n"
        "TABLES.location('redis://h/0', AwsConfig())\n"
        "BLOBS.location('redis://h/0', AwsConfig())\n"
        "sys.exit('redis' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Settings of the server


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--appendonly", "no"), "appendonly yes"),
        (("--appendonly", "yes", "--appendfsync", "everysec"), "appendfsync always"),
        (
            (*engine.DURABLE, "--no-appendfsync-on-rewrite", "yes"),
            "no-appendfsync-on-rewrite no",
        ),
    ],
)
async def test_a_server_that_may_lose_writes_is_refused_unless_that_is_accepted(
    start: Start, options: tuple[str, ...], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = start(durable=options)
    table = server.table()
    with pytest.raises(ConfigError, match=message):
        await table.create()
    await table.close()
    table = server.table(f"default:{engine.PASSWORD}", "?durability=relaxed")
    with caplog.at_level(logging.WARNING):
        await table.create()
        await table.write(put("a"))
    assert caplog.text.count("may lose acknowledged writes") == 1
    await table.close()


async def test_a_server_that_evicts_is_refused_always(start: Start) -> None:
    server = start("--maxmemory-policy", "volatile-ttl")
    for options in ("", "?durability=relaxed"):
        table = server.table(f"default:{engine.PASSWORD}", options)
        with pytest.raises(ConfigError, match="noeviction"):
            await table.create()
        await table.close()


async def test_a_cluster_is_refused(start: Start) -> None:
    # Its default is the port and 10,000, which may be no port.
    (bus,) = free_ports(1)
    table = start("--cluster-enabled", "yes", "--cluster-port", str(bus)).table()
    with pytest.raises(UnsupportedError, match="Cluster"):
        await table.create()
    await table.close()


# Death


async def test_what_a_killed_server_acknowledged_is_there(start: Start) -> None:
    server = start()
    table, blobs = server.table(), server.blobs()
    await table.create()
    await blobs.create()
    acknowledged: list[str] = []
    enough = asyncio.Event()

    async def write(worker: int) -> None:
        for number in range(10_000):
            name = f"{worker}-{number}"
            try:
                await table.write(put(name))
                await blobs.put(name, name.encode() * 1000)
            except (ResponseLostError, UnreachableError):
                return
            acknowledged.append(name)
            if len(acknowledged) == 100:
                enough.set()

    async def kill(_: int) -> None:
        await enough.wait()
        server.kill()

    async def each(number: int) -> None:
        await (write(number) if number else kill(0))

    await gather(each, range(9), limit=9)
    assert len(acknowledged) >= 100
    server.restart()
    for name in acknowledged:
        assert await table.get(Key("p", name)), name
        assert await blobs.get(name) == name.encode() * 1000
    await table.write(put("after"))
    await table.close()
    await blobs.close()


async def test_a_large_put_that_died_is_an_unfinished_upload(start: Start) -> None:
    server = start()
    blobs = server.blobs()
    await blobs.create()
    await blobs.put("large", b"old")
    task = asyncio.ensure_future(blobs.put("large", bytes(40 << 20)))
    for _ in range(10_000):
        if [each async for each in blobs.list_uploads()]:
            break
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await blobs.get("large") == b"old"
    for each in [each async for each in blobs.list_uploads()]:
        await blobs.abort_upload(each)
    assert [each async for each in blobs.list_uploads()] == []
    content = os.urandom((9 << 20) + 5)
    await blobs.put("large", content)
    for first, last in ((0, None), ((4 << 20) - 1, (8 << 20) + 1), (len(content) - 3, None)):
        assert await blobs.get("large", first, last) == content[first:last]
    await blobs.copy(blobs, "large", "copy")
    assert await blobs.get("copy") == content
    await blobs.delete_many(["large", "copy"])
    # Nothing but the mark of the place is left.
    assert await server.command("DBSIZE") == b":2\r\n"
    await blobs.close()


async def test_a_fork_has_connections_of_its_own(start: Start) -> None:
    server = start()
    table = server.table()
    await table.create()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            asyncio.events._set_running_loop(None)
            code = 0 if asyncio.run(table.exists()) else 2
        finally:
            os._exit(code)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert await table.exists()
    await table.close()


# Volumes


def test_a_volume_by_the_command_line(
    redis_server: Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    address = redis_server.endpoint.replace("//", f"//default:{engine.PASSWORD}@")
    name = fresh_name("volume")
    places = ["--table", f"{address}/3/{name}", "--data-location", f"{address}/4/{name}"]
    (tmp_path / "local").write_bytes(b"content")

    def s3k(*arguments: str) -> str:
        code = main(arguments)
        shown = capfd.readouterr()
        assert code == 0, shown
        assert engine.PASSWORD not in shown.out + shown.err
        return shown.out

    s3k("init", f"s3k://{name}", *places)
    s3k("put", str(tmp_path / "local"), f"s3k://{name}/file", *places)
    assert "file" in s3k("ls", f"s3k://{name}/", *places)
    s3k("get", f"s3k://{name}/file", str(tmp_path / "back"), *places)
    assert (tmp_path / "back").read_bytes() == b"content"
    s3k("fsck", f"s3k://{name}", *places)


async def test_a_volume_by_the_client(redis_server: Engine) -> None:
    from s3k_async.settings import resolve
    from s3k_async.volumes import destroy_volume, init_volume

    address = redis_server.endpoint.replace("//", f"//default:{engine.PASSWORD}@")
    name = fresh_name("volume")
    config = resolve(table=f"{address}/3/{name}", data_location=f"{address}/4/{name}")
    record = await init_volume(config)
    assert record.data == f"{redis_server.endpoint}/4/{name}/"
    async with S3kClient(config=config) as fs:
        await fs.write("/a/file", b"text" * 3_000_000)
        await fs.rename("/a", "/b")
        assert await fs.read("/b/file") == b"text" * 3_000_000
    assert await destroy_volume(replace(config), force=True) == 0


async def test_every_error_is_one_of_the_package(start: Start) -> None:
    server = start()
    table = server.table()
    await table.create()
    await server.command("SET", "s3k:{v}:table:order", "text")
    with pytest.raises(S3kError) as raised:
        await table.query("p")
    assert isinstance(raised.value, ServiceError)
    assert raised.value.service_code == "WRONGTYPE"
    await table.close()


async def test_cancelled_requests_give_their_connection_back(start: Start) -> None:
    """Also those that are cancelled again while others wait for the connection."""
    server = start()
    table = server.table(max_connections=1)
    await table.create()
    for steps in range(30):
        tasks = [asyncio.create_task(table.get(Key("p", str(each)))) for each in range(4)]
        for _ in range(steps):
            await asyncio.sleep(0)
        while not all(task.done() for task in tasks):
            for task in tasks:
                task.cancel()
            await asyncio.sleep(0)
        await asyncio.gather(*tasks, return_exceptions=True)
        async with asyncio.timeout(10):
            assert await table.get(Key("p", "other")) is None, steps
    await table.close()
