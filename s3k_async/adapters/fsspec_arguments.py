"""Arguments of fsspec's methods: URLs and paths of a volume, depths, modes, ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import index
from types import MethodType
from typing import Any, Final, SupportsIndex, TypeAlias

from fsspec.caching import caches
from fsspec.utils import stringify_path

from s3k_async import _native
from s3k_async.errors import ArgumentTypeError, InvalidArgumentError
from s3k_async.model import ROOT

__all__ = [
    "Range",
    "Stripping",
    "block_size_of",
    "is_related",
    "need_depth",
    "overwrites",
    "ranges_of",
    "split",
    "texts",
]

SCHEME = "s3k://"
BLOCK_CACHES: Final = ("background", "blockcache", "mmap")
"""fsspec's caches that divide a file into blocks."""

Range: TypeAlias = tuple[int | None, int | None]
"""Start and end of some bytes, as in a slice."""


def split(path: object) -> tuple[str, str]:
    """The volume of a URL (empty: none), and the normalised path in it. Raises InvalidPathError."""
    text: object = stringify_path(path)
    if not isinstance(text, str):
        raise ArgumentTypeError(f"a path is text, not {type(text).__name__}", path=repr(path))
    volume = ""
    if text[: len(SCHEME)].lower() == SCHEME:
        volume, _, text = text[len(SCHEME) :].partition("/")
    return volume, _native.normalize(f"/{text}")


class Stripping:
    """Decorator of `_strip_protocol`. On the class, which fsspec calls before there is an object,
    it strips any volume; an object refuses the URLs of other volumes, so that
    `fs.rm("s3k://other/x")` never removes its own `/x`."""

    def __init__(self, method: Callable[[Any, Any], Any]) -> None:
        self._method = method

    def __get__(self, fs: Any, cls: type[Any]) -> Any:
        return _stripped if fs is None else MethodType(self._method, fs)


def _stripped(path: Any) -> Any:
    return [_stripped(each) for each in path] if isinstance(path, list) else split(path)[1]


def texts(paths: Any) -> Any:
    """A path as text, or a list of them."""
    return (
        stringify_path(paths)
        if not isinstance(paths, list | tuple | set)
        else [stringify_path(p) for p in paths]
    )


def is_related(known: str, changed: str) -> bool:
    """Whether a directory is at or below a path, or above it."""
    return f"{known.rstrip('/')}/".startswith(
        f"{changed.rstrip('/')}/"
    ) or f"{changed}/".startswith(ROOT if known == ROOT else f"{known}/")


def need_depth(maxdepth: int | None) -> None:
    """Raise InvalidArgumentError for a depth below 1."""
    if maxdepth is not None and maxdepth < 1:
        raise InvalidArgumentError("maxdepth must be at least 1")


def block_size_of(block_size: object, cache_type: str) -> int | None:
    """The block size of a file that is read through one of fsspec's caches, which accept any value
    and return wrong bytes for a negative one; None for the default.

    Raises InvalidArgumentError, also for an unknown cache, and ArgumentTypeError.
    """
    if cache_type not in caches:
        known = ", ".join(sorted(filter(None, caches)))
        raise InvalidArgumentError(f"the cache is one of {known}, not {cache_type!r}")
    if block_size is None or block_size == "default":
        return None
    if isinstance(block_size, float) and block_size.is_integer():
        block_size = int(block_size)
    if not isinstance(block_size, SupportsIndex):
        raise ArgumentTypeError(f"a block size is a number of bytes, not {block_size!r}")
    size = index(block_size)
    least = 1 if cache_type in BLOCK_CACHES else 0
    if size < least:
        raise InvalidArgumentError(f"the block size of cache {cache_type} is {least} or more bytes")
    return size


def overwrites(mode: str) -> bool:
    """Whether `pipe` and `put` replace existing files. Raises InvalidArgumentError."""
    if mode not in ("overwrite", "create"):
        raise InvalidArgumentError(f"the mode is overwrite or create, not {mode!r}")
    return mode == "overwrite"


def ranges_of(paths: object, starts: Any, ends: Any) -> list[Range]:
    """One range for each path. Raises ArgumentTypeError (no list of paths), InvalidArgumentError
    (different numbers)."""
    if not isinstance(paths, list):
        raise ArgumentTypeError(f"expected a list of paths, not {type(paths).__name__}")
    begins = list(starts) if isinstance(starts, Iterable) else [starts] * len(paths)
    stops = list(ends) if isinstance(ends, Iterable) else [ends] * len(paths)
    if not len(begins) == len(stops) == len(paths):
        raise InvalidArgumentError("starts and ends must have one value for each path")
    return list(zip(begins, stops, strict=True))
