"""Temporary files and lists of candidates on a disk that is full."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from s3k_async.errors import NoSpaceError
from s3k_async.integrity import gc_candidates, shuffle
from s3k_async.integrity.gc_candidates import CandidateReader, CandidateWriter, Header
from s3k_async.integrity.gc_rules import Ages
from s3k_async.integrity.shuffle import Shuffle

HEADER = Header("volume", 1, Ages(1, 1), logged=True)


def full(path: str, flags: int) -> int:
    """An opener of files on a full disk: they appear, and take no bytes."""
    os.close(os.open(path, flags, 0o600))
    return os.open("/dev/full", os.O_WRONLY)


def fill(facts: Shuffle) -> None:
    for number in range(10):
        facts.add("adopted", str(number), str(number))
    facts.flush()


def test_facts_in_temporary_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shuffle, "open_private", full)
    facts = Shuffle(held=3, parent=str(tmp_path))
    with pytest.raises(NoSpaceError, match="TMPDIR") as caught:
        fill(facts)
    assert str(caught.value.path).startswith(str(tmp_path))
    facts.close()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("save", [fill, lambda facts: facts.save_state({"round": 1})])
def test_facts_in_a_directory_of_the_caller(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, save: Callable[[Shuffle], Any]
) -> None:
    monkeypatch.setattr(shuffle, "open_private", full)
    facts = Shuffle(str(tmp_path / "parts"))
    with pytest.raises(NoSpaceError, match="resume there") as caught:
        save(facts)
    assert "TMPDIR" not in str(caught.value)


def write_list(path: Path, lines: int) -> None:
    with CandidateWriter(str(path), HEADER) as writer:
        for number in range(lines):
            writer.segment(f"segment-{number}")


@pytest.mark.parametrize("lines", [0, 10_000])
def test_a_list_of_candidates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lines: int) -> None:
    monkeypatch.setattr(gc_candidates, "open_private", full)
    with pytest.raises(NoSpaceError, match=r"TMPDIR.*--list"):
        write_list(tmp_path / "list", lines)
    assert os.listdir(tmp_path) == []


def test_the_progress_of_a_sweep(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = str(tmp_path / "list")
    with CandidateWriter(path, HEADER):
        pass
    reader = CandidateReader(path)
    reader.done(1)
    monkeypatch.setattr(gc_candidates, "open_private", full)
    with pytest.raises(NoSpaceError, match="TMPDIR"):
        reader.done(1)
    assert (tmp_path / "list.done").read_text() == "1\n"
