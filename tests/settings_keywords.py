"""Writes `s3k_async/settings/keywords.py` from the table of options.

python -m tests.settings_keywords
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Final, get_args

from s3k_async.config import AlertPolicy, LogMode, StorageClass
from s3k_async.model import HashName, LayoutName, VolumeKind
from s3k_async.settings.options import OPTIONS, Option, OptionType

__all__ = ["TARGET", "source"]

TARGET: Final = Path(__file__).parents[1] / "s3k_async" / "settings" / "keywords.py"

TYPES: Final[dict[OptionType, str]] = {
    "text": "str",
    "path": "str | os.PathLike[str]",
    "integer": "int",
    "integers": "Sequence[int] | str",
    "number": "float",
    "size": "int | str",
    "boolean": "bool",
    "secret": "str | Secret",
}
CHOICES: Final = {
    get_args(AlertPolicy): "AlertPolicy",
    get_args(HashName): "HashName",
    get_args(LayoutName): "LayoutName",
    get_args(LogMode): "LogMode",
    get_args(StorageClass): "StorageClass",
    get_args(VolumeKind): "VolumeKind",
}
LOCATIONS: Final = ("data_location", "log_location")
"""Options that are a URL or a directory."""
HEAD: Final = '''"""The settings that clients and other public functions take as keywords.

Generated from the table of options by `python -m tests.settings_keywords`; not to be edited.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal, TypedDict

from s3k_async.config import AlertPolicy, LogMode, Secret, StorageClass
from s3k_async.model import HashName, LayoutName, VolumeKind

__all__ = ["Settings"]


class Settings(TypedDict, total=False):
    """Options by name. None is the same as leaving an option out. A size is a number of bytes, or
    text such as `8MiB`.
    """
'''


def source() -> str:
    """The text of the module."""
    return HEAD + "".join(_field(option) for option in OPTIONS.values())


def _field(option: Option) -> str:
    if option.type == "choice":
        listed = ", ".join(f'"{choice}"' for choice in option.choices)
        kind = CHOICES.get(option.choices, f"Literal[{listed}]")
    else:
        kind = TYPES["path" if option.name in LOCATIONS else option.type]
    doc = f'"""{option.doc}"""'
    if len(doc) > 96:
        doc = "\n".join(textwrap.wrap(option.doc, 93)).replace("\n", "\n    ")
        doc = f'"""{doc}\n    """'
    return f"\n    {option.name}: {kind} | None\n    {doc}\n"


if __name__ == "__main__":
    TARGET.write_text(source(), encoding="utf-8")
