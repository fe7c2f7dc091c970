"""Attributes of entries in the fsspec adapter: mode, owner, and user metadata as s3fs has it."""

from __future__ import annotations

from collections.abc import Mapping
from stat import S_IMODE
from typing import Any

from s3k_async.adapters.fsspec_base import blocking
from s3k_async.adapters.fsspec_listing import status_of
from s3k_async.adapters.fsspec_reading import ReadableFileSystem
from s3k_async.errors import ArgumentTypeError

__all__ = ["AttributedFileSystem"]


class AttributedFileSystem(ReadableFileSystem):
    """Lookups and reads, and the attributes of entries.

    `chmod` and `chown` have the arguments of fsspec's local filesystem and of `os`; `metadata`,
    `getxattr` and `setxattr` those of s3fs. Mode and owner are enforced in a volume with the
    feature `permissions` only. A transaction cannot set them.
    """

    async def _chmod(self, path: str, mode: int) -> None:
        """Set the permission bits. File type bits, as in a mode of `stat`, have no effect.

        Raises PathNotFoundError, ArgumentTypeError, PermissionDeniedError (the root),
        UnsupportedError (a volume without attributes, a transaction).
        """
        if not isinstance(mode, int):
            raise ArgumentTypeError(f"the mode is a number, not {mode!r}", path=str(path))
        await self._set_attributes(path, mode=S_IMODE(mode))

    async def _chown(self, path: str, uid: int | None = None, gid: int | None = None) -> None:
        """Set the ids of owner and group; None or -1 leaves one as it is. Raises as `chmod`, and
        InvalidArgumentError (an id out of range)."""
        owner, group = (None if each == -1 else each for each in (uid, gid))
        await self._set_attributes(path, uid=owner, gid=group)

    async def _metadata(self, path: str, refresh: bool = False, **kwargs: Any) -> dict[str, str]:
        """The user metadata, by name, from a strongly consistent read.

        Bytes that are not UTF-8 are escaped as in `os.fsdecode`, so that `setxattr` sets the same
        value. Raises PathNotFoundError.
        """
        del refresh
        status = await status_of(await self._client(), self._strip_protocol(path))
        metadata = status.attributes.metadata
        return {name: metadata[name].decode(errors="surrogateescape") for name in sorted(metadata)}

    async def _getxattr(self, path: str, attr_name: str, **kwargs: Any) -> str | None:
        """A value of the user metadata, None without it. Raises PathNotFoundError."""
        return (await self._metadata(path, **kwargs)).get(attr_name)

    async def _setxattr(
        self, path: str, copy_kwargs: Mapping[str, Any] | None = None, **kw_args: str | bytes | None
    ) -> None:
        """Set user metadata, values by name, in one change; None removes one, and the others are
        kept. `copy_kwargs` has no effect, since nothing is copied.

        Raises as `chmod`, and InvalidArgumentError (an invalid name, more than 4 KiB).
        """
        del copy_kwargs
        await self._set_attributes(
            path, metadata={name: _encoded(value, path) for name, value in kw_args.items()}
        )

    async def _set_attributes(self, path: str, **attributes: Any) -> None:
        path = self._strip_protocol(path)
        try:
            await (await self._changes()).set_attributes(path, **attributes)
        finally:
            self.invalidate_cache(path)

    # Blocking forms

    chmod = blocking(_chmod)
    chown = blocking(_chown)
    metadata = blocking(_metadata)
    getxattr = blocking(_getxattr)
    setxattr = blocking(_setxattr)


def _encoded(value: object, path: str) -> bytes | None:
    """The bytes of a value of s3fs. Raises ArgumentTypeError."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode(errors="surrogateescape")
    raise ArgumentTypeError(f"a metadata value is text, not {type(value).__name__}", path=str(path))
