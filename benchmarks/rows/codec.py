"""Decode, encode and sign: one process, no sockets. botocore's own parser, serialiser and signer
are the baseline."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from boto3.dynamodb.types import TypeDeserializer
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.parsers import create_parser
from botocore.serialize import create_serializer
from botocore.session import get_session
from botocore.validate import ParamValidator

from benchmarks.contenders.keys import condition_fields, item_of, key_of
from benchmarks.contenders.ours import UNCHANGED
from benchmarks.measuring import Case, Result, measure
from benchmarks.rows.scope import Scope, plain, several
from benchmarks.servers import TABLE, VOLUME
from s3k_async import _native
from s3k_async.backends.dynamodb.dynamodb_codec import decode_item, decode_key
from s3k_async.backends.ports.items import ABSENT, Action, Delete, Put

__all__ = ["results"]

ROWS = 3_000
TOKEN = "11111111-1111-4111-8111-111111111111"


def _page() -> bytes:
    """A query's answer of one megabyte."""
    items = []
    for number in range(ROWS):
        digits = f"{number:08}"
        item = item_of(number, "/warehouse/events")
        item["id"] = {"S": f"{digits}-0000-4000-8000-000000000000"}
        item["physpath"] = {"S": f"{digits}-2222-4222-8222-222222222222.id={item['id']['S']}"}
        items.append(item)
    page = {
        "Count": ROWS,
        "Items": items,
        "LastEvaluatedKey": key_of(ROWS, "/warehouse/events"),
        "ScannedCount": ROWS,
    }
    return json.dumps(page, separators=(",", ":")).encode()


async def results(scope: Scope) -> AsyncIterator[Result]:
    """All rows that need no server."""
    model = get_session().get_service_model("dynamodb")
    for case in (_decode(scope, model), _encode(scope, model), _sign(scope)):
        for result in await measure(case):
            yield result


def _decode(scope: Scope, model: Any) -> Case:
    body = _page()
    crc = _native.crc32(body)
    parser = create_parser("json")
    shape = model.operation_model("Query").output_shape
    read = TypeDeserializer().deserialize

    def botocore() -> int:
        answer = parser.parse({"status_code": 200, "headers": {}, "body": body}, shape)
        return len(answer["Items"])

    def deserialised() -> int:
        answer = parser.parse({"status_code": 200, "headers": {}, "body": body}, shape)
        return len(
            [{name: read(value) for name, value in item.items()} for item in answer["Items"]]
        )

    def loop() -> int:
        rows = [
            (
                item["path"]["S"],
                item["children"]["S"],
                item["isdir"]["BOOL"],
                item["id"]["S"],
                int(item["ver"]["N"]),
                int(item["size"]["N"]),
                int(item["mtime"]["N"]),
                item["physpath"]["S"],
            )
            for item in json.loads(body)["Items"]
        ]
        return len(rows)

    def columns() -> int:
        return len(_native.decode_page(body, crc).rows)

    def objects() -> int:
        return len(_native.decode_page(body, crc).rows.entries(VOLUME).statuses())

    def arrow() -> int:
        return int(pa.record_batch(_native.decode_page(body, crc).rows.entries(VOLUME)).num_rows)

    return Case(
        "decode",
        f"a page of {ROWS:,} items, {len(body) / 1e6:.2f} MB",
        ROWS,
        "items",
        {
            "aiobotocore": plain(botocore),
            "aiobotocore + TypeDeserializer": plain(deserialised),
            "json + loop to tuples": plain(loop),
            "ours, columns": plain(columns),
            "ours, objects": plain(objects),
            "ours, Arrow": plain(arrow),
        },
        rounds=scope.pick(5, 21),
        clock="processor",
        expected=ROWS,
    )


def _encode(scope: Scope, model: Any) -> Case:
    operation = model.operation_model("TransactWriteItems")
    serializer = create_serializer("json", include_validation=False)
    validator = ParamValidator()
    entries = _native.decode_page(_page(), None).rows.entries(VOLUME)[:50]
    entropy = bytes(range(200)) * 4

    def botocore() -> None:
        actions = []
        for number in range(50):
            item = item_of(number)
            new = {
                **item,
                "path": {"S": f"ks://{VOLUME}/renamed-sf{number % 16}"},
                "ver": {"N": "3"},
            }
            absent = {
                "ConditionExpression": "attribute_not_exists(#n0)",
                "ExpressionAttributeNames": {"#n0": "path"},
            }
            actions.append(
                {"Delete": {"TableName": TABLE, "Key": key_of(number), **condition_fields()}}
            )
            actions.append({"Put": {"TableName": TABLE, "Item": new, **absent}})
        request = {"TransactItems": actions, "ClientRequestToken": TOKEN}
        if validator.validate(request, operation.input_shape).has_errors():
            raise AssertionError("botocore refused the transaction")
        serializer.serialize_to_request(request, operation)

    def ours() -> None:
        actions: list[Action] = []
        for number in range(50):
            item = decode_item(item_of(number))
            actions.append(Delete(decode_key(key_of(number)), UNCHANGED))
            actions.append(
                Put({**item, "path": f"ks://{VOLUME}/renamed-sf{number % 16}", "ver": 3}, ABSENT)
            )
        _native.encode_transaction(TABLE, actions, TOKEN)

    def from_columns() -> None:
        moves = _native.Moves(entries, VOLUME, "/renamed", 16, "xxh3", entropy)
        _native.encode_transaction(TABLE, moves, TOKEN)

    times = 20
    return Case(
        "encode",
        "a transaction of 50 renames",
        times,
        "transactions",
        {
            "aiobotocore": several(times, botocore),
            "ours, from actions": several(times, ours),
            "ours, from columns": several(times, from_columns),
        },
        rounds=scope.pick(5, 21),
        clock="processor",
    )


def _sign(scope: Scope) -> Case:
    credentials = Credentials("access", "secret")
    auth = SigV4Auth(credentials, "dynamodb", "us-east-1")
    signer = _native.Signer("access", "secret", None, "us-east-1", "dynamodb")
    body = b"x" * 500
    host, target = "127.0.0.1:8000", "DynamoDB_20120810.PutItem"
    now = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)

    def botocore() -> None:
        headers = {"X-Amz-Target": target, "Content-Type": "application/x-amz-json-1.0"}
        auth.add_auth(AWSRequest("POST", f"http://{host}/", headers=headers, data=body))

    times = 200
    return Case(
        "sign",
        "a request of 500 bytes",
        times,
        "requests",
        {
            "aiobotocore": several(times, botocore),
            "ours": several(times, lambda: signer.dynamodb(host, target, body, now)),
        },
        rounds=scope.pick(5, 21),
        clock="processor",
    )
