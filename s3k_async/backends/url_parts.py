"""Parsing of paths and names in locations of settings."""

from __future__ import annotations

import os
from typing import Final
from urllib.parse import unquote

from s3k_async.errors import ConfigError

__all__ = ["TABLE_FILE", "absolute_path", "file_url_path", "single_name"]

TABLE_FILE: Final = "metadata.sqlite"
"""File name of the table in an embedded volume's directory."""


def absolute_path(path: str, base: str | None) -> str:
    """The absolute path of a file or directory: below `base`, else the working directory. Raises
    ConfigError."""
    if not path or "\0" in path:
        raise ConfigError("a directory's path is not empty and has no NUL", path=repr(path))
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise ConfigError("a directory's path has to be text in UTF-8", path=ascii(path)) from error
    return os.path.abspath(os.path.join(base or "", os.path.expanduser(path)))


def file_url_path(url: str) -> str:
    """The path in a URL `file:///path`. Raises ConfigError."""
    host, slash, path = url.partition("://")[2].partition("/")
    if host not in ("", "localhost") or not slash:
        raise ConfigError("a file URL is file:///absolute/path", path=url)
    return absolute_path(unquote(f"/{path}"), None)


def single_name(name: str, text: str) -> str:
    """The name in a setting, without a `/` at its end. Raises ConfigError, about the whole `text`,
    if it is missing."""
    if not name.strip("/") or name != name.strip():
        raise ConfigError("the name is missing", path=text)
    return name.rstrip("/")
