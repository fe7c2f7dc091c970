"""The demonstration behind `make demo`: a real tree through an embedded volume, every byte
compared, a reader beside a rename, and a process killed in the middle of one.

Usage: python docs/demo.py [SOURCE]

SOURCE is a directory with some thousands of files. Without one it is the interpreter's own standard
library, filled up with modules of installed packages to at least 3,000 files.

In an embedded volume the rename of a directory is one transaction of a few items. The process is
killed in a volume of layout `path`, the default in DynamoDB, where a rename changes every entry
below the directory.

The process is killed first, since the lease of its rename has to expire before fsck reports it; the
other steps take up most of that time.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import NoReturn

from s3k_async import S3kSyncClient
from s3k_async.model import Progress

FILES = 3100
"""Files of the default source, at least 3,000 of them."""
NOT_ITS_OWN = {"site-packages", "dist-packages", "__pycache__"}
"""Directories of the standard library that are not its own."""
DAMAGE = 9
"""Exit code of fsck if it finds a problem."""
KILLED = 500
"""Files of the rename whose process is killed."""
WIDTH = 34
"""Columns of a step's name."""


def main() -> int:
    """Run every step, print the table, and return 0 if every byte came back."""
    if sys.argv[1:2] == ["--rename-and-die"]:
        rename_and_die(sys.argv[2])
    given = sys.argv[1] if len(sys.argv) > 1 else ""
    with tempfile.TemporaryDirectory(prefix="s3k-demo-") as work:
        tree = Path(work, "source")
        for path, relative in whole_tree(Path(given)) if given else default_tree():
            # A copy, so that nothing changes during the comparison.
            (tree / relative).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, tree / relative)
        files = [path for path in tree.rglob("*") if path.is_file()]
        print(f"{len(files):,} files, {sum(path.stat().st_size for path in files):,} bytes\n")
        return Demo(tree, files, Path(work)).run()


def rename_and_die(volume: str) -> NoReturn:
    """Rename a directory; SIGKILL this process at the first report of progress."""

    def die(_: Progress) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with S3kSyncClient(volume) as fs:
        fs.rename("/old", "/new", progress=die)
    raise SystemExit("the rename ended before it was killed")


class Demo:
    """The steps, each timed."""

    def __init__(self, tree: Path, files: list[Path], work: Path) -> None:
        self.tree = tree
        self.files = files
        self.volume = work / "volume"
        self.other = work / "other-volume"
        """Where the process is killed."""

    def run(self) -> int:
        """Every step in turn; 0 if all is as it was."""
        killed = timed(self.kill_a_rename)
        heading("step")
        self.step(
            "s3k init", lambda: self.s3k("init", "-q", str(self.volume)) or "an embedded volume"
        )
        self.step(
            "s3k put -r", lambda: self.s3k("put", "-r", str(self.tree), f"{self.volume}:/incoming")
        )
        with S3kSyncClient(str(self.volume)) as fs:
            self.step("list", lambda: f"{count(fs, '/incoming'):,} entries")
            self.step("rename the top directory", lambda: self.rename(fs))
            self.step("read and compare", lambda: f"{self.compare(fs):,} files equal, by SHA-256")
            doomed = self.largest(fs)
            self.step(
                f"delete {doomed}",
                lambda: self.delete(fs, doomed),
            )
            self.step("s3k fsck", lambda: self.fsck(self.volume))
            print()
            heading("atomicity")
            self.step("rename beside a reader", lambda: self.rename_beside_a_reader(fs))
            left = fs.content_summary("/")
        row("SIGKILL in the middle of a rename", *killed)
        self.step("wait for the lease of that rename", self.wait_for_the_lease)
        self.step("s3k fsck", lambda: self.fsck(self.other, code=DAMAGE))
        self.step(
            "s3k fsck repair --yes",
            lambda: self.s3k("fsck", "repair", "--yes", "--grace", "0", str(self.other)),
        )
        self.step("s3k fsck", lambda: self.fsck(self.other))
        directories = f"{left.directory_count:,} directories with the root"
        print(f"\nleft: {left.file_count:,} files, {directories}, {left.length:,} bytes")
        return 0

    def step(self, name: str, work: Callable[[], str]) -> None:
        """Run one step and print its row."""
        row(name, *timed(work))

    def s3k(self, *arguments: str, code: int = 0) -> str:
        """Run the command line; any exit code but `code` ends the demonstration."""
        command = [sys.executable, "-m", "s3k_async.cli", *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode != code:
            raise SystemExit(
                f"{done.stdout}s3k {' '.join(arguments)} failed with code {done.returncode}"
            )
        return done.stdout

    def fsck(self, volume: Path, *, code: int = 0) -> str:
        """Verify a volume, without a grace period."""
        return self.s3k("fsck", "--grace", "0", str(volume), code=code)

    def kill_a_rename(self) -> str:
        """Let a child process rename a directory and die before the rename is published."""
        self.s3k("init", "-q", "--layout", "path", str(self.other))
        with S3kSyncClient(str(self.other)) as fs:
            fs.write_many([(f"/old/{number}", b"%d" % number) for number in range(KILLED)])
        command = [sys.executable, __file__, "--rename-and-die", str(self.other)]
        died = subprocess.run(command, check=False).returncode
        if died != -signal.SIGKILL:
            raise SystemExit(f"the child ended with code {died}")
        with S3kSyncClient(str(self.other)) as fs:
            seen = count(fs, "/old")
            if seen != KILLED or fs.exists("/new"):
                raise SystemExit(f"after the kill {seen} of {KILLED} files are listed")
        return f"a reader lists all {seen:,} files at the old path, none at the new one"

    def wait_for_the_lease(self) -> str:
        """Poll the transactions of the volume until no lease runs."""
        while True:
            lines = self.s3k("transactions", "--json", str(self.other)).splitlines()
            runs = [txn["lease_ms"] for txn in map(json.loads, lines) if txn["lease_runs"]]
            if not runs:
                return "expired: a lease lasts 30 s after its last renewal"
            time.sleep(max(0.0, max(runs) / 1000 - time.time()) + 0.05)

    def rename(self, fs: S3kSyncClient) -> str:
        """Rename the tree: a few requests to the table, and none for bytes."""
        files = fs.content_summary("/incoming").file_count
        done = fs.rename("/incoming", "/library")
        table, data = done.requests.of("table"), done.requests.of("data")
        if data:
            raise SystemExit(f"the rename made {data} requests for bytes")
        return f"{files:,} files moved, {table:,} requests to the table, none for bytes"

    def delete(self, fs: S3kSyncClient, path: str) -> str:
        """Delete a directory with everything below it, which moves it into the trash."""
        files = fs.content_summary(path).file_count
        fs.delete(path, recursive=True)
        (item,) = fs.trash().list()
        if item.was != path:
            raise SystemExit(f"the trash has {item.was}, not {path}")
        return f"{files:,} files moved into the trash"

    def rename_beside_a_reader(self, fs: S3kSyncClient) -> str:
        """Rename the tree while another client lists the volume in a loop: each listing has all of
        the tree, at one of the two paths."""
        whole = count(fs, "/library")
        old, new = (whole, 0), (0, whole)
        seen: Counter[tuple[int, int]] = Counter()

        def read() -> None:
            with S3kSyncClient(str(self.volume)) as reader:
                while new not in seen and set(seen) <= {old}:
                    seen[below(reader, "library", "shelf")] += 1

        reading = threading.Thread(target=read)
        reading.start()
        while not seen and reading.is_alive():
            time.sleep(0.01)
        moved = fs.content_summary("/library").file_count
        fs.rename("/library", "/shelf")
        reading.join()
        if set(seen) != {old, new}:
            raise SystemExit(f"a reader saw part of a rename: {dict(seen)}")
        return f"{moved:,} files; listings: {seen[old]} all old, {seen[new]} all new, none mixed"

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


def count(fs: S3kSyncClient, top: str) -> int:
    """Entries below a directory."""
    return sum(1 for _ in fs.list(top, recursive=True))


def below(fs: S3kSyncClient, first: str, second: str) -> tuple[int, int]:
    """Entries below two directories of the root, in one listing of the volume."""
    tops = Counter(status.path.split("/")[1] for status in fs.list("/", recursive=True))
    return max(0, tops[first] - 1), max(0, tops[second] - 1)


def timed(work: Callable[[], str]) -> tuple[float, str]:
    """Seconds that the work took, and the last line of what it returned."""
    start = time.perf_counter()
    result = work().strip().splitlines()[-1]
    return time.perf_counter() - start, result


def heading(name: str) -> None:
    """Print the first row of a table."""
    print(f"{name:<{WIDTH}}  {'seconds':>7}  result", flush=True)


def row(name: str, seconds: float, result: str) -> None:
    """Print one step."""
    print(f"{name:<{WIDTH}}  {seconds:>7.2f}  {result}", flush=True)


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
