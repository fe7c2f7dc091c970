"""Permission, owner, times and extended attributes with Hadoop's methods."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final

from s3k_async._core.worker_threads import in_thread
from s3k_async.adapters.hadoop.path_resolution import PathResolution
from s3k_async.attributes import AttributeChange, check_name
from s3k_async.bulk.entry_attributes import set_attributes
from s3k_async.client import volume_of
from s3k_async.errors import InvalidArgumentError, MetadataNotFoundError, PermissionDeniedError
from s3k_async.model import FileStatus
from s3k_async.permissions import EXECUTE, READ, WRITE

__all__ = ["FileAttributes", "FsAction", "XAttrSetFlag"]

USER: Final = "user"
"""The namespace of extended attributes that users have: they are the user metadata of entries."""
_OTHERS: Final = frozenset({"trusted", "security", "system", "raw"})


class FsAction(enum.Flag):
    """What `access` asks for, by its bits of POSIX."""

    NONE = 0
    EXECUTE = EXECUTE
    """Of a directory: to search it."""
    WRITE = WRITE
    READ = READ


class XAttrSetFlag(enum.Flag):
    """Flags of `set_xattr`."""

    CREATE = enum.auto()
    """Set a name that the entry does not have yet."""
    REPLACE = enum.auto()
    """Set a name that the entry has."""


_EITHER: Final = XAttrSetFlag.CREATE | XAttrSetFlag.REPLACE


class FileAttributes(PathResolution):
    """What entries of a volume have beside content and place. All changes are atomic.

    They raise PathNotFoundError, PermissionDeniedError (the root), UncommittedFileError, and
    UnsupportedError (a volume without the feature `attributes`).
    """

    async def access(self, path: str, mode: FsAction) -> None:
        """Raise PermissionDeniedError unless all actions are permitted: by the mode bits, if the
        volume evaluates them, and by read-only. Raises PathNotFoundError."""
        volume = volume_of(self._client)
        with volume.calls.running("access", path):
            entry = await volume.store.lookup(self._local(path))
            volume.store.access.require(entry, mode.value)
            if FsAction.WRITE in mode:
                volume.store.refuse_read_only(entry)

    async def set_permission(self, path: str, permission: int) -> None:
        """Set the permission bits, to 0o7777. Raises InvalidArgumentError."""
        await self._client.set_attributes(self._local(path), mode=permission)

    async def set_owner(self, path: str, username: str | None, groupname: str | None) -> None:
        """Set owner and group, of which None leaves one as it is: names of this machine, or
        numbers.

        Entries have ids: another machine shows the names that it has for them. Raises
        InvalidArgumentError (neither is given, an unknown name, a number out of range).
        """
        local = self._local(path)
        if username is None and groupname is None:
            raise InvalidArgumentError("neither an owner nor a group is given", path=local)
        uid, gid = await in_thread(self._ids, username, groupname, local)
        await self._client.set_attributes(local, uid=uid, gid=gid)

    async def set_times(self, path: str, modification_time: int, access_time: int) -> None:
        """Set the modification time, epoch milliseconds; -1 leaves it as it is. There is no access
        time: `access_time` has no effect.

        Raises InvalidArgumentError (another negative time), PermissionDeniedError (a read-only
        entry).
        """
        local = self._local(path)
        if modification_time < -1:
            raise InvalidArgumentError(f"the time {modification_time} is negative", path=local)
        if modification_time == -1:
            await self._client.stat(local)
            return
        await self._client.set_attributes(local, mtime_ms=modification_time)

    # Extended attributes

    async def set_xattr(
        self, path: str, name: str, value: bytes | None, flags: XAttrSetFlag = _EITHER
    ) -> None:
        """Set an extended attribute; None is the empty value.

        `name`: namespace and name, `user.x`. Without REPLACE it must not exist, without CREATE it
        must. Raises MetadataExistsError, MetadataNotFoundError, InvalidArgumentError (an invalid
        name, no flag, more than 4 KiB of attributes), PermissionDeniedError (another namespace).
        """
        local = self._local(path)
        inside = _user_name(name, local)
        if not flags:
            raise InvalidArgumentError("neither CREATE nor REPLACE is given", path=local)
        names = frozenset({inside})
        none: frozenset[str] = frozenset()
        change = AttributeChange(
            metadata={inside: value or b""},
            present=none if XAttrSetFlag.CREATE in flags else names,
            absent=none if XAttrSetFlag.REPLACE in flags else names,
        )
        await self._change(local, change)

    async def get_xattr(self, path: str, name: str) -> bytes:
        """The value of an extended attribute. Raises MetadataNotFoundError, InvalidArgumentError
        (an invalid name), PermissionDeniedError (another namespace)."""
        (value,) = (await self.get_xattrs(path, [name])).values()
        return value

    async def get_xattrs(self, path: str, names: Iterable[str] | None = None) -> dict[str, bytes]:
        """Extended attributes, values by name: all, or those that are named, of which all must
        exist. Raises as `get_xattr`, and InvalidArgumentError for no names."""
        local = self._local(path)
        wanted = None if names is None else [_user_name(name, local) for name in names]
        if wanted is not None and not wanted:
            raise InvalidArgumentError("no names of extended attributes", path=local)
        metadata = (await self._client.stat(local)).attributes.metadata
        for name in wanted or ():
            if name not in metadata:
                raise MetadataNotFoundError(f"the entry has no metadata {name!r}", path=local)
        return {f"{USER}.{name}": metadata[name] for name in wanted or sorted(metadata)}

    async def list_xattrs(self, path: str) -> list[str]:
        """The names of all extended attributes, sorted. Raises PathNotFoundError."""
        return list(await self.get_xattrs(path))

    async def remove_xattr(self, path: str, name: str) -> None:
        """Remove an extended attribute. Raises as `get_xattr`."""
        local = self._local(path)
        inside = _user_name(name, local)
        change = AttributeChange(metadata={inside: None}, present=frozenset({inside}))
        await self._change(local, change)

    # Internals

    async def _change(self, local: str, change: AttributeChange) -> None:
        volume = volume_of(self._client)
        with volume.calls.running("set_attributes", local):
            await set_attributes(volume, local, change)

    def _ownership(self, status: FileStatus) -> tuple[int | None, str, str]:
        """The mode, None if there is none, and the names of owner and group. In a volume that
        evaluates permissions, those that count."""
        attributes, access = status.attributes, volume_of(self._client).store.access
        mode, uid, gid = attributes.mode, attributes.uid, attributes.gid
        if access.is_evaluated:
            own = access.of_status(status)
            mode, uid, gid = own.mode, own.uid, own.gid
        return mode, self._accounts.user(uid), self._accounts.group(gid)

    def _ids(
        self, username: str | None, groupname: str | None, local: str
    ) -> tuple[int | None, int | None]:
        return (
            None if username is None else self._accounts.uid(username, local),
            None if groupname is None else self._accounts.gid(groupname, local),
        )


def _user_name(name: str, local: str) -> str:
    """The name of user metadata for that of an extended attribute. The namespace is not
    case-sensitive. Raises InvalidArgumentError, PermissionDeniedError."""
    namespace, dot, inside = name.partition(".")
    if namespace.lower() in _OTHERS and dot:
        raise PermissionDeniedError(
            f"{name!r} is not in the namespace {USER!r} of extended attributes", path=local
        )
    if namespace.lower() != USER or not dot:
        raise InvalidArgumentError(
            f"the name {name!r:.100} of an extended attribute does not begin with 'user.'",
            path=local,
        )
    check_name(inside, local)
    return inside
