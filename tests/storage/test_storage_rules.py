"""Storage rules: the storage class and tags of new files by path, as stored in moto."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from botocore.session import get_session

from s3k_async import S3kClient
from s3k_async.backends.ports.storage_terms import StorageTerms, stored_by
from s3k_async.backends.s3.s3_blobs import S3Blobs
from s3k_async.backends.s3.s3_wire import WireBlobs
from s3k_async.bulk.transfer import upload
from s3k_async.client import volume_of
from s3k_async.config import DynamoTable, MemoryBlobs, MemoryTable, S3Bucket, Tuning, VolumeConfig
from s3k_async.errors import ConfigError
from s3k_async.files.multipart import complete_upload, create_upload, put_part
from s3k_async.storage.extents import physical_keys
from s3k_async.storage.storage_rules import StorageRules
from s3k_async.volumes import init_volume
from s3k_async.volumes.iam_policies import ROLES, Role, iam_policy
from tests.engines.process import Engine
from tests.engines.volumes import fresh_name

RULES = "/archive:STANDARD_IA,team=web%20ops,keep= /archive/hot:ONEZONE_IA /logs:kind=log"
ARCHIVED = ("STANDARD_IA", {"team": "web ops", "keep": ""})


def test_the_rule_of_the_nearest_directory_applies() -> None:
    rules = StorageRules.parse(RULES)
    archived = StorageTerms("STANDARD_IA", (("team", "web ops"), ("keep", "")))
    assert rules.at("/archive/2026/a") == rules.at("/archive/hot") == archived
    assert rules.at("/archive/hot/a") == StorageTerms("ONEZONE_IA")
    assert rules.at("/logs/a") == StorageTerms(None, (("kind", "log"),))
    assert rules.at("/archives/a") == rules.at("/archive") == StorageTerms()
    everywhere = StorageRules.parse("/:GLACIER_IR")
    assert everywhere.at("/a") == everywhere.at("/") == StorageTerms("GLACIER_IR")
    assert StorageRules.parse("/a%20b%3Ac/:standard").at("/a b:c/d") == StorageTerms("STANDARD")
    assert not StorageRules.parse(" ")


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("archive:STANDARD", "absolute path"),
        ("/a%00:STANDARD", "absolute path"),
        ("/a", "neither a storage class nor tags"),
        ("/a:", "neither a storage class nor tags"),
        ("/a:DEEP_ARCHIVE", "one of STANDARD"),
        ("/a:STANDARD,STANDARD_IA", "one of STANDARD"),
        ("/a:STANDARD /a/:STANDARD", "two rules for /a"),
        ("/a:=value", "name of a tag"),
        ("/a:aws%3Ax=value", "name of a tag"),
        ("/a:x=%23", "value of a tag"),
        ("/a:x=1,x=2", "given twice"),
        ("/a:" + ",".join(f"t{n}=1" for n in range(11)), "at most 10 tags"),
    ],
)
def test_a_rule_that_cannot_be(rule: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        StorageRules.parse(rule)


def stored(engine: Engine, bucket: str, key: str) -> tuple[str, dict[str, str]]:
    """Storage class and tags of an object."""
    client: Any = get_session().create_client(
        "s3",
        endpoint_url=engine.endpoint,
        region_name=engine.region,
        aws_access_key_id=engine.access_key,
        aws_secret_access_key=engine.secret_key,
    )
    found = client.head_object(Bucket=bucket, Key=key)
    tags = client.get_object_tagging(Bucket=bucket, Key=key)["TagSet"]
    client.close()
    return found.get("StorageClass", "STANDARD"), {each["Key"]: each["Value"] for each in tags}


@pytest.mark.parametrize("store", [WireBlobs, S3Blobs])
async def test_class_and_tags_of_what_a_store_stores(store: type[S3Blobs], moto_s3: Engine) -> None:
    """A copy has the tags of its own terms, and not those of its source."""
    blobs = store(fresh_name("rules"), "", replace(moto_s3.aws(), storage_class="GLACIER_IR"))
    await blobs.create()
    tagged = stored_by(blobs, StorageTerms("STANDARD_IA", (("team", "web ops"), ("keep", ""))))
    plain = stored_by(blobs, StorageTerms())
    await tagged.put("put", b"bytes")
    await tagged.copy(blobs, "put", "copy")
    await plain.copy(blobs, "put", "plain")
    upload = await tagged.start_upload("parts")
    await upload.put_part(1, b"part")
    await upload.complete()
    await blobs.put("usual", b"bytes")
    found = await asyncio.to_thread(
        lambda: {
            key: stored(moto_s3, blobs.bucket, key)
            for key in ("put", "copy", "parts", "plain", "usual")
        }
    )
    await blobs.close()
    usual: tuple[str, dict[str, str]] = ("GLACIER_IR", {})
    assert found == {
        "put": ARCHIVED,
        "copy": ARCHIVED,
        "parts": ARCHIVED,
        "plain": usual,
        "usual": usual,
    }


@pytest.fixture
async def client(moto_s3: Engine) -> AsyncIterator[S3kClient]:
    name = fresh_name("rules")
    config = VolumeConfig(
        name,
        MemoryTable(name),
        S3Bucket(name, "", moto_s3.aws()),
        tuning=Tuning(storage_rules=RULES, multipart_threshold=1024, part_size=5 * 2**20),
    )
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        yield fs


async def _write(fs: S3kClient) -> None:
    await fs.write("/archive/a", b"1")


async def _write_parts(fs: S3kClient) -> None:
    await fs.write("/archive/a", bytes(2000))


async def _write_many(fs: S3kClient) -> None:
    await fs.write_many([("/archive/a", b"1")])


async def _touch(fs: S3kClient) -> None:
    await fs.touch("/archive/a")


async def _open(fs: S3kClient) -> None:
    async with fs.open("/archive/a", "wb") as file:
        await file.write(b"1")


async def _append(fs: S3kClient) -> None:
    await fs.append("/archive/a", b"1")
    await fs.append("/archive/a", b"2")


async def _open_appending(fs: S3kClient) -> None:
    await fs.write("/archive/a", b"1")
    async with fs.open("/archive/a", "ab") as file:
        await file.write(b"1")


async def _write_range(fs: S3kClient) -> None:
    await fs.write("/archive/a", b"12")
    await fs.write_range("/archive/a", 1, b"3")


async def _concat(fs: S3kClient) -> None:
    await fs.write("/archive/a", b"1")
    await fs.write("/logs/b", b"2")
    await fs.concat("/archive/a", ["/logs/b"])


async def _upload_parts(fs: S3kClient) -> None:
    volume = volume_of(fs)
    begun = await create_upload(volume, "/archive/a")
    await put_part(volume, begun.id, 1, b"1")
    await complete_upload(volume, begun.id)


async def _upload(fs: S3kClient) -> None:
    await upload(fs, fs._volume(), __file__, "/archive/a")


async def _copy(fs: S3kClient) -> None:
    await fs.write("/logs/a", b"1")
    await fs.copy("/logs/a", "/archive/a")


async def _transaction(fs: S3kClient) -> None:
    async with fs.transaction() as txn:
        await txn.write("/archive/a", b"1")


async def _transaction_open(fs: S3kClient) -> None:
    async with fs.transaction() as txn, txn.open("/archive/a") as file:
        await file.write(b"1")


async def _undelete(fs: S3kClient) -> None:
    await fs.write("/archive/a", b"1")
    await fs.delete("/archive/a")
    await fs.undelete("/archive/a")


WAYS: list[Callable[[S3kClient], Awaitable[None]]] = [
    _write,
    _write_parts,
    _write_many,
    _touch,
    _open,
    _append,
    _open_appending,
    _concat,
    _upload_parts,
    _upload,
    _write_range,
    _copy,
    _transaction,
    _transaction_open,
    _undelete,
]


async def kept(fs: S3kClient, engine: Engine, path: str) -> list[tuple[str, dict[str, str]]]:
    """Class and tags of each object of a file."""
    volume = volume_of(fs)
    data = volume.config.data
    assert isinstance(data, S3Bucket)
    keys = [
        volume.blobs.uri(key).partition(f"/{data.bucket}/")[2]
        for key in physical_keys(str((await fs.stat(path)).physical))
    ]
    return [await asyncio.to_thread(stored, engine, data.bucket, key) for key in keys]


async def test_every_way_to_write_a_file(client: S3kClient, moto_s3: Engine) -> None:
    for way in WAYS:
        await way(client)
        found = await kept(client, moto_s3, "/archive/a")
        assert set(map(repr, found)) == {repr(ARCHIVED)}, way.__name__
        await client.delete("/archive/a")


async def test_a_rename_changes_no_data(client: S3kClient, moto_s3: Engine) -> None:
    await client.write("/archive/a", b"1")
    await client.makedirs("/logs")
    await client.rename("/archive/a", "/logs/a")
    assert await kept(client, moto_s3, "/logs/a") == [ARCHIVED]


async def test_staged_content_has_the_rule_of_the_path_that_is_known(moto_s3: Engine) -> None:
    name = fresh_name("rules")
    config = VolumeConfig(name, MemoryTable(name), S3Bucket(name, "", moto_s3.aws()))
    await init_volume(config)
    tuned = replace(config, tuning=Tuning(storage_rules="/:STANDARD_IA,a=1 /a:ONEZONE_IA"))
    async with S3kClient(config=tuned) as fs:
        for path, terms in (("/", ("STANDARD_IA", {"a": "1"})), ("/a/b", ("ONEZONE_IA", {}))):
            async with fs.stage(path) as file:
                await file.write(b"1")
            async with fs.transaction() as txn:
                await txn.publish("/a/b", file.staged)
            assert await kept(fs, moto_s3, "/a/b") == [terms]
            await fs.delete("/a/b")


async def test_a_volume_with_a_hot_location_cannot_have_rules() -> None:
    name = fresh_name("rules")
    config = VolumeConfig(name, MemoryTable(name), MemoryBlobs(name))
    await init_volume(config, hot=f"memory://{name}-hot")
    tuned = replace(config, tuning=Tuning(storage_rules=RULES))
    async with S3kClient(config=tuned) as fs:
        with pytest.raises(ConfigError, match="hot location"):
            await fs.write("/archive/a", b"1")


@pytest.mark.parametrize("role", ROLES)
def test_the_policy_of_those_who_write_allows_tags(role: Role) -> None:
    config = VolumeConfig("v", DynamoTable("meta"), S3Bucket("data"))
    without = str(iam_policy(config, role))
    assert "PutObjectTagging" not in without
    classes = replace(config, tuning=Tuning(storage_rules="/a:STANDARD_IA"))
    assert str(iam_policy(classes, role)) == without
    tagged = replace(config, tuning=Tuning(storage_rules=RULES))
    is_writer = role in ("writer", "spark", "operator")
    assert ("PutObjectTagging" in str(iam_policy(tagged, role))) == is_writer
