"""Nothing that others wrote makes a reader crash, hang, or raise what has no name."""

from __future__ import annotations

import json
import os
import random
import sys

import pytest

from tests.torture.fuzz import Tally, fuzz, main
from tests.torture.fuzz_targets import TARGETS, Target

EXECUTIONS = {"whole_log": 150, "pattern": 200}
"""Inputs of those targets that take their time; of the others, 1000."""
USUAL = 1000


@pytest.mark.parametrize("name", TARGETS)
def test_a_reader_reads_or_refuses(name: str) -> None:
    seed = os.environ.get("S3K_TEST_SEED") or str(random.SystemRandom().randrange(2**32))
    sys.stdout.write(f"S3K_TEST_SEED={seed}\n")
    tally = Tally()
    fuzz(name, seed, EXECUTIONS.get(name, USUAL), tally)
    assert tally.executions == EXECUTIONS.get(name, USUAL)


@pytest.mark.parametrize("name", TARGETS)
def test_what_the_inputs_are_made_of_is_valid(name: str) -> None:
    for data in TARGETS[name].corpus:
        TARGETS[name].read(data)


def test_an_item_with_an_empty_key_of_bytes_reads_the_same_after_it_was_written() -> None:
    """It became that of a reservation."""
    files = [item for item in map(json.loads, TARGETS["item"].corpus) if "physpath" in item]
    assert files
    for item in files:
        TARGETS["item"].read(json.dumps({**item, "physpath": ""}).encode())


def test_the_long_run_says_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seconds", "0.01", "--seed", "1", "--target", "intent", "--target", "path"]) == 0
    assert "executions, no crash, no hang" in capsys.readouterr().out


def test_a_crash_is_told_with_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(data: bytes) -> None:
        raise RecursionError("too deep")

    broken = Target(TARGETS["intent"].corpus, crash, TARGETS["intent"].errors)
    monkeypatch.setitem(TARGETS, "intent", broken)
    with pytest.raises(AssertionError, match="RecursionError: too deep"):
        fuzz("intent", "1", 1, Tally())
