"""Log records on standard error: those of verbs (the setting `log_verbs`), and alerts."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["VERBS", "shown"]

VERBS: Final = "s3k_async.operations"
"""The logger of verbs."""
_USUAL: Final = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime"})
"""Attributes of every record."""


class _StandardError(logging.Handler):
    """Writes each record as a line, or as a JSON document with its fields."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        text = record.getMessage()
        if self._as_json:
            fields = {name: each for name, each in vars(record).items() if name not in _USUAL}
            text = json.dumps({"log": fields}, default=str)
        print(text, file=sys.stderr)


@contextmanager
def shown(name: str, *, as_json: bool) -> Iterator[None]:
    """Show the records of a logger while the body runs."""
    logger = logging.getLogger(name)
    handler, level = _StandardError(as_json=as_json), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
