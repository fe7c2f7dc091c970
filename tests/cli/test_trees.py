"""diff, sync, import."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from s3k_async.backends.s3.s3_blobs import S3Blobs
from s3k_async.cli.exit_codes import ExitCode
from s3k_async.config import S3Bucket
from s3k_async.trees import TreeEntry, VolumeTree, open_bucket
from tests.cli.conftest import Cli
from tests.engines.object_versions import delete_version, set_versioning
from tests.engines.process import Engine
from tests.engines.volumes import closing_client, fresh_bucket, fresh_name

FILES = {"a": b"alpha", "sub/b": b"bb", "sub/c.log": b""}


@pytest.fixture
def local() -> Path:
    """A local tree: `src/a`, `src/sub/b`, `src/sub/c.log`, an empty directory `src/none`."""
    for path, data in FILES.items():
        place = Path("src") / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    Path("src/none").mkdir()
    return Path("src")


# diff


def test_diff(cli: Cli, volume: str, local: Path) -> None:
    cli.ok("sync", "src", ":/in")
    assert cli.ok("diff", "src", ":/in").lines == ["0 differences, 3 files the same"]
    assert cli.ok("diff", "-q", "src", ":/in").out == ""
    (local / "a").write_bytes(b"longer than before")
    (local / "new").write_bytes(b"1")
    cli.ok("mkdir", "/in/old")
    done = cli("diff", "src", ":/in")
    assert (done.code, done.errors) == (1, "")
    assert done.lines == [
        "size\t18\t5\ta",
        "only_left\t1\t-\tnew",
        "only_right\t-\t-\told/",
        "3 differences (1 only_left, 1 only_right, 1 size), 2 files the same",
    ]
    assert cli("diff", "-s", "src", ":/in").lines == done.lines[-1:]
    shown = cli("diff", "--json", "--include", "new", "src", ":/in").json_lines()
    assert shown[0]["difference"] == "only_left"
    assert shown[0]["right"] is None
    assert shown[0]["left"]["size"] == 1
    assert shown[1] == {"differences": 1, "same": 0, "failed": 0, "only_left": 1}


def test_diff_of_contents(cli: Cli, volume: str, local: Path) -> None:
    cli.ok("sync", "src", ":/in")
    (local / "a").write_bytes(b"omega")
    os.utime(local / "a", (0, 0))
    assert cli("diff", "src", ":/in").code == 0
    assert cli("diff", "--checksum", "src", ":/in").lines[0] == "content\t5\t5\ta"
    os.utime(local / "a", (2**33, 2**33))
    assert cli("diff", "src", ":/in").lines[0] == "time\t5\t5\ta"
    assert cli("diff", "--size-only", "src", ":/in").code == 0


def test_trouble_of_diff(cli: Cli, volume: str, local: Path) -> None:
    """Two, whatever it is."""
    for left, right in (("gone", "src"), ("src", "gone"), ("src", ":/gone"), ("src/a", "src")):
        cli.fails(2, "diff", left, right)
    assert cli("diff", "--json", "src", "gone").error()["exit_code"] == 2
    (local / "link").symlink_to("/")
    assert "link" in cli.fails(2, "diff", "src", "src").errors


def test_diff_of_listings(cli: Cli, small_tree: dict[str, bytes]) -> None:
    cli.ok("ls", "-R", "-o", "all.jsonl")
    cli.ok("ls", "-R", "-o", "all.parquet")
    cli.ok("diff", "all.jsonl", "all.parquet")
    cli.ok("diff", "--checksum", ":/", "all.jsonl")
    cli.ok("diff", ":/a/b", "all.parquet:/a/b")
    cli.ok("rm", "/top.txt")
    assert cli("diff", ":/", "all.jsonl").lines[0] == "only_right\t-\t3\ttop.txt"
    for listing in ("all.jsonl", "all.parquet"):
        cli.ok("mkdir", "-p", "/empty")
        for pair in ((f"{listing}:/nope", ":/empty"), (":/empty", f"{listing}:/nope")):
            done = cli.fails(2, "diff", *pair)
            assert f"no such directory in the listing: {listing}:/nope" in done.errors
        done = cli.fails(2, "diff", f"{listing}:/a/b/two.csv", ":/empty")
        assert "a file in the listing" in done.errors
    cli.ok("ls", "-R", "-o", "empty.jsonl", "/empty")
    cli.ok("diff", "empty.jsonl:/empty", ":/empty")
    cli.ok("mkdir", "/days.parquet")
    cli.ok("diff", ":/days.parquet", ":/empty")
    for gone in ("gone.jsonl", "gone.parquet", "gone.jsonl:/a"):
        for pair in ((gone, ":/"), (":/", gone)):
            assert "the listing file does not exist" in cli.fails(2, "diff", *pair).errors
    cli.ok("sync", ":/a", "table.parquet")
    cli.ok("diff", ":/a", "table.parquet")
    Path("all.jsonl").write_text("no listing\n")
    assert "line 1" in cli.fails(2, "diff", ":/", "all.jsonl").errors


# sync


def test_sync_into_a_volume_and_back(cli: Cli, volume: str, local: Path) -> None:
    place = f"{volume}/in"
    assert cli.ok("sync", "src", place).lines == [
        f"synced 3 files, 2 directories, 7 bytes to {place}; 0 files unchanged"
    ]
    assert cli.ok("cat", "/in/a", "/in/sub/b").output == b"alphabb"
    assert cli.ok("sync", "--json", "src", place).json() == {
        "target": place,
        "files": 0,
        "directories": 0,
        "bytes": 0,
        "unchanged": 3,
        "deleted": 0,
        "deleted_directories": 0,
        "failed": 0,
        "dry_run": False,
    }
    assert cli.ok("sync", ":/in", "back").lines == [
        f"synced 3 files, 2 directories, 7 bytes to {Path('back').absolute()}; 0 files unchanged"
    ]
    assert {name: Path("back", name).read_bytes() for name in FILES} == FILES
    times = [Path(top, "a").stat().st_mtime_ns // 1_000_000 for top in ("src", "back")]
    assert times[0] == times[1]
    cli.ok("sync", "src", "back")
    cli.ok("diff", "--checksum", "back", "src")


def test_sync_of_volumes(cli: Cli, small_tree: dict[str, bytes], other_volume: str) -> None:
    cli.ok("sync", ":/", f"{other_volume}/copy")
    assert cli.ok("cat", f"{other_volume}/copy/a/b/two.csv").output == b"2" * 2000
    assert "4 files unchanged" in cli.ok("sync", ":/", f"{other_volume}/copy").out


def test_a_dry_run_shows_changes_and_makes_none(cli: Cli, volume: str, local: Path) -> None:
    cli.ok("put", "-", "/in/old/x", stdin=b"1")
    shown = cli.ok("sync", "-n", "--delete", "src", ":/in")
    assert shown.lines[:-1] == [
        "copy\ta",
        "make\tnone/",
        "delete\told/",
        "delete\told/x",
        "make\tsub/",
        "copy\tsub/b",
        "copy\tsub/c.log",
    ]
    assert shown.lines[-1].startswith("dry run: synced 3 files, 2 directories, 7 bytes")
    assert cli.ok("ls", "-R").lines == ["/in/", "/in/old/", "/in/old/x"]
    told = cli.ok("sync", "-v", "--json", "--delete", "src", ":/in").json_lines()
    assert [(each["change"], each["path"]) for each in told[-3:-1]] == [
        ("delete", "old/x"),
        ("delete", "old"),
    ]
    assert (told[-1]["deleted"], told[-1]["deleted_directories"]) == (1, 1)
    assert cli.ok("sync", "-nq", "--delete", "src", ":/in").out == ""


def test_sync_deletes_only_what_it_should(cli: Cli, volume: str, local: Path) -> None:
    cli.ok("sync", "src", ":/in")
    cli.ok("put", "-", "/in/keep.log", stdin=b"1")
    cli.ok("put", "-", "/in/old", stdin=b"1")
    cli.ok("put", "-", "/beside", stdin=b"1")
    cli.ok("sync", "--delete", "--exclude", "*.log", "src", ":/in")
    assert cli.ok("ls", "/in").lines == ["a", "keep.log", "none/", "sub/"]
    Path("empty").mkdir()
    assert "--force" in cli.fails(2, "sync", "--delete", "empty", ":/in").errors
    cli.fails(3, "sync", "--delete", "--force", "typo", ":/in")
    assert cli.ok("ls", "/in").lines == ["a", "keep.log", "none/", "sub/"]
    cli.ok("sync", "--delete", "--force", "empty", ":/in")
    assert cli.ok("ls", "-R").lines == ["/beside", "/in/"]


def test_failures_of_sync(cli: Cli, volume: str, local: Path) -> None:
    (local / "link").symlink_to("/")
    done = cli("sync", "src", ":/in")
    assert done.code == 10
    assert "a link to a directory is not followed" in done.errors
    assert cli("sync", "src", ":/in").code == 10


@pytest.mark.parametrize(("verb", "done"), [("sync", "synced"), ("import", "imported")])
def test_a_repeated_run_with_failures_has_a_summary_and_the_same_code(
    cli: Cli, volume: str, local: Path, verb: str, done: str
) -> None:
    (local / "sub" / "broken").symlink_to("gone")
    first = cli(verb, "src", ":/in")
    assert (first.code, first.errors.count("\n")) == (10, 1)
    assert first.lines == [
        f"{done} 3 files, 2 directories, 7 bytes to {volume}/in; 0 files unchanged"
    ]
    second = cli(verb, "src", ":/in")
    assert (second.code, second.errors) == (10, first.errors)
    assert second.lines == [f"{done} 0 files, 0 bytes to {volume}/in; 3 files unchanged"]
    third = cli(verb, "--json", "src", ":/in")
    error = json.loads(third.errors)["error"]
    assert (third.code, error["exit_code"], error["code"]) == (10, 10, "partial_failure")
    assert (third.json()["unchanged"], third.json()["failed"]) == (3, 1)


@pytest.mark.parametrize(
    "arguments",
    [
        ["sync"],
        ["sync", "src"],
        ["sync", "src", ""],
        ["sync", "src", "src"],
        ["sync", "src", "src/sub"],
        ["sync", "src/sub", "src"],
        ["sync", ":/", ":/a"],
        ["sync", "--force", "src", ":/in"],
        ["sync", "--size-only", "--checksum", "src", ":/in"],
        ["sync", "--include", "", "src", ":/in"],
        ["sync", "src", "s3k://"],
        ["sync", "src", "./vol/data"],
        ["diff", "src"],
        ["diff", "--size-only", "--checksum", "src", ":/in"],
        ["import", "src"],
        ["import", "src", "elsewhere"],
        ["import", ":/", ":/a"],
        ["import", "--adopt", ":/", ":/a"],
    ],
)
def test_what_cannot_be_meant(cli: Cli, volume: str, local: Path, arguments: list[str]) -> None:
    cli.ok("init", "./vol")
    cli.fails(2, *arguments)
    assert cli.ok("ls", "-R").out == ""


@pytest.mark.parametrize(
    ("text", "meant"), [("./vol:", "./vol:/"), ("./vol:in/a", "./vol:/in/a"), ("vol:", "vol:/")]
)
def test_an_address_without_its_slash_is_refused(
    cli: Cli, local: Path, text: str, meant: str
) -> None:
    cli.ok("init", "./vol")
    for arguments in (["sync", "src", text], ["sync", text, "out"], ["import", "src", text]):
        assert f"write {meant}" in cli.fails(2, *arguments).errors
    assert not Path(text).exists()
    Path("with:colon").mkdir()
    cli.ok("sync", "src", "with:colon")
    assert Path("with:colon/a").exists()
    Path("vol:there").mkdir()
    cli.ok("sync", "src", "vol:there")
    assert Path("vol:there/a").exists()


def test_a_directory_in_the_way_names_the_option(cli: Cli, volume: str, local: Path) -> None:
    cli.ok("mkdir", "-p", "/in/a")
    cli.ok("put", "-", "/in/sub", stdin=b"file")
    assert cli("sync", "src", ":/in").errors.splitlines() == [
        f"s3k: the target has a directory at the path; --delete removes it: {volume}/in/a",
        f"s3k: the target has a file at the path; --delete removes it: {volume}/in/sub",
    ]
    assert "--delete" not in cli("import", "src", ":/in").errors


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_change_of_the_source_meanwhile_advises_no_deletion(
    cli: Cli, volume: str, monkeypatch: pytest.MonkeyPatch, is_replaced: bool
) -> None:
    """After the listing, a file is removed, or replaced by a directory."""
    cli.ok("put", "-", "/in/a", stdin=b"1")
    content = VolumeTree.content

    async def late(self: VolumeTree, entry: TreeEntry) -> AsyncGenerator[bytes, None]:
        await self.client.delete("/in/a")
        if is_replaced:
            await self.client.makedirs("/in/a")
        async with aclosing(content(self, entry)) as pieces:
            async for piece in pieces:
                yield piece

    monkeypatch.setattr(VolumeTree, "content", late)
    done = cli("sync", ":/in", "out")
    said = "a directory is at the path" if is_replaced else "no such file"
    assert (done.code, done.errors) == (10, f"s3k: {said}: /in/a: out/a\n")


def test_the_directory_of_an_embedded_volume_is_the_volume(cli: Cli, local: Path) -> None:
    cli.ok("init", "./vol")
    cli.ok("sync", "src", "./vol")
    cli.ok("diff", "src", str(Path("vol").absolute()))
    cli.ok("sync", "./vol", "./vol2")
    assert Path("vol2/sub/b").read_bytes() == b"bb"


# import


def test_import_of_a_directory(cli: Cli, volume: str, local: Path) -> None:
    cli.ok("put", "-", "/in/a", stdin=b"another")
    done = cli("import", "src", ":/in")
    assert (done.code, done.errors.count("\n")) == (10, 1)
    assert cli.ok("cat", "/in/a").output == b"another"
    cli.ok("import", "-f", "src", ":/in")
    assert cli.ok("import", "src", ":/in").lines == [
        f"imported 0 files, 0 bytes to {volume}/in; 3 files unchanged"
    ]
    assert cli.ok("cat", "/in/a").output == b"alpha"


def test_adoption_in_a_directory(cli: Cli, local: Path) -> None:
    cli.ok("init", "./vol")
    assert "data location" in cli.fails(1, "import", "--adopt", "src", "./vol:/in").errors
    os.rename("src", "vol/data/given")
    cli.ok("import", "--adopt", "-n", "vol/data/given", "./vol:/in")
    cli.ok("import", "--adopt", "vol/data/given", "./vol:/in")
    assert cli.ok("cat", "./vol:/in/sub/b").output == b"bb"
    cli.ok("fsck", "./vol")
    assert "3 files unchanged" in cli.ok("import", "--adopt", "vol/data/given", "./vol:/in").out


@pytest.fixture
def bucket(seaweedfs: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Bucket]:
    """A bucket with objects of another program below `lake/`, reached by the environment."""
    monkeypatch.setenv("S3K_ENDPOINT", seaweedfs.endpoint)
    monkeypatch.setenv("S3K_REGION", seaweedfs.region)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", seaweedfs.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", seaweedfs.secret_key)

    async def fill() -> None:
        async with open_bucket(found) as tree:
            await tree.blobs.create()
            for path, data in FILES.items():
                await tree.blobs.put(f"lake/{path}", data)

    with fresh_bucket(seaweedfs) as found:
        asyncio.run(fill())
        yield found


@pytest.mark.engine
def test_a_bucket_without_a_volume(cli: Cli, bucket: S3Bucket, local: Path) -> None:
    lake = f"s3://{bucket.bucket}/lake"
    os.rmdir("src/none")
    cli.ok("diff", "--checksum", lake, "src")
    cli.ok("init", "./vol")
    assert "imported 3 files" in cli.ok("import", lake, "./vol:/in").out
    assert "3 files unchanged" in cli.ok("sync", "--delete", lake, "./vol:/in").out
    cli.ok("diff", "--checksum", "src", "./vol:/in")
    cli.ok("sync", lake, "out")
    cli.ok("diff", "--checksum", lake, "out")
    assert "no such" in cli.fails(3, "sync", f"{lake}/nothing", "out").errors
    cli.fails(1, "sync", "src", lake)
    named = ("s3k://lab", "--table", f"memory://{bucket.bucket}", "--bucket", bucket.bucket)
    cli.ok("init", *named)
    assert "adopted 3 files" in cli.ok("import", "--adopt", lake, "s3k://lab/in").out
    assert "3 files unchanged" in cli.ok("import", "--adopt", lake, "s3k://lab/in").out
    assert cli.ok("cat", "s3k://lab/in/sub/b").output == b"bb"
    assert cli.ok("ls", lake).lines == ["a", "sub/"]
    assert cli.ok("ls", "-R", lake).lines == [
        f"{lake}/{each}" for each in ("a", "sub/", "sub/b", "sub/c.log")
    ]
    assert [line.split()[:2] for line in cli.ok("ls", "-lh", lake).lines] == [
        ["-", "5B"],
        ["d", "-"],
    ]
    assert cli.ok("ls", "--json", lake).json_lines()[0]["etag"]
    assert [line.split() for line in cli.ok("du", lake).lines] == [
        ["2", "2", "1", f"{lake}/sub"],
        ["7", "3", "2", f"{lake}/"],
    ]
    assert cli.ok("du", "-s", "--json", lake).json() == {
        "path": f"{lake}/",
        "bytes": 7,
        "files": 3,
        "directories": 2,
    }
    cli.fails(3, "ls", f"{lake}/nothing")
    cli.fails(2, "ls", "-a", lake)
    cli.fails(2, "ls", "-l", "-o", "x.jsonl", lake)
    for file in ("x.jsonl", "x.parquet"):
        assert cli.ok("ls", "-R", "-o", file, lake).lines == [f"wrote 4 entries to {file}"]
        for pair in ((lake, f"{file}:/lake"), (f"{file}:/lake", "src"), ("src", f"{file}:/lake")):
            cli.ok("diff", "--checksum", *pair)
    cli.ok("diff", "x.jsonl", "x.parquet")
    assert [each["path"] for each in cli.ok("ls", "-o", "-", lake).json_lines()] == [
        "/lake/a",
        "/lake/sub",
    ]
    assert cli.ok("ls", "-o", "-", f"{lake}/a").json()["physical"] == f"{lake}/a"
    cli.fails(3, "ls", "-o", "y.jsonl", f"{lake}/nothing")
    assert not Path("y.jsonl").exists()
    cli.fails(2, "du", "--trash", lake)
    everything = f"s3://{bucket.bucket}"
    assert cli("diff", everything, "out").lines[-1].startswith("6 differences")


@pytest.mark.engine
@pytest.mark.parametrize("scope", ["fs.s3a.{}", "fs.s3a.bucket.NAME.{}"])
def test_a_bucket_that_a_hadoop_file_reaches(
    cli: Cli, bucket: S3Bucket, seaweedfs: Engine, scope: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a volume, by the keys for its bucket."""
    for name in ("S3K_ENDPOINT", "S3K_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    given = {
        "endpoint": seaweedfs.endpoint,
        "endpoint.region": seaweedfs.region,
        "access.key": seaweedfs.access_key,
        "secret.key": seaweedfs.secret_key,
    }
    properties = {
        scope.replace("NAME", bucket.bucket).format(name): text for name, text in given.items()
    }
    Path("core.json").write_text(json.dumps(properties))
    lake = f"s3://{bucket.bucket}/lake"
    hadoop = ("--hadoop", "core.json")
    assert cli.ok("ls", lake, *hadoop).lines == ["a", "sub/"]
    assert cli.ok("du", "-s", "--json", lake, *hadoop).json()["bytes"] == 7
    table = f"fs.s3k.metastore.dynamo.table.{bucket.bucket}"
    properties |= {table: f"memory://{bucket.bucket}"}
    properties |= {f"fs.s3k.volume.kind.{bucket.bucket}": "native"}
    Path("core.json").write_text(json.dumps(properties))
    volume = f"s3k://{bucket.bucket}"
    cli.ok("init", volume, *hadoop, "--no-save")
    assert "adopted 3 files" in cli.ok("import", "--adopt", lake, f"{volume}/in", *hadoop).out
    assert cli.ok("cat", f"{volume}/in/sub/b", *hadoop).output == b"bb"


@pytest.mark.engine
def test_a_single_object_of_a_bucket(cli: Cli, bucket: S3Bucket) -> None:
    """It is listed and imported like a file; trees are prefixes."""
    lake = f"s3://{bucket.bucket}/lake"
    for listed in (("ls",), ("ls", "-R")):
        assert cli.ok(*listed, f"{lake}/a").lines == [f"{lake}/a"]
    assert cli.ok("ls", "-l", f"{lake}/a").lines[0].split()[:2] == ["-", "5"]
    assert cli.ok("ls", "--json", f"{lake}/a").json()["size"] == 5
    cli.ok("init", "./vol")
    named = ("s3k://lab", "--table", f"memory://{bucket.bucket}", "--bucket", bucket.bucket)
    cli.ok("init", *named)
    for target, words in (("./vol:", ("import",)), ("s3k://lab", ("import", "--adopt"))):
        assert "imported 0" in cli.ok("import", "--exclude", "a", f"{lake}/a", f"{target}/m").out
        assert cli.ok(*words, "-n", f"{lake}/a", f"{target}/m").lines[0] == "copy\ta"
        cli.fails(3, "stat", f"{target}/m")
        assert "1 file, 5 bytes" in cli.ok(*words, f"{lake}/a", f"{target}/m").out
        assert "1 file unchanged" in cli.ok(*words, f"{lake}/a", f"{target}/m").out
        cli.ok("mkdir", f"{target}/in")
        cli.ok(*words, f"{lake}/sub/b", f"{target}/in")
        assert cli.ok("cat", f"{target}/m", f"{target}/in/b").output == b"alphabb"
        for _ in range(2):
            cli.ok(*words, f"{lake}/sub/b", f"{target}/new/er/")
        assert cli.ok("ls", "-R", f"{target}/new").lines == ["/new/er/", "/new/er/b"]
        assert "through a file" in cli.fails(1, *words, f"{lake}/sub/b", f"{target}/m/").errors
        assert "differs" in cli.fails(4, *words, f"{lake}/sub/b", f"{target}/m").errors
        cli.ok(*words, "-f", f"{lake}/sub/b", f"{target}/m")
        assert cli.ok("cat", f"{target}/m").output == b"bb"
    assert cli.ok("stat", "--json", "s3k://lab/m").json()["physical"] == f"{lake}/sub/b"
    one = f"{lake}/a"
    for command in (("du", one), ("sync", one, "out"), ("diff", one, "."), ("diff", ".", one)):
        done = cli(*command)
        assert done.code != 0
        assert "an object, not a prefix" in done.errors, command
        assert done.errors.rstrip().endswith(one)


@pytest.mark.engine
@pytest.mark.usefixtures("service")
def test_directories_that_are_objects_are_imported(cli: Cli, moto_s3: Engine) -> None:
    """Empty ones too; other directories of a bucket are not compared."""
    bucket = fresh_name("s3k-bucket")
    objects = FILES | dict.fromkeys(("empty/", "sub/", "deep/er/"), b"")
    with closing_client(moto_s3, "s3") as s3:
        s3.create_bucket(Bucket=bucket)
        for key, data in objects.items():
            s3.put_object(Bucket=bucket, Key=f"lake/{key}", Body=data)
    lake = f"s3://{bucket}/lake"
    cli.ok("init", "./vol")
    cli.ok("init", "s3k://lab", "--table", f"memory://{bucket}", "--bucket", bucket)
    shown = ["/in/a", "/in/deep/", "/in/deep/er/", "/in/empty/", "/in/sub/", "/in/sub/b"]
    for target, words in (
        *(("./vol:/in", ("import",)), ("s3k://lab/in", ("import", "--adopt"))),
        ("./vol:/synced/in", ("sync",)),
    ):
        assert "make\tempty/" in cli.ok(*words, "-n", lake, target).lines
        assert "3 files, 3 directories" in cli.ok(*words, lake, target).out
        found = [line.removeprefix("/synced") for line in cli.ok("ls", "-R", target).lines]
        assert found == [*shown, "/in/sub/c.log"]
        again = cli.ok(*words, lake, target).out
        assert " 0 files, 0 bytes to " in again
        assert "3 files unchanged" in again
        cli.ok("diff", lake, target)
        cli.ok("rm", "-r", f"{target}/empty")
        assert cli("diff", lake, target).lines[0] == "only_left\t-\t-\tempty/"
        cli.ok("mkdir", f"{target}/own")
        assert "differences" not in cli("diff", lake, target).lines[0]
        assert "deleted" not in cli.ok("sync", "--delete", lake, target).out


@pytest.mark.engine
def test_a_bucket_that_does_not_exist(cli: Cli, bucket: S3Bucket) -> None:
    cli.ok("init", "./vol")
    for place in (f"s3://{fresh_name('gone')}", f"s3://{fresh_name('gone')}/a"):
        for command in (
            *(("ls", place), ("du", place), ("sync", place, "./vol:/x")),
            *(("import", place, "./vol:/x"), ("diff", place, "./vol:/")),
        ):
            done = cli(*command)
            assert done.code == (2 if command[0] == "diff" else 3)
            assert "the bucket does not exist" in done.errors, done
            assert "s3k init" not in done.errors


@pytest.mark.engine
@pytest.mark.usefixtures("service")
def test_adoption_from_a_versioned_bucket(cli: Cli, moto_s3: Engine) -> None:
    """The version is shown and read, and named after it was deleted."""
    bucket = fresh_name("s3k-bucket")

    async def stored(data: bytes, deleted: str = "") -> None:
        blobs = S3Blobs(bucket, "", moto_s3.aws())
        await blobs.create()
        await set_versioning(blobs, "Enabled")
        await blobs.put("lake/a", data)
        if deleted:
            await delete_version(blobs, "lake/a", deleted)
        await blobs.close()

    asyncio.run(stored(b"alpha"))
    cli.ok("init", "s3k://lab", "--table", f"memory://{bucket}", "--bucket", bucket)
    cli.ok("import", "--adopt", f"s3://{bucket}/lake", "s3k://lab/in")
    asyncio.run(stored(b"omega"))
    assert cli.ok("cat", "s3k://lab/in/a").output == b"alpha"
    version = cli.ok("--json", "stat", "s3k://lab/in/a").json()["object_version"]
    listed = cli.ok("--json", "ls", "s3k://lab/in").json()
    recorded = cli.ok("--json", "checksum", "s3k://lab/in/a").json()
    assert listed["object_version"] == recorded["object_version"] == version
    assert listed["checksum"] == recorded["checksum"] == ""
    asyncio.run(stored(b"omega", version))
    failed = cli("cat", "s3k://lab/in/a")
    assert f"the version {version} of the adopted object was deleted" in failed.errors
    assert failed.code == ExitCode.DAMAGE
    cli.ok("import", "--adopt", "-f", f"s3://{bucket}/lake", "s3k://lab/in")
    assert cli.ok("cat", "s3k://lab/in/a").output == b"omega"
