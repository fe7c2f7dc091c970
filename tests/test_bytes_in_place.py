"""`bytes` objects that are filled in place."""

from __future__ import annotations

import ctypes
import gc
import sys
from typing import Any

import pytest

from s3k_async._core.bytes_in_place import BytesInPlace


def test_what_is_written_to_the_buffer_is_returned_without_a_copy() -> None:
    place = BytesInPlace(1 << 20)
    with place.getbuffer() as buffer:
        buffer[:5] = b"first"
        buffer[-4:] = b"last"
        address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    content = place.getvalue()
    assert content == b"first" + bytes((1 << 20) - 9) + b"last"
    assert id(content) + bytes.__basicsize__ - 1 == address


def test_closed_with_a_view_it_keeps_the_bytes_of_the_view() -> None:
    place = BytesInPlace(16)
    view = place.getbuffer()
    place.close()  # where `io.BytesIO` raises BufferError
    view[:5] = b"later"
    assert bytes(view) == b"later" + bytes(11)
    view.release()
    place.close()
    assert place.closed


def test_cyclic_garbage_is_collected_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Python 3.13, `io.BytesIO` passes as well."""
    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    place = BytesInPlace(16)
    garbage: list[Any] = [place, place.getbuffer()]
    garbage.append(garbage)
    del garbage, place
    gc.collect()
    assert not reported
