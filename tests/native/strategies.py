"""Texts that are likely to go wrong."""

from __future__ import annotations

from hypothesis import strategies as st

from s3k_async.model import HashName

CHARACTERS = st.one_of(
    st.characters(exclude_categories=["Cs"], exclude_characters="/\0"),
    st.sampled_from(". :-~%#?\\+=é😀\N{COMBINING ACUTE ACCENT}\x7f\x01"),
)
NAMES = st.one_of(
    st.text(CHARACTERS, min_size=1, max_size=12),
    st.sampled_from(
        ["polygenelubricants", "a-sf1", "-sf0", "...", "x:y", "part-00000", "é" * 512, "n" * 1024]
    ),
).filter(lambda name: name not in {".", ".."} and len(name.encode()) <= 1024)

COMPONENTS = st.one_of(
    NAMES, st.sampled_from(["", ".", "..", "n" * 1025, "é" * 513, "a\0b", "\ud800", "\udc80x"])
)
"""Also what is no name."""

SPELLINGS = st.one_of(
    st.builds(
        lambda lead, parts: lead + "/".join(parts),
        st.sampled_from(["", "/", "//"]),
        st.lists(COMPONENTS, max_size=6),
    ),
    st.text(max_size=8),
)
"""Paths as somebody might write them, valid or not."""

PATHS = st.lists(NAMES, min_size=1, max_size=4).map(lambda names: "/" + "/".join(names))
"""Normalised paths below the root."""

DIRECTORY_IDS = st.one_of(
    st.uuids().map(str),
    st.text("aZ09_-", min_size=1, max_size=64),
    st.sampled_from(
        [
            "00000000-0000-4000-8000-000000000000",
            "00000000-0000-4000-8000-000000000001",
            "-sf0",
            "a-sf1",
            "x" * 64,
        ]
    ),
)

ENTRY_KEYS = st.builds("{}/{}".format, DIRECTORY_IDS, NAMES)
"""Entry keys of layout `tree`."""

ENTRY_KEY_SPELLINGS = st.one_of(
    st.builds(
        "{}{}{}".format,
        st.one_of(DIRECTORY_IDS, st.sampled_from(["", "x" * 65, "é", "a b", "s3k:tree", "/a"])),
        st.sampled_from(["/", "/", "/", "//", ""]),
        COMPONENTS,
    ),
    SPELLINGS,
)
"""Entry keys of layout `tree`, and what is none."""

VOLUMES = st.sampled_from(["v", "analytics", "my_bucket", "a-sf1", "ünï", "x.y"])
COUNTS = st.one_of(st.integers(1, 100), st.integers(1, 65_536))
HASHES: st.SearchStrategy[HashName] = st.sampled_from(["xxh3", "java31"])
