"""Selection of files by glob patterns to include and to exclude."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from s3k_async.listing.globbing import compile_pattern, matcher

__all__ = ["Selection"]


class Selection:
    """Files by their relative paths. A pattern is matched with the last component, or, if it
    contains a `/`, with the whole path. Exclusion takes precedence; without `include` everything
    else is selected.

    Raises InvalidArgumentError, InvalidPathError (`compile_pattern`).
    """

    def __init__(self, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> None:
        for pattern in (*include, *exclude):
            compile_pattern(pattern)
        self._include = [_matches(pattern) for pattern in include]
        self._exclude = [_matches(pattern) for pattern in exclude]

    def __bool__(self) -> bool:
        """Whether there is a pattern."""
        return bool(self._include or self._exclude)

    def takes(self, relative: str) -> bool:
        """Whether the file of that path is selected."""
        if self.excludes(relative):
            return False
        return not self._include or any(matches(relative) for matches in self._include)

    def excludes(self, relative: str) -> bool:
        """Whether the file or directory of that path is excluded by itself."""
        return any(matches(relative) for matches in self._exclude)

    def takes_below(self, relative: str) -> bool:
        """As `takes`; a directory that is excluded excludes everything below it."""
        if self._exclude and any(map(self.excludes, _above(relative))):
            return False
        return self.takes(relative)


def _above(relative: str) -> Iterator[str]:
    """The directories above a relative path."""
    end = relative.find("/")
    while end >= 0:
        yield relative[:end]
        end = relative.find("/", end + 1)


def _matches(pattern: str) -> Callable[[str], bool]:
    whole = matcher(pattern)
    return whole if "/" in pattern else lambda relative: whole(relative.rpartition("/")[2])
