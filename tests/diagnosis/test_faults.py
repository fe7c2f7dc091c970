"""Each seeded fault is found by the check that is for it, and hides no other check."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from s3k_async import S3kClient
from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.local import disk_space
from s3k_async.backends.location import OpenContext
from s3k_async.backends.ports.blobs import BlobInfo, Buffer
from s3k_async.backends.ports.items import ABSENT, Condition, Delete, Put, Update
from s3k_async.backends.ports.service_inspection import DiskSpace
from s3k_async.config import DynamoTable, S3Bucket, Secret, VolumeConfig
from s3k_async.diagnosis import leftover_checks
from s3k_async.diagnosis.check_result import CheckResult, CheckStatus
from s3k_async.diagnosis.volume_diagnosis import Diagnosis, diagnose
from s3k_async.errors import (
    NoSpaceError,
    PermissionDeniedError,
    S3kError,
    ServiceError,
    UnreachableError,
)
from s3k_async.testing import FaultPlan, MemoryBlobs
from s3k_async.txn.txn_record import TransactionRecords
from s3k_async.txn.volume_record import RECORD_KEY, TAG
from s3k_async.volumes import init_volume
from s3k_async.volumes.claims import CLAIM
from s3k_async.volumes.iam_policies import ROLES, Role, iam_policy
from tests.engines.iam_gate import ACCOUNT, gate_before
from tests.engines.process import Engine, free_ports
from tests.engines.volumes import VolumeMaker, closing_client, fresh_name, volume_backends
from tests.proxy import Answer, Delay, FaultProxy, Rewrite, dynamodb_error

on_engines = volume_backends("dynoxide+seaweedfs")
in_memory = volume_backends("memory")
embedded = volume_backends("embedded")


def named(diagnosis: Diagnosis, name: str) -> CheckResult:
    return next(each for each in diagnosis.results if each.name == name)


def found(diagnosis: Diagnosis, name: str, status: CheckStatus, text: str) -> CheckResult:
    """The result of a check, which is as expected, names its remedy, and hides no other one."""
    result = named(diagnosis, name)
    assert result.status == status, result
    assert text in result.found
    assert result.remedy
    assert (result.error is not None) == (status == "failure")
    assert named(diagnosis, "versions").status == "ok"
    assert {"record", "tag", "settings", "data mark", "transactions"} <= {
        each.name for each in diagnosis.results
    }
    return result


@dataclass
class Located:
    """A volume on engines."""

    config: VolumeConfig

    @property
    def table(self) -> DynamoTable:
        assert isinstance(self.config.table, DynamoTable)
        return self.config.table

    @property
    def bucket(self) -> S3Bucket:
        assert isinstance(self.config.data, S3Bucket)
        return self.config.data

    def at_table(self, **changes: Any) -> VolumeConfig:
        """With other settings of the table's service."""
        return replace(
            self.config, table=self.table.with_service(replace(self.table.aws, **changes))
        )

    def at_data(self, **changes: Any) -> VolumeConfig:
        """With other settings of the data's service."""
        return replace(
            self.config, data=self.bucket.with_service(replace(self.bucket.aws, **changes))
        )


@pytest.fixture
async def located(new_volume: VolumeMaker) -> Located:
    config = new_volume("sick")
    await init_volume(config)
    return Located(config)


@asynccontextmanager
async def proxied(engine: str) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(engine) as proxy:
        yield proxy


@on_engines
async def test_a_healthy_volume_has_nothing_to_do(located: Located) -> None:
    diagnosis = await diagnose(located.config, role="operator")
    assert {each.status for each in diagnosis.results} == {"ok", "skipped"}
    assert {each.name for each in diagnosis.of("skipped")} == {
        "table backups",  # which the engine does not know
        "data s3:CreateBucket",  # only creation itself shows it
        "table dynamodb:CreateTable",
        "table dynamodb:DeleteTable",
        "table dynamodb:UpdateContinuousBackups",
        "table dynamodb:UpdateTable",
    }
    assert not [each for each in diagnosis.results if each.remedy]


@on_engines
async def test_nothing_is_left_behind_and_nothing_is_repaired(
    located: Located, dynoxide: Engine, seaweedfs: Engine
) -> None:
    def contents() -> tuple[Any, Any]:
        with (
            closing_client(dynoxide, "dynamodb") as dynamodb,
            closing_client(seaweedfs, "s3") as s3,
        ):
            items = dynamodb.scan(TableName=located.table.name)["Items"]
            keys = s3.list_objects_v2(Bucket=located.bucket.bucket).get("Contents", [])
            return items, [(each["Key"], each["LastModified"]) for each in keys]

    before = contents()
    async with (
        FaultProxy(located.table.aws.endpoint) as table,
        FaultProxy(located.bucket.aws.endpoint) as data,
    ):
        config = replace(
            located.at_table(endpoint=table.url), data=located.at_data(endpoint=data.url).data
        )
        await diagnose(config)
        await diagnose(config, role="operator", read_only=True)
        assert not data.count(method="PUT")
        assert not data.count(method="POST")
        assert not table.count(target="BatchWriteItem")
        assert contents() == before
        await diagnose(config, role="operator")
        assert data.count(method="PUT") == 2  # the second without an effect
        assert table.count(target="BatchWriteItem") == 1
    assert contents() == before


@on_engines
async def test_no_credentials(located: Located, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", "/nonexistent")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    diagnosis = await diagnose(located.at_data(access_key_id=Secret(), secret_access_key=Secret()))
    found(diagnosis, "data credentials", "failure", "no usable credentials")
    assert named(diagnosis, "data endpoint").status == "ok"
    assert named(diagnosis, "data mark").status == "skipped"
    assert named(diagnosis, "record").status == "ok"


@on_engines
async def test_a_wrong_secret(located: Located) -> None:
    diagnosis = await diagnose(located.at_data(secret_access_key=Secret("another")))
    result = found(diagnosis, "data access", "failure", "not accepted")
    assert "secret key" in result.remedy
    assert "another" not in repr(diagnosis)


@on_engines
async def test_an_expired_token(located: Located) -> None:
    async with proxied(str(located.table.aws.endpoint)) as proxy:
        proxy.rule(dynamodb_error("ExpiredTokenException"), method="POST")
        diagnosis = await diagnose(located.at_table(endpoint=proxy.url))
    result = found(diagnosis, "table access", "failure", "expired")
    assert "renew" in result.remedy
    assert named(diagnosis, "data access").status == "ok"


@on_engines
@pytest.mark.parametrize(("seconds", "status"), [(3600, "failure"), (-60, "warning")])
async def test_a_wrong_clock(located: Located, seconds: int, status: CheckStatus) -> None:
    def later(answer: Answer) -> Answer:
        date = formatdate(SYSTEM.now_ms() / 1000 + seconds, usegmt=True)
        return replace(answer, headers={**answer.headers, "date": date})

    async with proxied(str(located.bucket.aws.endpoint)) as proxy:
        proxy.rule(Rewrite(later))
        diagnosis = await diagnose(located.at_data(endpoint=proxy.url))
    found(diagnosis, "data clock", status, "slow" if seconds > 0 else "fast")
    assert named(diagnosis, "table clock").status == "ok"


@on_engines
async def test_a_bucket_in_another_region(located: Located) -> None:
    def elsewhere(answer: Answer) -> Answer:
        return replace(answer, headers={**answer.headers, "x-amz-bucket-region": "eu-west-1"})

    async with proxied(str(located.bucket.aws.endpoint)) as proxy:
        proxy.rule(Rewrite(elsewhere), method="HEAD")
        diagnosis = await diagnose(located.at_data(endpoint=proxy.url))
    result = found(diagnosis, "data region", "warning", "eu-west-1")
    assert "--data-region eu-west-1" in result.remedy


@on_engines
async def test_an_endpoint_that_nothing_listens_to(located: Located) -> None:
    (port,) = free_ports(1)
    diagnosis = await diagnose(located.at_table(endpoint=f"http://127.0.0.1:{port}"))
    found(diagnosis, "table endpoint", "failure", "no connection")
    assert named(diagnosis, "table access").status == "skipped"
    assert named(diagnosis, "data access").status == "ok"


@on_engines
async def test_an_endpoint_with_the_wrong_scheme(located: Located) -> None:
    plain = str(located.table.aws.endpoint)
    diagnosis = await diagnose(located.at_table(endpoint=plain.replace("http:", "https:")))
    result = found(diagnosis, "table endpoint", "failure", "the service speaks http")
    assert plain in result.found


@on_engines
async def test_a_service_that_does_not_answer(located: Located) -> None:
    async with proxied(str(located.table.aws.endpoint)) as proxy:
        proxy.rule(Delay(60))
        diagnosis = await diagnose(located.at_table(endpoint=proxy.url), seconds=0.3)
    found(diagnosis, "table endpoint", "failure", "no result within 0.3 s")
    assert named(diagnosis, "table access").status == "skipped"


@on_engines
async def test_a_missing_table(located: Located) -> None:
    diagnosis = await diagnose(
        replace(located.config, table=replace(located.table, name="missing"))
    )
    result = found(diagnosis, "table access", "failure", "the table does not exist")
    assert "s3k init" in result.remedy
    assert named(diagnosis, "data access").status == "ok"


@on_engines
async def test_a_missing_bucket(located: Located) -> None:
    diagnosis = await diagnose(
        replace(located.config, data=replace(located.bucket, bucket="missing"))
    )
    found(diagnosis, "data access", "failure", "does not exist")
    found(diagnosis, "settings", "failure", "data")


@on_engines
async def test_a_table_of_something_else(located: Located, dynoxide: Engine) -> None:
    name = located.table.name
    with closing_client(dynoxide, "dynamodb") as dynamodb:
        dynamodb.delete_table(TableName=name)
        dynamodb.create_table(
            TableName=name,
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        )
    diagnosis = await diagnose(located.config)
    found(diagnosis, "table access", "failure", "keys are not the texts")


@on_engines
async def test_a_table_whose_items_expire(located: Located, dynoxide: Engine) -> None:
    with closing_client(dynoxide, "dynamodb") as dynamodb:
        dynamodb.update_time_to_live(
            TableName=located.table.name,
            TimeToLiveSpecification={"Enabled": True, "AttributeName": "until"},
        )
    found(await diagnose(located.config), "table expiry", "failure", "'until'")


@on_engines
async def test_a_bucket_with_suspended_versioning(located: Located, seaweedfs: Engine) -> None:
    with closing_client(seaweedfs, "s3") as s3:
        s3.put_bucket_versioning(
            Bucket=located.bucket.bucket, VersioningConfiguration={"Status": "Suspended"}
        )
    found(await diagnose(located.config), "data versioning", "warning", "suspended")


@on_engines
@pytest.mark.parametrize(("prefix", "harmful"), [("", True), ("team/", True), ("other/", False)])
async def test_a_bucket_whose_objects_expire(
    located: Located, seaweedfs: Engine, prefix: str, harmful: bool
) -> None:
    rule = {"ID": "tidy", "Status": "Enabled", "Filter": {"Prefix": prefix}}
    with closing_client(seaweedfs, "s3") as s3:
        s3.put_bucket_lifecycle_configuration(
            Bucket=located.bucket.bucket,
            LifecycleConfiguration={"Rules": [{**rule, "Expiration": {"Days": 30}}]},
        )
    diagnosis = await diagnose(located.config)
    if harmful:
        found(diagnosis, "data lifecycle", "failure", "tidy")
    else:
        assert named(diagnosis, "data lifecycle").status == "ok"


@on_engines
@pytest.mark.parametrize(
    ("role", "action", "check"),
    [
        ("reader", "dynamodb:Query", "table dynamodb:Query"),
        ("writer", "dynamodb:UpdateItem", "table dynamodb:UpdateItem"),
        ("writer", "s3:DeleteObject", "data write"),
        ("gc", "s3:ListBucketMultipartUploads", "data s3:ListBucketMultipartUploads"),
        ("spark", "dynamodb:BatchWriteItem", "table dynamodb:BatchWriteItem"),
    ],
)
async def test_an_action_of_a_role_that_is_denied(
    located: Located, role: Role, action: str, check: str
) -> None:
    with gate_before(str(located.table.aws.endpoint), str(located.bucket.aws.endpoint)) as gate:
        config = replace(
            located.at_table(endpoint=gate.endpoint),
            data=located.at_data(endpoint=gate.endpoint).data,
        )
        policy = iam_policy(config, role, account=ACCOUNT)
        gate.policy = policy
        assert not (await diagnose(config, role=role)).of("failure")
        for statement in policy["Statement"]:
            statement["Action"] = [each for each in statement["Action"] if each != action]
        diagnosis = await diagnose(config, role=role)
        gate.policy = None
    assert [each.name for each in diagnosis.of("failure")] == [check]
    assert f"s3k policy {role}" in found(diagnosis, check, "failure", action).remedy


@pytest.fixture
async def drop(located: Located) -> AsyncIterator[S3Bucket]:
    """Another bucket, with an object below a prefix, of which files may be adopted."""
    place = S3Bucket(fresh_name("drop"), "2026/", located.bucket.aws)
    blobs = place.open(OpenContext())
    await blobs.create()
    await blobs.put("f", b"data")
    yield place
    await blobs.drop()
    await blobs.close()


@on_engines
@pytest.mark.parametrize(
    ("action", "skipped"),
    [
        ("s3:ListBucket", ["s3:GetObject", "s3:GetObjectVersion"]),
        ("s3:GetObject", ["s3:GetObjectVersion"]),
        ("s3:GetObjectVersion", []),
    ],
)
async def test_an_action_on_adopted_objects_that_is_denied(
    located: Located, drop: S3Bucket, action: str, skipped: list[str]
) -> None:
    where = f"{drop.bucket}/2026"
    with gate_before(str(located.table.aws.endpoint), str(located.bucket.aws.endpoint)) as gate:
        config = replace(
            located.at_table(endpoint=gate.endpoint),
            data=located.at_data(endpoint=gate.endpoint).data,
        )
        policy = iam_policy(config, "reader", adopted=[where], account=ACCOUNT)
        gate.policy = policy
        healthy = await diagnose(config, role="reader", adopted=[drop])
        assert {each.status for each in healthy.results if each.name.startswith("adopted")} == {
            "ok"
        }
        for statement in policy["Statement"]:
            if statement["Sid"].startswith("Adopted"):
                statement["Action"] = [each for each in statement["Action"] if each != action]
        diagnosis = await diagnose(config, role="reader", adopted=[drop])
        gate.policy = None
    check = f"adopted {where} {action}"
    assert [each.name for each in diagnosis.of("failure")] == [check]
    remedy = found(diagnosis, check, "failure", action).remedy
    assert f"s3k policy reader --adopted {where} " in remedy
    assert {each.name for each in diagnosis.of("skipped")} >= {
        f"adopted {where} {each}" for each in skipped
    }


@on_engines
async def test_adopted_objects_of_a_bucket_that_is_missing_or_empty(
    located: Located, drop: S3Bucket
) -> None:
    missing = replace(drop, bucket=fresh_name("missing"))
    empty = replace(drop, prefix="2027/")
    misnamed = S3Bucket("arn:aws:s3:::drop")
    diagnosis = await diagnose(
        located.config, role="writer", adopted=[drop, missing, empty, misnamed]
    )
    for place, text in ((missing, missing.bucket), (misnamed, "no bucket can have this name")):
        name = f"adopted {place.bucket}/{place.prefix}".rstrip("/")
        assert "name" in found(diagnosis, f"{name} s3:ListBucket", "failure", text).remedy
    assert named(diagnosis, f"adopted {drop.bucket}/2026 s3:GetObject").status == "ok"
    assert named(diagnosis, f"adopted {drop.bucket}/2027 s3:ListBucket").status == "ok"
    reading = named(diagnosis, f"adopted {drop.bucket}/2027 s3:GetObject")
    assert (reading.status, reading.found) == ("skipped", "there is no object to read")
    collecting = await diagnose(located.config, role="gc", adopted=[drop])
    assert "gc" in named(collecting, f"adopted {drop.bucket}/2026").found


@in_memory
async def test_a_record_that_only_the_tag_has(located: Located) -> None:
    store = located.config.table.open(OpenContext())
    item = await store.get(RECORD_KEY)
    assert item is not None
    await store.write(Delete(RECORD_KEY, Condition(equals={"op": item["op"]})))
    diagnosis = await diagnose(located.config)
    found(diagnosis, "record", "warning", "the table's tag has it")
    assert named(diagnosis, "data mark").status == "ok"
    assert await store.get(RECORD_KEY) is None  # a diagnosis repairs nothing


@in_memory
async def test_a_record_and_a_tag_that_differ(located: Located) -> None:
    store = located.config.table.open(OpenContext())
    tag = await store.read_tag(TAG)
    assert tag is not None
    await store.write_tag(TAG, tag.replace(" s:", " s:1"))
    found(await diagnose(located.config), "tag", "failure", "suffix_count")


@in_memory
async def test_a_missing_mark(located: Located) -> None:
    await located.config.data.open(OpenContext()).delete(CLAIM)
    result = found(await diagnose(located.config), "data mark", "warning", "is missing")
    assert "--take-over" in result.remedy


@in_memory
async def test_a_table_without_a_record(located: Located) -> None:
    config = located.config
    store = config.table.open(OpenContext())
    await store.drop()
    await store.create()
    found(await diagnose(config), "record", "failure", "the table is empty")
    await store.write(Put({"path": "p", "children": "c"}, ABSENT))
    found(await diagnose(config), "record", "failure", "no volume record")


@in_memory
async def test_the_mark_of_another_volume(located: Located, new_volume: VolumeMaker) -> None:
    other = new_volume()
    await init_volume(other)
    mark = await other.data.open(OpenContext()).get(CLAIM)
    await located.config.data.open(OpenContext()).put(CLAIM, mark)
    found(await diagnose(located.config), "data mark", "failure", "belongs to the volume")


@in_memory
@pytest.mark.parametrize("field", ["flags", "min_client", "format"])
async def test_a_volume_of_a_later_version(located: Located, field: str) -> None:
    store = located.config.table.open(OpenContext())
    value = "scoped telepathy" if field == "flags" else 99
    await store.write(Update(RECORD_KEY, Condition(equals={"name": "sick"}), {field: value}))
    diagnosis = await diagnose(located.config)
    result = found(diagnosis, "record", "failure", "telepathy" if field == "flags" else "99")
    assert "version" in result.remedy


@in_memory
async def test_settings_that_contradict_the_record(located: Located) -> None:
    diagnosis = await diagnose(replace(located.config, suffix_count=99))
    found(diagnosis, "settings", "failure", "suffix_count")


@in_memory
async def test_a_transaction_that_was_interrupted(located: Located) -> None:
    records = TransactionRecords(located.config.table.open(OpenContext()), SYSTEM)
    async with records.hold("rename", "/a", "/b"):
        assert named(await diagnose(located.config), "transactions").status == "ok"
    result = found(await diagnose(located.config), "transactions", "warning", "1 interrupted")
    assert "resolve" in result.remedy


@on_engines
async def test_uploads_that_were_not_finished(
    located: Located, seaweedfs: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with S3kClient(config=located.config) as fs:
        scope = fs._volume().record.scope
    with closing_client(seaweedfs, "s3") as s3:
        key = f"{located.bucket.prefix}{scope}left"
        s3.create_multipart_upload(Bucket=located.bucket.bucket, Key=key)
    assert named(await diagnose(located.config), "data uploads").status == "ok"
    monkeypatch.setattr(leftover_checks, "UPLOAD_AGE_MS", -60_000)
    found(await diagnose(located.config), "data uploads", "warning", "1 unfinished")


@embedded
@pytest.mark.parametrize(
    ("free", "is_writable", "status", "text"),
    [
        (0, True, "failure", "the disk is full"),
        (10**8, True, "warning", "are free"),
        (10**12, False, "failure", "cannot write"),
    ],
)
async def test_a_disk_that_is_full_or_not_writable(
    located: Located,
    monkeypatch: pytest.MonkeyPatch,
    free: int,
    is_writable: bool,
    status: CheckStatus,
    text: str,
) -> None:
    def space(directory: str) -> DiskSpace:
        return DiskSpace(directory, free, 10**12, is_writable)

    monkeypatch.setattr(disk_space, "_space", space)
    found(await diagnose(located.config), "data disk", status, text)


@embedded
async def test_a_location_that_takes_no_object(located: Located) -> None:
    plan = FaultPlan()
    plan.fail_when(
        lambda call: call.method == "put" and "doctor-" in call.key,
        NoSpaceError("no space left on the device"),
    )
    with plan.injected():
        diagnosis = await diagnose(located.config, role="writer")
    found(diagnosis, "data write", "failure", "no space left")


@in_memory
async def test_a_service_without_conditional_writes(
    located: Located, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = MemoryBlobs.put

    async def careless(self: MemoryBlobs, key: str, data: Buffer, **_: object) -> BlobInfo:
        return await put(self, key, data)

    monkeypatch.setattr(MemoryBlobs, "put", careless)
    found(
        await diagnose(located.config, role="writer"),
        "data write",
        "failure",
        "no conditional writes",
    )


@volume_backends("embedded", "redis", "rocksdb")
async def test_every_role_can_be_diagnosed_where_iam_does_not_apply(located: Located) -> None:
    for role in ROLES:
        diagnosis = await diagnose(located.config, role=role)
        assert not diagnosis.of("failure")
        assert ("data write" in {each.name for each in diagnosis.results}) == (role != "reader")


@embedded
async def test_what_a_volume_does_not_have_is_no_failure(new_volume: VolumeMaker) -> None:
    config = new_volume(log_mode="disabled")
    await init_volume(config)
    diagnosis = await diagnose(replace(config, log_mode=None))
    assert not diagnosis.of("failure")
    assert not [each for each in diagnosis.results if each.name.startswith("log ")]


@in_memory
async def test_a_volume_of_the_old_version(new_volume: VolumeMaker) -> None:
    config = new_volume()
    store, blobs = config.table.open(OpenContext()), config.data.open(OpenContext())
    await store.create()
    await blobs.create()
    await store.write(Put({"path": "ks://old/-sf0", "children": "c"}, ABSENT))
    old = replace(config, kind="s3k-1.0", suffix_count=1, log_mode="disabled")
    diagnosis = await diagnose(old)
    assert not diagnosis.of("failure")
    assert "1.0 has no record" in named(diagnosis, "record").found


@embedded
async def test_a_hot_location(new_volume: VolumeMaker, tmp_path: Path) -> None:
    config = new_volume()
    await init_volume(config, hot=str(tmp_path / "fast"))
    assert named(await diagnose(config), "hot access").status == "ok"
    shutil.rmtree(tmp_path / "fast")
    found(await diagnose(config), "hot access", "failure", "does not exist")
    (tmp_path / "fast").mkdir()  # where the disk should be mounted
    missing = found(await diagnose(config), "hot mark", "failure", "the mark is missing")
    assert missing.remedy.startswith("mount the disk")
    assert list((tmp_path / "fast").iterdir()) == []


@in_memory
@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (PermissionDeniedError("no"), "s3k policy"),
        (UnreachableError("no"), "network"),
        (ServiceError("odd", service_code="Odd"), "docs/errors.md"),
    ],
)
async def test_every_failure_says_what_to_do(
    located: Located, error: S3kError, remedy: str
) -> None:
    plan = FaultPlan()
    plan.fail_when(lambda call: call.method in ("get", "query"), error, times=50)
    with plan.injected():
        diagnosis = await diagnose(located.config, role="operator")
    assert remedy in found(diagnosis, "record", "failure", error.message).remedy
    assert all(each.remedy for each in diagnosis.of("failure"))
