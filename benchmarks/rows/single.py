"""Single operations against the canned server, at several numbers in flight."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from benchmarks.contenders.keys import ITEM, bounded, condition_fields, item_of, key_of
from benchmarks.contenders.ours import READ_FILES, Ours, client
from benchmarks.contenders.with_aioboto3 import Aioboto3, table_of
from benchmarks.contenders.with_aiobotocore import Aiobotocore, client_of
from benchmarks.contenders.with_aiodynamo import Aiodynamo, aiodynamo_client
from benchmarks.contenders.with_boto3 import Boto3
from benchmarks.measuring import Case, Result, Run, measure
from benchmarks.rows.scope import Scope
from benchmarks.servers import BUCKET, TABLE, Canned, config_for

__all__ = ["results"]

KIB = bytes(1024)
OPERATIONS = {"get": "GetItem", "put": "PutItem", "delete": "DeleteItem"}
VERBS = ("stat", "read", "create", "rename", "delete")


async def results(scope: Scope, server: Canned) -> AsyncIterator[Result]:
    """Requests of the table, then the client's verbs beside the same requests by hand."""
    async with AsyncExitStack() as stack:
        low = await stack.enter_async_context(client_of(server.engine, "dynamodb"))
        blobs = await stack.enter_async_context(client_of(server.engine, "s3"))
        table = await stack.enter_async_context(table_of(server.engine))
        pure = await stack.enter_async_context(aiodynamo_client(server.engine))
        fs = await stack.enter_async_context(client(config_for(server.engine, server.engine)))

        async def forget(_: str = "") -> None:
            server.keep_files(keep=False)
            server.reset()
            server.directory("/single", 1_000_000, 16)
            await fs.makedirs("/single")

        async def write(_: str) -> None:
            """The files to read, and the objects that are read by hand."""
            await forget()
            server.keep_files()
            numbers = range(_calls(scope))
            files = [(f"{READ_FILES}{number:08}", KIB) for number in numbers]
            (await fs.write_many(files)).raise_for_failures()
            await bounded(by_hand.put, numbers, 32)

        await forget()
        contenders: dict[str, Any] = {
            "aiobotocore": Aiobotocore(low),
            "boto3": Boto3(server.engine),
            "aioboto3": Aioboto3(table),
            "aiodynamo": Aiodynamo(pure),
            "ours": Ours(fs),
        }
        for case in _requests(scope, server, contenders):
            for result in await measure(case):
                yield result
        by_hand = ByHand(low, blobs)
        for case in _verbs(scope, {"aiobotocore": by_hand, "ours": Ours(fs)}, forget, write):
            for result in await measure(case):
                yield result


def _count(scope: Scope) -> int:
    return int(scope.pick(200, 2_000))


def _calls(scope: Scope) -> int:
    """Calls of a verb."""
    return _count(scope) // 2


def _in_flight(scope: Scope) -> tuple[int, ...]:
    return tuple(scope.pick((32,), (1, 32, 256)))


def _requests(scope: Scope, server: Canned, contenders: dict[str, Any]) -> Iterator[Case]:
    count = _count(scope)
    for operation, name in OPERATIONS.items():
        for in_flight in _in_flight(scope):
            request = {"TableName": TABLE, **_body(operation)}
            limit = server.own_rate(name, request, connections=in_flight, seconds=0.5)
            runs: dict[str, Run] = {
                peer: partial(rows.single, operation, count, in_flight)
                for peer, rows in contenders.items()
            }
            yield Case(
                "request",
                f"{name}, {in_flight} in flight",
                count,
                "requests",
                runs,
                rounds=scope.rounds,
                expected=count,
                limit=f"{limit:,.0f} requests/s",
            )


def _verbs(
    scope: Scope,
    contenders: dict[str, Any],
    forget: Callable[[str], Awaitable[None]],
    write: Callable[[str], Awaitable[None]],
) -> Iterator[Case]:
    count = _calls(scope)
    for verb in VERBS:
        for in_flight in _in_flight(scope):
            runs: dict[str, Run] = {
                peer: partial(rows.verb, verb, count, in_flight)
                for peer, rows in contenders.items()
            }
            yield Case(
                "verb",
                f"{verb}, {in_flight} in flight",
                count,
                "calls",
                runs,
                rounds=scope.rounds,
                before=write if verb == "read" else forget,
                expected=count,
            )


def _body(operation: str) -> dict[str, Any]:
    if operation == "put":
        return {"Item": item_of(1)}
    return {"Key": key_of(1)} | (
        condition_fields() if operation == "delete" else {"ConsistentRead": True}
    )


class ByHand:
    """What the client's verbs send, sent by aiobotocore's clients: the same safety by the same
    requests."""

    def __init__(self, table: Any, blobs: Any) -> None:
        self.table = table
        self.blobs = blobs

    async def verb(self, verb: str, count: int, in_flight: int) -> int:
        """`count` calls."""
        verbs = {
            "stat": self._stat,
            "read": self._read,
            "create": self._create,
            "rename": self._rename,
            "delete": self._delete,
        }
        await bounded(verbs[verb], range(count), in_flight)
        return count

    async def put(self, number: int) -> None:
        """Put an object for `read`."""
        await self.blobs.put_object(Bucket=BUCKET, Key=f"{number:08}", Body=KIB)

    async def _read(self, number: int) -> None:
        await self._stat(number)
        answer = await self.blobs.get_object(Bucket=BUCKET, Key=f"{number:08}")
        assert await answer["Body"].read() == KIB

    async def _stat(self, number: int) -> None:
        await self.table.get_item(TableName=TABLE, Key=key_of(number), ConsistentRead=True)

    async def _log(self, number: int, state: str) -> None:
        key = f"oplog/entries/00/{number:08}.0000000002.{state}"
        await self.blobs.put_object(Bucket=BUCKET, Key=key, Body=b"x" * 400, IfNoneMatch="*")

    async def _create(self, number: int) -> None:
        new = {"path": key_of(number)["path"], "children": {"S": f"new-{number:08}"}}
        parent = {"path": {"S": "ks://bench/-sf0"}, "children": {"S": "single"}}
        await self.table.batch_get_item(
            RequestItems={TABLE: {"Keys": [parent, new], "ConsistentRead": True}}
        )
        await self.blobs.put_object(Bucket=BUCKET, Key=f"{number:08}", Body=b"0123456789")
        await self._log(number, "pending")
        await self.table.put_item(
            TableName=TABLE,
            Item={**new, **ITEM},
            ConditionExpression="attribute_not_exists(#n0)",
            ExpressionAttributeNames={"#n0": "path"},
        )
        await self.table.get_item(TableName=TABLE, Key=parent, ConsistentRead=True)
        await self._log(number, "committed")

    async def _rename(self, number: int) -> None:
        key = key_of(number)
        new = {"path": key["path"], "children": {"S": f"moved-{number:08}"}}
        parent = {"path": {"S": "ks://bench/-sf0"}, "children": {"S": "single"}}
        await self.table.batch_get_item(
            RequestItems={TABLE: {"Keys": [parent, key, new], "ConsistentRead": True}}
        )
        await self._log(number, "pending")
        absent = {
            "ConditionExpression": "attribute_not_exists(#n0)",
            "ExpressionAttributeNames": {"#n0": "path"},
        }
        await self.table.transact_write_items(
            TransactItems=[
                {"Delete": {"TableName": TABLE, "Key": key, **condition_fields()}},
                {"Put": {"TableName": TABLE, "Item": {**new, **ITEM}, **absent}},
            ],
            ClientRequestToken=f"token-{number:08}",
        )
        await self._log(number, "committed")

    async def _delete(self, number: int) -> None:
        await self._stat(number)
        await self._log(number, "pending")
        delete = {"Delete": {"TableName": TABLE, "Key": key_of(number), **condition_fields()}}
        await self.table.transact_write_items(
            TransactItems=[delete], ClientRequestToken=f"token-{number:08}"
        )
        await self._log(number, "committed")
