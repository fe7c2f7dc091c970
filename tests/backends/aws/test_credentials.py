"""Credentials that run out: renewed ahead of time, once for all who ask, and never in the way while
they are good."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiobotocore.credentials import (
    AioCredentials,
    AioDeferredRefreshableCredentials,
    AioRefreshableCredentials,
)
from botocore.exceptions import CredentialRetrievalError, NoCredentialsError

from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.backends.aws.credentials import Credentials, Keys
from s3k_async.errors import ClosedClientError, CredentialsError

START = datetime(2026, 11, 21, 7, 0, tzinfo=UTC)
HOUR = 3600.0
SECRET = "wJalrXUtnFEMI-made-up-secret"


class World:
    """A clock, and a service that gives out credentials for an hour, numbered; it can be held up
    and can fail."""

    def __init__(self) -> None:
        self.passed = 0.0
        self.given = 0
        self.asked = 0
        self.open = asyncio.Event()
        self.open.set()
        self.failure: Exception | None = None
        self.runtime: Runtime = replace(SYSTEM, monotonic=lambda: self.passed)

    def now(self) -> datetime:
        return START + timedelta(seconds=self.passed)

    async def fetch(self) -> dict[str, Any]:
        self.asked += 1
        await self.open.wait()
        if self.failure is not None:
            raise self.failure
        self.given += 1
        return {
            "access_key": f"AK{self.given}",
            "secret_key": SECRET,
            "token": f"token {self.given}",
            "expiry_time": (self.now() + timedelta(seconds=HOUR)).isoformat(),
        }

    def source(self) -> AioRefreshableCredentials:
        expiry = self.now() + timedelta(seconds=HOUR)
        return AioRefreshableCredentials(
            "AK0", SECRET, "token 0", expiry, self.fetch, "test", self.now
        )

    async def settle(self) -> None:
        """Let everything run that can."""
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def credentials(world: World) -> AsyncIterator[Credentials]:
    made = Credentials(world.source(), world.runtime)
    yield made
    await made.close()


async def test_credentials_that_last(world: World) -> None:
    credentials = Credentials(AioCredentials("AK", SECRET, None), world.runtime)
    assert credentials.ready() is None
    keys = await credentials.get()
    assert keys == Keys("AK", SECRET, None)
    world.passed = 1e9
    assert credentials.ready() is keys
    assert not await credentials.invalidate(keys), "there is nowhere to get others from"


@pytest.mark.parametrize("source", [None, AioCredentials("AK", "", None)])
async def test_no_credentials(world: World, source: object) -> None:
    with pytest.raises(NoCredentialsError):
        await Credentials(source, world.runtime).get()


async def test_credentials_that_are_fetched_at_first_use(world: World) -> None:
    source = AioDeferredRefreshableCredentials(world.fetch, "test", world.now)
    credentials = Credentials(source, world.runtime)
    found = await asyncio.gather(*(credentials.get() for _ in range(10)))
    assert {keys.access_key for keys in found} == {"AK1"}
    assert world.asked == 1
    await credentials.close()


async def test_nothing_is_renewed_early(world: World, credentials: Credentials) -> None:
    await credentials.get()
    world.passed = HOUR - 16 * 60
    assert credentials.ready() is not None
    await world.settle()
    assert world.asked == 0


async def test_a_renewal_delays_no_other_request(world: World, credentials: Credentials) -> None:
    old = await credentials.get()
    world.open.clear()
    world.passed = HOUR - 5 * 60
    for _ in range(10):
        assert credentials.ready() is old
        await world.settle()
        world.passed += 2.0
    assert world.asked == 1
    world.open.set()
    await world.settle()
    renewed = credentials.ready()
    assert renewed is not None
    assert renewed.access_key == "AK1"
    assert world.asked == 1


async def test_those_who_need_it_wait_for_one_renewal(
    world: World, credentials: Credentials
) -> None:
    await credentials.get()
    world.open.clear()
    world.passed = HOUR + 1
    waiting = [asyncio.create_task(credentials.get()) for _ in range(10)]
    await world.settle()
    assert not any(task.done() for task in waiting)
    waiting[0].cancel()
    world.open.set()
    found = await asyncio.gather(*waiting[1:])
    assert {keys.access_key for keys in found} == {"AK1"}
    assert world.asked == 1


@pytest.mark.parametrize("minutes", [14, 5])
async def test_a_renewal_that_fails_while_the_old_ones_are_good(
    world: World, credentials: Credentials, minutes: int
) -> None:
    """botocore raises in the last ten minutes; the keys are good to the end all the same."""
    old = await credentials.get()
    world.failure = CredentialRetrievalError(provider="test", error_msg="away")
    world.passed = HOUR - minutes * 60
    for asked in range(1, 4):
        assert credentials.ready() == old
        await world.settle()
        assert credentials.ready() == old
        assert world.asked == asked, "not asked again at once"
        world.passed += 11.0
    world.failure = None
    assert credentials.ready() == old
    await world.settle()
    assert (await credentials.get()).access_key == "AK1"


async def test_a_renewal_that_fails_when_it_is_needed(
    world: World, credentials: Credentials
) -> None:
    await credentials.get()
    world.passed = HOUR + 1
    world.failure = CredentialRetrievalError(provider="test", error_msg="away")
    for _ in range(2):
        with pytest.raises(CredentialRetrievalError):
            await credentials.get()
    world.failure = None
    assert (await credentials.get()).access_key == "AK1"


async def test_a_users_own_way_of_fetching_that_fails(
    world: World, credentials: Credentials
) -> None:
    world.passed = HOUR + 1
    world.failure = KeyError("not our business")
    with pytest.raises(CredentialsError, match="KeyError"):
        await credentials.get()


async def test_refused_keys_are_renewed_once(world: World, credentials: Credentials) -> None:
    refused = await credentials.get()
    assert (
        await asyncio.gather(*(credentials.invalidate(refused) for _ in range(10))) == [True] * 10
    )
    assert world.asked == 1
    assert (await credentials.get()).access_key == "AK1"
    assert await credentials.invalidate(refused), "who comes late finds others"
    assert world.asked == 1


async def test_closing_ends_a_renewal(world: World) -> None:
    credentials = Credentials(world.source(), world.runtime)
    world.passed = HOUR + 1
    world.open.clear()
    waiting = asyncio.create_task(credentials.get())
    await world.settle()
    await credentials.close()
    await credentials.close()
    with pytest.raises(ClosedClientError):
        await waiting


async def test_no_secret_shows(credentials: Credentials) -> None:
    keys = await credentials.get()
    shown: list[Callable[[object], str]] = [repr, str]
    assert not any(
        SECRET in show(thing) or "token 0" in show(thing)
        for show in shown
        for thing in (keys, credentials)
    )
