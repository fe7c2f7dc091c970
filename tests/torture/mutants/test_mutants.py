"""The list of defects fits the code: `make mutants` plants them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.mutants.defects import DEFECTS, Defect

ROOT = Path(__file__).resolve().parents[3]


def test_there_are_many_and_each_has_its_name() -> None:
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS) >= 20


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_defect_can_be_planted(defect: Defect) -> None:
    place = ROOT / "s3k_async" / defect.file
    whole = place.read_text(encoding="utf-8")
    assert whole.count(defect.old) == 1, f"the text is not in {defect.file} exactly once"
    planted = whole.replace(defect.old, defect.new)
    assert planted != whole
    compile(planted, str(place), "exec")
    file, _, test = defect.test.partition("::")
    assert not test or f"def {test.partition('[')[0]}(" in (ROOT / file).read_text(encoding="utf-8")
