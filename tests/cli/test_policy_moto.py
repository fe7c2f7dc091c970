"""The policies of `s3k policy` as moto's IAM evaluates them, for users with signed requests to
moto's DynamoDB and S3.

moto (5.2) compares signatures, actions, and for S3 the bucket and key. It knows no resources of
DynamoDB, denies what a statement with a condition allows, takes DeleteObjects for an action on the
bucket, and has actions of its own (`moto.iam.access_control`): so data and log have buckets of
their own, without a prefix. The whole documents are evaluated in `tests/cli/test_policy.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.request import Request, urlopen

import boto3
import pytest

from s3k_async.cli.exit_codes import ExitCode
from s3k_async.txn import volume_lock
from s3k_async.volumes.iam_policies import ROLES
from tests.cli.conftest import Cli
from tests.conftest import unavailable
from tests.engines import moto_s3
from tests.engines.process import Engine, running

pytestmark = pytest.mark.engine

VOLUME = "s3k://guarded"
OTHERS = "others"
"""A bucket that the policies do not name."""
WHERE = ("--table", "guarded", "--bucket", "guarded", "--log-location", "s3://guarded-log")
OF_MOTO = {
    "dynamodb:ConditionCheckItem": "dynamodb:TransactWriteItems",
    "s3:ListBucket": "s3:HeadBucket",
}
"""Actions that AWS has not, by those that it requires for the same request."""
NEVER = "inf"


@dataclass
class Guarded:
    """A volume in moto, with a user for each role."""

    server: Engine
    cli: Cli
    monkeypatch: pytest.MonkeyPatch
    session: boto3.session.Session
    keys: dict[str, tuple[str, str]]

    def service(self, name: str) -> Any:
        """A client with all permissions."""
        return self.session.client(name, endpoint_url=self.server.endpoint)

    def grant(self, role: str, *options: str) -> None:
        """Give the user of a role its policy."""
        document = json.dumps(
            evaluable(self.cli.ok("policy", role, VOLUME, *WHERE, *options).json())
        )
        iam = self.service("iam")
        iam.put_user_policy(UserName=role, PolicyName="s3k", PolicyDocument=document)

    def become(self, user: str) -> None:
        """Let the commands that follow be those of a user, whose permissions moto enforces; of
        `root` everything is allowed."""
        access, secret = self.keys[user]
        self.monkeypatch.setenv("S3K_ACCESS_KEY_ID", access)
        self.monkeypatch.setenv("S3K_SECRET_ACCESS_KEY", secret)
        enforce(self.server, NEVER if user == "root" else "0")

    def denies(self, *arguments: str, stdin: bytes = b"") -> None:
        """The named error, PermissionDeniedError."""
        self.cli.fails(ExitCode.DENIED, *arguments, stdin=stdin)


def enforce(server: Engine, after: str) -> None:
    """Let moto check requests after so many others."""
    post(server, "reset-auth", after)


def post(server: Engine, call: str, body: str = "") -> None:
    """A call of moto's own API."""
    where = f"{server.endpoint}/moto-api/{call}"
    plain = Request(where, body.encode(), {"Content-Type": "text/plain"})
    with urlopen(plain, timeout=60) as answer:
        assert answer.status == 200


def evaluable(document: dict[str, Any]) -> dict[str, Any]:
    """The policy in the terms of moto."""
    statements = []
    for each in document["Statement"]:
        assert "Condition" not in each
        actions, resources = [*each["Action"]], each["Resource"]
        actions += [OF_MOTO[action] for action in each["Action"] if action in OF_MOTO]
        if actions[0].startswith("dynamodb:"):
            resources = "*"
        elif "s3:DeleteObject" in actions:
            resources = [*resources, *(name.removesuffix("/*") for name in resources)]
        statements.append({**each, "Action": actions, "Resource": resources})
    return {**document, "Statement": statements}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """moto of its own, since enforcement concerns all of its clients."""
    if (reason := moto_s3.missing()) is not None:
        unavailable(reason)
    with running(moto_s3.start, tmp_path_factory.mktemp("moto") / "log") as server:
        yield server


@pytest.fixture
def guarded(server: Engine, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guarded]:
    """The volume, with a file."""
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)
    monkeypatch.setenv("S3K_ENDPOINT", server.endpoint)
    monkeypatch.setenv("S3K_REGION", server.region)
    named = {"aws_access_key_id": server.access_key, "aws_secret_access_key": server.secret_key}
    session = boto3.session.Session(**named, region_name=server.region)
    keys = {"root": (server.access_key, server.secret_key)}
    found = Guarded(server, cli, monkeypatch, session, keys)
    found.become("root")
    cli.ok("init", VOLUME, *WHERE)
    cli.ok("put", "-", f"{VOLUME}/d/f", stdin=b"bytes")
    found.service("s3").create_bucket(Bucket=OTHERS)
    iam = found.service("iam")
    for role in ROLES:
        iam.create_user(UserName=role)
        found.grant(role)
        key = iam.create_access_key(UserName=role)["AccessKey"]
        keys[role] = key["AccessKeyId"], key["SecretAccessKey"]
    yield found
    found.become("root")
    post(server, "reset")


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
    guarded.service("s3").put_object(Bucket=OTHERS, Key="drop/a", Body=b"adopted")
    cli.ok("import", "--adopt", f"s3://{OTHERS}/drop", f"{VOLUME}/in")
    guarded.become("reader")
    guarded.denies("cat", f"{VOLUME}/in/a")
    guarded.become("root")
    guarded.grant("reader", "--adopted", OTHERS)
    guarded.become("reader")
    assert cli.ok("cat", f"{VOLUME}/in/a").output == b"adopted"


def test_a_wrong_secret_key(guarded: Guarded) -> None:
    access, secret = guarded.keys["operator"]
    guarded.keys["thief"] = access, secret[::-1]
    guarded.become("thief")
    guarded.denies("ls", VOLUME)
