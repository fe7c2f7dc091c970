"""Health checks of an open volume: one cheap request to each of its services."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, TypeAlias

import anyio

from s3k_async._core.concurrency import gather
from s3k_async._core.runtime import Runtime
from s3k_async.backends.retrying.retrying_blobs import RetryingBlobs
from s3k_async.errors import RequestTimeoutError, S3kError, VolumeNotFoundError
from s3k_async.txn.volume_record import RECORD_KEY
from s3k_async.volumes.claims import CLAIM
from s3k_async.volumes.volume import Volume

__all__ = ["Component", "ComponentHealth", "VolumeHealth", "check_health"]

Component: TypeAlias = Literal["table", "data", "log", "hot"]

_AT_ONCE: Final = 4


@dataclass(frozen=True, slots=True)
class ComponentHealth:
    """The answer of one service to a health check."""

    component: Component
    """The table, the data location, the log location, or the hot location."""
    seconds: float
    """Time until the answer, or the failure."""
    error: S3kError | None = None
    """Why it is not healthy: RequestTimeoutError without an answer in time, else the error of the
    service."""

    @property
    def healthy(self) -> bool:
        """Whether it answered as expected."""
        return self.error is None


@dataclass(frozen=True, slots=True)
class VolumeHealth:
    """The result of a health check."""

    components: tuple[ComponentHealth, ...]
    """Table and data; the log unless it is disabled; the hot location if there is one."""

    @property
    def healthy(self) -> bool:
        """Whether all components are healthy."""
        return all(each.healthy for each in self.components)

    def of(self, component: Component) -> ComponentHealth | None:
        """One component; None if the volume does not have it."""
        return next((each for each in self.components if each.component == component), None)


@dataclass(frozen=True, slots=True)
class _Probe:
    component: Component
    send: Callable[[], Awaitable[object]]


async def check_health(volume: Volume, timeout: float) -> VolumeHealth:  # noqa: ASYNC109 - of each
    """Send one request to each component, all at once, and wait up to `timeout` seconds."""
    probes = [
        _Probe("table", partial(volume.items.probe, RECORD_KEY)),
        _Probe("data", partial(_need_mark, volume.place, marked=not volume.read_only)),
    ]
    if volume.log_place is not None:
        probes.append(_Probe("log", partial(volume.log_place.probe, CLAIM)))
    if volume.hot_place is not None:
        probes.append(_Probe("hot", partial(_need_mark, volume.hot_place, marked=True)))

    async def one(probe: _Probe) -> ComponentHealth:
        return await _asked(probe, timeout, volume.store.runtime)

    return VolumeHealth(tuple(await gather(one, probes, limit=_AT_ONCE)))


async def _asked(probe: _Probe, seconds: float, runtime: Runtime) -> ComponentHealth:
    began = runtime.monotonic()
    error: S3kError | None = RequestTimeoutError(
        f"the {probe.component} did not answer a health check within {seconds:g} s"
    )
    with anyio.move_on_after(seconds):
        try:
            await probe.send()
            error = None
        except S3kError as failure:
            error = failure
    return ComponentHealth(probe.component, runtime.monotonic() - began, error)


async def _need_mark(place: RetryingBlobs, *, marked: bool) -> None:
    """Raise VolumeNotFoundError if a location has no mark of its volume, such as that of another
    volume, or of a disk that is not mounted. A volume of S3-FileSystem 1.0 has no mark."""
    if await place.probe(CLAIM) is None and marked:
        raise VolumeNotFoundError("the location has no mark of the volume", path=place.uri(CLAIM))
