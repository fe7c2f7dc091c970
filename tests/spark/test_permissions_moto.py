"""The jobs as users of moto's IAM (`tests.engines.moto_iam`), whose signed requests pass the gate
before it: moto evaluates signatures and actions, the gate conditions and the resources of
DynamoDB."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from s3k_async import S3kClient
from s3k_async.backends.ports.items import Condition, Delete
from s3k_async.config import DynamoTable, S3Bucket, VolumeConfig
from s3k_async.errors import PermissionDeniedError
from s3k_async.integrity.gc_rules import Ages
from s3k_async.objects import ObjectStore
from s3k_async.spark import gc, gc_job, read_parquet, rename_files, write_parquet
from s3k_async.spark.restore_job import restore
from s3k_async.txn import volume_lock
from s3k_async.volumes import init_volume
from s3k_async.volumes.iam_policies import Role, iam_policy
from tests.engines.iam_gate import ACCOUNT, Gate, gate_before
from tests.engines.moto_iam import MotoIam, moto_iam
from tests.spark.conftest import task_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.engine, pytest.mark.spark]

ELSEWHERE = {"s3:GetObjectVersion"}
"""An action for adopted objects: `tests/client/test_object_versions.py`."""


@dataclass
class Guarded:
    """A volume in moto, with a user for each of two roles, behind a gate with the policy of
    `spark`."""

    iam: MotoIam
    gate: Gate

    def config(self, user: str) -> VolumeConfig:
        """The volume as a user opens it."""
        aws = self.iam.aws(user, self.gate.endpoint)
        table, data = DynamoTable("guarded", aws), S3Bucket("guarded", "", aws)
        return VolumeConfig("guarded", table, data, log=S3Bucket("guarded-log", "", aws))

    def policy(self, role: Role) -> dict[str, Any]:
        return iam_policy(self.config("root"), role, account=ACCOUNT)

    def keys(self, user: str) -> dict[str, str]:
        """The environment of the tasks of a user."""
        access, secret = self.iam.keys[user]
        return {"S3K_ACCESS_KEY_ID": access, "S3K_SECRET_ACCESS_KEY": secret}

    def enforce(self) -> None:
        """Let the following requests be evaluated."""
        self.iam.enforce(on=True)
        self.gate.forget()
        self.gate.policy = self.policy("spark")


@pytest.fixture(scope="module")
def iam(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoIam]:
    with moto_iam(tmp_path_factory.mktemp("moto")) as iam:
        yield iam


@pytest.fixture
def guarded(iam: MotoIam, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guarded]:
    """The volume, with garbage, uploads that were given up, and a file whose entry is lost."""
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)
    with gate_before(iam.server.endpoint, iam.server.endpoint) as gate:
        found = Guarded(iam, gate)
        asyncio.run(init_volume(found.config("root")))
        asyncio.run(fill(found.config("root")))
        for role in ("reader", "spark"):
            iam.grant(role, found.policy(role))
        yield found
    iam.reset()


async def fill(config: VolumeConfig) -> None:
    async with S3kClient(config=config) as fs:
        await fs.write_many([(f"/d{number % 2}/{number}", b"x") for number in range(6)])
        await fs.write("/d0/0", b"again")
        volume = fs._volume()
        await ObjectStore(fs).create_upload("d1", "k", lifetime=0.001)
        runtime = volume.store.runtime
        await volume.blobs.start_upload(runtime.physical_key(runtime.uuid()))
        await volume.log.drained()
        lost = await volume.store.get("/d0/2")
        assert lost is not None
        await volume.items.write(Delete(volume.store.keys.of(lost), Condition()))


def test_the_jobs_send_what_their_policy_allows(spark: SparkSession, guarded: Guarded) -> None:
    config = guarded.config("spark")
    moves = spark.createDataFrame([("/d1/1", "/d0/moved")], "source string, target string")
    rows = spark.range(4).coalesce(1)
    at_once = patch.object(gc_job, "Ages", lambda grace, lease: Ages(grace, lease, late=0.0))
    guarded.enforce()
    with task_environment(spark, guarded.keys("spark")), at_once:
        _, renamed = rename_files(spark, config, moves, tasks=1, dry_run=False)
        assert (renamed.done, renamed.failed) == (1, 0)
        write_parquet(rows, "/rows", volume=config)
        assert read_parquet(spark, "/rows", volume=config).count() == 4
        _, restored = restore(spark, config, subtree="/d0", tasks=1, dry_run=False)
        assert restored.written == 1
        _, collected = gc(spark, config, grace=0.0, lease=0.0, tasks=1, dry_run=False)
        assert collected.swept is not None
        assert collected.swept.failures == []
        assert (collected.swept.uploads, collected.swept.multipart) == (1, 1)
    assert guarded.gate.denied == []
    used = {each.action for each in guarded.gate.allowed}
    statements = guarded.policy("spark")["Statement"]
    allowed = {action for statement in statements for action in statement["Action"]}
    assert used == allowed - ELSEWHERE


def test_tasks_without_a_permission_name_it(spark: SparkSession, guarded: Guarded) -> None:
    """Executors sign with keys of their own: those of a reader may not write."""
    config = guarded.config("spark")
    moves = spark.createDataFrame([("/d1/1", "/d0/moved")], "source string, target string")
    guarded.enforce()
    with task_environment(spark, guarded.keys("reader")):
        _, renamed = rename_files(spark, config, moves, tasks=1, dry_run=False)
    ((source, error),) = renamed.failures
    assert (renamed.done, source, type(error)) == (0, "/d1/1", PermissionDeniedError)
    assert "AccessDenied to PutObject" in str(error)
    assert "s3k policy prints the permissions of a role" in str(error)
