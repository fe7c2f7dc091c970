"""The jobs by the policy of their role (`s3k policy spark`)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from s3k_async import S3kSyncClient
from s3k_async.config import DynamoTable, S3Bucket, VolumeConfig
from s3k_async.errors import PermissionDeniedError
from s3k_async.spark import gc, listing, purge, rename_files
from s3k_async.spark.fsck_job import repair, verify
from s3k_async.spark.restore_job import restore
from s3k_async.volumes import init_volume
from s3k_async.volumes.iam_policies import iam_policy
from tests.engines.iam_gate import ACCOUNT, gate_before, without
from tests.engines.volumes import VolumeMaker, volume_backends
from tests.spark.places import on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def behind(config: VolumeConfig, endpoint: str) -> VolumeConfig:
    assert isinstance(config.table, DynamoTable)
    assert isinstance(config.data, S3Bucket)
    return replace(
        config,
        table=replace(config.table, aws=replace(config.table.aws, endpoint=endpoint)),
        data=replace(config.data, aws=replace(config.data.aws, endpoint=endpoint)),
    )


@volume_backends("dynoxide+seaweedfs")
def test_the_jobs(spark: SparkSession, new_volume: VolumeMaker) -> None:
    config = new_volume()
    assert isinstance(config.table, DynamoTable)
    assert isinstance(config.data, S3Bucket)
    with gate_before(str(config.table.aws.endpoint), str(config.data.aws.endpoint)) as gate:
        config = behind(config, gate.endpoint)
        asyncio.run(init_volume(config))
        with S3kSyncClient(config=config) as fs:
            fs.write_many([(f"/d{number % 3}/{number}", b"x" * number) for number in range(12)])
            fs.write("/d0/0", b"again")
        gate.forget()
        gate.policy = iam_policy(config, "spark", account=ACCOUNT)
        assert listing(spark, config, "/").count() == 15
        moves = spark.createDataFrame([("/d1/1", "/d2/moved")], "source string, target string")
        _, renamed = rename_files(spark, config, moves, dry_run=False)
        assert renamed.failed == 0
        _, report = verify(spark, config, grace=0.0, tasks=2)
        assert report.problems == []
        repair(spark, config, grace=0.0, tasks=2, dry_run=False)
        _, collected = gc(spark, config, grace=0.0, tasks=2, dry_run=False)
        assert collected.swept is not None
        assert collected.swept.failures == []
        purge(spark, config, "/d0", dry_run=False)
        assert gate.denied == []
        used = {each.action for each in gate.allowed}
        more = {"dynamodb:Scan", "s3:ListBucketMultipartUploads"}
        assert more <= used


@volume_backends("dynoxide+seaweedfs")
def test_what_a_job_lacks_is_named(spark: SparkSession, new_volume: VolumeMaker) -> None:
    """On executors as Spark reports it, and on the driver."""
    config = new_volume()
    assert isinstance(config.table, DynamoTable)
    assert isinstance(config.data, S3Bucket)
    with gate_before(str(config.table.aws.endpoint), str(config.data.aws.endpoint)) as gate:
        config = behind(config, gate.endpoint)
        asyncio.run(init_volume(config))
        policy = iam_policy(config, "spark", account=ACCOUNT)
        gate.policy = without(policy, "dynamodb:Scan")
        with pytest.raises(PySparkException, match="not authorized to perform: dynamodb:Scan"):
            verify(spark, config, grace=0.0, tasks=2)
        gate.policy = without(policy, "s3:ListBucketMultipartUploads")
        with pytest.raises(PermissionDeniedError, match="s3:ListBucketMultipartUploads"):
            gc(spark, config, grace=0.0, tasks=2, dry_run=False)


@volume_backends("dynoxide+seaweedfs")
def test_a_lost_table_is_not_created(spark: SparkSession, new_volume: VolumeMaker) -> None:
    """An operator restores it."""
    config = new_volume()
    assert isinstance(config.table, DynamoTable)
    assert isinstance(config.data, S3Bucket)
    with gate_before(str(config.table.aws.endpoint), str(config.data.aws.endpoint)) as gate:
        config = behind(config, gate.endpoint)
        asyncio.run(init_volume(config))
        on(config, lambda volume: volume.table.drop())
        gate.policy = iam_policy(config, "spark", account=ACCOUNT)
        with pytest.raises(PermissionDeniedError, match="grant dynamodb:CreateTable;"):
            restore(spark, config, dry_run=False)
