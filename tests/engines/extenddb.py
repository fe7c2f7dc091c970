"""ExtendDB: the DynamoDB API over SQLite, with signatures checked and throughput limited as
provisioned."""

from __future__ import annotations

import os
from pathlib import Path

from tests.engines.process import ENGINES, Engine, Process, engine, free_ports

__all__ = ["missing", "start"]

BINARY = ENGINES / "extenddb"
ACCESS_KEY = "AKIAIOSFODNN7EXAMPLE"
SECRET_KEY = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
"""The credentials of the AWS documentation's examples, with which its developer mode begins."""


def missing() -> str | None:
    """Why it cannot be started here, or None."""
    return None if os.access(BINARY, os.X_OK) else "ExtendDB is not in .engines (make engines)"


def start(directory: Path, log: Path) -> tuple[Process, Engine]:
    """Start it in developer mode: plain HTTP on loopback, its database in `directory`."""
    (port,) = free_ports(1)
    process = Process(
        [str(BINARY), "serve", "--foreground", "--port", str(port)],
        log,
        environment={"EXTENDDB__SERVER__THROTTLING_ENABLED": "true"},
        directory=directory,
    )
    process.wait_until(lambda: bool(process.listening()))
    return process, engine(port, process.pid, access_key=ACCESS_KEY, secret_key=SECRET_KEY)
