"""File access permissions of POSIX: an identity, the owner and mode of an entry, and the class of
mode bits that applies.

IEEE Std 1003.1, section 4.7 ("File Access Permissions"): of the three classes owner, group and
other exactly one applies, the first that matches, even if a later one has more bits. Values that an
entry does not have are those of the superuser in the permissions guide of HDFS: owner and group 0,
mode 0755 of a directory and 0644 of a file.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Self

from s3k_async.attributes import Attributes
from s3k_async.errors import PermissionDeniedError
from s3k_async.model import Entry

__all__ = [
    "DIRECTORY_MODE",
    "EXECUTE",
    "FILE_MODE",
    "NO_OWNER",
    "READ",
    "SUPERUSER",
    "WRITE",
    "Identity",
    "Ownership",
    "created",
    "require_change",
    "rewritten",
]

READ: Final = 4
WRITE: Final = 2
EXECUTE: Final = 1
"""Of a directory: to search it, that is, to resolve a path below it."""
SUPERUSER: Final = 0
"""The uid to which no mode bits apply."""
DIRECTORY_MODE: Final = 0o755
FILE_MODE: Final = 0o644
"""Modes of new entries, 0777 and 0666 without the bits of the umask 022, and of those that have
none."""
_NAMES: Final = {READ: "read", WRITE: "write", EXECUTE: "search"}


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom a client acts for."""

    uid: int
    gids: tuple[int, ...]
    """The groups, of which new entries get the first one."""

    @property
    def is_superuser(self) -> bool:
        """Whether mode bits and owners do not apply."""
        return self.uid == SUPERUSER

    @property
    def gid(self) -> int:
        """The group of new entries; without any, that of the superuser."""
        return self.gids[0] if self.gids else SUPERUSER

    @classmethod
    def of(cls, uid: int | None, gids: tuple[int, ...] | None) -> Self:
        """The identity of these ids; for None, the effective ones of the process, its primary group
        first."""
        if gids is None:
            first = os.getegid()
            gids = (first, *(each for each in os.getgroups() if each != first))
        return cls(os.geteuid() if uid is None else uid, gids)


@dataclass(frozen=True, slots=True)
class Ownership:
    """Owner, group and mode of an entry."""

    uid: int
    gid: int
    mode: int

    @classmethod
    def of(cls, entry: Entry) -> Ownership:
        """That of an entry other than the root."""
        return _owned(entry.attributes, entry.is_dir)

    @classmethod
    def of_attributes(cls, attributes: Attributes, *, is_dir: bool) -> Ownership:
        """That of an entry with these attributes."""
        default = DIRECTORY_MODE if is_dir else FILE_MODE
        mode = default if attributes.mode is None else attributes.mode
        return cls(attributes.uid or SUPERUSER, attributes.gid or SUPERUSER, mode)

    @property
    def is_sticky(self) -> bool:
        """Whether only owners may remove or rename entries in the directory."""
        return bool(self.mode & stat.S_ISVTX)

    def allows(self, identity: Identity, wanted: int) -> bool:
        """Whether an identity has all of the wanted bits."""
        if identity.is_superuser:
            return True
        if identity.uid == self.uid:
            bits = self.mode >> 6
        elif self.gid in identity.gids:
            bits = self.mode >> 3
        else:
            bits = self.mode
        return bits & wanted == wanted

    def is_owner(self, identity: Identity) -> bool:
        """Whether an identity may do what is reserved to the owner."""
        return identity.uid in (self.uid, SUPERUSER)

    def refusal(
        self, identity: Identity, wanted: int, path: str, what: str
    ) -> PermissionDeniedError:
        """The error of an identity without the wanted bits, which are needed to do `what`."""
        names = " and ".join(name for bit, name in _NAMES.items() if bit & wanted)
        return PermissionDeniedError(
            f"cannot {what}: user {identity.uid} has no permission to {names} {path} ({self}); its "
            "owner can grant it by s3k attr --mode",
            path=path,
        )

    def owner_only(self, identity: Identity, what: str, path: str) -> PermissionDeniedError:
        """The error of an identity that is not the owner."""
        return PermissionDeniedError(
            f"user {identity.uid} may not {what} ({self}); its owner, or uid 0, can do that",
            path=path,
        )

    def __str__(self) -> str:
        return f"mode {self.mode:04o}, owner {self.uid}, group {self.gid}"


NO_OWNER: Final = Ownership(SUPERUSER, SUPERUSER, DIRECTORY_MODE)
"""That of a directory without stored values."""


@lru_cache(maxsize=4096)
def _owned(attributes: str, is_dir: bool) -> Ownership:
    return Ownership.of_attributes(Attributes.from_json(attributes), is_dir=is_dir)


def created(identity: Identity, given: str, path: str, *, is_dir: bool) -> str:
    """The attributes of a new entry, in their stored form: those that are given, and owner, group
    and mode of its creator. Raises PermissionDeniedError for an owner or a group that only the
    superuser can give it."""
    wanted = Attributes.from_json(given)
    uid = identity.uid if wanted.uid is None else wanted.uid
    gid = identity.gid if wanted.gid is None else wanted.gid
    default = DIRECTORY_MODE if is_dir else FILE_MODE
    mode = default if wanted.mode is None else wanted.mode
    own = Ownership(identity.uid, identity.gid, mode)
    if uid != identity.uid and not identity.is_superuser:
        raise own.owner_only(identity, "create it for another owner", path)
    if gid not in (*identity.gids, identity.gid) and not identity.is_superuser:
        raise own.owner_only(identity, "create it for a group that the user is not in", path)
    return replace(wanted, uid=uid, gid=gid, mode=mode).to_json()


def rewritten(given: str, current: str) -> str:
    """The attributes of a file that is overwritten, in their stored form: read-only and metadata
    as given; it keeps owner, group and mode, as by `open` of POSIX."""
    kept = Attributes.from_json(current)
    wanted = Attributes.from_json(given)
    return replace(wanted, uid=kept.uid, gid=kept.gid, mode=kept.mode).to_json()


def require_change(identity: Identity, before: Entry, after: Entry) -> None:
    """Raise PermissionDeniedError unless an identity may change the attributes, the modification
    time or the content of an entry as given: its content with permission to write, as user metadata
    (the user namespace of extended attributes of Linux and HDFS), mode, time and read-only as its
    owner, the group as owner to one of the own groups, the owner as superuser."""
    if identity.is_superuser:
        return
    own = Ownership.of(before)
    old, new = Attributes.from_json(before.attributes), Attributes.from_json(after.attributes)
    is_owner, path = own.is_owner(identity), before.path
    if old.uid != new.uid:
        raise own.owner_only(identity, "change the owner, as only the superuser may", path)
    if old.gid != new.gid and not (is_owner and new.gid in identity.gids):
        raise own.owner_only(identity, f"change the group to {new.gid}", path)
    if old.mode != new.mode and not is_owner:
        raise own.owner_only(identity, "change the mode", path)
    if old.read_only != new.read_only and not is_owner:
        raise own.owner_only(identity, "change read-only", path)
    is_content = (before.physical, before.size) != (after.physical, after.size)
    if before.mtime_ms != after.mtime_ms and not is_content and not is_owner:
        raise own.owner_only(identity, "set the modification time", path)
    if old.metadata != new.metadata and before.is_dir and own.is_sticky and not is_owner:
        raise own.owner_only(identity, "change metadata of a sticky directory", path)
    if (is_content or old.metadata != new.metadata) and not own.allows(identity, WRITE):
        raise own.refusal(identity, WRITE, path, "change it")
