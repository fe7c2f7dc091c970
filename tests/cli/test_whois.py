"""s3k whois: from a physical object to its file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from s3k_async import S3kClient
from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.integrity.object_owner import ObjectOwner, owner_of
from s3k_async.model import LayoutName
from s3k_async.objects import ObjectStore
from s3k_async.volumes import init_volume
from tests.cli.conftest import Cli
from tests.cli.old_volumes import old_and_new
from tests.client.rig import memory_config
from tests.engines.process import Engine
from tests.engines.volumes import closing_client, fresh_name
from tests.old_volume import OldFiles


@pytest.fixture(params=["path", "tree"])
def any_volume(request: pytest.FixtureRequest) -> str:
    """The default volume, of either layout."""
    return str(request.getfixturevalue("tree_volume" if request.param == "tree" else "volume"))


def key_of(cli: Cli, path: str) -> str:
    return str(cli.ok("--json", "stat", path).json()["physical"])


def told(cli: Cli, key: str) -> tuple[str, str]:
    found = cli.ok("--json", "whois", key).json()
    assert found["object_id"] in key
    return found["state"], found["path"]


def test_current_and_earlier_content(cli: Cli, any_volume: str) -> None:
    cli.ok("put", "-", "/d/f", stdin=b"one")
    first = key_of(cli, "/d/f")
    assert cli.ok("whois", first).out == f"{first}: content of /d/f, version 2\n"
    cli.ok("put", "-", "/d/f", stdin=b"other")
    assert told(cli, first) == ("superseded", "/d/f")
    assert told(cli, key_of(cli, "/d/f")) == ("current", "/d/f")
    cli.ok("mv", "/d/f", "/g")
    last = key_of(cli, "/g")
    assert [told(cli, key) for key in (first, last)] == [("superseded", "/g"), ("current", "/g")]
    cli.ok("rm", "/g")
    assert [told(cli, key) for key in (first, last)] == [("deleted", "/g")] * 2


def test_an_extent(cli: Cli, any_volume: str) -> None:
    cli.ok("put", "-", "/f", stdin=b"x" * 100_000)
    first = key_of(cli, "/f")
    cli.ok("append", "-", "/f", stdin=b"more")
    assert told(cli, first) == ("current", "/f")


def test_an_old_volume(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log has the last operation on each file."""
    name = old_and_new(monkeypatch)
    monkeypatch.setenv("S3K_VOLUME", f"s3k://{name}")
    files = OldFiles(name, MemoryItems(name), MemoryBlobs(name))
    key = key_of(cli, "/d/f")
    bare = key.rpartition("/")[2].replace("%3D", "=")
    assert cli.ok("whois", key).out == f"{bare}: content of /d/f, version 2\n"
    assert told(cli, bare) == ("current", "/d/f")
    earlier = f"11111111-1111-4111-8111-111111111111.id={bare.rpartition('=')[2]}"
    assert told(cli, earlier) == ("unreferenced", "/d/f")
    asyncio.run(deleted(files, "/d/f", bare, key))
    assert told(cli, bare) == ("deleted", "/d/f")
    assert told(cli, f"{'1' * 8}-1111-4111-8111-{'1' * 12}.id={'2' * 8}-2222-4222-8222-{'2' * 12}")[
        0
    ] == ("unknown")


async def deleted(files: OldFiles, path: str, key: str, physical: str) -> None:
    """Delete a file as S3-FileSystem 1.0 does, which leaves the object if it is interrupted."""
    await files.delete_item(path)
    await files.log(path, key.rpartition("=")[2], 2, physical=physical, size=5, kind="DELETE")


def test_after_the_log_was_compacted(cli: Cli, any_volume: str) -> None:
    cli.ok("put", "-", "/f", stdin=b"one")
    first = key_of(cli, "/f")
    cli.ok("put", "-", "/f", stdin=b"other")
    cli.ok("oplog", "compact", "--yes", "--grace", "0")
    assert told(cli, key_of(cli, "/f")) == ("current", "/f")
    # The log has forgotten which content the file had before.
    assert told(cli, first) == ("unreferenced", "/f")


def test_a_directory_that_was_deleted_as_a_whole(cli: Cli, any_volume: str) -> None:
    cli.ok("put", "-", "/d/f", stdin=b"one")
    key = key_of(cli, "/d/f")
    cli.ok("rm", "-r", "/d")
    # In layout `tree` it is in the trash, from which it can be restored.
    assert told(cli, key) in [("deleted", "/d/f"), ("current", "/d/f")]


def test_an_object_that_is_gone(cli: Cli, any_volume: str) -> None:
    unknown = "0e7d6d3b-7c9e-4a56-8e2f-1b1f6b0f9a10.id=2b902f89-11e8-4818-b8c9-9d5d5d983195"
    assert told(cli, unknown) == ("unknown", "")
    assert cli.ok("whois", unknown).out.endswith("; the object does not exist\n")


@pytest.mark.parametrize(("name", "code"), [("no-key", 2), ("s3://elsewhere/a", 3), ("a/b", 2)])
def test_what_is_no_object_of_the_volume(cli: Cli, volume: str, name: str, code: int) -> None:
    cli.fails(code, "whois", name)


@pytest.mark.engine
@pytest.mark.usefixtures("service")
def test_an_adopted_object(cli: Cli, moto_s3: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = fresh_name("s3k-bucket")
    with closing_client(moto_s3, "s3") as s3:
        s3.create_bucket(Bucket=bucket)
        for key in ("a", "a b", "sub/a"):
            s3.put_object(Bucket=bucket, Key=f"lake/{key}", Body=b"alpha")
    lake = f"s3://{bucket}/lake"
    cli.ok("init", "s3k://lab", "--table", f"memory://{bucket}", "--bucket", bucket)
    monkeypatch.setenv("S3K_VOLUME", "s3k://lab")
    cli.ok("import", "--adopt", lake, ":/in")
    cli.ok("put", "-", "/own", stdin=b"own")
    line = cli.ok("whois", f"{lake}/a b").lines
    assert line[0].startswith(f"{lake}/a b: content of /in/a b, version ")
    assert told(cli, key_of(cli, "/own")) == ("current", "/own")
    found = cli.ok("--json", "whois", f"s3a://{bucket}/lake/sub/a").json()
    assert (found["state"], found["path"], found["size"]) == ("current", "/in/sub/a", 5)
    assert "no file outside the trash refers" in cli.fails(3, "whois", f"{lake}/gone").errors
    some = cli("--json", "whois", f"{lake}/a", key_of(cli, "/own"), f"{lake}/gone")
    assert some.code == 10
    assert [each["path"] for each in some.json_lines()] == ["/own", "/in/a"]
    cli.ok("rm", "/in/a")
    cli.fails(3, "whois", f"{lake}/a")


def test_the_uri_in_a_hot_location(cli: Cli, tmp_path: Path) -> None:
    volume = str(tmp_path / "volume")
    cli.ok("init", volume, "--hot", str(tmp_path / "hot"))
    cli.ok("put", "-", f"{volume}:/f", stdin=b"one")
    (stored,) = [path for path in (tmp_path / "hot").rglob("*.id=*") if path.is_file()]
    for _ in ("hot", "cold"):
        found = cli.ok("--json", "whois", "--volume", volume, stored.as_uri()).json()
        assert (found["state"], found["path"]) == ("current", "/f")
        cli.ok("tier", "run", volume)


async def owned(layout: LayoutName) -> dict[str, ObjectOwner]:
    """The owners of a part of an upload, of unpublished data, and of a file by its
    URI."""
    config = memory_config(layout=layout)
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        volume, objects = fs._volume(), ObjectStore(fs)
        await objects.create_bucket("b")
        upload = await objects.create_upload("b", "k")
        await objects.put_part(upload.id, 0, b"part")
        async with fs.stage() as writer:
            await writer.write(b"staged")
        await fs.write("/b/f", b"file")
        part = next(key for key in await stored(fs) if upload.id in key)
        return {
            "part": await owner_of(volume, part),
            "staged": await owner_of(volume, writer.staged.content.physical),
            "file": await owner_of(volume, await fs.physical_path("/b/f")),
        }


async def stored(fs: S3kClient) -> list[str]:
    page = await fs._volume().blobs.list()
    return [blob.key for blob in page.blobs]


@pytest.mark.parametrize("layout", ["path", "tree"])
def test_what_no_file_names(layout: LayoutName) -> None:
    found = asyncio.run(owned(layout))
    assert {name: (each.state, each.path) for name, each in found.items()} == {
        "part": ("upload", "/b/k"),
        "staged": ("unknown", ""),
        "file": ("current", "/b/f"),
    }
    assert {name: each.size for name, each in found.items()} == {"part": 4, "staged": 6, "file": 4}
