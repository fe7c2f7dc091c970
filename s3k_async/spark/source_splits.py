"""Splits of a read: committed files below a path, with partition values, split and combined to
similar sizes."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq

from s3k_async._core.object_version import as_version
from s3k_async._core.paths import normalize
from s3k_async._sync.loop_thread import current_bridge
from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async._sync.sync_files import SyncFileReader
from s3k_async._sync.sync_session import on_client
from s3k_async.client import S3kClient, reader_of
from s3k_async.errors import InvalidArgumentError, S3kError
from s3k_async.files.open_files import FileReader
from s3k_async.listing.hive_partitions import partition_values
from s3k_async.model import Entry
from s3k_async.namespace.addresses import inside
from s3k_async.spark.source_filters import ColumnFilter

__all__ = [
    "ReadSplit",
    "SourceFile",
    "decoding",
    "found_files",
    "inferred_type",
    "joined",
    "opened",
    "partition_names",
    "pruned",
    "splits_of",
    "typed",
    "with_names",
]

FOOTERS = 8
"""Footers that are read at the same time."""
LEAST_WEIGHT = 1024 * 1024
"""The minimum number of bytes that a file counts for, since opening it takes time."""

_INTEGER = re.compile(r"-?[0-9]+")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file at the listed version, with everything that a task needs to read it."""

    path: str
    physical: str
    size: int
    etag: str
    mtime_ms: int
    values: tuple[tuple[str, str | None], ...] = ()
    """Partition columns and their values, from the directories."""
    checksum: str = ""
    """As stored in the entry: the checksum, or the version id of an adopted object."""

    @property
    def entry(self) -> Entry:
        """The entry of the file, as far as reading needs it."""
        return Entry(
            self.path,
            False,
            "",
            2,
            self.mtime_ms // 1000,
            self.mtime_ms,
            size=self.size,
            physical=self.physical,
            committed=True,
            etag=self.etag,
            checksum=self.checksum,
        )


@dataclass(frozen=True, slots=True)
class ReadSplit:
    """A file, or some row groups of it."""

    file: SourceFile
    size: int
    row_groups: tuple[int, ...] | None = None


def opened(fs: S3kSyncClient, file: SourceFile) -> SyncFileReader:
    """Open the file, without a request to the table."""

    async def reader(client: S3kClient) -> FileReader:
        return reader_of(client, file.entry)

    return SyncFileReader(current_bridge(), on_client(fs, reader), fs)


@contextmanager
def decoding(file: SourceFile) -> Iterator[None]:
    """Raise errors of pyarrow in the body as InvalidArgumentError, and name the file in those of
    this package that name no path."""
    try:
        yield
    except S3kError as error:
        if error.path is None:
            error.name(file.path)
        raise
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, MemoryError):
            raise
        raise InvalidArgumentError(
            f"the file cannot be decoded; check the option format: {error}", path=file.path
        ) from error


def found_files(
    fs: S3kSyncClient, paths: Iterable[str], *, missing_ok: bool = False
) -> list[SourceFile]:
    """The committed files below the paths, sorted, without hidden ones. A file is hidden if its
    name, or that of a directory between the path and it, begins with `.`, or begins with `_` and
    has no `=`.

    Raises PathNotFoundError; with `missing_ok` a missing path has no files.
    """
    found: dict[str, SourceFile] = {}
    for path in paths:
        top = normalize(inside(path, fs.name))
        if missing_ok and not fs.exists(path):
            continue
        for status in fs.list(path, recursive=True):
            if status.is_dir or status.physical is None:
                continue
            below = _below(top, status.path)
            if not any(map(_is_hidden, below)):
                found[status.path] = SourceFile(
                    status.path,
                    status.physical,
                    status.size,
                    status.etag,
                    status.mtime_ms,
                    tuple(partition_values("/".join(below)).items()),
                    status.checksum or as_version(status.object_version),
                )
    return [found[path] for path in sorted(found)]


def partition_names(files: Sequence[SourceFile]) -> tuple[str, ...]:
    """The partition columns. Raises InvalidArgumentError if the files do not have the same."""
    names = {tuple(name for name, _ in file.values): file.path for file in files}
    if len(names) > 1:
        (one, path), (other, other_path) = list(names.items())[:2]
        raise InvalidArgumentError(
            f"files with the partition columns {list(one)} and {list(other)} ({other_path}) cannot "
            "be read together",
            path=path,
        )
    return next(iter(names), ())


def with_names(files: Sequence[SourceFile], names: Mapping[str, str]) -> list[SourceFile]:
    """The files with renamed partition columns: `names` maps new to old."""
    new = {old: name for name, old in names.items() if old != name}
    if not new:
        return list(files)
    return [
        replace(file, values=tuple((new.get(name, name), value) for name, value in file.values))
        for file in files
    ]


def inferred_type(values: Iterable[str | None]) -> pa.DataType:
    """The type of a partition column: int, long or date if every value is one, else string."""
    texts = {value for value in values if value is not None}
    if texts and all(_INTEGER.fullmatch(text) for text in texts):
        widest = max(max(int(text), -int(text) - 1) for text in texts)
        if widest < 2**63:
            return pa.int32() if widest < 2**31 else pa.int64()
    if texts and all(map(_is_date, texts)):
        return pa.date32()
    return pa.string()


def typed(text: str | None, type: pa.DataType) -> pa.Scalar:
    """A partition value converted to a type. Raises InvalidArgumentError. Times without a zone are
    in UTC."""
    try:
        found = pa.scalar(text, pa.string())
        if pa.types.is_timestamp(type) and type.tz is not None:
            found = found.cast(pa.timestamp(type.unit))
        return found.cast(type)
    except pa.ArrowException as error:
        raise InvalidArgumentError(f"the partition value {text!r} is no {type}") from error


def pruned(
    files: Sequence[SourceFile], conditions: Iterable[ColumnFilter], schema: pa.Schema
) -> list[SourceFile]:
    """The files whose partition values meet the conditions, as far as these can be decided here."""
    kept = list(files)
    for condition in conditions:
        if condition.column in schema.names:
            wanted = schema.field(condition.column).type
            kept = _meeting(kept, condition, wanted) if condition.decides(wanted) else kept
    return kept


def _meeting(
    files: Iterable[SourceFile], condition: ColumnFilter, type: pa.DataType
) -> list[SourceFile]:
    answers: dict[str | None, bool] = {}

    def meets(value: str | None) -> bool:
        if value not in answers:
            answers[value] = condition.holds(typed(value, type).as_py()) is True
        return answers[value]

    return [
        file
        for file in files
        if all(meets(value) for name, value in file.values if name == condition.column)
    ]


def splits_of(
    fs: S3kSyncClient, files: Sequence[SourceFile], limit: int, *, parquet: bool
) -> list[ReadSplit]:
    """Splits of the non-empty files. Parquet files of more than `limit` bytes are divided by row
    groups; for that their footers are read. Raises InvalidArgumentError (a file that is not
    Parquet)."""
    whole = [file for file in files if file.size]

    def cut(file: SourceFile) -> list[ReadSplit]:
        if not parquet or file.size <= limit:
            return [ReadSplit(file, file.size)]
        with decoding(file), opened(fs, file) as reader:
            return list(_cut(file, pq.read_metadata(reader), limit))

    with ThreadPoolExecutor(FOOTERS) as pool:
        return [split for splits in pool.map(cut, whole) for split in splits]


def joined(splits: Sequence[ReadSplit], limit: int, parallelism: int = 1) -> list[list[ReadSplit]]:
    """Adjacent splits combined up to `limit` bytes, or less if some of `parallelism` tasks would be
    idle."""
    total = sum(max(split.size, LEAST_WEIGHT) for split in splits)
    bound = min(limit, max(LEAST_WEIGHT, total // max(1, parallelism)))
    groups: list[list[ReadSplit]] = []
    weight = 0
    for split in splits:
        weight += max(split.size, LEAST_WEIGHT)
        if not groups or weight > bound:
            groups.append([])
            weight = max(split.size, LEAST_WEIGHT)
        groups[-1].append(split)
    return groups


def _cut(file: SourceFile, footer: pq.FileMetaData, limit: int) -> Iterator[ReadSplit]:
    taken: list[int] = []
    weight = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        size = sum(
            group.column(column).total_compressed_size for column in range(group.num_columns)
        )
        if taken and weight + size > limit:
            yield ReadSplit(file, weight, tuple(taken))
            taken, weight = [], 0
        taken.append(number)
        weight += size
    if taken:
        yield ReadSplit(file, weight, tuple(taken))


def _below(top: str, path: str) -> list[str]:
    """The components of a file's path below the one that is read; none if it is the file itself."""
    return path[len(top) :].lstrip("/").split("/") if path != top else []


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _is_date(text: str) -> bool:
    try:
        return bool(_DATE.fullmatch(text)) and bool(dt.date.fromisoformat(text))
    except ValueError:
        return False
