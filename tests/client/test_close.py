"""Closing a client with files still open, and pickled clients that need credentials."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from s3k_async import S3kClient, S3kSyncClient
from s3k_async.config import DynamoTable, VolumeConfig
from s3k_async.errors import ClosedClientError
from s3k_async.volumes import init_volume
from tests.engines.volumes import VolumeMaker, volume_backends


@volume_backends("memory", "embedded")
async def test_closing_drops_what_is_still_being_written(new_volume: VolumeMaker) -> None:
    config = new_volume()
    await init_volume(config)
    client = S3kClient(config=config)
    await client.open_volume()
    await client.write("/old", b"old")
    writers = [await client.open(path, "wb") for path in ("/new", "/old")]
    for writer in writers:
        await writer.write(b"half")
    await client.close()
    for writer in writers:
        with pytest.raises(ClosedClientError):
            await writer.close()
    async with S3kClient(config=config) as fs:
        assert await fs.read("/old") == b"old"
        assert not await fs.exists("/new")


@volume_backends("embedded")
async def test_closing_the_blocking_client_drops_what_is_still_being_written(
    new_volume: VolumeMaker,
) -> None:
    config = new_volume()
    await init_volume(config)
    client = S3kSyncClient(config=config)
    writer = client.open("/new", "wb")
    writer.write(b"half")
    client.close()
    with S3kSyncClient(config=config) as fs:
        assert not fs.exists("/new")
    with pytest.raises(ClosedClientError):
        writer.close()


TOML = """
[volumes.analytics]
table = "meta"
bucket = "data"
region = "eu-west-1"
access_key_id = "AKIDEXAMPLE"
secret_access_key = "%s"
"""


@pytest.mark.parametrize("kind", [S3kClient, S3kSyncClient])
def test_credentials_are_found_anew_where_a_pickle_arrives(
    kind: type[S3kClient | S3kSyncClient], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(TOML % "first secret")
    monkeypatch.setenv("S3K_CONFIG", str(file))
    pickled = pickle.dumps(kind("s3k://analytics"))
    assert b"first secret" not in pickled
    file.write_text(TOML % "second secret")
    assert _secret(pickle.loads(pickled).config) == "second secret"
    # Another service than the one that was pickled lends it nothing.
    file.write_text((TOML + 'endpoint = "http://127.0.0.1:9"\n') % "third secret")
    assert _secret(pickle.loads(pickled).config) == ""
    file.unlink()
    monkeypatch.delenv("S3K_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert _secret(pickle.loads(pickled).config) == ""


def _secret(config: VolumeConfig) -> str:
    assert isinstance(config.table, DynamoTable)
    return config.table.aws.secret_access_key.reveal()
