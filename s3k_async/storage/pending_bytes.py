"""Bytes that an upload has accepted and not sent: long immutable ones are not copied."""

from __future__ import annotations

from collections import deque

from s3k_async.backends.ports.blobs import Buffer

__all__ = ["KEPT", "PendingBytes"]

KEPT = 64 * 1024
"""Bytes of an object from which on it is kept instead of being copied."""


class PendingBytes:
    """A queue of bytes: `add` at the end, `take` from the start."""

    def __init__(self) -> None:
        self.size = 0
        """Bytes in the queue."""
        self._pieces: deque[Buffer] = deque()
        self._open: bytearray | None = None
        """The last piece, if more may be added to it."""

    def add(self, data: Buffer) -> None:
        """Add bytes. Afterwards the caller may change the buffer."""
        view = memoryview(data)
        whole = view.obj
        # A part of a longer object would keep all of it in memory.
        if isinstance(whole, bytes) and len(whole) == view.nbytes >= KEPT:
            self._pieces.append(whole)
            self._open = None
        elif self._open is None:
            self._open = bytearray(view)
            self._pieces.append(self._open)
        else:
            self._open += view
        self.size += view.nbytes

    def take(self, size: int) -> Buffer:
        """Remove the first `size` bytes, of at least as many. Copied only if they were added in
        pieces of other sizes."""
        pieces: list[Buffer] = []
        missing = size
        while missing:
            piece = self._pieces.popleft()
            if len(piece) > missing:
                view = memoryview(piece)
                self._pieces.appendleft(view[missing:])
                piece = view[:missing]
            pieces.append(piece)
            missing -= len(piece)
        if not self._pieces or isinstance(self._pieces[-1], memoryview):
            self._open = None
        self.size -= size
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
