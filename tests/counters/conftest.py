"""The lock of a volume without clients need not wait."""

from __future__ import annotations

import pytest

from s3k_async.txn import volume_lock


@pytest.fixture(autouse=True)
def no_open_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """No client has the volume open, so that the lock need not wait."""
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)
