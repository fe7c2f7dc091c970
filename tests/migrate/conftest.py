"""The layout of the volumes that `rig.config` names."""

from __future__ import annotations

import pytest

from s3k_async.model import LayoutName
from tests.migrate import rig


@pytest.fixture(autouse=True)
def _layout_of_the_rig(layout: LayoutName, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rig, "LAYOUT", layout)
