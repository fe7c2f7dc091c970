"""Objects that others have stored become files where they are, and are nobody's to delete."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from s3k_async._core.runtime import SYSTEM
from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.backends.local.local_blobs import LocalBlobs
from s3k_async.backends.ports.items import Condition, Update
from s3k_async.client import S3kClient
from s3k_async.config import LocalDirectory, SqliteFile, VolumeConfig
from s3k_async.errors import (
    ArgumentTypeError,
    BlobChangedError,
    CorruptDataError,
    DataMissingError,
    InvalidArgumentError,
    InvalidPathError,
    IsDirectoryError,
    NotDirectoryError,
    OutcomeUnknownError,
    PathExistsError,
    S3kError,
    ServiceError,
    UnsupportedError,
)
from s3k_async.integrity.audit import AuditTrail
from s3k_async.integrity.gc_mark import CollectedData
from s3k_async.integrity.gc_rules import Ages
from s3k_async.integrity.gc_sweep import GarbageCollector
from s3k_async.integrity.repair import repair_volume, verify_volume
from s3k_async.model import ChangeResult, Progress
from s3k_async.oplog.log_reader import LogReader
from s3k_async.testing import Call, FaultPlan
from s3k_async.txn import volume_lock
from s3k_async.volumes import init_volume
from s3k_async.volumes.claims import CLAIM
from s3k_async.volumes.restoration import restore_volume
from tests.client.rig import faulty_client, memory_config
from tests.client.transacting import both_ways, contents, fill
from tests.engines.volumes import volume_backends
from tests.integrity.verifier import Verifier
from tests.trees.conftest import plant

pytestmark = pytest.mark.layouts("path", "tree")

everywhere = volume_backends("memory", "embedded", "dynoxide+seaweedfs")

OBJECTS = {
    "bronze/day=1/part-0": b"adopted",
    "bronze/a b%41é.parquet": b"with a name that a URI escapes",
    "zoo/long": b"long" * 200,
    "empty": b"",
}
"""By key. Some begin with a hexadecimal digit, as physical keys do, and some do not."""


async def store_foreign(fs: S3kClient) -> dict[str, str]:
    """Put the objects where the volume's data is, as another program would; their URIs by key."""
    blobs = fs._volume().place
    for key, data in OBJECTS.items():
        await blobs.put(key, data)
    return {key: blobs.uri(key) for key in OBJECTS}


async def foreign(fs: S3kClient) -> dict[str, bytes]:
    """What of it is there."""
    blobs = fs._volume().place
    return {key: await blobs.get(key) for key in OBJECTS if await blobs.head(key) is not None}


async def adopt_all(fs: S3kClient) -> dict[str, bytes]:
    """Every object as a file; what is to be read at the paths."""
    uris = await store_foreign(fs)
    async with fs.transaction() as tx:
        for number, uri in enumerate(uris.values()):
            await tx.adopt(f"/in/{number}", uri)
    return {f"/in/{number}": data for number, data in enumerate(OBJECTS.values())}


async def findings(fs: S3kClient, *, deep: bool = True) -> list[tuple[str, str]]:
    """What fsck says when nothing is young."""
    volume = fs._volume()
    await volume.log.drained()
    assert volume.log_blobs is not None
    later = replace(SYSTEM, now_ms=lambda: SYSTEM.now_ms() + 10**9)
    verifier = Verifier(
        volume.store,
        volume.blobs,
        LogReader(volume.log_blobs),
        later,
        grace=60.0,
        place=volume.place,
    )
    return [
        (each.kind, each.key)
        for each in (await verifier.verify(deep=deep)).findings
        if each.is_problem
    ]


async def collect(fs: S3kClient, directory: Path) -> int:
    """`s3k gc` to which everything is old; how many objects were deleted."""
    volume = fs._volume()
    await volume.log.drained()
    assert volume.log_blobs is not None
    place = CollectedData.of(volume)
    audit = AuditTrail(volume.log_blobs, SYSTEM.uuid())
    collector = GarbageCollector(place, SYSTEM, Ages(grace=-100.0, lease=0.0, late=-100.0), audit)
    path = str(directory / "candidates")
    await collector.clean_up(await collector.mark(path))
    swept = await collector.sweep(path)
    assert swept.failures == []
    return sum(count.objects for count in swept.deleted.values())


@pytest.mark.layouts("path")
@everywhere
@both_ways
async def test_an_adopted_object_is_a_file_like_any_other(fs: S3kClient) -> None:
    await fs.write("/in/0", b"old")
    uris = await store_foreign(fs)
    async with fs.transaction() as tx:
        for number, uri in enumerate(uris.values()):
            await tx.adopt(f"/in/{number}", uri, overwrite=True)
        assert await contents(fs) == {"/in": None, "/in/0": b"old"}
    files = {f"/in/{number}": data for number, data in enumerate(OBJECTS.values())}
    assert await contents(fs) == {"/in": None, **files}
    assert tx.result.bytes == sum(map(len, OBJECTS.values()))
    assert await fs.read_many(list(files)) == list(files.values())
    for (path, data), uri in zip(files.items(), uris.values(), strict=True):
        status = await fs.stat(path)
        assert (status.size, status.committed, status.checksum, status.physical) == (
            len(data),
            True,
            "",
            uri,
        )
        assert await fs.physical_path(path) == uri
        assert await fs.read_ranges(path, [(0, 3), (2, 9)]) == [data[:3], data[2:9]]
        async with fs.open(path) as file:
            assert await file.read() == data
        await fs.copy(path, f"/copy{path}")
        assert await fs.read(f"/copy{path}") == data
        assert await fs.checksum(path) == await fs.checksum(f"/copy{path}")
    await fs.rename("/in", "/moved")
    assert await fs.read("/moved/2") == OBJECTS["zoo/long"]
    assert await findings(fs) == []


@pytest.mark.layouts("path")
@everywhere
async def test_gc_and_fsck_leave_adopted_bytes_alone(fs: S3kClient, tmp_path: Path) -> None:
    files = await adopt_all(fs)
    assert await findings(fs) == []
    assert await collect(fs, tmp_path) == 0
    await fs.write("/in/0", b"new")
    await fs.delete("/in/1")
    await fs.rename("/in/2", "/in/3", overwrite=True)
    await repair_volume(fs._volume(), dry_run=False, grace=0.0)
    assert await collect(fs, tmp_path) == 0
    assert await foreign(fs) == OBJECTS
    assert await contents(fs) == {"/in": None, "/in/0": b"new", "/in/3": files["/in/2"]}
    # They are again what they were before: somebody else's.
    assert {kind for kind, _ in await findings(fs)} <= {"foreign_blob"}
    await fs.delete("/in", recursive=True)
    assert await collect(fs, tmp_path) == 1
    assert await foreign(fs) == OBJECTS


async def test_verify_tells_an_adopted_object_that_is_gone_or_changed() -> None:
    async with faulty_client(FaultPlan()) as fs:
        await adopt_all(fs)
        blobs = fs._volume().place
        await blobs.delete("bronze/day=1/part-0")
        await blobs.put("zoo/long", b"short")
        assert {kind for kind, _ in await findings(fs)} == {"data_missing", "size_mismatch"}
        with pytest.raises(DataMissingError):
            await fs.read("/in/0")


REPLACEMENTS = {
    "longer": b"longer than it was",
    "shorter": b"short",
    "as long": b"replacd",
    "empty": b"",
}


@pytest.mark.layouts("path")
@everywhere
@pytest.mark.parametrize("replacement", REPLACEMENTS.values(), ids=list(REPLACEMENTS))
async def test_a_replaced_object_is_never_read(fs: S3kClient, replacement: bytes) -> None:
    """Whatever reads or copies it says that it was replaced, until what is there now is adopted."""
    await adopt_all(fs)
    blobs = fs._volume().place
    await blobs.put("bronze/day=1/part-0", replacement)
    opened = await fs.open("/in/0")
    reads: dict[str, Callable[[], Awaitable[object]]] = {
        "read": lambda: fs.read("/in/0"),
        "ranges": lambda: fs.read_ranges("/in/0", [(1, 3), (4, 9)]),
        "read to the end": opened.read,
        "read at": lambda: opened.read_at(2, 4),
        "checksum": lambda: fs.checksum("/in/0"),
        "copy": lambda: fs.copy("/in/0", "/copy"),
    }
    for name, read in reads.items():
        with pytest.raises(CorruptDataError, match="adopt") as raised:
            await read()
        assert (raised.value.path, blobs.uri("bronze/day=1/part-0") in str(raised.value)) == (
            "/in/0",
            True,
        ), name
    (many,) = await fs.read_each(["/in/0"])
    assert isinstance(many, CorruptDataError)
    assert not await fs.exists("/copy")
    kind = "etag_mismatch" if len(replacement) == len(b"adopted") else "size_mismatch"
    assert [kind] == [found for found, _ in await findings(fs, deep=False)]
    async with fs.transaction() as tx:
        await tx.adopt("/in/0", blobs.uri("bronze/day=1/part-0"), overwrite=True)
    assert await fs.read("/in/0") == replacement


@everywhere
async def test_an_empty_object_that_was_replaced_is_not_read_as_empty(fs: S3kClient) -> None:
    await adopt_all(fs)
    assert await fs.read("/in/3") == b""
    assert await (await fs.open("/in/3")).read() == b""
    await fs._volume().place.put("empty", b"not any more")
    with pytest.raises(CorruptDataError, match="adopt"):
        await fs.read("/in/3")
    with pytest.raises(CorruptDataError, match="adopt"):
        await (await fs.open("/in/3")).read()


async def test_without_an_etag_the_size_tells_that_an_object_was_replaced() -> None:
    async with faulty_client(FaultPlan()) as fs:
        await adopt_all(fs)
        store = fs._volume().store
        entry = await store.get("/in/0")
        assert entry is not None
        await store.items.write(Update(store.keys.key("/in/0"), Condition(), remove=("etag",)))
        await fs._volume().place.put("bronze/day=1/part-0", b"longer than it was")
        with pytest.raises(CorruptDataError, match="adopt"):
            await fs.read_ranges("/in/0", [(0, 3)])


async def test_a_file_that_was_written_in_place_is_another(tmp_path: Path) -> None:
    blobs = LocalBlobs(tmp_path / "data")
    await blobs.create()
    (tmp_path / "data" / "feed").write_bytes(b"adopted")
    info = await blobs.head("feed")
    assert info is not None
    with (tmp_path / "data" / "feed").open("r+b") as file:
        file.write(b"another")
    os.utime(tmp_path / "data" / "feed", ns=(1, 1))
    with pytest.raises(BlobChangedError):
        await blobs.get("feed", if_match=info.etag)


async def test_verify_asks_for_each_adopted_object_once() -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        await adopt_all(fs)
        before = len(faults.calls)
        assert await findings(fs, deep=False) == []
        asked = [call.method for call in faults.calls[before:]]
        assert asked.count("head") == len(OBJECTS)
        assert "get_many" not in asked


async def test_a_lost_table_gets_its_adopted_files_back(monkeypatch: pytest.MonkeyPatch) -> None:
    from s3k_async.backends.memory.memory_items import MemoryItems

    config = memory_config()
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        files = await adopt_all(fs)
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0, raising=False)
    await MemoryItems(config.name).drop()
    await restore_volume(config, dry_run=False)
    async with S3kClient(config=config) as fs:
        assert await contents(fs) == {"/in": None, **files}


@everywhere
async def test_what_cannot_be_adopted(fs: S3kClient) -> None:
    await fs.write("/d/f", b"x")
    own = (await fs.stat("/d/f")).physical
    blobs, log = fs._volume().place, fs._volume().log_blobs
    assert own is not None
    assert log is not None
    in_s3 = blobs.uri("-").startswith("s3:")
    refused: list[tuple[object, type[S3kError]]] = [
        (blobs.uri("bronze/nobody"), DataMissingError),
        (blobs.uri(own), UnsupportedError),
        (blobs.uri(CLAIM), UnsupportedError),
        (log.uri("segments/x"), UnsupportedError),
        (
            "s3://another-bucket/bronze/day=1/part-0",
            DataMissingError if in_s3 else UnsupportedError,
        ),
        ("file:///etc/passwd", UnsupportedError),
        ("bronze/day=1/part-0", UnsupportedError),
        (blobs.uri("x").removesuffix("x") + "../x", UnsupportedError),
        (b"bytes", ArgumentTypeError),
    ]
    before = await contents(fs)
    for uri, error in refused:
        async with fs.transaction() as tx:
            with pytest.raises(error):
                await tx.adopt("/d/g", uri)  # type: ignore[arg-type]
            await tx.makedirs("/d")
    result = await fs.adopt_many([(f"/n/{number}", uri) for number, (uri, _) in enumerate(refused)])  # type: ignore[misc]
    assert result.files == 0
    assert {path: type(error) for path, error in result.failures} == {
        f"/n/{number}": error for number, (_, error) in enumerate(refused)
    }
    assert await contents(fs) == before


@both_ways
async def test_what_fails_leaves_the_object_alone() -> None:
    async with faulty_client(FaultPlan()) as fs:
        await fill(fs)
        uris = await store_foreign(fs)
        before = await contents(fs)
        uri = uris["empty"]
        for path, error in [
            ("/d/f", PathExistsError),
            ("/d", IsDirectoryError),
            ("/d/f/g", NotDirectoryError),
        ]:
            tx = fs.transaction()
            await tx.adopt(path, uri)
            with pytest.raises(error):
                await tx.commit()
        tx = fs.transaction()
        await tx.adopt("/n", uri)
        with pytest.raises(InvalidArgumentError):
            await tx.adopt("/m", uri)
        with pytest.raises(InvalidArgumentError):
            await tx.adopt("/n", uris["zoo/long"])
        with pytest.raises(IsDirectoryError):
            await tx.adopt("/", uris["zoo/long"])
        await tx.discard()
        assert await contents(fs) == before
        assert await foreign(fs) == OBJECTS


async def test_a_path_whose_object_could_not_be_looked_at_is_free() -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        uris = await store_foreign(fs)
        async with fs.transaction() as tx:
            faults.fail_when(
                lambda call: call.method == "head", ServiceError("no", service_code="No")
            )
            with pytest.raises(ServiceError):
                await tx.adopt("/f", uris["zoo/long"])
            await tx.adopt("/f", uris["zoo/long"])
        assert await fs.read("/f") == OBJECTS["zoo/long"]


async def test_after_an_unknown_outcome_it_can_be_tried_again() -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        uris = await store_foreign(fs)

        async def adopt() -> None:
            async with fs.transaction() as tx:
                await tx.adopt("/d/f", uris["empty"])
                await tx.adopt("/d/g", uris["zoo/long"])

        faults.fail_when(
            lambda call: call.method == "transact", OutcomeUnknownError("lost"), when="after"
        )
        with pytest.raises(OutcomeUnknownError):
            await adopt()
        before = await fs.stat("/d/g")
        await adopt()
        assert await fs.stat("/d/g") == before


async def many_foreign(fs: S3kClient, number: int) -> list[tuple[str, str]]:
    blobs = fs._volume().place
    for each in range(number):
        await blobs.put(f"bronze/{each}", b"%d" % each)
    return [(f"/t/p={each % 3}/{each}", blobs.uri(f"bronze/{each}")) for each in range(number)]


@everywhere
async def test_many_are_adopted_together(fs: S3kClient) -> None:
    await fs.makedirs("/t")
    pairs = await many_foreign(fs, 230)
    told: list[Progress] = []
    with fs.count() as counted:
        result = await fs.adopt_many((pair for pair in pairs), progress=told.append)
    assert result == ChangeResult(230, 0, sum(len(str(each)) for each in range(230)))
    assert (told[-1].operation, told[-1].done, len(told)) == ("adopt", 230, 230)
    assert counted.requests.of("table", "TransactWriteItems") == 3 + 3  # and the parents
    assert counted.requests.of("data") == counted.requests.of("data", "HeadObject") == 230
    assert await fs.read("/t/p=1/1") == b"1"
    before = [status async for status in fs.list("/t", recursive=True, sorted=True)]
    assert (
        await fs.adopt_many(pairs, overwrite=True) == await fs.adopt_many(pairs) == ChangeResult()
    )
    assert [status async for status in fs.list("/t", recursive=True, sorted=True)] == before
    await fs.set_attributes(pairs[7][0], read_only=True)
    assert await fs.adopt_many(pairs) == ChangeResult()


async def test_each_of_a_list_fails_by_itself() -> None:
    async with faulty_client(FaultPlan()) as fs:
        await fs.write("/t/p=0/0", b"there")
        await fs.makedirs("/t/p=1/1")
        pairs = await many_foreign(fs, 9)
        failing = [
            ("/t/twice", pairs[3][1]),
            pairs[4],
            ("no\0path", pairs[5][1]),
            ("/t/p=0/0/x", pairs[5][1]),
        ]
        result = await fs.adopt_many([*pairs[:5], *failing, *pairs[6:]])
        assert {path: type(error) for path, error in result.failures} == {
            "/t/p=0/0": PathExistsError,
            "/t/p=1/1": IsDirectoryError,
            "/t/p=0/3": InvalidArgumentError,
            "/t/twice": InvalidArgumentError,
            "/t/p=1/4": InvalidArgumentError,
            "no\0path": InvalidPathError,
            "/t/p=0/0/x": NotDirectoryError,
        }
        assert result.files == 4
        assert (await fs.adopt_many(pairs[:1], overwrite=True)).files == 1
        assert await fs.read("/t/p=0/0") == b"0"
        for wrong in (["/a"], [("/a",)], [5]):
            with pytest.raises(ArgumentTypeError):
                await fs.adopt_many(wrong)  # type: ignore[arg-type]


@volume_backends("embedded", "dynoxide+seaweedfs")
async def test_an_object_is_one_however_it_is_spelled(fs: S3kClient) -> None:
    pairs = await many_foreign(fs, 2)
    path, uri = pairs[0]
    scheme, _, rest = uri.partition("://")
    other = f"file:{rest}" if scheme == "file" else f"s3a://{rest}"
    result = await fs.adopt_many([*pairs, ("/t/again", other)])
    assert {path: type(error) for path, error in result.failures} == {
        path: InvalidArgumentError,
        "/t/again": InvalidArgumentError,
    }
    assert result.files == 1
    async with fs.transaction() as tx:
        await tx.adopt(path, uri)
        with pytest.raises(InvalidArgumentError):
            await tx.adopt("/t/again", other)
    assert await fs.adopt_many([(path, other)]) == ChangeResult()


async def test_what_loses_a_race_is_tried_by_itself() -> None:
    config = memory_config()
    await init_volume(config)
    faults = FaultPlan()
    async with faulty_client(faults, config) as fs, S3kClient(config=config) as other:
        pairs = await many_foreign(fs, 4)

        async def gate(call: object) -> None:
            if getattr(call, "method", "") == "transact" and "p=" in getattr(call, "key", ""):
                faults.gate = None
                await other.write(pairs[1][0], b"meanwhile")

        faults.gate = gate
        assert (await fs.adopt_many(pairs, overwrite=True)).files == 4
        assert await fs.read(pairs[1][0]) == b"1"


async def both_adopt(moment: int, *, overwrite: bool) -> bool:
    """The second begins and ends before this call of the first; whether the first has made so
    many."""
    config = memory_config()
    await init_volume(config)
    faults = FaultPlan()
    failed: list[tuple[str, Exception]] = []
    async with faulty_client(faults, config) as fs, S3kClient(config=config) as twin:
        pairs = await many_foreign(fs, 4)
        await fs.write(pairs[1][0], b"another's")
        begun = len(faults.calls)

        async def gate(call: Call) -> None:
            if call.number == begun + moment:
                failed.extend((await twin.adopt_many(pairs, overwrite=overwrite)).failures)

        faults.gate = gate
        failed.extend((await fs.adopt_many(pairs, overwrite=overwrite)).failures)
        reached = len(faults.calls) >= begun + moment
        assert [await fs.read(path) for path, _ in pairs] == [
            b"0",
            b"1" if overwrite else b"another's",
            b"2",
            b"3",
        ]
    expected = set() if overwrite else {(pairs[1][0], PathExistsError)}
    assert {(path, type(error)) for path, error in failed} == expected, moment
    return reached


@pytest.mark.parametrize("overwrite", [False, True])
async def test_of_two_that_adopt_the_same_objects_at_the_same_time_none_fails(
    overwrite: bool,
) -> None:
    moment = 1
    while await both_adopt(moment, overwrite=overwrite):
        moment += 1
    assert moment > 8


async def test_a_long_list_is_taken_as_it_is_needed() -> None:
    taken = 0

    def pairs(all_of: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        nonlocal taken
        for pair in all_of:
            taken += 1
            yield pair

    ahead: list[int] = []
    async with faulty_client(FaultPlan()) as fs:
        objects = await many_foreign(fs, 3500)
        result = await fs.adopt_many(
            pairs(objects), progress=lambda told: ahead.append(taken - told.done)
        )
    assert result.files == 3500
    assert max(ahead) <= 3001


@everywhere
def test_blocking(sync_fs: S3kSyncClient, config: VolumeConfig) -> None:
    sync_fs.write("/f", b"x")
    uris = sync_fs._call(store_foreign)
    with sync_fs.transaction() as tx:
        tx.adopt("/in/a", uris["zoo/long"])
    assert sync_fs.read("/in/a") == OBJECTS["zoo/long"]
    assert sync_fs.adopt_many([("/in/b", uris["empty"])]).files == 1


@volume_backends("embedded")
async def test_a_uri_as_the_jvm_prints_it(fs: S3kClient) -> None:
    uri = (await store_foreign(fs))["zoo/long"]
    async with fs.transaction() as tx:
        await tx.adopt("/f", uri.replace("file:///", "file:/"))
    assert await fs.physical_path("/f") == uri


@volume_backends("dynoxide+seaweedfs")
async def test_a_uri_of_s3a(fs: S3kClient) -> None:
    uri = (await store_foreign(fs))["zoo/long"]
    async with fs.transaction() as tx:
        await tx.adopt("/f", uri.replace("s3://", "s3a://"))
    assert await fs.physical_path("/f") == uri


async def test_adopted_files_of_a_moved_volume_are_refused_with_a_remedy(
    tmp_path: Path,
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"

    def at(home: Path) -> VolumeConfig:
        data = LocalDirectory(str(home / "data"))
        return VolumeConfig("moved", SqliteFile(str(home / "t.sqlite")), data)

    await init_volume(at(old))
    plant(old / "data" / "in", {"a": b"adopted"})
    async with S3kClient(config=at(old)) as fs:
        await fs.write("/own", b"own")
        assert (await fs.adopt_many([("/in/a", (old / "data" / "in" / "a").as_uri())])).files == 1
    os.rename(old, new)
    async with S3kClient(config=at(new)) as fs:
        assert await fs.read("/own") == b"own"
        with pytest.raises(UnsupportedError, match="former path"):
            await fs.read("/in/a")
        (problem,) = (await verify_volume(fs._volume())).findings
        assert problem.kind == "data_missing"
        assert "outside of the data location: file:" in problem.detail
    os.symlink(new, old)
    async with S3kClient(config=at(old)) as fs:
        assert await fs.read("/in/a") == b"adopted"
    async with S3kClient(config=at(new)) as fs:
        uri = (new / "data" / "in" / "a").as_uri()
        assert (await fs.adopt_many([("/in/a", uri)], overwrite=True)).failures == ()
        assert await fs.read("/in/a") == b"adopted"
        assert (await verify_volume(fs._volume())).clean
