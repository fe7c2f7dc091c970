"""What `make test` leaves to `make test-full`."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.engines.selection import SAMPLE, in_short_run

TESTS = Path(__file__).parents[1]


def test_the_sample_exists() -> None:
    missing = []
    for each in SAMPLE:
        file, _, name = each.partition("::")
        tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
        functions = {
            node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef)
        }
        if name not in functions:
            missing.append(each)
    assert missing == []


def test_a_test_outside_of_the_sample_runs_on_the_fast_engines() -> None:
    (test,) = sorted(SAMPLE)[:1]
    for parameters in (["dynoxide+seaweedfs"], ["memory"], ["sqlite", "3"], []):
        assert in_short_run("a.py::test_a", parameters)
    for parameters in (["dynamodb_local+seaweedfs"], ["dynoxide+moto"], ["1", "reference"]):
        assert not in_short_run("a.py::test_a", parameters)
        assert in_short_run(test, parameters)
