"""Detection of a listing that does not end because its cursors repeat themselves."""

from __future__ import annotations

from s3k_async.errors import ServiceError

__all__ = ["PageGuard", "repeated"]


class PageGuard:
    """Follows the cursors of one listing, in constant memory.

    Brent's algorithm: one cursor is kept, and replaced after 1, 2, 4, ... pages, so that a cycle of
    any length is found before it was gone through three times.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._kept: str | None = None
        self._steps = 0
        self._limit = 1

    def follow(self, cursor: str) -> None:
        """The next page begins here. Raises ServiceError for a cursor that was followed before."""
        if cursor == self._kept:
            raise repeated(self._path)
        self._steps += 1
        if self._steps == self._limit:
            self._kept, self._steps, self._limit = cursor, 0, self._limit * 2


def repeated(path: str) -> ServiceError:
    """The error of a listing that leads back to a page that was given before."""
    return ServiceError(
        "the listing does not end: the service names a page as the next one that it gave before",
        path=path,
        service_code="RepeatedPage",
    )
