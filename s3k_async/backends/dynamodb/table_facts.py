"""Settings and size of a DynamoDB table, through aioboto3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from s3k_async._core.runtime import Runtime
from s3k_async.backends.aws.access import AwsConfig
from s3k_async.backends.aws.error_mapping import map_exceptions
from s3k_async.backends.aws.error_responses import Codes
from s3k_async.backends.aws.service_contact import ServiceContact
from s3k_async.backends.aws.session import AwsClient
from s3k_async.backends.ports.service_inspection import TableDescription
from s3k_async.errors import UnsupportedError

if TYPE_CHECKING:
    from types_aiobotocore_dynamodb import DynamoDBClient

__all__ = ["DynamoInspection"]

_UNKNOWN: Final[Codes] = dict.fromkeys(
    ("UnknownOperationException", "UnknownOperation", "NotImplemented", "InvalidAction"),
    (UnsupportedError, "the engine does not report it"),
)


class DynamoInspection(ServiceContact):
    """A TableInspection of one table."""

    def __init__(
        self, name: str, service: AwsConfig, session: object | None, runtime: Runtime
    ) -> None:
        super().__init__(AwsClient("dynamodb", service, session), runtime, "GET", "/")
        self._name = name

    async def description(self) -> TableDescription:
        """As `TableInspection.description`."""
        client: DynamoDBClient = await self.client.get()
        with map_exceptions(self._name):
            table: Any = (await client.describe_table(TableName=self._name))["Table"]
            replicas = (str(each.get("RegionName", "")) for each in table.get("Replicas", ()))
            read_units, write_units = _units(table)
            return TableDescription(
                status=table["TableStatus"],
                capacity="on demand"
                if read_units is None
                else f"provisioned, {read_units} read and {write_units} write units",
                encryption=_encryption(table.get("SSEDescription") or {}),
                items=int(table.get("ItemCount", 0)),
                bytes=int(table.get("TableSizeBytes", 0)),
                is_protected=bool(table.get("DeletionProtectionEnabled")),
                replicas=tuple(sorted(replicas)),
                read_units=read_units,
                write_units=write_units,
            )

    async def expiry(self) -> str:
        """As `TableInspection.expiry`."""
        client: DynamoDBClient = await self.client.get()
        with map_exceptions(self._name, codes=_UNKNOWN):
            answer = await client.describe_time_to_live(TableName=self._name)
            found = answer["TimeToLiveDescription"]
            is_on = found["TimeToLiveStatus"] in ("ENABLED", "ENABLING")
            return found.get("AttributeName", "") if is_on else ""

    async def backups(self) -> bool:
        """As `TableInspection.backups`."""
        client: DynamoDBClient = await self.client.get()
        with map_exceptions(self._name, codes=_UNKNOWN):
            answer: Any = await client.describe_continuous_backups(TableName=self._name)
            found = answer["ContinuousBackupsDescription"]
            points = found.get("PointInTimeRecoveryDescription", {})
            return bool(points.get("PointInTimeRecoveryStatus") == "ENABLED")


def _units(table: Any) -> tuple[int | None, int | None]:
    """The provisioned read and write units; None on demand."""
    if table.get("BillingModeSummary", {}).get("BillingMode") == "PAY_PER_REQUEST":
        return None, None
    units = table.get("ProvisionedThroughput", {})
    return int(units.get("ReadCapacityUnits", 0)), int(units.get("WriteCapacityUnits", 0))


def _encryption(described: Any) -> str:
    if described.get("Status") not in ("ENABLED", "UPDATING"):
        return "AWS owned key"
    kind, key = described.get("SSEType", "KMS"), described.get("KMSMasterKeyArn", "")
    return f"{kind} {key}".strip()
