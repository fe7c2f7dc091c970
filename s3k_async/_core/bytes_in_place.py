"""A `bytes` object that is filled in place."""

from __future__ import annotations

import io
from contextlib import suppress

__all__ = ["BytesInPlace"]


class BytesInPlace(io.BytesIO):
    """Space for `size` bytes, which are written by `getbuffer`. When no view is left, `getvalue`
    returns them without a copy. Nothing but `io.BytesIO` can do that."""

    def __init__(self, size: int) -> None:
        # `bytes(size)` must have no other reference, or it is copied.
        super().__init__(bytes(size))

    def close(self) -> None:
        """Free the bytes, unless a view of them is left, with which they are freed later.

        The collector of cyclic garbage calls this before it frees the views, as of an answer that
        broke off; from Python 3.13 on, the BufferError of `io.BytesIO` is printed then.
        """
        with suppress(BufferError):
            super().close()
