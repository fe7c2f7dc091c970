"""Files that were adopted from a versioned bucket are read at the version that was adopted."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final
from urllib.request import urlopen

import anyio
import pytest

from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.s3.s3_blobs import S3Blobs
from s3k_async.bulk.path_verification import PathVerifier
from s3k_async.cli.output import status_fields
from s3k_async.client import S3kClient
from s3k_async.config import MemoryTable, S3Bucket, VolumeConfig
from s3k_async.errors import (
    CorruptDataError,
    DataMissingError,
    PathExistsError,
    PermissionDeniedError,
    S3kError,
)
from s3k_async.integrity.repair import scope_of, verify_volume
from s3k_async.migrate.dump import dump_volume
from s3k_async.migrate.load import load_volume
from s3k_async.storage import physical
from s3k_async.trees import BucketTree, VolumeTree, adopt_tree
from s3k_async.txn import volume_lock
from s3k_async.volumes import init_volume
from s3k_async.volumes.iam_policies import iam_policy
from s3k_async.volumes.restoration import restore_volume
from tests.client.rig import TUNING, memory_config
from tests.client.test_change_detection import DATA, OTHER, entry_of, readers
from tests.engines.iam_gate import ACCOUNT, gate_before
from tests.engines.object_versions import delete_version, set_versioning
from tests.engines.process import Engine
from tests.engines.volumes import fresh_name
from tests.proxy import FaultProxy

KEY: Final = "given/f"
PAGE: Final = Path(__file__).parents[2] / "docs" / "out-of-band.md"


@dataclass
class Ground:
    """A volume with the file `/in/f`, which was imported from a versioned bucket."""

    fs: S3kClient
    bucket: S3Blobs
    version: str
    config: VolumeConfig

    @property
    def tree(self) -> BucketTree:
        return BucketTree(self.fs._volume().place, "given")

    async def problems(self, *, deep: bool = False) -> list[str]:
        """What fsck reports about the file."""
        await self.fs._volume().log.drained()
        report = await verify_volume(self.fs._volume(), grace=-60.0, deep=deep)
        return [f"{each.kind}: {each.detail}" for each in report.problems]


@asynccontextmanager
async def ground(
    engine: Engine, endpoint: str = "", *, versioned: bool = True
) -> AsyncIterator[Ground]:
    """`endpoint`: that of the client, if it is another than that of the engine."""
    name = fresh_name("versions")
    bucket = S3Blobs(name, "", engine.aws())
    await bucket.create()
    if versioned:
        await set_versioning(bucket, "Enabled")
    aws = replace(engine.aws(), endpoint=endpoint or engine.endpoint)
    config = VolumeConfig(name, MemoryTable(name), S3Bucket(name, "", aws), tuning=TUNING)
    await init_volume(config)
    await bucket.put(KEY, DATA)
    found = await bucket.head(KEY)
    assert found is not None
    async with AsyncExitStack() as stack:
        stack.push_async_callback(bucket.close)
        fs = await stack.enter_async_context(S3kClient(config=config))
        place = Ground(fs, bucket, found.version, config)
        done = await adopt_tree(place.tree, VolumeTree(fs, "/in"))
        assert (done.files, done.failures) == (1, ())
        yield place


async def test_an_object_that_was_replaced_and_deleted_is_still_read(moto_s3: Engine) -> None:
    """Every request names the version, and has the entity tag as its condition."""
    async with FaultProxy(moto_s3.endpoint) as proxy, ground(moto_s3, proxy.url) as here:
        fs = here.fs
        async with fs.open("/in/f") as stream:
            await here.bucket.put(KEY, OTHER)
            assert await stream.read(100) == DATA[:100]
            await here.bucket.delete(KEY)
            assert await stream.read() == DATA[100:]
        proxy.clear()
        for name, read in readers(fs, "/in/f").items():
            assert await read() == DATA[100:600], name
        assert await fs.read("/in/f") == DATA
        assert await fs.read_many(["/in/f"]) == [DATA]
        await fs.copy("/in/f", "/copy")
        own = [call for call in proxy.calls if call.path.endswith(KEY)]
        assert {call.method for call in own} == {"GET", "HEAD"}
        assert {call.query for call in own} == {f"versionId={here.version}"}
        tag = f'"{(await fs.stat("/in/f")).etag}"'
        assert {call.headers.get("if-match") for call in own if call.method == "GET"} == {tag}
        copies = [each for call in proxy.calls if (each := call.headers.get("x-amz-copy-source"))]
        assert [each.endswith(f"{KEY}?versionId={here.version}") for each in copies] == [True]
        assert await fs.read("/copy") == DATA
        assert await fs.checksum("/copy") == await fs.checksum("/in/f")
        assert (await entry_of(fs, "/copy")).checksum == ""
        url = await fs.presign("/in/f")
        assert await anyio.to_thread.run_sync(_fetched, url) == DATA
        assert await here.problems(deep=True) == []
        verifier = PathVerifier(scope_of(fs._volume()), deep=True)
        await verifier.check(["/in/f"])
        assert verifier.report.problems == []


def _fetched(url: str) -> bytes:
    with urlopen(url) as answer:
        data: bytes = answer.read()
    return data


async def test_the_version_stays_with_the_file(
    moto_s3: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Through changes of its name, its times and its attributes, a dump, and a lost table."""
    async with ground(moto_s3) as here:
        fs = here.fs
        await here.bucket.put(KEY, OTHER)
        await fs.rename("/in/f", "/moved")
        await fs.touch("/moved")
        await fs.set_attributes("/moved", mode=0o640, metadata={"a": b"b"})
        assert await fs.read("/moved") == DATA
        fields = status_fields(await fs.stat("/moved"))
        assert (fields["object_version"], fields["checksum"]) == (here.version, "")
        assert "object_version" not in status_fields(await fs.stat("/in"))
        await fs._volume().log.drained()
        monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)
        dump, other = str(tmp_path / "dump"), memory_config()
        await dump_volume(fs._volume(), dump)
        dumped = await anyio.Path(dump).read_text(encoding="utf-8")
        assert f'"version:{here.version}"' in dumped
        table = await fs.list("/moved").to_arrow()
        assert table == await fs.list_batches("/moved").to_arrow()
        assert table["checksum"].to_pylist() == [f"version:{here.version}"]
        await load_volume(dump, other, bytes_from=fs._volume())
        async with S3kClient(config=other) as loaded:
            assert await loaded.read("/moved") == DATA
            assert (await entry_of(loaded, "/moved")).checksum.startswith("xxh128:")
        await MemoryItems(here.config.name).drop()
        await restore_volume(here.config, dry_run=False)
        async with S3kClient(config=here.config) as again:
            assert await again.read("/moved") == DATA
            assert (await entry_of(again, "/moved")).object_version == here.version
            await again.write("/moved", OTHER)
            assert (await entry_of(again, "/moved")).object_version == ""
            assert await again.read("/moved") == OTHER
            former = [each.id for each in await again.versions("/moved") if each.size == len(DATA)]
            await again.undelete("/moved", version=former[-1], target="/former")
            assert await again.read("/former") == DATA


async def test_a_version_that_was_deleted_is_named(moto_s3: Engine) -> None:
    async with ground(moto_s3) as here:
        fs = here.fs
        await here.bucket.put(KEY, OTHER)
        await delete_version(here.bucket, KEY, here.version)
        reads: dict[str, Callable[[], Awaitable[object]]] = {
            **readers(fs, "/in/f"),
            "copy": lambda: fs.copy("/in/f", "/copy"),
        }
        for name, read in reads.items():
            with pytest.raises(DataMissingError, match="adopt the current object") as raised:
                await read()
            text = str(raised.value)
            assert here.version in text, name
            assert here.bucket.uri(KEY) in text, name
        (problem,) = await here.problems()
        assert problem.startswith(f"data_missing: the version {here.version} ")
        await fs.delete("/in/f")
        done = await adopt_tree(here.tree, VolumeTree(fs, "/in"))
        assert done.files == 1
        assert await fs.read("/in/f") == OTHER
        assert await here.problems() == []


async def test_the_same_bytes_that_were_stored_again(moto_s3: Engine) -> None:
    """The same object for an import; adopted with `overwrite`, it is the newer version."""
    async with ground(moto_s3) as here:
        fs, uri = here.fs, here.bucket.uri(KEY)
        await here.bucket.put(KEY, DATA)
        done = await adopt_tree(here.tree, VolumeTree(fs, "/in"))
        assert (done.files, done.unchanged) == (0, 1)
        assert not (await fs.adopt_many([("/in/f", uri)])).failures
        async with fs.transaction() as tx:
            await tx.adopt("/in/f", uri)
        assert (await entry_of(fs, "/in/f")).object_version == here.version
        assert (await fs.adopt_many([("/in/f", uri)], overwrite=True)).files == 1
        newer = (await entry_of(fs, "/in/f")).object_version
        assert newer not in ("", here.version)
        assert (await fs.adopt_many([("/in/f", uri)], overwrite=True)).files == 0
        await here.bucket.put(KEY, DATA)
        async with fs.transaction() as tx:
            await tx.adopt("/in/f", uri, overwrite=True)
        assert (await entry_of(fs, "/in/f")).object_version not in ("", newer)
        await here.bucket.put(KEY, OTHER)
        (failure,) = (await fs.adopt_many([("/in/f", uri)])).failures
        assert isinstance(failure[1], PathExistsError)


async def test_without_versioning_the_entity_tag_is_compared(moto_s3: Engine) -> None:
    async with ground(moto_s3, versioned=False) as here:
        assert (here.version, (await entry_of(here.fs, "/in/f")).checksum) == ("", "")
        await here.bucket.put(KEY, OTHER)
        with pytest.raises(CorruptDataError):
            await here.fs.read("/in/f")


async def test_a_client_that_does_not_know_versions_compares_the_tag(
    moto_s3: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions of the package: what they take for a checksum is of no kind they verify."""
    monkeypatch.setattr(physical, "version_in", lambda _: "")
    monkeypatch.setattr(physical, "digest_in", lambda checksum: checksum)
    async with ground(moto_s3) as here:
        fs = here.fs
        assert await fs.read("/in/f") == DATA
        await fs.copy("/in/f", "/copy")
        await here.bucket.put(KEY, OTHER)
        with pytest.raises(CorruptDataError):
            await fs.read("/in/f")
        monkeypatch.undo()
        assert await fs.read("/in/f") == DATA
        assert await fs.read("/copy") == DATA
        assert (await entry_of(fs, "/copy")).object_version == ""
        assert await here.problems(deep=True) == []


async def test_a_version_needs_a_permission(moto_s3: Engine) -> None:
    with gate_before(moto_s3.endpoint, moto_s3.endpoint) as gate:
        async with ground(moto_s3, gate.endpoint) as here:
            gate.policy = policy = iam_policy(here.config, "reader", account=ACCOUNT)
            assert await here.fs.read("/in/f") == DATA
            for statement in policy["Statement"]:
                statement["Action"] = set(statement["Action"]) - {"s3:GetObjectVersion"}
            with pytest.raises(PermissionDeniedError):
                await here.fs.read("/in/f")
            gate.policy = None


async def _overwrite(bucket: S3Blobs, key: str) -> None:
    await bucket.put(key, OTHER)


async def _truncate(bucket: S3Blobs, key: str) -> None:
    await bucket.put(key, DATA[:10])


async def _delete(bucket: S3Blobs, key: str) -> None:
    await bucket.delete(key)


async def _delete_version(bucket: S3Blobs, key: str) -> None:
    found = await bucket.head(key)
    assert found is not None
    await bucket.put(key, OTHER)
    await delete_version(bucket, key, found.version)


CHANGES: Final[dict[str, Callable[[S3Blobs, str], Awaitable[None]]]] = {
    "overwrite": _overwrite,
    "truncate": _truncate,
    "delete": _delete,
    "delete the version": _delete_version,
}


async def _outcome(read: Callable[[], Awaitable[object]], expected: object) -> str:
    try:
        assert await read() == expected
    except S3kError as error:
        return type(error).__name__
    return "ok"


async def _rows(here: Ground, recorded: str, changes: Sequence[str]) -> list[str]:
    """The rows of the page, each about another adopted file."""
    fs = here.fs
    for change in changes:
        await here.bucket.put(f"rows/{change}", DATA)
    tree = BucketTree(fs._volume().place, "rows")
    assert (await adopt_tree(tree, VolumeTree(fs, "/rows"))).files == len(changes)
    for change in changes:
        await CHANGES[change](here.bucket, f"rows/{change}")
    await fs._volume().log.drained()
    reports = [await verify_volume(fs._volume(), grace=-60.0, deep=deep) for deep in (False, True)]
    rows = []
    for change in changes:
        path = f"/rows/{change}"
        copied = f"/copies/{change}"
        cells = [
            await _outcome(partial(fs.read, path), DATA),
            await _outcome(partial(fs.read_ranges, path, [(3, 9)]), [DATA[3:9]]),
            await _outcome(partial(_copied, fs, path, copied), DATA),
        ]
        for report in reports:
            found = {each.kind for each in report.problems if each.path == path}
            cells.append(", ".join(sorted(found)) or "clean")
        rows.append(f"| {recorded} | {change} | {' | '.join(cells)} |")
    return rows


async def _copied(fs: S3kClient, path: str, target: str) -> bytes:
    await fs.copy(path, target)
    return await fs.read(target)


async def test_the_rows_of_the_page(moto_s3: Engine) -> None:
    """Of the table about adopted objects in docs/out-of-band.md."""
    async with ground(moto_s3, versioned=False) as here:
        found = await _rows(here, "entity tag", list(CHANGES)[:3])
    async with ground(moto_s3) as here:
        found += await _rows(here, "version", list(CHANGES))
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    assert [each for each in lines if re.match(r"\| (entity tag|version) \|", each)] == found
