"""What an entry has beside its content and place: mode, owner, read-only and user metadata.

Their stored form has the time of their last change, too.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Self

from s3k_async.errors import (
    ArgumentTypeError,
    InvalidArgumentError,
    ItemFormatError,
    MetadataExistsError,
    MetadataNotFoundError,
    NameTooLongError,
)

__all__ = [
    "MAX_BYTES",
    "MAX_ID",
    "MAX_NAME",
    "NO_ATTRIBUTES",
    "AttributeChange",
    "Attributes",
    "check_name",
    "without_time",
]

MAX_BYTES: Final = 4 * 1024
"""Maximum bytes of all attributes of one entry, in their stored form without the time of their last
change: a hundred entries that have so many, and the most extents, fit into a transaction of
DynamoDB (4 MB)."""
_CHANGED: Final = "changed_ms"
"""The name of the time of the last change in the stored form."""
MAX_NAME: Final = 64
"""Maximum characters of the name of a metadata value (H3's limit)."""
_MODE: Final = 0o7777
MAX_ID: Final = 2**32 - 2
"""Greatest id of a user or group."""
_NOTHING: Final[Mapping[str, bytes]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Attributes:
    """Mode, owner, read-only and user metadata of a file or directory."""

    mode: int | None = None
    """Permission bits of POSIX, 0 to 0o7777; None if they were never set."""
    uid: int | None = None
    """Id of the owner; None if it was never set."""
    gid: int | None = None
    """Id of the group; None if it was never set."""
    read_only: bool = False
    """Whether the entry may not be changed, replaced, moved or deleted."""
    metadata: Mapping[str, bytes] = field(default_factory=lambda: _NOTHING)
    """User metadata, by name."""
    changed_ms: int | None = field(default=None, compare=False)
    """When they were changed last, epoch milliseconds; None if that was not recorded, as for those
    that an entry was created with. A call that is given attributes does not use it."""

    def __hash__(self) -> int:
        return hash(self._text(None))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_json, (self.to_json(),)

    def checked(self, path: str) -> Self:
        """The same attributes. Raises, with the path, ArgumentTypeError, and InvalidArgumentError
        for values out of range, invalid names, and more than MAX_BYTES together."""
        for what, number in (("mode", self.mode), ("uid", self.uid), ("gid", self.gid)):
            if isinstance(number, bool) or not isinstance(number, int | None):
                raise ArgumentTypeError(
                    f"a {what} is a number, not {type(number).__name__}", path=path
                )
        if not isinstance(self.read_only, bool):
            raise ArgumentTypeError(
                f"read-only is True or False, not {type(self.read_only).__name__}", path=path
            )
        if self.mode is not None and not 0 <= self.mode <= _MODE:
            raise InvalidArgumentError(f"the mode {self.mode} is not in 0 to 0o7777", path=path)
        for what, number in (("uid", self.uid), ("gid", self.gid)):
            if number is not None and not 0 <= number <= MAX_ID:
                raise InvalidArgumentError(f"the {what} {number} is out of range", path=path)
        for name, value in self.metadata.items():
            check_name(name, path)
            _check_value(name, value, path)
        if (size := len(self._text(None))) > MAX_BYTES:
            raise InvalidArgumentError(
                f"the attributes have {size} bytes, more than {MAX_BYTES}", path=path
            )
        return self

    def replaced_by(self, wanted: Attributes, now_ms: int) -> Attributes:
        """The wanted attributes, with the time of the change; these ones if they are the same."""
        return self if wanted == self else self.changed_to(wanted, now_ms)

    def changed_to(self, wanted: Attributes, now_ms: int) -> Attributes:
        """The wanted attributes, with the time of the change, which is never earlier than that of
        the former one, whatever the clock shows."""
        return replace(wanted, changed_ms=max(now_ms, self.changed_ms or 0))

    def last_change(self, modified_ms: int) -> int:
        """When the entry with these attributes was changed last, epoch milliseconds: its content,
        at `modified_ms`, or its attributes."""
        return max(modified_ms, self.changed_ms or modified_ms)

    def to_json(self) -> str:
        """The stored form: canonical JSON in ASCII, with metadata in base64; empty without any
        attribute."""
        return self._text(self.changed_ms)

    def _text(self, changed_ms: int | None) -> str:
        document: dict[str, object] = {
            name: value
            for name, value in (("gid", self.gid), ("mode", self.mode), ("uid", self.uid))
            if value is not None
        }
        if changed_ms is not None:
            document[_CHANGED] = changed_ms
        if self.read_only:
            document["read_only"] = True
        if self.metadata:
            document["metadata"] = {
                name: base64.b64encode(value).decode() for name, value in self.metadata.items()
            }
        if not document:
            return ""
        return json.dumps(document, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The attributes in their stored form. Raises ItemFormatError."""
        if not text:
            return cls()
        try:
            document = json.loads(text)
            metadata = {
                name: base64.b64decode(value, validate=True)
                for name, value in document.pop("metadata", {}).items()
            }
            return cls(**document, metadata=MappingProxyType(metadata) if metadata else _NOTHING)
        except (ValueError, TypeError, AttributeError, binascii.Error) as error:
            raise ItemFormatError("the attributes of an entry are damaged") from error


NO_ATTRIBUTES: Final = Attributes()


def without_time(text: str) -> str:
    """Attributes in their stored form without the time of their last change, as a new entry has
    them."""
    if f'"{_CHANGED}":' not in text:
        return text
    return replace(Attributes.from_json(text), changed_ms=None).to_json()


@dataclass(frozen=True, slots=True)
class AttributeChange:
    """What a call sets; None leaves a value as it is."""

    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    read_only: bool | None = None
    metadata: Mapping[str, bytes | None] | None = None
    """Values by name; None removes a name."""
    present: frozenset[str] = frozenset()
    """Names of metadata that the entry must have for the change to be made."""
    absent: frozenset[str] = frozenset()
    """Names of metadata that it must not have."""

    @classmethod
    def to(cls, attributes: Attributes) -> Self:
        """The change that sets all of these attributes, read-only too."""
        return cls(
            attributes.mode,
            attributes.uid,
            attributes.gid,
            attributes.read_only,
            attributes.metadata,
        )

    def of(self, attributes: Attributes, path: str) -> Attributes:
        """The changed attributes. Raises InvalidArgumentError, MetadataNotFoundError and
        MetadataExistsError, with the path."""
        self._check_names(attributes.metadata, path)
        given = {
            name: value
            for name in ("mode", "uid", "gid", "read_only")
            if (value := getattr(self, name)) is not None
        }
        if self.metadata is not None:
            for name, value in self.metadata.items():
                if value is not None:
                    _check_value(name, value, path)
            merged = {**attributes.metadata, **self.metadata}
            given["metadata"] = MappingProxyType(
                {name: bytes(value) for name, value in merged.items() if value is not None}
            )
        return replace(attributes, **given).checked(path)

    def _check_names(self, metadata: Mapping[str, bytes], path: str) -> None:
        for name in sorted(self.present - metadata.keys()):
            raise MetadataNotFoundError(f"the entry has no metadata {name!r}", path=path)
        for name in sorted(self.absent & metadata.keys()):
            raise MetadataExistsError(f"the entry already has metadata {name!r}", path=path)


def _check_value(name: object, value: object, path: str) -> None:
    """Raise ArgumentTypeError unless it is the value of user metadata."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise ArgumentTypeError(
            f"the metadata {name!r:.80} is bytes, not {type(value).__name__}", path=path
        )


def check_name(name: str, path: str) -> None:
    """Raise InvalidArgumentError, with the path, for a name that no metadata value can have."""
    if not isinstance(name, str):
        raise ArgumentTypeError(f"a metadata name is text, not {type(name).__name__}", path=path)
    if len(name) > MAX_NAME:
        raise NameTooLongError(
            f"a metadata name has at most {MAX_NAME} characters, not {len(name):,}", path=path
        )
    if not name or name.startswith("#"):
        raise InvalidArgumentError(
            f"the metadata name {name!r} is empty or begins with '#'", path=path
        )
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError("a metadata name is not valid UTF-8", path=path) from error
