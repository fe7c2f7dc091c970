"""The policies of `s3k policy` as moto's IAM evaluates them, for users with signed requests to
moto's DynamoDB and S3 (`tests.engines.moto_iam`). The whole documents, with their conditions and
the resources of DynamoDB, are evaluated in `tests/cli/test_policy.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from s3k_async import S3kClient
from s3k_async.cli.exit_codes import ExitCode
from s3k_async.config import DynamoTable, S3Bucket, VolumeConfig
from s3k_async.errors import PermissionDeniedError
from s3k_async.txn import volume_lock
from s3k_async.volumes.iam_policies import ROLES, Role
from tests.cli.conftest import Cli
from tests.cli.upload_scenes import LOOKS, UPLOADS
from tests.engines.moto_iam import MotoIam, moto_iam

pytestmark = pytest.mark.engine

VOLUME = "s3k://guarded"
OTHERS = "others"
"""A bucket that the policies do not name."""
WHERE = ("--table", "guarded", "--bucket", "guarded", "--log-location", "s3://guarded-log")


@dataclass
class Guarded:
    """A volume in moto, with a user for each role."""

    iam: MotoIam
    cli: Cli
    monkeypatch: pytest.MonkeyPatch

    def grant(self, role: str, *options: str) -> None:
        """Give the user of a role its policy."""
        self.iam.grant(role, self.cli.ok("policy", role, VOLUME, *WHERE, *options).json())

    def become(self, user: str) -> None:
        """Let the commands that follow be those of a user, whose permissions moto enforces; of
        `root` everything is allowed."""
        access, secret = self.iam.keys[user]
        self.monkeypatch.setenv("S3K_ACCESS_KEY_ID", access)
        self.monkeypatch.setenv("S3K_SECRET_ACCESS_KEY", secret)
        self.iam.enforce(on=user != "root")

    def config(self, user: str) -> VolumeConfig:
        """The volume as a user opens it."""
        aws = self.iam.aws(user)
        table, data = DynamoTable("guarded", aws), S3Bucket("guarded", "", aws)
        return VolumeConfig("guarded", table, data, log=S3Bucket("guarded-log", "", aws))

    def denies(self, *arguments: str, stdin: bytes = b"") -> None:
        """The named error, PermissionDeniedError."""
        self.cli.fails(ExitCode.DENIED, *arguments, stdin=stdin)


@pytest.fixture(scope="module")
def iam(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoIam]:
    with moto_iam(tmp_path_factory.mktemp("moto")) as iam:
        yield iam


@pytest.fixture
def guarded(iam: MotoIam, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guarded]:
    """The volume, with a file."""
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)
    monkeypatch.setenv("S3K_ENDPOINT", iam.server.endpoint)
    monkeypatch.setenv("S3K_REGION", iam.server.region)
    found = Guarded(iam, cli, monkeypatch)
    found.become("root")
    cli.ok("init", VOLUME, *WHERE)
    cli.ok("put", "-", f"{VOLUME}/d/f", stdin=b"bytes")
    iam.service("s3").create_bucket(Bucket=OTHERS)
    for role in ROLES:
        found.grant(role)
    yield found
    found.become("root")
    iam.reset()


def test_a_reader(guarded: Guarded) -> None:
    cli = guarded.cli
    guarded.become("reader")
    assert cli.ok("cat", f"{VOLUME}/d/f").output == b"bytes"
    assert cli.ok("ls", "-R", VOLUME).output
    cli.ok("stat", f"{VOLUME}/d/f")
    guarded.denies("put", "-", f"{VOLUME}/d/g", stdin=b"x")
    guarded.denies("rm", f"{VOLUME}/d/f")
    guarded.denies("ls", f"s3://{OTHERS}")


def test_a_writer(guarded: Guarded) -> None:
    cli = guarded.cli
    guarded.become("writer")
    cli.ok("put", "-", f"{VOLUME}/d/g", stdin=b"more")
    cli.ok("append", "-", f"{VOLUME}/d/g", stdin=b" of it")
    cli.ok("cp", f"{VOLUME}/d/g", f"{VOLUME}/d/h")
    cli.ok("mv", f"{VOLUME}/d/h", f"{VOLUME}/d/i")
    assert cli.ok("cat", f"{VOLUME}/d/i").output == b"more of it"
    cli.ok("rm", f"{VOLUME}/d/i")
    guarded.denies("gc", VOLUME, "--yes", "--grace", "0", "--lease", "0")
    guarded.denies("destroy", VOLUME, "--yes", "--force")


def test_a_collector(guarded: Guarded) -> None:
    cli = guarded.cli
    cli.ok("rm", f"{VOLUME}/d/f")
    guarded.become("gc")
    cli.ok("gc", VOLUME, "--yes", "--grace", "0", "--lease", "0")
    cli.ok("oplog", "compact", VOLUME, "--yes", "--grace", "0")
    guarded.denies("destroy", VOLUME, "--yes", "--force")


def test_an_operator(guarded: Guarded) -> None:
    cli = guarded.cli
    guarded.become("operator")
    cli.ok("info", VOLUME)
    cli.ok("fsck", VOLUME)
    cli.ok("destroy", VOLUME, "--yes", "--force")


def test_a_reader_of_adopted_objects(guarded: Guarded) -> None:
    cli = guarded.cli
    guarded.iam.service("s3").put_object(Bucket=OTHERS, Key="drop/a", Body=b"adopted")
    cli.ok("import", "--adopt", f"s3://{OTHERS}/drop", f"{VOLUME}/in")
    guarded.become("reader")
    guarded.denies("cat", f"{VOLUME}/in/a")
    guarded.become("root")
    guarded.grant("reader", "--adopted", OTHERS)
    guarded.become("reader")
    assert cli.ok("cat", f"{VOLUME}/in/a").output == b"adopted"


def test_a_wrong_secret_key(guarded: Guarded) -> None:
    access, secret = guarded.iam.keys["operator"]
    guarded.iam.keys["thief"] = access, secret[::-1]
    guarded.become("thief")
    guarded.denies("ls", VOLUME)


@pytest.mark.parametrize("role", ROLES)
def test_multipart_uploads(guarded: Guarded, role: Role) -> None:
    """All roles that write may run them, readers only look."""
    scenes = {name: each.scene() for name, each in UPLOADS.items()}

    async def prepare() -> None:
        async with S3kClient(config=guarded.config("root")) as fs:
            for scene in scenes.values():
                await scene.before(fs)

    async def perform() -> None:
        async with S3kClient(config=guarded.config(role)) as fs:
            for name, scene in scenes.items():
                if role != "reader" or name in LOOKS:
                    await scene.call(fs)
                    continue
                with pytest.raises(PermissionDeniedError) as caught:
                    await scene.call(fs)
                assert caught.value.path, name
                assert "; s3k policy prints the permissions of a role" in str(caught.value), name

    guarded.cli.ok("rm", f"{VOLUME}/d/f")
    asyncio.run(prepare())
    guarded.become(role)
    asyncio.run(perform())
