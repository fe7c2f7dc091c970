"""Arguments of the object API that are not valid: named errors, and nothing is changed."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from s3k_async.attributes import Attributes
from s3k_async.client import S3kClient
from s3k_async.errors import ArgumentTypeError, InvalidArgumentError
from s3k_async.objects import ObjectStore
from tests.engines.volumes import volume_backends

pytestmark = [pytest.mark.layouts("path", "tree"), volume_backends("memory", "embedded")]

Verb = Callable[[ObjectStore, str, Any], Awaitable[object]]
"""Of the object API, the id of an upload, and an argument."""

NUMBERS: dict[str, Verb] = {
    "owner of a bucket": lambda objects, _, value: objects.create_bucket("c", uid=value),
    "mode": lambda objects, _, value: objects.set_attributes("b", "k", mode=value),
    "uid": lambda objects, _, value: objects.set_attributes("b", "k", uid=value),
    "gid": lambda objects, _, value: objects.set_attributes("b", "k", gid=value),
    "uid of a new object": lambda objects, _, value: objects.create(
        "b", "new", b"", attributes=Attributes(uid=value)
    ),
    "limit of list": lambda objects, _, value: objects.list("b", limit=value),
    "limit of list_uploads": lambda objects, _, value: objects.list_uploads("b", limit=value),
    "limit of list_with_metadata": lambda objects, _, value: objects.list_with_metadata(
        "b", "name", limit=value
    ),
    "number of a part": lambda objects, upload, value: objects.put_part(upload, value, b"data"),
    "offset of a part": lambda objects, upload, value: objects.copy_part(
        upload, 1, "b", "k", offset=value
    ),
    "size": lambda objects, _, value: objects.create_pseudo("b", "new", value),
    "modification time": lambda objects, _, value: objects.touch("b", "k", modified=value),
}
TEXTS: dict[str, Verb] = {
    "bucket": lambda objects, _, value: objects.info(value, "k"),
    "key": lambda objects, _, value: objects.info("b", value),
    "prefix": lambda objects, _, value: objects.list("b", value),
    "after of list": lambda objects, _, value: objects.list("b", after=value),
    "after of list_uploads": lambda objects, _, value: objects.list_uploads("b", after=value),
    "after of list_with_metadata": lambda objects, _, value: objects.list_with_metadata(
        "b", "name", after=value
    ),
    "name": lambda objects, _, value: objects.list_with_metadata("b", value),
    "upload of a part": lambda objects, _, value: objects.put_part(value, 0, b"data"),
    "upload of list_parts": lambda objects, _, value: objects.list_parts(value),
    "upload of complete_upload": lambda objects, _, value: objects.complete_upload(value),
    "upload of abort_upload": lambda objects, _, value: objects.abort_upload(value),
}
OTHERS: dict[str, Verb] = {
    "attributes": lambda objects, _, value: objects.put("b", "k", b"", attributes=value),
    "read_only": lambda objects, _, value: objects.set_attributes("b", "k", read_only=value),
    "lifetime": lambda objects, _, value: objects.create_upload("b", "k", lifetime=value),
    "metadata": lambda objects, _, value: objects.set_metadata("b", "k", "name", value),
    "metadata of a new object": lambda objects, _, value: objects.create(
        "b", "new", b"", attributes=Attributes(metadata={"name": value})
    ),
    "data of a part": lambda objects, upload, value: objects.put_part(upload, 1, value),
}


async def check(objects: ObjectStore, fs: S3kClient, verb: Verb, values: list[object]) -> None:
    await objects.create("b", "k", b"data", attributes=Attributes(metadata={"name": b"value"}))
    upload = (await objects.create_upload("b", "k")).id
    before = [each async for each in fs.list("/", recursive=True)]
    for value in values:
        with pytest.raises(ArgumentTypeError):
            await verb(objects, upload, value)
    assert [each async for each in fs.list("/", recursive=True)] == before
    assert [each.id for each in await objects.list_uploads("b")] == [upload]
    assert await objects.list_parts(upload) == []


@pytest.mark.parametrize("name", NUMBERS)
async def test_what_is_no_number(objects: ObjectStore, fs: S3kClient, name: str) -> None:
    await check(objects, fs, NUMBERS[name], [True, "1", 1.0, b"1", [1]])


@pytest.mark.parametrize("name", TEXTS)
async def test_what_is_no_text(objects: ObjectStore, fs: S3kClient, name: str) -> None:
    await check(objects, fs, TEXTS[name], [1, b"k", ["k"], UUID(int=0)])


@pytest.mark.parametrize("name", OTHERS)
async def test_values_of_another_type(objects: ObjectStore, fs: S3kClient, name: str) -> None:
    await check(objects, fs, OTHERS[name], ["text", ["k"], UUID(int=0)])


async def test_metadata_is_not_made_from_a_number(objects: ObjectStore, fs: S3kClient) -> None:
    """`bytes(5)` is five zero bytes."""
    await objects.create("b", "k", b"")
    with pytest.raises(ArgumentTypeError):
        await fs.set_attributes("/b/k", metadata={"name": 5})  # type: ignore[dict-item]
    assert await objects.list_metadata("b", "k") == {}


@pytest.mark.parametrize("limit", [sys.maxsize, 10**30])
async def test_a_page_of_any_length(objects: ObjectStore, limit: int) -> None:
    for key in ("k", "l"):
        await objects.create("b", key, b"", attributes=Attributes(metadata={"name": b""}))
        await objects.create_upload("b", key)
    page = await objects.list("b", limit=limit)
    assert ([each.key for each in page.objects], page.token) == (["k", "l"], None)
    page = await objects.list_with_metadata("b", "name", limit=limit)
    assert (sorted(each.key for each in page.objects), page.token) == (["k", "l"], None)
    assert len(await objects.list_uploads("b", limit=limit)) == 2


async def test_starts_of_pages_that_cannot_be_encoded(objects: ObjectStore) -> None:
    for call in (objects.list("b", after="\ud800"), objects.list_uploads("b", after="\ud800")):
        with pytest.raises(InvalidArgumentError):
            await call
    with pytest.raises(InvalidArgumentError):
        await objects.list_with_metadata("b", "name", after="\ud800")
