"""A run that was interrupted is resumed after its last finished row."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.measuring import Result
from benchmarks.record import Record

MACHINE = {"commit": "one", "repetitions": "3", "python": "3.11"}


def result(row: str, contender: str = "ours") -> Result:
    return Result(
        row, "a case", contender, 10, "files", [1.0, 2.0], [0.5], "boto3", facts={"seen": 1}
    )


def interrupted() -> Record:
    record = Record(dict(MACHINE))
    record.results += [result("decode", "boto3"), result("decode")]
    record.ended("codec")
    record.results += [result("keys")]
    record.ended("keys")
    record.results += [result("put")]
    return record


def test_finished_rows_are_kept_and_the_interrupted_one_is_measured_anew(tmp_path: Path) -> None:
    path = tmp_path / "results" / "full.json"
    interrupted().save(path)

    resumed = Record.load(path).resumed({**MACHINE, "commit": "two"})

    assert resumed.missing(["codec", "keys", "engines", "libraries"]) == ["engines", "libraries"]
    assert resumed.results == [result("decode", "boto3"), result("decode"), result("keys")]
    assert resumed.environment == {**MACHINE, "resumed after keys: commit": "two"}
    resumed.results.append(result("put"))
    resumed.ended("engines")
    assert resumed.rows == {"codec": 2, "keys": 1, "engines": 1}


@pytest.mark.parametrize(
    ("record", "environment"),
    [
        (interrupted(), {**MACHINE, "repetitions": "2"}),
        (Record(dict(MACHINE), results=[result("keys")]), MACHINE),
    ],
    ids=["other repetitions", "nothing finished"],
)
def test_a_run_that_cannot_be_resumed_is_refused(
    record: Record, environment: dict[str, str]
) -> None:
    with pytest.raises(ValueError, match=r"repetitions|finished"):
        record.resumed(environment)
