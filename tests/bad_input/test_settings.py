"""Settings that are missing, malformed, or contradict each other: nothing is opened, and nothing is
made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.client import S3kClient
from tests.bad_input.kinds import CONFIG
from tests.bad_input.rows import check_error, check_line, run_command, snapshot

USAGE = 2

HADOOP = {
    "fs.s3k.metastore.dynamo.table.x": "meta",
    "fs.s3k.metastore.dynamo.suffix.count.x": "10",
    "fs.s3k.storage.underlying.filesystem.scheme.x": "s3",
    "fs.s3k.operationlog.s3.bucket.x": "log",
}
"""What S3-FileSystem 1.0 requires."""


@dataclass(frozen=True)
class Settings:
    """A row: what is given in which way, and what the message must hold."""

    name: str
    about: str
    volume: str | None = "s3k://x"
    toml: str | bytes | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    hadoop: Mapping[str, str] | None = None
    exit: int = CONFIG.exit


def without(key: str) -> dict[str, str]:
    return {name: value for name, value in HADOOP.items() if name != key}


X = '[volumes.x]\ntable = "meta"\nbucket = "data"\n'

FILES = (
    Settings("a file that is no TOML", "s3k.toml", toml="[volumes"),
    Settings("a file that is no text", "s3k.toml", toml=b"\xff\xfe\x00"),
    Settings("a key that is unknown", "defualts", toml="[defualts]\nregion = 'x'\n"),
    Settings("an option that is unknown", "sufix_count", toml=X + "sufix_count = 3\n"),
    Settings("a default that is unknown", "regoin", toml="[defaults]\nregoin = 'x'\n"),
    Settings(
        "a default of one volume alone", "suffix_count", toml="[defaults]\nsuffix_count = 3\n"
    ),
    Settings("an option that is no number", "suffix_count", toml=X + "suffix_count = 'many'\n"),
    Settings("an option out of range", "suffix_count", toml=X + "suffix_count = 0\n"),
    Settings("an option that is no choice", "hash", toml=X + "hash = 'md5'\n"),
    Settings("a section that is no table", "volumes.x", toml="[volumes]\nx = 3\n"),
    Settings("a volume of no good name", "a b", toml="[volumes.'a b']\ntable = 'meta'\n"),
    Settings("two places for the data", "data_location", toml=X + "data_location = './data'\n"),
    Settings("no place for the data", "x", toml="[volumes.x]\ntable = 'meta'\n"),
    Settings(
        "a table of no good name", "a/b", toml="[volumes.x]\ntable = 'a/b'\nbucket = 'data'\n"
    ),
    Settings("half of the credentials", "secret_access_key", toml=X + "access_key_id = 'AKID'\n"),
    Settings(
        "another volume's section only",
        "s3k://x",
        toml='[volumes.y]\ntable = "meta"\nbucket = "data"\n',
    ),
    Settings(
        "a default volume that is none", "default_volume", volume=None, toml="default_volume = 3\n"
    ),
)

ENVIRONMENT = (
    Settings("no volume at all", "config.toml", volume=None),
    Settings("no configuration of a name", "s3k://x"),
    Settings(
        "a file that is not there", "nowhere.toml", environment={"S3K_CONFIG": "nowhere.toml"}
    ),
    Settings(
        "a suffix count that is no number",
        "S3K_SUFFIX_COUNT",
        environment={"S3K_SUFFIX_COUNT": "many"},
    ),
    Settings(
        "a suffix count of nothing", "S3K_SUFFIX_COUNT", environment={"S3K_SUFFIX_COUNT": "0"}
    ),
    Settings("a timeout of nothing", "S3K_READ_TIMEOUT", environment={"S3K_READ_TIMEOUT": "0"}),
    Settings("a truth that is none", "S3K_VERIFY_TLS", environment={"S3K_VERIFY_TLS": "perhaps"}),
    Settings("a size that is none", "S3K_PART_SIZE", environment={"S3K_PART_SIZE": "8 bananas"}),
    Settings(
        "a volume of another kind of URL",
        "ftp://x",
        volume=None,
        environment={"S3K_VOLUME": "ftp://x"},
    ),
    Settings(
        "a volume that may be two things", "./x", volume=None, environment={"S3K_VOLUME": "x"}
    ),
)

MAPPING = (
    Settings(
        "Hadoop keys without the table",
        "fs.s3k.metastore.dynamo.table.x",
        hadoop=without("fs.s3k.metastore.dynamo.table.x"),
    ),
    Settings(
        "Hadoop keys without the suffix count",
        "suffix.count.x",
        hadoop=without("fs.s3k.metastore.dynamo.suffix.count.x"),
    ),
    Settings(
        "Hadoop keys without the scheme",
        "scheme.x",
        hadoop=without("fs.s3k.storage.underlying.filesystem.scheme.x"),
    ),
    Settings(
        "Hadoop keys without the log's bucket",
        "operationlog.s3.bucket.x",
        hadoop=without("fs.s3k.operationlog.s3.bucket.x"),
    ),
    Settings(
        "Hadoop keys of another bucket",
        "fs.s3k.metastore.dynamo.table.y",
        volume="s3k://y",
        hadoop=HADOOP,
    ),
    Settings(
        "Hadoop keys with a count that is none",
        "suffix.count.x",
        hadoop={**HADOOP, "fs.s3k.metastore.dynamo.suffix.count.x": "many"},
    ),
)

OPTIONS = (
    Settings("an unknown option", "sufix_count", options={"sufix_count": 3}, exit=USAGE),
    Settings("an option out of its range", "suffix_count", options={"suffix_count": 0}, exit=USAGE),
    Settings(
        "an option of the wrong type",
        "max_concurrency",
        options={"max_concurrency": "lots"},
        exit=USAGE,
    ),
    Settings(
        "options that contradict each other",
        "log_location",
        options={"table": "meta", "bucket": "b", "log_bucket": "l", "log_location": "./log"},
    ),
    Settings(
        "s3k-1.0 without a suffix count",
        "x",
        options={"table": "meta", "bucket": "x", "kind": "s3k-1.0"},
    ),
)


@pytest.mark.parametrize(
    "row", [*FILES, *ENVIRONMENT, *MAPPING, *OPTIONS], ids=lambda row: row.name.replace(" ", "-")
)
def test_row(row: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["ls", f"{row.volume}/" if row.volume else "/"]
    if row.toml is not None:
        file = tmp_path / "s3k.toml"
        file.write_bytes(row.toml if isinstance(row.toml, bytes) else row.toml.encode())
        monkeypatch.setenv("S3K_CONFIG", str(file))
    if row.hadoop is not None:
        (tmp_path / "hadoop.json").write_text(json.dumps(row.hadoop))
        command += ["--hadoop", str(tmp_path / "hadoop.json")]
    for name, value in row.environment.items():
        monkeypatch.setenv(name, value)
    for name, given in row.options.items():
        command += [f"--{name.replace('_', '-')}", str(given)]
    before = snapshot(tmp_path)
    for client in (S3kClient, S3kSyncClient):
        with pytest.raises(Exception) as caught:  # noqa: PT011 - check_error says which one
            client(row.volume, hadoop=row.hadoop, **row.options)
        check_error(caught.value, CONFIG, row.about)
    about = row.about.replace("_", "-") if row.exit == USAGE else row.about
    check_line(run_command(*command), row.exit, about)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("{not json", "hadoop.json"),
        ("[1, 2]", "hadoop.json"),
        ("<configuration><property>", "hadoop.json"),
        ("<other/>", "hadoop.json"),
        ("<configuration><property><value>3</value></property></configuration>", "hadoop.json"),
    ],
)
def test_a_hadoop_file_that_is_none(tmp_path: Path, text: str, about: str) -> None:
    (tmp_path / "hadoop.json").write_text(text)
    check_line(
        run_command("ls", "s3k://x/", "--hadoop", str(tmp_path / "hadoop.json")), CONFIG.exit, about
    )


def test_a_hadoop_file_that_is_not_there() -> None:
    check_line(run_command("ls", "s3k://x/", "--hadoop", "nowhere.xml"), 3, "nowhere.xml")


@pytest.mark.parametrize(
    "arguments",
    [
        ["ls", "ftp://x/a"],
        ["ls", "x"],
        ["ls", ""],
        ["ls", "./volume:/a", "--nonsense"],
        ["sl", "./volume:/a"],
        ["init", "./volume:/a"],
        ["cat", "--range", "x", "./volume:/a"],
    ],
    ids=" ".join,
)
def test_usage(arguments: list[str], tmp_path: Path) -> None:
    """What no call can say: addresses and options of the command line."""
    check_line(run_command(*arguments), USAGE, "")
    assert list(tmp_path.iterdir()) == []
