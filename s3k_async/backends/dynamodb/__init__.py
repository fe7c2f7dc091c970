"""Tables in DynamoDB."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from s3k_async.backends.aws.access import AwsConfig
from s3k_async.backends.dynamodb.table_options import TableOptions
from s3k_async.backends.location import OpenContext, TableCapabilities, TableLocation, TableStore
from s3k_async.backends.ports.service_inspection import Inspection
from s3k_async.errors import ConfigError

__all__ = ["DynamoTable", "with_options"]

_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}|arn:[A-Za-z0-9:_-]+:table/[A-Za-z0-9_.-]{3,255}")


@dataclass(frozen=True, slots=True)
class DynamoTable(TableLocation):
    """A DynamoDB table."""

    name: str
    aws: AwsConfig = field(default_factory=AwsConfig)
    options: TableOptions = field(default=TableOptions(), compare=False)
    """Of the table, when it is created."""

    uses_aws: ClassVar[bool] = True
    scheme: ClassVar[str] = "dynamodb"
    form: ClassVar[str] = "dynamodb://NAME"
    capabilities: ClassVar[TableCapabilities] = TableCapabilities(
        conditional_writes=True, transaction_size=100
    )

    @classmethod
    def parse(cls, text: str, service: AwsConfig) -> Self:
        name = text.removeprefix("dynamodb://")
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"{text!r} names no DynamoDB table: a name has 3 to 255 letters, digits, '.', '_' "
                "and '-'; a table of another backend is named with its scheme",
                path=text,
            )
        return cls(name, service)

    @property
    def service(self) -> AwsConfig:
        return self.aws

    def with_service(self, service: AwsConfig) -> Self:
        return replace(self, aws=service)

    def iam_resource(self, partition: str, account: str) -> str | None:
        return f"arn:{partition}:dynamodb:{self.aws.region or '*'}:{account}:table/{self.name}"

    def open(self, opening: OpenContext) -> TableStore:
        from s3k_async.backends.dynamodb.dynamodb_wire import WireItems

        return WireItems(
            self.name,
            self.aws,
            opening.session,
            runtime=opening.runtime,
            options=self.options,
        )

    def inspection(self, opening: OpenContext) -> Inspection:
        from s3k_async.backends.dynamodb.table_facts import DynamoInspection

        return DynamoInspection(self.name, self.aws, opening.session, opening.runtime)

    @property
    def label(self) -> str:
        return self.name

    def identity(self, *, embedded: bool) -> str:  # noqa: ARG002
        return f"dynamodb://{self.aws.region or ''}/{self.name}"

    @classmethod
    def same_table(cls, one: str, other: str) -> bool:
        here, there = (each.removeprefix("dynamodb://").partition("/") for each in (one, other))
        # A missing region matches any other.
        return here[2] == there[2] and (here[0] == there[0] or not (here[0] and there[0]))


def with_options(location: TableLocation, options: TableOptions) -> DynamoTable:
    """The location with the options of a table that is created there. Raises ConfigError unless it
    is one of DynamoDB."""
    if not isinstance(location, DynamoTable):
        raise ConfigError(
            "capacity, protection, tags and the like are those of a DynamoDB table",
            path=location.label,
        )
    return replace(location, options=options)
