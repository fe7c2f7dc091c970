"""Remedies for errors in terms of commands and flags, which the library does not know."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

from s3k_async.errors import (
    DirectoryNotEmptyError,
    IsDirectoryError,
    PathExistsError,
    PathNotFoundError,
    S3kError,
    UnreachableError,
    VolumeExistsError,
    VolumeNotFoundError,
)
from s3k_async.namespace.addresses import TABLE_FILE

__all__ = ["remedy_for"]

_BY_COMMAND: Final[Mapping[tuple[str, type[S3kError]], str]] = {
    ("cat", IsDirectoryError): "s3k ls lists a directory, s3k get -r copies one",
    ("compact", IsDirectoryError): "-r compacts the files below it",
    ("cp", IsDirectoryError): "-r copies it and everything below it",
    ("head", IsDirectoryError): "s3k ls lists a directory",
    ("init", VolumeExistsError): "--exist-ok accepts one with the same settings",
    ("mkdir", PathExistsError): "-p accepts an existing directory",
    ("rm", DirectoryNotEmptyError): "-r removes it and everything below it",
    ("tail", IsDirectoryError): "s3k ls lists a directory",
    ("undelete", IsDirectoryError): "-r brings a directory back",
    ("undelete", PathExistsError): "--to brings it back at another path",
    ("touch", IsDirectoryError): "touch is for files",
}
_BY_MESSAGE: Final[Mapping[tuple[str | None, str], str]] = {
    ("cp", "a directory is at the path"): "",  # the target, where no object can be copied to
    ("mv", "a directory is at the path"): "",
    ("mv", "no such parent directory"): "s3k mkdir -p creates it",
    ("sync", "the target has a directory at the path"): "--delete removes it",
    ("sync", "the target has a file at the path"): "--delete removes it",
}
"""Before `_BY_COMMAND`."""
_CAPACITY: Final = (
    "s3k set-capacity VOLUME raises it, by --read-units and --write-units or by --on-demand"
)
_BY_BEGINNING: Final[Mapping[str, str]] = {
    "no usable credentials (NoCredentialsError)": "set AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY, or a profile (--profile); s3k doctor VOLUME shows what is missing",
    "the AWS settings cannot be used (NoRegionError)": "--region or AWS_REGION sets it",
    "requests exceed the table's throughput": _CAPACITY,
    "the service answered ProvisionedThroughputExceededException": _CAPACITY,
    "this is no physical key of a volume": "give it as s3k stat shows it, or a URI with its scheme",
}
"""By the beginning of the message, for every command."""
_AWS_HOST: Final = re.compile(r"no connection to [^ ]*\.amazonaws\.com\b")
_EXPANDING: Final = frozenset(
    (
        "append",
        "attr",
        "cat",
        "checksum",
        "compact",
        "count",
        "cp",
        "du",
        "find",
        "get",
        "head",
        "ls",
        "mv",
        "presign",
        "rm",
        "stat",
        "tail",
        "touch",
        "tree",
        "truncate",
        "verify",
        "versions",
    )
)
"""Commands that take patterns for paths (`path_patterns`)."""
_NO_VOLUME: Final = (
    "no volume is here",
    "the table has no volume",
    "the table is empty",
    "there is no such table",
    "no such table",
    "the table does not exist",
    "another client removed the volume",
)
"""How the errors begin that s3k init helps against: others are about a part of a volume."""
_PATTERN: Final = re.compile(r"[*?]|\[.+\]")


def remedy_for(error: BaseException, command: str | None) -> str:
    """The remedy for an error of a command; empty without one."""
    if isinstance(error, VolumeNotFoundError):
        return _for_volume(error)
    if isinstance(error, PathNotFoundError) and (remedy := _for_pattern(error, command)):
        return remedy
    if isinstance(error, S3kError) and (command, error.message) in _BY_MESSAGE:
        return _BY_MESSAGE[command, error.message]
    if isinstance(error, UnreachableError) and _AWS_HOST.match(error.message):
        return "--endpoint is for a service other than AWS"
    for beginning, remedy in _BY_BEGINNING.items():
        if isinstance(error, S3kError) and error.message.startswith(beginning):
            return remedy
    if isinstance(error, PathNotFoundError) and error.message == "no such directory in the trash":
        return "s3k trash ls lists the directories in it"
    for (name, kind), remedy in _BY_COMMAND.items():
        if name == command and isinstance(error, kind):
            return remedy
    return ""


def _for_pattern(error: PathNotFoundError, command: str | None) -> str:
    """The remedy for a path that looks like a pattern; empty for others."""
    name = (error.path or "").rpartition("/")[2]
    if not _PATTERN.search(name):
        return ""
    if error.message.startswith("no such local"):
        return "the shell expands patterns of local files, unless they are quoted"
    if command == "undelete":
        return "no deleted file matches the pattern; with -r it also matches directories"
    reason = "nothing matches the pattern" if command in _EXPANDING else "patterns are not expanded"
    return f"{reason}: s3k find PATH --name '{name}' lists matching paths below PATH"


def _for_volume(error: VolumeNotFoundError) -> str:
    if not error.message.startswith(_NO_VOLUME):
        return ""
    directory, name = os.path.split(error.path or "")
    if name != TABLE_FILE:
        return "s3k init creates one"
    found = _volume_above(directory)
    if found is not None:
        volume, path = found
        return f"for a path in the volume {_shown(volume)}, write {_shown(volume)}:/{path}"
    if os.path.isdir(directory) and os.listdir(directory):
        return f"s3k init {_shown(directory)} creates one, s3k fsck restore rebuilds a lost table"
    return f"s3k init {_shown(directory)} creates one"


def _volume_above(directory: str) -> tuple[str, str] | None:
    """The probable volume of a directory, or of a name with a `:`, and the path in it."""
    for divide in re.finditer("[/:]", directory):
        volume = directory[: divide.start()]
        if os.path.isfile(os.path.join(volume, TABLE_FILE)):
            return volume, directory[divide.end() :]
    return None


def _shown(directory: str) -> str:
    """A directory in the form of the command line."""
    relative = os.path.relpath(directory)
    return directory if relative.startswith("..") else f"./{relative}" if relative != "." else "."
