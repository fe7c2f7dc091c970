"""Extents: a file's content as a list of ranges of physical objects.

Most files have one physical object, whose key is their physical name. A file that was appended to
or changed in place has the text of its extents instead:

    extents:<object id>:<extent>,<extent>...

    <first 36 characters of a physical key>@<offset in it>+<length>         a range of an object
    <first 36 characters of a physical key>@0+<length>=<32 hex digits>      all of an object
    +<length>                                                               a hole: zeros

The extents are in the order of the content and leave no gap. The rest of a physical key, `.id=` and
the object id, is the same for all: each physical object belongs to one file. The digits are the
XXH3 of 128 bits of an object that the extent covers. A file without extents is empty.
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
    "owner_of",
    "parse_extents",
    "physical_keys",
]

EXTENTS: Final = "extents:"
"""The start of a physical name that is a list of extents. No physical key and no URI has it."""
EMPTY: Final = CHECKSUM_PREFIX + Xxh3_128().hexdigest()
"""The checksum of no bytes."""
_UNIQUE: Final = 36
_EXTENT: Final = re.compile(
    rf"(?:(?P<unique>[^:,@+=]{{{_UNIQUE}}})@(?P<offset>0|[1-9]\d{{0,18}}))?"
    r"\+(?P<length>[1-9]\d{0,18})(?:=(?P<digest>[0-9a-f]{32}))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Extent:
    """A range of a file's content: one of a physical object, or a hole."""

    key: str
    """The physical key; empty for a hole, which reads as zeros."""
    offset: int
    """Where the range begins in the physical object, bytes."""
    length: int
    """Bytes; at least one."""
    checksum: str = ""
    """`xxh128:<32 hex digits>` of the whole physical object, if the extent covers it."""
    covers: bool = field(default=False, compare=False)
    """Whether the extent is known to cover its object. One without a checksum does not tell in the
    text of a physical name."""

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
        if match is None or (match["digest"] and match["offset"] != "0"):
            raise CorruptDataError(f"the entry has an invalid extent: {part!r}", path=physical)
        key = f"{match['unique']}.id={object_id}" if match["unique"] else ""
        checksum = CHECKSUM_PREFIX + match["digest"] if match["digest"] else ""
        place = int(match["offset"] or 0), int(match["length"])
        found.append(Extent(key, *place, checksum, covers=bool(checksum)))
    return tuple(found)


def format_extents(object_id: str, extents: Iterable[Extent]) -> str:
    """The physical name of a file with these extents, all of whose keys have the object id."""
    parts = []
    for each in extents:
        place = f"{each.key[:_UNIQUE]}@{each.offset}" if each.key else ""
        digest = each.checksum.removeprefix(CHECKSUM_PREFIX)
        parts.append(f"{place}+{each.length}{'=' if digest else ''}{digest}")
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
    checksum = content.checksum if content.checksum.startswith(CHECKSUM_PREFIX) else ""
    return (Extent(physical, 0, content.size, checksum, covers=True),)


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
    if len(extents) == 1 and (extents[0].checksum or extents[0].covers):
        return Content(extents[0].key, size, "", extents[0].checksum)
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
            is_whole = last - first == each.length
            found.append(
                replace(
                    each,
                    offset=each.offset + first - position if each.key else 0,
                    length=last - first,
                    checksum=each.checksum if is_whole else "",
                    covers=each.covers and is_whole,
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
            found[-1] = replace(last, length=last.length + each.length, checksum="", covers=False)
        else:
            found.append(each)
    return found
