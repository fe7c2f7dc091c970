"""Bytes that are nearly right: what valid inputs become by a few small, seeded changes."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

__all__ = ["mutate"]

TOKENS: Final = (
    *(
        b"null",
        b"true",
        b"{}",
        b"[]",
        b'""',
        b'"',
        b"\\",
        b"\\ud800",
        b"\\u0000",
        b"\xff",
        b"\xed\xa0\x80",
        b"\x00",
    ),
    *(
        b"\n",
        b"\r\n",
        b"/",
        b"//",
        b"..",
        b".",
        b"-sf0",
        b"ks://",
        b"s3k:",
        b"*",
        b"**",
        b"[",
        b"]",
        b"{a,b}",
        b"{",
        b",",
    ),
    *(
        b"NaN",
        b"Infinity",
        b"1e999",
        b"-0",
        b"0.5",
        b"\xe2\x80\xa8",
        b"\xf0\x9f\x98\x80",
        b"<!DOCTYPE a>",
        b"&#0;",
        b"]]>",
    ),
)
NUMBERS: Final = (
    b"0",
    b"-1",
    b"1",
    b"255",
    b"65536",
    b"2147483648",
    b"-9223372036854775809",
    b"18446744073709551616",
)
NUMBER: Final = re.compile(rb"-?\d+")
VALUES: Final[tuple[Any, ...]] = (
    None,
    True,
    0,
    -1,
    1,
    2**31,
    2**63,
    1.5,
    "",
    "x",
    "\ud800",
    [],
    {},
    [None],
    {"a": None},
)


def mutate(choice: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    """The input after one to six changes, one in a while a large one."""
    for _ in range(choice.choice((1, 1, 1, 2, 3, 6))):
        data = choice.choice(CHANGES)(choice, data, corpus)
    return data[:1_000_000]


def _span(choice: random.Random, data: bytes) -> tuple[int, int]:
    start = choice.randint(0, len(data))
    return start, min(len(data), start + choice.choice((1, 1, 2, 4, 16, 200)))


def _flip(choice: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    if not data:
        return b"\x00"
    place = choice.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << choice.randrange(8)]) + data[place + 1 :]


def _set(choice: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    start, end = _span(choice, data)
    return (
        data[:start]
        + choice.choice((b"\x00", b"\x7f", b"\x80", b"\xff")) * (end - start)
        + data[end:]
    )


def _insert(choice: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    place = choice.randint(0, len(data))
    return data[:place] + choice.choice(TOKENS) + data[place:]


def _remove(choice: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    start, end = _span(choice, data)
    return data[:start] + data[end:]


def _repeat(choice: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    start, end = _span(choice, data)
    return data[:end] + data[start:end] * choice.choice((1, 1, 2, 3, 1000)) + data[end:]


def _cut(choice: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    place = choice.randint(0, len(data))
    return choice.choice((data[:place], data[place:]))


def _splice(choice: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    other = choice.choice(corpus)
    start, end = _span(choice, other)
    place = choice.randint(0, len(data))
    return choice.choice(
        (data[:place] + other[start:], data[:place] + other[start:end] + data[place:])
    )


def _renumber(choice: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    found = list(NUMBER.finditer(data))
    if not found:
        return _insert(choice, data, corpus)
    number = choice.choice(found)
    return data[: number.start()] + choice.choice((*NUMBERS, b"9" * 5000)) + data[number.end() :]


def _nest(choice: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    start, end = _span(choice, data)
    opening, closing = choice.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"<a>", b"</a>")))
    depth = choice.choice((1, 2, 100, 20_000))
    return data[:start] + opening * depth + data[start:end] + closing * depth + data[end:]


def _rewrite(choice: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    """One line of JSON with one of its values replaced, removed or doubled under another name."""
    lines = data.split(b"\n")
    place = choice.randrange(len(lines))
    try:
        document = json.loads(lines[place])
    except (ValueError, RecursionError):
        return _flip(choice, data, corpus)
    lines[place] = json.dumps(_changed(choice, document), separators=(",", ":")).encode()
    return b"\n".join(lines)


def _changed(choice: random.Random, value: Any) -> Any:
    if isinstance(value, dict) and value and choice.random() < 0.9:
        name = choice.choice(list(value))
        action = choice.randrange(6)
        if action == 0:
            return {key: each for key, each in value.items() if key != name}
        if action == 1:
            return {**value, f"{name}2": value[name]}
        return {**value, name: _changed(choice, value[name])}
    if isinstance(value, list) and value and choice.random() < 0.9:
        place = choice.randrange(len(value))
        return [
            *value[:place],
            _changed(choice, value[place]),
            *value[place:][choice.randrange(2) :],
        ]
    return choice.choice(VALUES)


Change = Callable[[random.Random, bytes, Sequence[bytes]], bytes]
CHANGES: Final[tuple[Change, ...]] = (
    *(_flip, _set, _insert, _remove, _repeat, _cut, _splice, _renumber, _nest),
    *(_rewrite, _rewrite, _rewrite),
)
