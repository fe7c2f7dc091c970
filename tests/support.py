"""What several tests need: sources of time and randomness that they control."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from anyio.lowlevel import checkpoint

from s3k_async.sources import Sources

__all__ = ["FakeClock", "fake_sources"]


@dataclass
class FakeClock:
    """Time that passes only when it is told to, or when somebody sleeps."""

    seconds: float = 1_700_000_000.0
    sleeps: list[float] = field(default_factory=list)
    """Every wait so far, seconds."""

    def advance(self, seconds: float) -> None:
        self.seconds += seconds

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.seconds += seconds
        await checkpoint()


def fake_sources(clock: FakeClock | None = None, *, seed: int = 0) -> Sources:
    """Sources over `clock` (a new one unless given) whose randomness repeats for the same seed."""
    clock = clock or FakeClock()
    generator = random.Random(seed)
    return Sources(
        now_ms=clock.now_ms,
        monotonic=clock.monotonic,
        entropy=generator.randbytes,
        uniform=generator.uniform,
        sleep=clock.sleep,
    )
