"""A table that may do little (ExtendDB limits it as provisioned): everything finishes, and finishes
right."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import pytest

from s3k_async._core.concurrency import AdaptiveLimit, gather, run_all
from s3k_async._core.retry import Retries, RetryPolicy
from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.dynamodb.dynamodb_wire import WireItems
from s3k_async.backends.ports.items import ABSENT, Condition, Delete, ItemPage, Key, Put
from s3k_async.backends.retrying.retrying_items import RetryingItems
from s3k_async.client import S3kClient
from s3k_async.config import DynamoTable, LocalDirectory, Secret, Tuning, VolumeConfig
from s3k_async.errors import CredentialsError
from s3k_async.volumes import init_volume
from tests.engines.process import Engine
from tests.engines.volumes import closing_client, fresh_table
from tests.proxy import Answer, FaultProxy, Rewrite

MANY = 40
PATIENT = Retries.alike(RetryPolicy(attempts=40, cap=1.0))
"""Asks so often that no test depends on the luck of one request."""


@dataclass
class Busy:
    """A table behind a proxy that counts how often the engine refused for the load."""

    table: DynamoTable
    refused: int = 0

    def watch(self, answer: Answer) -> Answer:
        self.refused += b"ProvisionedThroughputExceeded" in answer.body
        return answer


@pytest.fixture(params=[15])
async def busy(extenddb: Engine, request: pytest.FixtureRequest) -> AsyncIterator[Busy]:
    """Its parameter is how many units a second the table has, for reads and for writes."""
    async with FaultProxy(extenddb.endpoint) as proxy:
        with fresh_table(extenddb) as table, closing_client(extenddb, "dynamodb") as client:
            client.create_table(
                TableName=table.name,
                KeySchema=[
                    {"AttributeName": "path", "KeyType": "HASH"},
                    {"AttributeName": "children", "KeyType": "RANGE"},
                ],
                AttributeDefinitions=[
                    {"AttributeName": name, "AttributeType": "S"} for name in ("path", "children")
                ],
                ProvisionedThroughput={
                    "ReadCapacityUnits": request.param,
                    "WriteCapacityUnits": request.param,
                },
            )
            client.get_waiter("table_exists").wait(TableName=table.name, WaiterConfig={"Delay": 1})
            made = Busy(replace(table, aws=replace(table.aws, endpoint=proxy.url)))
            proxy.rule(Rewrite(made.watch))
            yield made


@pytest.fixture
async def items(busy: Busy) -> AsyncIterator[RetryingItems]:
    store = WireItems(busy.table.name, busy.table.aws)
    yield RetryingItems(store, PATIENT, SYSTEM, AdaptiveLimit(16))
    await store.close()


def name(number: int) -> str:
    return f"n{number:03}"


def put(number: int) -> Put:
    return Put({"path": "p", "children": name(number), "op": f"op {number}", "ver": 1}, ABSENT)


async def all_names(fetch: Callable[[str | None], Awaitable[ItemPage]]) -> list[str]:
    found: list[str] = []
    cursor = None
    while True:
        page = await fetch(cursor)
        found += [str(item["children"]) for item in page.items]
        cursor = page.next
        if cursor is None:
            return found


async def refused(busy: Busy, work: Callable[[], Awaitable[None]]) -> None:
    """Repeat work until the engine has refused some of it: a slow machine may stay below the
    table's units for a while."""
    busy.refused = 0
    for _ in range(50):
        await work()
        if busy.refused:
            return
    raise AssertionError("the engine refused nothing")


async def test_the_port(busy: Busy, items: RetryingItems) -> None:
    """Single writes and reads, pages, scans, batches and transactions, each above what the table
    may do."""
    await gather(lambda number: items.write(put(number)), range(MANY), limit=MANY)
    assert busy.refused > 0
    expected = [name(number) for number in range(MANY)]

    async def query() -> None:
        assert await all_names(lambda cursor: items.query("p", cursor=cursor, limit=2)) == expected

    async def part(segment: int) -> list[str]:
        return await all_names(lambda cursor: items.scan(segment, 3, cursor=cursor, limit=2))

    async def scan() -> None:
        assert sorted(chain.from_iterable(await gather(part, range(3), limit=3))) == expected

    async def get() -> None:
        found = await gather(
            lambda number: items.get(Key("p", name(number))), range(MANY), limit=MANY
        )
        assert found == [put(number).item for number in range(MANY)]

    await refused(busy, lambda: run_all(lambda _: query(), range(4), limit=4))
    await refused(busy, scan)
    await refused(busy, get)

    keys = [Key("p", name(number)) for number in range(MANY + 50)]
    assert await items.get_many(keys) == {
        key: put(number).item for number, key in enumerate(keys[:MANY])
    }

    async def move(start: int) -> None:
        for_each = range(start, start + 5)
        gone = [Delete(Key("p", name(number)), Condition(equals={"ver": 1})) for number in for_each]
        made = [Put({**put(number).item, "path": "q"}, ABSENT) for number in for_each]
        await items.transact([*gone, *made], SYSTEM.uuid())

    await gather(move, range(0, MANY, 5), limit=8)
    assert await all_names(lambda cursor: items.query("p", cursor=cursor)) == []
    assert await all_names(lambda cursor: items.query("q", cursor=cursor)) == expected


@pytest.mark.parametrize("busy", [8], indirect=True)
async def test_a_client(busy: Busy, tmp_path: Path) -> None:
    config = VolumeConfig(
        "busy",
        busy.table,
        LocalDirectory(str(tmp_path / "data")),
        suffix_count=3,
        tuning=Tuning(retry=PATIENT),
    )
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        await gather(
            lambda number: fs.write(f"/a/{number % 3}/{name(number)}", b"1"), range(20), limit=20
        )
        assert len([status async for status in fs.list("/a", recursive=True)]) == 20 + 3
        assert (await fs.content_summary("/a")).file_count == 20
        await fs.rename("/a", "/b")
        assert not await fs.exists("/a")
        names = {status.path async for status in fs.list("/b", recursive=True) if status.is_file}
        assert names == {f"/b/{number % 3}/{name(number)}" for number in range(20)}
        assert (await fs.delete("/b", recursive=True)).files == 20
        assert [status async for status in fs.list("/")] == []
    assert busy.refused > 0


async def test_a_wrong_secret(extenddb: Engine, busy: Busy, tmp_path: Path) -> None:
    wrong = replace(busy.table, aws=replace(busy.table.aws, secret_access_key=Secret("another")))
    items = WireItems(wrong.name, wrong.aws)
    for call in (
        items.get(Key("p", "s")),
        items.write(put(1)),
        items.query("p"),
        items.transact([put(1)], "t"),
    ):
        with pytest.raises(CredentialsError):
            await call
    await items.close()
    config = VolumeConfig("busy", wrong, LocalDirectory(str(tmp_path / "data")))
    with pytest.raises(CredentialsError):
        async with S3kClient(config=config):
            pass
