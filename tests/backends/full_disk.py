"""A volume on a disk that is full, in a process of its own: prints what each call did, as JSON.

The first argument is a directory that holds nothing else than the disk, of a few MiB.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from s3k_async import S3kSyncClient
from s3k_async.settings import resolve
from s3k_async.volumes import init_volume

SMALL = 100
BIG = 1_000_000
COMMANDS = (
    ("ls", "./vol:/big"),
    ("put", "one", "./vol:/more"),
    ("rm", "./vol:/big/0"),
    ("rm", "-r", "./vol:/big"),
    ("trash", "empty", "./vol", "--yes"),
    ("rm", "-r", "--skip-trash", "./vol:/small"),
    ("fsck", "repair", "./vol", "--yes"),
    ("gc", "./vol", "--yes", "--grace", "0", "--lease", "0"),
    ("fsck", "verify", "./vol"),
    ("put", "one", "./vol:/more"),
)


def fill() -> None:
    """Files of the volume until two more would not fit, so that SQLite has the space to empty its
    log when it is closed; then a file of somebody else's."""
    with S3kSyncClient("./vol") as fs:
        for number in range(SMALL):
            fs.write(f"/small/{number}", b"x" * 100)
        number = 0
        while shutil.disk_usage(".").free > 2 * BIG:
            fs.write(f"/big/{number}", b"y" * BIG)
            number += 1
    with suppress(OSError), Path("filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def age() -> None:
    """Make everything that the volume wrote a day older."""
    for path in Path("vol").rglob("*"):
        if path.is_file():
            then = path.stat().st_mtime - 86_400
            os.utime(path, (then, then))


def main(directory: str) -> None:
    os.chdir(directory)
    os.environ["TMPDIR"] = directory
    asyncio.run(init_volume(resolve("./vol")))
    Path("one").write_bytes(b"z" * 500_000)
    fill()
    for command in COMMANDS:
        if command[0] == "gc":
            age()
        ran = subprocess.run(
            [sys.executable, "-m", "s3k_async.cli", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        ballast = Path("vol/metadata.sqlite-ballast").stat().st_size
        line = [" ".join(command[:2]), ran.returncode, ran.stdout, ballast]
        sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
