"""IAM policies with the permissions that a role needs for a volume, and no others.

Actions and resources are those of "Actions, resources, and condition keys" for Amazon DynamoDB and
Amazon S3 in the AWS Service Authorization Reference. A transaction of DynamoDB needs the actions of
its parts. Everybody may list the data of a volume: without that permission S3 does not tell a
missing object from a forbidden one. GetObjectVersion is for adopted objects of a versioned bucket,
which are read at their recorded version, by all roles but `gc`. Adoption needs no further action,
since HeadObject returns the version id. DynamoDB uses the KMS key of a table with the permissions
of its caller ("DynamoDB encryption at rest usage notes" in the Amazon DynamoDB Developer Guide).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias, get_args

from s3k_async.backends.retrying.prefixed_items import CATALOG
from s3k_async.config import AwsConfig, BlobLocation, S3Bucket, VolumeConfig
from s3k_async.errors import UnsupportedError
from s3k_async.storage.storage_rules import StorageRules
from s3k_async.txn.volume_record import RECORD_KEY
from s3k_async.volumes.connections import hot_location, log_location

__all__ = ["ROLES", "Needs", "Role", "adopted_buckets", "iam_policy", "needs_of"]

Role: TypeAlias = Literal["reader", "writer", "gc", "spark", "operator"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)

_VERSION: Final = "2012-10-17"


@dataclass(frozen=True, slots=True)
class Needs:
    """Actions of a role, without the prefix of the service."""

    table: frozenset[str]
    data: frozenset[str]
    log: frozenset[str]
    buckets: frozenset[str] = frozenset()
    """On whole buckets. ListBucket is allowed below the prefix of the volume alone, unless it is
    here, too: HeadBucket, which has no prefix, needs it."""

    def plus(
        self,
        *,
        table: Iterable[str] = (),
        data: Iterable[str] = (),
        log: Iterable[str] = (),
        buckets: Iterable[str] = (),
    ) -> Needs:
        """These and more."""
        return Needs(
            self.table.union(table),
            self.data.union(data),
            self.log.union(log),
            self.buckets.union(buckets),
        )


_READER: Final = Needs(
    table=frozenset({"DescribeTable", "ListTagsOfResource", "GetItem", "BatchGetItem", "Query"}),
    data=frozenset({"GetObject", "GetObjectVersion"}),
    log=frozenset(),
)
_WRITER: Final = _READER.plus(
    table=("PutItem", "UpdateItem", "DeleteItem", "ConditionCheckItem"),
    data=("PutObject", "DeleteObject", "AbortMultipartUpload"),
    log=("GetObject", "PutObject", "DeleteObject"),
)
_SPARK: Final = _WRITER.plus(
    table=("Scan", "BatchWriteItem"),
    buckets=("ListBucket", "ListBucketMultipartUploads"),
)
_COLLECTOR: Final = _WRITER.plus(
    table=("Scan",), buckets=("ListBucket", "ListBucketMultipartUploads")
)
_NEEDS: Final[dict[Role, Needs]] = {
    "reader": _READER,
    "writer": _WRITER,
    "gc": replace(_COLLECTOR, data=_COLLECTOR.data - {"GetObjectVersion"}),
    "spark": _SPARK,
    "operator": _SPARK.plus(
        table=(
            "CreateTable",
            "DeleteTable",
            "DescribeContinuousBackups",
            "DescribeTimeToLive",
            "TagResource",
            "UpdateContinuousBackups",
            "UpdateTable",
        ),
        buckets=(
            "CreateBucket",
            "GetBucketVersioning",
            "GetEncryptionConfiguration",
            "GetLifecycleConfiguration",
        ),
    ),
}


_READ_KEY: Final = ("Decrypt", "DescribeKey")
_WRITE_KEY: Final = (*_READ_KEY, "Encrypt", "GenerateDataKey*", "ReEncrypt*")
_ON_ITEMS: Final = frozenset(
    {
        "BatchGetItem",
        "BatchWriteItem",
        "ConditionCheckItem",
        "DeleteItem",
        "GetItem",
        "PutItem",
        "Query",
        "UpdateItem",
    }
)
"""Actions whose requests name partition keys."""


def needs_of(role: Role) -> Needs:
    """The actions that a role needs."""
    return _NEEDS[role]


def adopted_buckets(places: Iterable[str]) -> list[S3Bucket]:
    """Other buckets with adopted objects, given as `BUCKET` or `BUCKET/PREFIX`, each once. Raises
    ConfigError for one that is none."""
    return [S3Bucket.parse(each, AwsConfig()) for each in dict.fromkeys(places)]


def iam_policy(
    config: VolumeConfig,
    role: Role,
    *,
    hot: str = "",
    table_key: str = "",
    adopted: Sequence[str] = (),
    account: str = "*",
    partition: str = "aws",
) -> dict[str, Any]:
    """The policy document for a role in a volume, as for `json.dumps`.

    `reader`: everything that changes nothing. `writer`: all verbs of a client. `gc`: garbage
    collection. `spark`: the jobs, on the driver and on executors. `operator`: everything, with
    creation and destruction. `hot`: the hot location, which only the record of a volume has.
    `table_key`: the ARN of the KMS key that encrypts the table. `adopted`: other buckets with
    adopted objects, as `BUCKET` or `BUCKET/PREFIX`; `gc` does not read them. `account`: the id of
    the table's account; `partition`: `aws`, `aws-cn` or `aws-us-gov`. In a shared table, a role may
    use only the items of the volume; but `gc`, `spark` and `operator` may scan the table, which
    reads the items of all volumes.

    Locations of other services have no part in it. Raises UnsupportedError if none is of AWS,
    ConfigError for a hot location or a bucket that is none.
    """
    needs = _NEEDS[role]
    has_tags = role != "gc" and StorageRules.parse(config.tuning.storage_rules).have_tags
    statements: list[dict[str, Any]] = []
    if table := config.table.iam_resource(partition, account):
        statements += _on_table(table, needs.table, config.table_prefix)
        statements += _on_table_key(table_key, needs.table)
    places = {"Data": config.data, "Hot": hot_location(config, hot)}
    if config.log_mode != "disabled" and needs.log:
        places["Log"] = log_location(config)
    buckets: set[str] = set()
    for name, place in places.items():
        if place is not None and (objects := place.iam_objects):
            bucket = f"arn:{partition}:s3:::{objects[0]}"
            buckets.add(bucket)
            actions = needs.log if name == "Log" else needs.data
            if name == "Data" and has_tags and "PutObject" in actions:
                actions |= {"PutObjectTagging"}
            statements += _on_objects(name, actions, bucket, objects[1], needs)
            statements += _on_key(name, place, actions)
    if not statements:
        raise UnsupportedError(
            "the volume is not in DynamoDB and S3: IAM does not apply to its locations",
            path=config.table.label,
        )
    if role != "gc":
        statements += _on_adopted(adopted, partition)
    if needs.buckets and buckets:
        statements.append(_statement("Buckets", "s3", needs.buckets, sorted(buckets)))
    return {"Version": _VERSION, "Statement": statements}


def _on_table(table: str, actions: frozenset[str], prefix: str) -> list[dict[str, Any]]:
    """What a role may do with the table. In a shared one it may use only the items below the prefix
    of the volume, and may not delete the table; a role that creates volumes may also use the record
    of the table and its catalog. No condition key restricts the items of a scan."""
    if not prefix:
        return [_statement("Table", "dynamodb", actions, [table])]
    keys = [f"{prefix}/*"]
    if "CreateTable" in actions:
        keys += [RECORD_KEY.partition, CATALOG]
    items = _statement("Items", "dynamodb", actions & _ON_ITEMS, [table])
    items["Condition"] = {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": keys}}
    return [_statement("Table", "dynamodb", actions - _ON_ITEMS - {"DeleteTable"}, [table]), items]


def _on_table_key(key: str, actions: frozenset[str]) -> list[dict[str, Any]]:
    """What DynamoDB does with the KMS key of the table for the role. The creation of the table
    grants DynamoDB its own use of the key."""
    if not key:
        return []
    needs = _WRITE_KEY if "PutItem" in actions else _READ_KEY
    statements = [_statement("TableKey", "kms", needs, [key])]
    if "CreateTable" in actions:
        grant = _statement("TableKeyGrant", "kms", ["CreateGrant"], [key])
        grant["Condition"] = {"Bool": {"kms:GrantIsForAWSResource": "true"}}
        statements.append(grant)
    return statements


def _on_objects(
    name: str, actions: Iterable[str], bucket: str, prefix: str, needs: Needs
) -> list[dict[str, Any]]:
    """What a role may do with the objects of a location, and that it may list them."""
    statements = [_statement(name, "s3", actions, [f"{bucket}/{prefix}*"])]
    if "ListBucket" not in needs.buckets:
        listing = _statement(f"{name}Listing", "s3", ["ListBucket"], [bucket])
        if prefix:
            listing["Condition"] = {"StringLike": {"s3:prefix": [f"{prefix}*"]}}
        statements.append(listing)
    return statements


def _on_adopted(places: Sequence[str], partition: str) -> list[dict[str, Any]]:
    """That a role may read, and list, the objects of other buckets, of which files are adopted."""
    found = adopted_buckets(places)
    statements = []
    for number, place in enumerate(found, 1):
        bucket = f"arn:{partition}:s3:::{place.bucket}"
        name = "Adopted" if len(found) == 1 else f"Adopted{number}"
        statements += _on_objects(name, _READER.data, bucket, place.prefix, _READER)
    return statements


def _on_key(name: str, place: BlobLocation, actions: Iterable[str]) -> list[dict[str, Any]]:
    """What is done with the KMS key of a location, if it has one that a policy can name: a new data
    key is generated only for an object that is stored."""
    key = (place.service.kms_key or "") if place.service else ""
    if not key.startswith("arn:"):
        return []
    needs = ["Decrypt", "GenerateDataKey"] if "PutObject" in actions else ["Decrypt"]
    return [_statement(f"{name}Key", "kms", needs, [key])]


def _statement(
    name: str, service: str, actions: Iterable[str], resources: list[str]
) -> dict[str, Any]:
    return {
        "Sid": name,
        "Effect": "Allow",
        "Action": [f"{service}:{action}" for action in sorted(actions)],
        "Resource": resources,
    }
