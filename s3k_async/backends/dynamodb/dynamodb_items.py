"""Creation, deletion and tags of a DynamoDB table, through aioboto3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.backends.aws.access import AwsConfig
from s3k_async.backends.aws.error_mapping import map_exceptions
from s3k_async.backends.aws.error_responses import Codes
from s3k_async.backends.aws.session import AwsClient
from s3k_async.backends.dynamodb.dynamodb_codec import (
    Wire,
    parse_cursor,
)
from s3k_async.backends.dynamodb.table_options import ON_DEMAND, TableOptions, throughput
from s3k_async.backends.ports.items import PARTITION, SORT, Key
from s3k_async.backends.ports.pagination import PageGuard, repeated
from s3k_async.errors import (
    NotAVolumeError,
    RequestTimeoutError,
    S3kError,
    UnsupportedError,
    VolumeNotFoundError,
)
from s3k_async.storage_space import StorageSpace

if TYPE_CHECKING:
    from types_aiobotocore_dynamodb import DynamoDBClient

__all__ = ["NO_TAGS", "DynamoTableAdmin", "check_advance"]

_SCHEMA = {PARTITION: "HASH", SORT: "RANGE"}
_SETTLE_TRIES = 120
_SETTLE_PAUSE = 0.05
_SETTLE_PAUSE_MOST = 2.0
NO_TAGS: Codes = dict.fromkeys(
    ("UnknownOperationException", "UnknownOperation", "NotImplemented", "InvalidAction"),
    (UnsupportedError, "the engine has no table tags"),
)
_IN_USE = "ResourceInUseException"


class DynamoTableAdmin:
    """An ItemTable: one DynamoDB table. `session`: the user's aioboto3 or aiobotocore session.

    Pickled, it is its settings without secrets.
    """

    def __init__(
        self,
        name: str,
        service: AwsConfig,
        session: object | None = None,
        *,
        runtime: Runtime = SYSTEM,
        options: TableOptions | None = None,
    ) -> None:
        """`options`: those of the table, when it is created."""
        self._name = name
        self._options = options or TableOptions()
        self._service = service
        self.aws = AwsClient("dynamodb", service, session)
        self._runtime = runtime
        self._arn: str | None = None
        self._dropped: object = None
        """The id of the table whose removal has begun."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r}, {self.aws!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._name, self._service)

    async def _client(self) -> DynamoDBClient:
        client: DynamoDBClient = await self.aws.get()
        return client

    def _path(self, key: Key) -> str:
        return f"{self._name}: {key.partition}/{key.sort}"

    async def close(self) -> None:
        await self.aws.close()

    async def space(self) -> StorageSpace:
        """Unknown: a table has no capacity, and DescribeTable reports a size that may be six hours
        old."""
        return StorageSpace()

    async def create(self) -> bool:
        made, self._dropped = False, None
        for pause in self._pauses():
            table = await self._describe()
            if table is None:
                made = await self._create_once()
            elif table["TableStatus"] not in ("CREATING", "DELETING"):
                self._check_schema(table)
                if self._options.point_in_time_recovery:
                    await self._enable_recovery()
                return made
            else:
                await self._runtime.sleep(pause)
        raise RequestTimeoutError("the table did not become usable in time", path=self._name)

    async def _create_once(self) -> bool:
        client = await self._client()
        try:
            with map_exceptions(
                self._name, writing=True, codes={_IN_USE: (_TableInUseError, "the table is in use")}
            ):
                await client.create_table(
                    TableName=self._name,
                    KeySchema=[
                        {"AttributeName": PARTITION, "KeyType": "HASH"},
                        {"AttributeName": SORT, "KeyType": "RANGE"},
                    ],
                    AttributeDefinitions=[
                        {"AttributeName": PARTITION, "AttributeType": "S"},
                        {"AttributeName": SORT, "AttributeType": "S"},
                    ],
                    **self._options.parameters(),
                )
        except _TableInUseError:
            return False
        return True

    async def _enable_recovery(self) -> None:
        """Enable point-in-time recovery. Repeating it changes nothing."""
        client = await self._client()
        with map_exceptions(self._name, writing=True):
            await client.update_continuous_backups(
                TableName=self._name,
                PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True},
            )

    async def set_capacity(self, read_units: int | None, write_units: int | None) -> bool:
        """As `ProvisionedTable.set_capacity`."""
        wanted = throughput(read_units, write_units)
        changed = False
        for pause in self._pauses():
            table = await self._describe()
            if table is None:
                raise VolumeNotFoundError("no such table", path=self._name)
            if table["TableStatus"] != "ACTIVE":
                await self._runtime.sleep(pause)
            elif changed or self._capacity(table) == (read_units, write_units):
                return changed
            else:
                client = await self._client()
                with map_exceptions(self._name, writing=True):
                    await client.update_table(TableName=self._name, **wanted)
                changed = True
        raise RequestTimeoutError("the table did not reach its capacity in time", path=self._name)

    def _capacity(self, table: Wire) -> tuple[int | None, int | None]:
        """The provisioned read and write units; None each on demand."""
        with map_exceptions(self._name):
            mode = (table.get("BillingModeSummary") or {}).get("BillingMode")
            if mode == ON_DEMAND:
                return None, None
            units = table["ProvisionedThroughput"]
            return int(units["ReadCapacityUnits"]), int(units["WriteCapacityUnits"])

    async def exists(self) -> bool:
        table = await self._describe()
        if table is None or table["TableStatus"] == "DELETING":
            return False
        self._check_schema(table)
        return True

    async def drop(self) -> None:
        """Remove the table that is there now. One that is created under its name meanwhile, also
        between this call and its repetition after an error, is another volume's, and is kept."""
        self._arn = None
        for pause in self._pauses():
            table = await self._describe()
            if table is None or self._is_another(table):
                self._dropped = None
                return
            if (
                table["TableStatus"] in ("CREATING", "DELETING", "UPDATING")
                or not await self._delete_once()
            ):
                await self._runtime.sleep(pause)
        raise RequestTimeoutError("the table was not removed in time", path=self._name)

    def _is_another(self, table: Wire) -> bool:
        """Whether a table is not the one whose removal has begun, which is noted. A service need
        not give an id, at least of a table that it is removing."""
        found = table.get("TableId")
        if self._dropped is None:
            self._dropped = found
        return found is not None and found != self._dropped

    async def _delete_once(self) -> bool:
        client = await self._client()
        try:
            with map_exceptions(
                self._name, writing=True, codes={_IN_USE: (_TableInUseError, "the table is in use")}
            ):
                await client.delete_table(TableName=self._name)
        except _TableInUseError:
            return False
        except VolumeNotFoundError:
            pass
        return True

    async def read_tag(self, name: str) -> str | None:
        request: Wire = {"ResourceArn": await self._resource()}
        pages = PageGuard(self._name)
        with map_exceptions(self._name):
            while True:
                answer = await self._tag_page(request)
                for tag in answer.get("Tags", []):
                    if tag["Key"] == name:
                        return str(tag["Value"])
                if not answer.get("NextToken"):
                    return None
                request["NextToken"] = answer["NextToken"]
                pages.follow(answer["NextToken"])

    async def _tag_page(self, request: Wire) -> Wire:
        """The answer to ListTagsOfResource. Raises UnsupportedError."""
        client = await self._client()
        with map_exceptions(self._name, codes=NO_TAGS):
            return dict(await client.list_tags_of_resource(**request))

    async def write_tag(self, name: str, value: str) -> None:
        client = await self._client()
        arn = await self._resource()
        with map_exceptions(self._name, writing=True, codes=NO_TAGS):
            await client.tag_resource(ResourceArn=arn, Tags=[{"Key": name, "Value": value}])

    async def _resource(self) -> str:
        if self._arn is None:
            table = await self._describe()
            if table is None:
                raise VolumeNotFoundError("no such table", path=self._name)
            with map_exceptions(self._name):
                self._arn = str(table["TableArn"])
        return self._arn

    async def _describe(self) -> Wire | None:
        """The service's description of the table; None when there is none."""
        try:
            with map_exceptions(self._name):
                table = dict((await self._table_answer())["Table"])
                if not isinstance(table["TableStatus"], str):
                    raise TypeError
                return table
        except VolumeNotFoundError:
            return None

    async def _table_answer(self) -> Wire:
        """The answer to DescribeTable."""
        client = await self._client()
        return dict(await client.describe_table(TableName=self._name))

    def _check_schema(self, table: Wire) -> None:
        with map_exceptions(self._name):
            keys = {key["AttributeName"]: key["KeyType"] for key in table["KeySchema"]}
            types = {
                kind["AttributeName"]: kind["AttributeType"]
                for kind in table["AttributeDefinitions"]
            }
        if keys != _SCHEMA or any(types.get(name) != "S" for name in _SCHEMA):
            raise NotAVolumeError(
                f"the table's keys are not the texts `{PARTITION}` (partition) and `{SORT}` (sort)",
                path=self._name,
            )

    def _pauses(self) -> list[float]:
        """The waits for creation or removal of a table: about four minutes in all."""
        return [
            min(_SETTLE_PAUSE * 2**attempt, _SETTLE_PAUSE_MOST) for attempt in range(_SETTLE_TRIES)
        ]


class _TableInUseError(S3kError):
    """The table is being created, changed or removed."""


def check_advance(cursor: str | None, following: str | None, table: str, *, ordered: bool) -> None:
    """Raise ServiceError for a page whose cursor does not advance. `ordered`: pages follow the
    order of sort keys."""
    if cursor is None or following is None:
        return
    if cursor == following or (ordered and _sort_bytes(following) <= _sort_bytes(cursor)):
        raise repeated(table)


def _sort_bytes(cursor: str) -> bytes:
    return parse_cursor(cursor).sort.encode()
