"""How much the tests try, as S3K_TEST_LEVEL says: `short` (the default, `make test`), `full` (`make
test-full`) or `torture` (`make torture`)."""

from __future__ import annotations

import os

__all__ = ["FULL", "TORTURE", "calls_to_try"]

_LEVELS = ("short", "full", "torture")
_LEVEL = _LEVELS.index(os.environ.get("S3K_TEST_LEVEL", "short"))

FULL = _LEVEL >= 1
"""Whether races and random examples are many."""

TORTURE = _LEVEL >= 2
"""Whether the torture tests try everything, rather than a share of it."""


def calls_to_try(count: int) -> list[int]:
    """Numbers of the calls at which a test lets something happen, of `count` calls from 1 on: all;
    in `make test` every third, and the last."""
    return sorted({*range(1, count + 1, 1 if FULL else 3), count})
