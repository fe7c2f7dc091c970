"""A volume of S3-FileSystem 1.0 in memory, and the settings of its successor."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.engines.volumes import fresh_name
from tests.old_volume import memory_volume

__all__ = ["old_and_new"]


def old_and_new(monkeypatch: pytest.MonkeyPatch) -> str:
    """Make an old volume, and write settings for it and for a volume `new` with the same data,
    which does not exist yet and whose locks need not wait. Returns the name of the old volume."""
    name = fresh_name("old")
    anyio.run(_fill, name)
    place = f'data_location = "memory://{name}"\n'
    Path("given.toml").write_text(
        f'[volumes.{name}]\nkind = "s3k-1.0"\ntable = "memory://{name}"\nsuffix_count = 10\n{place}'
        f'[volumes.new]\ntable = "memory://{name}-new"\n{place}'
    )
    monkeypatch.setenv("S3K_CONFIG", "given.toml")
    monkeypatch.setattr("s3k_async.txn.volume_lock.QUIET_SECONDS", 0.0)
    return name


async def _fill(name: str) -> None:
    files, _ = await memory_volume(name)
    await files.directory("/d")
    await files.file("/d/f", b"bytes")
    await files.reserve("/d/open")
