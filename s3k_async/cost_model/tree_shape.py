"""Tree shapes: kinds of directories, each with the number of directories of that kind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import log, sqrt
from typing import Final

from s3k_async import _native
from s3k_async.cost_model.chain_cost import Chain
from s3k_async.cost_model.item_size import entry_size, read_units
from s3k_async.cost_model.partition_layout import (
    ChildCount,
    Partition,
    alike,
    even_partitions,
    page_runs,
    paged,
)
from s3k_async.cost_model.service_limits import Service
from s3k_async.errors import InvalidArgumentError
from s3k_async.model import ROOT, Content, Entry, LayoutName
from s3k_async.oplog.log_writer import SEGMENT_BYTES
from s3k_async.table.keys import KeyScheme
from s3k_async.txn.chunking import CHUNK

__all__ = ["Kind", "LaidTree", "TreeShape", "lay_out", "measure"]

_UUID: Final = "00000000-0000-4000-8000-000000000000"


@dataclass(frozen=True, slots=True)
class Kind:
    """Equal directories: of one depth, with the same children in the same pages."""

    count: int
    level: int
    """0 for the directory of the call."""
    files: int
    """Files in each."""
    directories: int
    """Directories in each."""
    partitions: tuple[Partition, ...]
    capacity: int
    """Items of a page."""
    certain: bool
    """Whether `partitions` follows from name hashes instead of an even division."""
    file_item: int
    """Bytes of the item of a child file."""
    directory_item: int
    """Bytes of the item of a child directory."""
    own_item: int
    """Bytes of the item of the directory itself; 0 for the root, which has none."""

    @property
    def suffix_count(self) -> int:
        return sum(partition.times for partition in self.partitions)

    @property
    def read_units(self) -> float:
        """Read units of all pages of all partitions of one such directory."""
        return sum(
            page.times * partition.times * read_units(self.bytes_of(page.files, page.directories))
            for partition in self.partitions
            for page in partition.pages
        )

    def bytes_of(self, files: int, directories: int) -> int:
        """Bytes of the items of some of its children."""
        return files * self.file_item + directories * self.directory_item

    def pages(self) -> ChildCount:
        """Pages of all its partitions; an empty partition has one."""
        likely = sum(partition.page_count * partition.times for partition in self.partitions)
        if self.certain:
            return ChildCount.of(likely)
        number, suffixes = self.files + self.directories, self.suffix_count
        most = suffixes + max(0, number - 1) // self.capacity
        return ChildCount(likely, max(suffixes, -(-number // self.capacity)), most)

    def chunks(self) -> ChildCount:
        """Chunks in which its files are changed."""
        return self.transactions(CHUNK)

    def segments(self) -> ChildCount:
        """Log segments of its files: one for each chunk, more for long paths."""
        chunks = self.chunks()
        # A line has at most two states of a file, each with the names of its fields.
        longest = 2 * (self.file_item + 350)
        most = -(-min(self.files, CHUNK) * longest // SEGMENT_BYTES)
        return (
            chunks if most <= 1 else ChildCount(chunks.likely, chunks.low, chunks.high * (most + 1))
        )

    def transactions(self, size: int) -> ChildCount:
        """Groups of at most `size` files."""
        return ChildCount.of(-(-self.files // size))

    def without_files(self, service: Service) -> Kind:
        """The same directory after its files were deleted."""
        capacity = service.page_capacity(self.directory_item)
        partitions = tuple(
            Partition(page_runs(0, each.directories, capacity), each.times)
            for each in self.partitions
        )
        return replace(self, files=0, partitions=partitions, capacity=capacity)

    def groups_of_pages(self, size: int = 0) -> ChildCount:
        """Pages that are not empty; with `size`, groups of at most so many children of a page."""
        number, suffixes = self.files + self.directories, self.suffix_count
        likely = sum(
            partition.times * page.times * (-(-children // size) if size else 1)
            for partition in self.partitions
            for page in partition.pages
            if (children := page.files + page.directories)
        )
        if self.certain:
            return ChildCount.of(likely)
        least = min(size or self.capacity, self.capacity)
        low = -(-number // least)
        return ChildCount(likely, low, max(likely, min(number, low + suffixes)))

    def fullest(self) -> tuple[int, int]:
        """Files and directories in its fullest partition; for unknown names the expected maximum:
        the mean and sqrt(2 mean ln N) more."""
        if self.certain:
            partition = max(
                self.partitions, key=lambda each: (each.files + each.directories, each.files)
            )
            return partition.files, partition.directories
        return self._fullest_of(self.files), self._fullest_of(self.directories)

    def _fullest_of(self, number: int) -> int:
        mean = number / self.suffix_count
        return min(number, round(mean + sqrt(2 * mean * log(self.suffix_count))))


@dataclass(frozen=True, slots=True)
class LaidTree:
    """A tree with children divided into partitions and pages."""

    kinds: tuple[Kind, ...]
    suffix_count: int
    file_bytes: int
    """Mean bytes of a file."""
    page_items: int | None
    """As `Service.page_items`."""
    layout: LayoutName = "path"
    above: int = 1
    """Directories above the top, without the root."""

    @property
    def chain(self) -> Chain:
        """The directories above the top."""
        return Chain(self.above, self.layout, self.top.own_item)

    @property
    def is_root(self) -> bool:
        """Whether the top is the root."""
        return not self.top.own_item

    @property
    def files(self) -> int:
        return sum(kind.count * kind.files for kind in self.kinds)

    @property
    def directories(self) -> int:
        """Directories, the top included."""
        return sum(kind.count for kind in self.kinds)

    @property
    def depth(self) -> int:
        return max(kind.level for kind in self.kinds)

    @property
    def top(self) -> Kind:
        """The directory of the call."""
        return next(kind for kind in self.kinds if kind.level == 0)

    @property
    def lowest(self) -> Kind:
        """The most frequent of the lowest directories with files."""
        return max(self.kinds, key=lambda kind: (kind.files > 0, kind.level, kind.count))

    @property
    def filled(self) -> int:
        """Directories with files."""
        return sum(kind.count for kind in self.kinds if kind.files)

    def parents(self, kind: Kind) -> int:
        """Directories above the children of a directory, without the root."""
        return kind.level + (0 if self.is_root else self.above + 1)

    def subtree(self, kind: Kind) -> LaidTree:
        """A directory of the lowest level as a tree."""
        above = max(0, self.parents(kind) - 1)
        return replace(self, kinds=(replace(kind, count=1, level=0),), above=above)


@dataclass(frozen=True, slots=True)
class TreeShape:
    """A tree described by numbers: files evenly in `leaves` directories at the bottom, below the
    fewest directories of at most `fan_out` directories each, up to a single one."""

    files: int
    leaves: int = 1
    fan_out: int | None = None
    """None: all leaves are in the top directory."""
    name_bytes: int = 16
    """Mean bytes of a name."""
    path_bytes: int = 24
    """Bytes of the top directory's path."""
    above: int = 1
    """Directories above the top directory, without the root."""
    item_bytes: int | None = None
    """Bytes of the item of a file; None: those of this package for such names."""
    file_bytes: int = 1_000_000

    def __post_init__(self) -> None:
        """Raises InvalidArgumentError for an impossible tree."""
        low = min(
            self.files,
            self.leaves - 1,
            self.name_bytes - 1,
            self.path_bytes - 1,
            self.above,
            self.file_bytes,
        )
        if low < 0 or (self.item_bytes is not None and self.item_bytes < 1):
            raise InvalidArgumentError(
                "a tree has at least one directory, and names, paths and items have bytes"
            )
        if self.fan_out is not None and (
            self.fan_out < 1 or (self.fan_out == 1 and self.leaves > 1)
        ):
            raise InvalidArgumentError(
                "with a fan-out of less than 2 there is one directory with files"
            )

    def levels(self) -> list[int]:
        """Directories of each level, from the top down."""
        levels = [self.leaves]
        while levels[0] > 1:
            levels.insert(0, 1 if self.fan_out is None else -(-levels[0] // self.fan_out))
        return levels


def lay_out(
    shape: TreeShape, suffix_count: int, service: Service, layout: LayoutName = "path"
) -> LaidTree:
    """Divide the children of a described tree evenly into partitions and pages, in a few steps for
    each level."""
    keys = KeyScheme("analytics", suffix_count, layout=layout)
    levels = shape.levels()
    kinds: list[Kind] = []
    for level, count in enumerate(levels):
        bottom = level == len(levels) - 1
        children = shape.files if bottom else levels[level + 1]
        few, more = divmod(children, count)
        for each, number in ((few + 1, more), (few, count - more)):
            if number:
                files, directories = (each, 0) if bottom else (0, each)
                kinds.append(_kind(shape, keys, service, level, number, files, directories))
    above = 0 if shape.path_bytes == len(ROOT) else shape.above
    return LaidTree(tuple(kinds), suffix_count, shape.file_bytes, service.page_items, layout, above)


def _kind(
    shape: TreeShape,
    keys: KeyScheme,
    service: Service,
    level: int,
    count: int,
    files: int,
    directories: int,
) -> Kind:
    path = shape.path_bytes + level * (shape.name_bytes + 1)
    file_item = shape.item_bytes or _item_bytes(path, shape.name_bytes, keys, is_dir=False)
    directory_item = _item_bytes(path, shape.name_bytes, keys, is_dir=True)
    capacity = service.page_capacity(file_item if files else directory_item)
    named = shape.name_bytes + 1
    return Kind(
        count,
        level,
        files,
        directories,
        even_partitions(files, directories, keys.suffix_count, capacity),
        capacity=capacity,
        certain=keys.suffix_count == 1,
        file_item=file_item,
        directory_item=directory_item,
        own_item=0
        if path == len(ROOT)
        else _item_bytes(path - named, shape.name_bytes, keys, is_dir=True),
    )


def _item_bytes(parent_bytes: int, name_bytes: int, keys: KeyScheme, *, is_dir: bool) -> int:
    """Bytes of a child's item, from a sample of this package. Only in layout `path` they depend on
    the length of its path."""
    in_tree = keys.layout == "tree"
    blank = Entry("/p/n", is_dir, _UUID, 1, 1_800_000_000, 1_800_000_000_123, operation=_UUID)
    blank = replace(blank, directory=_UUID if in_tree else "")
    if is_dir:
        entry = blank
    else:
        content = Content(f"{_UUID}.id={_UUID}", 1_234_567, "0" * 32, "xxh128:" + "0" * 32)
        entry = blank.with_content(content, mtime_ms=blank.mtime_ms, operation=_UUID)
    sample = entry_size(entry, keys)
    longest = len(str(keys.suffix_count - 1)) - len(keys.of(entry).partition.rpartition("-sf")[2])
    parent = 0 if in_tree else max(0, parent_bytes - len("/p"))
    return sample + parent + name_bytes - len("n") + longest


def measure(entries: Iterable[Entry], top: Entry, keys: KeyScheme, service: Service) -> LaidTree:
    """The layout of a tree from its entries: the subtree below `top`, in any order. Exact; time is
    proportional to the number of entries."""
    below: dict[str, list[Entry]] = {top.path: []}
    size = files = 0
    for entry in entries:
        below.setdefault(_native.split(entry.path)[0], []).append(entry)
        if entry.is_dir:
            below.setdefault(entry.path, [])
        files += not entry.is_dir
        size += entry.size
    directories = [top, *(each for some in below.values() for each in some if each.is_dir)]
    counted: dict[Kind, int] = {}
    for directory in directories:
        kind = _measured(directory, below[directory.path], top, keys, service)
        counted[kind] = counted.get(kind, 0) + 1
    kinds = tuple(replace(kind, count=count) for kind, count in counted.items())
    above = max(0, top.path.count("/") - 1)
    mean = size // max(1, files)
    return LaidTree(kinds, keys.suffix_count, mean, service.page_items, keys.layout, above)


def _measured(
    directory: Entry, children: list[Entry], top: Entry, keys: KeyScheme, service: Service
) -> Kind:
    path = directory.path
    partitions: dict[str, list[tuple[str, bool, int]]] = {
        partition: [] for partition in keys.partitions(keys.directory(directory).key)
    }
    sizes: dict[bool, list[int]] = {True: [], False: []}
    for entry in children:
        key = keys.of(entry)
        size = entry_size(entry, keys)
        partitions[key.partition].append((key.sort, entry.is_dir, size))
        sizes[entry.is_dir].append(size)
    layouts = [
        paged(
            [(is_dir, size) for _, is_dir, size in sorted(each)],
            service.page_items,
            service.page_bytes,
        )
        for each in partitions.values()
    ]
    return Kind(
        count=1,
        level=0 if path == top.path else path[len(top.path.rstrip("/")) :].count("/"),
        files=len(sizes[False]),
        directories=len(sizes[True]),
        partitions=alike(sorted(layouts, key=repr)),
        capacity=service.page_capacity(_mean([size for each in sizes.values() for size in each])),
        certain=True,
        file_item=_mean(sizes[False]),
        directory_item=_mean(sizes[True]),
        own_item=0 if path == ROOT else entry_size(directory, keys),
    )


def _mean(sizes: list[int]) -> int:
    return -(-sum(sizes) // len(sizes)) if sizes else 1
