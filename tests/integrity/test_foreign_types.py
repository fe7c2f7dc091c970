"""Items of DynamoDB with attributes of types that no attribute of ours has: named, and put into
quarantine."""

from __future__ import annotations

from typing import Any, Final

import pytest

from s3k_async.config import DynamoTable, MemoryBlobs, VolumeConfig
from s3k_async.errors import ItemFormatError
from s3k_async.integrity.repair import repair_volume, verify_volume
from s3k_async.volumes import init_volume, open_volume
from tests.engines.process import Engine
from tests.engines.volumes import closing_client, fresh_name, fresh_table

ODD: Final[dict[str, dict[str, Any]]] = {
    "isdir": {"NULL": True},
    "size": {"N": "1.5"},
    "ver": {"L": [{"S": "a"}, {"N": "1"}]},
    "ctime": {"M": {"k": {"BOOL": True}}},
    "mtime": {"B": b"\x00\xff"},
    "lease": {"SS": ["a", "b"]},
    "physcommitted": {"BS": [b"\x00"]},
}


@pytest.mark.engine
async def test_items_of_foreign_types_go_into_quarantine(dynoxide: Engine) -> None:
    """Repair asked for an attribute that equals its text form, which it never did: each run left
    the item."""
    name = fresh_name("odd")
    with fresh_table(dynoxide) as table:
        config = VolumeConfig(
            name, DynamoTable(table.name, dynoxide.aws()), MemoryBlobs(name), suffix_count=2
        )
        await init_volume(config)
        volume = await open_volume(config)
        try:
            for attribute in ODD:
                target = await volume.store.prepare(f"/d/{attribute}")
                await volume.store.publish(
                    target, await volume.storage.put(target.object_id, attribute.encode())
                )
            await volume.store.changes.log.drained()
            with closing_client(dynoxide, "dynamodb") as client:
                for attribute, value in ODD.items():
                    place, sort = volume.store.keys.key(f"/d/{attribute}")
                    client.update_item(
                        TableName=table.name,
                        Key={"path": {"S": place}, "children": {"S": sort}},
                        UpdateExpression="SET #a = :v",
                        ExpressionAttributeNames={"#a": attribute},
                        ExpressionAttributeValues={":v": value},
                    )
            for attribute in ODD:
                with pytest.raises(ItemFormatError) as caught:
                    await volume.store.get(f"/d/{attribute}")
                assert caught.value.path == f"/d/{attribute}"
            assert (await verify_volume(volume, grace=0.0)).kinds["item_damaged"] == len(ODD)
            report = await repair_volume(volume, dry_run=False, grace=0.0)
            assert report.outcomes["quarantine", "done"] == len(ODD)
            assert (await verify_volume(volume, grace=0.0)).clean
            for attribute in ODD:
                entry = await volume.store.get(f"/d/{attribute}")
                assert entry is not None
                assert await volume.storage.read(str(entry.physical)) == attribute.encode()
        finally:
            await volume.close()
