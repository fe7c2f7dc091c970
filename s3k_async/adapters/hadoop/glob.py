r"""Hadoop's glob syntax.

Inside a component: `?` one character, `*` any, `[abc]`, `[a-c]`, `[^a]` and `[!a]` one character of
a class, `{a,b}` alternatives, which may nest, `\c` the character itself. Alternatives may hold a
`/`. Names that begin with a dot are not special. Source: the class documentation of Hadoop's
`FileSystem.globStatus`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from s3k_async.errors import InvalidArgumentError, InvalidPathError

__all__ = ["Component", "components", "expand"]

_SPECIAL = re.compile(r"(?<!\\)(?:\\\\)*[*?\[{]")
_CLASS = re.compile(r"\[([!^]?)(\]?(?:\\.|[^\]\\])*)\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Component:
    """One component of a pattern: a literal name or an expression."""

    literal: str
    """The name itself, escapes resolved. Meaningless with a `pattern`."""
    pattern: re.Pattern[str] | None = None

    def matches(self, name: str) -> bool:
        """Whether a name matches."""
        return (
            name == self.literal
            if self.pattern is None
            else self.pattern.fullmatch(name) is not None
        )


def expand(pattern: str) -> list[str]:
    """The equivalent patterns without `/` in alternatives.

    Raises InvalidArgumentError for an unclosed group.
    """
    for start, end in _groups(pattern):
        alternatives = _alternatives(pattern[start + 1 : end])
        if any("/" in alternative for alternative in alternatives):
            return [
                expanded
                for alternative in alternatives
                for expanded in expand(pattern[:start] + alternative + pattern[end + 1 :])
            ]
    return [pattern]


def components(pattern: str) -> list[Component]:
    """The components of an absolute pattern, `.` and `..` resolved.

    Raises InvalidArgumentError for a malformed one, InvalidPathError for an empty one and `..`
    above the root.
    """
    if not pattern:
        raise InvalidPathError("the path is empty", path=pattern)
    names: list[str] = []
    for name in pattern.split("/"):
        if name == "..":
            if not names:
                raise InvalidPathError("the path leads above the root", path=pattern)
            names.pop()
        elif name not in ("", "."):
            names.append(name)
    return [_component(name) for name in names]


def _component(text: str) -> Component:
    if _SPECIAL.search(text) is None:
        return Component(re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL))
    try:
        return Component("", re.compile(_regex(text), re.DOTALL))
    except re.error as error:
        raise InvalidArgumentError(f"malformed glob: {error}", path=text) from error


def _regex(text: str) -> str:
    parts: list[str] = []
    open_groups = 0
    position = 0
    while position < len(text):
        character = text[position]
        if character == "[":
            found = _CLASS.match(text, position)
            if found is None:
                raise InvalidArgumentError("malformed glob: unclosed character class", path=text)
            parts.append(f"[{'^' if found[1] else ''}{_class_body(found[2])}]")
            position = found.end()
            continue
        if character == "\\":
            position += 1
            if position == len(text):
                raise InvalidArgumentError("malformed glob: nothing follows the escape", path=text)
            parts.append(re.escape(text[position]))
        elif character == "{":
            parts.append("(?:")
            open_groups += 1
        elif character == "}" and open_groups:
            parts.append(")")
            open_groups -= 1
        elif character == "," and open_groups:
            parts.append("|")
        else:
            parts.append({"*": ".*", "?": "."}.get(character) or re.escape(character))
        position += 1
    if open_groups:
        raise InvalidArgumentError("malformed glob: unclosed group", path=text)
    return "".join(parts)


def _class_body(body: str) -> str:
    """The inside of a character class for the regular expression: ranges are kept, all else is
    literal."""
    return re.sub(
        r"\\(.)|([\[\]^&~|])", lambda found: re.escape(found[1] or found[2]), body, flags=re.DOTALL
    )


def _groups(pattern: str) -> list[tuple[int, int]]:
    """Start and end of each outermost `{...}`."""
    groups: list[tuple[int, int]] = []
    depth = start = 0
    for position, character in _unescaped(pattern):
        if character == "{":
            start = position if depth == 0 else start
            depth += 1
        elif character == "}" and depth:
            depth -= 1
            if depth == 0:
                groups.append((start, position))
    if depth:
        raise InvalidArgumentError("malformed glob: unclosed group", path=pattern)
    return groups


def _alternatives(inside: str) -> list[str]:
    """The inside of a group, split at its own commas."""
    cuts: list[int] = [-1]
    depth = 0
    for position, character in _unescaped(inside):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            cuts.append(position)
    return [
        inside[start + 1 : end] for start, end in zip(cuts, [*cuts[1:], len(inside)], strict=True)
    ]


def _unescaped(text: str) -> list[tuple[int, str]]:
    """Positions and characters outside of escapes and character classes."""
    found: list[tuple[int, str]] = []
    position = 0
    while position < len(text):
        if text[position] == "[" and (bracket := _CLASS.match(text, position)):
            position = bracket.end()
            continue
        if text[position] == "\\":
            position += 2
            continue
        found.append((position, text[position]))
        position += 1
    return found
