"""Digests of content."""

from __future__ import annotations

import array
import threading

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from s3k_async import _native

PIECES = st.lists(
    st.one_of(
        st.binary(max_size=300),
        st.integers(0, 70_000).map(lambda size: bytes(range(251)) * (size // 251)),
    ),
    max_size=8,
)


@given(PIECES, st.sampled_from([bytes, bytearray, memoryview]))
def test_as_the_oracle_whatever_the_pieces(
    pieces: list[bytes], kind: type[bytes | bytearray | memoryview]
) -> None:
    digest, whole = _native.Xxh3_128(), b"".join(pieces)
    for piece in pieces:
        digest.update(kind(piece))
    assert digest.hexdigest() == xxhash.xxh3_128_hexdigest(whole)
    assert _native.xxh3_64(kind(whole)) == xxhash.xxh3_64_intdigest(whole)


def test_known_digests() -> None:
    assert _native.Xxh3_128().hexdigest() == "99aa06d3014798d86001c324468d497f"
    assert _native.xxh3_64(b"") == 0x2D06800538D394C2


def test_a_copy_goes_on_by_itself() -> None:
    first = _native.Xxh3_128()
    first.update(b"a" * 5000)
    second = first.copy()
    second.update(b"b")
    assert first.hexdigest() == xxhash.xxh3_128_hexdigest(b"a" * 5000)
    assert second.hexdigest() == xxhash.xxh3_128_hexdigest(b"a" * 5000 + b"b")
    first.update(b"c")
    assert first.hexdigest() == xxhash.xxh3_128_hexdigest(b"a" * 5000 + b"c")


@pytest.mark.parametrize("size", [0, 1, 4096, 4097, 262_143, 262_144, 262_145, 1_000_003])
def test_large_buffers_of_every_kind(size: int) -> None:
    content = (bytes(range(256)) * (size // 256 + 1))[:size]
    wanted = xxhash.xxh3_128_hexdigest(content)
    for buffer in (content, bytearray(content), memoryview(content), array.array("b", content)):
        digest = _native.Xxh3_128()
        digest.update(buffer)
        assert digest.hexdigest() == wanted


def test_buffers_are_bytes_whatever_their_items_are() -> None:
    numbers = array.array("d", [1.5, 2.5])
    assert _native.xxh3_64(numbers) == xxhash.xxh3_64_intdigest(numbers.tobytes())


def test_other_things_are_type_errors_and_change_nothing() -> None:
    digest = _native.Xxh3_128()
    for other in ("text", 5, None, memoryview(b"abcd")[::2]):
        with pytest.raises(TypeError):
            digest.update(other)  # type: ignore[arg-type]
    assert digest.hexdigest() == _native.Xxh3_128().hexdigest()


def test_threads_may_share_a_digest() -> None:
    digest, piece = _native.Xxh3_128(), b"p" * 100_000

    def update() -> None:
        for _ in range(20):
            digest.update(piece)

    threads = [threading.Thread(target=update) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert digest.hexdigest() == xxhash.xxh3_128_hexdigest(piece * 80)
