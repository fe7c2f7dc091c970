"""The seed of a run, and the record of what was tried."""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path

__all__ = ["report", "seed_of_run"]


def seed_of_run() -> str:
    """What decides on everything that is left to chance: S3K_TORTURE_SEED, which repeats a run, or
    a new one."""
    return os.environ.get("S3K_TORTURE_SEED") or f"{random.SystemRandom().getrandbits(32):08x}"


def report(part: str, subject: str, **figures: object) -> None:
    """Print what was tried; where S3K_TORTURE_REPORT names a file, add it there as a line of
    JSON."""
    line = json.dumps({"part": part, "subject": subject, **figures})
    sys.stdout.write(f"{line}\n")
    place = os.environ.get("S3K_TORTURE_REPORT")
    if place:
        with Path(place).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
