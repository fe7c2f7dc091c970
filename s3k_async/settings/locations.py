"""Addresses of volumes in text form, parsed to values."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TypeAlias

from s3k_async.backends.location import Location
from s3k_async.backends.registry import BLOBS, TABLES
from s3k_async.backends.url_parts import absolute_path, file_url_path
from s3k_async.errors import ArgumentTypeError, ConfigError
from s3k_async.settings.options import Option, Setting

__all__ = [
    "EmbeddedVolume",
    "MemoryVolume",
    "NamedVolume",
    "VolumeAddress",
    "anchored",
    "check_name",
    "name_of_directory",
    "parse_volume",
    "split_url",
]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,254}")


@dataclass(frozen=True, slots=True)
class NamedVolume:
    """`s3k://name`, described by the configuration."""

    name: str


@dataclass(frozen=True, slots=True)
class EmbeddedVolume:
    """A directory with table, data and log."""

    directory: str


@dataclass(frozen=True, slots=True)
class MemoryVolume:
    """`memory://name`: a volume of this process."""

    name: str


VolumeAddress: TypeAlias = NamedVolume | EmbeddedVolume | MemoryVolume


def check_name(name: str) -> str:
    """A valid name of a volume: ASCII letters, digits, `.`, `_`, `-`, at most 255. Raises
    ConfigError for others."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            "a volume's name has letters, digits, '.', '_' and '-', and begins with none of '.' "
            "and '-'",
            path=repr(name),
        )
    return name


def name_of_directory(directory: str) -> str:
    """A volume name from a directory's name."""
    text = re.sub(r"[^A-Za-z0-9._-]", "-", os.path.basename(os.path.abspath(directory)))
    return text.lstrip(".-")[:255] or "volume"


def split_url(url: str) -> tuple[str | None, str]:
    """The volume and the path in it: `s3k://name/a/b` is (`s3k://name`, `/a/b`), and so for
    `memory://`.

    Text without a scheme is a path in the default volume: (None, text). A `file://` URL is a whole
    volume. Nothing is decoded: `%` and every other character is literal. Raises ConfigError for
    another scheme.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        return None, url
    if scheme.lower() == "file":
        return url, "/"
    if scheme.lower() not in ("s3k", "memory"):
        raise ConfigError(
            f"{scheme}:// is no volume; volumes are s3k://NAME, memory://NAME and file:///PATH",
            path=url,
        )
    name, _, path = rest.partition("/")
    return f"{scheme.lower()}://{check_name(name)}", f"/{path}"


def parse_volume(volume: str | os.PathLike[str], base: str | None = None) -> VolumeAddress:
    """The address in a volume's URL or path. Relative paths are below `base`, else the working
    directory.

    Raises ConfigError, ArgumentTypeError.
    """
    if not isinstance(volume, str):
        return EmbeddedVolume(absolute_path(_text(volume), base))
    if "://" not in volume:
        if "/" not in volume and volume not in (".", "..", "~"):
            raise ConfigError(
                f"is {volume!r} a directory or a name? Write ./{volume} for a directory, "
                f"s3k://{volume} for a named"
                " volume",
                path=volume,
            )
        return EmbeddedVolume(absolute_path(volume, base))
    url, path = split_url(volume)
    assert url is not None
    scheme, _, name = url.partition("://")
    if path != "/":
        raise ConfigError("the URL of a volume has no path", path=volume)
    if scheme.lower() == "file":
        return EmbeddedVolume(file_url_path(volume))
    return NamedVolume(name) if scheme == "s3k" else MemoryVolume(name)


def _text(path: object) -> str:
    text: object = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise ArgumentTypeError(
            f"a volume is text or a path, not {type(text).__name__}", path=repr(text)
        )
    return text


def anchored(option: Option, value: Setting, base: str | None) -> Setting:
    """The value with an absolute path: a relative one is below `base`, else the working
    directory."""
    if not isinstance(value, str):
        return value
    if option.name not in ("table", "data_location", "log_location"):
        return absolute_path(value, base) if option.type == "path" else value
    backend: type[Location]
    try:
        backend = (TABLES if option.name == "table" else BLOBS).of_setting(value)
    except ConfigError:
        return value  # reported when the volume is opened: it may be another volume of the file
    return backend.anchored(value, base)
