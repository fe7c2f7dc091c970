"""Bytes that wait to be sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3k_async.storage import pending_bytes
from s3k_async.storage.pending_bytes import KEPT, PendingBytes


def test_long_immutable_bytes_are_not_copied() -> None:
    pending = PendingBytes()
    first, second = bytes(KEPT), b"x" * KEPT
    pending.add(first)
    pending.add(memoryview(second))
    assert pending.size == 2 * KEPT
    assert pending.take(KEPT) is first
    part = pending.take(KEPT - 1)
    assert isinstance(part, memoryview)
    assert part.obj is second
    assert (bytes(pending.take(1)), pending.size) == (b"x", 0)


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_short_bytes_are_gathered(kind: type) -> None:
    pending = PendingBytes()
    for _ in range(1000):
        pending.add(kind(b"0123456789"))
    assert len(pending._pieces) == 1
    assert pending.take(10_000) == b"0123456789" * 1000


def test_a_part_of_a_longer_object_does_not_keep_it() -> None:
    pending = PendingBytes()
    long = bytes(2 * KEPT)
    pending.add(memoryview(long)[:KEPT])
    taken = pending.take(KEPT)
    assert isinstance(taken, bytearray)
    assert len(taken) == KEPT


@given(
    steps=st.lists(
        st.one_of(st.binary(max_size=30), st.binary(max_size=30).map(bytearray), st.integers(0, 40))
    )
)
def test_what_is_taken_is_what_was_added(steps: list[bytes | bytearray | int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pending_bytes, "KEPT", 10)
        pending, expected, taken = PendingBytes(), b"", []
        for step in steps:
            if isinstance(step, int):
                size = min(step, len(expected))
                taken.append((pending.take(size), expected[:size]))
                expected = expected[size:]
            else:
                pending.add(step)
                expected += step
                if isinstance(step, bytearray):
                    step[:] = b"?" * len(step)
            assert pending.size == len(expected)
        taken.append((pending.take(len(expected)), expected))
        for found, wanted in taken:
            assert bytes(found) == wanted
