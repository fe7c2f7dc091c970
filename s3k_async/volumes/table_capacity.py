"""The capacity of the table of a volume: provisioned or on demand."""

from __future__ import annotations

from contextlib import AsyncExitStack

from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.backends.ports.items import ProvisionedTable
from s3k_async.config import VolumeConfig
from s3k_async.errors import UnsupportedError, VolumeNotFoundError
from s3k_async.volumes.connections import VolumeConnections

__all__ = ["set_capacity"]


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
