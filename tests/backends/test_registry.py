"""The registry: which location class a setting means, in this package and in others."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from s3k_async import S3kClient
from s3k_async.backends.aws.access import AwsConfig
from s3k_async.backends.local import LocalDirectory
from s3k_async.backends.location import (
    BlobCapabilities,
    BlobLocation,
    Location,
    TableCapabilities,
    TableLocation,
)
from s3k_async.backends.memory import MemoryBlobs, MemoryTable
from s3k_async.backends.registry import BLOBS, TABLES, Registry
from s3k_async.config import VolumeConfig
from s3k_async.errors import ConfigError, UnsupportedError, VolumeMismatchError
from s3k_async.settings import read_config, resolve, with_local_secrets
from s3k_async.volumes import destroy_volume, init_volume
from tests.contracts.subjects import BLOB_SUBJECTS, ITEM_SUBJECTS, subjects_of

DISTRIBUTION = Path(__file__).parent / "distribution"
"""A directory as `pip install` leaves it, with the backends `shelf:`."""
REGISTRIES = [pytest.param(TABLES, id="tables"), pytest.param(BLOBS, id="blobs")]

AnyRegistry = Registry[Any]


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of the installed distribution."""
    monkeypatch.syspath_prepend(str(DISTRIBUTION))
    monkeypatch.setenv("S3K_SECRET_ACCESS_KEY", "key of the shelf")
    monkeypatch.setenv("S3K_ACCESS_KEY_ID", "reader")
    monkeypatch.delenv("S3K_CONFIG", raising=False)
    return importlib.import_module("shelf")


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, str], None]:
    """Installs a distribution with these entry points."""

    def install(name: str, entry_points: str) -> None:
        site = tmp_path / "site"
        metadata = site / f"{name}-1.0.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(entry_points)
        monkeypatch.syspath_prepend(str(site))

    return install


@pytest.mark.parametrize("registry", REGISTRIES)
def test_what_is_listed_is_there_under_its_scheme(registry: AnyRegistry) -> None:
    found = {scheme: registry.backend(scheme) for scheme in registry.schemes()}
    assert len(found) >= 3
    for scheme, backend in found.items():
        assert backend.scheme in found
        assert found[backend.scheme] is backend
        assert scheme == backend.scheme or scheme in ("arn", "rediss")
        assert backend.capabilities.lacking() == []


@pytest.mark.parametrize("registry", REGISTRIES)
def test_entry_points_are_not_read_for_a_listed_scheme(
    registry: AnyRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: str) -> None:
        raise AssertionError("entry points were read")

    monkeypatch.setattr(importlib.metadata, "entry_points", refuse)
    assert issubclass(registry.of_setting("memory://v"), Location)
    assert issubclass(registry.of_setting("no-scheme"), Location)
    with pytest.raises(AssertionError, match="were read"):
        registry.of_setting("other://v")


@pytest.mark.parametrize(
    ("registry", "forms"),
    [
        pytest.param(
            TABLES,
            (
                "dynamodb://NAME",
                "memory://NAME",
                "redis://HOST/DATABASE/PREFIX",
                "rocksdb:///PATH",
                "sqlite:PATH",
            ),
            id="tables",
        ),
        pytest.param(
            BLOBS,
            (
                "file:///PATH",
                "memory://NAME",
                "redis://HOST/DATABASE/PREFIX",
                "rocksdb:///PATH",
                "s3://BUCKET/PREFIX",
            ),
            id="blobs",
        ),
    ],
)
def test_an_unknown_scheme_is_refused_with_those_that_there_are(
    registry: AnyRegistry, forms: tuple[str, ...], shelf: Any
) -> None:
    with pytest.raises(ConfigError) as raised:
        registry.location("rocks://host/0", AwsConfig())
    assert "'rocks'" in raised.value.message
    assert f"there are {', '.join(sorted((*forms, 'shelf:')))}" in raised.value.message


def test_an_installed_backend_is_found_by_its_scheme(shelf: Any) -> None:
    service = AwsConfig(region="somewhere")
    assert TABLES.location("shelf:///srv/a", service) == shelf.ShelfTable("/srv/a", service)
    assert BLOBS.location("shelf:///srv/a/data", service) == shelf.ShelfBlobs("/srv/a/data")


def test_a_listed_scheme_cannot_be_taken(install: Callable[[str, str], None]) -> None:
    install("thief", "[s3k_async.table_backends]\nsqlite = thief:Table\n")
    assert TABLES.backend("sqlite").__module__ == "s3k_async.backends.sqlite"


def test_two_distributions_with_one_scheme_are_refused(
    install: Callable[[str, str], None],
) -> None:
    install("one", "[s3k_async.blob_backends]\nheap = one:Blobs\n")
    install("two", "[s3k_async.blob_backends]\nheap = two:Blobs\n")
    with pytest.raises(ConfigError, match="one:Blobs, two:Blobs; uninstall all but one"):
        BLOBS.location("heap://x", AwsConfig())


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("not_installed_at_all:Table", "cannot be loaded from 'not_installed_at_all:Table'"),
        ("shelf:Missing", "cannot be loaded from 'shelf:Missing'"),
        ("shelf:ShelfBlobs", "is no subclass of TableLocation"),
        ("os:getcwd", "is no subclass of TableLocation"),
    ],
)
def test_an_entry_point_that_is_wrong_is_named(
    value: str, message: str, shelf: Any, install: Callable[[str, str], None]
) -> None:
    install("wrong", f"[s3k_async.table_backends]\nwrong = {value}\n")
    with pytest.raises(ConfigError, match=message):
        TABLES.location("wrong://x", AwsConfig())


async def test_a_client_opens_an_installed_backend_by_its_url(shelf: Any, tmp_path: Path) -> None:
    table = f"shelf://{tmp_path}/books"
    config = resolve(table=table, data_location=f"{table}/data")
    record = await init_volume(config)
    assert (record.name, record.data, record.log) == (
        "books",
        f"{table}/data/",
        f"{table}/data/oplog/",
    )
    async with S3kClient(table=table, data_location=f"{table}/data") as fs:
        await fs.write("/a/file", b"text")
        assert await fs.read("/a/file") == b"text"
        await fs.rename("/a", "/b")
        listed = [status.path async for status in fs.list("/", recursive=True)]
    assert sorted(listed) == ["/b", "/b/file"]
    assert await destroy_volume(config, force=True) == 0
    assert not os.listdir(tmp_path / "books")


def test_the_command_line_opens_an_installed_backend_by_its_url(tmp_path: Path) -> None:
    table = f"shelf://{tmp_path}/books"
    environment = {name: value for name, value in os.environ.items() if name[:4] != "S3K_"} | {
        "HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(DISTRIBUTION), *sys.path]),
        "S3K_SECRET_ACCESS_KEY": "key of the shelf",
        "S3K_ACCESS_KEY_ID": "reader",
    }

    def s3k(*arguments: str) -> str:
        command = [sys.executable, "-m", "s3k_async.cli", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr.count("Traceback")) == (0, 0), done
        return done.stdout

    s3k("init", "s3k://library", "--table", table, "--data-location", f"{table}/data")
    s3k("mkdir", "s3k://library/one")
    assert "one" in s3k("ls", "s3k://library/")


async def test_secrets_of_an_installed_backend_stay_out_of_pickles_and_are_found_again(
    shelf: Any, tmp_path: Path
) -> None:
    table = f"shelf://{tmp_path}/books"
    config = resolve(table=table, data_location=f"{table}/data")
    assert "key of the shelf" not in repr(config)
    data = pickle.dumps(config)
    assert b"key of the shelf" not in data
    arrived: VolumeConfig = pickle.loads(data)
    with pytest.raises(ConfigError, match="needs a secret_access_key"):
        await init_volume(arrived)
    assert with_local_secrets(arrived) == config
    await init_volume(with_local_secrets(arrived))


async def test_an_installed_backend_says_which_tables_are_the_same(
    shelf: Any, tmp_path: Path
) -> None:
    path, data = f"{tmp_path}/books", f"shelf://{tmp_path}/data"
    config = resolve(table=f"shelf://{path}", data_location=data)
    await init_volume(config)
    os.symlink(path, f"{tmp_path}/BOOKS")
    os.symlink(path, f"{tmp_path}/copies")
    for other, agrees in (("BOOKS", True), ("copies", False)):
        table = shelf.ShelfTable(f"{tmp_path}/{other}", config.table.service)
        client = S3kClient(config=replace(config, table=table))
        if agrees:
            async with client:
                assert await client.exists("/")
        else:
            with pytest.raises(VolumeMismatchError, match="is a copy of it"):
                async with client:
                    pass


def test_a_section_with_an_unknown_backend_is_no_matter_of_other_volumes(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(
        '[volumes.far]\ntable = "rocks://host/0"\ndata_location = "rocks://host/1"\n'
        '[volumes.near]\ntable = "sqlite:near.db"\ndata_location = "near"\n'
    )
    assert set(read_config(str(file)).volumes) == {"far", "near"}
    near = resolve("s3k://near", config=str(file))
    assert near.data == LocalDirectory(str(tmp_path / "near"))
    with pytest.raises(ConfigError, match="no backend for blobs has the scheme 'rocks'"):
        resolve("s3k://far", config=str(file))


class _Plain(MemoryTable):
    capabilities = TableCapabilities(conditional_writes=False, transaction_size=25)


class _Unsorted(MemoryBlobs):
    capabilities = BlobCapabilities(conditional_writes=True, multipart=False, sorted_listing=False)


@pytest.mark.parametrize(
    ("table", "data", "message"),
    [
        (
            _Plain("t"),
            MemoryBlobs("d"),
            "no volume can use memory: it lacks conditional writes, transactions of 100 actions",
        ),
        (
            MemoryTable("t"),
            _Unsorted("d"),
            "no volume can use memory: it lacks multipart, sorted listing",
        ),
    ],
)
async def test_a_backend_that_cannot_do_what_a_volume_needs_is_refused(
    table: TableLocation, data: BlobLocation, message: str
) -> None:
    with pytest.raises(UnsupportedError, match=message):
        await init_volume(VolumeConfig("v", table, data))


def test_a_registered_backend_without_a_contract_subject_fails(shelf: Any) -> None:
    for registry, subjects in ((TABLES, ITEM_SUBJECTS), (BLOBS, BLOB_SUBJECTS)):
        with pytest.raises(LookupError, match="without a subject of the contract suite: shelf"):
            subjects_of(registry, subjects)
