r"""Hive partition values in directory names (`name=value`), as Hive and Spark write and read them.

The rule is that of Spark's `ExternalCatalogUtils` (`sql/catalyst`, `escapePathName`,
`unescapePathName`, `getPartitionPathString`), which has it from Hive's `FileUtils`: control
characters but NUL, and ``"#%'*/:=?[\]^{`` are written as `%` and two upper-case hexadecimal digits
of the character's code; nothing else is. Null and the empty value are written as
`__HIVE_DEFAULT_PARTITION__`, and read as null. A test compares with Spark itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from s3k_async.errors import InvalidArgumentError

__all__ = ["NO_VALUE", "partition_directory", "partition_values"]

NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
"""The representation of null in a directory name."""

_SPECIAL: Final = re.compile(r"""[\x01-\x1f\x7f"#%'*/:=?\[\\\]^{]""")
_ESCAPED: Final = re.compile("%([0-9A-Fa-f]{2})")


def partition_values(relative_path: str) -> dict[str, str | None]:
    """The partition values of a file, by name, from the directories of its path below the table's
    directory.

    `a=1/b=x%2Fy/part-0` gives `{"a": "1", "b": "x/y"}`. The last component is the file's own name
    and ignored; directories without `=`, or without a name before it, have no value. If a name
    occurs twice, the innermost directory counts.
    """
    found: dict[str, str | None] = {}
    for directory in relative_path.split("/")[:-1]:
        name, equals, value = directory.partition("=")
        if name and equals:
            found[_unescaped(name)] = None if value == NO_VALUE else _unescaped(value)
    return found


def partition_directory(values: Mapping[str, str | None]) -> str:
    """The directories of a partition in the order of the mapping: `a=1/b=x%2Fy`; empty for no
    values.

    Raises InvalidArgumentError for an empty name.
    """
    if "" in values:
        raise InvalidArgumentError("a partition column has a name")
    return "/".join(
        f"{_escaped(name)}={_escaped(value) if value else NO_VALUE}"
        for name, value in values.items()
    )


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda found: f"%{ord(found[0]):02X}", text)


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)
