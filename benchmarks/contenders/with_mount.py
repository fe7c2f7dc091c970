"""A directory of the local disk: a plain one, or one that JuiceFS serves through FUSE with its
metadata in SQLite and its data in another directory."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.contenders.small_files import BlockingFiles, Work
from tests.engines.process import Process

__all__ = ["MountedFiles", "juicefs", "juicefs_missing"]


class MountedFiles(BlockingFiles):
    """Files below a directory, from threads."""

    def __init__(self, top: Path) -> None:
        super().__init__(str(top))

    def _one(self, work: Work, source: str, target: str) -> int:
        match work.verb:
            case "put":
                with open(source, "xb") as file:
                    file.write(work.data)
                return len(work.data)
            case "read":
                with open(source, "rb") as file:
                    return len(file.read())
            case "stat":
                return os.stat(source).st_size
            case "copy":
                shutil.copyfile(source, target)
            case "rename":
                os.rename(source, target)
            case "delete":
                os.unlink(target)
        return 0

    async def makedirs(self, path: str) -> None:
        """Create a directory."""
        await asyncio.to_thread(os.makedirs, self._top + path, exist_ok=True)


def juicefs_missing() -> str | None:
    """Why JuiceFS cannot be measured here; None if it can."""
    if shutil.which("juicefs") is None:
        return "juicefs is not installed"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "no access to /dev/fuse for juicefs"
    return None


@contextmanager
def juicefs(place: Path) -> Iterator[Path]:
    """A mounted volume of JuiceFS below `place`."""
    binary = shutil.which("juicefs")
    assert binary is not None
    metadata, top = f"sqlite3://{place}/metadata.db", place / "mount"
    top.mkdir()
    environment = {"HOME": str(place), "PATH": os.environ["PATH"]}

    def juice(*words: str) -> None:
        command = [binary, *words]
        subprocess.run(command, check=True, capture_output=True, env=environment)

    data = ("--storage", "file", "--bucket", f"{place}/data/")
    juice("format", *data, "--trash-days", "0", metadata, "bench")
    cache = ("--cache-dir", str(place / "cache"))
    process = Process(
        [binary, "mount", "--no-usage-report", *cache, metadata, str(top)],
        place / "juicefs.log",
        environment=environment,
        directory=place,
    )
    try:
        process.wait_until(lambda: os.path.ismount(top))
        yield top
    finally:
        juice("umount", str(top))
        process.stop()
