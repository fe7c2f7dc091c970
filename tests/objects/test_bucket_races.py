"""A bucket that another client removes while an object is written into it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextvars import Context
from itertools import count, product
from typing import Any, TypeAlias

import pytest

from s3k_async.client import S3kClient, volume_of
from s3k_async.errors import (
    ConflictError,
    DirectoryNotEmptyError,
    OutcomeUnknownError,
    PathNotFoundError,
)
from s3k_async.integrity.repair import verify_volume
from s3k_async.model import LayoutName
from s3k_async.objects import ObjectStore
from s3k_async.testing import Call, FaultPlan
from s3k_async.volumes import init_volume
from tests.client.rig import faulty_client, memory_config, paths

pytestmark = pytest.mark.layouts("path", "tree")

TakeName: TypeAlias = Callable[[S3kClient], Coroutine[None, None, None]]

LONG = bytes(range(256)) * 4
"""Several parts of an upload."""


async def completed(objects: ObjectStore, upload: str) -> object:
    return await objects.complete_upload(upload)


WRITES: Mapping[str, Callable[[ObjectStore, str], Awaitable[object]]] = {
    "create": lambda objects, _: objects.create("b", "k", b"1"),
    "create below": lambda objects, _: objects.create("b", "d/e/k", b"1"),
    "create in parts": lambda objects, _: objects.put("b", "k", LONG),
    "create_dummy": lambda objects, _: objects.create_dummy("b", "k", b"1", 1000),
    "create_pseudo": lambda objects, _: objects.create_pseudo("b", "k", 1000),
    "create_copy": lambda objects, _: objects.create_copy("other", "k", "d/k", target_bucket="b"),
    "copy": lambda objects, _: objects.copy("other", "k", "k", target_bucket="b"),
    "write": lambda objects, _: objects.write("b", "k", b"1", offset=5),
    "complete_upload": completed,
    "complete_upload below": completed,
}
RENAMED = [name for name in WRITES if name != "copy"]
"""All but `copy`, which reads the object that it has made again, and does not find it then."""


async def one_race(layout: LayoutName, name: str, number: int, how: str) -> tuple[int, str]:
    """The calls of a write of an object, and the outcome of the removal of its bucket before call
    `number`: deleted or renamed."""
    config = memory_config(layout=layout)
    await init_volume(config, enable=("uploads", "extents", "attributes"))
    outcome = ""
    async with S3kClient(config=config) as other:
        objects = ObjectStore(other)
        for bucket in ("b", "other"):
            await objects.create_bucket(bucket)
        await objects.create("other", "k", b"other")
        upload = await objects.create_upload("b", "d/k" if name.endswith("below") else "k")
        await objects.put_part(upload.id, 0, b"data")

        async def remove(call: Call) -> None:
            nonlocal outcome
            if call.number == number and not outcome:
                try:
                    if how == "delete":
                        await other.delete("/b", recursive=False)
                    else:
                        await other.rename("/b", "/renamed")
                    outcome = "removed"
                except DirectoryNotEmptyError:
                    outcome = "kept"

        plan = FaultPlan()
        async with faulty_client(plan, config) as client:
            plan.gate = remove
            refusal = ""
            try:
                await WRITES[name](ObjectStore(client), upload.id)
            except PathNotFoundError as error:
                refusal = str(error)
                assert outcome == "removed"
                assert {path for path in await paths(other) if path.endswith("/k")} == {"/other/k"}
                if name.startswith("complete"):
                    assert [each.number for each in await objects.list_parts(upload.id)] == [0]
            except (ConflictError, OutcomeUnknownError):
                assert outcome == "removed"
            else:
                # A file that is written while its directory is renamed is in the renamed one.
                assert how == "rename" or outcome != "removed", number
        assert refusal == "" or "no such bucket" in refusal
        # The last calls are made by the end of the client.
        assert ("/b" in await paths(other)) == (outcome != "removed"), number
        report = await verify_volume(volume_of(other), grace=-60.0)
        assert {each.kind for each in report.findings} <= {"collectable_data"}, number
        return len(plan.calls), outcome


@pytest.mark.parametrize(
    ("name", "how"), [*product(WRITES, ["delete"]), *product(RENAMED, ["rename"])]
)
async def test_a_bucket_that_is_removed_meanwhile_is_not_created_again(
    layout: LayoutName, name: str, how: str
) -> None:
    outcomes: list[Any] = []
    for number in count(1):
        calls, outcome = await one_race(layout, name, number, how)
        if calls < number:
            break
        outcomes.append(outcome)
    assert "removed" in outcomes


async def exchanged(other: S3kClient) -> None:
    await other.exchange("/b", "/other")


async def replaced(other: S3kClient) -> None:
    await other.rename("/b", "/renamed")
    await other.makedirs("/b/d")


async def one_completion(
    layout: LayoutName, key: str, number: int, take_name: TakeName
) -> tuple[int, bool]:
    """The calls of a completion before whose call `number` another bucket takes the name, and
    whether it succeeded."""
    config = memory_config(layout=layout)
    await init_volume(config)
    async with S3kClient(config=config) as other:
        objects = ObjectStore(other)
        for bucket in ("b", "other"):
            await objects.create_bucket(bucket)
            await objects.create(bucket, "d/there", b"")
        own = (await other.stat("/b")).id
        upload = await objects.create_upload("b", key)
        await objects.put_part(upload.id, 0, b"data")

        async def gate(call: Call) -> None:
            if call.number == number:
                # Of another client: it requires no directory.
                await asyncio.create_task(take_name(other), context=Context())

        plan = FaultPlan()
        async with faulty_client(plan, config) as client:
            plan.gate = gate
            is_done = True
            try:
                await ObjectStore(client).complete_upload(upload.id)
            except PathNotFoundError:  # UploadNotFoundError, once another bucket has the name
                is_done = False
                assert [each.number for each in await objects.list_parts(upload.id)] == [0]
            plan.gate = None
        found = [path for path in await paths(other) if path.endswith("/k")]
        assert len(found) == is_done, number
        for path in found:
            assert (await other.stat(f"/{path.split('/')[1]}")).id == own, number
        report = await verify_volume(volume_of(other), grace=-60.0)
        assert {each.kind for each in report.findings} <= {"collectable_data"}, number
        return len(plan.calls), is_done


@pytest.mark.parametrize("key", ["k", "d/k", "new/k"])
async def test_an_upload_is_not_completed_in_another_bucket_that_takes_the_name(
    layout: LayoutName, key: str
) -> None:
    for take_name in (replaced, exchanged) if layout == "tree" else (replaced,):
        outcomes = set()
        for number in count(1):
            calls, is_done = await one_completion(layout, key, number, take_name)
            if calls < number:
                break
            outcomes.add(is_done)
        assert outcomes == {True, False}
