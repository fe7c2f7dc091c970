"""What undeletion and permanent removal hold in memory does not grow with the deleted tree."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from s3k_async import S3kClient
from s3k_async.bulk import deleted_files, file_writes, version_removal
from s3k_async.testing import FaultPlan
from tests.client.rig import faulty_client

FILES = 3_000
WINDOW = 50
BOUND = FILES // 5
"""Files that are in memory at once."""


class Live:
    """Counts the objects of a class that are in memory."""

    def __init__(self, kind: type[Any]) -> None:
        # mypy knows no class whose base is a parameter.
        class Counted(kind):  # type: ignore[misc]
            live: ClassVar[int] = 0
            most: ClassVar[int] = 0

            def __init__(self, *fields: Any) -> None:
                super().__init__(*fields)
                Counted.live += 1
                Counted.most = max(Counted.most, Counted.live)

            def __del__(self) -> None:
                Counted.live -= 1

        self.kind: type[Any] = Counted

    @property
    def most(self) -> int:
        """The largest number so far."""
        return int(self.kind.most)


async def delete_many(fs: S3kClient) -> None:
    await fs.write_many([(f"/d/f{number:04}", b"x") for number in range(FILES)])
    await fs.delete("/d", recursive=True)


async def test_undeletion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_writes, "WINDOW_FILES", WINDOW)
    monkeypatch.setattr(deleted_files, "ROWS_AT_ONCE", WINDOW)
    files = Live(deleted_files.DeletedFile)
    monkeypatch.setattr(deleted_files, "DeletedFile", files.kind)
    async with faulty_client(FaultPlan()) as fs:
        await delete_many(fs)
        result = await fs.undelete("/d", recursive=True)
        assert (result.files, result.failures) == (FILES, ())
    assert 0 < files.most < BOUND


async def test_permanent_removal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_removal, "WINDOW", WINDOW)
    files = Live(version_removal._RemovableFile)
    monkeypatch.setattr(version_removal, "_RemovableFile", files.kind)
    async with faulty_client(FaultPlan()) as fs:
        await delete_many(fs)
        result = await fs.delete("/d", recursive=True, permanently=True)
        assert result.files == FILES
    assert 0 < files.most < BOUND
