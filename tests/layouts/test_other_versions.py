"""Clients from before layout `tree` refuse its volumes, and this one those of later layouts.

The old client is the package of the commit before the flag of the layout, from the history of this
checkout, with the native core of today: that core does not read the volume record.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import s3k_async
from s3k_async import S3kClient, VolumeConfig, destroy_volume, init_volume
from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.ports.items import Condition, Update
from s3k_async.backends.sqlite.sqlite_items import SqliteItems
from s3k_async.cli import main
from s3k_async.errors import BusyError, VolumeFormatError
from s3k_async.model import DEFAULT_FEATURES, LayoutName
from s3k_async.txn import volume_lock
from s3k_async.txn.volume_record import FLAGS, LOCK_SECONDS, RECORD_KEY, SCOPED, TAG, TREE
from s3k_async.volumes.restoration import restore_volume

ROOT = Path(__file__).resolve().parents[2]
RECORD = "s3k_async/txn/volume_record.py"
LIMIT = 120
"""Seconds after which a test gives up on a process."""
KNOWN_BEFORE = frozenset({SCOPED})
"""The flags that a client from before layout `tree` knows."""

PROBE = """
import contextlib, io, json, sys
import s3k_async
from s3k_async.cli import main
from s3k_async.txn import volume_lock, volume_record

volume_lock.QUIET_SECONDS = 0.0
runs = []
for command in json.loads(sys.argv[1]):
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        code = main(command)
    runs.append([code, out.getvalue(), errors.getvalue()])
print(json.dumps([s3k_async.__file__, sorted(volume_record.FLAGS), runs]))
"""
"""Runs command lines with the package that it imports."""


@dataclass(frozen=True)
class Run:
    """What a command line ended with."""

    code: int
    out: str
    errors: str


@dataclass(frozen=True)
class OldClient:
    """A package of an earlier commit, in a directory."""

    place: Path
    flags: frozenset[str]

    @classmethod
    def at(cls, place: Path) -> OldClient:
        return cls(place, _probe(place, [])[0])

    def run(self, *commands: Sequence[str]) -> list[Run]:
        return _probe(self.place, commands)[1]


def _probe(place: Path, commands: Sequence[Sequence[str]]) -> tuple[frozenset[str], list[Run]]:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(commands)],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(place)},
        capture_output=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    file, flags, runs = json.loads(done.stdout.splitlines()[-1])
    assert Path(file).is_relative_to(place)
    return frozenset(flags), [Run(*each) for each in runs]


def _git(*arguments: str) -> bytes:
    return subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, check=True, timeout=LIMIT
    ).stdout


def _last_commit_without() -> str:
    """The commit before the flag of layout `tree`. Skips where the history does not reach so far:
    `test_a_volume_has_a_flag_that_no_earlier_client_knows` does not need it."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("no git history: the sources are not a git checkout")
    if _git("rev-parse", "--is-shallow-repository").strip() == b"true":
        pytest.skip("the git history is shallow: git fetch --unshallow")
    introduced = _git("log", "--format=%H", "-STREE: Final", "--", RECORD).decode().split()
    assert introduced, f"no commit has brought the flag into {RECORD}"
    return f"{introduced[-1]}^"


@pytest.fixture(scope="module")
def old_client(tmp_path_factory: pytest.TempPathFactory) -> OldClient:
    place = tmp_path_factory.mktemp("old")
    archive = place / "package.tar"
    archive.write_bytes(_git("archive", _last_commit_without(), "s3k_async"))
    shutil.unpack_archive(archive, place, filter="data")
    for native in Path(s3k_async.__file__).parent.glob("_native*.so"):
        shutil.copy(native, place / "s3k_async")
    return OldClient.at(place)


async def new_volume(directory: Path, layout: LayoutName) -> VolumeConfig:
    """An embedded volume with a file, for clients that do not know extents."""
    config = await init_volume(directory, layout=layout, without=DEFAULT_FEATURES)
    async with S3kClient(directory) as fs:
        await fs.write("/a/b", b"1")
    return config


async def test_a_client_from_before_layout_tree_refuses_every_verb(
    old_client: OldClient, tmp_path: Path
) -> None:
    """It changes nothing, and works with volumes of layout `path`."""
    assert old_client.flags == KNOWN_BEFORE
    for layout in ("path", "tree"):
        await new_volume(tmp_path / layout, layout)
    file = tmp_path / "file"
    file.write_bytes(b"2")
    tree, path = (f"{tmp_path / each}" for each in ("tree", "path"))
    for each in old_client.run(["put", str(file), f"{path}:/c"], ["fsck", path]):
        assert (each.code, each.errors) == (0, "")
    refused = old_client.run(
        ["ls", f"{tree}:/"],
        ["put", str(file), f"{tree}:/c"],
        ["mv", f"{tree}:/a", f"{tree}:/d"],
        ["rm", "-r", f"{tree}:/a"],
        ["fsck", tree],
        ["fsck", "repair", "--yes", tree],
        ["gc", "--yes", tree],
        ["destroy", "--yes", tree],
    )
    for each in refused:
        assert each.code != 0, each
        assert f"needs features this version lacks: {TREE}" in each.errors
        assert "Traceback" not in each.errors
    async with S3kClient(tmp_path / "tree") as fs:
        found = [each.path async for each in fs.list("/", recursive=True)]
        assert found == ["/a", "/a/b"]
        assert await fs.read("/a/b") == b"1"
    async with S3kClient(tmp_path / "path") as fs:
        assert await fs.read("/c") == b"2"


async def test_a_restore_by_a_client_from_before_layout_tree_is_refused_and_done_by_this_one(
    old_client: OldClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark in the data location has the flag, so that the record of the new table has it. The
    lock of the old client remains until its lease is over."""
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)
    place = tmp_path / "tree"
    config = await new_volume(place, "tree")
    for part in place.glob("metadata.sqlite*"):
        part.unlink()
    (refused,) = old_client.run(["fsck", "restore", "--yes", str(place)])
    assert refused.code != 0, refused
    assert f"needs features this version lacks: {TREE}" in refused.errors
    assert "Traceback" not in refused.errors
    with pytest.raises(BusyError):
        await restore_volume(config, dry_run=False)
    lease_ms = int(LOCK_SECONDS * 1000)
    later = replace(SYSTEM, now_ms=lambda: SYSTEM.now_ms() + lease_ms)
    assert (await restore_volume(config, dry_run=False, runtime=later)).clean
    async with S3kClient(place) as fs:
        assert fs.config.layout == "tree"
        assert await fs.read("/a/b") == b"1"


async def test_a_volume_has_a_flag_that_no_earlier_client_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In record and tag. Together with the rule that every unknown flag is refused, this is what
    can be shown without the code of an earlier client."""
    assert KNOWN_BEFORE < FLAGS
    config = await new_volume(tmp_path / "tree", "tree")
    monkeypatch.setattr("s3k_async.txn.volume_record.FLAGS", KNOWN_BEFORE)
    await refuses(config, tmp_path / "tree", TREE)


@pytest.mark.parametrize("layout", ["path", "tree"])
@pytest.mark.parametrize("place", ["record", "tag"])
def test_an_unknown_flag_is_refused(
    tmp_path: Path, layout: LayoutName, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a later version may write it."""
    directory = tmp_path / "v"
    config = asyncio.run(new_volume(directory, layout))
    asyncio.run(add_flag(directory, place))
    asyncio.run(refuses(config, directory, "later"))
    capsys.readouterr()
    assert main(["ls", f"{directory}:/"]) != 0
    errors = capsys.readouterr().err
    assert "needs features this version lacks: later" in errors
    assert "Traceback" not in errors


async def add_flag(directory: Path, place: str) -> None:
    """Add the flag `later` to the record or to the tag of a volume."""
    table = SqliteItems(str(directory / "metadata.sqlite"), SYSTEM)
    try:
        item = await table.get(RECORD_KEY)
        assert item is not None
        later = f"{item['flags']} later"
        if place == "record":
            await table.write(Update(RECORD_KEY, Condition(), {"flags": later}))
        else:
            tag = await table.read_tag(TAG)
            assert tag is not None
            before = str(item["flags"]).replace(" ", "=20")
            assert before in tag
            await table.write_tag(TAG, tag.replace(before, f"{before}=20later"))
    finally:
        await table.close()


async def refuses(config: VolumeConfig, directory: Path, flag: str) -> None:
    """Neither an open nor a destruction of the volume goes on."""
    message = f"needs features this version lacks: {flag}"
    for unnamed in (config, replace(config, layout=None)):
        with pytest.raises(VolumeFormatError, match=message) as caught:
            await S3kClient(config=unnamed).open_volume()
        assert str(directory) in str(caught.value)
        with pytest.raises(VolumeFormatError, match=message):
            await destroy_volume(config=unnamed, force=True)


async def test_a_volume_of_a_draft_of_layout_tree_is_refused_with_a_remedy(tmp_path: Path) -> None:
    """Its flag was another one while the format could change."""
    directory = tmp_path / "v"
    config = await new_volume(directory, "tree")
    table = SqliteItems(str(directory / "metadata.sqlite"), SYSTEM)
    try:
        draft = f"{SCOPED} tree-draft"
        await table.write(Update(RECORD_KEY, Condition(), {"flags": draft}))
        tag = await table.read_tag(TAG)
        assert tag is not None
        assert "=20tree" in tag
        await table.write_tag(TAG, tag.replace("=20tree", "=20tree-draft"))
    finally:
        await table.close()
    message = "tree-draft; dump it with the version that made it"
    await refuses(config, directory, message)

    mark = directory / "data" / "s3k-volume.json"
    document = json.loads(mark.read_text())
    mark.write_text(json.dumps({**document, "flags": draft}))
    for part in directory.glob("metadata.sqlite*"):
        part.unlink()
    unnamed = replace(config, layout=None, trash_retention=None)
    for dry_run in (True, False):
        with pytest.raises(VolumeFormatError, match=message):
            await restore_volume(unnamed, dry_run=dry_run)
    assert not list(directory.glob("metadata.sqlite*"))
    shutil.rmtree(directory / "data" / f"s3k-{document['volume_id']}")
    shutil.rmtree(directory / "oplog")
    with pytest.raises(VolumeFormatError, match=message):
        await init_volume(config=unnamed)
