"""The syntax of durations: a number of seconds, or a number with a unit, such as `7d`."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["DURATION", "UNITS", "duration_text", "seconds_of"]

UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
"""Seconds of each unit."""
DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)([smhdw])", re.ASCII)
"""A number with its unit."""
_LARGEST: Final = 10**10
"""Seconds; more than three hundred years."""


def seconds_of(text: str) -> int | None:
    """The seconds of a duration; None unless the text is one, of whole seconds."""
    found = DURATION.fullmatch(text if text[-1:] in UNITS else f"{text}s")
    seconds = float(found[1]) * UNITS[found[2]] if found else -1.0
    return int(seconds) if 0 <= seconds <= _LARGEST and seconds == int(seconds) else None


def duration_text(seconds: int) -> str:
    """A duration in the largest unit of which it is a multiple, weeks excepted: `0s`, `36h`,
    `7d`."""
    unit = next(unit for unit in "dhms" if seconds % UNITS[unit] == 0 and (seconds or unit == "s"))
    return f"{seconds // UNITS[unit]}{unit}"
