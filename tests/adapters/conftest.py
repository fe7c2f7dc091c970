"""What of the public suites is slow: all of it on engines, and fsspec's tables of patterns
anywhere."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.name == "test_fsspec_suite.py" and (
            item.get_closest_marker("engine") or "glob_edge_cases" in item.name
        ):
            item.add_marker("slow")
