"""`UPath("s3k://lake/raw")`: paths of a volume for universal-pathlib, registered by an entry
point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from glob import escape, has_magic
from typing import Any, Self

from fsspec.registry import get_filesystem_class
from upath import UPath
from upath.types import JoinablePathLike, WritablePathLike

from s3k_async.adapters.fsspec_arguments import SCHEME, split
from s3k_async.errors import CrossVolumeError

__all__ = ["S3kPath"]


class S3kPath(UPath):
    """A path in a volume. Storage options are those of `S3kFileSystem`; the volume is one of them.

    Differences from other paths of universal-pathlib: `str` gives the URL with the volume, a path
    or URL of another volume raises CrossVolumeError, `move` within a volume is a rename, and
    `*`, `?` and `[` in a path are text, as in pathlib: only arguments of `glob` are patterns.
    """

    __slots__ = ()

    @classmethod
    def _transform_init_args(
        cls, args: tuple[JoinablePathLike, ...], protocol: str, storage_options: dict[str, Any]
    ) -> tuple[tuple[JoinablePathLike, ...], str, dict[str, Any]]:
        get_filesystem_class("s3k")  # universal-pathlib parses URLs by fsspec's loaded classes
        if args:
            options = _merged(args[0], storage_options)
            for arg in args[1:]:
                _refuse_others(arg, options)
        return super()._transform_init_args(args, protocol, storage_options)

    def __str__(self) -> str:
        name = _name(self.storage_options)
        return (
            super().__str__()
            if name is None or not self.is_absolute()
            else f"{SCHEME}{name}{self.path}"
        )

    def rename(self, target: WritablePathLike, **options: Any) -> Self:
        """Atomic; a file at the target is replaced. Raises CrossVolumeError."""
        _refuse_others(target, self.storage_options)
        if not has_magic(self.path) or not isinstance(target, str | S3kPath):
            return super().rename(target, **options)
        if isinstance(target, str):
            if not target.startswith(("/", SCHEME)):
                return super().rename(target, **options)  # refused
            target = self.with_segments(target)
        place = target.absolute()
        self.fs.mv([self.absolute().path], [place.path])  # lists are no patterns
        return type(self)(place)

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the file. Raises FileNotFoundError (not `missing_ok`), IsADirectoryError."""
        try:
            self.fs.rm(self.path, assume_literal=True)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rmdir(self, recursive: bool = True) -> None:
        """Remove the directory, with `recursive` its contents, too. Raises NotADirectoryError,
        DirectoryNotEmptyError."""
        if not self.is_dir():
            raise NotADirectoryError(str(self))
        if recursive:
            self.fs.rm(self.path, recursive=True, assume_literal=True)
        else:
            self.fs.rmdir(self.path)

    def glob(self, pattern: str, **options: Any) -> Iterator[Self]:
        """As pathlib's."""
        if has_magic(self.path):
            return self._matches(pattern)
        return super().glob(pattern, **options)

    def rglob(self, pattern: str, **options: Any) -> Iterator[Self]:
        """As pathlib's."""
        if has_magic(self.path):
            return self._matches(f"**/{pattern}")
        return super().rglob(pattern, **options)

    def _matches(self, pattern: str) -> Iterator[Self]:
        base = self.absolute().path
        inside = self.joinpath(pattern).absolute().path.removeprefix(base)
        for name in self.fs.glob(escape(base) + inside):
            yield self.joinpath(name.removeprefix(base).removeprefix("/"))

    def move(self, target: Any, **options: Any) -> Any:
        """`rename` within the volume; to other places a copy, then a deletion of the copied
        entries.

        Entries changed meanwhile are kept. Raises IsADirectoryError, ConflictError (a file was
        changed meanwhile), DirectoryNotEmptyError.
        """
        if not isinstance(target, S3kPath) or options:
            return self._copied_and_removed(target, options)
        if target.is_dir():
            raise IsADirectoryError(str(target))
        if target.fs == self.fs:
            return self.rename(target)
        if target.exists() and target.fs.info(target.path)["id"] == self.fs.info(self.path)["id"]:
            # the same file under another name of its volume: a copy and a deletion would lose it
            return target
        return self._copied_and_removed(target, {})

    def _copied_and_removed(self, target: Any, options: dict[str, Any]) -> Any:
        seen = self.fs.run_blocking(lambda: self.fs.tree_at(self.path))
        copied = self.copy(target, **options)
        self.fs.run_blocking(lambda: self.fs.remove_unchanged(seen))
        return copied


def _name(options: Mapping[str, Any]) -> str | None:
    """The volume's name, if storage options have it without the configuration."""
    volume = str(options.get("volume", ""))
    name: str | None = options.get("name")
    return volume.removeprefix(SCHEME) if name is None and volume.startswith(SCHEME) else name


def _merged(first: JoinablePathLike, options: Mapping[str, Any]) -> dict[str, Any]:
    """The storage options for a path that begins with `first`. Raises CrossVolumeError."""
    if isinstance(first, S3kPath):
        return {**first.storage_options, **options}
    if not isinstance(first, str) or not first.startswith(SCHEME):
        return dict(options)
    volume, _ = split(first)
    if not volume:
        return dict(options)
    if _name(options) not in (None, volume):
        raise CrossVolumeError(f"the path is not in the volume {_name(options)!r}", path=first)
    return {"name": volume, **options}


def _refuse_others(path: WritablePathLike | JoinablePathLike, options: Mapping[str, Any]) -> None:
    """Raises CrossVolumeError for a path or URL of a volume other than that of the storage
    options."""
    if isinstance(path, S3kPath):
        if (
            path.is_absolute()
            and path.storage_options != options
            and path.fs != _filesystem(options)
        ):
            raise CrossVolumeError("the path is not in this volume", path=str(path))
    elif isinstance(path, str) and path.startswith(SCHEME):
        volume, _ = split(path)
        if volume and volume != (own := _filesystem(options).volume):
            raise CrossVolumeError(f"the path is not in the volume {own!r}", path=path)


def _filesystem(options: Mapping[str, Any]) -> Any:
    return get_filesystem_class("s3k")(**options)
