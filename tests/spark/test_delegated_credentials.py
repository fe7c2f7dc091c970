"""Credentials that the driver delegates to tasks: moto's STS and S3, with a proxy before each that
shows the requests. Tasks find no credentials of their own."""

from __future__ import annotations

import pickle
import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from anyio import to_thread

from s3k_async import S3kSyncClient
from s3k_async._core.runtime import SYSTEM
from s3k_async.config import AwsConfig, DynamoTable, S3Bucket, VolumeConfig
from s3k_async.errors import ConfigError
from s3k_async.spark import (
    delegated_credentials,
    each_partition,
    read_parquet,
    spark_volume,
    write_parquet,
)
from s3k_async.spark.source import register
from s3k_async.volumes import init_volume
from tests.engines.process import Engine
from tests.engines.volumes import VolumeMaker, volume_backends
from tests.proxy import Answer, Call, FaultProxy, Rewrite
from tests.spark.conftest import CREDENTIALS, task_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, volume_backends("dynoxide+moto")]
ROLE = "arn:aws:iam::123456789012:role/driver"
EXPIRATION = re.compile(rb"<Expiration>[^<]*")


@dataclass
class Services:
    """A volume whose tasks get credentials of the driver, and the requests to STS and S3."""

    volume: VolumeConfig
    sts: FaultProxy
    s3: FaultProxy
    own: str
    """The access key id of the driver."""

    @property
    def actions(self) -> list[str]:
        """The operations of STS, in order."""
        return [re.findall(r"Action=(\w+)", call.body.decode())[0] for call in self.sts.calls]

    @property
    def tokens(self) -> set[str]:
        """The session tokens of the requests to S3 that the driver's key has not signed."""
        delegated = [call for call in self.s3.calls if signer(call) != self.own]
        return {call.headers["x-amz-security-token"] for call in delegated}

    def with_aws(self, change: Callable[[AwsConfig], AwsConfig]) -> VolumeConfig:
        """The volume with other settings of its services."""
        table, data = self.volume.table, self.volume.data
        assert isinstance(table, DynamoTable)
        assert isinstance(data, S3Bucket)
        return replace(
            self.volume,
            table=table.with_service(change(table.aws)),
            data=data.with_service(change(data.aws)),
        )


def signer(call: Call) -> str:
    """The access key id of a signed request."""
    return call.headers["authorization"].partition("Credential=")[2].partition("/")[0]


@pytest.fixture
async def services(new_volume: VolumeMaker, moto_s3: Engine) -> AsyncIterator[Services]:
    async with FaultProxy(moto_s3.endpoint) as sts, FaultProxy(moto_s3.endpoint) as s3:
        made = new_volume()
        await init_volume(made)
        services = Services(made, sts, s3, moto_s3.access_key)
        services.volume = services.with_aws(lambda aws: replace(aws, sts_endpoint=sts.url))
        data = services.volume.data
        assert isinstance(data, S3Bucket)
        services.volume = replace(
            services.volume,
            data=data.with_service(replace(data.aws, endpoint=s3.url)),
            log=None,
            tuning=replace(made.tuning, delegate_credentials=True),
        )
        yield services


@pytest.fixture(autouse=True)
def tasks_without_settings(spark: SparkSession) -> Iterator[None]:
    with task_environment(spark, dict.fromkeys(CREDENTIALS, "")):
        yield


def write(fs: S3kSyncClient, numbers: Iterator[int]) -> Iterator[int]:
    for number in numbers:
        fs.write(f"/{number}", b"1")
        yield number


def nothing(fs: S3kSyncClient, batches: Iterator[object]) -> Iterator[object]:
    return batches


def written(spark: SparkSession, config: VolumeConfig, *numbers: int) -> list[int]:
    """The files that tasks have written."""
    rows = spark.sparkContext.parallelize(numbers, 1)
    return rows.mapPartitions(each_partition(config, write)).collect()


async def test_tasks_use_a_session_of_the_driver(spark: SparkSession, services: Services) -> None:
    """Long-lived keys stay on the driver. No plan, repr or pickle has the secrets of either."""
    volume = await to_thread.run_sync(spark_volume, spark, services.volume)
    assert services.actions == ["GetSessionToken"] * 2  # at the endpoints of table and data
    assert await to_thread.run_sync(written, spark, volume.executors, 1, 2) == [1, 2]
    assert services.actions == ["GetSessionToken"] * 2
    assert len(services.tokens) == 1
    frame = spark.range(1).mapInArrow(each_partition(volume.executors, nothing), "id long")
    plan = frame._jdf.queryExecution().toString()
    data = volume.executors.data
    assert isinstance(data, S3Bucket)
    assert data.aws.delegated is not None
    issued = data.aws.delegated.current()
    shipped = pickle.dumps(volume)
    assert issued.session_token.reveal() in services.tokens
    for secret in (issued.secret_access_key, issued.session_token, issued.access_key_id):
        assert secret.reveal() not in f"{volume!r}{issued!r}{plan}"
        assert secret.reveal().encode() not in shipped + pickle.dumps(issued)
    assert data.aws.secret_access_key.reveal() == ""


async def test_a_role_is_assumed_by_the_driver_alone(
    spark: SparkSession, services: Services
) -> None:
    config = services.with_aws(lambda aws: replace(aws, role_arn=ROLE, role_session_name="job"))
    volume = await to_thread.run_sync(spark_volume, spark, config)
    assert services.actions == ["AssumeRole"] * 2
    assert await to_thread.run_sync(written, spark, volume.executors, 3) == [3]
    assert services.actions == ["AssumeRole"] * 2
    assert len(services.tokens) == 1
    data = volume.executors.data
    assert isinstance(data, S3Bucket)
    assert (data.aws.role_arn, data.aws.role_session_name) == (None, None)


def expired(answer: Answer) -> Answer:
    """An answer of STS with credentials that have expired."""
    body = EXPIRATION.sub(b"<Expiration>2020-01-01T00:00:00Z", answer.body)
    return replace(answer, body=body)


async def test_each_stage_has_credentials_that_are_valid(
    spark: SparkSession, services: Services
) -> None:
    """Expired ones are a named error in tasks; later tasks of the same function get new ones."""
    services.sts.rule(Rewrite(expired))
    volume = await to_thread.run_sync(spark_volume, spark, services.volume)
    with pytest.raises(Exception, match=r"CredentialsError: .*have expired, at 2020-01-01"):
        await to_thread.run_sync(written, spark, volume.executors, 4)
    services.sts.clear()
    assert await to_thread.run_sync(written, spark, volume.executors, 5) == [5]
    assert services.actions == ["GetSessionToken"] * 2


async def test_frames_are_read_and_written_with_delegated_credentials(
    spark: SparkSession, services: Services
) -> None:
    def copied() -> int:
        write_parquet(spark.range(5).coalesce(1), "/five", volume=services.volume)
        return read_parquet(spark, "/five", volume=services.volume).count()

    assert await to_thread.run_sync(copied) == 5
    assert services.tokens


def write_five(config: VolumeConfig) -> None:
    """Write a Parquet file of five rows, without Spark."""
    with S3kSyncClient(config=config) as fs, fs.open("/five/part.parquet", "wb") as file:
        pq.write_table(pa.table({"id": range(5)}), file)


async def test_a_dataframe_keeps_the_credentials_with_which_it_was_created(
    spark: SparkSession, services: Services
) -> None:
    def made_again() -> int:
        write_five(services.volume)
        services.sts.rule(Rewrite(expired))
        frame = read_parquet(spark, "/five", volume=services.volume)
        services.sts.clear()
        with pytest.raises(Exception, match=r"CredentialsError: .*: create or load it again"):
            frame.count()
        return read_parquet(spark, "/five", volume=services.volume).count()

    assert await to_thread.run_sync(made_again) == 5


async def test_the_data_source_gets_credentials_when_spark_plans_it(
    spark: SparkSession, services: Services, moto_s3: Engine
) -> None:
    """At the first action of a frame, by the keys that the planning process finds."""
    keys = dict(zip(CREDENTIALS, (moto_s3.access_key, moto_s3.secret_key), strict=True))

    def read_and_write() -> None:
        write_five(services.volume)
        rows = spark.createDataFrame([(number,) for number in range(3)], "id long").coalesce(1)
        with task_environment(spark, keys):
            register(spark, volume=services.volume, short_name="delegated")
        frame = spark.read.format("delegated").load("/five")
        later = spark.read.format("delegated").load("/five")
        assert services.actions == []
        services.sts.rule(Rewrite(expired))
        with pytest.raises(Exception, match=r"CredentialsError: .*have expired"):
            frame.count()
        services.sts.clear()
        services.s3.calls.clear()
        assert later.count() == 5
        assert set(services.actions) == {"GetSessionToken"}
        assert services.tokens
        services.sts.clear()
        services.s3.calls.clear()
        rows.write.format("delegated").mode("append").save("/five")
        assert set(services.actions) == {"GetSessionToken"}
        written = [call for call in services.s3.calls if b"PAR1" in call.body]
        assert written
        assert services.own not in map(signer, written)
        with S3kSyncClient(config=services.volume) as fs:
            assert len(list(fs.list("/five"))) == 2

    await to_thread.run_sync(read_and_write)


async def test_spark_plans_a_table_for_each_query_and_a_dataframe_once(
    spark: SparkSession, services: Services, moto_s3: Engine
) -> None:
    """Spark keeps the function of the tasks with what `load` returned, so also for every DataFrame
    that is made from it; a table of the catalog is loaded for each query."""
    keys = dict(zip(CREDENTIALS, (moto_s3.access_key, moto_s3.secret_key), strict=True))

    def used_again() -> None:
        write_five(services.volume)
        with task_environment(spark, keys):
            register(spark, volume=services.volume, short_name="fives", options={"path": "/five"})
        frame = spark.read.format("fives").load()
        spark.sql("CREATE TABLE fives USING fives")
        table = spark.table("fives")
        services.sts.rule(Rewrite(expired))
        for first in (frame, table):
            with pytest.raises(Exception, match=r"CredentialsError: .*have expired"):
                first.count()
        services.sts.clear()
        for kept in (frame, frame.where("id < 3"), table):
            with pytest.raises(Exception, match=r"CredentialsError: .*load it again"):
                kept.count()
        assert services.actions == []
        assert spark.table("fives").count() == 5
        assert set(services.actions) == {"GetSessionToken"}
        assert spark.read.format("fives").load().count() == 5

    try:
        await to_thread.run_sync(used_again)
    finally:
        spark.sql("DROP TABLE IF EXISTS fives")


async def test_what_cannot_be_delegated(spark: SparkSession, services: Services) -> None:
    volume = await to_thread.run_sync(spark_volume, spark, services.volume)
    with pytest.raises(ConfigError, match="instead of the result of spark_volume"):
        register(spark, volume=volume)
    apart = services.with_aws(lambda aws: replace(aws, sts_endpoint=None))
    with pytest.raises(ConfigError, match="needs sts_endpoint"):
        await to_thread.run_sync(spark_volume, spark, apart)
    services.sts.rule(Answer(403, DENIED, {"Content-Type": "text/xml"}))
    with pytest.raises(PermissionError, match="AccessDenied"):
        await to_thread.run_sync(spark_volume, spark, services.volume)


DENIED = (
    b"<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code>"
    b"<Message>not you</Message></Error></ErrorResponse>"
)


async def test_renewal_that_fails_is_no_error_before_they_expire(
    spark: SparkSession, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = await to_thread.run_sync(spark_volume, spark, services.volume)
    data: Any = volume.executors.data
    first = data.aws.delegated.current()
    services.sts.rule(Answer(403, DENIED, {"Content-Type": "text/xml"}), times=1)
    later = SYSTEM.now_ms() + 7 * 3600 * 1000  # of twelve hours
    monkeypatch.setattr(delegated_credentials, "SYSTEM", replace(SYSTEM, now_ms=lambda: later))
    assert await to_thread.run_sync(data.aws.delegated.current) == first
    renewed = await to_thread.run_sync(data.aws.delegated.current)
    assert renewed.expires_ms != first.expires_ms
    services.sts.rule(Answer(403, DENIED, {"Content-Type": "text/xml"}))
    later += 24 * 3600 * 1000
    with pytest.raises(PermissionError, match="AccessDenied"):
        await to_thread.run_sync(data.aws.delegated.current)
