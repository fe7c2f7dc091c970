"""The demonstration behind `make demo`: a real tree through an embedded volume, every byte
compared.

Usage: python docs/demo.py [SOURCE]

SOURCE is a directory with some thousands of files. Without one it is the interpreter's own standard
library, filled up with modules of installed packages to at least 3,000 files.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from pathlib import Path

from s3k_async import S3kSyncClient

FILES = 3100
"""Files of the default source, at least 3,000 of them."""
NOT_ITS_OWN = {"site-packages", "dist-packages", "__pycache__"}
"""Directories of the standard library that are not its own."""


def main() -> int:
    """Run every step, print the table, and say whether every byte came back."""
    given = sys.argv[1] if len(sys.argv) > 1 else ""
    with tempfile.TemporaryDirectory(prefix="s3k-demo-") as work:
        tree = Path(work, "source")
        for path, relative in whole_tree(Path(given)) if given else default_tree():
            # A copy, so that nothing changes under us while we compare.
            (tree / relative).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, tree / relative)
        files = [path for path in tree.rglob("*") if path.is_file()]
        print(f"{len(files):,} files, {sum(path.stat().st_size for path in files):,} bytes\n")
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
        self.step(
            "s3k init", lambda: self.s3k("init", "-q", str(self.volume)) or "an embedded volume"
        )
        self.step(
            "s3k put -r", lambda: self.s3k("put", "-r", str(self.tree), f"{self.volume}:/incoming")
        )
        with S3kSyncClient(str(self.volume)) as fs:
            self.step(
                "list", lambda: f"{sum(1 for _ in fs.list('/incoming', recursive=True)):,} entries"
            )
            self.step(
                "rename the top directory",
                lambda: f"{fs.rename('/incoming', '/library').files:,} files moved",
            )
            self.step("read and compare", lambda: f"{self.compare(fs):,} files equal, by SHA-256")
            doomed = self.largest(fs)
            self.step(
                f"delete {doomed}",
                lambda: f"{fs.delete(doomed, recursive=True).files:,} files deleted",
            )
            left = fs.content_summary("/")
        self.step("s3k fsck", lambda: self.s3k("fsck", "--grace", "0", str(self.volume)))
        self.table()
        directories = f"{left.directory_count:,} directories with the root"
        print(f"\nleft: {left.file_count:,} files, {directories}, {left.length:,} bytes")
        return 0

    def step(self, name: str, work: Callable[[], str]) -> None:
        """Run one step and note what it said and how long it took."""
        start = time.perf_counter()
        result = work().strip()
        self.rows.append((name, result.splitlines()[-1], time.perf_counter() - start))

    def table(self) -> None:
        """Print what the steps did."""
        rows = [
            ("step", "seconds", "result"),
            *((name, f"{seconds:.2f}", text) for name, text, seconds in self.rows),
        ]
        width = max(len(name) for name, _, _ in rows)
        for name, seconds, text in rows:
            print(f"{name:<{width}}  {seconds:>7}  {text}")

    def s3k(self, *arguments: str) -> str:
        """Run the command line; a failure ends the demonstration."""
        command = [sys.executable, "-m", "s3k_async.cli", *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise SystemExit(
                f"{done.stdout}s3k {' '.join(arguments)} failed with code {done.returncode}"
            )
        return done.stdout

    def compare(self, fs: S3kSyncClient) -> int:
        """Read every file back and compare it with its source by SHA-256."""
        for path in self.files:
            logical = "/library/" + path.relative_to(self.tree).as_posix()
            if (
                hashlib.sha256(fs.read(logical)).digest()
                != hashlib.sha256(path.read_bytes()).digest()
            ):
                raise SystemExit(f"{logical} came back different")
        return len(self.files)

    def largest(self, fs: S3kSyncClient) -> str:
        """The subdirectory with the most files."""
        directories = [status.path for status in fs.list("/library") if status.is_dir]
        if not directories:
            raise SystemExit("the source has no subdirectory to delete")
        return max(directories, key=lambda path: fs.content_summary(path).file_count)


def default_tree() -> Iterator[tuple[Path, Path]]:
    """Files of the standard library, and then of installed packages, with the path that each shall
    have."""
    found = list(whole_tree(Path(sysconfig.get_path("stdlib")), NOT_ITS_OWN))
    yield from found
    packages = whole_tree(Path(sysconfig.get_path("purelib")))
    modules = ((path, "packages" / relative) for path, relative in packages if path.suffix == ".py")
    yield from islice(modules, max(0, FILES - len(found)))


def whole_tree(source: Path, skipped: Collection[str] = ()) -> Iterator[tuple[Path, Path]]:
    """The readable regular files below a directory, each with its relative path."""
    for directory, names, files in os.walk(source):
        names[:] = sorted(set(names) - set(skipped))
        for name in sorted(files):
            path = Path(directory, name)
            if path.is_file() and not path.is_symlink() and os.access(path, os.R_OK):
                yield path, path.relative_to(source)


if __name__ == "__main__":
    raise SystemExit(main())
