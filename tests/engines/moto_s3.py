"""moto: S3 in a Python process. Started with this module as the program."""

from __future__ import annotations

import importlib.util
import re
import sys
import threading
from pathlib import Path

from tests.engines.process import ROOT, Engine, Process, engine

__all__ = ["missing", "start"]


def missing() -> str | None:
    """Why it cannot be started here, or None."""
    return (
        None
        if importlib.util.find_spec("moto")
        else "moto[server] is not in the virtual environment"
    )


def start(directory: Path, log: Path) -> tuple[Process, Engine]:
    """Start it on a port that the kernel chooses."""
    process = Process(
        [sys.executable, "-m", "tests.engines.moto_s3"],
        log,
        environment={"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        directory=directory,
    )
    process.wait_until(lambda: _port(process) is not None)
    port = _port(process)
    assert port is not None
    return process, engine(port, process.pid)


def _port(process: Process) -> int | None:
    said = re.search(r"^port (\d+)$", process.log.read_text(errors="replace"), re.MULTILINE)
    return int(said[1]) if said else None


def main() -> None:
    """Serve until killed."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    sys.stdout.write(f"port {server.get_host_and_port()[1]}\n")
    threading.Event().wait()


if __name__ == "__main__":
    main()
