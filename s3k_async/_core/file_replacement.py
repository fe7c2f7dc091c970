"""Checks that a rename may replace a local file."""

from __future__ import annotations

import os
import stat

from s3k_async._core.os_errors import os_errors
from s3k_async.errors import InvalidPathError, IsDirectoryError, UnsupportedError

__all__ = ["replaceable"]


def replaceable(path: str, *, hint: str = "") -> str:
    """The path at which a file for `path` is created or replaced: the target of links, so that they
    are kept. Blocking.

    Raises IsDirectoryError, InvalidPathError (a link leads to itself), and UnsupportedError for a
    device, a pipe or a socket, which a rename would destroy; `hint` is the remedy.
    """
    place = os.path.realpath(path) if os.path.islink(path) else path
    with os_errors(path):
        try:
            mode = os.lstat(place).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return place
    if stat.S_ISDIR(mode):
        raise IsDirectoryError("a local directory is not replaced by a file", path=path)
    if stat.S_ISLNK(mode):
        raise InvalidPathError("the local link leads to itself", path=path)
    if not stat.S_ISREG(mode):
        raise UnsupportedError(
            f"a device, a pipe or a socket is not replaced by a file{hint and '; '}{hint}",
            path=path,
        )
    return place
