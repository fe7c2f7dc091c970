"""IAM before engines that have none: a proxy that lets through what a policy allows.

The actions of each request, and the resources they are on, are those of "Actions, resources, and
condition keys" for Amazon DynamoDB and Amazon S3 in the AWS Service Authorization Reference, and of
"Using IAM with DynamoDB transactions" in the Amazon DynamoDB Developer Guide. As in S3, a missing
object looks forbidden to somebody who may not list the bucket.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree as ET

__all__ = ["Access", "Gate", "gate_before", "without"]

REGION, ACCOUNT = "us-east-1", "123456789012"
Policy: TypeAlias = Mapping[str, Any]


class Access(NamedTuple):
    """What a request needs."""

    action: str
    resource: str
    prefix: str | None = None
    """The condition key `s3:prefix`, if the request has it."""
    keys: frozenset[str] = frozenset()
    """The condition key `dynamodb:LeadingKeys`: the partitions that the request names."""


@dataclass
class Gate:
    """What came to the proxy. Every request is by one user, with one policy."""

    endpoint: str
    policy: Policy | None = None
    """None allows everything."""
    allowed: set[Access] = field(default_factory=set)
    denied: list[Access] = field(default_factory=list)

    def admit(self, needed: Sequence[Access]) -> Access | None:
        """Note what a request needs; what it lacks, if anything."""
        for each in needed:
            if self.policy is not None and not is_allowed(self.policy, each):
                self.denied.append(each)
                return each
        self.allowed.update(needed)
        return None

    def may_list(self, bucket: str, key: str) -> bool:
        """Whether the answer for a missing object is NoSuchKey, not AccessDenied."""
        listing = Access("s3:ListBucket", f"arn:aws:s3:::{bucket}", key)
        return self.policy is None or is_allowed(self.policy, listing)

    def forget(self) -> None:
        """Forget what came."""
        self.allowed.clear()
        self.denied.clear()


def is_allowed(policy: Policy, access: Access) -> bool:
    """Whether a policy without denials allows it."""
    return any(_applies(statement, access) for statement in policy["Statement"])


def without(policy: dict[str, Any], action: str) -> dict[str, Any]:
    """A policy that does not allow an action."""
    statements = [
        {**each, "Action": [kept for kept in each["Action"] if kept != action]}
        for each in policy["Statement"]
    ]
    return {**policy, "Statement": statements}


def _applies(statement: Mapping[str, Any], access: Access) -> bool:
    assert statement["Effect"] == "Allow"
    assert statement.keys() <= {"Sid", "Effect", "Action", "Resource", "Condition"}
    conditions = statement.get("Condition", {})
    assert conditions.keys() <= {"StringLike", "ForAllValues:StringLike"}
    wanted = conditions.get("StringLike", {})
    leading = conditions.get("ForAllValues:StringLike", {})
    assert wanted.keys() <= {"s3:prefix"}
    assert leading.keys() <= {"dynamodb:LeadingKeys"}
    return (
        any(fnmatchcase(access.action, each) for each in _list(statement["Action"]))
        and any(_matches(access.resource, each) for each in _list(statement["Resource"]))
        and (
            not wanted
            or (
                access.prefix is not None
                and any(_matches(access.prefix, each) for each in _list(wanted["s3:prefix"]))
            )
        )
        and (
            not leading
            or all(
                any(_matches(key, each) for each in _list(leading["dynamodb:LeadingKeys"]))
                for key in access.keys
            )
        )
    )


def _matches(text: str, pattern: str) -> bool:
    # In IAM a bracket has no meaning.
    return fnmatchcase(text, pattern.replace("[", "[[]"))


def _list(value: str | Sequence[str]) -> Sequence[str]:
    return [value] if isinstance(value, str) else value


# What requests need


def dynamodb_accesses(operation: str, body: Mapping[str, Any]) -> list[Access]:
    """What a request of DynamoDB's API needs."""
    match operation:
        case "TransactWriteItems":
            actions = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem"}
            actions["ConditionCheck"] = "ConditionCheckItem"
            return [
                _on_table(actions[kind], part["TableName"], [part.get("Key") or part["Item"]])
                for item in body["TransactItems"]
                for kind, part in item.items()
            ]
        case "BatchGetItem" | "BatchWriteItem":
            return [
                _on_table(operation, table, _items_of(part))
                for table, part in body["RequestItems"].items()
            ]
        case "TagResource" | "UntagResource" | "ListTagsOfResource":
            return [_on_table(operation, body["ResourceArn"].rpartition("/")[2])]
        case "CreateTable" if body.get("Tags"):
            table = body["TableName"]
            return [_on_table("CreateTable", table), _on_table("TagResource", table)]
        case "Query":
            return [
                _on_table(
                    operation,
                    body["TableName"],
                    [{"path": body["ExpressionAttributeValues"][":p"]}],
                )
            ]
        case _:
            items = [body[name] for name in ("Key", "Item") if name in body]
            return [_on_table(operation, body["TableName"], items)]


def _items_of(part: Any) -> list[Mapping[str, Any]]:
    """The keys or items of a table in a batch."""
    if isinstance(part, Mapping):
        return list(part["Keys"])
    return [each["PutRequest"]["Item"] for each in part]


def _on_table(operation: str, table: str, items: Sequence[Mapping[str, Any]] = ()) -> Access:
    return Access(
        f"dynamodb:{operation}",
        f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{table}",
        keys=frozenset(str(item["path"]["S"]) for item in items),
    )


_ON_OBJECTS = {
    ("GET", ""): "GetObject",
    ("HEAD", ""): "GetObject",
    ("PUT", ""): "PutObject",
    ("DELETE", ""): "DeleteObject",
    ("POST", "uploads"): "PutObject",
    ("PUT", "uploadId"): "PutObject",
    ("POST", "uploadId"): "PutObject",
    ("DELETE", "uploadId"): "AbortMultipartUpload",
    ("GET", "uploadId"): "ListMultipartUploadParts",
}
_ON_BUCKETS = {
    ("GET", ""): "ListBucket",
    ("HEAD", ""): "ListBucket",
    ("PUT", ""): "CreateBucket",
    ("DELETE", ""): "DeleteBucket",
    ("GET", "uploads"): "ListBucketMultipartUploads",
    ("GET", "location"): "GetBucketLocation",
    ("GET", "versioning"): "GetBucketVersioning",
    ("GET", "lifecycle"): "GetLifecycleConfiguration",
    ("GET", "encryption"): "GetEncryptionConfiguration",
}


def s3_accesses(method: str, target: str, headers: Mapping[str, str], body: bytes) -> list[Access]:
    """What a request of S3's API, with the bucket in its path, needs."""
    parts = urlsplit(target)
    query = parse_qs(parts.query, keep_blank_values=True)
    bucket, _, key = unquote(parts.path)[1:].partition("/")
    on_bucket, on_object = f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/{key}"
    known = ("uploads", "uploadId", "location", "versioning", "lifecycle", "encryption")
    kinds = [each for each in known if each in query]
    kind = kinds[0] if kinds else ""
    if not key and "delete" in query:
        return [
            Access("s3:DeleteObject", f"{on_bucket}/{each.text}")
            for each in ET.fromstring(body).iter()
            if each.tag.endswith("Key")
        ]
    if not key:
        prefix = query.get("prefix", [None])[0]
        return [Access(f"s3:{_ON_BUCKETS[method, kind]}", on_bucket, prefix)]
    version = "Version" if "versionId" in query else ""
    needed = [Access(f"s3:{_ON_OBJECTS[method, kind]}{version}", on_object)]
    if headers.get("x-amz-tagging"):
        needed.append(Access("s3:PutObjectTagging", on_object))
    if source := headers.get("x-amz-copy-source"):
        copied, _, version = source.lstrip("/").partition("?versionId=")
        action = "s3:GetObjectVersion" if version else "s3:GetObject"
        needed.append(Access(action, f"arn:aws:s3:::{unquote(copied)}"))
    return needed


# The proxy

_HOP = {"connection", "transfer-encoding", "keep-alive", "content-length"}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    server: _Server

    def handle_expect_100(self) -> bool:
        super().handle_expect_100()
        self.wfile.flush()
        return True

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        gate = self.server.gate
        target = self.headers.get("X-Amz-Target")
        if target is not None:
            needed = dynamodb_accesses(target.rpartition(".")[2], json.loads(body))
        else:
            headers = {name.lower(): value for name, value in self.headers.items()}
            needed = s3_accesses(self.command, self.path, headers, body)
        lacking = gate.admit(needed)
        if lacking is not None:
            self._refuse(lacking, is_dynamodb=target is not None)
            return
        status, headers_back, answer = self._forward(body, is_dynamodb=target is not None)
        if status == 404 and target is None and self.command in ("GET", "HEAD"):
            bucket, _, key = unquote(urlsplit(self.path).path)[1:].partition("/")
            if key and not gate.may_list(bucket, key):
                self._refuse(Access("s3:ListBucket", f"arn:aws:s3:::{bucket}"), is_dynamodb=False)
                return
        self._answer(status, headers_back, answer)

    def _forward(
        self, body: bytes, *, is_dynamodb: bool
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        place = urlsplit(self.server.engines[0 if is_dynamodb else 1])
        connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=60)
        try:
            connection.putrequest(
                self.command, self.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in self.headers.items():
                if name.lower() not in ("connection", "expect"):
                    connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _refuse(self, lacking: Access, *, is_dynamodb: bool) -> None:
        message = (
            f"User: arn:aws:iam::{ACCOUNT}:user/s3k is not authorized to perform:"
            f" {lacking.action} on resource: {lacking.resource}"
        )
        if is_dynamodb:
            document = {"__type": "com.amazon.coral.service#AccessDeniedException"}
            text = json.dumps({**document, "Message": message})
            self._answer(400, [("Content-Type", "application/x-amz-json-1.0")], text.encode())
        else:
            text = f"<Error><Code>AccessDenied</Code><Message>{message}</Message></Error>"
            self._answer(403, [("Content-Type", "application/xml")], text.encode())

    def _answer(self, status: int, headers: Sequence[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        length = str(len(body))
        for name, value in headers:
            if name.lower() not in _HOP:
                self.send_header(name, value)
            elif name.lower() == "content-length" and self.command == "HEAD":
                length = value
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, engines: tuple[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.engines = engines
        self.gate = Gate(f"http://127.0.0.1:{self.server_address[1]}")

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error, unless a client has reset its connection, as one does that is closed
        during a request."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def gate_before(dynamodb: str, s3: str) -> Iterator[Gate]:
    """A gate before two engines, by their endpoints."""
    with _Server((dynamodb, s3)) as server:
        thread = threading.Thread(target=server.serve_forever, name="iam-gate", daemon=True)
        thread.start()
        try:
            yield server.gate
        finally:
            server.shutdown()
            thread.join()
