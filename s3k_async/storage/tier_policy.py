"""Which hot objects are moved to the cold location: by age and watermarks, and by the user metadata
`Tier` of single files."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast, get_args

from s3k_async.backends.ports.blobs import BlobInfo
from s3k_async.errors import InvalidArgumentError

__all__ = ["TIER", "MovePolicy", "Overrides", "Tier", "check_tier", "tier_of"]

_LOG = logging.getLogger(__name__)

TIER: Final = "Tier"
"""The name of the user metadata that overrides the policy for one file."""

Tier: TypeAlias = Literal["hot", "cold"]
"""Its values. `hot`: the file is never moved. `cold`: it is moved by the next run."""

Overrides: TypeAlias = Mapping[str, Tier]
"""Those of files, by the physical keys of their content."""


@dataclass(frozen=True, slots=True)
class MovePolicy:
    """Which objects a run moves: those that are older than `older_than` seconds; of the others, if
    more than `high` bytes are hot, the oldest, the smaller first among those of one time, until at
    most `low` bytes are left. Without either, all."""

    older_than: float | None = None
    high: int | None = None
    low: int | None = None

    def __post_init__(self) -> None:
        """Raises InvalidArgumentError."""
        if self.older_than is not None and self.older_than < 0:
            raise InvalidArgumentError(f"the age is not negative, as {self.older_than} is")
        if (self.high is None) != (self.low is None):
            raise InvalidArgumentError("the watermarks high and low are given together")
        if self.high is not None and self.low is not None and not 0 <= self.low <= self.high:
            raise InvalidArgumentError(
                f"the low watermark is between 0 and the high one, {self.high}, not {self.low}"
            )

    def chosen(
        self, objects: list[BlobInfo], now_ms: int, overrides: Overrides | None = None
    ) -> list[BlobInfo]:
        """Those of the hot objects that are to be moved, in the order of their moves: those that
        are `cold` by an override, then those that the policy chooses. Objects that are `hot` by an
        override stay; their bytes count for the watermarks."""
        known = overrides or {}
        ordered = sorted(objects, key=lambda each: (each.mtime_ms, each.size, each.key))
        cold = [each for each in ordered if known.get(each.key) == "cold"]
        free = [each for each in ordered if each.key not in known]
        left = sum(each.size for each in ordered) - sum(each.size for each in cold)
        return cold + self._due(free, left, now_ms)

    def _due(self, ordered: list[BlobInfo], left: int, now_ms: int) -> list[BlobInfo]:
        """Those that age and watermarks choose, the oldest first; `left`: bytes that are hot."""
        if self.older_than is None and self.high is None:
            return ordered
        limit = self.low if self.high is not None and left > self.high else None
        youngest = None if self.older_than is None else now_ms - int(self.older_than * 1000)
        chosen = []
        for each in ordered:
            is_old = youngest is not None and each.mtime_ms < youngest
            if is_old or (limit is not None and left > limit):
                chosen.append(each)
                left -= each.size
        return chosen


def check_tier(metadata: Mapping[str, bytes | None], path: str) -> None:
    """Raise InvalidArgumentError for a value of TIER that is no tier. None removes it."""
    value = metadata.get(TIER)
    if value is not None and _tier(value) is None:
        raise InvalidArgumentError(
            f"the metadata {TIER} is hot or cold, not {bytes(value)!r:.80}", path=path
        )


def tier_of(metadata: Mapping[str, bytes], path: str) -> Tier | None:
    """The override in the metadata of a file; None without one, and for a value that is no tier,
    as a client of an earlier version may have written."""
    value = metadata.get(TIER)
    if value is None:
        return None
    tier = _tier(value)
    if tier is None:
        _LOG.warning("%s: the metadata %s is ignored: neither hot nor cold", path, TIER)
    return tier


def _tier(value: bytes) -> Tier | None:
    text = bytes(value).decode("ascii", "replace")
    return cast("Tier", text) if text in get_args(Tier) else None
