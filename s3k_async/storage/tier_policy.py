"""Which hot objects are moved to the cold location: by age and watermarks, and by the user metadata
`Tier` of single files."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast

from s3k_async._core.duration_syntax import seconds_of
from s3k_async.backends.ports.blobs import BlobInfo
from s3k_async.errors import InvalidArgumentError

__all__ = ["TIER", "MovePolicy", "Overrides", "Tier", "check_tier", "tier_of"]

_LOG = logging.getLogger(__name__)

TIER: Final = "Tier"
"""The name of the user metadata that overrides the policy for one file."""

Tier: TypeAlias = Literal["hot", "cold"] | int
"""Its values. `hot`: the file is never moved. `cold`: it is moved by the next run. An age in
seconds, in the metadata `hot:` and a duration: it is moved when it is older, and never before."""
_AGE: Final = "hot:"

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
        are `cold`, or too old, by an override, then those that the policy chooses. Other objects
        with an override stay; their bytes count for the watermarks."""
        known = overrides or {}
        ordered = sorted(objects, key=lambda each: (each.mtime_ms, each.size, each.key))
        cold = [each for each in ordered if _is_cold(known.get(each.key), each, now_ms)]
        free = [each for each in ordered if each.key not in known]
        left = sum(each.size for each in ordered) - sum(each.size for each in cold)
        return cold + self._due(free, left, now_ms)

    def _due(self, ordered: list[BlobInfo], left: int, now_ms: int) -> list[BlobInfo]:
        """Those that age and watermarks choose, the oldest first; `left`: bytes that are hot."""
        if self.older_than is None and self.high is None:
            return ordered
        limit = self.low if self.high is not None and left > self.high else None
        chosen = []
        for each in ordered:
            is_old = self.older_than is not None and _is_older(each, self.older_than, now_ms)
            if is_old or (limit is not None and left > limit):
                chosen.append(each)
                left -= each.size
        return chosen


def _is_cold(tier: Tier | None, info: BlobInfo, now_ms: int) -> bool:
    """Whether an object is to be moved by its override."""
    return _is_older(info, tier, now_ms) if isinstance(tier, int) else tier == "cold"


def _is_older(info: BlobInfo, seconds: float, now_ms: int) -> bool:
    return info.mtime_ms < now_ms - int(seconds * 1000)


def check_tier(metadata: Mapping[str, bytes | None], path: str) -> None:
    """Raise InvalidArgumentError for a value of TIER that is no tier. None removes it."""
    value = metadata.get(TIER)
    if value is not None and _tier(value) is None:
        raise InvalidArgumentError(
            f"the metadata {TIER} is hot or cold, or hot: with the age after which the file "
            f"becomes cold, such as hot:7d, not {bytes(value)!r:.80}",
            path=path,
        )


def tier_of(metadata: Mapping[str, bytes], path: str) -> Tier | None:
    """The override in the metadata of a file; None without one, and for a value that is no tier,
    as a client of an earlier version may have written."""
    value = metadata.get(TIER)
    if value is None:
        return None
    tier = _tier(value)
    if tier is None:
        _LOG.warning("%s: the metadata %s is ignored: neither hot, cold nor an age", path, TIER)
    return tier


def _tier(value: bytes) -> Tier | None:
    text = bytes(value).decode("ascii", "replace")
    if text.startswith(_AGE):
        return seconds_of(text.removeprefix(_AGE))
    return cast("Tier", text) if text in ("hot", "cold") else None
