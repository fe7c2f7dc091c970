"""Writers in processes of their own that are killed, and what they had acknowledged."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

__all__ = ["acknowledged"]


def acknowledged(script: str, place: Path, least: int) -> list[str]:
    """What a script that writes to `place` has acknowledged, a line for each write, when it is
    killed: at least so many."""
    command = [sys.executable, "-c", script, str(place)]
    text = b""
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while text.count(b"\n") < least:
            select.select([process.stdout], [], [], 20)
            part = os.read(process.stdout.fileno(), 65536)
            assert part, "the writer has ended"
            text += part
        process.kill()
        text += process.stdout.read()
    assert process.returncode == -signal.SIGKILL
    return text.decode().split("\n")[:-1]
