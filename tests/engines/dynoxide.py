"""dynoxide: the DynamoDB API in one native process, in memory."""

from __future__ import annotations

import os
from pathlib import Path

from tests.engines.process import ENGINES, Engine, Process, engine

__all__ = ["missing", "start"]

BINARY = ENGINES / "dynoxide"


def missing() -> str | None:
    """Why it cannot be started here, or None."""
    return None if os.access(BINARY, os.X_OK) else "dynoxide is not in .engines (make engines)"


def start(directory: Path, log: Path) -> tuple[Process, Engine]:
    """Start it on a port that the kernel chooses."""
    process = Process(
        [str(BINARY), "serve", "--host", "127.0.0.1", "--port", "0"],
        log,
        environment={},
        directory=directory,
    )
    process.wait_until(lambda: bool(process.listening()))
    return process, engine(process.listening()[0][1], process.pid)
