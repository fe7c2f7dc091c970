"""Errors on the command line: codes, one line, JSON, and the traceback only when it is asked
for."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from s3k_async import errors
from s3k_async.backends.aws.error_responses import dynamodb_refusal
from s3k_async.cli.hadoop_file import expand_variables, read_hadoop_file
from s3k_async.client import S3kClient
from s3k_async.errors import ConfigError
from tests.cli.conftest import Cli

Tree = dict[str, bytes]


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """Raises what is appended to it, when something is deleted."""
    queue: list[Exception] = []

    async def delete(*_: object, **__: object) -> None:
        raise queue[-1]

    monkeypatch.setattr(S3kClient, "delete", delete)
    return queue


@pytest.mark.parametrize("in_transaction", [True, False])
def test_a_throttled_table_names_its_capacity(
    cli: Cli, small_tree: Tree, failing: list[Exception], in_transaction: bool
) -> None:
    code = "ProvisionedThroughputExceededException"
    body: dict[str, Any] = {
        "__type": f"com.amazonaws.dynamodb.v20120810#{code}",
        "message": "too many requests",
    }
    if in_transaction:
        reasons = [{"Code": "ProvisionedThroughputExceeded", "Message": "too many requests"}]
        body = {"__type": "TransactionCanceledException", "CancellationReasons": reasons}
    failing.append(dynamodb_refusal(json.dumps(body).encode(), 400, path="table"))
    assert "; s3k set-capacity VOLUME raises it" in cli.fails(8, "rm", "/top.txt").errors


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.OutcomeUnknownError("the answer was lost", path="/a", operation="op"), 7),
        (errors.ThrottledError("slow down", path="/a"), 8),
        (errors.RequestTimeoutError("no answer", path="/a"), 8),
        (errors.BusyError("another client holds it", path="/a"), 6),
        (errors.ConflictError("it changed", path="/a"), 6),
        (errors.CredentialsError("expired", path="/a"), 5),
        (errors.ReadOnlyVolumeError("read only", path="/a"), 5),
        (errors.NoSpaceError("full", path="/a"), 12),
        (errors.ServiceError("strange", path="/a"), 1),
        (errors.EndOfFileError("over", path="/a"), 1),
        (OSError(5, "Input/output error", "/a"), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_an_error_of_the_volume_is_a_line_and_a_code(
    cli: Cli, volume: str, failing: list[Exception], error: Exception, code: int
) -> None:
    failing.append(error)
    assert "/a" in cli.fails(code, "rm", "/a").errors
    document = cli("rm", "--json", "/a").error()
    assert document["exit_code"] == code
    assert "/a" in document["message"]


def test_the_json_of_an_error(cli: Cli, small_tree: Tree) -> None:
    done = cli("cat", "--json", "/gone")
    assert done.code == 3
    assert done.error() == {
        "code": "not_found",
        "message": "no such file: /gone",
        "path": "/gone",
        "exit_code": 3,
    }
    assert done.errors.count("\n") == 1


def test_a_partial_failure_lists_what_failed(
    cli: Cli, volume: str, failing: list[Exception]
) -> None:
    failures = [
        ("/a/x", errors.BusyError("held", path="/a/x")),
        ("/a/y", errors.ConflictError("it changed")),
    ]
    failing.append(
        errors.PartialFailureError("2 of the entries below failed", path="/a", failures=failures)
    )
    done = cli("rm", "-r", "/a")
    assert done.code == 10
    assert done.errors.splitlines() == [
        "s3k: held: /a/x",
        "s3k: it changed: /a/y",
        "s3k: 2 of the entries below failed: /a",
    ]
    document = cli("rm", "-r", "/a", "--json").error()
    assert [(each["path"], each["code"]) for each in document["failures"]] == [
        ("/a/x", "busy"),
        ("/a/y", "conflict"),
    ]


def test_of_many_failures_some_are_shown_and_all_are_in_the_json(
    cli: Cli, volume: str, failing: list[Exception]
) -> None:
    failures = [(f"/a/{number}", errors.BusyError("held")) for number in range(1200)]
    failing.append(errors.PartialFailureError("1200 failed", path="/a", failures=failures))
    lines = cli("rm", "-r", "/a").errors.splitlines()
    assert len(lines) == 52
    assert lines[-2] == "s3k: and 1,150 more failures"
    assert len(cli("rm", "-r", "/a", "--json").error()["failures"]) == 1200


def test_what_would_stop_every_source_stops_the_command(
    cli: Cli, volume: str, failing: list[Exception]
) -> None:
    failing.append(errors.UnreachableError("nobody answers", path="table"))
    cli.fails(8, "rm", "/a", "/b", "/c")


def test_a_mistake_of_ours_is_told_without_a_traceback(
    cli: Cli, volume: str, failing: list[Exception]
) -> None:
    failing.append(KeyError("oops"))
    done = cli.fails(1, "rm", "/a")
    assert "internal error, KeyError" in done.errors
    assert "--debug" in done.errors


def test_what_cannot_be_encoded_is_a_mistake_of_the_user(
    cli: Cli, volume: str, failing: list[Exception]
) -> None:
    failing.append(UnicodeEncodeError("utf-8", "a\udcff", 1, 2, "surrogates not allowed"))
    done = cli.fails(2, "rm", "/a")
    assert done.errors == "s3k: cannot be encoded as UTF-8: 'a\\udcff'\n"


@pytest.mark.parametrize(
    "command",
    [
        "ls @",
        "ls /@",
        "ls s3k://v@/x",
        "ls --volume @ /",
        "ls --region @ /",
        "ls --config @ /",
        "put top@ /",
        "get /gone @",
        "find --name @ /gone",
        "mv /gone /@",
        "mkdir /@",
        "init ./@",
        "gc --sweep @",
        "nothing@",
    ],
)
def test_no_surrogate_in_an_argument_is_an_internal_error(
    cli: Cli, volume: str, command: str
) -> None:
    Path("top\udcff").write_bytes(b"top")
    done = cli(*command.replace("@", "\udcff").split())
    assert done.code != 0
    assert "internal error" not in done.errors


def test_debug_shows_where(
    volume: str, failing: list[Exception], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    from s3k_async.cli import main

    failing.append(errors.BusyError("held", path="/a"))
    for arguments in (["--debug", "rm", "/a"], ["rm", "--debug", "/a"]):
        capsysbinary.readouterr()
        assert main(arguments) == 6
        text = capsysbinary.readouterr().err.decode()
        assert "Traceback (most recent call last)" in text
        assert text.endswith("s3k: held: /a\n")


def test_no_such_volume(cli: Cli) -> None:
    assert "nobody" in cli.fails(3, "ls", "memory://nobody").errors
    assert "/gone" in cli.fails(3, "ls", "./gone").errors


def test_no_default_volume(cli: Cli, tmp_path: Path) -> None:
    assert "S3K_VOLUME" in cli.fails(11, "ls").errors
    assert f"{tmp_path}:/" in cli.fails(11, "ls", str(tmp_path)).errors
    assert "embedded" not in cli.fails(11, "ls", "/").errors


def test_bad_configuration(cli: Cli) -> None:
    Path("bad.toml").write_text("volumes = [")
    assert "bad.toml" in cli.fails(11, "--config", "bad.toml", "ls", "./x").errors
    assert "gone.toml" in cli.fails(11, "--config", "gone.toml", "ls", "./x").errors


def test_a_suffix_count_that_differs(cli: Cli, volume: str) -> None:
    assert "suffix" in cli.fails(11, "ls", "--suffix-count", "4").errors


def test_nobody_answers(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("S3K_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("S3K_SECRET_ACCESS_KEY", "very secret")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
        done = cli.fails(
            8,
            *[
                "ls",
                "s3k://x",
                "--table",
                "some-table",
                "--bucket",
                "some-bucket",
                "--endpoint",
                endpoint,
            ],
            *[
                "--region",
                "us-east-1",
                "--retry-attempts",
                "2",
                "--retry-base",
                "0",
                "--connect-timeout",
                "2",
            ],
        )
    assert "some-table" in done.errors
    assert "secret" not in done.errors


def test_no_credentials(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    place = ["--table", "some-table", "--bucket", "some-bucket", "--region", "us-east-1"]
    assert (
        "credentials"
        in cli.fails(5, "ls", "s3k://x", *place, "--endpoint", "http://127.0.0.1:9").errors
    )


def test_hadoop_properties_from_a_file(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bucket's name is the volume's; which table it is, says the context."""
    text = {
        "fs.s3k.metastore.dynamo.table.data.nightly": "meta",
        "fs.s3k.volume.kind.data": "native",
    }
    Path("core.json").write_text(
        json.dumps({"fs.s3k.metastore.dynamo.table.data": "x", "fs.s3k.volume.kind.data": "?"})
    )
    assert (
        "fs.s3k.volume.kind.data"
        in cli.fails(11, "ls", "s3k://data", "--hadoop", "core.json").errors
    )
    properties = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in text.items()
    )
    Path("core.xml").write_text(
        f'<?xml version="1.0"?>\n<configuration>{properties}</configuration>'
    )
    assert (
        "fs.s3k.metastore.dynamo.table.data"
        in cli.fails(11, "--hadoop", "core.xml", "ls", "s3k://data").errors
    )


def test_init_through_hadoop_properties_needs_the_kind(cli: Cli) -> None:
    properties = {
        "fs.s3k.metastore.dynamo.table.data": "memory://unstated",
        "fs.s3k.metastore.dynamo.suffix.count.data": "10",
        "fs.s3k.operationlog.s3.bucket.data": "data",
        "fs.s3k.storage.underlying.filesystem.scheme.data": "s3a",
    }
    Path("core.json").write_text(json.dumps(properties))
    flags = ["--hadoop", "core.json", "--no-save"]
    flags += ["--data-location", "memory://unstated", "--log-location", "memory://unstated-log"]
    refused = cli.fails(11, "init", "s3k://data", *flags)
    assert "--kind native" in refused.errors
    assert "Traceback" not in refused.errors
    cli.ok("init", "s3k://data", *flags, "--kind", "native")


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_hadoop_properties_without_effect_are_one_line(cli: Cli, flags: list[str]) -> None:
    properties = {
        "fs.s3k.metastore.dynamo.table.data": "memory://without-effect",
        "fs.s3k.volume.kind.data": "native",
        "fs.s3a.acl.default": "x",
        "fs.s3k.thread.pool.max.tasks.data": "50",
    }
    Path("core.json").write_text(json.dumps(properties))
    place = ["--hadoop", "core.json", "--data-location", "memory://without-effect", *flags]
    done = cli("init", "s3k://data", *place, "--no-save", "--exist-ok")
    told = (
        "Hadoop settings without effect on s3k://data: fs.s3a.acl.default, "
        "fs.s3k.thread.pool.max.tasks.data"
    )
    assert done.errors == (json.dumps({"warning": told}) if flags else f"s3k: {told}") + "\n"
    assert done.code == 0
    cli("mkdir", "s3k://data/a", *place)
    assert cli("mv", "s3k://data/a", "s3k://data/b", *place).errors.count("without effect") == 1


@pytest.mark.parametrize(
    "key", ["fs.s3a.server-side-encryption-algorithm", "fs.s3a.bucket.data.encryption.algorithm"]
)
def test_hadoop_properties_with_an_encryption_that_is_not_supported(cli: Cli, key: str) -> None:
    properties = {
        "fs.s3k.metastore.dynamo.table.data": "memory://encrypted",
        "fs.s3k.volume.kind.data": "native",
        key: "CSE-KMS",
    }
    Path("core.json").write_text(json.dumps(properties))
    refused = cli.fails(11, "init", "s3k://data", "--hadoop", "core.json", "--no-save")
    assert "CSE-KMS, which is not supported" in refused.errors
    assert "s3://data/" in refused.errors


def test_a_later_hadoop_file_counts(cli: Cli) -> None:
    Path("one.json").write_text(
        json.dumps(
            {
                "fs.s3k.metastore.dynamo.table.data": "memory://hadoop",
                "fs.s3k.volume.kind.data": "x",
            }
        )
    )
    Path("two.json").write_text(json.dumps({"fs.s3k.volume.kind.data": "native"}))
    flags = ["--hadoop", "one.json", "--hadoop", "two.json", "--data-location", "memory://hadoop"]
    cli.ok("init", "s3k://data", *flags, "--no-save")
    assert cli.ok("ls", "s3k://data", *flags).out == ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1]",
        '{"a": {}}',
        "<configuration>",
        "<other/>",
        "<configuration><property/></configuration>",
        pytest.param("[" * 100_000, id="deep"),
        '<configuration xmlns:x="http://www.w3.org/2001/XInclude"><x:include/></configuration>',
    ],
)
def test_what_is_no_hadoop_file(cli: Cli, text: str) -> None:
    Path("core").write_text(text)
    assert "core" in cli.fails(11, "--hadoop", "core", "ls", "s3k://data").errors


def test_a_hadoop_file_is_read_as_by_hadoop(tmp_path: Path) -> None:
    """`${name}` is a property of any of the files."""
    values = {
        "none": None,
        "host": "minio",
        "url": "http://${host}:${port}/${host}",
        "port": "${base.port}",
        "home": "${user.home}/${port}",
        "loop": "a${loop}",
        "one": "${two}",
        "two": "x${one}",
    }
    (tmp_path / "a.json").write_text(json.dumps(values))
    xml = "<property><name>base.port</name><value>9000</value></property>"
    (tmp_path / "b.xml").write_text(
        f"<?xml version='1.0'?><configuration>{xml}</configuration>", encoding="utf-8-sig"
    )
    merged = read_hadoop_file(str(tmp_path / "a.json")) | read_hadoop_file(str(tmp_path / "b.xml"))
    with pytest.raises(ConfigError, match="one needs more than 20 substitutions"):
        expand_variables(merged)
    assert expand_variables({**merged, "two": "2"}) == {
        "host": "minio",
        "url": "http://minio:9000/minio",
        "port": "9000",
        "home": "${user.home}/${port}",
        "loop": "a${loop}",
        "one": "2",
        "two": "2",
        "base.port": "9000",
    }


def test_variables_of_hadoop_files_take_effect(cli: Cli) -> None:
    properties = {
        "fs.s3k.metastore.dynamo.table.data": "memory://${where}",
        "fs.s3k.volume.kind.data": "native",
    }
    Path("one.json").write_text(json.dumps(properties))
    Path("two.json").write_text(json.dumps({"where": "hadoop-variable"}))
    flags = ["--hadoop", "one.json", "--hadoop", "two.json", "--data-location", "memory://var"]
    cli.ok("init", "s3k://data", *flags, "--no-save")
    assert cli.ok("ls", "s3k://data", "--table", "memory://hadoop-variable", *flags[2:]).out == ""


def test_a_hadoop_file_that_is_not_there(cli: Cli) -> None:
    assert "gone.xml" in cli.fails(3, "--hadoop", "gone.xml", "ls", "s3k://data").errors


def test_the_context_picks_the_settings(cli: Cli) -> None:
    key = "fs.s3k.metastore.dynamo.max.retries.data"
    Path("core.json").write_text(
        json.dumps(
            {
                "fs.s3k.metastore.dynamo.table.data": "t",
                "fs.s3k.volume.kind.data": "native",
                f"{key}.night": "?",
            }
        )
    )
    arguments = [
        "ls",
        "s3k://data",
        "--hadoop",
        "core.json",
        "--data-location",
        "memory://d",
        "--table",
        "memory://none",
    ]
    cli.fails(3, *arguments)
    assert f"{key}.night" in cli.fails(11, *arguments, "--context", "night").errors
