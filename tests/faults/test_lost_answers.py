"""Every answer of every verb lost, one after the other: success, a definite failure, or
OutcomeUnknownError.

ResponseLostError is for the stores: a caller could not tell from it whether anything was changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from s3k_async._core.retry import Retries, RetryPolicy
from s3k_async.client import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    OutcomeUnknownError,
    PartialFailureError,
    RequestTimeoutError,
    ResponseLostError,
    S3kError,
    ServiceError,
)
from s3k_async.testing import Call, FaultPlan
from s3k_async.volumes import init_volume
from tests.client.rig import TUNING, faulty_client, memory_config

Verb: TypeAlias = Callable[[S3kClient], Awaitable[Any]]

LARGE = b"0123456789" * 100
DEFINITE = (OutcomeUnknownError, RequestTimeoutError, ServiceError, PartialFailureError)


async def _transaction(fs: S3kClient) -> None:
    async with fs.transaction() as tx:
        await tx.write("/new", b"1")
        await tx.rename("/file", "/moved")
        await tx.delete("/other")


async def _opened(fs: S3kClient) -> None:
    async with await fs.open("/new", "wb") as writer:
        await writer.write(LARGE)


async def _listed(fs: S3kClient) -> list[str]:
    return [status.path async for status in fs.list("/", recursive=True)]


VERBS: Mapping[str, Verb] = {
    "write": lambda fs: fs.write("/new", b"1"),
    "write over": lambda fs: fs.write("/file", b"1"),
    "write in parts": lambda fs: fs.write("/new", LARGE),
    "write_many": lambda fs: fs.write_many([(f"/many/{n}", b"1") for n in range(3)]),
    "open": _opened,
    "touch": lambda fs: fs.touch("/new"),
    "makedirs": lambda fs: fs.makedirs("/x/y"),
    "copy": lambda fs: fs.copy("/file", "/new"),
    "copy a directory": lambda fs: fs.copy("/dir", "/new", recursive=True),
    "rename": lambda fs: fs.rename("/file", "/new"),
    "rename a directory": lambda fs: fs.rename("/dir", "/new"),
    "delete": lambda fs: fs.delete("/file"),
    "delete a directory": lambda fs: fs.delete("/dir", recursive=True),
    "delete_many": lambda fs: fs.delete_many(["/file", "/other"]),
    "transaction": _transaction,
    "read": lambda fs: fs.read("/file"),
    "list": _listed,
    "stat_many": lambda fs: fs.stat_many(["/file", "/dir"]),
}


def quick(config: VolumeConfig) -> VolumeConfig:
    retries = Retries.alike(RetryPolicy(attempts=2, base=0.0, cap=0.0))
    return replace(config, tuning=replace(TUNING, retry=retries, busy_timeout=0.0))


async def client_of(faults: FaultPlan) -> Any:
    config = replace(memory_config(), suffix_count=1)
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        await fs.write_many(
            list({"/file": b"0", "/other": b"0", "/dir/a": b"0", "/dir/sub/b": b"0"}.items())
        )
    return faulty_client(faults, quick(config))


def lost(call: Call, place: Call, *, onwards: bool) -> bool:
    """Whether the answer to a call is lost: of the one at a place, or of all such from there
    onwards."""
    if not onwards:
        return call.number == place.number
    return call.number >= place.number and (call.store, call.method) == (place.store, place.method)


def described(error: BaseException) -> list[BaseException]:
    """An error and those that it reports."""
    return (
        [error, *(each for _, each in error.failures)]
        if isinstance(error, PartialFailureError)
        else [error]
    )


async def calls_of(verb: Verb) -> list[Call]:
    faults = FaultPlan()
    async with await client_of(faults) as fs:
        await verb(fs)
        return list(faults.calls)


@pytest.mark.parametrize("onwards", [False, True], ids=["once", "onwards"])
@pytest.mark.parametrize("name", VERBS)
async def test_a_lost_answer_never_reaches_the_caller_as_such(name: str, onwards: bool) -> None:
    verb = VERBS[name]
    places = await calls_of(verb)
    assert places

    async def one(place: Call) -> None:
        faults = FaultPlan()
        error: BaseException | None = None
        async with await client_of(faults) as fs:
            faults.fail_when(
                lambda call: lost(call, place, onwards=onwards),
                ResponseLostError("lost"),
                when="after",
                times=1000,
            )
            try:
                await verb(fs)
            except S3kError as raised:
                error = raised
        if error is not None:
            assert isinstance(error, DEFINITE), (place, error)
            assert not any(isinstance(each, ResponseLostError) for each in described(error)), (
                place,
                error,
            )

    await asyncio.gather(*map(one, places))


@pytest.mark.parametrize("store", ["items", "blobs"])
async def test_a_lost_answer_while_a_volume_is_made_or_removed(store: str) -> None:
    faults = FaultPlan()
    async with await client_of(faults) as fs:
        faults.fail_when(
            lambda call: call.store == store, ResponseLostError("lost"), when="after", times=1000
        )
        for verb in ("read", "write", "copy"):
            with pytest.raises(S3kError) as caught:
                await VERBS[verb](fs)
            assert not isinstance(caught.value, ResponseLostError)
