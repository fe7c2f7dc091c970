"""verify: the check of listed paths."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from s3k_async import S3kClient
from s3k_async.backends.ports.blobs import BlobInfo
from s3k_async.backends.ports.items import Condition, Update
from s3k_async.bulk.path_verification import PathVerifier
from s3k_async.client import volume_of
from s3k_async.errors import RequestTimeoutError
from s3k_async.integrity.repair import scope_of
from s3k_async.integrity.scope import Scope
from s3k_async.integrity.verify import VerifyReport
from s3k_async.settings import resolve
from s3k_async.volumes import open_volume
from tests.cli.conftest import Cli
from tests.cli.test_alerts import Hook, hook, kinds
from tests.cli.test_check import change_bytes, lose_bytes

Tree = dict[str, bytes]

__all__ = ["hook"]


def test_a_list_of_several_volumes(
    cli: Cli, volume: str, other_volume: str, small_tree: Tree
) -> None:
    cli.ok("put", "-", f"{other_volume}/x", stdin=b"four")
    lines = f"# nightly\n/a/one.txt\n\n{other_volume}/x\n/top.txt\n"
    done = cli.ok("verify", "-f", "-", stdin=lines.encode())
    assert done.lines == [
        f"clean: 2 files, 13 bytes in {volume}/",
        f"clean: 1 file, 4 bytes in {other_volume}/",
    ]
    document = cli.ok("verify", "-f", "-", "--json", stdin=lines.encode()).json()
    assert document["clean"]
    assert [(each["volume"], each["files"], each["complete"]) for each in document["volumes"]] == [
        (f"{volume}/", 2, True),
        (f"{other_volume}/", 1, True),
    ]
    assert cli.ok("verify", "-f", "-", "-0", stdin=b"/top.txt\0/empty\0").lines == [
        f"clean: 1 file, 3 bytes in {volume}/"
    ]
    assert "line 1" in cli.fails(2, "verify", "-f", "-", stdin=b"top.txt\n").errors
    cli.fails(2, "verify")
    cli.fails(2, "verify", "/a", "-f", "-")


def test_a_pattern_is_no_missing_entry(
    cli: Cli, volume: str, small_tree: Tree, hook: Hook, other_volume: str
) -> None:
    assert cli.ok("verify", "/a/*.txt", "/a/b/*").lines == [
        f"clean: 3 files, 2,010 bytes in {volume}/"
    ]
    refused = cli.fails(3, "verify", "/a/*.gone")
    assert "nothing matches the pattern" in refused.errors
    assert refused.lines == []
    assert cli.fails(10, "verify", "/a/*.gone", "/top.txt").lines == [
        f"clean: 1 file, 3 bytes in {volume}/"
    ]
    document = cli("verify", "--json", "/a/*.gone", "/top.txt").json()
    assert (document["clean"], document["volumes"][0]["clean"]) == (False, True)
    both = cli("verify", "/a/*.gone", f"{other_volume}/*")
    assert (both.code, both.lines, both.errors.count("nothing matches the pattern")) == (3, [], 2)
    assert kinds(hook) == []
    found = cli("verify", "/a/*.gone", "/gone")
    assert (found.code, found.lines[0].split(":")[0]) == (10, "entry_missing")
    listed = cli("verify", "-f", "-", stdin=b"/a/*\n")
    assert (listed.code, listed.lines[0].split(":")[0]) == (9, "entry_missing")
    part = cli("verify", "./nope:/*", "/top.txt")
    assert part.code == 10
    assert f"clean: 1 file, 3 bytes in {volume}/" in part.lines


def test_a_listing_of_paths_that_look_like_addresses_is_checked(cli: Cli, volume: str) -> None:
    cli.ok("put", "-", ":/a:/b", stdin=b"x")
    cli.ok("ls", "-R", "-o", "list.jsonl", ":/a:")
    done = cli.ok("verify", "-f", "list.jsonl", "--json")
    assert [(each["volume"], each["problems"]) for each in done.json()["volumes"]] == [
        (f"{volume}/", [])
    ]


def test_addresses_of_one_volume_have_one_summary(cli: Cli) -> None:
    cli.ok("init", "./vol")
    cli.ok("put", "-", "./vol:/in/a.txt", stdin=b"1")
    whole = Path("vol").absolute()
    lines = f"./vol:/in/a.txt\n/nope\n{whole}:/in\n"
    done = cli("verify", "-f", "-", "--volume", "./vol", stdin=lines.encode())
    assert (done.code, done.errors, len(done.lines)) == (9, "", 2)
    assert "/nope" in done.lines[0]
    assert done.lines[1].startswith("found 1 problem (1 entry_missing) in 2 files, 2 bytes in ")
    assert done.lines[1].endswith("vol:/")
    found = cli("verify", "./vol:/in", f"{whole}:/in", "--json").json()["volumes"]
    assert [(each["files"], each["clean"]) for each in found] == [(2, True)]


def test_each_kind_of_damage_is_a_finding_and_an_alert(
    cli: Cli, volume: str, small_tree: Tree, hook: Hook
) -> None:
    lose_bytes(cli, volume, "/a/one.txt")
    change_bytes(cli, volume, "/a/b/two.csv", b"short")
    change_bytes(cli, volume, "/top.txt", b"pot")
    done = cli("verify", "/a", "/top.txt", "/gone", "/top.txt/below", "--threads", "2")
    assert (done.code, done.errors) == (9, "")
    assert sorted(line.partition(": ")[2].split(":")[0] for line in done.lines[:-1]) == [
        "/a/b/two.csv",
        "/a/one.txt",
        "/gone",
        "/top.txt",
        "/top.txt/below",
    ]
    assert done.lines[-1] == (
        "found 5 problems (1 checksum_mismatch, 1 data_missing, 2 entry_missing, 1 size_mismatch) "
        f"in 4 files, 2,013 bytes in {volume}/"
    )
    assert {each["operation"] for each in hook.posted} == {"verify"}
    assert kinds(hook) == [
        ("conflict", "checksum_mismatch", 1, ["/top.txt"]),
        ("missing", "data_missing", 1, ["/a/one.txt"]),
        ("missing", "entry_missing", 2, ["/gone", "/top.txt/below"]),
        ("conflict", "size_mismatch", 1, ["/a/b/two.csv"]),
    ]
    hook.status = 403
    cli.fails(5, "verify", "/top.txt", "--alerts-on-error", "error")
    document = cli("verify", "/gone", "--json", "--alerts-on-error", "ignore").json()
    assert not document["clean"]
    assert [each["kind"] for each in document["volumes"][0]["problems"]] == ["entry_missing"]


def test_a_volume_that_does_not_answer_does_not_end_the_check_of_another(
    cli: Cli,
    volume: str,
    other_volume: str,
    small_tree: Tree,
    hook: Hook,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check = PathVerifier.check

    async def fail(self: PathVerifier, paths: Sequence[str]) -> None:
        if "/x" in paths:
            raise RequestTimeoutError("no answer", path="/x")
        await check(self, paths)

    monkeypatch.setattr(PathVerifier, "check", fail)
    done = cli("verify", f"{other_volume}/x", "/gone", "/top.txt", f"{other_volume}/y")
    assert done.code == 10
    assert done.errors == f"s3k: no answer: /x: {other_volume}/\n"
    assert done.lines[0] == f"incomplete: 0 files, 0 bytes in {other_volume}/"
    assert done.lines[-1].startswith("found 1 problem (1 entry_missing) in 1 file, ")
    assert kinds(hook) == [
        ("timeout", "RequestTimeoutError", 1, ["/x"]),
        ("missing", "entry_missing", 1, ["/gone"]),
    ]
    hook.status = 403
    cli.fails(8, "verify", f"{other_volume}/x", "--alerts-on-error", "ignore")


def test_a_volume_without_settings_does_not_end_the_check_of_another(
    cli: Cli, volume: str, small_tree: Tree, hook: Hook
) -> None:
    lines = "s3k://unknown/a\n/gone\ns3k://unknown/b\n"
    done = cli("verify", "-f", "-", stdin=lines.encode())
    assert done.code == 10
    assert done.errors.startswith("s3k: no volume named 'unknown' is configured")
    assert done.lines[0] == "incomplete: 0 files, 0 bytes in s3k://unknown"
    assert done.lines[-1] == f"found 1 problem (1 entry_missing) in 0 files, 0 bytes in {volume}/"
    assert kinds(hook) == [("missing", "entry_missing", 1, ["/gone"])]
    cli.fails(11, "verify", "s3k://unknown/a")


@pytest.mark.parametrize("change", ["replace", "remove"])
def test_a_change_during_the_check_is_no_damage(
    cli: Cli, volume: str, small_tree: Tree, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """The data of the former version is deleted after the entry was read."""
    head = Scope.head

    async def main(paths: list[str]) -> VerifyReport:
        async with S3kClient(volume) as client:
            changed: list[str] = []

            async def racing(self: Scope, physical: str, version: str = "") -> BlobInfo | None:
                if not changed:
                    changed.append(physical)
                    if change == "replace":
                        await client.write("/a/one.txt", b"new content")
                    else:
                        await client.delete("/a/one.txt")
                    await volume_of(client).blobs.delete(physical)
                return await head(self, physical, version)

            monkeypatch.setattr(Scope, "head", racing)
            verifier = PathVerifier(scope_of(volume_of(client)), threads=1)
            await verifier.check(paths)
            return verifier.report

    report = anyio.run(main, ["/a/one.txt"])
    if change == "replace":
        assert (report.clean, report.files, report.bytes) == (True, 1, 11)
    else:
        assert [each.kind for each in report.problems] == ["entry_missing"]
        cli.ok("put", "-", "/a/one.txt", stdin=b"1")
        monkeypatch.setattr(Scope, "head", head)
        cli.ok("rm", "-r", "/a/b")
        report = anyio.run(main, ["/a"])
        assert (report.clean, report.files) == (True, 0)


@pytest.mark.parametrize("file", ["-", "list.txt"])
@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf", b"# nothing\r\n\r\n \t\n"])
def test_a_list_without_paths_is_a_usage_error(
    cli: Cli, volume: str, file: str, content: bytes
) -> None:
    Path("list.txt").write_bytes(content)
    done = cli.fails(2, "verify", "-f", file, stdin=content)
    assert "nothing would be checked: list files or directories" in done.errors
    assert done.errors.endswith(f": {'standard input' if file == '-' else file}\n")
    assert done.out == ""
    document = cli("verify", "-f", file, "--json", stdin=content).error()
    assert (document["code"], document["exit_code"]) == ("invalid_argument", 2)


def test_a_list_from_an_editor_for_windows(cli: Cli, volume: str, small_tree: Tree) -> None:
    mark = "\N{ZERO WIDTH NO-BREAK SPACE}"
    clean = f"clean: 2 files, 13 bytes in {volume}/"
    for lines in ("# nightly\r\n/a/one.txt\r\n\r\n/top.txt", '"/a/one.txt"\r\n"/top.txt"\r\n'):
        assert cli.ok("verify", "-f", "-", stdin=f"{mark}{lines}".encode()).lines == [clean]
    cli.ok("put", "-", "/odd\r", stdin=b"odd")
    for stdin, options in ((b'"/odd\\r"\n', ()), (b"/odd\r\0", ("-0",))):
        assert cli.ok("verify", "-f", "-", *options, stdin=stdin).lines == [
            f"clean: 1 file, 3 bytes in {volume}/"
        ]
    # Only at the beginning: anywhere else it belongs to a name.
    assert "line 2" in cli.fails(2, "verify", "-f", "-", stdin=f"/a\n{mark}/a\n".encode()).errors


def break_entry(volume: str, path: str) -> None:
    async def write() -> None:
        opened = await open_volume(resolve(volume))
        entry = await opened.store.get(path)
        assert entry is not None
        key = opened.store.keys.of(entry)
        await opened.items.write(Update(key, Condition(), set={"isdir": "x"}))
        await opened.close()

    anyio.run(write)


def test_a_damaged_entry_is_a_finding(cli: Cli, volume: str, small_tree: Tree, hook: Hook) -> None:
    break_entry(volume, "/top.txt")
    break_entry(volume, "/a/b/two.csv")
    done = cli("verify", "/top.txt", "/a", "/gone", "/a/one.txt")
    assert (done.code, done.errors) == (9, "")
    assert sorted(tuple(line.split(": ")[:2]) for line in done.lines[:-1]) == [
        ("entry_missing", "/gone"),
        ("item_damaged", "/a"),
        ("item_damaged", "/top.txt"),
    ]
    assert [each[:3] for each in kinds(hook)] == [
        ("missing", "entry_missing", 1),
        ("conflict", "item_damaged", 2),
    ]


def test_a_path_without_permission_does_not_end_the_check_of_others(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = str(tmp_path / "shared")
    monkeypatch.setenv("S3K_UID", "0")
    cli.ok("init", volume, "--enable", "permissions")
    for path in ("open", "closed"):
        cli.ok("put", "-", f"{volume}:/{path}/f", stdin=b"four")
    cli.ok("attr", "--mode", "700", f"{volume}:/closed")
    monkeypatch.setenv("S3K_UID", "1000")
    closed, gone, there = (f"{volume}:/{path}" for path in ("closed", "gone", "open"))
    done = cli("verify", f"{closed}/f", closed, gone, there)
    assert done.code == 10
    assert done.lines[0].startswith("entry_missing: /gone: ")
    assert done.lines[-1].startswith("incomplete: found 1 problem (1 entry_missing) in 1 file, ")
    assert done.errors.count("has no permission") == 2
    document = cli("verify", closed, there, "--json").json()
    assert [(each["clean"], each["complete"]) for each in document["volumes"]] == [(False, False)]
    alone = cli.fails(5, "verify", f"{closed}/f")
    assert alone.lines == [f"incomplete: 0 files, 0 bytes in {volume}:/"]
