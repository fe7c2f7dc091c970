"""IAM of moto: users with policies, whose signed requests moto's DynamoDB and S3 evaluate.

moto (5.2) compares signatures, actions, and for S3 the bucket and key. It knows no resources of
DynamoDB, denies what a statement with a condition allows, takes DeleteObjects for an action on the
bucket, and has actions of its own (`moto.iam.access_control`): so data and log have buckets of
their own, without a prefix.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import boto3

from s3k_async.config import AwsConfig, Secret
from tests.conftest import unavailable
from tests.engines import moto_s3
from tests.engines.process import Engine, running

__all__ = ["MotoIam", "moto_iam"]

_OF_MOTO = {
    "dynamodb:ConditionCheckItem": "dynamodb:TransactWriteItems",
    "s3:ListBucket": "s3:HeadBucket",
}
"""Actions that AWS has not, by those that it requires for the same request."""
_NEVER = "inf"


@dataclass
class MotoIam:
    """The users of a moto that no other test uses, since enforcement concerns all clients."""

    server: Engine
    keys: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Access key id and secret of each user; of `root` everything is allowed."""

    def __post_init__(self) -> None:
        self.keys["root"] = self.server.access_key, self.server.secret_key

    def service(self, name: str) -> Any:
        """A client with all permissions, for the time without enforcement."""
        named = {
            "aws_access_key_id": self.server.access_key,
            "aws_secret_access_key": self.server.secret_key,
        }
        session = boto3.session.Session(**named, region_name=self.server.region)
        return session.client(name, endpoint_url=self.server.endpoint)

    def grant(self, user: str, document: Mapping[str, Any]) -> None:
        """Give a user a policy in place of the former one; a new user is created."""
        iam = self.service("iam")
        if user not in self.keys:
            iam.create_user(UserName=user)
            key = iam.create_access_key(UserName=user)["AccessKey"]
            self.keys[user] = key["AccessKeyId"], key["SecretAccessKey"]
        text = json.dumps(_evaluable(document))
        iam.put_user_policy(UserName=user, PolicyName="s3k", PolicyDocument=text)

    def aws(self, user: str, endpoint: str | None = None) -> AwsConfig:
        """Settings with the keys of a user, and the endpoint of a proxy, if there is one."""
        access, secret = self.keys[user]
        return replace(
            self.server.aws(),
            endpoint=endpoint or self.server.endpoint,
            access_key_id=Secret(access),
            secret_access_key=Secret(secret),
        )

    def enforce(self, *, on: bool) -> None:
        """Let moto check the following requests, or none."""
        self._post("reset-auth", "0" if on else _NEVER)

    def reset(self) -> None:
        """Forget all users and data."""
        self.enforce(on=False)
        self._post("reset")
        self.keys = {"root": self.keys["root"]}

    def _post(self, call: str, body: str = "") -> None:
        """A call of moto's own API."""
        where = f"{self.server.endpoint}/moto-api/{call}"
        plain = Request(where, body.encode(), {"Content-Type": "text/plain"})
        with urlopen(plain, timeout=60) as answer:
            assert answer.status == 200


@contextmanager
def moto_iam(directory: Path) -> Iterator[MotoIam]:
    """A moto of its own, with a directory for its log."""
    if (reason := moto_s3.missing()) is not None:
        unavailable(reason)
    with running(moto_s3.start, directory / "log") as server:
        yield MotoIam(server)


def _evaluable(document: Mapping[str, Any]) -> dict[str, Any]:
    """The policy in the terms of moto."""
    statements = []
    for each in document["Statement"]:
        assert "Condition" not in each
        actions, resources = [*each["Action"]], each["Resource"]
        actions += [_OF_MOTO[action] for action in each["Action"] if action in _OF_MOTO]
        if actions[0].startswith("dynamodb:"):
            resources = "*"
        elif "s3:DeleteObject" in actions:
            resources = [*resources, *(name.removesuffix("/*") for name in resources)]
        statements.append({**each, "Action": actions, "Resource": resources})
    return {**document, "Statement": statements}
