"""DynamoDB Local: Amazon's own, in memory, behind a launcher that binds it to 127.0.0.1."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tests.engines.process import ENGINES, Engine, Process, engine

__all__ = ["missing", "start"]

HOME = ENGINES / "dynamodb-local"
CLASSES = ENGINES / "classes"
LAUNCHER = "DynamoDbLocal"


def missing() -> str | None:
    """Why it cannot be started here, or None."""
    if shutil.which("java") is None:
        return "DynamoDB Local needs java"
    if not (HOME / "DynamoDBLocal.jar").exists() or not (CLASSES / f"{LAUNCHER}.class").exists():
        return "DynamoDB Local is not in .engines (make engines)"
    return None


def start(directory: Path, log: Path) -> tuple[Process, Engine]:
    """Start it; the launcher asks the kernel for a free port and prints it."""
    java = shutil.which("java")
    assert java is not None
    process = Process(
        [
            java,
            "-Xmx1g",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Djava.library.path={HOME / 'DynamoDBLocal_lib'}",
            "-cp",
            f"{CLASSES}:{HOME / 'DynamoDBLocal.jar'}:{HOME / 'DynamoDBLocal_lib'}/*",
            LAUNCHER,
        ],
        log,
        environment={},
        directory=directory,
    )
    process.wait_until(lambda: _port(process) is not None)
    port = _port(process)
    assert port is not None
    return process, engine(port, process.pid)


def _port(process: Process) -> int | None:
    said = re.search(r"^port (\d+)$", process.log.read_text(errors="replace"), re.MULTILINE)
    return int(said[1]) if said else None
