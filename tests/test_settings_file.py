"""The configuration file: what is wrong with it is named, and sections are added without harm."""

from __future__ import annotations

import multiprocessing
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from s3k_async.config import DynamoTable, S3Bucket
from s3k_async.errors import ConfigError
from s3k_async.settings import local_service, local_table, read_config, resolve, save_volume


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "s3k" / "config.toml"


def write(file: Path, text: str) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[volumes.a]\ntable = \n", "line 2"),
        (
            "[volumes.a]\ntabel = 't-1'\n",
            r"\[volumes\.a\], unknown key 'tabel'; did you mean table\?",
        ),
        ("defualts = 1\n", r"unknown key 'defualts'; did you mean defaults\?"),
        ("[defaults]\ntable = 't-1'\n", "'table' is about one volume"),
        ("[defaults]\nregoin = 'x'\n", "did you mean region"),
        ("volumes = 3\n", "'volumes' is not a table"),
        ("[volumes]\na = 3\n", r"\[volumes\.a\] is not a table"),
        (
            "[volumes.a]\nsuffix_count = 'many'\n",
            r"\[volumes\.a\], suffix_count: 'many' is not a whole number",
        ),
        ("[volumes.a]\nprefix = 3\n", "prefix: 3 is not text"),
        ("[volumes.'a b']\n", "volume's name"),
        ("default_volume = 3\n", "default_volume"),
    ],
)
def test_what_is_wrong_is_named_with_the_file(file: Path, text: str, message: str) -> None:
    write(file, text)
    with pytest.raises(ConfigError, match=message) as caught:
        read_config(str(file))
    assert str(file) in str(caught.value)


def test_the_documented_file_is_read(file: Path) -> None:
    page = Path(__file__).parent.parent / "docs/command-line.md"
    write(file, page.read_text(encoding="utf-8").partition("```toml\n")[2].partition("```")[0])
    config = resolve("s3k://lab", config=file, environ={})
    assert isinstance(config.table, DynamoTable)
    assert isinstance(config.data, S3Bucket)
    assert isinstance(config.log, S3Bucket)
    assert (config.table.name, config.table.aws.endpoint) == ("lab", "http://127.0.0.1:8000")
    assert (config.log.bucket, config.log.aws.profile) == ("lab", "lab")
    assert resolve(None, config=file, environ={}).name == "analytics"


def test_a_setting_of_a_part_goes_before_one_for_all_wherever_it_comes_from(file: Path) -> None:
    write(file, "[volumes.a]\ntable = 'meta'\nbucket = 'data'\ntable_endpoint = 'http://one'\n")
    config = resolve(
        "s3k://a", config=file, endpoint="http://two", environ={"S3K_ENDPOINT": "http://three"}
    )
    assert isinstance(config.table, DynamoTable)
    assert isinstance(config.data, S3Bucket)
    assert config.table.aws.endpoint == "http://one"
    assert config.data.aws.endpoint == "http://two"


def test_bytes_that_are_no_text_and_a_file_that_is_a_directory(file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_config(str(file))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_config(str(file.parent))


def test_a_file_that_was_named_has_to_exist(file: Path) -> None:
    assert read_config(str(file)).volumes == {}
    with pytest.raises(ConfigError, match="does not exist"):
        resolve("/srv/v", config=file, environ={})
    with pytest.raises(ConfigError, match="does not exist"):
        resolve("/srv/v", environ={"S3K_CONFIG": str(file)})


def test_the_file_by_keyword_comes_before_the_environments(file: Path, tmp_path: Path) -> None:
    write(file, "[defaults]\nlease = 1\n")
    (tmp_path / "other.toml").write_text("[defaults]\nlease = 2\n")
    environ = {"S3K_CONFIG": str(tmp_path / "other.toml")}
    assert resolve("/srv/v", environ=environ).tuning.lease == 2
    assert resolve("/srv/v", config=file, environ=environ).tuning.lease == 1


OPTIONS = {
    "table": "analytics-meta",
    "bucket": "analytics-data",
    "suffix_count": 20,
    "verify_tls": False,
    "lease": 2.5,
}


def test_a_saved_volume_is_found_again(file: Path) -> None:
    assert save_volume("analytics", {**OPTIONS, "prefix": None}, str(file))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert read_config(str(file)).volumes == {"analytics": OPTIONS}
    assert resolve("s3k://analytics", config=file, environ={}).suffix_count == 20
    assert os.listdir(file.parent) == ["config.toml"]


def test_saving_keeps_what_is_there(file: Path) -> None:
    text = '# mine\ndefault_volume = "s3k://a"\n\n[volumes.a]  # first\ntable = "t-1"\n\n\n'
    write(file, text)
    file.chmod(0o640)
    assert save_volume("my.bucket_1", OPTIONS, str(file))
    assert file.read_text().startswith(text.rstrip() + '\n\n[volumes."my.bucket_1"]\n')
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert read_config(str(file)).volumes == {"a": {"table": "t-1"}, "my.bucket_1": OPTIONS}


def test_saving_again_is_nothing_and_otherwise_is_refused(file: Path) -> None:
    assert save_volume("a", OPTIONS, str(file))
    before = file.read_bytes()
    assert not save_volume("a", OPTIONS, str(file))
    with pytest.raises(ConfigError, match=r"another section \[volumes\.a\]"):
        save_volume("a", {**OPTIONS, "suffix_count": 21}, str(file))
    assert file.read_bytes() == before


def test_secrets_are_not_written(file: Path) -> None:
    options = {
        **OPTIONS,
        "access_key_id": "AKIAEXAMPLE",
        "log_secret_access_key": "hush",
        "session_token": "hush",
    }
    save_volume("a", options, str(file))
    assert read_config(str(file)).volumes["a"] == OPTIONS
    assert "hush" not in file.read_text()
    assert "AKIA" not in file.read_text()


def test_paths_are_saved_as_they_are_meant_here(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save_volume("a", {"directory": "vol", "table": "sqlite:x.db", "data_location": "d"}, str(file))
    assert read_config(str(file)).volumes["a"] == {
        "directory": f"{tmp_path}/vol",
        "table": f"sqlite:{tmp_path}/x.db",
        "data_location": f"{tmp_path}/d",
    }


@pytest.mark.parametrize("value", ['a"b\\c\nd', "é😀", "\x7f\x01", "'''", "tab\there"])
def test_any_text_survives(file: Path, value: str) -> None:
    save_volume("a", {"prefix": value}, str(file))
    assert read_config(str(file)).volumes["a"] == {"prefix": value}


@pytest.mark.parametrize("text", ["volumes = {}\n", "[volumes.a\n", "[x]\n"])
def test_a_file_that_cannot_take_the_section_stays_as_it_is(file: Path, text: str) -> None:
    write(file, text)
    with pytest.raises(ConfigError):
        save_volume("a", OPTIONS, str(file))
    assert file.read_text() == text


def test_a_link_to_the_file_stays_a_link(file: Path, tmp_path: Path) -> None:
    write(file, "")
    link = tmp_path / "link.toml"
    link.symlink_to(file)
    save_volume("a", OPTIONS, str(link))
    assert link.is_symlink()
    assert read_config(str(file)).volumes == {"a": OPTIONS}


def test_buckets_and_tables_of_no_volume_are_reached_as_the_default_volume(file: Path) -> None:
    lab = (
        "[volumes.lab]\nregion = 'r-1'\n"
        "table_endpoint = 'http://t:1'\ndata_endpoint = 'http://d:1'\n"
    )
    write(file, f"default_volume = 's3k://lab'\n\n{lab}\n[volumes.other]\nregion = 'r-2'\n")
    service = local_service(config=file)
    assert (service.endpoint, service.region) == ("http://d:1", "r-1")
    table = local_table("meta", config=file)
    assert isinstance(table, DynamoTable)
    assert (table.aws.endpoint, table.aws.region) == ("http://t:1", "r-1")
    assert local_service("s3k://other", config=file).region == "r-2"
    assert local_service(config=file, region="r-3").region == "r-3"


def test_a_name_or_an_option_that_is_none_is_refused(file: Path) -> None:
    with pytest.raises(ConfigError, match="volume's name"):
        save_volume("a/b", OPTIONS, str(file))
    with pytest.raises(ConfigError, match="did you mean suffix_count"):
        save_volume("a", {"sufix_count": 3}, str(file))
    assert not file.exists()


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written") as caught:
        save_volume("a", OPTIONS, str(tmp_path / "file" / "config.toml"))
    assert caught.value.path == str(tmp_path / "file" / "config.toml")


def save_several(file: str, first: int, ready: Any) -> None:
    ready.wait(60)
    for number in range(first, first + 10):
        save_volume(f"v{number}", {"suffix_count": number + 1}, file)


def test_processes_that_save_at_once_lose_nothing(file: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(3)
    children = [
        context.Process(target=save_several, args=(str(file), first, ready))
        for first in (0, 10, 20)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert read_config(str(file)).volumes == {
        f"v{number}": {"suffix_count": number + 1} for number in range(30)
    }
