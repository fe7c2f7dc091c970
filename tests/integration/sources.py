"""A tree of real files to put into a volume."""

from __future__ import annotations

import hashlib
import os
import random
import sysconfig
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LARGE", "ODD_NAMES", "SourceTree", "make_source"]

LARGE = 11 * 1024 * 1024
"""Bytes of the one large file: three parts of 5 MiB, the least that S3 takes."""

ODD_NAMES = (
    "with space",
    " leading and trailing ",
    "naïve, 文件, 🗂",
    "e\u0301 decomposed, \u00e9 composed",
    "colon:colon",
    "100%",
    "%2F",
    "#anchor?query=1&more",
    "plus+plus",
    "line\nbreak",
    "tab\tand\\backslash",
    "'single' and \"double\"",
    "-dash",
    "~tilde",
    ".hidden",
    "...",
    "$HOME *?[a]{b,c}",
    "ä" * 127,
)


@dataclass(frozen=True)
class SourceTree:
    """A directory on the local disk, and what is in it by relative path."""

    root: Path
    files: dict[str, str]
    """SHA-256 of each file."""
    sizes: dict[str, int]
    directories: set[str]

    def largest_directory(self) -> str:
        """The top-level directory with the most files."""
        return Counter(path.partition("/")[0] for path in self.files if "/" in path).most_common(1)[
            0
        ][0]

    def without(self, directory: str) -> SourceTree:
        """What is left when a top-level directory is deleted."""

        def stays(path: str) -> bool:
            return path != directory and not path.startswith(directory + "/")

        return SourceTree(
            self.root,
            {path: digest for path, digest in self.files.items() if stays(path)},
            {path: size for path, size in self.sizes.items() if stays(path)},
            set(filter(stays, self.directories)),
        )

    @property
    def bytes(self) -> int:
        """Bytes in all files."""
        return sum(self.sizes.values())


def make_source(root: Path, count: int, *, large: int = LARGE) -> SourceTree:
    """`count` files of the standard library, one of `large` bytes, and what makes a tree
    awkward."""
    library = Path(sysconfig.get_path("stdlib"))
    modules = list(_regular_files(library))
    for number in range(count):
        # A small standard library is put in as often as it takes.
        copies, place = divmod(number, len(modules))
        copy = root / f"library-{copies}" / modules[place].relative_to(library)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(modules[place].read_bytes())
    for number, name in enumerate(ODD_NAMES):
        (root / "odd" / name).mkdir(parents=True)
        (root / "odd" / name / name).write_bytes(b"odd " * number)
    (root / "empty").mkdir()
    (root / "hollow" / "more" / "still").mkdir(parents=True)
    (root / "nothing").write_bytes(b"")
    (root / "large").write_bytes(random.Random(11).randbytes(large))
    return _describe(root)


def _regular_files(library: Path) -> Iterator[Path]:
    """Readable files of the standard library without what was installed or compiled, the packages
    first."""
    for directory, names, files in os.walk(library):
        names[:] = sorted(set(names) - {"site-packages", "__pycache__"})
        if Path(directory) == library:
            continue
        for name in sorted(files):
            path = Path(directory, name)
            if path.is_file() and not path.is_symlink() and path.stat().st_size < 1_000_000:
                yield path
    yield from sorted(path for path in library.glob("*.py") if path.is_file())


def _describe(root: Path) -> SourceTree:
    files: dict[str, str] = {}
    sizes: dict[str, int] = {}
    directories: set[str] = set()
    for path in root.rglob("*"):
        relative = path.relative_to(root).as_posix()
        if path.is_dir():
            directories.add(relative)
        else:
            data = path.read_bytes()
            files[relative] = hashlib.sha256(data).hexdigest()
            sizes[relative] = len(data)
    return SourceTree(root, files, sizes, directories)
