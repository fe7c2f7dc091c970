"""Lifecycle rules: when files expire or become read-only, by their user metadata and by rules of
the directories above them, or of names within those.

A rule with a name prefix selects what begins with `<directory>/<prefix>`, as the prefix in a rule
of an S3 bucket does.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from s3k_async._native import normalize
from s3k_async.attributes import Attributes
from s3k_async.errors import ArgumentTypeError, InvalidArgumentError, InvalidPathError
from s3k_async.model import ROOT, Entry, Failure

__all__ = [
    "LIFECYCLE_NAMES",
    "ActionKind",
    "DueAction",
    "DueTime",
    "LifecycleRule",
    "RuleSet",
    "RulesResult",
    "check_name_prefix",
    "check_values",
]

EXPIRES_AT: Final = "ExpiresAt"
EXPIRES_AFTER: Final = "ExpiresAfter"
READ_ONLY_AFTER: Final = "ReadOnlyAfter"
LIFECYCLE_NAMES: Final = (EXPIRES_AT, EXPIRES_AFTER, READ_ONLY_AFTER)
"""The names of user metadata that rule one file: epoch seconds, and seconds since the last
modification (names of H3)."""
LATEST: Final = 253_402_300_799
"""The largest time, epoch seconds: the end of the year 9999."""
LONGEST: Final = 10**10
"""The largest age, seconds: more than three hundred years."""
_DECIMAL: Final = re.compile(rb"[0-9]{1,15}")
_LOG = logging.getLogger(__name__)

ActionKind: TypeAlias = Literal["expire", "read_only"]
"""`expire`: the file is deleted. `read_only`: it becomes read-only."""


@dataclass(frozen=True, slots=True)
class LifecycleRule:
    """What happens to the files below a directory. The rule belongs to the path, which need not
    exist, and not to the directory that is there."""

    path: str
    """The directory."""
    expire_at: int | None = None
    """When all of the files are deleted, epoch seconds."""
    expire_after: int | None = None
    """How long after its last modification a file is deleted, seconds."""
    read_only_after: int | None = None
    """How long after its last modification a file becomes read-only, seconds."""
    name_prefix: str = ""
    """Restricts the rule to the files in the directory whose names begin with this text, and to the
    files below the directories in it whose names do."""

    def checked(self) -> LifecycleRule:
        """The same rule. Raises ArgumentTypeError (a name prefix that is no text),
        InvalidArgumentError (values out of range, a rule without any, a name prefix that no name
        begins with)."""
        check_name_prefix(self.name_prefix, self.path)
        if (self.expire_at, self.expire_after, self.read_only_after) == (None, None, None):
            raise InvalidArgumentError(
                "a rule needs expire_at, expire_after or read_only_after", path=self.path
            )
        limits = (
            ("expire_at", self.expire_at, LATEST),
            ("expire_after", self.expire_after, LONGEST),
            ("read_only_after", self.read_only_after, LONGEST),
        )
        for name, value, largest in limits:
            if value is not None and not (type(value) is int and 1 <= value <= largest):
                raise InvalidArgumentError(
                    f"{name} is a number of seconds from 1 to {largest:,}, not {value!r}",
                    path=self.path,
                )
        return self


@dataclass(frozen=True, slots=True)
class DueTime:
    """An action on a file, and its time."""

    time_ms: int
    """Epoch milliseconds."""
    action: ActionKind
    by_metadata: bool = False
    """Whether the file's own metadata says so, wherever the file is."""


@dataclass(frozen=True, slots=True)
class DueAction:
    """An action that is due on a file."""

    path: str
    action: ActionKind
    due_ms: int
    """Since when it is due, epoch milliseconds."""


@dataclass(frozen=True, slots=True)
class RulesResult:
    """The result of a run of the rules."""

    expired: int = 0
    """Files that were deleted."""
    read_only: int = 0
    """Files that became read-only."""
    stale: int = 0
    """Items of the due index that were removed since nothing is due for them any more."""
    scanned: int = 0
    """Directories that were listed, to find files that no client had put into the due index."""
    failures: tuple[Failure, ...] = ()
    unlisted: int = 0
    """The number of further failures; only the first are listed."""

    @property
    def failed(self) -> int:
        """The number of failures, listed or not."""
        return len(self.failures) + self.unlisted


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules of a volume. For each action, the metadata of a file comes first, then the nearest
    rule for the action: of the nearest directory, and there the one with the longest name prefix.
    """

    rules: Mapping[str, Sequence[LifecycleRule]] = field(default_factory=dict)
    """By the path of the directory, longer name prefixes first."""

    @classmethod
    def of(cls, rules: Iterable[LifecycleRule]) -> RuleSet:
        """The set of some rules."""
        found: dict[str, list[LifecycleRule]] = {}
        for rule in sorted(rules, key=lambda each: -len(each.name_prefix)):
            found.setdefault(rule.path, []).append(rule)
        return cls(found)

    def __bool__(self) -> bool:
        return bool(self.rules)

    def relates_to(self, directory: str) -> bool:
        """Whether a rule can apply to something below a directory."""
        if not self.rules:
            return False
        if directory in self.rules or any(self._above(directory)):
            return True
        prefix = directory if directory == ROOT else directory + "/"
        return any(path.startswith(prefix) for path in self.rules)

    def next_due(self, entry: Entry) -> DueTime | None:
        """The next action on an entry, whether or not its time has come. None for directories, and
        for files that are being written."""
        found = self._due_times(entry)
        return min(found, key=lambda each: each.time_ms) if found else None

    def due_at(self, entry: Entry, now_ms: int) -> DueTime | None:
        """The action that is due on an entry; if both are, that it expires."""
        found = [each for each in self._due_times(entry) if each.time_ms <= now_ms]
        return found[0] if found else None

    def _due_times(self, entry: Entry) -> list[DueTime]:
        """The actions on an entry, the expiry first."""
        if entry.is_dir or not entry.committed:
            return []
        own = _own_values(entry) if entry.has_metadata else {}
        if not own and not self.rules:
            return []
        rules = list(self._above(entry.path)) if self.rules else []
        found = []
        expiry = self._expiry(entry, own, rules)
        if expiry is not None:
            found.append(expiry)
        if not entry.read_only:
            after = own.get(READ_ONLY_AFTER)
            by_metadata = after is not None
            if after is None:
                ages = (rule.read_only_after for rule in rules)
                after = next((age for age in ages if age is not None), None)
            if after is not None:
                found.append(DueTime(_after(entry, after), "read_only", by_metadata))
        return found

    def _expiry(
        self, entry: Entry, own: Mapping[str, int], rules: Iterable[LifecycleRule]
    ) -> DueTime | None:
        time = _earliest(own.get(EXPIRES_AT), own.get(EXPIRES_AFTER), entry)
        if time is not None:
            return DueTime(time, "expire", by_metadata=True)
        for rule in rules:
            time = _earliest(rule.expire_at, rule.expire_after, entry)
            if time is not None:
                return DueTime(time, "expire")
        return None

    def _above(self, path: str) -> Iterable[LifecycleRule]:
        """The rules of the directories above a path that select it, the nearest first."""
        while path.startswith(ROOT) and path != ROOT:
            above, _, name = path.rpartition("/")
            path = above or ROOT
            for rule in self.rules.get(path, ()):
                if name.startswith(rule.name_prefix):
                    yield rule


def check_name_prefix(prefix: str, path: str) -> None:
    """Raise ArgumentTypeError or InvalidArgumentError for a name prefix that no name in a directory
    begins with."""
    if not isinstance(prefix, str):
        raise ArgumentTypeError(f"a name prefix is text, not {type(prefix).__name__}", path=path)
    if prefix in ("", ".", ".."):
        return  # no names, but names begin with them
    try:
        is_name = "/" not in prefix and normalize(f"/{prefix}") == f"/{prefix}"
    except InvalidPathError as error:
        raise InvalidArgumentError(f"the name prefix: {error.message}", path=path) from error
    if not is_name:
        raise InvalidArgumentError(
            f"a name prefix is the start of a name, without `/`: {prefix!r:.80}", path=path
        )


def check_values(metadata: Mapping[str, bytes | None], path: str) -> None:
    """Raise InvalidArgumentError for values under the names of LIFECYCLE_NAMES that are no decimal
    numbers of seconds in range. A value of None removes a name."""
    for name in LIFECYCLE_NAMES:
        value = metadata.get(name)
        if value is not None and _seconds(name, value) is None:
            largest = LATEST if name == EXPIRES_AT else LONGEST
            raise InvalidArgumentError(
                f"the metadata {name} is a decimal number of seconds from 1 to {largest:,}, not "
                f"{value!r}",
                path=path,
            )


def _own_values(entry: Entry) -> dict[str, int]:
    """The seconds that the metadata of a file sets, by name; values that are no such numbers are
    ignored."""
    if not any(f'"{name}":' in entry.attributes for name in LIFECYCLE_NAMES):
        return {}
    metadata = Attributes.from_json(entry.attributes).metadata
    found = {}
    for name in LIFECYCLE_NAMES:
        value = metadata.get(name)
        if value is None:
            continue
        seconds = _seconds(name, value)
        if seconds is None:
            _LOG.warning("%s: the metadata %s is ignored: no number of seconds", entry.path, name)
        else:
            found[name] = seconds
    return found


def _seconds(name: str, value: bytes) -> int | None:
    """The number that a value is, if it is in range."""
    if _DECIMAL.fullmatch(bytes(value)) is None:
        return None
    seconds = int(value)
    return seconds if 1 <= seconds <= (LATEST if name == EXPIRES_AT else LONGEST) else None


def _earliest(at: int | None, after: int | None, entry: Entry) -> int | None:
    """The earlier of a time and of an age of a file, epoch milliseconds; None without both."""
    times = [] if at is None else [at * 1000]
    if after is not None:
        times.append(_after(entry, after))
    return min(times, default=None)


def _after(entry: Entry, seconds: int) -> int:
    return max(0, entry.mtime_ms + seconds * 1000)
