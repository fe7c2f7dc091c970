"""The rules on each kind of table."""

from __future__ import annotations

from s3k_async.attributes import Attributes
from s3k_async.client import S3kClient
from s3k_async.lifecycle_rules import DueAction, LifecycleRule
from s3k_async.model import LayoutName
from s3k_async.volumes import init_volume
from tests.client.rig import TUNING
from tests.engines.volumes import VolumeMaker, volume_backends


@volume_backends()
async def test_a_volume_with_rules(new_volume: VolumeMaker, layout: LayoutName) -> None:
    config = new_volume(tuning=TUNING, layout=layout)
    await init_volume(config, enable=["rules"])
    expiring = Attributes(metadata={"ExpiresAt": b"1"})
    async with S3kClient(config=config) as fs:
        await fs.write_many([(f"/d/{number}", b"1") for number in range(5)])
        await fs.write("/own", b"1", attributes=expiring)
        await fs.write("/gone", b"1", attributes=expiring)
        await fs.delete("/gone")
        await fs.write("/kept", b"1", attributes=Attributes(metadata={"ExpiresAfter": b"9999"}))
        for _ in range(2):
            await fs.set_rule("/d", expire_at=1)
        await fs.set_rule("/e", expire_after=5, read_only_after=1)
        await fs.remove_rule("/e")
        assert await fs.rules() == [LifecycleRule("/d", expire_at=1)]
        due = [each async for each in fs.due_actions()]
        assert DueAction("/own", "expire", 1000) in due
        assert len(due) == 6
        result = await fs.run_rules()
        assert (result.expired, result.failures) == (6, ())
        assert [each.path async for each in fs.list("/", recursive=True) if each.is_file] == [
            "/kept"
        ]
        assert (await fs.run_rules()).expired == 0
