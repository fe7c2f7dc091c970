"""Counts of requests: values, and who counts what."""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator
from contextlib import aclosing

import anyio
import pytest

from s3k_async._core.metering import Count, Meter, RequestCounter, Requests, counting, deferred
from s3k_async.errors import InvalidArgumentError
from s3k_async.model import ChangeResult

SOME = Requests(
    [
        Count("data", "GetObject", 2, 1, 0, 30),
        Count("table", "GetItem", 3),
        Count("log", "PutObject", 1),
    ]
)


def test_counts_come_by_part_and_name() -> None:
    assert [(count.part, count.operation) for count in SOME.counts] == [
        ("table", "GetItem"),
        ("data", "GetObject"),
        ("log", "PutObject"),
    ]
    assert (SOME.total, SOME.retries, SOME.deferred, SOME.bytes) == (6, 1, 0, 30)
    assert SOME.as_dict() == {
        "table": {"GetItem": 3},
        "data": {"GetObject": 2},
        "log": {"PutObject": 1},
    }
    assert SOME.of("table") == SOME.of("table", "GetItem") == SOME.of(operation="GetItem") == 3
    assert SOME.of("table", "PutObject") == 0
    assert SOME.of() == 6


def test_counts_in_words() -> None:
    assert str(SOME) == "table: GetItem 3; data: GetObject 2 (1 sent again); log: PutObject 1"
    assert (
        str(Requests([Count("log", "PutObject", 2000, 1, 2)]))
        == "log: PutObject 2,000 (1 sent again, 2 afterwards)"
    )
    assert str(Requests()) == "none"
    assert repr(SOME) == f"<Requests {SOME}>"


def test_counts_add_up() -> None:
    assert SOME + Requests() == SOME
    assert (SOME + SOME).counts[1] == Count("data", "GetObject", 4, 2, 0, 60)
    assert SOME + SOME - SOME == SOME
    assert not SOME - SOME
    assert bool(SOME)
    with pytest.raises(InvalidArgumentError):
        Requests() - SOME


def test_counts_are_values() -> None:
    assert pickle.loads(pickle.dumps(SOME)) == SOME
    assert len({SOME, Requests(reversed(SOME.counts))}) == 1
    assert Requests() != SOME
    with pytest.raises(AttributeError):
        SOME.total = 1  # type: ignore[misc]


def test_what_a_change_asked_for_is_no_part_of_what_it_did() -> None:
    assert ChangeResult(1, requests=SOME) == ChangeResult(1)


async def test_tasks_count_for_whoever_started_them() -> None:
    client = RequestCounter()
    meter = Meter("table", client)

    async def work(number: int, seen: list[int]) -> None:
        with counting() as counter:
            async with anyio.create_task_group() as tasks:
                for _ in range(number):
                    tasks.start_soon(send)
        seen.append(counter.requests.total - number)

    async def send() -> None:
        await anyio.lowlevel.checkpoint()
        meter.add("GetItem")

    seen: list[int] = []
    with counting() as outer:
        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(work, number, seen)
    assert seen == [0] * 10
    assert outer.requests.total == client.requests.total == 45
    await send()
    assert outer.requests.total == 45
    assert client.requests.total == 46


def test_retries_and_bytes_are_told() -> None:
    meter = Meter("data")
    with counting() as counter:
        meter.add("PutObject", size=10)
        meter.add("PutObject", size=10, retries=1)
        meter.add("GetObject")
        meter.add("GetObject", 0, size=7)
    assert counter.requests.counts == (
        Count("data", "GetObject", 1, 0, 0, 7),
        Count("data", "PutObject", 2, 1, 0, 20),
    )


def test_what_nobody_waits_for_is_told_apart() -> None:
    client = RequestCounter()
    meter = Meter("log", client)
    with counting() as everything, counting(waited=True) as verb:
        meter.add("PutObject")
        with deferred():
            meter.add("PutObject")
    assert verb.requests.counts == (Count("log", "PutObject", 1),)
    assert (
        everything.requests.counts
        == client.requests.counts
        == (Count("log", "PutObject", 2, 0, 1),)
    )


def test_one_client_can_be_counted_alone() -> None:
    ours, theirs = RequestCounter(), RequestCounter()
    with counting(ours) as counter:
        Meter("table", ours).add("GetItem")
        Meter("table", theirs).add("Query")
    assert counter.requests.as_dict() == {"table": {"GetItem": 1}}


async def test_a_generator_that_is_left_leaves_its_count() -> None:
    async def pages() -> AsyncIterator[int]:
        with counting():
            yield 1
            yield 2

    meter = Meter("table")
    with counting() as counter:
        generator = pages()
        async with aclosing(generator):  # type: ignore[type-var]
            await anext(generator)
        meter.add("Query")
    assert counter.requests.total == 1
    meter.add("Query")
    assert counter.requests.total == 1
