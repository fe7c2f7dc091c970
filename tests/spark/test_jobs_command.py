"""`s3k spark`, in the session of the tests and under spark-submit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyspark
import pytest

import s3k_async.cli
from s3k_async import S3kSyncClient
from s3k_async.cli.spark_lists import form_by_content, form_by_name
from s3k_async.cli.spark_sessions import spark_error
from s3k_async.settings import resolve
from s3k_async.volumes import init_volume
from tests.cli.conftest import Cli, clean_environment, cli
from tests.cli.test_alerts import Hook, add_orphan, hook, kinds
from tests.cli.test_restore import lose_entry
from tests.spark.conftest import spark_environment
from tests.spark.places import HANGS, copy_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["clean_environment", "cli", "hook"]

pytestmark = pytest.mark.spark

FILES = [f"/a/{number % 3}/{number}" for number in range(12)]


@pytest.fixture
async def directory(clean_environment: None, tmp_path: Path) -> str:
    """The directory of an embedded volume."""
    place = str(tmp_path / "volume")
    config = resolve(place)
    await init_volume(config)
    with S3kSyncClient(config=config) as fs:
        fs.write_many([(path, path.encode()) for path in FILES])
    return place


def left(directory: str) -> list[str]:
    with S3kSyncClient(directory) as fs:
        return sorted(status.path for status in fs.list("/", recursive=True) if status.is_file)


def last_runs(cli: Cli, directory: str) -> dict[str, Any]:
    found: dict[str, Any] = cli.ok("info", directory, "--json").json()["last_runs"]
    return found


def test_sums_are_those_of_du(spark: SparkSession, cli: Cli, directory: str) -> None:
    wanted = {line["path"]: line for line in cli.ok("du", "--json", f"{directory}:/").json_lines()}
    found = cli.ok(
        "--json", "spark", "du", "-L", "2", "--tasks", "2", f"{directory}:/"
    ).json_lines()
    assert [line["path"] for line in found] == ["/", "/a", "/a/0", "/a/1", "/a/2"]
    assert {line["path"]: line for line in found} == wanted
    assert (
        cli.ok("spark", "du", "--by", "segments", "--tasks", "1", f"{directory}:/a/1").out
        == "           25        4       1  /a/1\n"
    )
    assert "no such" in cli.fails(3, "spark", "du", f"{directory}:/b").errors


def test_a_listing_is_written(
    spark: SparkSession, cli: Cli, directory: str, tmp_path: Path
) -> None:
    target = str(tmp_path / "listing")
    for by in ("directories", "segments"):
        done = cli.ok(
            "spark", "listing", f"{directory}:/", "--by", by, "--tasks", "2", "-o", f"{target}-{by}"
        )
        assert done.out == f"listed 16 entries to {target}-{by}\n"
        found = {row.path for row in spark.read.parquet(f"{target}-{by}").collect()}
        assert found == {*FILES, "/a", "/a/0", "/a/1", "/a/2"}
    there = ("-o", f"{target}-segments")
    assert (
        "the output exists and is not replaced"
        in cli.fails(4, "spark", "listing", f"{directory}:/", *there).errors
    )
    assert (
        "the output exists and is not replaced"
        in cli.fails(4, "spark", "purge", f"{directory}:/a", "--yes", *there).errors
    )
    assert left(directory) == sorted(FILES)


def test_a_dump_can_be_loaded(
    spark: SparkSession, cli: Cli, directory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("s3k_async.txn.volume_lock.QUIET_SECONDS", 0.0)
    target, copy = str(tmp_path / "dump"), str(tmp_path / "copy")
    done = cli.ok("spark", "dump", f"{directory}:/a", "--tasks", "2", "-o", target)
    assert done.out == f"dumped 12 files, 4 directories of {directory}:/a to {target}\n"
    cli.ok("load", target, copy, "--copy-bytes-from", directory)
    assert left(copy) == sorted(FILES)
    copy_bytes(Path(directory), Path(f"{copy}-2"))
    done = cli.ok("spark", "load", target, f"{copy}-2", "--check", "--tasks", "2")
    assert done.out == f"loaded 12 files, 4 directories into {copy}-2\n"
    assert left(f"{copy}-2") == sorted(FILES)
    assert "not a path" in cli.fails(2, "spark", "load", target, f"{copy}-3:/a").errors
    assert "already" in cli.fails(2, "spark", "dump", directory, "-o", target).errors
    assert "no such" in cli.fails(3, "spark", "dump", f"{directory}:/b", "-o", f"{target}-2").errors


def test_a_volume_is_resharded(
    spark: SparkSession, cli: Cli, directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("s3k_async.txn.volume_lock.QUIET_SECONDS", 0.0)
    before = cli.ok("spark", "du", "--tasks", "2", f"{directory}:/").out
    done = cli.ok(
        "--json",
        "spark",
        "reshard",
        directory,
        "--suffix-count",
        "5",
        "--hash",
        "java31",
        "--tasks",
        "2",
    ).json()
    assert (done["suffix_count"], done["hash"], done["entries"]) == (5, "java31", 16)
    assert done["moved"] > 0
    # By workers that had the volume open.
    assert cli.ok("spark", "du", "--tasks", "2", f"{directory}:/").out == before
    assert left(directory) == sorted(FILES)
    again = cli.ok("spark", "reshard", directory, "--suffix-count", "5")
    assert again.out == f"{directory} has suffix count 5, hash java31; moved 0 entries\n"
    assert (
        "not a path"
        in cli.fails(2, "spark", "reshard", f"{directory}:/a", "--suffix-count", "5").errors
    )


def test_garbage_is_that_of_one_machine(
    spark: SparkSession, cli: Cli, directory: str, tmp_path: Path, hook: Hook
) -> None:
    with S3kSyncClient(directory) as fs:
        fs.delete("/a/0/0")
        fs.write("/a/1/1", b"replaced")
    add_orphan(directory)
    for place in Path(directory, "data").rglob("*"):
        os.utime(place, (time.time() - 50_000, time.time() - 50_000))
    options = ["--grace", "0", "--lease", "60"]
    wanted = cli.ok("gc", directory, *options).out
    total = f"would delete 3 objects, 18 bytes in {directory}:/ (--yes deletes)\n"
    assert wanted.endswith(total)
    job = [
        "spark",
        "gc",
        directory,
        *options,
        "--tasks",
        "2",
        "--checkpoint",
        str(tmp_path / "stages"),
    ]
    assert kinds(hook) == [("orphan", "unpublished", 1, [])]
    assert cli.ok(*job, "-o", str(tmp_path / "candidates")).out == wanted
    assert {each["operation"] for each in hook.posted} == {"spark gc"}
    assert kinds(hook) == [("orphan", "unpublished", 1, [])]
    assert {row.reason for row in spark.read.parquet(str(tmp_path / "candidates")).collect()} == {
        "deleted",
        "replaced",
        "unpublished",
    }
    assert last_runs(cli, directory) == {}
    document = cli.ok(*job, "--yes", "--json").json()
    assert kinds(hook) == [("repaired", "unpublished", 1, [])]
    counts = {"deleted": 1, "replaced": 1, "unpublished": 1}
    assert last_runs(cli, directory)["gc"]["counts"] == counts
    assert document["deleted"] == {
        "deleted": {"objects": 1, "bytes": 6},
        "replaced": {"objects": 1, "bytes": 6},
        "unpublished": {"objects": 1, "bytes": 6},
    }
    assert cli.ok("gc", directory, *options).out.endswith(
        f"would delete 0 objects, 0 bytes in {directory}:/ (--yes deletes)\n"
    )
    assert cli.ok("fsck", directory, "--grace", "0").out.startswith("clean: ")


def test_changes_wait_for_yes(
    spark: SparkSession, cli: Cli, directory: str, tmp_path: Path
) -> None:
    pairs, paths, output = (tmp_path / name for name in ("pairs.csv", "paths.json", "output"))
    pairs.write_text("source,target\n/a/0/0,/a/b\n/a/0/3,/missing/c\n")
    paths.write_text('{"path": "/a/1/1"}\n{"path": "/a/2"}\n')
    rename = ["spark", "rename", directory + ":/", "--pairs", str(pairs), "--tasks", "2"]
    delete = ["spark", "delete", directory + ":/", "--from", str(paths), "-r", "--tasks", "2"]

    assert cli.ok(*rename).out == (
        f"would rename 2 files, 12 bytes in {directory}:/ (--yes applies it)\n"
    )
    whole = f"1 directory with all below in {directory}:/"
    assert cli.ok(*delete).out == f"would delete 1 file, 6 bytes, {whole} (--yes applies it)\n"
    assert cli.ok("spark", "purge", f"{directory}:/a").out.startswith(
        f"would delete 12 files, 4 directories, 74 bytes in {directory}:/"
    )
    assert left(directory) == sorted(FILES)

    done = cli(*rename, "--yes", "--json", "-o", str(output))
    assert done.code == 10
    document = done.json()
    assert (document["done"], document["failed"], document["files"]) == (1, 1, 1)
    assert document["requests"]
    assert [each["path"] for each in done.error()["failures"]] == ["/a/0/3"]
    assert sorted(row.outcome for row in spark.read.parquet(str(output)).collect()) == [
        "done",
        "failed",
    ]
    assert cli.ok(*delete, "--yes").out.startswith(f"deleted 1 file, 6 bytes, {whole}; ")
    assert left(directory) == ["/a/0/3", "/a/0/6", "/a/0/9", "/a/1/10", "/a/1/4", "/a/1/7", "/a/b"]
    assert cli.ok("spark", "purge", f"{directory}:/", "--yes").out.startswith(
        "deleted 7 files, 3 directories, "
    )
    assert left(directory) == []


def test_fsck_is_that_of_one_machine(
    spark: SparkSession, cli: Cli, directory: str, tmp_path: Path, hook: Hook
) -> None:
    wanted = cli.ok("fsck", directory).out
    assert wanted.startswith("clean: 12 files, 4 directories, ")
    assert cli.ok("spark", "fsck-verify", directory, "--tasks", "2").out == wanted
    with S3kSyncClient(directory) as fs:
        os.unlink(unquote(fs.physical_path("/a/0/0").removeprefix("file://")))
    wanted = cli("fsck", directory, "--grace", "0").out
    assert kinds(hook) == (damage := [("missing", "data_missing", 1, ["/a/0/0"])])
    before = last_runs(cli, directory)["fsck_verify"]
    found = cli(
        "spark",
        "fsck-verify",
        directory,
        "--grace",
        "0",
        "--tasks",
        "2",
        "-o",
        str(tmp_path / "findings"),
    )
    assert (found.code, found.out) == (9, wanted)
    assert kinds(hook) == damage
    recorded = last_runs(cli, directory)["fsck_verify"]
    assert recorded["counts"] == {"data_missing": 1}
    assert recorded["time_ms"] > before["time_ms"]
    assert "/a/0/0" in {
        row.path for row in spark.read.parquet(str(tmp_path / "findings")).collect()
    }
    repair = cli("fsck", "repair", directory, "--grace", "0")
    assert kinds(hook) == damage
    found = cli("spark", "fsck-repair", directory, "--grace", "0", "--tasks", "2")
    assert (found.code, found.out) == (repair.code, repair.out)
    assert kinds(hook) == damage


def test_fsck_of_a_path_without_an_entry_is_an_error(
    spark: SparkSession, cli: Cli, directory: str
) -> None:
    for job in ("fsck-verify", "fsck-repair"):
        assert "/gone" in cli.fails(3, "spark", job, f"{directory}:/gone", "--tasks", "1").errors


def test_stats_have_the_repairs_of_a_job(spark: SparkSession, cli: Cli, directory: str) -> None:
    """As those of a repair on one machine."""
    for command in (("fsck", "repair"), ("spark", "fsck-repair", "--tasks", "2")):
        for path in ("/a/1/1", "/a/1/4"):
            lose_entry(directory, path)
        done = cli(*command, directory, "--grace", "0", "--yes", "--stats", "--json")
        assert done.code == 0
        found = json.loads(done.errors)["stats"]["events"]
        assert found == {"fsck.repaired.entry_missing": 2}, command


@pytest.mark.slow
def test_a_restore_is_that_of_one_machine(
    spark: SparkSession, cli: Cli, directory: str, hook: Hook
) -> None:
    with S3kSyncClient(directory) as fs:
        key = fs.stat("/a/1/1").physical
        place = unquote(fs.physical_path("/a/1/1").removeprefix("file://"))
    for path in ("/a/1/1", "/a/1/4"):
        lose_entry(directory, path)
    os.unlink(place)
    restore = ("fsck", "restore", directory, "--subtree", "/a")
    wanted = cli(*restore)
    damage = ("missing", "bytes_missing", 1, ["/a/1/1"])
    assert kinds(hook) == [("missing", "entry_missing", 1, []), damage]
    found = cli("spark", "fsck-restore", *restore[2:], "--tasks", "2")
    assert str(key) in found.out
    assert (found.code, found.out) == (wanted.code, wanted.out)
    assert {each["operation"] for each in hook.posted} == {"spark fsck-restore"}
    assert kinds(hook) == [("missing", "entry_missing", 1, []), damage]


@pytest.mark.slow
def test_a_directory_is_told_as_one_with_what_is_in_it(
    spark: SparkSession, cli: Cli, directory: str, tmp_path: Path
) -> None:
    """Its files are neither listed nor counted: none of them is touched."""
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("source,target\n/a,/b\n")
    rename = ["spark", "rename", directory, "--pairs", str(pairs), "--tasks", "2"]
    assert cli.ok(*rename).out == (
        f"would rename 1 directory with all below in {directory}:/ (--yes applies it)\n"
    )
    assert cli.ok(*rename, "--yes").out.startswith(
        f"renamed 1 directory with all below in {directory}:/; "
    )
    assert len(left(directory)) == len(FILES)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("list.csv", b"path", "csv"),
        ("list.JSONL", b"", "json"),
        ("list.csv.gz", b"\x1f\x8b", "csv"),
        ("list.parquet", b"PAR1", "parquet"),
        ("list", b'{"path": "/a"}', "json"),
        ("list.txt", b"path\n/a\n", "csv"),
        ("list", b"PAR1", "parquet"),
        ("written/part-0.snappy.parquet", b"PAR1", "parquet"),
        ("written/part-0.json", b"{}", "json"),
    ],
)
def test_the_form_of_a_list_is_what_it_is(
    spark: SparkSession, tmp_path: Path, name: str, content: bytes, expected: str
) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)
    (file.parent / "_SUCCESS").write_bytes(b"")
    place = str(file.parent if "/" in name else file)
    assert (form_by_name(place) or form_by_content(spark, place)) == expected


def test_a_list_that_cannot_be_read_is_told_in_one_line(
    spark: SparkSession, cli: Cli, directory: str, tmp_path: Path
) -> None:
    pairs = tmp_path / "pairs.parquet"
    rename = ["spark", "rename", directory, "--pairs", str(pairs), "--tasks", "2"]
    assert "pairs.parquet" in cli.fails(2, *rename).errors
    assert (
        "no such list"
        in cli.fails(3, "spark", "rename", directory, "--pairs", str(tmp_path / "pairs")).errors
    )
    pairs.write_text("source,target\n/a,/b\n")
    assert "/pairs.parquet. Could not read footer." in cli.fails(2, *rename).errors
    pairs.rename(tmp_path / "pairs.csv")
    (tmp_path / "pairs.csv").write_text("from,to\n/a,/b\n")
    rename[4] = str(tmp_path / "pairs.csv")
    assert "needs a column 'source'" in cli.fails(2, *rename).errors


@pytest.mark.slow
def test_a_job_that_fails_in_a_session_of_its_own_says_one_line(
    tmp_path: Path, directory: str
) -> None:
    """Spark's own log has a stack for each task that failed."""
    pairs = tmp_path / "pairs.parquet"
    pairs.write_text("source,target\n/a,/b\n")
    command = ["spark", "rename", directory, "--pairs", str(pairs), "--master", "local[1]"]
    done = subprocess.run(
        [sys.executable, "-m", "s3k_async.cli", *command],
        env=spark_environment(),
        capture_output=True,
        text=True,
        timeout=HANGS,
        check=False,
    )
    assert done.returncode == 2
    assert "/pairs.parquet. Could not read footer." in done.stderr.splitlines()[-1]
    assert "\tat " not in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr.replace(done.stderr.splitlines()[-1], "")


def test_of_nested_errors_the_innermost_is_one_line() -> None:
    class OfTheJvmError(Exception):
        java_exception = (
            "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage "
            "1.0 failed 1 times,"
            " most recent failure: Lost task 0.0 in stage 1.0 (TID 1) (host executor driver): "
            "a.b.Error: outside\n"
            "\tat a.b.C\nCaused by: java.lang.RuntimeException: the reason\n\t... 30 more\n"
        )

    assert str(spark_error(OfTheJvmError())) == "Spark: the reason"


@pytest.mark.slow
def test_under_spark_submit(directory: str, tmp_path: Path) -> None:
    """The script that the documentation names, in a JVM and processes of its own, whose errors go
    to its output too."""
    script = str(Path(s3k_async.cli.__file__).with_name("__main__.py"))
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    root = str(Path(s3k_async.__file__).parents[1])
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": root,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
    }
    job = ["--json", "spark", "du", "-L", "0", f"{directory}:/"]
    done = subprocess.run(
        [submit, "--master", "local[1]", "--conf", "spark.ui.enabled=false", script, *job],
        capture_output=True,
        text=True,
        timeout=HANGS,
        check=True,
        cwd=tmp_path,
        env=environment,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "volume": f"{directory}:/",
        "path": "/",
        "bytes": 74,
        "files": 12,
        "directories": 5,
    }


def test_a_session_that_cannot_be_had_is_told_in_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "s3k_async.cli", "spark", "du", "./volume"],
        env={**os.environ, "JAVA_HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=HANGS,
        check=False,
    )
    # What Spark's own scripts say comes before.
    assert done.stderr.splitlines()[-1].startswith("s3k: Spark: [JAVA_GATEWAY_EXITED]")


def test_an_error_of_the_jvm_is_told_without_its_stack() -> None:
    class OfTheJvmError(Exception):
        java_exception = "java.io.IOException: No FileSystem for scheme\n\tat org.apache.hadoop"

    assert str(spark_error(OfTheJvmError("An error occurred while calling o1.x."))) == (
        "Spark: java.io.IOException: No FileSystem for scheme"
    )


def test_an_error_in_a_worker_is_told_with_its_cause() -> None:
    class OfAWorkerError(Exception):
        java_exception = (
            "org.apache.spark.SparkException: Job aborted due to stage failure: Lost task 0.3 (TID "
            "3):"
            " org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
            '  File "worker.py", line 1, in main\n    import lake\n'
            "ModuleNotFoundError: No module named 'lake'\n\n\tat "
            "org.apache.spark.api.python.BasePythonRunner\n"
        )

    assert (
        str(spark_error(OfAWorkerError()))
        == "Spark: in a Python worker: ModuleNotFoundError: No module named 'lake'"
    )
