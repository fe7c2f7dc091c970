"""Lifecycle rules of buckets, by the object API."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from s3k_async.client import S3kClient
from s3k_async.errors import InvalidArgumentError, PathNotFoundError, UnsupportedError
from s3k_async.objects import LifecycleRule, ObjectStore
from s3k_async.volumes import init_volume
from tests.client.rig import memory_config


async def test_rules_of_a_bucket() -> None:
    config = memory_config()
    await init_volume(config, enable=["rules"])
    async with S3kClient(config=config) as fs:
        objects = ObjectStore(fs)
        for bucket in ("b", "bb"):
            await objects.create_bucket(bucket)
        await objects.create("b", "d/old", b"1")
        await objects.create("b", "d/new", b"1")
        await objects.create("b", "kept", b"2")
        await objects.create("bb", "kept", b"3")
        past = datetime(2020, 1, 1, tzinfo=UTC)
        of_directory = await objects.set_rule("b", "d/", read_only_after=10**9)
        assert of_directory == LifecycleRule("/b/d", read_only_after=10**9)
        of_names = await objects.set_rule("b", "d/o", expire_at=past)
        assert of_names == LifecycleRule("/b/d", expire_at=1_577_836_800, name_prefix="o")
        of_bucket = await objects.set_rule("b", read_only_after=timedelta(days=1))
        await objects.set_rule("bb", expire_after=10**9)
        assert await objects.rules("b") == [of_bucket, of_directory, of_names]
        assert (await fs.run_rules()).expired == 1
        assert [each.key async for each in objects.iterate("b")] == ["d/new", "kept"]
        await objects.remove_rule("b", "d/")
        assert await objects.rules("b") == [of_bucket, of_names]
        await objects.remove_rule("b", "d/o")
        assert await objects.rules("b") == [of_bucket]
        await objects.remove_rule("b")
        assert await objects.rules("b") == []
        assert len(await fs.rules()) == 1


async def test_a_prefix_of_keys_is_one_of_text() -> None:
    """As in S3: `d` selects `d`, `d/f` and `d2`, and `d/` only `d/f`."""
    config = memory_config()
    await init_volume(config, enable=["rules"])
    async with S3kClient(config=config) as fs:
        objects = ObjectStore(fs)
        await objects.create_bucket("b")
        for key in ("d/f", "d2", "e/f", "e2"):
            await objects.create("b", key, b"1")
        for prefix in ("d", "e/", "."):
            await objects.set_rule("b", prefix, expire_at=1)
        assert (await fs.run_rules()).expired == 3
        assert [each.key async for each in objects.iterate("b")] == ["e2"]


async def test_rules_that_are_refused() -> None:
    config = memory_config()
    await init_volume(config, enable=["rules"])
    async with S3kClient(config=config) as fs:
        objects = ObjectStore(fs)
        await objects.create_bucket("b")
        for bucket, directory in (("gone", ""), ("gone", "d")):
            with pytest.raises(PathNotFoundError, match="no such bucket"):
                await objects.set_rule(bucket, directory, expire_after=1)
        with pytest.raises(PathNotFoundError, match="no such bucket"):
            await objects.rules("gone")
        with pytest.raises(PathNotFoundError, match="no lifecycle rule"):
            await objects.remove_rule("b", "d")
        for prefix in ("/d", "d//e", "../d", "d//", "d\0"):
            with pytest.raises(InvalidArgumentError):
                await objects.set_rule("b", prefix, expire_after=1)
        with pytest.raises(InvalidArgumentError):
            await objects.set_rule("b")
    plain = memory_config()
    await init_volume(plain)
    async with S3kClient(config=plain) as fs:
        objects = ObjectStore(fs)
        await objects.create_bucket("b")
        with pytest.raises(UnsupportedError, match="--enable rules"):
            await objects.set_rule("b", expire_after=1)
