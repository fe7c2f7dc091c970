"""Extents: a file's content as a list of ranges of physical objects.

Most files have one physical object, whose key is their physical name. A file that was appended to
or changed in place has the text of its extents instead:

    extents:<object id>:<extent>,<extent>...

    <start of a physical key>@0+<length>=<digest>~<tag>                all of an object
    <start of a physical key>@<offset in it>+<length>^<digest>~<tag>   a range of an object
    +<length>                                                          a hole: zeros

The extents are in the order of the content and leave no gap. The start of a physical key is its
first 36 characters; the rest, `.id=` and the object id, is the same for all: each physical object
belongs to one file. The digest, 32 hex
digits, is the XXH3 of 128 bits of the whole object, and the tag its entity tag; both are left out
where they are not known. A file without extents is empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from s3k_async._native import Xxh3_128, object_id_of
from s3k_async.errors import CorruptDataError, UnsupportedError
from s3k_async.model import Content
from s3k_async.storage.upload import CHECKSUM_PREFIX

__all__ = [
    "EMPTY",
    "EXTENTS",
    "Extent",
    "content_of",
    "cut",
    "extents_of",
    "format_extents",
    "has_extents",
    "is_stored",
    "joined",
    "object_of",
    "owner_of",
    "parse_extents",
    "physical_keys",
    "whole_object",
]

EXTENTS: Final = "extents:"
"""The start of a physical name that is a list of extents. No physical key and no URI has it."""
EMPTY: Final = CHECKSUM_PREFIX + Xxh3_128().hexdigest()
"""The checksum of no bytes."""
_UNIQUE: Final = 36
_EXTENT: Final = re.compile(
    rf"(?:(?P<unique>[^:,@+=]{{{_UNIQUE}}})@(?P<offset>0|[1-9]\d{{0,18}}))?"
    r"\+(?P<length>[1-9]\d{0,18})(?:(?P<part>[=^])(?P<digest>[0-9a-f]{32}))?"
    r"(?:~(?P<etag>[0-9A-Za-z._-]{1,64}))?",
    re.ASCII,
)
_TAG: Final = re.compile(r"[0-9A-Za-z._-]{1,64}", re.ASCII)
"""An entity tag that the text of an extent can have; another one is left out."""


@dataclass(frozen=True, slots=True)
class Extent:
    """A range of a file's content: one of a physical object, or a hole."""

    key: str
    """The physical key; empty for a hole, which reads as zeros."""
    offset: int
    """Where the range begins in the physical object, bytes."""
    length: int
    """Bytes; at least one."""
    digest: str = ""
    """`xxh128:<32 hex digits>` of the whole physical object; empty if it is not known."""
    etag: str = ""
    """The entity tag of the physical object; empty if it is not known."""
    covers: bool = field(default=False, compare=False)
    """Whether the extent is known to cover its object. One without a digest does not tell in the
    text of a physical name."""

    @property
    def checksum(self) -> str:
        """The digest, if it is that of the bytes of the extent."""
        return self.digest if self.covers else ""

    @property
    def end(self) -> int:
        """The end of the range in the physical object."""
        return self.offset + self.length

    @property
    def is_hole(self) -> bool:
        return not self.key


def has_extents(physical: str | None) -> bool:
    """Whether a physical name is a list of extents."""
    return physical is not None and physical.startswith(EXTENTS)


@lru_cache(maxsize=256)
def parse_extents(physical: str) -> tuple[Extent, ...]:
    """The extents in a physical name. Raises CorruptDataError for an invalid text."""
    object_id, _, text = physical[len(EXTENTS) :].partition(":")
    found: list[Extent] = []
    for part in text.split(",") if text else ():
        match = _EXTENT.fullmatch(part)
        if match is None or not _is_valid(match):
            raise CorruptDataError(f"the entry has an invalid extent: {part!r}", path=physical)
        key = f"{match['unique']}.id={object_id}" if match["unique"] else ""
        digest = CHECKSUM_PREFIX + match["digest"] if match["digest"] else ""
        place = int(match["offset"] or 0), int(match["length"])
        etag = match["etag"] or ""
        found.append(Extent(key, *place, digest, etag, covers=match["part"] == "="))
    return tuple(found)


def _is_valid(match: re.Match[str]) -> bool:
    """Whether the parts of an extent agree: a hole has no object, and an object is covered from its
    first byte on."""
    if not match["unique"]:
        return not match["part"] and not match["etag"]
    return match["part"] != "=" or match["offset"] == "0"


def format_extents(object_id: str, extents: Iterable[Extent]) -> str:
    """The physical name of a file with these extents, all of whose keys have the object id."""
    parts = []
    for each in extents:
        place = f"{each.key[:_UNIQUE]}@{each.offset}" if each.key else ""
        digest = each.digest.removeprefix(CHECKSUM_PREFIX)
        if digest:
            digest = ("=" if each.covers else "^") + digest
        tag = f"~{each.etag}" if _TAG.fullmatch(each.etag) else ""
        parts.append(f"{place}+{each.length}{digest}{tag}")
    return f"{EXTENTS}{object_id}:{','.join(parts)}"


def extents_of(content: Content, object_id: str) -> tuple[Extent, ...]:
    """The extents of a file's content; that of a whole file is one. Raises UnsupportedError for an
    adopted object, which belongs to no file."""
    physical = content.physical
    if has_extents(physical):
        return parse_extents(physical)
    if object_id_of(physical) != object_id:
        raise UnsupportedError(
            "the bytes of the file are an adopted object, which cannot be changed: copy the file, "
            "and change the copy",
            path=physical,
        )
    if not content.size:
        return ()
    return (whole_object(content),)


def whole_object(content: Content) -> Extent:
    """The extent that is all of an object."""
    digest = content.checksum if content.checksum.startswith(CHECKSUM_PREFIX) else ""
    return Extent(content.physical, 0, content.size, digest, content.etag, covers=True)


def object_of(extent: Extent) -> Content:
    """The physical object of an extent, as content. Its size is 0 if it is not known."""
    size = extent.length if extent.covers else 0
    return Content(extent.key, size, extent.etag, extent.digest)


def owner_of(physical: str) -> str | None:
    """The object id in a physical name; None in one of another form."""
    if not has_extents(physical):
        return object_id_of(physical)
    return physical[len(EXTENTS) :].partition(":")[0] or None


def content_of(object_id: str, extents: Sequence[Extent]) -> Content:
    """The content with these extents. One that covers a whole object is that object."""
    if not extents:
        return Content(format_extents(object_id, ()), 0, "", EMPTY)
    size = sum(each.length for each in extents)
    if len(extents) == 1 and extents[0].covers:
        return Content(extents[0].key, size, extents[0].etag, extents[0].checksum)
    return Content(format_extents(object_id, extents), size, "", "")


def physical_keys(physical: str | None) -> tuple[str, ...]:
    """What a physical name refers to: itself, or the keys in its extents, each once. An invalid
    list of extents is taken for a name, which no object has."""
    if physical is None:
        return ()
    if not has_extents(physical):
        return (physical,)
    try:
        return tuple(dict.fromkeys(each.key for each in parse_extents(physical) if each.key))
    except CorruptDataError:
        return (physical,)


def is_stored(physical: str, size: int, sizes: Mapping[str, int]) -> bool:
    """Whether objects of these sizes, by key, have all bytes of extents, and those are the size of
    the file. False for an invalid list of extents."""
    try:
        extents = parse_extents(physical)
    except CorruptDataError:
        return False
    return sum(each.length for each in extents) == size and all(
        sizes.get(each.key, -1) >= each.end for each in extents if each.key
    )


def cut(extents: Iterable[Extent], start: int, end: int) -> list[Extent]:
    """The extents of the bytes [start, end) of the content."""
    found: list[Extent] = []
    position = 0
    for each in extents:
        first, last = max(start, position), min(end, position + each.length)
        if first < last:
            found.append(
                replace(
                    each,
                    offset=each.offset + first - position if each.key else 0,
                    length=last - first,
                    covers=each.covers and last - first == each.length,
                )
            )
        position += each.length
    return found


def joined(extents: Iterable[Extent]) -> list[Extent]:
    """The same content with as few extents as possible: neighbours that are holes, or continue
    each other in one physical object, become one."""
    found: list[Extent] = []
    for each in extents:
        last = found[-1] if found else None
        if last is not None and last.key == each.key and (last.is_hole or last.end == each.offset):
            found[-1] = replace(last, length=last.length + each.length, covers=False)
        else:
            found.append(each)
    return found
