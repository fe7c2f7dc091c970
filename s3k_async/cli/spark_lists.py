"""Lists of paths that Spark reads for a command, and their format."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final, Literal

from s3k_async.errors import InvalidArgumentError, PathNotFoundError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Form", "form_by_content", "form_by_name", "read_list"]

Form = Literal["parquet", "csv", "json"]

_ENDS: Final[dict[str, Form]] = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".parquet": "parquet",
}


def read_list(session: SparkSession, place: str, form: Form | None) -> DataFrame:
    """The rows of a list, in the given format or in that of the file. Raises PathNotFoundError,
    InvalidArgumentError (no format is given, and the list is empty)."""
    form = form or form_by_name(place) or form_by_content(session, place)
    return session.read.format(form).option("header", form == "csv").load(place)


def form_by_name(place: str) -> Form | None:
    """The format by file name extension, without that of a compression."""
    return _ENDS.get(os.path.splitext(re.sub(r"\.(gz|bz2|zst)$", "", place.rstrip("/")))[1].lower())


def form_by_content(session: SparkSession, place: str) -> Form:
    """The format by the first byte of the first file that is not empty; files that Spark has
    written have an extension."""
    from s3k_async.spark.hadoop_files import hadoop_file

    system, path = hadoop_file(session, place)
    if not system.exists(path):
        raise PathNotFoundError("no such list", path=place)
    for status in system.listStatus(path):
        name = status.getPath().getName()
        if status.isFile() and status.getLen() and not name.startswith(("_", ".")):
            stream = system.open(status.getPath())
            try:
                first = stream.read()
            finally:
                stream.close()
            return form_by_name(name) or (
                "parquet" if first == ord("P") else "json" if first == ord("{") else "csv"
            )
    raise InvalidArgumentError("the list is empty; --format says what it is", path=place)
