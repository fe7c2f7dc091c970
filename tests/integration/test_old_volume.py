"""A volume as S3-FileSystem 1.0 left it, on real engines, opened through its own Hadoop keys: read
and verified."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from s3k_async import S3kClient
from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.ports.pagination import list_all
from s3k_async.backends.s3.s3_blobs import S3Blobs
from s3k_async.cli import main
from s3k_async.cli.exit_codes import ExitCode
from s3k_async.config import DynamoTable, S3Bucket, VolumeConfig
from s3k_async.errors import ReadOnlyVolumeError, UncommittedFileError
from s3k_async.integrity.verify import VerifyReport
from s3k_async.migrate import dump_volume, load_volume, retire_log
from s3k_async.migrate.retirement import RETIRED
from s3k_async.oplog.log_reader import JavaLogReader
from s3k_async.testing import DynamoItems
from s3k_async.volumes import open_volume
from tests.engines.process import Engine
from tests.engines.volumes import fresh_bucket, fresh_table
from tests.integrity.verifier import Verifier
from tests.migrate.rig import HURRIED
from tests.old_volume import CTIME, OldFiles

pytestmark = pytest.mark.engine


@dataclass
class OldVolume(OldFiles):
    """One on engines, with the settings that the old system's jobs had."""

    table: DynamoTable = field(kw_only=True)
    bucket: S3Bucket = field(kw_only=True)

    def hadoop(self) -> dict[str, str]:
        """The keys that the old system's jobs were configured with."""
        name = self.bucket.bucket
        table, data = self.table.aws, self.bucket.aws
        keys = {
            "metastore.dynamo.table": self.table.name,
            "metastore.dynamo.suffix.count": str(self.count),
            "metastore.dynamo.endpoint": table.endpoint,
            "metastore.dynamo.signing.region": table.region,
            "metastore.dynamo.access": table.access_key_id.reveal(),
            "metastore.dynamo.secret": table.secret_access_key.reveal(),
            "operationlog.s3.bucket": name,
            "operationlog.s3.endpoint": data.endpoint,
            "operationlog.s3.signing.region": data.region,
            "operationlog.s3.access": data.access_key_id.reveal(),
            "operationlog.s3.secret": data.secret_access_key.reveal(),
            "storage.underlying.filesystem.scheme": "s3a",
            "storage.underlying.fs.prop.marker.fs.s3a.endpoint": data.endpoint,
            "storage.underlying.fs.prop.marker.fs.s3a.endpoint.region": data.region,
            "storage.underlying.fs.prop.marker.fs.s3a.access.key": data.access_key_id.reveal(),
            "storage.underlying.fs.prop.marker.fs.s3a.secret.key": data.secret_access_key.reveal(),
        }
        return {f"fs.s3k.{key}.{name}": str(value) for key, value in keys.items()}

    async def verify(self) -> VerifyReport:
        async with S3kClient(f"s3k://{self.bucket.bucket}", hadoop=self.hadoop()) as client:
            volume = await open_volume(client.config)
        try:
            assert volume.log_blobs is not None
            log = JavaLogReader(volume.log_blobs, volume=volume.record.name)
            return await Verifier(volume.store, volume.blobs, log, SYSTEM, grace=0).verify()
        finally:
            await volume.close()


@pytest.fixture
async def old(dynoxide: Engine, seaweedfs: Engine) -> AsyncIterator[OldVolume]:
    with fresh_table(dynoxide) as table, fresh_bucket(seaweedfs) as bucket:
        items, blobs = (
            DynamoItems(table.name, table.aws),
            S3Blobs(bucket.bucket, bucket.prefix, bucket.aws),
        )
        await items.create()
        await blobs.create()
        volume = OldVolume(bucket.bucket, items, blobs, table=table, bucket=bucket)
        for path in ("/logs", "/logs/day=1", "/empty"):
            await volume.directory(path)
        for number in range(20):
            await volume.file(
                f"/logs/day=1/part-{number:05}", b"%d" % number, version=2 + number % 3
            )
        await volume.reserve("/logs/being-written")
        yield volume
        await items.close()
        await blobs.close()


async def test_it_is_listed_read_and_not_written(old: OldVolume) -> None:
    async with S3kClient(f"s3k://{old.bucket.bucket}", hadoop=old.hadoop()) as fs:
        paths = {status.path async for status in fs.list("/", recursive=True)}
        assert paths == {"/logs", "/logs/day=1", "/empty"} | {
            f"/logs/day=1/part-{n:05}" for n in range(20)
        }
        assert await fs.read("/logs/day=1/part-00007") == b"7"
        assert (await fs.stat("/logs/day=1/part-00007")).ctime_ms == CTIME * 1000
        assert (await fs.content_summary("/")).file_count == 20
        with pytest.raises(UncommittedFileError):
            await fs.read("/logs/being-written")
        for change in (
            fs.write("/new", b""),
            fs.rename("/logs", "/old"),
            fs.delete("/empty"),
            fs.makedirs("/new"),
        ):
            with pytest.raises(ReadOnlyVolumeError):
                await change


async def test_verify_finds_it_sound_and_notes_the_writer(old: OldVolume) -> None:
    report = await old.verify()
    assert (report.files, report.directories, report.reservations) == (20, 3, 1)
    assert report.log_records == 21
    assert [(finding.kind, finding.path) for finding in report.findings] == [
        ("reservation_open", "/logs/being-written")
    ]
    assert report.clean


async def test_verify_finds_damage(old: OldVolume) -> None:
    lost = await old.file("/logs/lost", b"lost")
    gone = await old.file("/logs/gone", b"gone")
    unknown = await old.file("/logs/unknown", b"unknown")
    keys = {info.key async for info in list_all(old.blobs)}
    await old.blobs.delete(next(key for key in keys if key.endswith(f".id={lost}")))
    await old.delete_item("/logs/gone")
    await old.blobs.delete(f"{unknown}.info")
    found = {(finding.kind, finding.object_id) for finding in (await old.verify()).problems}
    assert found >= {("data_missing", lost), ("entry_missing", gone), ("log_missing", unknown)}
    assert len(found) == 3


async def test_the_log_of_an_old_volume_can_be_shown_and_not_compacted(
    old: OldVolume, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hadoop = tmp_path / "hadoop.json"
    hadoop.write_text(json.dumps(old.hadoop()))
    volume = f"s3k://{old.bucket.bucket}"

    async def s3k(*arguments: str) -> tuple[int, list[str], str]:
        code = await asyncio.to_thread(main, [*arguments, "--hadoop", str(hadoop)])
        out, errors = capsys.readouterr()
        return code, out.splitlines(), errors

    code, lines, _ = await s3k("oplog", "show", f"{volume}/logs/day=1/part-00007")
    assert code == 0
    assert len(lines) == 1
    assert "committed  update  v3   /logs/day=1/part-00007  1 byte" in lines[0]
    assert len((await s3k("oplog", "tail", volume, "-n", "30"))[1]) == 21
    code, _, errors = await s3k("oplog", "compact", volume, "--yes")
    assert (code, "cannot be compacted" in errors) == (ExitCode.DENIED, True)


async def test_it_becomes_a_native_volume_over_the_same_bytes(
    old: OldVolume, dynoxide: Engine, tmp_path: Path
) -> None:
    """As old jobs name the bytes, by S3A's scheme."""
    target = str(tmp_path / "old.dump")
    with fresh_table(dynoxide) as table:
        config = VolumeConfig("successor", table, old.bucket)
        async with S3kClient(f"s3k://{old.name}", hadoop=old.hadoop()) as fs:
            opened = await open_volume(fs.config)
        try:
            await dump_volume(opened, target)
            await load_volume(target, config, adopt=True, runtime=HURRIED)
            new = await open_volume(config)
            try:
                done = await retire_log(opened, new, dry_run=False, grace=-60.0)
            finally:
                await new.close()
        finally:
            await opened.close()
        assert (done.moved, done.reservations, done.differing) == (21, 1, [])
        async with S3kClient(config=config) as fs:
            for number in range(20):
                assert await fs.read(f"/logs/day=1/part-{number:05}") == b"%d" % number
        retired = [info.key async for info in list_all(old.blobs, RETIRED)]
        assert len(retired) == 21
