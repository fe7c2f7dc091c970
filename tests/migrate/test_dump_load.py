"""Dumps, and volumes that are loaded from them."""

from __future__ import annotations

import json
import os
import shutil
import stat
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from s3k_async import S3kClient
from s3k_async.config import LocalDirectory, SqliteFile, VolumeConfig
from s3k_async.errors import (
    BusyError,
    CorruptDataError,
    DataMissingError,
    DirectoryNotEmptyError,
    InvalidArgumentError,
    IsDirectoryError,
    NotDirectoryError,
    PathNotFoundError,
    PermissionDeniedError,
    S3kError,
    UnsupportedError,
    VolumeNotFoundError,
)
from s3k_async.migrate import LoadResult, dump_volume, load_volume
from s3k_async.migrate.dump_format import DumpForm
from s3k_async.migrate.dump_reader import open_dump
from s3k_async.migrate.load_batch import LoadTarget
from s3k_async.model import Entry, LayoutName
from s3k_async.oplog.entries import LogRecord
from s3k_async.oplog.log_reader import LogReader, latest
from s3k_async.testing import Call, Died, FaultPlan
from s3k_async.volumes import init_volume
from tests.engines.volumes import VolumeMaker, volume_backends
from tests.migrate.rig import (
    FILES,
    HURRIED,
    config,
    entries,
    keys,
    made,
    opened,
    rewritten,
    share,
    stored,
)
from tests.support import after_call, from_call, under

pytestmark = pytest.mark.layouts("path", "tree")
FORMS: list[DumpForm] = ["jsonl", "parquet"]


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> DumpForm:
    chosen: DumpForm = request.param
    return chosen


@pytest.fixture
def target(tmp_path: Path) -> str:
    return str(tmp_path / "volume.dump")


def bytes_of(path: str) -> bytes:
    return Path(path).read_bytes()


def put(path: str, data: bytes) -> None:
    Path(path).write_bytes(data)


def lines_of(path: str) -> list[str]:
    return bytes_of(path).decode("ascii").splitlines()


async def dump(
    settings: VolumeConfig, target: str, form: DumpForm = "jsonl", **options: Any
) -> None:
    async with opened(settings) as volume:
        await dump_volume(volume, target, form=form, **options)


async def load(source: str, settings: VolumeConfig, **options: Any) -> LoadResult:
    return await load_volume(source, settings, runtime=HURRIED, **options)


def plain(found: dict[str, Entry]) -> dict[str, Entry]:
    return {path: replace(entry, pending="") for path, entry in found.items()}


async def test_what_is_loaded_is_what_was_dumped_whatever_the_suffix_count(
    form: DumpForm, target: str
) -> None:
    source = await made(config(4))
    await dump(source, target, form)
    wanted = await entries(source)
    for other in (config(1), config(17, hash="java31"), config(4)):
        await share(source, other)
        done = await load(target, other, check=True)
        assert plain(await entries(other)) == plain(wanted)
        assert (done.entries, done.made, done.skipped) == (len(wanted), 0, 0)
        assert done.files == sum(not entry.is_dir for entry in wanted.values())
        await keys(other)
        async with S3kClient(config=other) as fs:
            for path, data in FILES.items():
                assert await fs.read(path) == (b"one, again" if path == "/a/1" else data)
            await fs.rename("/a", "/moved")
            assert await fs.read("/moved/deep/er/3") == FILES["/a/deep/er/3"]


async def test_a_volume_that_does_not_exist_gets_the_suffix_count_of_the_dump(target: str) -> None:
    source = await made(config(7, hash="java31"))
    await dump(source, target)
    other = config(None)
    async with opened(source) as volume:
        await load(target, other, bytes_from=volume)
    async with opened(other) as volume:
        assert (volume.record.suffix_count, volume.record.hash) == (7, "java31")
    await keys(other)


async def test_bytes_are_copied_along(form: DumpForm, target: str) -> None:
    source, other = await made(config(3)), config(5)
    await dump(source, target, form)
    async with opened(source) as volume:
        await load(target, other, bytes_from=volume)
    before, after = await entries(source), await entries(other)
    async with S3kClient(config=source) as fs:
        await fs.delete("/a", recursive=True)
    async with S3kClient(config=other) as fs:
        assert await fs.read("/a/deep/er/3") == FILES["/a/deep/er/3"]
    for path, entry in after.items():
        was = before[path]
        assert (entry.physical is None) == entry.is_dir
        assert entry.is_dir or entry.physical != was.physical
        assert replace(entry, physical=was.physical, etag=was.etag) == was


@volume_backends("embedded", "dynoxide+seaweedfs", "dynamodb_local+seaweedfs")
async def test_from_one_engine_to_another_and_back(
    new_volume: VolumeMaker, layout: LayoutName, tmp_path: Path
) -> None:
    """Entry for entry; the bytes are copied, so the physical keys are others."""
    first, third = new_volume(layout=layout), new_volume(layout=layout)
    second = VolumeConfig(
        "second",
        SqliteFile(str(tmp_path / "v" / "t.db")),
        LocalDirectory(str(tmp_path / "v" / "d")),
        layout=layout,
    )
    await made(first)
    for number, (source, other) in enumerate([(first, second), (second, third)]):
        path = str(tmp_path / f"{number}.dump")
        await dump(source, path, FORMS[number])
        async with opened(source) as volume:
            await load(path, other, bytes_from=volume)

    def without_bytes(found: dict[str, Entry]) -> dict[str, Entry]:
        return {path: replace(entry, physical=None, etag="") for path, entry in found.items()}

    assert without_bytes(await entries(third)) == without_bytes(await entries(first))
    async with S3kClient(config=replace(third, suffix_count=None)) as fs:
        assert await fs.read("/a/deep/er/3") == FILES["/a/deep/er/3"]


async def test_a_dump_is_text_that_anybody_can_read(target: str) -> None:
    source = await made(config())
    await dump(source, target)
    lines = [json.loads(line) for line in lines_of(target)]
    assert lines[0]["s3k"] == "dump"
    assert lines[0]["volume"] == source.name
    assert {line["path"] for line in lines[1:-1]} == set(await entries(source))
    assert lines[-1]["entries"] == len(lines) - 2
    for place, line in enumerate(lines[1:-1]):
        parent = os.path.dirname(line["path"])
        assert parent == "/" or parent in {before["path"] for before in lines[1 : place + 1]}


async def test_a_dump_in_parquet_has_the_columns_of_a_listing(target: str) -> None:
    source = await made(config())
    await dump(source, target, "parquet")
    table = pq.read_table(target)
    assert table.column_names[-2:] == ["op", "lease"]
    assert set(table["path"].to_pylist()) == set(await entries(source))
    assert pa.compute.sum(table["size"]).as_py() == sum(
        entry.size for entry in (await entries(source)).values()
    )


async def test_a_dump_of_a_path_brings_its_parents_along_when_it_is_loaded(target: str) -> None:
    source = await made(config())
    await dump(source, target, path="/a/deep/er")
    other = config()
    async with opened(source) as volume:
        done = await load(target, other, bytes_from=volume)
    assert set(await entries(other)) == {"/a", "/a/deep", "/a/deep/er", "/a/deep/er/3"}
    assert done.made == 2
    with pytest.raises(PathNotFoundError):
        await dump(source, target, path="/nowhere")
    await dump(source, target, path="/top")
    assert open_dump(target).verify().entries == 1


async def test_reservations_are_dumped_if_asked_for(form: DumpForm, target: str) -> None:
    source = await made(config())
    async with S3kClient(config=source) as fs:
        file = await fs.open("/a/reserved", "xb")
        await dump(source, target, form)
        assert "/a/reserved" not in {
            entry.path for chunk in open_dump(target).chunks() for entry in chunk
        }
        await dump(source, target, form, include_uncommitted=True)
        await file.close()
    other = config()
    await share(source, other)
    await load(target, other, check=True)
    found = (await entries(other))["/a/reserved"]
    assert found.is_reservation
    assert found.lease_ms > 0


async def test_what_was_loaded_is_in_the_log(target: str) -> None:
    source, other = await made(config()), config(9)
    await dump(source, target)
    async with opened(source) as volume:
        await load(target, other, bytes_from=volume)
    async with opened(other) as volume:
        assert volume.log_blobs is not None
        records = [record async for record in LogReader(volume.log_blobs).records()]
        truths = latest([record for record in records if isinstance(record, LogRecord)])
    logged = {truth.committed.operation.after.path for truth in truths.values()}  # type: ignore[union-attr]
    assert logged == set(await entries(other))


async def test_a_volume_with_more_entries_than_a_portion(
    form: DumpForm, target: str, monkeypatch: Any
) -> None:
    for module in ("dump_format", "dump_jsonl", "dump_parquet", "dump"):
        monkeypatch.setattr(f"s3k_async.migrate.{module}.CHUNK", 7)
    source, other = config(), config(3)
    await init_volume(source)
    async with S3kClient(config=source) as fs:
        await fs.write_many([(f"/d{number % 3}/{number:03}", b"x") for number in range(100)])
    await dump(source, target, form)
    await share(source, other)
    told: list[int] = []
    done = await load(
        target, other, check=True, progress=lambda progress: told.append(progress.done)
    )
    assert plain(await entries(other)) == plain(await entries(source))
    assert told[-1] == done.entries == 103
    assert len(told) == 15


# What is refused changes nothing


async def test_a_truncated_dump_is_refused_wherever_it_was_cut(
    form: DumpForm, target: str, tmp_path: Path
) -> None:
    source, other = await made(config()), config()
    await dump(source, target, form)
    whole = bytes_of(target)
    places = {
        0,
        1,
        3,
        4,
        5,
        len(whole) // 2,
        len(whole) - 1,
        *range(0, len(whole), max(1, len(whole) // 60)),
    }
    if form == "jsonl":
        places |= {at + 1 for at, byte in enumerate(whole[:-1]) if byte == ord("\n")}
    cut = tmp_path / "cut.dump"
    for place in sorted(places):
        cut.write_bytes(whole[:place])
        with pytest.raises(CorruptDataError) as caught:
            await load(str(cut), other)
        assert caught.value.path == str(cut)
    with pytest.raises(VolumeNotFoundError):
        await entries(other)


async def test_a_damaged_dump_is_refused(form: DumpForm, target: str, tmp_path: Path) -> None:
    source, other = await made(config()), config()
    await dump(source, target, form)
    whole = bytes_of(target)
    bad = tmp_path / "bad.dump"
    for place in range(0, len(whole), max(1, len(whole) // 97)):
        bad.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(S3kError) as caught:
            await load(str(bad), other, bytes_from=None)
        assert isinstance(caught.value, CorruptDataError | InvalidArgumentError)
        if form == "jsonl":
            assert isinstance(caught.value, CorruptDataError)
    for text in (
        b"",
        b"{}\n",
        b"[1]\n",
        b'{"s3k":"dump"}\n',
        b'{"s3k":"dump","format":2}\n',
        b"PAR1",
        b"\xff\n",
    ):
        bad.write_bytes(text)
        with pytest.raises(CorruptDataError):
            await load(str(bad), other)
    bad.write_bytes(whole + b"more")
    with pytest.raises(CorruptDataError):
        await load(str(bad), other)
    with pytest.raises(PathNotFoundError):
        await load(str(tmp_path / "none"), other)


ODD: dict[str, Any] = {
    "a path twice": lambda found: [*found, found[0]],
    "a path that is not normal": lambda found: [{**found[0], "path": "/a/../b"}, *found],
    "the root": lambda found: [{**found[0], "path": "/"}, *found],
    "a name that is too long": lambda found: [{**found[0], "path": "/" + "x" * 1025}, *found],
    "no id": lambda found: [{**found[0], "id": ""}, *found],
    "version 0": lambda found: [{**found[0], "version": 0}, *found],
    "a file without bytes": lambda found: [
        {**found[0], "path": "/f", "is_dir": False, "committed": True},
        *found,
    ],
}


@pytest.mark.parametrize("odd", ODD)
async def test_a_dump_with_what_is_no_entry_is_refused(odd: str, target: str) -> None:
    source, other = await made(config()), config()
    await init_volume(other)
    await dump(source, target)
    rewritten(target, ODD[odd])
    async with opened(source) as volume:
        with pytest.raises(S3kError) as caught:
            await load(target, other, bytes_from=volume)
    assert type(caught.value).__name__ in ("CorruptDataError", "InvalidPathError")
    assert await stored(other) == []
    async with S3kClient(config=other) as fs:
        await fs.write("/as/before", b"")


async def test_a_volume_that_is_not_empty_is_not_loaded(target: str) -> None:
    source, other = await made(config()), await made(config())
    before = await stored(other)
    await dump(source, target)
    async with opened(source) as volume:
        with pytest.raises(DirectoryNotEmptyError):
            await load(target, other, bytes_from=volume)
    assert await stored(other) == before


async def test_what_was_written_before_everybody_noticed_counts_as_well(target: str) -> None:
    source, other = await made(config()), config()
    await init_volume(other)
    await dump(source, target)
    async with opened(source) as volume, S3kClient(config=other) as late:

        async def sleep(seconds: float) -> None:
            if seconds == 40:
                await late.write("/late", b"acknowledged")

        with pytest.raises(DirectoryNotEmptyError):
            await load_volume(
                target, other, bytes_from=volume, runtime=replace(HURRIED, sleep=sleep)
            )
    assert set(await entries(other)) == {"/late"}


async def test_entries_without_their_bytes_are_refused(target: str) -> None:
    source, other = await made(config()), config()
    await init_volume(other)
    await dump(source, target)
    with pytest.raises(InvalidArgumentError, match="bytes are not here"):
        await load(target, other)
    with pytest.raises(DataMissingError, match="/a/1"):
        await load(target, other, check=True)
    wrong = await made(config())
    async with opened(wrong) as volume:
        with pytest.raises(InvalidArgumentError, match="not of the volume"):
            await load(target, other, bytes_from=volume)
    assert await stored(other) == []


async def test_a_lost_table_is_loaded_where_its_bytes_still_are(
    tmp_path: Path, target: str, layout: LayoutName
) -> None:
    home = tmp_path / "v"
    source = VolumeConfig(
        "v",
        SqliteFile(str(home / "t.db")),
        LocalDirectory(str(home / "data")),
        layout=layout,
    )
    await made(source)
    wanted = await entries(source)
    await dump(source, target)
    for suffix in ("", "-wal", "-shm"):
        (home / f"t.db{suffix}").unlink(missing_ok=True)
    await load(target, replace(source, suffix_count=2))
    assert plain(await entries(source)) == plain(wanted)
    async with S3kClient(config=source) as fs:
        assert await fs.read("/top") == b"top"
    shutil.rmtree(home)


async def test_a_path_that_leads_through_a_file_stops_the_load(target: str) -> None:
    source, other = await made(config()), config()
    await dump(source, target)

    def through(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        files = [entry for entry in found if not entry["is_dir"]]
        return [files[0], {**files[1], "path": f"{files[0]['path']}/below"}]

    rewritten(target, through)
    async with opened(source) as volume:
        with pytest.raises(NotDirectoryError):
            await load(target, other, bytes_from=volume)


async def test_a_dump_replaces_a_file_when_it_is_whole(target: str, monkeypatch: Any) -> None:
    source = await made(config())
    put(target, b"before")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("s3k_async.migrate.dump.os.fsync", full)
    with pytest.raises(S3kError) as caught:
        await dump(source, target)
    assert caught.value.code == "no_space"
    assert bytes_of(target) == b"before"
    assert os.listdir(os.path.dirname(target)) == [os.path.basename(target)]
    monkeypatch.undo()
    await dump(source, target)
    assert open_dump(target).verify().files > 0
    with pytest.raises((PermissionDeniedError, S3kError)):
        await dump(source, str(Path(target) / "below"))


async def test_bytes_that_cannot_be_copied_stop_the_load_before_anything_is_changed(
    target: str,
) -> None:
    """The volume was left locked, for a load that could never be finished."""
    source, other = await made(config()), config()
    async with opened(source) as volume:
        entry = await volume.store.get("/top")
        assert entry is not None
        await volume.store.restore(replace(entry, physical="s3://elsewhere/adopted"), entry)
        await dump_volume(volume, target)
        with pytest.raises(UnsupportedError, match="outside"):
            await load(target, other, bytes_from=volume)
    assert await entries(other) == {}


async def test_a_dump_does_not_replace_a_pipe_or_a_device(tmp_path: Path) -> None:
    """As the superuser, `-o /dev/null` would make a file of it, for everybody."""
    source = await made(config())
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for odd, error in ((pipe, UnsupportedError), (tmp_path, IsDirectoryError)):
        with pytest.raises(error, match=str(odd)):
            await dump(source, str(odd))
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert os.listdir(tmp_path) == ["pipe"]


# Interrupted


async def calls_of_a_load(target: str, source: VolumeConfig) -> list[Call]:
    plan = FaultPlan()
    async with opened(source) as volume:
        await under(plan, load(target, config(3), bytes_from=volume))
    return plan.calls


@pytest.mark.parametrize("moment", [pytest.param("before", marks=pytest.mark.slow), "after"])
async def test_a_load_that_dies_at_any_call_is_finished_by_loading_again(
    moment: Any, target: str, monkeypatch: Any
) -> None:
    for module in ("dump_format", "dump_jsonl", "dump"):
        monkeypatch.setattr(f"s3k_async.migrate.{module}.CHUNK", 4)
    source = config(2)
    await init_volume(source)
    async with S3kClient(config=source) as fs:
        await fs.write_many([(f"/d{number % 2}/{number}", b"x") for number in range(6)])
    await dump(source, target)
    wanted = await entries(source)
    for number in range(1, len(await calls_of_a_load(target, source)) + 1):
        other, plan = config(3), FaultPlan()
        plan.fail_when(
            from_call(number),
            Died("died"),
            when=moment,
        )
        plan.fail_when(after_call(number), Died("dead"), times=10**9)
        async with opened(source) as volume:
            with suppress(Died, BaseExceptionGroup):  # no two loads make exactly as many calls
                await under(plan, load(target, other, bytes_from=volume))
            await _finish(target, other, volume)
        found = await entries(other)
        assert found.keys() == wanted.keys()
        assert len(await stored(other)) == len(found)
        assert {path: entry.id for path, entry in found.items()} == {
            path: entry.id for path, entry in wanted.items()
        }
        await keys(other)
        async with S3kClient(config=other) as fs:
            for path, entry in found.items():
                assert entry.is_dir or await fs.read(path) == b"x"


async def test_a_load_of_a_single_entry_that_was_interrupted_is_finished(target: str) -> None:
    """Its record in the log was there already, of another time, and the load failed ever after."""
    source, other, plan = config(2), config(3), FaultPlan()
    await init_volume(source)
    async with S3kClient(config=source) as fs:
        await fs.write("/f", b"x")
    await dump(source, target)
    plan.fail_when(lambda call: call.method == "load", PermissionDeniedError("no more"))
    async with opened(source) as volume:
        with pytest.raises(PermissionDeniedError):
            await under(plan, load(target, other, bytes_from=volume))
        await load(target, other, bytes_from=volume)
    assert set(await entries(other)) == {"/f"}


async def test_entries_that_are_loaded_twice_are_logged_as_one_operation() -> None:
    """Entries of a table of S3-FileSystem 1.0 have none; two of them for one version would
    contradict each other."""
    source, other = await made(config(4)), config(3)
    wanted = [replace(entry, operation="") for entry in (await entries(source)).values()]
    await init_volume(other)
    async with opened(other) as volume:
        landing = LoadTarget(volume, "dump", "name of the dump", HURRIED.now_ms())
        with volume.items.loading(lambda: None):
            for _ in range(2):
                await landing.load(wanted, lambda: None)
        assert volume.log_blobs is not None
        truths = latest([record async for record in LogReader(volume.log_blobs).records()])
    found = {entry.id: entry.operation for entry in (await entries(other)).values()}
    assert {
        each: truth.committed and truth.committed.operation.id for each, truth in truths.items()
    } == found
    assert not any(truth.conflict or truth.pending for truth in truths.values())


async def _finish(target: str, other: VolumeConfig, source: Any) -> None:
    """Load again, once the lease of the dead is over; if it died at the very end there is nothing
    to finish."""
    later = replace(HURRIED, now_ms=lambda: HURRIED.now_ms() + 100_000)
    with suppress(DirectoryNotEmptyError):
        await load_volume(target, other, bytes_from=source, runtime=later)


async def test_an_interrupted_load_keeps_the_volume_closed_and_goes_on_where_it_was(
    target: str, monkeypatch: Any
) -> None:
    for module in ("dump_format", "dump_jsonl", "dump"):
        monkeypatch.setattr(f"s3k_async.migrate.{module}.CHUNK", 10)
    source, other = config(2), config(3)
    await init_volume(source)
    async with S3kClient(config=source) as fs:
        await fs.write_many([(f"/{number:02}", b"x") for number in range(50)])
    await dump(source, target)
    plan = FaultPlan()
    loads = []

    def third(call: Call) -> bool:
        loads.extend([call] * (call.method == "load"))
        return call.method == "load" and len(loads) > 2

    plan.fail_when(third, PermissionDeniedError("no more"))
    async with opened(source) as volume:
        with pytest.raises(PermissionDeniedError):
            await under(plan, load(target, other, bytes_from=volume))
        with pytest.raises(BusyError, match="a load of the volume"):
            async with S3kClient(config=other):
                raise AssertionError
        again = await load(target, other, bytes_from=volume)
    assert again.skipped == 20
    assert set(await entries(other)) == {f"/{number:02}" for number in range(50)}
