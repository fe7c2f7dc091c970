"""Temporary databases that do not fit on their disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from s3k_async._core.spill_database import SpillDatabase
from s3k_async.errors import NoSpaceError, ServiceError

_SCHEMA = "CREATE TABLE rows (value BLOB)"


def test_a_full_disk_is_named_with_the_remedy() -> None:
    with SpillDatabase(_SCHEMA) as spill:
        spill.database.execute("PRAGMA max_page_count=10")
        with pytest.raises(NoSpaceError, match="TMPDIR"):
            spill.many("INSERT INTO rows VALUES (?)", [(bytes(100_000),)])
    with SpillDatabase(_SCHEMA) as spill:
        spill.database.execute("PRAGMA max_page_count=2")
        with pytest.raises(NoSpaceError, match="TMPDIR"):
            spill.database.execute("CREATE INDEX by_value ON rows (value)")


def test_a_missing_directory_is_an_error_of_the_package(tmp_path: Path) -> None:
    with pytest.raises(ServiceError):
        SpillDatabase(_SCHEMA, str(tmp_path / "missing"))
