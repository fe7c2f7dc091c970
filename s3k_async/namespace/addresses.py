"""Paths as callers give them: text or path-like objects, relative to an open volume or with the
volume's URL."""

from __future__ import annotations

import os
from typing import TypeAlias

from s3k_async.backends.url_parts import TABLE_FILE
from s3k_async.errors import ArgumentTypeError, CrossVolumeError

__all__ = ["SCHEME", "TABLE_FILE", "Path", "inside"]

Path: TypeAlias = str | os.PathLike[str]
"""`/a/b`, `a/b` (below the root) or `s3k://<volume>/a/b`."""

SCHEME = "s3k://"


def inside(path: Path, volume: str) -> str:
    """The path without the volume's URL. Raises ArgumentTypeError, CrossVolumeError (the URL of
    another volume)."""
    text: object = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise ArgumentTypeError(f"a path is text, not {type(text).__name__}", path=repr(text))
    if text[: len(SCHEME)].lower() != SCHEME:
        return text
    name, _, rest = text[len(SCHEME) :].partition("/")
    if name != volume:
        raise CrossVolumeError(f"the path is not in the volume {volume!r}", path=text)
    return f"/{rest}"
