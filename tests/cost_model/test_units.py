"""The model's write units are those of the items that are really written."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.items import Action, Delete, Put, Update
from s3k_async.cost_model import deletion, renaming
from s3k_async.cost_model.item_size import item_size, write_units
from s3k_async.cost_model.service_limits import Service
from tests.cost_model.counting import MEMORY, laid
from tests.cost_model.test_counts import client_of, plant

FILES = [f"part-{number:05}" for number in range(230)]


class _Scales:
    """Counts the units of every write of the engine in memory, by the larger of the item before and
    after it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.units = 0
        write, transact = MemoryItems.write, MemoryItems.transact

        async def weighed_write(items: MemoryItems, action: Put | Update | Delete) -> None:
            units = await self._weigh(items, [action])
            await write(items, action)
            self.units += units

        async def weighed_transact(
            items: MemoryItems, actions: Sequence[Action], token: str
        ) -> None:
            units = await self._weigh(items, actions)
            await transact(items, actions, token)
            self.units += 2 * units

        patch.setattr(MemoryItems, "write", weighed_write)
        patch.setattr(MemoryItems, "transact", weighed_transact)

    async def _weigh(self, items: MemoryItems, actions: Sequence[Action]) -> int:
        units = 0
        for action in actions:
            before = await items.get(action.key)
            after = action.item if isinstance(action, Put) else {}
            units += write_units(max(item_size(before or {}), item_size(after)))
        return units


@pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "plain"])
@pytest.mark.parametrize(("verb", "each"), [("rename", 4), ("delete", 2)])
async def test_write_units(
    verb: str, each: int, atomic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file is written four times to be renamed at once, twice to be deleted; half as often
    otherwise."""
    async with client_of(3) as client:
        await plant(client, "/in/tree", FILES)
        tree = await laid(client, "/in/tree", MEMORY)
        scales = _Scales(monkeypatch)
        if verb == "rename":
            await client.rename("/in/tree", "/in/moved", atomic=atomic)
            work = renaming(tree, Service(), atomic=atomic)
        else:
            await client.delete("/in/tree", recursive=True, atomic=atomic)
            work = deletion(tree, Service(), atomic=atomic)
        assert scales.units == work.write_units
        in_transactions = 2 * len(FILES) * (each if atomic else each // 2)
        assert 0 <= scales.units - in_transactions < 20
