"""The capacity of a volume's table: provisioned or on demand, and a limit on the units that a run
consumes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from s3k_async._core.capacity_limit import CapacityLimit
from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.backends.ports.items import ProvisionedTable
from s3k_async.config import VolumeConfig
from s3k_async.errors import InvalidArgumentError, UnsupportedError, VolumeNotFoundError
from s3k_async.txn.volume_record import RECORD_KEY
from s3k_async.volumes.connections import VolumeConnections
from s3k_async.volumes.volume import Volume

__all__ = ["limited_capacity", "need_reported", "set_capacity"]


@asynccontextmanager
async def limited_capacity(
    volume: Volume, *, read_units: float | None = None, write_units: float | None = None
) -> AsyncIterator[CapacityLimit]:
    """Limit the units per second that the requests of the body consume in the table, on average
    over some seconds; None: no limit. Lease renewals are exempt.

    Raises UnsupportedError for a table that does not report consumed units, and
    InvalidArgumentError for a limit that is not positive.
    """
    for units in (read_units, write_units):
        if units is not None and not units > 0:
            raise InvalidArgumentError(f"a limit of capacity units must be above 0, not {units}")
    limit = CapacityLimit(read_units, write_units, volume.store.runtime)
    if read_units is None and write_units is None:
        yield limit
        return
    with limit.applied():
        await volume.items.get(RECORD_KEY)
        need_reported(limit, volume)
        yield limit


def need_reported(limit: CapacityLimit, volume: Volume) -> None:
    """Raises UnsupportedError if no response to the requests within the limit, at least one,
    reported consumed units."""
    if not limit.is_reported:
        raise UnsupportedError(
            "the table does not report consumed capacity units, as DynamoDB does, so that they "
            "cannot be limited; limit the rate of actions",
            path=volume.record.name,
        )


async def set_capacity(
    config: VolumeConfig,
    *,
    read_units: int | None = None,
    write_units: int | None = None,
    runtime: Runtime = SYSTEM,
    session: object | None = None,
) -> bool:
    """Set the capacity of the table of a volume, units per second, or on demand without units, and
    wait until the change is complete; False if there was none. The volume may be in use.

    Raises UnsupportedError for a table without capacity units, VolumeNotFoundError, ConfigError
    (invalid units), and the service's errors: it limits how often the mode can be changed.
    """
    where = config.table.label
    async with AsyncExitStack() as stack:
        connections = VolumeConnections(config, runtime, session, stack)
        _, table = connections.whole_table()
        if not isinstance(table, ProvisionedTable):
            raise UnsupportedError(
                f"a table of {config.table.scheme} has no capacity units", path=where
            )
        if not await connections.retry_read(table.exists):
            raise VolumeNotFoundError("there is no such table", path=where)
        return await connections.retry_write(lambda: table.set_capacity(read_units, write_units))
