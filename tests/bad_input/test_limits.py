"""No space, no permission: what the operating system refuses."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from s3k_async.errors import NoSpaceError
from s3k_async.testing import FaultPlan
from tests.bad_input.kinds import DENIED, NO_SPACE
from tests.bad_input.rows import (
    Ran,
    Scene,
    changes,
    check_error,
    check_line,
    error_of,
    reported,
    run_command,
    snapshot,
)
from tests.client.rig import faulty_client
from tests.engines.process import ROOT

NEW = "/dir/new"
BIG = b"0123456789abcdef" * 2**16
"""One mebibyte."""


@pytest.fixture
def place(shared_scene: Scene) -> Iterator[Scene]:
    """A copy of the scene where everybody may go, and beside it a volume to rehearse on."""
    with tempfile.TemporaryDirectory(prefix="s3k-bad-input-") as name:
        scene = shared_scene.copied(Path(name) / "scene")
        shutil.copytree(scene.volume, rehearsal(scene))
        Path(name).chmod(0o755)
        scene.root.chmod(0o755)
        yield scene
        set_modes(scene.root, 0o755, 0o644)


def rehearsal(scene: Scene) -> Path:
    return scene.root.parent / "rehearsal"


def set_modes(root: Path, directories: int, files: int) -> None:
    """Of everything below, and of the place itself last."""
    for path in [root, *root.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else files)
    for path in sorted([root, *root.rglob("*")], reverse=True):
        if path.is_dir():
            path.chmod(directories)


def confined(limit: str, *arguments: str, scene: Scene) -> Ran:
    """Run a command under a limit, in a process of its own."""
    none = str(scene.root.parent / "none")
    done = subprocess.run(
        [sys.executable, "-m", "tests.bad_input.confined", limit, *arguments],
        cwd=ROOT,
        env={**os.environ, "S3K_REHEARSAL": str(rehearsal(scene)), "XDG_CONFIG_HOME": none},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr.decode())


# No space


class Full:
    """Makes writes to files fail like a full disk, from the given one on."""

    def __init__(self, number: int, code: int) -> None:
        self.number = number
        self.code = code
        self.calls = 0

    def pwrite(self, descriptor: int, data: bytes, offset: int) -> int:
        self.calls += 1
        if self.calls >= self.number:
            raise OSError(self.code, os.strerror(self.code))
        return self._pwrite(descriptor, data, offset)

    _pwrite = staticmethod(os.pwrite)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("number", [1, 2])
def test_no_space_for_bytes_or_log(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    """The first write is that of the bytes, the second that of the log's pending entry."""
    before = snapshot(scene.root)
    full = Full(number, code)
    monkeypatch.setattr(os, "pwrite", full.pwrite)

    async def write() -> None:
        async with scene.client() as fs:
            await fs.write("/dir/file", b"other bytes")

    check_error(error_of(write), NO_SPACE, "volume" if number == 1 else "entries/")
    assert full.calls == number
    full.calls = 0
    check_line(run_command("put", str(scene.local), f"{scene.volume}:{NEW}"), NO_SPACE.exit, "")
    monkeypatch.undo()
    assert changes(before, snapshot(scene.root)) == []


@pytest.mark.parametrize("method", ["put", "start_upload", "put_part", "complete"])
def test_no_space_anywhere_in_an_upload(method: str) -> None:
    """Injected into the stores: nothing is published, and no reservation stays."""
    faults = FaultPlan()

    async def write() -> None:
        async with faulty_client(faults) as fs:
            await fs.write("/dir/file", b"old")
            before = [
                status async for status in fs.list("/", recursive=True, include_uncommitted=True)
            ]
            faults.fail_when(
                lambda call: call.method == method, NoSpaceError("the device is full", path="data")
            )
            try:
                async with fs.open("/dir/file", "wb") as file:
                    await file.write(b"x" * (10 if method == "put" else 1000))
            finally:
                after = [
                    status
                    async for status in fs.list("/", recursive=True, include_uncommitted=True)
                ]
                assert after == before
                assert await fs.read("/dir/file") == b"old"

    error = error_of(write)
    check_error(error, NO_SPACE, "data")
    check_line(reported(error), NO_SPACE.exit, "data")


@pytest.mark.parametrize("limit", [1000, 100_000])
def test_no_file_may_grow_over_a_size(place: Scene, limit: int) -> None:
    """The kernel's own limit: the smaller one stops the table too."""
    place.local.write_bytes(BIG)
    before = snapshot(place.root)
    ran = confined(
        f"size={limit}", "put", str(place.local), f"{place.volume}:/dir/file", scene=place
    )
    check_line(ran, NO_SPACE.exit, str(place.volume))
    assert changes(before, snapshot(place.root)) == []
    assert run_command("cat", f"{place.volume}:/dir/file").stdout == b"0123456789"


def test_no_table_may_grow_over_a_size(place: Scene) -> None:
    before = snapshot(place.root)
    ran = confined("size=8192", "mkdir", f"{place.volume}:{NEW}", scene=place)
    check_line(ran, NO_SPACE.exit, str(place.volume))
    assert changes(before, snapshot(place.root)) == []


# No permission: the child is nobody if the tests are root, and everything is closed to its owner,
# too


def refused(place: Scene, command: str, about: Path) -> None:
    """Run a command as nobody, and require that it is refused; the modes are opened again for
    looking at the rest."""
    ran = confined("nobody", *place.text(command).split(), scene=place)
    set_modes(place.root, 0o755, 0o644)
    check_line(ran, DENIED.exit, str(about))


@pytest.mark.parametrize(
    "command",
    [
        "put {local} {vol}:/dir/new",
        "put {local} {vol}:/dir/file",
        "mkdir {vol}:/new",
        "rm {vol}:/dir/file",
        "mv {vol}:/dir {vol}:/new",
        "init {vol}2",
    ],
)
def test_a_volume_that_may_not_be_written(place: Scene, command: str) -> None:
    before = snapshot(place.root)
    set_modes(place.root, 0o555, 0o444)
    refused(place, command, place.volume)
    assert changes(before, snapshot(place.root)) == []


@pytest.mark.parametrize(
    "command", ["ls {vol}:/", "cat {vol}:/dir/file", "put {local} {vol}:/dir/new", "fsck {vol}"]
)
def test_a_volume_that_may_not_even_be_read(place: Scene, command: str) -> None:
    before = snapshot(place.root)
    set_modes(place.volume, 0o000, 0o000)
    refused(place, command, place.volume)
    assert changes(before, snapshot(place.root)) == []


@pytest.mark.parametrize("part", ["data", "oplog"])
def test_a_part_that_may_not_be_written(place: Scene, part: str) -> None:
    """The table may be changed, the bytes or the log may not: the file does not appear."""
    before = snapshot(place.root)
    set_modes(place.root, 0o777, 0o666)
    set_modes(place.volume / part, 0o555, 0o444)
    refused(place, "put {local} {vol}:/dir/new", place.volume / part)
    assert changes(before, snapshot(place.root)) == []


def test_a_local_file_that_may_not_be_read(place: Scene) -> None:
    before = snapshot(place.root)
    set_modes(place.root, 0o777, 0o666)
    place.local.chmod(0o000)
    refused(place, "put {local} {vol}:/dir/new", place.local)
    assert changes(before, snapshot(place.root)) == []


def test_a_place_where_nothing_local_may_be_written(place: Scene) -> None:
    before = snapshot(place.root)
    set_modes(place.volume, 0o777, 0o666)
    place.root.chmod(0o555)
    refused(place, "get {vol}:/dir/file {out}", place.out)
    assert changes(before, snapshot(place.root)) == []
