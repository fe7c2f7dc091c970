"""A volume on a DynamoDB and an S3 with a proxy in front of each, which answers as AWS documents
its refusals."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from s3k_async._core.runtime import SYSTEM
from s3k_async.client import S3kClient
from s3k_async.integrity.verify_rules import Finding
from s3k_async.oplog.log_reader import LogReader
from s3k_async.volumes import init_volume, open_volume
from tests.engines.process import Engine
from tests.engines.volumes import closing_client, fresh_bucket, fresh_name, fresh_table
from tests.integrity.verifier import Verifier
from tests.proxy import Call, FaultProxy

__all__ = ["Served", "proxied", "served"]


@contextmanager
def proxied(upstream: str | None) -> Iterator[FaultProxy]:
    """A proxy that runs in a thread, so that commands, which have loops of their own, can pass
    through it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    proxy = FaultProxy(upstream)
    try:
        asyncio.run_coroutine_threadsafe(proxy.__aenter__(), loop).result(20)
        yield proxy
        asyncio.run_coroutine_threadsafe(proxy.__aexit__(None, None, None), loop).result(20)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        loop.close()


@dataclass(frozen=True)
class Served:
    """A volume behind two proxies."""

    table: FaultProxy
    data: FaultProxy
    name: str
    table_name: str
    bucket: str
    file: Path
    """The configuration file that knows the volume."""
    dynamodb: Any
    s3: Any

    def text(self, template: str) -> str:
        for word, value in (
            ("vol", f"s3k://{self.name}"),
            ("table", self.table_name),
            ("bucket", self.bucket),
            ("local", str(self.file)),
        ):
            template = template.replace(f"{{{word}}}", value)
        return template

    def client(self) -> S3kClient:
        return S3kClient(f"s3k://{self.name}", config=self.file)

    def clear(self) -> None:
        self.table.clear()
        self.data.clear()

    def state(self) -> dict[str, object]:
        """Every item of the table, and every object of the bucket by its key, past the proxies."""
        found: dict[str, object] = {}
        for item in self.dynamodb.scan(TableName=self.table_name, ConsistentRead=True)["Items"]:
            found[f"{item['path']['S']} / {item['children']['S']}"] = item
        for info in self.s3.list_objects_v2(Bucket=self.bucket)["Contents"]:
            found[info["Key"]] = (info["ETag"], info["Size"])
        return found

    async def problems(self) -> list[Finding]:
        """What fsck finds, however young."""
        volume = await open_volume(self.client().config)
        try:
            assert volume.log_blobs is not None
            log = LogReader(volume.log_blobs)
            return (
                await Verifier(volume.store, volume.blobs, log, SYSTEM, grace=0.0).verify(deep=True)
            ).problems
        finally:
            await volume.close()


def in_the_volume(call: Call) -> bool:
    """Whether a request to the table is about entries, and not about the record by which the volume
    is opened."""
    return b"s3k:volume" not in call.body


@contextmanager
def served(dynamodb: Engine, s3: Engine, directory: Path) -> Iterator[Served]:
    """A volume with a few files."""
    with (
        fresh_table(dynamodb) as table,
        fresh_bucket(s3) as bucket,
        proxied(dynamodb.endpoint) as before_table,
        proxied(s3.endpoint) as before_data,
        closing_client(dynamodb, "dynamodb") as tables,
        closing_client(s3, "s3") as buckets,
    ):
        name = fresh_name("volume")
        file = directory / "s3k.toml"
        file.write_text(
            f"""
            [volumes.{name}]
            table = "{table.name}"
            bucket = "{bucket.bucket}"
            suffix_count = 3
            region = "us-east-1"
            table_endpoint = "{before_table.url}"
            data_endpoint = "{before_data.url}"
            table_access_key_id = "{dynamodb.access_key}"
            table_secret_access_key = "{dynamodb.secret_key}"
            data_access_key_id = "{s3.access_key}"
            data_secret_access_key = "{s3.secret_key}"
            retry_attempts = 3
            retry_base = 0.001
            """
        )
        volume = Served(
            before_table, before_data, name, table.name, bucket.bucket, file, tables, buckets
        )
        asyncio.run(fill(volume))
        yield volume


async def fill(volume: Served) -> None:
    await init_volume(volume.client().config)
    async with volume.client() as fs:
        await fs.write("/dir/file", b"0123456789")
        await fs.write("/file", b"0123456789")
