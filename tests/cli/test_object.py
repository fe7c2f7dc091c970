"""object: buckets, objects and uploads."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from s3k_async.bulk.transfer import upload
from s3k_async.cli.commands import object_transfers, object_verbs
from s3k_async.objects import object_store
from tests.cli.conftest import Cli


@pytest.fixture
def filled(cli: Cli, volume: str) -> list[str]:
    """Two buckets, the first with these keys."""
    cli.ok("object", "mb", "/b", "/other", "--uid", "7")
    keys = ["a.csv", "a.txt", "d/e/one.txt", "d/two.csv", "dx"]
    for key in keys:
        cli.ok("put", "-", f"/b/{key}", stdin=key.encode())
    return keys


def test_buckets(cli: Cli, volume: str) -> None:
    cli.ok("object", "mb", "/b", "/c", "--uid", "7")
    assert cli.ok("object", "ls").out.split() == ["b", "c"]
    assert [each["bucket"] for each in cli.ok("object", "ls", "--json").json_lines()] == ["b", "c"]
    assert "exists" in cli.fails(4, "object", "mb", "/b").errors
    cli.ok("put", "-", "/b/d/k", stdin=b"data")
    said = cli.ok("object", "info", "/b", "--json").json()
    assert (said["bucket"], said["uid"], said["objects"], said["bytes"]) == ("b", 7, 1, 4)
    assert "objects: 1" in cli.ok("object", "info", "/b").out
    assert "which --force deletes, too: /b" in cli.fails(4, "object", "rb", "/b").errors
    cli.ok("object", "rb", "/c")
    cli.ok("object", "rb", "/b", "--force")
    assert cli.ok("object", "ls").out == ""
    cli.fails(3, "object", "rb", "/b")
    for wrong in ("/", "/b/k"):
        assert "a bucket" in cli.fails(2, "object", "mb", wrong).errors
    assert "expected a bucket or an object: /" in cli.fails(2, "object", "info", "/").errors
    assert "expected the name of a bucket" in cli.fails(2, "object", "rm", "-r", "/").errors


def test_ls_lists_all_pages(cli: Cli, filled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """H3's command saw only the first page."""
    assert cli.ok("object", "ls", "/b").out.split() == filled
    assert cli.ok("object", "ls", "/b/d").out.split() == ["d/e/one.txt", "d/two.csv", "dx"]
    assert cli.ok("object", "ls", "/b/d/").out.split() == ["d/e/one.txt", "d/two.csv"]
    assert cli.ok("object", "ls", "/b", "--limit", "2").out.split() == filled[:2]
    assert cli.ok("object", "ls", "/b", "--after", filled[1]).out.split() == filled[2:]
    monkeypatch.setattr(object_verbs, "PAGE", 2)
    assert cli.ok("object", "ls", "/b").out.split() == filled
    said = cli.ok("object", "ls", "/b/a.csv", "--json").json()
    assert (said["key"], said["size"]) == ("a.csv", 5)
    assert said == cli.ok("object", "info", "/b/a.csv", "--json").json()
    cli.fails(3, "object", "ls", "/none")


def test_ls_finds_objects_by_metadata(
    cli: Cli, filled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = ["a.txt", "d/e/one.txt", "d/two.csv"]
    cli.ok("put", "-", "/other/k", stdin=b"")
    for path in (*(f"/b/{key}" for key in found), "/other/k"):
        cli.ok("attr", path, "--set", "colour=red")
    cli.ok("attr", "/b/a.csv", "--set", "size=1")
    for page in (2, 1000):
        monkeypatch.setattr(object_verbs, "PAGE", page)
        assert sorted(cli.ok("object", "ls", "--metadata", "colour", "/b").out.split()) == found
    assert len(cli.ok("object", "ls", "--metadata", "colour", "/b", "--limit", "2").lines) == 2
    said = cli.ok("object", "ls", "--metadata", "size", "/b", "--json").json()
    assert said == cli.ok("object", "info", "/b/a.csv", "--json").json()
    assert cli.ok("object", "ls", "--metadata", "none", "/b").out == ""
    assert "a bucket" in cli.fails(2, "object", "ls", "--metadata", "colour", "/b/d").errors
    assert "a bucket" in cli.fails(2, "object", "ls", "--metadata", "colour").errors
    cli.fails(2, "object", "ls", "--metadata", "colour", "/b", "--after", "a")
    cli.fails(3, "object", "ls", "--metadata", "colour", "/none")


def test_copies_and_moves_between_buckets(cli: Cli, volume: str, filled: list[str]) -> None:
    """H3's command refused them."""
    cli.ok("attr", "/b/a.txt", "--set", "name=value")
    assert cli.ok("object", "cp", "/b/a.txt", "/other/x/copy").out == (
        f"copied 1 object to {volume}/other/x/copy\n"
    )
    assert cli.ok("cat", "/other/x/copy").out == "a.txt"
    assert cli.ok("find", "--metadata", "name", "/other").out.split() == ["/other/x/copy"]
    cli.ok("object", "mv", "/b/a.csv", "/other/moved")
    assert cli.ok("object", "ls", "/other").out.split() == ["moved", "x/copy"]
    cli.fails(3, "object", "cp", "/b/a.csv", "/other/again")
    cli.fails(4, "object", "cp", "--no-overwrite", "/b/dx", "/other/moved")
    assert "BUCKET/KEY" in cli.fails(2, "object", "cp", "/b", "/other").errors
    assert "BUCKET/KEY" in cli.fails(2, "object", "cp", "/b/dx", "/").errors
    for target in ("/other", "/other/new/"):
        assert "copied 1 object" in cli.ok("object", "cp", "/b/d/e/one.txt", target).out
    assert cli.ok("object", "ls", "/other/new").out.split() == ["new/one.txt"]
    assert cli.ok("cat", "/other/one.txt").out == "d/e/one.txt"


def test_recursive_with_include_and_exclude(cli: Cli, volume: str, filled: list[str]) -> None:
    """In H3, exclude made include ineffective."""
    cli.ok("put", "-", "/b/d/not.included", stdin=b"")
    selection = ("--include", "*.txt", "--include", "*.csv", "--exclude", "e/*")
    assert cli.ok("object", "cp", "-r", "/b/d/", "/other/y/", *selection, "--json").json() == {
        "target": [f"{volume}/other/y/"],
        "objects": 1,
    }
    assert cli.ok("object", "ls", "/other").out.split() == ["y/two.csv"]
    cli.ok("object", "rm", "/b/d/not.included")
    assert cli.ok("object", "mv", "-r", "/b/d", "/other/z").out == (
        f"moved 3 objects to {volume}/other/z\n"
    )
    assert cli.ok("object", "ls", "/b").out.split() == ["a.csv", "a.txt"]
    assert cli.ok("object", "ls", "/other/z").out.split() == ["z/e/one.txt", "z/two.csv", "zx"]
    cli.fails(2, "object", "rm", "/b/a.txt", "--include", "*")
    assert cli.ok("object", "rm", "-r", "/other", "--exclude", "*.txt").out == (
        f"deleted 3 objects from {volume}/other\n"
    )
    assert cli.ok("object", "ls", "/other").out.split() == ["z/e/one.txt"]
    cli.ok("object", "rm", "/b/a.txt", "/b/a.csv")
    assert cli.ok("object", "ls", "/b").out == ""
    cli.fails(3, "object", "rm", "/b/a.txt")


@pytest.mark.parametrize("verb", ["cp", "mv"])
def test_a_prefix_is_not_copied_below_itself(cli: Cli, filled: list[str], verb: str) -> None:
    """The listing would find the new objects, too, without an end."""
    for source, target in (("/b", "/b/backup/"), ("/b/d", "/b/dd"), ("/b/d/", "/b/d/")):
        failed = cli.fails(2, "object", verb, "-r", source, target)
        assert "begins with the source prefix" in failed.errors
        done = {"cp": "copied", "mv": "moved"}[verb]
        assert f"the new objects would be {done} again and again" in failed.errors
    assert cli.ok("object", "ls", "/b").out.split() == filled
    cli.ok("object", verb, "-r", "/b/dx", "/b/d/x")
    assert "d/x" in cli.ok("object", "ls", "/b").out.split()


def test_a_recursive_removal_is_a_request_for_many(cli: Cli, filled: list[str]) -> None:
    stats = cli("object", "rm", "-r", "/b", "--stats").errors
    assert cli.ok("object", "ls", "/b").out == ""
    assert "TransactWriteItems 1\n" in stats


def test_a_removal_names_its_operands(cli: Cli, filled: list[str]) -> None:
    failed = cli("object", "rm", "/b/none", "/b/a.txt", "/b/gone")
    assert failed.code == 10
    assert failed.errors.count("no such object: /b/none") == 1
    assert "Address" not in failed.errors
    cli.fails(3, "object", "info", "/b/a.txt")
    error = cli("object", "rm", "/b/none", "/b/gone", "--json").error()
    assert [each["path"] for each in error["failures"]] == ["/b/none", "/b/gone"]


def test_what_fails_is_told_and_the_rest_is_done(cli: Cli, filled: list[str]) -> None:
    """H3's command ended with 0."""
    cli.ok("attr", "/b/a.txt", "--read-only")
    failed = cli("object", "rm", "-r", "/b")
    assert failed.code == 10
    assert "read-only" in failed.errors
    assert "1 object of 5 failed" in failed.errors
    assert cli.ok("object", "ls", "/b").out.split() == ["a.txt"]
    assert "it is read-only: s3k attr --writable" in cli.fails(5, "object", "rb", "-f", "/b").errors
    assert cli.ok("object", "ls", "/b").out.split() == ["a.txt"]


def test_an_upload(cli: Cli, volume: str, filled: list[str], tmp_path: Path) -> None:
    (tmp_path / "part").write_bytes(b"first ")
    upload = cli.ok("object", "upload", "create", "/b/big").out.strip()
    other = cli.ok("object", "upload", "create", "/b/big", "--lifetime", "1h", "--json").json()
    assert other["key"] == "big"
    cli.ok("object", "upload", "put", volume, upload, "2", "-", stdin=b"last")
    cli.ok("object", "upload", "put", volume, upload, "0", str(tmp_path / "part"))
    cli.ok("object", "upload", "copy", volume, upload, "1", "/b/a.txt", "--size", "1")
    parts = cli.ok("object", "upload", "parts", volume, upload).out.splitlines()
    assert parts == ["0  6", "1  1", "2  4"]
    pending = cli.ok("object", "upload", "ls", "/b").out
    assert upload in pending
    assert other["id"] in pending
    said = cli.ok("object", "upload", "complete", volume, upload, "--json").json()
    assert said == {"volume": f"{volume}/", "bucket": "b", "key": "big", "size": 11}
    assert cli.ok("cat", "/b/big").out == "first alast"
    cli.fails(3, "object", "upload", "complete", volume, upload)
    assert "uploads" in cli.fails(4, "object", "rb", "/b").errors
    cli.ok("object", "upload", "abort", volume, other["id"])
    assert cli.ok("object", "upload", "ls", "/b").out == ""


def test_a_volume_with_counters(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The statistics are those of the counter, where the latest modification may be that of an
    object that was deleted; in a listing it is not."""
    cli.ok("init", "./counted", "--enable", "counters")
    monkeypatch.setenv("S3K_VOLUME", "./counted")
    cli.ok("object", "mb", "/b")
    for key in ("d/y", "x"):
        cli.ok("put", "-", f"/b/{key}", stdin=b"data")
    kept, deleted = [
        cli.ok("object", "info", f"/b/{key}", "--json").json()["modified_ms"]
        for key in ("d/y", "x")
    ]
    cli.ok("rm", "/b/x")
    said = cli.ok("object", "info", "/b", "--json").json()
    assert (said["objects"], said["bytes"], said["newest_ms"]) == (1, 4, deleted)
    listed = cli.ok("object", "info", "--newest", "/b", "--json").json()
    assert listed == {**said, "newest_ms": kept}
    assert "another bucket" in cli.fails(1, "mv", "/b", "/c").errors


LOCAL = {"f.txt": b"f", "tree/a.csv": b"a", "tree/d/b.txt": b"b", "tree/d/c.csv": b"c"}


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with these files."""
    place = tmp_path / "local"
    for name, data in LOCAL.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(data)
    monkeypatch.chdir(place)
    return place


def local_files(place: Path) -> dict[str, bytes]:
    return {
        str(each.relative_to(place)): each.read_bytes()
        for each in place.rglob("*")
        if each.is_file()
    }


def keys(cli: Cli, place: str) -> list[str]:
    return cli.ok("object", "ls", place).out.split()


@pytest.mark.parametrize(
    ("target", "key"), [("x/f", "x/f"), ("x/", "x/f.txt"), ("", "f.txt"), ("f.txt/", "f.txt/f.txt")]
)
def test_a_local_file_is_stored(
    cli: Cli, volume: str, filled: list[str], local: Path, target: str, key: str
) -> None:
    copied = cli.ok("object", "cp", "./f.txt", f"/other/{target}")
    assert copied.out == f"copied 1 object to {volume}/other/{target}\n"
    assert keys(cli, "/other") == [key]
    assert cli.ok("cat", f"/other/{key}").out == "f"
    assert (
        "exists" in cli.fails(4, "object", "cp", "--no-overwrite", "f.txt", f"/other/{key}").errors
    )
    moved = cli.ok("object", "mv", "f.txt", f"/other/{key}", "--json").json()
    assert moved == {"target": [f"{volume}/other/{key}"], "objects": 1}
    assert sorted(local_files(local)) == sorted({*LOCAL} - {"f.txt"})


def test_local_files_and_directories_are_stored(
    cli: Cli, volume: str, filled: list[str], local: Path
) -> None:
    cli.ok("object", "cp", "-r", "tree", "f.txt", "/other/x")
    assert keys(cli, "/other") == ["x/f.txt", "x/tree/a.csv", "x/tree/d/b.txt", "x/tree/d/c.csv"]
    cli.ok("object", "rm", "-r", "/other")
    (local / "tree" / "not.included").touch()
    cli.ok("object", "cp", "-r", "tree/", "/other", "--include", "*.csv", "--exclude", "d/*")
    assert keys(cli, "/other") == ["a.csv"]
    (local / "tree" / "not.included").unlink()
    cli.ok("object", "cp", "-r", "tree", "/other/")
    assert keys(cli, "/other") == ["a.csv", "tree/a.csv", "tree/d/b.txt", "tree/d/c.csv"]
    assert local_files(local) == LOCAL
    moved = cli.ok("object", "mv", "-r", "tree", "/other/y", "--exclude", "a.csv")
    assert moved.out == f"moved 2 objects to {volume}/other/y\n"
    assert keys(cli, "/other/y") == ["y/d/b.txt", "y/d/c.csv"]
    assert not (local / "tree" / "d").exists()
    cli.ok("object", "mv", "-r", "tree", "/other/y")
    assert [each.name for each in local.iterdir()] == ["f.txt"]


def test_objects_are_written_to_local_files(cli: Cli, filled: list[str], local: Path) -> None:
    cli.ok("object", "cp", "/b/a.csv", "new")
    cli.ok("object", "cp", "/b/d/two.csv", "./into/")
    cli.ok("object", "cp", "/b/a.txt", "/b/d/e/one.txt", "into")
    cli.ok("object", "cp", "/b/a.txt", "into")
    assert (local / "new").read_bytes() == b"a.csv"
    into = {"two.csv": b"d/two.csv", "a.txt": b"a.txt", "one.txt": b"d/e/one.txt"}
    assert local_files(local / "into") == into
    cli.fails(4, "object", "cp", "--no-overwrite", "/b/a.txt", "into")
    assert cli.ok("object", "cp", "-r", "/b/d", "all").out == "copied 3 objects to all\n"
    below = {each: each.encode() for each in filled if each.startswith("d")}
    assert local_files(local / "all") == below
    cli.ok("object", "cp", "-r", "/b/d/", "some", "--exclude", "e/*")
    assert local_files(local / "some") == {"two.csv": b"d/two.csv"}
    cli.ok("object", "mv", "/b/a.txt", "moved.txt")
    cli.ok("object", "mv", "-r", "/b/d/", "moved", "--include", "*.csv")
    assert local_files(local / "moved") == {"two.csv": b"d/two.csv"}
    assert keys(cli, "/b") == ["a.csv", "d/e/one.txt", "dx"]


@pytest.mark.parametrize("verb", ["cp", "mv"])
@pytest.mark.parametrize("target", ["/other/", "to"])
def test_a_recursive_copy_or_move_takes_all_pages(
    cli: Cli,
    filled: list[str],
    local: Path,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    target: str,
) -> None:
    """H3's command saw only the first page, and exclude made include ineffective."""
    monkeypatch.setattr(object_store, "PAGE", 2)
    monkeypatch.setattr(object_verbs, "PAGE", 2)

    def copied(*words: str) -> list[str]:
        cli.ok("object", verb, "-r", "/b/", target, *words)
        to = keys(cli, target) if target == "/other/" else sorted(local_files(local / target))
        left = keys(cli, "/b")
        assert left == [key for key in filled if verb == "cp" or key not in to]
        return to

    chosen = ("--include", "*.txt", "--include", "dx", "--exclude", "a.*")
    assert copied(*chosen) == ["d/e/one.txt", "dx"]
    assert copied() == filled


def test_a_recursive_removal_takes_all_pages(
    cli: Cli, filled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "PAGE", 2)
    monkeypatch.setattr(object_verbs, "PAGE", 2)
    chosen = ("--include", "*.txt", "--include", "dx", "--exclude", "a.*")
    assert "deleted 2 objects" in cli.ok("object", "rm", "-r", "/b", *chosen).out
    assert keys(cli, "/b") == ["a.csv", "a.txt", "d/two.csv"]
    assert "deleted 3 objects" in cli.ok("object", "rm", "-r", "/b").out
    assert keys(cli, "/b") == []


def test_what_is_not_copied_is_kept(cli: Cli, filled: list[str], local: Path) -> None:
    """Every file and object is tried, and the source of a failure is not removed."""
    (local / "tree" / "link").symlink_to(local)
    failed = cli("object", "mv", "-r", "tree", "f.txt", "gone", "/other/x/")
    assert failed.code == 10
    assert "a link to a directory is not followed: tree/link" in failed.errors
    assert "no such local file; an object of the default volume is written /gone" in failed.errors
    assert "2 objects of 6 failed" in failed.errors
    assert os.listdir(local) == ["tree"]
    assert os.listdir(local / "tree") == ["link"]
    cli.ok("attr", "/b/a.txt", "--read-only")
    failed = cli("object", "mv", "/b/a.csv", "/b/a.txt", "/b/none", ".")
    assert failed.code == 10
    assert "2 objects of 3 failed" in failed.errors
    assert {*local_files(local)} == {"a.csv", "a.txt"}
    assert keys(cli, "/b/a") == ["a.txt"]
    failed = cli("object", "cp", "-r", "/other/x/tree/d/", "/other/x/tree/d/b.txt", "to")
    assert failed.code == 10
    assert "another source was copied to to/b.txt" in failed.errors


def test_a_volume_is_not_moved_into_itself(cli: Cli, local: Path) -> None:
    cli.ok("init", "./tree/vol")
    cli.ok("object", "mb", "./tree/vol:/b")
    cli.ok("put", "-", "./tree/vol:/b/kept", stdin=b"kept")
    around = cli("object", "mv", "-r", "tree", "./tree/vol:/b/")
    assert (around.code, "source and target overlap" in around.errors) == (2, True)
    assert (local / "tree" / "a.csv").exists()
    within = cli("object", "mv", "tree/vol/metadata.sqlite", "./tree/vol:/b/")
    assert within.code == 2
    assert cli.ok("cat", "./tree/vol:/b/kept").out == "kept"
    assert cli.ok("fsck", "./tree/vol").out.startswith("clean")


def test_what_may_hide_selected_files_is_a_failure(
    cli: Cli, filled: list[str], local: Path
) -> None:
    """A directory that is not read is one whatever is included, unless it is excluded."""
    (local / "tree" / "link").symlink_to(local)
    (local / "tree" / "nowhere").symlink_to("none")
    words = ("object", "cp", "-r", "tree", "/other/", "--include", "*.txt")
    failed = cli(*words)
    assert failed.code == 10
    assert "a link to a directory is not followed: tree/link" in failed.errors
    assert "nowhere" not in failed.errors
    cli.ok(*words, "--exclude", "link")


def test_a_source_without_a_bucket_does_not_stop_the_others(
    cli: Cli, filled: list[str], local: Path
) -> None:
    failed = cli("object", "cp", "-r", "/none/x", "/b/d/e", "to")
    assert failed.code == 10
    assert "no such file or directory: /none" in failed.errors
    assert "1 object of 2 failed" in failed.errors
    assert {*local_files(local / "to")} == {"e/one.txt"}
    cli.fails(3, "object", "cp", "-r", "/none/x", "to")


@pytest.mark.parametrize("verb", ["cp", "mv"])
def test_an_object_does_not_take_the_place_of_another_source(
    cli: Cli, filled: list[str], local: Path, verb: str
) -> None:
    """`a/a/a/x` comes before `a/a/x` in the listing, and its target is that key."""
    for key in ("a/a/a/x", "a/a/x", "a/a/y"):
        (local / "of").write_text(key)
        cli.ok("object", "cp", "of", f"/other/{key}")
    failed = cli("object", verb, "-r", "/other/a/a/", "/other/a/")
    assert failed.code == 10
    assert "its target, a/a/x, is below the source prefix" in failed.errors
    assert "/other/a/a/a/x" in failed.errors
    left = ["a/a/a/x"] if verb == "mv" else ["a/a/a/x", "a/a/x", "a/a/y"]
    assert keys(cli, "/other") == [*left, "a/x", "a/y"]
    for key, origin in (("a/a/a/x", "a/a/a/x"), ("a/x", "a/a/x"), ("a/y", "a/a/y")):
        assert cli.ok("cat", f"/other/{key}").out == origin
    cli.ok("object", verb, "-r", "/other/a/", "/b/elsewhere/")


def test_the_files_of_the_volume_are_not_moved_into_it(cli: Cli) -> None:
    """A directory around that of the volume has the table among its files."""
    around = Path("around")
    around.mkdir()
    (around / "f").write_text("f")
    Path("link").symlink_to(around)
    cli.ok("init", "./around/vol")
    cli.ok("object", "mb", "./around/vol:/b")
    for source in ("around", "link"):
        failed = cli.fails(2, "object", "mv", "-r", source, "./around/vol:/b/")
        assert "overlap" in failed.errors
    assert (around / "f").read_text() == "f"
    cli.ok("object", "mv", "around/f", "./around/vol:/b/")
    assert cli.ok("cat", "./around/vol:/b/f").out == "f"


def test_two_directories_without_names_do_not_replace_each_others_files(
    cli: Cli, filled: list[str], local: Path
) -> None:
    """The files of the first were in no place any more."""
    for name in ("one", "two"):
        (local / name).mkdir()
        (local / name / "same").write_text(name)
        (local / name / name).write_text(name)
    failed = cli("object", "mv", "-r", "one/.", "two/.", "/other/n/")
    assert failed.code == 10
    assert "another source was copied to n/same: two/./same" in failed.errors
    assert cli.ok("cat", "/other/n/same").out == "one"
    assert keys(cli, "/other/n") == ["n/one", "n/same", "n/two"]
    assert local_files(local / "two") == {"same": b"two"}


def test_a_file_that_changes_while_it_is_moved_is_kept(
    cli: Cli, filled: list[str], local: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def write_on(*arguments: Any, **options: Any) -> object:
        done = await upload(*arguments, **options)
        (local / "f.txt").write_bytes(b"more")
        return done

    monkeypatch.setattr(object_transfers, "upload", write_on)
    failed = cli.fails(6, "object", "mv", "f.txt", "/other/f")
    assert "it was changed while it was copied, and is kept: f.txt" in failed.errors
    assert (local / "f.txt").read_bytes() == b"more"
    assert cli.ok("cat", "/other/f").out == "f"


def test_which_side_is_local(
    cli: Cli, volume: str, filled: list[str], local: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path with a `/` at its start is one of the default volume, unless --local."""
    file = str(local / "f.txt")
    failed = cli.fails(3, "object", "cp", file, "/other/f")
    assert f"with --local, {file} is a local path" in failed.errors
    cli.ok("object", "cp", "--local", file, ":/other/f")
    cli.ok("object", "mv", "--local", ":/other/f", str(local / "back"))
    assert (local / "back").read_bytes() == b"f"
    assert "no such bucket: /none" in cli.fails(3, "object", "cp", "f.txt", "/none/f").errors
    assert (
        "-r copies it and everything below it: tree"
        in cli.fails(1, "object", "cp", "tree", "/other/x").errors
    )
    assert "no such object; -r copies" in cli.fails(3, "object", "cp", "/b/d", "x").errors
    for operands in (("f.txt", "x"), ("f.txt", "/b/a.txt", "/other/")):
        assert "either the sources or the target" in cli.fails(2, "object", "cp", *operands).errors
    assert "one object" in cli.fails(2, "object", "cp", "/b/a.txt", "/b/dx", "/other/").errors
    assert "s3k put -" in cli.fails(2, "object", "cp", "-", "/b/x").errors
    cli.fails(2, "object", "cp", "f.txt", "tree/../f.txt", "/other/")
    cli.ok("init", "./inner")
    cli.ok("object", "mb", "./inner:/b")
    assert "write inner:/b" in cli.fails(2, "object", "cp", "/b/dx", "inner/b").errors.replace(
        f"{local}/", ""
    )
    monkeypatch.delenv("S3K_VOLUME")
    cli.ok("object", "cp", "f.txt", "./inner:/b/k")
    failed = cli("object", "cp", file, "./inner:/b/k")
    assert f"with --local, {file} is a local path" in failed.errors


WRONG_KEYS = ["d//two.csv", "d/../a.txt", "../other/k", "./a.txt", "a.txt/", "/a.txt", "d/.", ".."]


@pytest.fixture
def untouched(cli: Cli, filled: list[str], local: Path) -> Iterator[None]:
    """Nothing has changed at the end, in the volume and beside it."""
    cli.ok("put", "-", "/other/k", stdin=b"k")
    before = cli.ok("ls", "-R", "/", "--json").out
    yield
    assert cli.ok("ls", "-R", "/", "--json").out == before
    assert local_files(local) == LOCAL


@pytest.mark.parametrize("key", WRONG_KEYS)
def test_a_key_is_not_resolved(cli: Cli, untouched: None, key: str) -> None:
    """As a path, each of these leads to an object, of which one is in another bucket."""
    wrong = f"/b/{key}"
    refused = cli.fails(2, "object", "info", wrong).errors
    assert "a key consists of names" in refused or "a key is invalid" in refused
    for words in (
        ("cp", wrong, "f"),
        ("mv", wrong, "f"),
        ("cp", wrong, "./into/"),
        ("mv", wrong, "./into/"),
        ("cp", wrong, "/other/f"),
        ("mv", wrong, "/other/f"),
        ("rm", wrong),
        ("upload", "create", wrong),
    ):
        assert cli.fails(2, "object", *words).errors == refused, words
    two = cli("object", "mv", wrong, "/b/none", "into")
    assert (two.code, "2 objects of 2 failed" in two.errors) == (10, True)
    assert refused.split(": ", 1)[1].strip() in two.errors


@pytest.mark.parametrize("key", ["d//x", "d/../x", "../other/x", "./x", "/x", "d/./", "/", "//"])
def test_the_key_of_a_target_is_not_resolved(cli: Cli, untouched: None, key: str) -> None:
    wrong = f"/b/{key}"
    for verb in ("cp", "mv"):
        cli.fails(2, "object", verb, "/other/k", wrong)
        cli.fails(2, "object", verb, "f.txt", wrong)
        for words in (("/other/", wrong), ("tree", wrong), ("tree/.", wrong)):
            assert cli("object", verb, "-r", *words).code in (2, 10)


@pytest.mark.parametrize("prefix", ["d//", "d/../a", "../other/", "./a", "/", "//a"])
def test_a_prefix_is_not_resolved(cli: Cli, untouched: None, prefix: str) -> None:
    wrong = f"/b/{prefix}"
    refused = cli.fails(2, "object", "ls", wrong).errors
    assert "a prefix of keys" in refused
    for words in (
        ("rm", "-r", wrong),
        ("cp", "-r", wrong, "into"),
        ("mv", "-r", wrong, "into"),
        ("cp", "-r", wrong, "/other/into/"),
        ("mv", "-r", wrong, "/other/into/"),
    ):
        assert cli.fails(2, "object", *words).errors == refused, words


@pytest.mark.parametrize("bucket", ["..", "."])
def test_the_name_of_a_bucket_is_not_resolved(cli: Cli, untouched: None, bucket: str) -> None:
    wrong = f"/{bucket}/b"
    for words in (
        ("info", f"{wrong}/a.txt"),
        ("cp", f"{wrong}/a.txt", "f"),
        ("mv", f"{wrong}/a.txt", "f"),
        ("cp", "f.txt", f"{wrong}/f"),
        ("mv", "f.txt", f"{wrong}/f"),
        ("cp", "/other/k", f"{wrong}/f"),
        ("rm", f"{wrong}/a.txt"),
        ("rm", "-r", wrong),
        ("ls", wrong),
        ("mb", f"/{bucket}"),
        ("rb", "-f", f"/{bucket}"),
        ("upload", "create", f"{wrong}/k"),
        ("upload", "ls", f"/{bucket}"),
    ):
        assert "the name of a bucket" in cli.fails(2, "object", *words).errors, words


def test_an_upload_takes_parts_of_its_own_volume_and_bucket(
    cli: Cli, volume: str, untouched: None
) -> None:
    """A key was ignored where a bucket is needed, and so was the volume of a part."""
    upload = cli.ok("object", "upload", "create", "/b/big").out.strip()
    for wrong in ("/b/big", "/b/../other"):
        assert "a bucket" in cli.fails(2, "object", "upload", "ls", wrong).errors
    assert upload in cli.ok("object", "upload", "ls", "/b/").out
    cli.ok("init", "./second")
    cli.ok("object", "mb", "./second:/b")
    cli.ok("put", "-", "./second:/b/a.txt", stdin=b"of the second")
    for key in WRONG_KEYS:
        cli.fails(2, "object", "upload", "copy", volume, upload, "0", f"/b/{key}")
    failed = cli.fails(2, "object", "upload", "copy", volume, upload, "0", "./second:/b/a.txt")
    assert "the object is in another volume than the upload" in failed.errors
    assert cli.ok("object", "upload", "parts", volume, upload).out == ""
    other = cli.ok("object", "upload", "create", "./second:/b/big").out.strip()
    for number, named in enumerate(("/b/a.txt", "./second:/b/a.txt")):
        cli.ok("object", "upload", "copy", "./second", other, str(number), named)
    assert cli.ok("object", "upload", "parts", "./second", other).lines == ["0  13", "1  13"]
    cli.ok("object", "upload", "abort", volume, upload)
    shutil.rmtree("second")
