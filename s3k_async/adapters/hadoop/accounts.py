"""Names of users and groups for ids, from the account database of this machine."""

from __future__ import annotations

import grp
import pwd
from collections.abc import Callable

from s3k_async.errors import InvalidArgumentError

__all__ = ["Accounts"]


class Accounts:
    """Users and groups of this machine. An id without a name has its number as name, as in
    `ls -l`; names found once are remembered."""

    def __init__(self, default: str) -> None:
        """`default`: owner and group of entries that have none."""
        self._default = default
        self._users: dict[int, str] = {}
        self._groups: dict[int, str] = {}

    def user(self, uid: int | None) -> str:
        """The name of a user; of none, the default."""
        return self._name(uid, self._users, lambda number: pwd.getpwuid(number).pw_name)

    def group(self, gid: int | None) -> str:
        """The name of a group; of none, the default."""
        return self._name(gid, self._groups, lambda number: grp.getgrgid(number).gr_name)

    def uid(self, name: str, path: str) -> int:
        """The id of a user, given by name or number. Raises InvalidArgumentError, with the path,
        for an unknown name."""
        return _id("user", name, path, lambda each: pwd.getpwnam(each).pw_uid)

    def gid(self, name: str, path: str) -> int:
        """The id of a group, as `uid`."""
        return _id("group", name, path, lambda each: grp.getgrnam(each).gr_gid)

    def _name(self, number: int | None, known: dict[int, str], find: Callable[[int], str]) -> str:
        if number is None:
            return self._default
        if number not in known:
            try:
                known[number] = find(number)
            except (KeyError, OverflowError):
                known[number] = str(number)
        return known[number]


def _id(kind: str, name: str, path: str, find: Callable[[str], int]) -> int:
    try:
        return find(name)
    except (KeyError, ValueError) as error:
        if name.isascii() and name.isdigit():
            return int(name)
        raise InvalidArgumentError(
            f"this machine has no {kind} {name!r}; its number is accepted, too", path=path
        ) from error
