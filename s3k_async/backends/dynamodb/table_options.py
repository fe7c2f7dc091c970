"""How a new DynamoDB table is created: capacity, encryption, recovery, protection, tags, stream.

Source: the Amazon DynamoDB API Reference, CreateTable and UpdateContinuousBackups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from s3k_async.errors import ConfigError

__all__ = ["ON_DEMAND", "StreamView", "TableOptions", "throughput"]

StreamView: TypeAlias = Literal["KEYS_ONLY", "NEW_IMAGE", "OLD_IMAGE", "NEW_AND_OLD_IMAGES"]
"""What a DynamoDB stream contains of each changed item."""
ON_DEMAND: Final = "PAY_PER_REQUEST"
_PROVISIONED: Final = "PROVISIONED"
_AWS_KEY: Final = "aws"


def throughput(read_units: int | None, write_units: int | None) -> dict[str, Any]:
    """The parameters of CreateTable and UpdateTable for provisioned capacity, or without units for
    on-demand capacity. Raises ConfigError for one of the two, and for units below 1."""
    if read_units is None and write_units is None:
        return {"BillingMode": ON_DEMAND}
    if read_units is None or write_units is None:
        raise ConfigError("provisioned capacity needs both read_units and write_units")
    if min(read_units, write_units) < 1:
        raise ConfigError("provisioned capacity has at least one read unit and one write unit")
    units = {"ReadCapacityUnits": read_units, "WriteCapacityUnits": write_units}
    return {"BillingMode": _PROVISIONED, "ProvisionedThroughput": units}


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Options of a table that `init_volume` creates; an existing table keeps its own. Raises
    ConfigError for invalid ones."""

    read_units: int | None = None
    write_units: int | None = None
    """Provisioned capacity, units per second; both None: on demand."""
    kms_key: str | None = None
    """Encryption at rest: the id, ARN or alias of a KMS key, or `aws` for the account's key for
    DynamoDB; None: a key of AWS."""
    point_in_time_recovery: bool = False
    """Whether the table can be restored to any second of the last 35 days."""
    deletion_protection: bool = False
    """Whether DynamoDB refuses to delete the table, also to `s3k destroy`."""
    tags: tuple[tuple[str, str], ...] = ()
    stream: StreamView | None = None

    def __post_init__(self) -> None:
        throughput(self.read_units, self.write_units)
        if self.stream not in (None, *get_args(StreamView)):
            raise ConfigError(f"a stream has one of {', '.join(get_args(StreamView))}")
        for name, value in self.tags:
            if not 1 <= len(name) <= 128 or len(value) > 256 or name.startswith("aws:"):
                raise ConfigError(
                    f"{name!r} is not a tag: a name has 1 to 128 characters, does not begin with "
                    "aws:, and a value has at most 256"
                )

    def parameters(self) -> dict[str, Any]:
        """The parameters of CreateTable."""
        given = throughput(self.read_units, self.write_units)
        if self.kms_key is not None:
            key = {} if self.kms_key == _AWS_KEY else {"KMSMasterKeyId": self.kms_key}
            given["SSESpecification"] = {"Enabled": True, "SSEType": "KMS", **key}
        if self.deletion_protection:
            given["DeletionProtectionEnabled"] = True
        if self.tags:
            given["Tags"] = [{"Key": name, "Value": value} for name, value in self.tags]
        if self.stream is not None:
            given["StreamSpecification"] = {"StreamEnabled": True, "StreamViewType": self.stream}
        return given
