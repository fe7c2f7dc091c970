"""Small files of several contenders, one a call: written, looked at, read, renamed and deleted."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from benchmarks.contenders.small_files import BlockingFiles, SmallFiles, Verb, Work
from benchmarks.measuring import Case, Result, Run, measure

__all__ = ["DATA", "Files", "VerbTable", "disk_syncs"]

DATA = b"x" * 4096
VERBS: tuple[Verb, ...] = ("put", "stat", "read", "rename", "delete")
SYNCS = 200

Files: TypeAlias = SmallFiles | BlockingFiles


@dataclass(frozen=True)
class VerbTable:
    """The verbs of one row."""

    row: str
    """Precedes the verb in the name of a row."""
    files: int
    """In each repetition."""
    baseline: str
    rounds: int
    note: str = ""
    """Ends the name of a case, such as what is not installed."""
    limit: str = ""

    async def results(self, them: Mapping[str, Files], in_flight: int) -> AsyncIterator[Result]:
        """Measure every verb. Each contender has a directory `/small` without files."""
        for verb in VERBS:
            turns = dict.fromkeys(them, 0)
            runs: dict[str, Run] = {
                name: partial(self._run, files, verb, in_flight, name, turns)
                for name, files in them.items()
            }
            case = Case(
                f"{self.row} {'write' if verb == 'put' else verb}",
                f"{self.files:,} files of 4 KiB, {in_flight} in flight{self.note}",
                self.files,
                "files",
                runs,
                self.baseline,
                # One more is put than is deleted.
                rounds=self.rounds + (verb == "put"),
                expected=self.files * len(DATA) if verb in ("put", "read", "stat") else 0,
                warm=verb in ("stat", "read"),
                limit=self.limit,
            )
            for result in await measure(case):
                yield result

    async def _run(
        self, them: Files, verb: Verb, in_flight: int, name: str, turns: dict[str, int]
    ) -> int:
        turn = turns[name] = turns[name] + 1
        # Each repetition puts new files, moves those that the one before it has moved, and deletes
        # those that an earlier repetition has put.
        own = f"/small/f{in_flight}"
        source = f"{own}-{turn if verb in ('put', 'delete') else 1}"
        target = source
        if verb == "rename":
            source, target = f"{own}-1{'x' * (turn - 1)}", f"{own}-1{'x' * turn}"
        elif verb == "delete":
            target = f"{own}-{turn + 1}"
        return await them.many(Work(verb, source, target, DATA, self.files, in_flight))


def disk_syncs(place: Path) -> float:
    """Small files that a thread writes and syncs a second, each by itself."""
    began = time.perf_counter()
    for number in range(SYNCS):
        descriptor = os.open(place / f"synced-{number}", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            os.write(descriptor, DATA)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return SYNCS / (time.perf_counter() - began)
