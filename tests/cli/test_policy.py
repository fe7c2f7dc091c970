"""The policies of `s3k policy`: each role can do its work with its own, none allows what its role
does not need, and what is denied is a named error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from s3k_async import S3kClient
from s3k_async.cli.exit_codes import ExitCode
from s3k_async.config import DynamoTable, S3Bucket, VolumeConfig
from s3k_async.diagnosis.volume_diagnosis import Diagnosis, diagnose
from s3k_async.errors import DataMissingError, PartialFailureError, PermissionDeniedError
from s3k_async.model import LayoutName
from s3k_async.txn import volume_lock
from s3k_async.volumes import destruction
from s3k_async.volumes.creation import init_volume
from s3k_async.volumes.destruction import destroy_volume
from s3k_async.volumes.iam_policies import ROLES, Role, iam_policy
from tests.cli.conftest import Cli, Done
from tests.cli.upload_scenes import LOOKS, OPENING, UPLOADS
from tests.client.request_scenes import SCENES, TRASH_SCENES, Scene
from tests.engines.iam_gate import ACCOUNT, Access, Gate, gate_before, without
from tests.engines.process import Engine
from tests.engines.volumes import VolumeMaker, fresh_name, volume_backends

in_both_layouts = pytest.mark.parametrize("layout", ["path", "tree"])
on_engines = volume_backends("dynoxide+seaweedfs")
VOLUME = "s3k://guarded"
AT_AWS = VolumeConfig("v", DynamoTable("meta"), S3Bucket("warehouse"))
READING = (
    "stat",
    "list, 100 files",
    "list, recursive, 3 directories",
    "walk, 3 directories",
    "glob, `/d/a/*`",
    "content_summary, 3 directories",
    "transactions",
    "checksum",
    "physical_paths, 3 directories",
    "presign",
    "read",
    "read_ranges, 3 ranges",
    "read_many, 100 files",
    "open `rb`, read to the end",
    "find by metadata, 1 file of 100",
)
"""Scenes that change nothing, and need all that others of this kind need."""
WRITING = (
    "write, 3 parents missing",
    "open `wb` over a file",
    "append to a file",
    "set_attributes, metadata of a file",
    "compact `whole`, 2 extents",
    "rename a file",
    "rename a directory of 100 files",
    "delete an empty directory",
    "discard_staged, 10 files that were staged before",
    "copy a file",
    "list, recursive, 3 directories",
    "delete a file, `permanently`",
    "versions, of 1 deleted file",
    "undelete a file",
)
"""Scenes that together need all that a writer needs."""
TRASH = (
    "delete a directory of 100 files, `wait`",
    "restore, by path",
    "summary, a directory of 100 files",
)
COLLECTION = (
    ("gc", VOLUME, "--yes", "--grace", "0", "--lease", "0"),
    ("oplog", "compact", VOLUME, "--yes", "--grace", "0"),
)
OPERATION = (
    ("doctor", VOLUME, "--role", "operator"),
    ("info", VOLUME, "--sizes"),
    ("fsck", VOLUME),
    ("fsck", "repair", VOLUME, "--yes"),
    ("dump", VOLUME, "-o", "dump"),
    ("fsck", "restore", VOLUME, "--subtree", "/d"),
    ("reshard", VOLUME, "--suffix-count", "4"),
    ("set-capacity", VOLUME, "--read-units", "5", "--write-units", "5"),
    ("destroy", VOLUME, "--yes", "--force"),
)
OPTIONS = (
    *("--read-units", "5", "--write-units", "5", "--table-tag", "team=data"),
    *("--point-in-time-recovery", "--stream", "KEYS_ONLY", "--deletion-protection"),
)
"""All options of a new table but its key, which is looked at by KMS alone."""
DENIED = {
    "dynamodb:BatchGetItem": "rename a file",
    "dynamodb:ConditionCheckItem": "rename a file",
    "dynamodb:DeleteItem": "rename a file",
    "dynamodb:GetItem": "read",
    "dynamodb:PutItem": "write, 3 parents missing",
    "dynamodb:Query": "list, recursive, 3 directories",
    "dynamodb:UpdateItem": "delete an empty directory",
    "s3:DeleteObject": "discard_staged, 10 files that were staged before",
    "s3:GetObject": "read",
    "s3:PutObject": "write, 3 parents missing",
}
"""Scenes that need an action of a writer."""
NOT_NEEDED = {
    "dynamodb:DescribeTable",
    "dynamodb:ListTagsOfResource",
    "s3:AbortMultipartUpload",
    "s3:ListBucket",
}
"""Actions of a writer without which something is less well: a missing record is not restored from
the table's tag, missing data looks forbidden, parts are left to garbage collection."""
ELSEWHERE = {"s3:GetObjectVersion"}
"""Actions of a writer for adopted objects: `tests/client/test_object_versions.py`."""
DENIED_COMMANDS: dict[str, tuple[Role, tuple[str, ...]]] = {
    "dynamodb:BatchWriteItem": ("operator", ("reshard", VOLUME, "--suffix-count", "4")),
    "dynamodb:DeleteTable": ("operator", ("destroy", VOLUME, "--yes", "--force")),
    "dynamodb:Scan": ("gc", COLLECTION[0]),
    "dynamodb:UpdateTable": ("operator", OPERATION[-2]),
    "s3:DeleteObject": ("operator", ("destroy", VOLUME, "--yes", "--force")),
    "s3:ListBucket": ("gc", COLLECTION[0]),
    "s3:ListBucketMultipartUploads": ("gc", COLLECTION[0]),
}
"""Commands that need a further action of a role."""
DENIED_CREATION = {
    "dynamodb:CreateTable",
    "dynamodb:TagResource",
    "dynamodb:UpdateContinuousBackups",
    "s3:CreateBucket",
}
"""Actions of an operator that create a volume."""
OF_SETTINGS = {
    "dynamodb:DescribeContinuousBackups",
    "dynamodb:DescribeTimeToLive",
    "s3:GetBucketVersioning",
    "s3:GetEncryptionConfiguration",
    "s3:GetLifecycleConfiguration",
}
"""Actions of an operator that only a diagnosis needs, which reports them."""
LARGE = 20 * 1024 * 1024
"""More than is written by one request."""


@dataclass
class Guarded:
    """A volume whose engines are behind a gate."""

    config: VolumeConfig
    gate: Gate
    used: set[str] = field(default_factory=set)
    """Actions that calls needed."""

    def policy(self, role: Role) -> dict[str, Any]:
        return iam_policy(self.config, role, account=ACCOUNT)

    def perform(self, scene: Scene, policy: Mapping[str, Any]) -> None:
        """A scene, whose call alone, with the opening of its client, is by the policy."""
        asyncio.run(self._prepare(scene))
        self.under(policy, lambda: asyncio.run(self._call(scene)))

    def perform_all(self, scenes: Mapping[str, Scene], role: Role) -> None:
        """Nothing that the scenes need is denied."""
        for name, scene in scenes.items():
            self.perform(scene, self.policy(role))
            assert self.lacking == [], name

    def under(self, policy: Mapping[str, Any], call: Callable[[], object]) -> None:
        """A call by the policy."""
        self.gate.forget()
        self.gate.policy = policy
        try:
            call()
        finally:
            self.used |= {each.action for each in self.gate.allowed}
            self.gate.policy = None

    @property
    def lacking(self) -> Sequence[Access]:
        """What was denied to the last call. Whether the bucket exists is asked without a prefix; a
        volume opens without an answer."""
        return [each for each in self.gate.denied if each[0::2] != ("s3:ListBucket", None)]

    async def _prepare(self, scene: Scene) -> None:
        async with S3kClient(config=self.config) as fs:
            for top in [status.path async for status in fs.list("/")]:
                await fs.delete(top, recursive=True)
            if self.config.layout == "tree":
                await fs.trash().empty()
            await scene.before(fs)

    async def _call(self, scene: Scene) -> None:
        async with S3kClient(config=self.config) as fs:
            await scene.warm(fs)
            await scene.call(fs)


@pytest.fixture
def guarded(
    new_volume: VolumeMaker, layout: LayoutName, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Guarded]:
    """A volume that exists, in the environment of commands, too."""
    config = new_volume("guarded", layout=layout)
    assert isinstance(config.table, DynamoTable)
    assert isinstance(config.data, S3Bucket)
    table, data = config.table.aws, config.data.aws
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)
    with gate_before(str(table.endpoint), str(data.endpoint)) as gate:
        for part, aws in (("TABLE", table), ("DATA", data)):
            monkeypatch.setenv(f"S3K_{part}_ACCESS_KEY_ID", aws.access_key_id.reveal())
            monkeypatch.setenv(f"S3K_{part}_SECRET_ACCESS_KEY", aws.secret_access_key.reveal())
        monkeypatch.setenv("S3K_ENDPOINT", gate.endpoint)
        monkeypatch.setenv("S3K_REGION", str(table.region))
        cli.ok(
            *("init", VOLUME, "--table", config.table.name, "--bucket", config.data.bucket),
            *("--prefix", config.data.prefix, "--layout", layout),
        )
        yield Guarded(
            replace(
                config,
                table=replace(config.table, aws=replace(table, endpoint=gate.endpoint)),
                data=replace(config.data, aws=replace(data, endpoint=gate.endpoint)),
            ),
            gate,
        )
        gate.policy = None


def actions_of(policy: Mapping[str, Any]) -> set[str]:
    return {action for statement in policy["Statement"] for action in statement["Action"]}


# The document


def test_the_policy_of_a_reader(cli: Cli) -> None:
    document = cli.ok(
        *("policy", "reader", VOLUME, "--account", ACCOUNT, "--region", "eu-west-1"),
        *("--table", "meta", "--bucket", "warehouse", "--prefix", "team/"),
    ).json()
    assert document == {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "Table",
                "Effect": "Allow",
                "Action": [
                    "dynamodb:BatchGetItem",
                    "dynamodb:DescribeTable",
                    "dynamodb:GetItem",
                    "dynamodb:ListTagsOfResource",
                    "dynamodb:Query",
                ],
                "Resource": [f"arn:aws:dynamodb:eu-west-1:{ACCOUNT}:table/meta"],
            },
            {
                "Sid": "Data",
                "Effect": "Allow",
                "Action": ["s3:GetObject", "s3:GetObjectVersion"],
                "Resource": ["arn:aws:s3:::warehouse/team/*"],
            },
            {
                "Sid": "DataListing",
                "Effect": "Allow",
                "Action": ["s3:ListBucket"],
                "Resource": ["arn:aws:s3:::warehouse"],
                "Condition": {"StringLike": {"s3:prefix": ["team/*"]}},
            },
        ],
    }


def test_a_log_of_its_own_and_a_key(cli: Cli) -> None:
    key = "arn:aws:kms:eu-west-1:123456789012:key/5f0a6f0e"
    document = cli.ok(
        *("policy", "writer", VOLUME, "--region", "eu-west-1", "--partition", "aws-cn"),
        *("--table", "meta", "--bucket", "warehouse", "--log-location", "s3://logs/s3k/"),
        *("--data-encryption", "aws:kms", "--data-kms-key", key),
    ).json()
    found = {each["Sid"]: each for each in document["Statement"]}
    assert found["Table"]["Resource"] == ["arn:aws-cn:dynamodb:eu-west-1:*:table/meta"]
    assert found["Data"]["Resource"] == ["arn:aws-cn:s3:::warehouse/*"]
    assert found["Log"]["Resource"] == ["arn:aws-cn:s3:::logs/s3k/*"]
    assert found["DataKey"]["Action"] == ["kms:Decrypt", "kms:GenerateDataKey"]
    assert found["DataKey"]["Resource"] == [key]
    assert "Condition" not in found["DataListing"]


def test_only_roles_that_store_objects_may_generate_data_keys(cli: Cli) -> None:
    for role in ROLES:
        document = cli.ok(
            *("policy", role, VOLUME, "--region", "eu-west-1", "--table", "meta"),
            *("--bucket", "warehouse", "--hot", "s3://fast/s3k/"),
            *("--data-encryption", "aws:kms", "--data-kms-key", "arn:aws:kms:eu-west-1:1:key/5f"),
        ).json()
        found = {each["Sid"]: each["Action"] for each in document["Statement"]}
        stores = "s3:PutObject" in found["Data"]
        keys = ["kms:Decrypt", "kms:GenerateDataKey"] if stores else ["kms:Decrypt"]
        assert found["DataKey"] == keys
        assert found.get("HotKey", keys) == keys
        assert stores == (role != "reader")


def test_a_hot_location(cli: Cli) -> None:
    document = cli.ok(
        *("policy", "gc", VOLUME, "--region", "eu-west-1", "--hot", "s3://fast/s3k/"),
        *("--table", "meta", "--bucket", "warehouse"),
    ).json()
    found = {each["Sid"]: each for each in document["Statement"]}
    assert found["Hot"] == {**found["Data"], "Sid": "Hot", "Resource": ["arn:aws:s3:::fast/s3k/*"]}
    assert found["Buckets"]["Resource"] == ["arn:aws:s3:::fast", "arn:aws:s3:::warehouse"]


def test_buckets_of_adopted_objects(cli: Cli) -> None:
    where = ("--region", "eu-west-1", "--table", "meta", "--bucket", "warehouse")
    for role in ROLES:
        words = (
            "policy",
            role,
            VOLUME,
            *where,
            "--adopted",
            "drop/2026",
            "--adopted",
            "s3://other",
        )
        found = {each["Sid"]: each for each in cli.ok(*words).json()["Statement"]}
        if role == "gc":
            assert not any(name.startswith("Adopted") for name in found)
            continue
        reading = ["s3:GetObject", "s3:GetObjectVersion"]
        assert found["Adopted1"]["Action"] == found["Adopted2"]["Action"] == reading
        assert found["Adopted1"]["Resource"] == ["arn:aws:s3:::drop/2026/*"]
        assert found["Adopted2"]["Resource"] == ["arn:aws:s3:::other/*"]
        listing = found["Adopted1Listing"]
        assert (listing["Action"], listing["Resource"]) == (
            ["s3:ListBucket"],
            ["arn:aws:s3:::drop"],
        )
        assert listing["Condition"] == {"StringLike": {"s3:prefix": ["2026/*"]}}
    single = cli.ok("policy", "reader", VOLUME, *where, "--adopted", "drop").json()["Statement"]
    assert {"Adopted", "AdoptedListing"} <= {each["Sid"] for each in single}
    cli.fails(2, "policy", "reader", VOLUME, *where, "--adopted", "")


def test_only_roles_that_read_files_read_versions() -> None:
    """Garbage collection reads no adopted objects, which alone have a version."""
    reading = {role for role in ROLES if actions_of(iam_policy(AT_AWS, role)) >= ELSEWHERE}
    assert reading == {*ROLES} - {"gc"}


def test_the_key_of_a_table(cli: Cli) -> None:
    key = "arn:aws:kms:eu-west-1:123456789012:key/5f0a6f0e"
    reading = {"kms:Decrypt", "kms:DescribeKey"}
    writing = {*reading, "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"}
    where = ("--region", "eu-west-1", "--table", "meta", "--bucket", "warehouse")
    for role in ROLES:
        document = cli.ok("policy", role, VOLUME, *where, "--table-kms-key", key).json()
        found = {each["Sid"]: each for each in document["Statement"]}
        assert set(found["TableKey"]["Action"]) == (reading if role == "reader" else writing)
        assert found["TableKey"]["Resource"] == [key]
        assert ("TableKeyGrant" in found) == (role == "operator")
    grant = found["TableKeyGrant"]
    assert (grant["Action"], grant["Resource"]) == (["kms:CreateGrant"], [key])
    assert grant["Condition"] == {"Bool": {"kms:GrantIsForAWSResource": "true"}}
    cli.fails(2, "policy", "reader", VOLUME, *where, "--table-kms-key", "alias/mine")


def test_names_of_statements_are_those_that_iam_accepts() -> None:
    for role in ROLES:
        document = iam_policy(AT_AWS, role, table_key="arn:aws:kms:eu-west-1:1:key/5f")
        names = [each["Sid"] for each in document["Statement"]]
        assert len(set(names)) == len(names)
        assert all(name.isascii() and name.isalnum() for name in names)


def test_a_volume_elsewhere_has_no_policy(cli: Cli, volume: str) -> None:
    cli.fails(1, "policy", "reader", volume)


@pytest.mark.parametrize("account", ["12345678901", "1234567890123", "abcdefghijkl"])
def test_an_account_that_is_none(cli: Cli, account: str) -> None:
    cli.fails(2, "policy", "reader", VOLUME, "--account", account)


def test_the_policy_of_a_volume_in_a_shared_table(cli: Cli) -> None:
    where = ("--region", "eu-west-1", "--table", "meta", "--bucket", "warehouse")
    found: dict[str, dict[str, Any]] = {}
    for role in ("writer", "operator"):
        shared = cli.ok("policy", role, VOLUME, *where, "--table-prefix", "team-a").json()
        alone = cli.ok("policy", role, VOLUME, *where).json()
        assert actions_of(alone) - actions_of(shared) <= {"dynamodb:DeleteTable"}
        found[role] = {each["Sid"]: each for each in shared["Statement"]}
        assert not any("Item" in action for action in found[role]["Table"]["Action"])
    own = {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["team-a/*"]}}
    assert found["writer"]["Items"]["Condition"] == own
    keys = found["operator"]["Items"]["Condition"]["ForAllValues:StringLike"]
    assert keys == {"dynamodb:LeadingKeys": ["team-a/*", "s3k:volume", "s3k:volumes"]}


# What the roles do


async def without_data(fs: S3kClient) -> None:
    """A file whose data somebody has removed."""
    await SCENES["read"].before(fs)
    await fs._volume().blobs.delete(str((await fs.stat("/d/f")).physical))


async def write_in_parts(fs: S3kClient) -> None:
    async with fs.open("/large", "wb") as writer:
        await writer.write(bytes(LARGE))


async def give_up_parts(fs: S3kClient) -> None:
    with suppress(ZeroDivisionError):
        async with fs.open("/large", "wb") as writer:
            await writer.write(bytes(LARGE))
            raise ZeroDivisionError


@on_engines
@in_both_layouts
def test_a_reader(guarded: Guarded) -> None:
    policy = guarded.policy("reader")
    guarded.perform_all({name: SCENES[name] for name in READING}, "reader")
    assert guarded.used == actions_of(policy) - {"s3:ListBucket"} - ELSEWHERE
    read = Scene(lambda fs: fs.read("/d/f"), without_data)
    with pytest.raises(DataMissingError):
        guarded.perform(read, policy)
    with pytest.raises(PermissionDeniedError):
        guarded.perform(read, without(policy, "s3:ListBucket"))
    with pytest.raises(PermissionDeniedError):
        guarded.perform(SCENES["write a new file"], policy)


@on_engines
@in_both_layouts
def test_a_writer(guarded: Guarded, layout: LayoutName) -> None:
    guarded.perform_all({name: SCENES[name] for name in WRITING}, "writer")
    guarded.perform_all(
        {"parts": Scene(write_in_parts), "no parts": Scene(give_up_parts)}, "writer"
    )
    if layout == "tree":
        guarded.perform_all({name: TRASH_SCENES[name] for name in TRASH}, "writer")
    assert guarded.used == actions_of(guarded.policy("writer")) - ELSEWHERE


@on_engines
@pytest.mark.parametrize("layout", ["path"])
def test_multipart_uploads_need_these_actions(guarded: Guarded) -> None:
    for name, upload in UPLOADS.items():
        guarded.used.clear()
        guarded.perform_all({name: upload.scene()}, "writer")
        assert guarded.used == OPENING | upload.needs | upload.wants, name


@on_engines
@pytest.mark.parametrize("layout", ["tree"])
def test_multipart_uploads_in_layout_tree(guarded: Guarded) -> None:
    guarded.perform_all({name: each.scene() for name, each in UPLOADS.items()}, "writer")


@on_engines
@in_both_layouts
def test_a_collector(guarded: Guarded, cli: Cli) -> None:
    cli.ok("put", "-", f"{VOLUME}/d/f", stdin=b"one")
    cli.ok("put", "-", f"{VOLUME}/d/f", stdin=b"other")
    cli.ok("rm", "-r", f"{VOLUME}/d")
    for command in COLLECTION:
        guarded.under(guarded.policy("gc"), partial(cli.ok, *command))
        assert guarded.lacking == []
    assert guarded.used >= actions_of(guarded.policy("gc")) - actions_of(guarded.policy("writer"))


@on_engines
@in_both_layouts
def test_an_operator(guarded: Guarded, cli: Cli) -> None:
    cli.ok("put", "-", f"{VOLUME}/d/f", stdin=b"one")
    cli.ok("put", "-", f"{VOLUME}/d/f", stdin=b"other")
    for command in (*OPERATION, ("init", VOLUME, "--no-save")):
        guarded.under(guarded.policy("operator"), partial(cli.ok, *command))
        assert guarded.lacking == []
    there = {"s3:CreateBucket", "dynamodb:UpdateContinuousBackups"}  # in the next test
    more = actions_of(guarded.policy("operator")) - actions_of(guarded.policy("writer"))
    assert guarded.used >= more - there


@on_engines
@in_both_layouts
def test_an_operator_restores_a_lost_table(guarded: Guarded, cli: Cli) -> None:
    cli.ok("put", "-", f"{VOLUME}/d/f", stdin=b"one")
    asyncio.run(drop_table(guarded.config))
    guarded.under(guarded.policy("operator"), partial(cli.ok, "fsck", "restore", VOLUME, "--yes"))
    assert guarded.lacking == []
    assert cli.ok("cat", f"{VOLUME}/d/f").output == b"one"


async def drop_table(config: VolumeConfig) -> None:
    async with S3kClient(config=config) as fs:
        await fs._volume().table.drop()


@dataclass(frozen=True)
class NewVolume:
    """A volume that does not exist, on moto, which has continuous backups."""

    gate: Gate
    where: tuple[str, ...]

    def config(self) -> VolumeConfig:
        """Without its credentials, for policies."""
        _, table, _, bucket = self.where
        return VolumeConfig("new", DynamoTable(table), S3Bucket(bucket))

    def restrict(self, *denied: str) -> None:
        """The policy of an operator, without some of its actions."""
        policy = iam_policy(self.config(), "operator", account=ACCOUNT)
        for action in denied:
            policy = without(policy, action)
        self.gate.forget()
        self.gate.policy = policy


@pytest.fixture
def new(moto_s3: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[NewVolume]:
    monkeypatch.setattr(destruction, "QUIET_SECONDS", 0.0)
    with gate_before(moto_s3.endpoint, moto_s3.endpoint) as gate:
        monkeypatch.setenv("S3K_ENDPOINT", gate.endpoint)
        monkeypatch.setenv("S3K_REGION", moto_s3.region)
        monkeypatch.setenv("S3K_ACCESS_KEY_ID", moto_s3.access_key)
        monkeypatch.setenv("S3K_SECRET_ACCESS_KEY", moto_s3.secret_key)
        where = ("--table", fresh_name("table"), "--bucket", fresh_name("bucket"))
        yield NewVolume(gate, where)


def test_an_operator_creates_a_table_with_all_options(new: NewVolume, cli: Cli) -> None:
    new.restrict()
    cli.ok("init", VOLUME, "--no-save", *new.where, *OPTIONS)
    assert new.gate.denied == []
    assert {each.action for each in new.gate.allowed} >= {
        "dynamodb:CreateTable",
        "dynamodb:TagResource",
        "dynamodb:UpdateContinuousBackups",
        "s3:CreateBucket",
    }


@on_engines
@pytest.mark.parametrize("layout", ["path"])
def test_a_writer_of_one_volume_of_a_table(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The role may do everything in its own volume, and nothing in the other one."""
    monkeypatch.setattr(destruction, "QUIET_SECONDS", 0.0)
    assert isinstance(guarded.config.table, DynamoTable)
    assert isinstance(guarded.config.data, S3Bucket)
    table = replace(guarded.config.table, name=fresh_name("shared"))
    volumes = [
        replace(
            guarded.config,
            table=table,
            data=replace(guarded.config.data, prefix=f"{prefix}/"),
            table_prefix=prefix,
        )
        for prefix in ("team-a", "team-b")
    ]
    own = replace(guarded, config=volumes[0])
    operator = own.policy("operator")
    operator["Statement"] += iam_policy(volumes[1], "operator", account=ACCOUNT)["Statement"]
    for config in volumes:
        own.under(operator, partial(asyncio.run, init_volume(config)))
        assert own.lacking == []
    for name in ("rename a file", "list, recursive, 3 directories"):
        own.perform(SCENES[name], own.policy("writer"))
        # Its item in the catalog is not needed, and beside those of other volumes.
        assert {(each.action, *each.keys) for each in own.lacking} == {
            ("dynamodb:GetItem", "s3k:volumes")
        }
    policy = own.policy("writer")
    found: list[Diagnosis] = []
    own.under(policy, lambda: found.append(asyncio.run(diagnose(own.config, role="writer"))))
    assert [each for each in found[0].of("failure") if each.name.startswith("table")] == []
    with pytest.raises(PermissionDeniedError):
        replace(guarded, config=volumes[1]).perform(SCENES["read"], policy)
    asyncio.run(destroy_volume(volumes[1], force=True))
    own.under(operator, partial(asyncio.run, destroy_volume(volumes[0], force=True)))
    assert own.lacking == []


@on_engines
@pytest.mark.parametrize("layout", ["path"])
@pytest.mark.parametrize("action", sorted(DENIED))
def test_what_is_denied_is_a_named_error(guarded: Guarded, action: str) -> None:
    with pytest.raises((PermissionDeniedError, PartialFailureError)) as caught:
        guarded.perform(SCENES[DENIED[action]], without(guarded.policy("writer"), action))
    if isinstance(caught.value, PartialFailureError):
        errors = {type(error) for _, error in caught.value.failures}
        assert errors == {PermissionDeniedError}
    assert {each.action for each in guarded.lacking} == {action}


def need_explained(error: PermissionDeniedError, action: str) -> None:
    """The error names what was denied, where, and what to do."""
    assert f"grant {action}; s3k policy prints the permissions of a role" in str(error)
    assert error.path
    assert error.path in str(error)


@on_engines
@pytest.mark.parametrize("layout", ["path"])
@pytest.mark.parametrize("verb", sorted(UPLOADS))
def test_what_is_denied_to_an_upload_is_a_named_error(guarded: Guarded, verb: str) -> None:
    upload = UPLOADS[verb]
    for action in sorted(upload.needs):
        with pytest.raises((PermissionDeniedError, PartialFailureError)) as caught:
            guarded.perform(upload.scene(), without(guarded.policy("writer"), action))
        errors: Sequence[BaseException] = [caught.value]
        if isinstance(caught.value, PartialFailureError):
            errors = [error for _, error in caught.value.failures]
        for error in errors:
            assert type(error) is PermissionDeniedError
            need_explained(error, action)
        assert {each.action for each in guarded.lacking} == {action}
    for action in sorted(upload.wants):
        guarded.perform(upload.scene(), without(guarded.policy("writer"), action))
        assert action in {each.action for each in guarded.gate.denied}


@on_engines
@pytest.mark.parametrize("layout", ["path"])
def test_a_reader_only_looks_at_uploads(guarded: Guarded) -> None:
    policy = guarded.policy("reader")
    guarded.perform_all({name: each.scene() for name, each in LOOKS.items()}, "reader")
    for name in UPLOADS.keys() - LOOKS.keys():
        with pytest.raises(PermissionDeniedError) as caught:
            guarded.perform(UPLOADS[name].scene(), policy)
        (action,) = {each.action for each in guarded.lacking}
        assert action in UPLOADS[name].needs - actions_of(policy)
        need_explained(caught.value, action)


@on_engines
@pytest.mark.parametrize("layout", ["path"])
@pytest.mark.parametrize("action", sorted(NOT_NEEDED))
def test_what_a_volume_works_without(guarded: Guarded, action: str) -> None:
    policy = without(guarded.policy("writer"), action)
    guarded.perform(SCENES["write, 3 parents missing"], policy)
    guarded.perform(Scene(give_up_parts), policy)
    assert action in {each.action for each in guarded.gate.denied}


@on_engines
@pytest.mark.parametrize("layout", ["path"])
def test_tags_need_a_permission(guarded: Guarded) -> None:
    tuning = replace(guarded.config.tuning, storage_rules="/d:team=web")
    tagging = replace(guarded, config=replace(guarded.config, tuning=tuning))
    write, policy = SCENES["write a new file"], tagging.policy("writer")
    tagging.perform(write, policy)
    assert tagging.lacking == []
    assert "s3:PutObjectTagging" in tagging.used
    with pytest.raises(PermissionDeniedError):
        tagging.perform(write, guarded.policy("writer"))
    assert {each.action for each in tagging.lacking} == {"s3:PutObjectTagging"}


@on_engines
@pytest.mark.parametrize("layout", ["path"])
@pytest.mark.parametrize("action", sorted(DENIED_COMMANDS))
def test_a_command_names_what_is_denied(guarded: Guarded, cli: Cli, action: str) -> None:
    role, command = DENIED_COMMANDS[action]
    cli.ok("put", "-", f"{VOLUME}/d/f", stdin=b"one")
    cli.ok("put", "-", f"{VOLUME}/d/f", stdin=b"other")
    found: list[Done] = []
    policy = without(guarded.policy(role), action)
    guarded.under(policy, lambda: found.append(cli(*command)))
    assert found[0].code == ExitCode.DENIED
    assert action in found[0].errors
    assert {each.action for each in guarded.gate.denied} == {action}


@pytest.mark.parametrize("action", sorted(DENIED_CREATION))
def test_a_creation_names_what_is_denied(new: NewVolume, cli: Cli, action: str) -> None:
    new.restrict(action)
    done = cli("init", VOLUME, "--no-save", *new.where, *OPTIONS)
    assert done.code == ExitCode.DENIED
    assert action in done.errors
    assert {each.action for each in new.gate.denied} == {action}


@on_engines
@pytest.mark.parametrize("layout", ["path"])
def test_the_size_of_the_log_needs_more_than_a_writer_has(guarded: Guarded, cli: Cli) -> None:
    """A refusal of HeadBucket has no document."""
    found: list[Done] = []
    size = ("oplog", "size", VOLUME)
    guarded.under(guarded.policy("writer"), lambda: found.append(cli.fails(5, *size)))
    assert "denied HeadBucket" in found[0].errors
    assert "grant s3:ListBucket on the whole bucket" in found[0].errors
    guarded.under(guarded.policy("gc"), partial(cli.ok, *size))


@on_engines
@pytest.mark.parametrize("layout", ["path"])
def test_a_diagnosis_skips_the_settings_that_are_denied(guarded: Guarded, cli: Cli) -> None:
    found: list[Done] = []
    policy = guarded.policy("operator")
    for action in OF_SETTINGS:
        policy = without(policy, action)
    guarded.under(policy, lambda: found.append(cli.ok("doctor", VOLUME)))
    assert {each.action for each in guarded.lacking} == OF_SETTINGS
    skipped = [line for line in found[0].lines if "the credentials may not read it" in line]
    assert len(skipped) == len(OF_SETTINGS)


def test_every_action_of_a_role_is_looked_at() -> None:
    known = {*DENIED, *NOT_NEEDED, *ELSEWHERE, *DENIED_COMMANDS, *DENIED_CREATION, *OF_SETTINGS}
    assert set().union(*(actions_of(iam_policy(AT_AWS, role)) for role in ROLES)) == known


def test_every_action_of_a_writer_is_looked_at() -> None:
    assert actions_of(iam_policy(AT_AWS, "writer")) == {*DENIED, *NOT_NEEDED, *ELSEWHERE}
