"""The shuffle yields the facts that it was given, whatever is in memory and whatever in files."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from s3k_async.integrity import shuffle
from s3k_async.integrity.shuffle import PARTS, Shuffle, facts_in

KEYS = [f"key-{number:03d}" for number in range(600)]


def add(facts: Shuffle, keys: list[str]) -> None:
    for key in keys:
        facts.add("adopted", key, key)


def read(facts: Shuffle) -> list[str]:
    return sorted(key for number in range(facts.count) for key in facts.read("adopted", number))


def lines(facts: Shuffle) -> list[str]:
    texts = [text for number in range(facts.count) for text in facts.lines("adopted", number)]
    return sorted(key for text in texts for key in facts_in("adopted", text))


def files(directory: Path) -> list[Path]:
    return [Path(parent, name) for parent, _, names in os.walk(directory) for name in names]


@pytest.mark.parametrize("held", [10, 10_000])
def test_what_fits_into_memory_is_in_no_file(tmp_path: Path, held: int) -> None:
    facts = Shuffle(held=held, parent=str(tmp_path))
    add(facts, KEYS)
    assert facts.count == (1 if held > len(KEYS) else PARTS)
    for _ in range(2):
        assert read(facts) == lines(facts) == KEYS
    assert files(tmp_path) == []
    facts.close()
    assert os.listdir(tmp_path) == []


def test_parts_are_partly_in_memory_and_partly_in_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shuffle, "BUFFERED", 4_000)
    facts = Shuffle(held=10, parent=str(tmp_path))
    for start in range(0, len(KEYS), 100):
        add(facts, KEYS[start : start + 100])
        for _ in range(2):
            assert read(facts) == lines(facts) == KEYS[: start + 100]
    written = sum(path.stat().st_size for path in files(tmp_path))
    assert 0 < written < sum(len(key) + 3 for key in KEYS)
    facts.forget(("adopted",))
    assert read(facts) == lines(facts) == []
    assert files(tmp_path) == []
    facts.close()


def test_facts_that_come_while_a_part_is_read_are_neither_lost_nor_twice_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shuffle, "PARTS", 1)
    monkeypatch.setattr(shuffle, "BUFFERED", 1_000)
    facts = Shuffle(held=10, parent=str(tmp_path))
    add(facts, KEYS[:150])
    found = facts.read("adopted", 0)
    seen = [next(found) for _ in range(5)]
    add(facts, KEYS[150:250])
    seen += found
    assert Counter(seen) == Counter(KEYS[: len(seen)])
    assert len(seen) >= 150
    assert read(facts) == KEYS[:250]
    facts.close()


def test_a_kept_directory_has_all_facts_once_the_state_is_saved(tmp_path: Path) -> None:
    directory = str(tmp_path / "kept")
    facts = Shuffle(directory)
    add(facts, KEYS)
    facts.keep("found", 7, [])
    facts.save_state({"decided": 0})
    facts.close()
    again = Shuffle(directory)
    assert again.load_state() == {"decided": 0}
    assert read(again) == lines(again) == KEYS
    again.close()
