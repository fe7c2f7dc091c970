"""A rename of a directory whose owner dies around its publish, on any volume."""

from __future__ import annotations

from typing import Literal

import pytest

from s3k_async.backends.ports.items import Condition, Update
from s3k_async.config import VolumeConfig
from s3k_async.testing import Died
from s3k_async.txn.txn_record import (
    OwnedTransaction,
    TransactionRecords,
    TransactionState,
    transaction_key,
)
from s3k_async.volumes import open_volume

__all__ = ["DEAD", "rename_and_die"]

DEAD = 1
"""A lease that ran out long ago."""


async def rename_and_die(
    config: VolumeConfig,
    source: str,
    target: str,
    when: Literal["before", "after"],
    *,
    lease: int | None = DEAD,
) -> str:
    """Rename a directory, die before or after the publish, and return the transaction id. With
    `lease` None the lease of the owner remains valid."""
    publish = TransactionRecords.publish

    async def die_around(transactions: TransactionRecords, txn: OwnedTransaction) -> None:
        if when == "after":
            await publish(transactions, txn)
        raise Died("is dead")

    async def dead(_transactions: TransactionRecords, _txn: OwnedTransaction) -> TransactionState:
        raise Died("is dead")

    async def says_nothing(_transactions: TransactionRecords, _txn: OwnedTransaction) -> None:
        pass

    volume = await open_volume(config)
    try:
        entry = await volume.store.get(source)
        assert entry is not None
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(TransactionRecords, "publish", die_around)
            patched.setattr(TransactionRecords, "abort", dead)
            patched.setattr(TransactionRecords, "_end", says_nothing)
            with pytest.raises(Died):
                await volume.store.layout.rename_directory(entry, target, atomic=True)
        (record,) = [each async for each in volume.store.transactions.records()]
        if lease is not None:
            await volume.items.write(
                Update(transaction_key(record.id), Condition(), set={"lease": lease})
            )
        return record.id
    finally:
        await volume.close()
