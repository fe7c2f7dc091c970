"""Volumes that libraries find by name, and Parquet that tells whether it was read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from s3k_async.config import (
    AwsConfig,
    DynamoTable,
    LocalDirectory,
    S3Bucket,
    SqliteFile,
    VolumeConfig,
)
from s3k_async.settings import resolve
from s3k_async.volumes import init_volume
from tests.engines.volumes import fresh_name

__all__ = ["NOT_PARQUET", "embedded_volume", "named_volume", "settings_of", "spoiled"]

NOT_PARQUET = b"whoever opens this reads what the filter had ruled out"


@contextmanager
def named_volume(
    config: VolumeConfig, settings: Mapping[str, str], directory: Path
) -> Iterator[str]:
    """Makes the volume; gives its URL, under which this process and its children find it by
    S3K_CONFIG."""
    asyncio.run(init_volume(config))
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    file = directory / f"{config.name}.toml"
    file.write_text("\n".join([f"[volumes.{config.name}]", *lines, ""]), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("S3K_CONFIG", str(file))
        yield f"s3k://{config.name}"


@contextmanager
def embedded_volume(directory: Path) -> Iterator[str]:
    """A new volume in a directory; its name is nobody else's, because fsspec keeps filesystems by
    it."""
    settings = {"directory": str(directory / "volume")}
    config = resolve(f"s3k://{fresh_name('lake')}", directory=settings["directory"])
    with named_volume(config, settings, directory) as url:
        yield url


def settings_of(config: VolumeConfig) -> dict[str, str]:
    """What says where a volume is, as keywords, storage options and the configuration file have it,
    with secrets."""
    if isinstance(config.table, DynamoTable):
        table = {"table": config.table.name, **_service("table", config.table.aws)}
    else:
        assert isinstance(config.table, SqliteFile)
        table = {"table": f"sqlite:{config.table.path}"}
    if isinstance(config.data, S3Bucket):
        data = {
            "bucket": config.data.bucket,
            "prefix": config.data.prefix,
            **_service("data", config.data.aws),
        }
    else:
        assert isinstance(config.data, LocalDirectory)
        data = {"data_location": config.data.path}
    return {key: value for key, value in (table | data).items() if value}


def _service(part: str, aws: AwsConfig) -> dict[str, str]:
    assert aws.endpoint is not None
    assert aws.region is not None
    assert aws.access_key_id is not None
    assert aws.secret_access_key is not None
    return {
        f"{part}_endpoint": aws.endpoint,
        f"{part}_region": aws.region,
        f"{part}_access_key_id": aws.access_key_id.reveal(),
        f"{part}_secret_access_key": aws.secret_access_key.reveal(),
    }


def spoiled(table: pa.Table, rows: int, group: int) -> bytes:
    """A Parquet file with row groups of `rows` rows, the pages of one of which are rubbish: reading
    those fails."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=rows)
    data = bytearray(sink.getvalue())
    metadata = pq.read_metadata(pa.BufferReader(bytes(data))).row_group(group)
    for index in range(metadata.num_columns):
        column = metadata.column(index)
        start = (
            column.data_page_offset
            if column.dictionary_page_offset is None
            else column.dictionary_page_offset
        )
        size = column.total_compressed_size
        data[start : start + size] = bytes(size)
    return bytes(data)
