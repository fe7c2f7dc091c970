"""The job of the demonstration on real engines, by each way of using a volume."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from s3k_async.config import AwsConfig, DynamoTable, S3Bucket, Tuning, VolumeConfig
from s3k_async.model import ContentSummary
from s3k_async.volumes import init_volume
from tests.engines.volumes import VolumeMaker, volume_backends
from tests.integration.sources import SourceTree, make_source
from tests.integration.surfaces import (
    AsyncSurface,
    CommandLine,
    Listed,
    Surface,
    SyncSurface,
    environment,
)

pytestmark = pytest.mark.engine
everywhere = volume_backends("dynoxide+seaweedfs", "dynamodb_local+seaweedfs", "dynoxide+moto")

FILES = 130
MANY_FILES = 3000
PART_SIZE = 5 * 1024 * 1024
THRESHOLD = 8 * 1024 * 1024


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> SourceTree:
    """Files enough for every step to have something to do."""
    return make_source(tmp_path_factory.mktemp("source") / "tree", FILES)


@pytest.fixture
def many_files(tmp_path: Path) -> SourceTree:
    """As many as the issue of the first volume asks for."""
    return make_source(tmp_path / "tree", MANY_FILES)


@pytest.fixture
def config(new_volume: VolumeMaker) -> VolumeConfig:
    """A volume that does not exist yet, for clients that upload large files in parts."""
    return new_volume(tuning=Tuning(multipart_threshold=THRESHOLD, part_size=PART_SIZE))


def places(config: VolumeConfig) -> tuple[DynamoTable, S3Bucket]:
    assert isinstance(config.table, DynamoTable)
    assert isinstance(config.data, S3Bucket)
    return config.table, config.data


def do_job(surface: Surface, source: SourceTree) -> SourceTree:
    """Put the tree, list it, rename it, compare every byte, delete a part of it; what is left."""
    surface.put(source, "/incoming")
    everything: Listed = {**source.sizes, **dict.fromkeys(source.directories)}
    assert surface.list("/incoming") == everything

    moved = surface.rename("/incoming", "/library")
    assert (moved.files, moved.directories) == (len(source.files), len(source.directories) + 1)
    assert moved.bytes == source.bytes
    assert surface.list("/library") == everything
    assert surface.digests("/library") == source.files
    assert (
        surface.etag("/library/large").strip('"').endswith("-3")
    )  # S3's mark of a file that came in three parts

    doomed = source.largest_directory()
    left = source.without(doomed)
    deleted = surface.delete(f"/library/{doomed}")
    assert deleted.files == len(source.files) - len(left.files)
    assert deleted.directories == len(source.directories) - len(left.directories)
    assert surface.list("/library") == {**left.sizes, **dict.fromkeys(left.directories)}
    assert surface.summary("/") == ContentSummary(
        left.bytes, len(left.files), len(left.directories) + 2
    )
    return left


def secrets(config: VolumeConfig) -> dict[str, str]:
    table, data = places(config)
    found = {}
    for part, aws in (("TABLE", table.aws), ("DATA", data.aws), ("LOG", data.aws)):
        found[f"S3K_{part}_ACCESS_KEY_ID"] = aws.access_key_id.reveal()
        found[f"S3K_{part}_SECRET_ACCESS_KEY"] = aws.secret_access_key.reveal()
    return found


def config_file(config: VolumeConfig, path: Path) -> Path:
    """The volume in a configuration file, all but the secrets."""
    table, data = places(config)

    def service(part: str, aws: AwsConfig) -> str:
        return f'{part}_endpoint = "{aws.endpoint}"\n{part}_region = "{aws.region}"\n'

    path.write_text(
        f'default_volume = "s3k://{config.name}"\n'
        "[defaults]\n"
        'multipart_threshold = "8MiB"\npart_size = "5MiB"\n'
        f"[volumes.{config.name}]\n"
        f'table = "{table.name}"\nbucket = "{data.bucket}"\n'
        + (f'prefix = "{data.prefix}"\n' if data.prefix else "")
        + service("table", table.aws)
        + service("data", data.aws)
        + service("log", data.aws)
    )
    return path


def keywords(config: VolumeConfig) -> dict[str, object]:
    """The volume as keywords of a client."""
    table, data = places(config)
    found: dict[str, object] = {
        "volume": f"s3k://{config.name}",
        "table": table.name,
        "bucket": data.bucket,
        "multipart_threshold": THRESHOLD,
        "part_size": PART_SIZE,
    }
    if data.prefix:
        found["prefix"] = data.prefix
    for part, aws in (("table", table.aws), ("data", data.aws), ("log", data.aws)):
        found[f"{part}_endpoint"] = aws.endpoint
        found[f"{part}_region"] = aws.region
        found[f"{part}_access_key_id"] = aws.access_key_id
        found[f"{part}_secret_access_key"] = aws.secret_access_key
    return found


@pytest.fixture
def commands(config: VolumeConfig, tmp_path: Path) -> CommandLine:
    """The command line, for the volume of a configuration file, with its secrets in the
    environment."""
    file = config_file(config, tmp_path / "s3k.toml")
    return CommandLine(
        f"s3k://{config.name}", environment(S3K_CONFIG=str(file), **secrets(config)), tmp_path
    )


WAYS = (
    # `tests/cli/test_job.py` does the same work with fewer files.
    pytest.param("command line", marks=pytest.mark.slow),
    "async client",
    "blocking client",
)


@pytest.fixture(params=WAYS)
def surface(
    request: pytest.FixtureRequest, config: VolumeConfig, commands: CommandLine
) -> Iterator[Surface]:
    """One way to use a volume, which is new."""
    yield from new_surface(request.param, config, commands)


def new_surface(way: str, config: VolumeConfig, commands: CommandLine) -> Iterator[Surface]:
    if way == "command line":
        (made,) = commands.run("init", f"s3k://{config.name}")
        assert made["name"] == config.name
        yield commands
        return
    asyncio.run(init_volume(config))
    with closing(
        AsyncSurface(keywords(config)) if way == "async client" else SyncSurface(config)
    ) as client:
        yield client


def check_clean(commands: CommandLine, left: SourceTree) -> None:
    """Table, log and bytes agree; what was deleted is accounted for."""
    (report,) = commands.run("fsck", "--grace", "0")
    assert report["problems"] == []
    assert report["clean"]
    assert (report["files"], report["bytes"]) == (len(left.files), left.bytes)
    assert (report["directories"], report["reservations"]) == (len(left.directories) + 1, 0)
    assert report["blobs"] - report["collectable"] == len(left.files)


@everywhere
def test_the_job(surface: Surface, source: SourceTree, commands: CommandLine) -> None:
    check_clean(commands, do_job(surface, source))


@volume_backends("dynoxide+seaweedfs", "dynamodb_local+seaweedfs")
@pytest.mark.slow
def test_the_job_with_3000_files(
    surface: Surface, many_files: SourceTree, commands: CommandLine
) -> None:
    """Not on moto, which is one Python thread and takes half an hour for it."""
    check_clean(commands, do_job(surface, many_files))


@volume_backends("dynoxide+seaweedfs", "dynamodb_local+seaweedfs")
def test_what_one_surface_writes_the_others_read(
    config: VolumeConfig, commands: CommandLine, tmp_path: Path
) -> None:
    commands.run("init", f"s3k://{config.name}")
    small = make_source(tmp_path / "small", 5, large=100)
    with (
        closing(AsyncSurface(keywords(config))) as asynchronous,
        closing(SyncSurface(config)) as blocking,
    ):
        surfaces: dict[str, Surface] = {"/a": asynchronous, "/b": blocking, "/c": commands}
        for place, writer in surfaces.items():
            writer.put(small, place)
        for place, reader in zip(("/b", "/c", "/a"), surfaces.values(), strict=True):
            assert reader.list(place) == {**small.sizes, **dict.fromkeys(small.directories)}
            assert reader.digests(place) == small.files
    commands.run("destroy", "--yes", "--force", f"s3k://{config.name}")
