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
        assert in_short_run("a.py::test_a", parameters, has_twin=False)
    for parameters in (["dynamodb_local+seaweedfs"], ["dynoxide+moto"], ["1", "reference"]):
        assert not in_short_run("a.py::test_a", parameters, has_twin=False)
        assert in_short_run(test, parameters, has_twin=True)


def test_a_test_of_the_client_runs_on_engines_if_it_runs_nowhere_else() -> None:
    engines = ["dynoxide+seaweedfs", "path"]
    assert in_short_run("client/a.py::test_a", engines, has_twin=False)
    assert not in_short_run("client/a.py::test_a", engines, has_twin=True)
    assert in_short_run("client/a.py::test_a", ["memory"], has_twin=True)
    assert in_short_run("integrity/a.py::test_a", engines, has_twin=True)
