"""fsck of a volume that S3-FileSystem 1.0 writes to: its work in progress is a note, its damage is
a problem."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from s3k_async import S3kClient
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.config import MemoryTable, VolumeConfig
from s3k_async.errors import InvalidArgumentError, ServiceError
from s3k_async.integrity.repair import verify_volume
from s3k_async.integrity.verify import VerifyReport
from s3k_async.model import Progress
from s3k_async.oplog.binary_entries import JavaEntryV1, write_java
from s3k_async.volumes import init_volume, open_volume
from tests.engines.volumes import fresh_name
from tests.old_volume import CTIME, OldFiles, memory_volume


@pytest.fixture
async def old() -> tuple[OldFiles, VolumeConfig]:
    files, config = await memory_volume(fresh_name("old"))
    await files.directory("/logs")
    for number in range(20):
        await files.file(f"/logs/part-{number:05}", b"%d" % number, version=2 + number % 3)
    return files, config


async def verify(config: VolumeConfig, grace: float = -60.0) -> VerifyReport:
    volume = await open_volume(config)
    try:
        return await verify_volume(volume, grace=grace)
    finally:
        await volume.close()


def found(report: VerifyReport) -> set[tuple[str, str]]:
    return {(finding.kind, finding.path) for finding in report.problems}


def noted(report: VerifyReport) -> set[tuple[str, str]]:
    return {(finding.kind, finding.path) for finding in report.findings if not finding.is_problem}


async def test_a_stream_that_is_open_for_long_is_a_note(old: tuple[OldFiles, VolumeConfig]) -> None:
    files, config = old
    await files.reserve("/logs/open")
    report = await verify(config)
    assert found(report) == set()
    assert noted(report) == {("reservation_open", "/logs/open")}
    (note,) = report.findings
    assert "no leases" in note.detail
    assert report.clean


async def test_a_log_entry_of_the_first_format_always_disagrees(
    old: tuple[OldFiles, VolumeConfig],
) -> None:
    """It has neither the version nor the physical key."""
    files, config = old
    identity = await files.file("/logs/oldest", b"data", version=1, logged=False)
    entry = JavaEntryV1(f"ks://{files.name}/logs/oldest", 4, CTIME, committed=True)
    await files.blobs.put(f"{identity}.info", write_java(entry))
    report = await verify(config)
    assert found(report) == {("log_disagrees", "/logs/oldest")}
    assert "version" in report.problems[0].detail


async def test_a_directory_rename_under_way_is_a_note(old: tuple[OldFiles, VolumeConfig]) -> None:
    """At its target the directory has its id, one version on; files move one by one, the source
    goes last."""
    files, config = old
    identity = await files.directory("/source")
    kept = await files.file("/source/a", b"a")
    await files.directory("/target", identity=identity, version=2)
    report = await verify(config)
    assert found(report) == set()
    assert {kind for kind, _ in noted(report)} == {"rename_unfinished"}
    item = await files.items.get(files.key("/source/a"))
    assert item is not None
    await files.delete_item("/source/a")
    physical = str(item["physpath"])
    moved = files.item("/target/a", kept, 3, size=1, physpath=physical, physcommitted=True)
    await files.put_item(moved)
    await files.log("/target/a", kept, 3, physical=physical, size=1)
    assert found(await verify(config)) == set()
    await files.delete_item("/source")
    report = await verify(config)
    assert (found(report), noted(report)) == (set(), set())


async def test_damage_is_still_found(old: tuple[OldFiles, VolumeConfig]) -> None:
    files, config = old
    identity = await files.directory("/one")
    await files.directory("/two", identity=identity)
    await files.file("/unlogged", b"x", logged=False)
    item = await files.items.get(files.key("/logs/part-00000"))
    assert item is not None
    await files.put_item(
        {**item, **dict(zip(("path", "children"), files.key("/copy"), strict=True))}
    )
    assert {kind for kind, _ in found(await verify(config))} >= {"duplicate_id", "log_missing"}
    report = await verify(config)
    assert sum(finding.kind == "duplicate_id" for finding in report.problems) == 2


@pytest.mark.parametrize("leftover", [False, True])
async def test_without_a_log_nothing_is_compared_with_one(leftover: bool) -> None:
    files, config = await memory_volume(fresh_name("old"))
    for number in range(5):
        await files.file(f"/f{number}", b"x", logged=leftover)
    await files.reserve("/open", logged=leftover)
    report = await verify(replace(config, log_mode="disabled"))
    assert found(report) == set()
    assert noted(report) == {("reservation_open", "/open")}
    volume = await open_volume(replace(config, log_mode="disabled"))
    assert (volume.config.log, volume.record.log_mode, volume.log_blobs) == (None, "disabled", None)
    await volume.close()


async def test_a_native_volume_with_the_old_hash_is_native() -> None:
    """Adopted files are known, other volumes' items are foreign, and writers have leases."""
    files, old = await memory_volume(fresh_name("native"))
    await files.blobs.put("landing/a", b"adopted")
    config = VolumeConfig(
        fresh_name("volume"),
        MemoryTable(fresh_name("table")),
        old.data,
        hash="java31",
        suffix_count=4,
    )
    await init_volume(config)
    async with S3kClient(config=config) as client:
        assert (await client.adopt_many([("/a", files.blobs.uri("landing/a"))])).files == 1
        report = await verify(client.config)
    assert found(report) == set()


async def test_a_check_of_another_table_of_the_same_name_is_not_resumed(tmp_path: Path) -> None:
    """Volumes of S3-FileSystem 1.0 have no id."""
    name = fresh_name("old")

    def fail(progress: Progress) -> None:
        if progress.phase == "comparing" and progress.done == progress.total:
            raise ServiceError("down", service_code="X")

    _, config = await memory_volume(name)
    volume = await open_volume(config)
    with pytest.raises(ServiceError):
        await verify_volume(volume, grace=-60.0, directory=str(tmp_path), progress=fail)
    await volume.close()
    await MemoryItems(f"{name}-other").create()
    other = replace(config, table=MemoryTable(f"{name}-other"))
    copied = await open_volume(other)
    try:
        with pytest.raises(InvalidArgumentError):
            await verify_volume(copied, grace=-60.0, directory=str(tmp_path))
    finally:
        await copied.close()
