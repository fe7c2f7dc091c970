"""What libraries see of a volume and of a bucket: the adapters of this package, s3fs, and pyarrow's
S3 filesystem."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs as arrow_fs

__all__ = ["ARROW", "FSSPEC", "Arrow", "Fsspec", "Sizes", "told"]

SMALL = bytes(4 * 1024)
LARGE = bytes(64 * 1024)
RANGE = 1024
"""Bytes of a range that is read."""
THREADS = 16
"""That write what is listed afterwards."""


@dataclass(frozen=True)
class Sizes:
    """How much there is of everything."""

    files: int
    """In one directory."""
    directories: int
    in_each: int
    read: int
    """Small files that are read in one call."""
    in_ranges: int
    """Files of which ranges are read in one call."""
    ranges: int
    """Of each of them."""
    parts: int
    """Parquet files of a dataset."""
    rows: int
    """In each of them."""

    @property
    def below(self) -> int:
        """Files in all the directories."""
        return self.directories * self.in_each


@dataclass(frozen=True)
class Fsspec:
    """An fsspec filesystem as pandas calls it: from a thread, blocking. Nobody caches listings."""

    fs: Any
    root: str

    def fill(self, sizes: Sizes) -> None:
        """One large directory, a tree of small ones, and files to read ranges of."""
        self._pipe({f"flat-0/part-{number:08}": SMALL for number in range(sizes.files)})
        self._pipe(
            {
                f"tree/day={day:03}/part-{number:08}": SMALL
                for day in range(sizes.directories)
                for number in range(sizes.in_each)
            }
        )
        self._pipe({f"ranges/part-{number:08}": LARGE for number in range(sizes.in_ranges)})

    def _pipe(self, files: dict[str, bytes]) -> None:
        self.fs.pipe({f"{self.root}/{path}": data for path, data in files.items()})

    def find(self, below: str) -> int:
        """Files below a directory."""
        return len(self.fs.find(f"{self.root}/{below}"))

    def glob(self, pattern: str) -> int:
        """Paths that match."""
        return len(self.fs.glob(f"{self.root}/{pattern}"))

    def du(self, below: str) -> int:
        """Bytes below a directory."""
        return int(self.fs.du(f"{self.root}/{below}"))

    def cat(self, sizes: Sizes) -> int:
        """Bytes of many small files."""
        paths = [f"{self.root}/flat-0/part-{number:08}" for number in range(sizes.read)]
        return sum(len(data) for data in self.fs.cat(paths).values())

    def cat_ranges(self, sizes: Sizes) -> int:
        """Bytes of ranges of many files, evenly spread."""
        step = len(LARGE) // sizes.ranges
        wanted = [
            (f"{self.root}/ranges/part-{number:08}", step * place)
            for number in range(sizes.in_ranges)
            for place in range(sizes.ranges)
        ]
        paths, starts = [path for path, _ in wanted], [start for _, start in wanted]
        found = self.fs.cat_ranges(
            paths, starts, [start + RANGE for start in starts], on_error="raise"
        )
        return sum(len(data) for data in found)

    def mv(self, source: str, target: str) -> None:
        """Move a directory to where nothing is."""
        self.fs.mv(f"{self.root}/{source}", f"{self.root}/{target}", recursive=True)


@dataclass(frozen=True)
class Arrow:
    """A pyarrow filesystem."""

    fs: Any
    root: str

    def fill(self, sizes: Sizes) -> None:
        """A dataset in partitions, and one directory of small files."""
        table = pa.table(
            {"number": range(sizes.rows), "text": [f"row {row}" for row in range(sizes.rows)]}
        )
        for part in range(sizes.parts):
            directory = f"{self.root}/dataset/day={part % 10}"
            self.fs.create_dir(directory, recursive=True)
            pq.write_table(table, f"{directory}/part-{part}.parquet", filesystem=self.fs)
        self.fs.create_dir(f"{self.root}/arrow", recursive=True)

        def write(number: int) -> None:
            with self.fs.open_output_stream(f"{self.root}/arrow/part-{number:08}") as stream:
                stream.write(SMALL)

        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(write, range(sizes.files)))

    def list(self, below: str) -> int:
        """Files below a directory."""
        found = self.fs.get_file_info(arrow_fs.FileSelector(f"{self.root}/{below}", recursive=True))
        return sum(1 for each in found if each.type == arrow_fs.FileType.File)

    def dataset(self) -> int:
        """Rows of the dataset, found and read."""
        found = ds.dataset(
            f"{self.root}/dataset", filesystem=self.fs, format="parquet", partitioning="hive"
        )
        return int(found.to_table().num_rows)


FSSPEC: dict[str, Callable[[Fsspec, Sizes], object]] = {
    "find": lambda fs, _: fs.find("flat-0"),
    "find in a tree": lambda fs, _: fs.find("tree"),
    "glob in a tree": lambda fs, _: fs.glob("tree/**/part-*"),
    "du": lambda fs, _: fs.du("flat-0"),
    "cat": Fsspec.cat,
    "cat_ranges": Fsspec.cat_ranges,
}
ARROW: dict[str, Callable[[Arrow, Sizes], object]] = {
    "list": lambda fs, _: fs.list("arrow"),
    "dataset": lambda fs, _: fs.dataset(),
}


def told(sizes: Sizes, verb: str) -> tuple[str, int, str, int]:
    """Of what size the work is, how many units of what, and what has to come out."""
    tree = f"{sizes.below:,} files in {sizes.directories} directories"
    ranges = sizes.in_ranges * sizes.ranges
    known: dict[str, tuple[str, int, str, int]] = {
        "find in a tree": (tree, sizes.below, "files", sizes.below),
        "glob in a tree": (tree, sizes.below, "files", sizes.below),
        "du": (f"{sizes.files:,} files", sizes.files, "files", sizes.files * len(SMALL)),
        "cat": (f"{sizes.read:,} files of 4 KiB", sizes.read, "files", sizes.read * len(SMALL)),
        "cat_ranges": (
            f"{ranges:,} ranges of {sizes.in_ranges} files",
            ranges,
            "ranges",
            ranges * RANGE,
        ),
        "dataset": (f"{sizes.parts} Parquet files", sizes.parts, "files", sizes.parts * sizes.rows),
    }
    return known.get(verb, (f"{sizes.files:,} files", sizes.files, "files", sizes.files))
