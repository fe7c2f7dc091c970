"""Volumes and paths as written on the command line.

s3k://NAME/path     a named volume (NAME alone is its root); memory:// likewise
DIRECTORY:/path     an embedded volume and a path in it; the first `:/` divides them
DIRECTORY           an embedded volume's root, where it begins with `./`, `../` or `~`
/path, :/path       a path in the default volume; the second form also for a path with a `:/` in it

A `/path` that leads into the directory of an embedded volume is refused: it would be a path in the
default volume.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from s3k_async.cli.output import status_fields
from s3k_async.errors import ConfigError, InvalidArgumentError
from s3k_async.model import ROOT, FileStatus
from s3k_async.namespace.addresses import TABLE_FILE

if TYPE_CHECKING:
    from s3k_async.client import S3kClient
    from s3k_async.config import VolumeConfig

__all__ = [
    "Address",
    "entry_fields",
    "is_volume",
    "object_id_of",
    "parse_address",
    "parse_volume_address",
    "shown",
    "shown_in",
    "volume_directory",
    "volume_with",
    "whole_volume",
]

_OBJECT_ID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}", re.ASCII)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


@dataclass(frozen=True, slots=True)
class Address:
    """A path in a volume; `volume` None means the default one."""

    volume: str | None
    path: str
    text: str
    """The address as given."""

    def __str__(self) -> str:
        return self.text

    @property
    def is_into(self) -> bool:
        """Whether a target is a directory to copy into: it ends with a `/`."""
        return self.path.endswith("/")

    def below(self, name: str) -> str:
        """The path of a name in this directory; the directory itself without a name."""
        return f"{self.path.rstrip('/')}/{name}"


def parse_address(text: str) -> Address:
    """The address in a PATH argument. Raises InvalidArgumentError."""
    if not text:
        raise InvalidArgumentError("a path in a volume cannot be empty")
    found = _with_volume(text)
    if found is not None:
        return found
    if text.startswith("/"):
        _need_no_volume(text)
        return Address(None, text, text)
    if text in (".", "..") or text.startswith(("./", "../", "~")):
        return Address(text, "/", text)
    raise InvalidArgumentError(
        f"is {text!r} a path or a directory? Write /{text} for a path in the default volume, "
        f"./{text} for an embedded"
        f" volume, s3k://{text} for a named one"
    )


def parse_volume_address(text: str) -> Address:
    """The address in a VOLUME argument: as a PATH, but an absolute path is an embedded volume's
    directory.

    Raises InvalidArgumentError.
    """
    if text.startswith("/") and ":/" not in text:
        return Address(text, "/", text)
    return parse_address(text)


def whole_volume(text: str | None, hint: str = "") -> Address:
    """The address in a VOLUME argument without a path, by default of the default volume. `hint`:
    how to name a path instead, for the error. Raises InvalidArgumentError."""
    address = Address(None, "/", "") if text is None else parse_volume_address(text)
    if address.path != "/":
        raise InvalidArgumentError(f"expected a volume, not a path in a volume{hint}", path=text)
    return address


def object_id_of(text: str) -> str:
    """The id in an argument that is an OBJECT-ID or a PATH; empty for a PATH."""
    return text.lower() if _OBJECT_ID.fullmatch(text) else ""


def volume_directory(path: str) -> tuple[str, str] | None:
    """The directory of an embedded volume at or above a local path, and the rest of the path."""
    place, rest = path.rstrip("/"), ""
    while place:
        if is_volume(place):
            return place, rest or "/"
        place, _, name = place.rpartition("/")
        rest = f"/{name}{rest}"
    return None


def volume_with(path: str) -> str | None:
    """The directory of the embedded volume that has its table, data or log at a local path or
    around it; None for a file beside them."""
    found = volume_directory(path)
    if found is None:
        return None
    directory, rest = found
    part = rest.split("/")[1]
    return directory if part in ("data", "oplog") or part.startswith(TABLE_FILE) else None


def shown(client: S3kClient, path: str = ROOT) -> str:
    """A path with its volume in the form of a command's argument; without a path, the volume."""
    return shown_in(client.config, path)


def entry_fields(client: S3kClient, status: FileStatus) -> dict[str, Any]:
    """The JSON fields of a file or directory, with its volume."""
    return {"volume": shown(client), **status_fields(status)}


def shown_in(config: VolumeConfig, path: str = ROOT) -> str:
    """As `shown`, of a configuration; before the volume is opened, one without a name is shown by
    its table."""
    named = f"s3k://{config.name}" if config.name else config.where
    return (config.path_prefix or named) + path


@lru_cache(maxsize=128)
def is_volume(directory: str) -> bool:
    """Whether a directory is that of an embedded volume."""
    return os.path.isfile(os.path.join(directory, TABLE_FILE))


def _need_no_volume(text: str) -> None:
    """Raise InvalidArgumentError for a path in the default volume that is also the path of an
    embedded volume."""
    found = volume_directory(text)
    if found is not None:
        directory, path = found
        raise InvalidArgumentError(
            f"{directory} is the directory of an embedded volume: write {directory}:{path} for "
            f"that volume, :{text} for"
            " the path in the default volume",
            path=text,
        )


def _with_volume(text: str) -> Address | None:
    """An address with a scheme or `:/`."""
    from s3k_async.settings.locations import split_url

    scheme = _SCHEME.match(text)
    start = scheme.end() if scheme else 0
    if scheme and scheme[0].lower() != "file://":
        try:
            volume, path = split_url(text)
        except ConfigError as error:
            raise InvalidArgumentError(error.message, path=error.path) from error
        return Address(volume, path, text)
    divide = text.find(":/", start)
    if divide >= 0:
        return Address(text[:divide] or None, text[divide + 1 :], text)
    return Address(text, "/", text) if scheme else None
