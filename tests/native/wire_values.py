"""Items in DynamoDB's JSON, likely and unlikely ones, and the ways in which JSON may be written."""

from __future__ import annotations

import base64
import json
from typing import Any

from hypothesis import strategies as st

TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.sampled_from(
        [
            '"',
            "\\",
            '\\\\"',
            "/",
            "\0\x1f\x7f\x80",
            "é😀",
            "\u2028\ufeff",
            "plain text of some length",
            "\n\t",
        ]
    ),
)
BINARY = st.binary(max_size=9).map(lambda data: base64.b64encode(data).decode())
WHOLE = st.one_of(
    st.integers(-(10**40), 10**40).map(str),
    st.sampled_from(["0", "-0", "007", "9" * 38, str(2**63), str(-(2**63) - 1)]),
)
NUMBERS = st.one_of(
    WHOLE, st.sampled_from(["1.5", "-0.0", "1E+125", "9.9E-130", "1e5", "-", "", "+1", " 1", "1_0"])
)

SIMPLE: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.builds(lambda text: {"S": text}, TEXTS),
    st.builds(lambda number: {"N": number}, WHOLE),
    st.builds(lambda truth: {"BOOL": truth}, st.booleans()),
)
SCALARS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    SIMPLE,
    st.builds(lambda number: {"N": number}, NUMBERS),
    st.builds(lambda data: {"B": data}, BINARY),
    st.builds(lambda truth: {"NULL": truth}, st.booleans()),
    st.builds(lambda texts: {"SS": texts}, st.lists(TEXTS, max_size=3)),
    st.builds(lambda numbers: {"NS": numbers}, st.lists(NUMBERS, max_size=3)),
    st.builds(lambda data: {"BS": data}, st.lists(BINARY, max_size=3)),
)
VALUES: st.SearchStrategy[dict[str, Any]] = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.builds(lambda values: {"L": values}, st.lists(inner, max_size=3)),
        st.builds(lambda values: {"M": values}, st.dictionaries(TEXTS, inner, max_size=3)),
    ),
    max_leaves=8,
)
NAMES = st.one_of(
    st.sampled_from(
        ["path", "children", "isdir", "ctime", "ver", "id", "mtime", "op", "size", "physpath"]
    ),
    st.sampled_from(["physcommitted", "etag", "sum", "next", "lease", "foreign", "is_dir", "len"]),
    TEXTS,
)
ITEMS: st.SearchStrategy[dict[str, Any]] = st.dictionaries(NAMES, VALUES, max_size=8)
LIKELY_ITEMS: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    NAMES, SIMPLE, min_size=1, max_size=15
)


def lists_of_items() -> st.SearchStrategy[list[dict[str, Any]]]:
    """Items that look alike, as those of a page do, and some that do not."""
    alike = LIKELY_ITEMS.flatmap(
        lambda item: st.lists(st.fixed_dictionaries({name: SIMPLE for name in item}), max_size=6)  # noqa: C420
    )
    return st.one_of(alike, st.lists(st.one_of(LIKELY_ITEMS, ITEMS), max_size=6))


def _compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _escaped(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=True).replace("/", "\\/").encode()


def _spaced(value: object) -> bytes:
    return json.dumps(
        value, indent="\r\n\t ", separators=(" , ", " : "), ensure_ascii=False
    ).encode()


SPELLINGS = st.sampled_from([_compact, _escaped, _spaced])
"""Functions from a value to JSON of it."""
