"""Contexts of driver and executors."""

from __future__ import annotations

import pytest

from s3k_async.spark.settings import DRIVER_OPTIONS, EXECUTOR_OPTIONS, _context

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", None),
        ("-Xmx1g", None),
        ("-Xmx1g -Dfs.s3k.metastore.context.id=batch", "batch"),
        ("-Dfs.s3k.metastore.context.id=a '-Dfs.s3k.metastore.context.id=b c'", "b c"),
    ],
)
def test_the_context_is_what_java_options_define(options: str, expected: str | None) -> None:
    assert _context({"spark.executor.extraJavaOptions": options}, EXECUTOR_OPTIONS) == expected
    assert _context({"spark.executor.extraJavaOptions": options}, DRIVER_OPTIONS) is None


def test_the_extra_options_count_more_than_the_default_ones() -> None:
    configuration = {
        "spark.driver.defaultJavaOptions": "-Dfs.s3k.metastore.context.id=default",
        "spark.driver.extraJavaOptions": "-Dfs.s3k.metastore.context.id=extra",
    }
    assert _context(configuration, DRIVER_OPTIONS) == "extra"
