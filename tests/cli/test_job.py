"""The main job from the command line, on each kind of stores: a real tree in, listed, renamed,
compared byte by byte, partly deleted, checked, and the volume destroyed."""

from __future__ import annotations

import os
import sysconfig
from itertools import islice
from pathlib import Path

import pytest

from s3k_async.config import (
    AwsConfig,
    DynamoTable,
    LocalDirectory,
    MemoryBlobs,
    MemoryTable,
    S3Bucket,
    SqliteFile,
)
from tests.cli.conftest import Cli
from tests.engines.volumes import VolumeMaker, volume_backends

FILES = 200


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Modules of the standard library, in their directories, with an empty directory and a large
    file."""
    top = tmp_path / "source"
    library = Path(sysconfig.get_path("stdlib"))
    packages = (
        "asyncio",
        "collections",
        "concurrent",
        "ctypes",
        "email",
        "encodings",
        "html",
        "http",
        "json",
        "xml",
    )
    modules = (path for name in packages for path in sorted((library / name).rglob("*.py")))
    for path in islice(modules, FILES):
        copy = top / path.relative_to(library)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    (top / "empty").mkdir()
    (top / "large").write_bytes(os.urandom(9_000_000))
    return top


def flags(volume: VolumeMaker, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[str]]:
    """Address and flags of a volume that does not exist yet; secrets go into the environment."""
    config = volume()
    given = ["--layout", str(config.layout)]
    if isinstance(config.table, DynamoTable):
        given += ["--table", config.table.name, *service("table", config.table.aws, monkeypatch)]
    elif isinstance(config.table, SqliteFile):
        given += ["--table", f"sqlite:{config.table.path}"]
    elif isinstance(config.table, MemoryTable):
        given += ["--table", f"memory://{config.table.name}"]
    if isinstance(config.data, S3Bucket):
        given += ["--bucket", config.data.bucket, *service("data", config.data.aws, monkeypatch)]
        if config.data.prefix:
            given += ["--prefix", config.data.prefix]
    elif isinstance(config.data, LocalDirectory):
        given += ["--data-location", config.data.path]
    elif isinstance(config.data, MemoryBlobs):
        given += ["--data-location", f"memory://{config.data.name}"]
    return f"s3k://{config.name}", given


def service(part: str, aws: AwsConfig, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv(f"S3K_{part.upper()}_ACCESS_KEY_ID", aws.access_key_id.reveal())
    monkeypatch.setenv(f"S3K_{part.upper()}_SECRET_ACCESS_KEY", aws.secret_access_key.reveal())
    return [f"--{part}-endpoint", str(aws.endpoint), f"--{part}-region", str(aws.region)]


def contents(top: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(top)): None if path.is_dir() else path.read_bytes()
        for path in top.rglob("*")
    }


@volume_backends(
    "memory", "embedded", "dynoxide+seaweedfs", "dynamodb_local+seaweedfs", "dynoxide+moto"
)
def test_the_job(
    cli: Cli, new_volume: VolumeMaker, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume, settings = flags(new_volume, monkeypatch)
    cli.ok("init", volume, *settings, "--suffix-count", "4")
    here = contents(source)
    files = [path for path, data in here.items() if data is not None]

    put = cli.ok("put", "-r", "--json", str(source), f"{volume}/incoming").json()
    assert (put["files"], put["directories"], put["failed"]) == (
        len(files),
        len(here) - len(files) + 1,
        0,
    )

    listed = cli.ok("ls", "-R", f"{volume}/incoming").lines
    expected = {
        f"/incoming/{path}" if data is not None else f"/incoming/{path}/"
        for path, data in here.items()
    }
    assert set(listed) == expected
    assert len(listed) == len(expected)

    moved = cli.ok("mv", "--json", f"{volume}/incoming", f"{volume}/library").json()
    assert (moved["files"], moved["bytes"]) == (len(files), put["bytes"])
    cli.fails(3, "ls", f"{volume}/incoming")

    cli.ok("get", "-r", f"{volume}/library", "back")
    assert contents(Path("back")) == here

    total = cli.ok("du", "-s", "--json", f"{volume}/library").json()
    assert (total["files"], total["bytes"]) == (len(files), put["bytes"])

    cli.ok("cp", f"{volume}/library/large", f"{volume}/copy")
    assert cli.ok("cat", f"{volume}/copy").output == here["large"]

    below = [path for path in files if path.startswith("email/")]
    assert cli.ok("rm", "-r", "--json", f"{volume}/library/email").json()["files"] == len(below)
    check = cli.ok("fsck", "--grace", "0", "--deep", "--json", volume).json()
    assert check["clean"]
    assert check["files"] == len(files) - len(below) + 1
    assert check["collectable"] == sum(here[path] != b"" for path in below)  # have an object

    cli.ok("destroy", volume, "--yes", "--force")
    cli.fails(3, "ls", volume)
