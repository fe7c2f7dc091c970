"""What people write for a volume and for its places, as values."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import unquote

from s3k_async.config import (
    AwsConfig,
    BlobLocation,
    DynamoTable,
    LocalDirectory,
    MemoryBlobs,
    MemoryTable,
    S3Bucket,
    SqliteFile,
    TableLocation,
)
from s3k_async.errors import ArgumentTypeError, ConfigError
from s3k_async.settings.options import Option, Setting

__all__ = [
    "EmbeddedVolume",
    "MemoryVolume",
    "NamedVolume",
    "VolumeAddress",
    "anchored",
    "blob_location",
    "check_name",
    "name_of_directory",
    "parse_volume",
    "s3_prefix",
    "split_url",
    "table_location",
]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,254}")


@dataclass(frozen=True, slots=True)
class NamedVolume:
    """`s3k://name`: what it is, the configuration says."""

    name: str


@dataclass(frozen=True, slots=True)
class EmbeddedVolume:
    """A directory that holds table, data and log."""

    directory: str


@dataclass(frozen=True, slots=True)
class MemoryVolume:
    """`memory://name`: a volume of this process."""

    name: str


VolumeAddress: TypeAlias = NamedVolume | EmbeddedVolume | MemoryVolume


def check_name(name: str) -> str:
    """The name, if a volume can have it: ASCII letters, digits, `.`, `_`, `-`, at most 255. Raises
    ConfigError."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            "a volume's name has letters, digits, '.', '_' and '-', and begins with none of '.' "
            "and '-'",
            path=repr(name),
        )
    return name


def name_of_directory(directory: str) -> str:
    """A volume name after a directory's own."""
    text = re.sub(r"[^A-Za-z0-9._-]", "-", os.path.basename(os.path.abspath(directory)))
    return text.lstrip(".-")[:255] or "volume"


def split_url(url: str) -> tuple[str | None, str]:
    """The volume and the path in it: `s3k://name/a/b` is (`s3k://name`, `/a/b`), and so for
    `memory://`.

    Text without a scheme is a path in whatever volume is meant: (None, text). A `file://` URL is a
    volume as a whole. Nothing is decoded: `%` and every other character is what it is. Raises
    ConfigError for another scheme.
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
    """What a volume's URL or path means. Relative paths are below `base`, else the working
    directory.

    Raises ConfigError, ArgumentTypeError.
    """
    if not isinstance(volume, str):
        return EmbeddedVolume(_absolute(_text(volume), base))
    if "://" not in volume:
        if "/" not in volume and volume not in (".", "..", "~"):
            raise ConfigError(
                f"is {volume!r} a directory or a name? Write ./{volume} for a directory, "
                f"s3k://{volume} for a named"
                " volume",
                path=volume,
            )
        return EmbeddedVolume(_absolute(volume, base))
    url, path = split_url(volume)
    assert url is not None
    scheme, _, name = url.partition("://")
    if path != "/":
        raise ConfigError("the URL of a volume has no path", path=volume)
    if scheme.lower() == "file":
        return EmbeddedVolume(_file_url(volume))
    return NamedVolume(name) if scheme == "s3k" else MemoryVolume(name)


def _text(path: object) -> str:
    text: object = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise ArgumentTypeError(
            f"a volume is text or a path, not {type(text).__name__}", path=repr(text)
        )
    return text


def _absolute(path: str, base: str | None) -> str:
    if not path or "\0" in path:
        raise ConfigError("a directory's path is not empty and has no NUL", path=repr(path))
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise ConfigError("a directory's path has to be text in UTF-8", path=ascii(path)) from error
    return os.path.abspath(os.path.join(base or "", os.path.expanduser(path)))


def _file_url(url: str) -> str:
    host, slash, path = url.partition("://")[2].partition("/")
    if host not in ("", "localhost") or not slash:
        raise ConfigError("a file URL is file:///absolute/path", path=url)
    return _absolute(unquote(f"/{path}"), None)


def anchored(option: Option, value: Setting, base: str | None) -> Setting:
    """The value, with a relative path in it made absolute: below `base`, else the working
    directory."""
    if not isinstance(value, str):
        return value
    if option.name == "table" and value.startswith("sqlite:"):
        return f"sqlite:{_absolute(re.sub('^sqlite:(//(?=/))?', '', value), base)}"
    if option.type == "path" or (
        option.name in ("data_location", "log_location") and "://" not in value
    ):
        return _absolute(value, base)
    return value


def table_location(text: str, aws: AwsConfig) -> TableLocation:
    """What the option `table` means: a DynamoDB table (name or ARN), `sqlite:PATH`,
    `memory://NAME`."""
    scheme, separator, rest = text.partition("://")
    if separator and scheme == "memory":
        return MemoryTable(_one_word(rest, text))
    if text.startswith("sqlite:"):
        return SqliteFile(text.removeprefix("sqlite:"))
    name = rest if separator and scheme == "dynamodb" else text
    if not re.fullmatch(
        r"[A-Za-z0-9_.-]{3,255}|arn:[A-Za-z0-9:_-]+:table/[A-Za-z0-9_.-]{3,255}", name
    ):
        raise ConfigError(
            "a DynamoDB table's name has 3 to 255 letters, digits, '.', '_' and '-'; other tables "
            "are sqlite:PATH and"
            f" memory://NAME; {text!r} is none of them",
            path=text,
        )
    return DynamoTable(name, aws)


def blob_location(text: str, aws: AwsConfig) -> BlobLocation:
    """What `data_location` and `log_location` mean: `s3://BUCKET/PREFIX`, `file:///PATH` or a path,
    `memory://NAME`."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        return LocalDirectory(text)
    if scheme == "file":
        return LocalDirectory(_file_url(text))
    if scheme == "memory":
        return MemoryBlobs(_one_word(rest, text))
    if scheme == "s3":
        bucket, _, prefix = rest.partition("/")
        return S3Bucket(_one_word(bucket, text), s3_prefix(prefix), aws)
    raise ConfigError(
        "a place for bytes is s3://BUCKET/PREFIX, file:///PATH, a path or memory://NAME", path=text
    )


def s3_prefix(prefix: str) -> str:
    """A prefix in the one form that is compared and joined: empty, or with `/` at the end and none
    at the start."""
    text = prefix.strip("/")
    return f"{text}/" if text else ""


def _one_word(name: str, text: str) -> str:
    if not name.strip("/") or name != name.strip():
        raise ConfigError("the name is missing", path=text)
    return name.rstrip("/")
