"""A password in the URL of an endpoint or a proxy shows nowhere: not in a repr, a pickle, an error
or a file."""

from __future__ import annotations

import pickle
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from s3k_async.client import S3kClient
from s3k_async.config import AwsConfig, DynamoTable, S3Bucket, Secret, without_user
from s3k_async.errors import S3kError
from s3k_async.settings import save_volume, with_local_secrets
from tests.backends.aws.places import OpenBlobs, OpenItems, settings

PASSWORD = "swordfish-in-a-url"
PROXY = f"http://me:{PASSWORD}@127.0.0.1:9"
ENDPOINT = f"http://me:{PASSWORD}@127.0.0.1:9"


@pytest.mark.parametrize(
    ("url", "bare"),
    [
        (PROXY, "http://127.0.0.1:9"),
        ("HTTPS://u:p@h/path@x?y=@", "HTTPS://h/path@x?y=@"),
        ("u:p@proxy.example:8080", "proxy.example:8080"),
        ("http://u:p@ss@h", "http://h"),
        ("http://h/a@b", "http://h/a@b"),
        ("http://h", "http://h"),
        (None, None),
    ],
)
def test_a_url_without_its_user(url: str | None, bare: str | None) -> None:
    assert without_user(url) == bare


@pytest.mark.parametrize("field", ["proxy", "endpoint"])
def test_neither_repr_nor_pickle_of_settings_have_it(field: str) -> None:
    url: dict[str, Any] = {field: PROXY}
    bare: dict[str, Any] = {field: "http://127.0.0.1:9"}
    aws = AwsConfig(
        region="eu-west-1", access_key_id=Secret("id"), secret_access_key=Secret("made-up"), **url
    )
    for value in (aws, DynamoTable("t", aws), S3Bucket("b", "p/", aws)):
        for shown in (repr(value), str(value), f"{value}"):
            assert PASSWORD not in shown
            assert "127.0.0.1:9" in shown
        assert PASSWORD.encode() not in pickle.dumps(value)
    back: AwsConfig = pickle.loads(pickle.dumps(aws))
    assert back == replace(aws, access_key_id=Secret(), secret_access_key=Secret(), **bare)


@pytest.mark.parametrize(
    "field", ["proxy", "endpoint", "table_proxy", "data_endpoint", "log_proxy"]
)
def test_nor_has_a_client(field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("S3K_CONFIG", str(tmp_path / "s3k.toml"))
    (tmp_path / "s3k.toml").write_text("")
    url: dict[str, Any] = {field: PROXY}
    fs = S3kClient("s3k://v", table="meta", bucket="data", **url)
    assert PASSWORD not in repr(fs.config)
    assert PASSWORD.encode() not in pickle.dumps(fs.config)


async def test_nor_has_an_error(dynamo_items: OpenItems, s3_blobs: OpenBlobs) -> None:
    for aws in (
        settings("http://127.0.0.1:1", proxy=PROXY),
        settings(ENDPOINT),
        settings(f"gopher://me:{PASSWORD}@h"),
        settings(f"http://me:{PASSWORD}@a b"),
        settings(f"http://me:{PASSWORD}@"),
    ):
        async with dynamo_items(aws) as items, s3_blobs(aws) as blobs:
            for call in (items.exists, blobs.exists, lambda blobs=blobs: blobs.get("k")):
                with pytest.raises(S3kError) as caught:
                    await call()
                told = "".join(traceback.format_exception(caught.value))
                error: BaseException | None = caught.value
                while error is not None:
                    told += f"{error!r} {vars(error)} {error.args}"
                    error = error.__cause__ or error.__context__
                assert PASSWORD not in told


def test_nor_has_a_saved_volume(tmp_path: Path) -> None:
    file = tmp_path / "s3k.toml"
    assert save_volume(
        "v",
        {"table": "meta", "bucket": "data", "proxy": PROXY, "data_endpoint": ENDPOINT},
        str(file),
    )
    assert PASSWORD not in file.read_text()
    assert 'proxy = "http://127.0.0.1:9"' in file.read_text()


def test_a_worker_finds_it_again_in_its_own_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("S3K_CONFIG", str(tmp_path / "s3k.toml"))
    (tmp_path / "s3k.toml").write_text(
        f'[volumes.v]\ntable = "meta"\nbucket = "data"\nproxy = "{PROXY}"\n'
    )
    config = S3kClient("s3k://v").config
    sent = pickle.loads(pickle.dumps(config))
    assert sent.table.aws.proxy == "http://127.0.0.1:9"
    assert with_local_secrets(sent) == config
