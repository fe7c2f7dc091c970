"""The demonstration behind `make demo`: a real tree through an embedded volume, every byte compared.

Usage: python docs/demo.py [SOURCE]

SOURCE is a directory of at least a few thousand files; without one it is the interpreter's own standard library.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from s3k_async import S3kSyncClient

SKIPPED = {"site-packages", "__pycache__"}


def main() -> int:
    """Run every step, print the table, and say whether every byte came back."""
    source = Path(sys.argv[1] if len(sys.argv) > 1 and sys.argv[1] else sysconfig.get_path("stdlib"))
    with tempfile.TemporaryDirectory(prefix="s3k-demo-") as work:
        tree = Path(work, "source")
        copy_tree(source, tree)
        files = [path for path in tree.rglob("*") if path.is_file()]
        print(f"{len(files)} files, {sum(path.stat().st_size for path in files):,} bytes, from {source}\n")
        return Demo(tree, files, Path(work, "volume")).run()


class Demo:
    """The steps, each timed."""

    def __init__(self, tree: Path, files: list[Path], volume: Path) -> None:
        self.tree = tree
        self.files = files
        self.volume = volume
        self.rows: list[tuple[str, str, float]] = []

    def run(self) -> int:
        """Every step in turn; 0 if all is as it was."""
        self.step("s3k init", lambda: self.s3k("init", str(self.volume)) or "new volume")
        self.step("s3k put -r", lambda: self.s3k("put", "-r", "-q", str(self.tree), f"{self.volume}:/incoming"))
        with S3kSyncClient(str(self.volume)) as fs:
            self.step("list", lambda: f"{sum(1 for _ in fs.list('/incoming', recursive=True))} entries")
            self.step("rename the top directory", lambda: f"{fs.rename('/incoming', '/library').files} files moved")
            self.step("read and compare", lambda: f"{self.compare(fs)} files equal")
            doomed = self.largest(fs)
            self.step(f"delete {doomed}", lambda: f"{fs.delete(doomed, recursive=True).files} files deleted")
            left = fs.content_summary("/")
        self.step("s3k fsck", lambda: self.s3k("fsck", "--grace", "0", str(self.volume)).splitlines()[-1])
        print(f"{'step':<34}{'result':<44}{'seconds':>8}")
        for name, result, seconds in self.rows:
            print(f"{name:<34}{result:<44}{seconds:>8.2f}")
        print(f"\nleft: {left.file_count} files, {left.directory_count} directories, {left.length:,} bytes")
        return 0

    def step(self, name: str, work: Callable[[], str]) -> None:
        """Run one step and note what it said and how long it took."""
        start = time.perf_counter()
        result = work().strip()
        self.rows.append((name, result.splitlines()[-1] if result else "done", time.perf_counter() - start))

    def s3k(self, *arguments: str) -> str:
        """Run the command line; a failure ends the demonstration."""
        command = [sys.executable, "-m", "s3k_async.cli", *arguments]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout

    def compare(self, fs: Any) -> int:
        """Read every file back and compare it with its source by SHA-256."""
        for path in self.files:
            logical = "/library/" + path.relative_to(self.tree).as_posix()
            if hashlib.sha256(fs.read(logical)).digest() != hashlib.sha256(path.read_bytes()).digest():
                raise SystemExit(f"{logical} came back different")
        return len(self.files)

    def largest(self, fs: Any) -> str:
        """The subdirectory with the most files."""
        directories = [status.path for status in fs.list("/library") if status.is_dir]
        return str(max(directories, key=lambda path: fs.content_summary(path).file_count))


def copy_tree(source: Path, target: Path) -> None:
    """The regular files of a tree, so that nothing changes under us while we compare."""
    for path in regular_files(source):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())


def regular_files(source: Path) -> Iterator[Path]:
    """Readable regular files, without installed packages and compiled ones."""
    for directory, names, files in os.walk(source):
        names[:] = sorted(set(names) - SKIPPED)
        for name in sorted(files):
            path = Path(directory, name)
            if path.is_file() and not path.is_symlink() and os.access(path, os.R_OK):
                yield path


if __name__ == "__main__":
    raise SystemExit(main())
