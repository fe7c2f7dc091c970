"""Multipart uploads of objects: the rows of H3's interface, and its defects 10, 11, 12 and 23."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from s3k_async.attributes import Attributes
from s3k_async.client import S3kClient, volume_of
from s3k_async.errors import (
    DirectoryNotEmptyError,
    InvalidArgumentError,
    IsDirectoryError,
    PathNotFoundError,
    UploadNotFoundError,
)
from s3k_async.files import multipart
from s3k_async.objects import ObjectStore
from tests.client.test_multipart import data_keys, nothing_is_left, upload_items
from tests.engines.volumes import volume_backends

pytestmark = [
    pytest.mark.layouts("path", "tree"),
    volume_backends("memory", "embedded", "dynoxide+seaweedfs"),
]

GIB = 2**30
UNIT = 2048
"""Bytes for each MiB of H3's own test: many pieces of the tests' volumes."""


async def test_parts_out_of_order_with_one_that_is_replaced(objects: ObjectStore) -> None:
    """H3's own test: parts 1, 0 and 2, seven units, of which part 0 is then replaced by a copy."""
    source = bytes(range(256)) * (3 * UNIT // 256)
    await objects.create("b", "source", source)
    upload = await objects.create_upload("b", "d/k")
    assert (upload.bucket, upload.key) == ("b", "d/k")
    assert upload.expires > upload.started
    await objects.put_part(upload.id, 1, b"1" * (2 * UNIT))
    await objects.put_part(upload.id, 0, b"0" * (3 * UNIT))
    await objects.put_part(upload.id, 2, b"2" * (3 * UNIT))
    part = await objects.copy_part(upload.id, 0, "b", "source", offset=UNIT, size=2 * UNIT)
    assert (part.number, part.size) == (0, 2 * UNIT)
    assert not await objects.exists("b", "d/k")
    parts = await objects.list_parts(upload.id)
    assert [(each.number, each.size) for each in parts] == [
        (0, 2 * UNIT),
        (1, 2 * UNIT),
        (2, 3 * UNIT),
    ]
    info = await objects.complete_upload(upload.id)
    assert (info.bucket, info.key, info.size) == ("b", "d/k", 7 * UNIT)
    wanted = source[UNIT : 3 * UNIT] + b"1" * (2 * UNIT) + b"2" * (3 * UNIT)
    assert await objects.read("b", "d/k") == wanted
    for call in ended_calls(objects, upload.id):
        with pytest.raises(UploadNotFoundError):
            await call()


def ended_calls(objects: ObjectStore, upload_id: str) -> list[Callable[[], Awaitable[object]]]:
    return [
        lambda: objects.complete_upload(upload_id),
        lambda: objects.abort_upload(upload_id),
        lambda: objects.list_parts(upload_id),
        lambda: objects.put_part(upload_id, 0, b""),
    ]


async def test_several_uploads_of_one_object_are_listed_by_their_ids(objects: ObjectStore) -> None:
    """Defect 10: the list had names, so that a lost id was lost."""
    await objects.create_bucket("other")
    made = {(await objects.create_upload("b", "k")).id for _ in range(5)}
    made.add((await objects.create_upload("b", "d/e/k")).id)
    await objects.create_upload("other", "k")
    found: list[str] = []
    after = ""
    while page := await objects.list_uploads("b", after=after, limit=2):
        assert len(page) <= 2
        found += [each.id for each in page]
        after = page[-1].id
    assert found == sorted(made)
    one, other = found[:2]
    await objects.put_part(one, 0, b"one")
    await objects.put_part(other, 0, b"other")
    await objects.complete_upload(one)
    assert await objects.list_uploads("b", after=other, limit=1) != []
    await objects.complete_upload(other)
    assert len(await objects.list_uploads("b")) == 4


async def test_numbers_of_parts_may_have_gaps(objects: ObjectStore) -> None:
    """Also 0 and the largest one, and a part without bytes between others."""
    upload = await objects.create_upload("b", "k")
    for number in (multipart.LARGEST_NUMBER, 70, 0, 9, 8_000_000_000):
        data = b"" if number == 70 else b"%d," % number
        await objects.put_part(upload.id, number, data)
    parts = await objects.list_parts(upload.id)
    assert [each.number for each in parts] == [0, 9, 70, 8_000_000_000, multipart.LARGEST_NUMBER]
    await objects.complete_upload(upload.id)
    assert await objects.read("b", "k") == b"0,9,8000000000,9999999999,"


async def test_an_upload_replaces_the_object_that_exists(objects: ObjectStore) -> None:
    await objects.create("b", "k", b"before")
    upload = await objects.create_upload("b", "k")
    await objects.put_part(upload.id, 7, b"after")
    assert await objects.read("b", "k") == b"before"
    await objects.complete_upload(upload.id)
    assert await objects.read("b", "k") == b"after"


async def test_an_aborted_upload_leaves_nothing(objects: ObjectStore, fs: S3kClient) -> None:
    """Defect 11: the record stayed if the name had no slash."""
    for key in ("k", "d/k"):
        upload = await objects.create_upload("b", key)
        for number in (0, 3):
            await objects.put_part(upload.id, number, b"data" * UNIT)
        assert await upload_items(volume_of(fs)) == 3
        assert await data_keys(volume_of(fs))
        await objects.abort_upload(upload.id)
        assert await objects.list_uploads("b") == []
        for call in ended_calls(objects, upload.id):
            with pytest.raises(UploadNotFoundError):
                await call()
        assert not await objects.exists("b", key)
        await nothing_is_left(fs)


async def test_a_completed_object_has_all_fields(objects: ObjectStore) -> None:
    """Defect 12: those of a pending object were not initialised."""
    before = await objects.create("b", "other", b"")
    upload = await objects.create_upload("b", "k")
    await objects.put_part(upload.id, 0, b"data")
    info = await objects.complete_upload(upload.id)
    assert info == await objects.info("b", "k")
    assert info.attributes == before.attributes == Attributes()
    assert info.changed_ms == info.modified_ms
    assert info.created_ms >= before.created_ms
    assert info.modified_ms >= upload.started_ms
    assert (info.size, info.version > 0) == (4, True)


async def test_sizes_of_parts_have_more_than_32_bits(objects: ObjectStore) -> None:
    """Defect 12: those of a listing were cut to 32 bits."""
    await objects.create_pseudo("b", "pseudo", 9 * GIB)
    await objects.write("b", "pseudo", b"data", offset=6 * GIB)
    upload = await objects.create_upload("b", "k")
    spans = [(4 * GIB, 2 * GIB + 4), (0, 4 * GIB + 1), (0, 9 * GIB), (5 * GIB, 4 * GIB)]
    for number, (offset, size) in enumerate(spans):
        part = await objects.copy_part(upload.id, number, "b", "pseudo", offset=offset, size=size)
        assert (part.number, part.size) == (number, size)
    parts = await objects.list_parts(upload.id)
    assert [(each.number, each.size) for each in parts] == [
        (number, size) for number, (_, size) in enumerate(spans)
    ]
    info = await objects.complete_upload(upload.id)
    assert info.size == sum(size for _, size in spans)
    start = 0
    for offset, size in spans:
        if offset <= 6 * GIB < offset + size:
            place = start + 6 * GIB - offset
            found = await objects.read("b", "k", offset=place - 1, size=5)
            assert found == b"\0data"
        start += size


async def test_an_object_has_the_attributes_of_its_upload(
    objects: ObjectStore, fs: S3kClient
) -> None:
    """Also in the place of an object with other ones, and by the index."""
    former = Attributes(uid=1, metadata={"old": b"1"})
    await objects.put("b", "replaced", b"former", attributes=former)
    given = Attributes(mode=0o640, uid=7, metadata={"colour": b"red"})
    for key in ("new", "d/new", "replaced"):
        upload = await objects.create_upload("b", key, attributes=given)
        assert upload.attributes == given
        assert await objects.list_uploads("b") == [upload]
        await objects.put_part(upload.id, 0, b"data")
        info = await objects.complete_upload(upload.id)
        assert info.attributes == given
        assert info == await objects.info("b", key)
    found = await objects.list_with_metadata("b", "colour")
    assert {each.key for each in found.objects} == {"new", "d/new", "replaced"}
    assert (await objects.list_with_metadata("b", "old")).objects == ()
    await fs.write("/b/new", b"overwritten")
    assert (await objects.info("b", "new")).attributes == given


@pytest.mark.parametrize("given", [None, Attributes()])
async def test_attributes_of_an_object_that_an_upload_replaces(
    objects: ObjectStore, given: Attributes | None
) -> None:
    """They are kept, unless the upload has others, or none."""
    former = Attributes(uid=1, metadata={"old": b"1"})
    await objects.put("b", "k", b"former", attributes=former)
    upload = await objects.create_upload("b", "k", attributes=given)
    await objects.put_part(upload.id, 0, b"data")
    info = await objects.complete_upload(upload.id)
    assert info.attributes == (former if given is None else given)
    assert info == await objects.info("b", "k")


async def test_attributes_that_no_object_can_have(objects: ObjectStore) -> None:
    with pytest.raises(InvalidArgumentError):
        await objects.create_upload("b", "k", attributes=Attributes(mode=0o10000))
    assert await objects.list_uploads("b") == []


async def test_a_bucket_with_uploads_is_not_empty(objects: ObjectStore, fs: S3kClient) -> None:
    """Defect 23: pending uploads of a deleted bucket survived as orphans."""
    upload = await objects.create_upload("b", "d/k")
    await objects.put_part(upload.id, 0, b"data")
    with pytest.raises(DirectoryNotEmptyError, match="pending uploads"):
        await objects.delete_bucket("b")
    await objects.purge_bucket("b")
    assert await objects.list_uploads("b") == []
    with pytest.raises(UploadNotFoundError):
        await objects.list_parts(upload.id)
    await objects.create_upload("b", "k")
    await objects.delete_bucket("b", force=True)
    assert not await fs.exists("/b")
    await objects.create_bucket("b")
    assert await objects.list_uploads("b") == []
    await objects.delete_bucket("b")


async def test_uploads_that_have_expired(objects: ObjectStore) -> None:
    kept = await objects.create_upload("b", "k")
    over = await objects.create_upload("b", "k", lifetime=0.001)
    while not (expired := await objects.expire_uploads()):
        assert [each.id for each in await objects.list_uploads("b")] == sorted([kept.id, over.id])
    assert expired == 1
    assert [each.id for each in await objects.list_uploads("b")] == [kept.id]
    with pytest.raises(UploadNotFoundError):
        await objects.complete_upload(over.id)


async def test_refusals(objects: ObjectStore) -> None:
    with pytest.raises(PathNotFoundError):
        await objects.create_upload("none", "k")
    with pytest.raises(InvalidArgumentError):
        await objects.create_upload("b", "a//k")
    with pytest.raises(PathNotFoundError):
        await objects.list_uploads("none")
    upload = await objects.create_upload("b", "k")
    with pytest.raises(InvalidArgumentError):
        await objects.complete_upload(upload.id)
    for wrong in (-1, multipart.LARGEST_NUMBER + 1):
        with pytest.raises(InvalidArgumentError):
            await objects.put_part(upload.id, wrong, b"")
    with pytest.raises(PathNotFoundError):
        await objects.copy_part(upload.id, 0, "b", "missing")
    await objects.create("b", "short", b"data")
    for span in ({"offset": 5}, {"size": 5}, {"offset": 2, "size": 3}):
        with pytest.raises(InvalidArgumentError, match="the file has 4 bytes"):
            await objects.copy_part(upload.id, 0, "b", "short", **span)
    assert await objects.list_parts(upload.id) == []


async def test_an_upload_does_not_bring_its_bucket_back(
    objects: ObjectStore, fs: S3kClient
) -> None:
    await objects.create_bucket("other")
    upload = await objects.create_upload("other", "d/k")
    await objects.put_part(upload.id, 0, b"data")
    await fs.rename("/other", "/renamed")
    with pytest.raises(PathNotFoundError, match="no such bucket"):
        await objects.complete_upload(upload.id)
    assert [each.name async for each in objects.list_buckets()] == ["b", "renamed"]
    await fs.rename("/renamed", "/other")
    await objects.complete_upload(upload.id)
    assert await objects.read("other", "d/k") == b"data"


async def test_uploads_stay_with_their_bucket(objects: ObjectStore, fs: S3kClient) -> None:
    """A bucket that is deleted and created again has none of the former one, and a bucket that is
    renamed keeps its own."""
    upload = await objects.create_upload("b", "k")
    await objects.put_part(upload.id, 0, b"data")
    await fs.rename("/b", "/renamed")
    await objects.create_bucket("b")
    own = await objects.create_upload("b", "k")
    assert await objects.list_uploads("b") == [own]
    assert await objects.list_uploads("renamed") == [upload]
    with pytest.raises(UploadNotFoundError, match="another bucket of the name 'b'"):
        await objects.complete_upload(upload.id)
    with pytest.raises(DirectoryNotEmptyError, match="pending uploads"):
        await objects.delete_bucket("renamed")
    await objects.purge_bucket("b")
    assert [each.number for each in await objects.list_parts(upload.id)] == [0]
    await objects.delete_bucket("b")
    await objects.delete_bucket("renamed", force=True)
    with pytest.raises(UploadNotFoundError):
        await objects.list_parts(upload.id)


async def test_uploads_of_a_bucket_that_the_filesystem_removes(
    objects: ObjectStore, fs: S3kClient
) -> None:
    """They are left, and expire."""
    upload = await objects.create_upload("b", "k", lifetime=0.001)
    await objects.put_part(upload.id, 0, b"data")
    await fs.delete("/b", recursive=True)
    await objects.create_bucket("b")
    assert await objects.list_uploads("b") == []
    with pytest.raises(UploadNotFoundError):
        await objects.complete_upload(upload.id)
    assert not await objects.exists("b", "k")
    while not (expired := await objects.expire_uploads()):
        pass
    assert expired == 1


async def test_an_upload_without_a_recorded_bucket(objects: ObjectStore, fs: S3kClient) -> None:
    """Of a client of former versions: it belongs to the bucket of its name."""
    upload = await multipart.create_upload(volume_of(fs), "/b/k")
    await objects.put_part(upload.id, 0, b"data")
    assert [each.id for each in await objects.list_uploads("b")] == [upload.id]
    await objects.create_bucket("bb")
    assert await objects.list_uploads("bb") == []
    await objects.complete_upload(upload.id)
    assert await objects.read("b", "k") == b"data"


async def test_an_upload_takes_the_place_of_directories_without_objects(
    objects: ObjectStore, fs: S3kClient
) -> None:
    upload = await objects.create_upload("b", "k")
    await objects.put_part(upload.id, 0, b"data")
    await objects.create("b", "k/below", b"")
    with pytest.raises(IsDirectoryError):
        await objects.complete_upload(upload.id)
    await objects.delete("b", "k/below")
    await fs.makedirs("/b/k/d/e")
    await objects.complete_upload(upload.id)
    assert await objects.read("b", "k") == b"data"
