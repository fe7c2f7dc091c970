"""Glob patterns over a volume's tree.

In a pattern `*` matches any text within a name, `?` for one character, `[abc]`, `[a-z]` and
`[!a-z]` for one character of (not of) a set, `{a,b}` for either alternative (which may hold `/` and
further braces), and a component `**` for any number of directories, none included; at the end of a
pattern it matches everything below. A special character is escaped as a set: `[*]`. Names that
begin with a dot are not special. Matching is case-sensitive.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, TypeAlias

from s3k_async import _native
from s3k_async._core.concurrency import merge
from s3k_async.errors import InvalidArgumentError, InvalidPathError
from s3k_async.model import ROOT, Entry
from s3k_async.table.keys import Directory, KeyScheme
from s3k_async.table.stored_reader import ROOT_ENTRY

__all__ = ["WILDCARDS", "compile_pattern", "expand_braces", "glob_entries", "matcher"]

WILDCARDS = frozenset("*?[{")
"""Characters that begin a wildcard: a path without them matches itself alone."""

ANY_DEPTH = "**"
MAX_ALTERNATIVES = 1000
"""Patterns that one pattern may expand to."""
DIRECTORIES = 8
"""Directories that are listed concurrently."""

Components: TypeAlias = tuple[str, ...]
"""A pattern without braces, or the rest of one below a directory."""


class TreeReader(Protocol):
    """The reads of a metadata store that globbing needs."""

    @property
    def keys(self) -> KeyScheme: ...
    async def get(self, path: str) -> Entry | None: ...
    async def get_many(self, paths: Sequence[str]) -> list[Entry | None]: ...
    def children(self, directory: Directory) -> AsyncIterator[Sequence[Entry]]: ...


@dataclass(frozen=True, slots=True)
class _Page:
    """The result for one directory: matches, and directories in which more may match."""

    matches: list[Entry]
    below: list[tuple[Directory, frozenset[Components]]]


def compile_pattern(pattern: str) -> frozenset[Components]:
    """The alternatives of a pattern, each as its components below the root.

    Raises InvalidArgumentError (more alternatives than MAX_ALTERNATIVES), InvalidPathError (empty,
    NUL, `..`).
    """
    if not pattern or "\0" in pattern:
        raise InvalidPathError("a pattern is not empty and has no NUL", path=repr(pattern))
    return frozenset(_components(text) for text in expand_braces(pattern))


def expand_braces(pattern: str) -> list[str]:
    """The pattern without braces: one text for each combination of alternatives. Braces without a
    partner are text."""
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        text = waiting.pop()
        group = _first_group(text)
        if group is None:
            done.append(text)
        else:
            start, end, alternatives = group
            waiting += [
                text[:start] + alternative + text[end:] for alternative in reversed(alternatives)
            ]
        if len(done) + len(waiting) > MAX_ALTERNATIVES:
            raise InvalidArgumentError(
                f"the pattern has more than {MAX_ALTERNATIVES} alternatives", path=pattern
            )
    return done


@lru_cache(maxsize=64)
def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a relative path (`a/b`, or a name) matches a pattern as a whole."""
    alternatives = compile_pattern(pattern)

    def matches(relative: str) -> bool:
        states = frozenset(alternatives)
        for name in relative.split("/"):
            states = _advance(states, name, is_dir=True)
        return () in states

    return matches


async def glob_entries(reader: TreeReader, pattern: str) -> AsyncGenerator[list[Entry], None]:
    """The entries that match, each once, in pages, in arrival order; reservations included.

    Only directories in which something can match are listed, and none for components without
    special characters.
    """
    alternatives = compile_pattern(pattern)
    if () in alternatives and (root := await reader.get(ROOT)) is not None:
        yield [root]
    below = alternatives - {()}
    if not below:
        return

    def deeper(page: _Page) -> list[AsyncIterator[_Page]]:
        return [_look(reader, directory, states) for directory, states in page.below]

    top = reader.keys.directory(ROOT_ENTRY)
    async for page in merge([_look(reader, top, below)], limit=DIRECTORIES, expand=deeper):
        if page.matches:
            yield page.matches


async def _look(
    reader: TreeReader, directory: Directory, states: frozenset[Components]
) -> AsyncIterator[_Page]:
    """Match the children of one directory: by name where all names are known, else by listing
    it."""
    names = _literal_names(states)
    if names is None:
        if directory.path == ROOT:
            # Other directories were read before (`namespace.consistent_listing`).
            await reader.get(ROOT)
        async for entries in reader.children(directory):
            yield _page(reader.keys, entries, states)
        return
    path = directory.path
    if len(states) == 1:
        path, states = _skip_literals(path, next(iter(states)))
        names = _literal_names(states) or []
    found = await reader.get_many([_native.join(path, name) for name in sorted(names)])
    yield _page(reader.keys, [entry for entry in found if entry is not None], states)


def _page(keys: KeyScheme, entries: Sequence[Entry], states: frozenset[Components]) -> _Page:
    page = _Page([], [])
    for entry in entries:
        left = _advance(states, entry.path.rpartition("/")[2], is_dir=entry.is_dir)
        if () in left:
            page.matches.append(entry)
        deeper = left - {()}
        if entry.is_dir and deeper:
            page.below.append((keys.directory(entry), deeper))
    return page


def _advance(states: frozenset[Components], name: str, *, is_dir: bool) -> frozenset[Components]:
    """The rest of the patterns after `name` has been matched."""
    left: set[Components] = set()
    for state in states:
        head, rest = state[:1], state[1:]
        if head == (ANY_DEPTH,):
            if is_dir:
                left.add(state)
            # `**` may match no directory: the following components are matched here too.
            left |= _advance(frozenset({rest}), name, is_dir=is_dir)
        elif head and _component(head[0])(name):
            left.add(rest)
    return frozenset(left)


def _literal_names(states: frozenset[Components]) -> list[str] | None:
    """The literal names in the patterns here, or None if one has special characters."""
    names = {state[0] for state in states}
    if any(_is_special(name) for name in names):
        return None
    return list(names)


def _skip_literals(path: str, state: Components) -> tuple[str, frozenset[Components]]:
    """Descend through the leading literal components."""
    while len(state) > 1 and not _is_special(state[0]) and not _is_special(state[1]):
        path = _native.join(path, state[0])
        state = state[1:]
    return path, frozenset({state})


def _components(pattern: str) -> Components:
    parts = [part for part in pattern.split("/") if part not in {"", "."}]
    if ".." in parts:
        raise InvalidPathError("a pattern has no `..`", path=pattern)
    parts = [
        part
        for place, part in enumerate(parts)
        if parts[place : place + 2] != [ANY_DEPTH, ANY_DEPTH]
    ]
    if parts and parts[-1] == ANY_DEPTH:
        parts.append("*")
    return tuple(parts)


def _is_special(component: str) -> bool:
    return any(character in component for character in "*?[")


@lru_cache(maxsize=4096)
def _component(component: str) -> Callable[[str], bool]:
    if not _is_special(component):
        return component.__eq__
    compiled = re.compile(fnmatch.translate(component))
    return lambda name: compiled.match(name) is not None


def _first_group(text: str) -> tuple[int, int, list[str]] | None:
    """Start and end of the first brace group, and its alternatives; sets (`[{]`) are passed
    over."""
    position = 0
    while position < len(text):
        if text[position] == "[":
            position = _after_set(text, position)
        elif text[position] == "{" and (group := _group(text, position)) is not None:
            return position, *group
        else:
            position += 1
    return None


def _group(text: str, start: int) -> tuple[int, list[str]] | None:
    depth, position, begin = 0, start + 1, start + 1
    alternatives: list[str] = []
    while position < len(text):
        character = text[position]
        if character == "[":
            position = _after_set(text, position)
            continue
        if character == "{":
            depth += 1
        elif character in ",}" and depth == 0:
            alternatives.append(text[begin:position])
            begin = position + 1
            if character == "}":
                return position + 1, alternatives
        elif character == "}":
            depth -= 1
        position += 1
    return None


def _after_set(text: str, start: int) -> int:
    """The position after a set that begins at `start`, or after its `[` if the set is not
    closed."""
    begin = start + 1 + (text[start + 1 : start + 2] == "!")
    end = text.find("]", begin + 1)
    slash = text.find("/", start)
    return start + 1 if end < 0 or 0 <= slash < end else end + 1
