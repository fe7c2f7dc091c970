"""The table of Hadoop keys: every key of S3-FileSystem 1.0, and those of S3A with a meaning for its
data.

Each takes effect as an option, is refused if its value requests something that this package does
not support, or is named in a warning. Keys of `fs.s3a.` that are not in the table are named as
well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

__all__ = ["ASSUMED_ROLE", "HADOOP_KEYS", "JVM_KEYS", "S3A_KEYS", "HadoopKey", "KeyOutcome"]

KeyOutcome: TypeAlias = Literal["effect", "refused", "warned", "jvm"]
"""`effect`: sets options. `refused`: other values than those accepted raise ConfigError. `warned`:
other values than those accepted are named in a warning. `jvm`: chooses classes for the JVM, which
say nothing about a volume."""
KeyScope: TypeAlias = Literal["global", "bucket", "context", "job", "s3a"]
"""Form of the full key: as it is; with `.<bucket>`; with `.<bucket>` or `.<bucket>.<context>`; as
it is, of a MapReduce job; as S3A's properties (`hadoop_mapping`)."""

_DYNAMO: Final = "fs.s3k.metastore.dynamo"
_OPLOG: Final = "fs.s3k.operationlog.s3"
_BOUNDED: Final = (
    "within `retry_deadline` (60 s, for scans 300 s), after which there are no retries"
)


ASSUMED_ROLE: Final = "AssumedRoleCredentialProvider"
"""S3A's class that gives the credentials of a role."""
_PROVIDERS: Final = (
    "SimpleAWSCredentialsProvider",
    "TemporaryAWSCredentialsProvider",
    "EnvironmentVariableCredentialsProvider",
    "IAMInstanceCredentialsProvider",
    "InstanceProfileCredentialsProvider",
    "EC2ContainerCredentialsProviderWrapper",
    "ContainerCredentialsProvider",
    "ProfileCredentialsProvider",
    "ProfileAWSCredentialsProvider",
    "WebIdentityTokenCredentialsProvider",
    "WebIdentityTokenFileCredentialsProvider",
    "DefaultAWSCredentialsProviderChain",
    "DefaultCredentialsProvider",
)
"""Classes whose credentials are those of the settings or of the default chain."""


@dataclass(frozen=True, slots=True)
class HadoopKey:
    """One key, without bucket and context."""

    name: str
    scope: KeyScope
    outcome: KeyOutcome
    note: str
    """The option that it sets, or why it does not."""
    accepted: tuple[str, ...] = ()
    """Values, or simple names of classes, that request what is done anyway."""

    @property
    def full_name(self) -> str:
        """The key as it is written, with `<bucket>` and `<context>`."""
        end = {"bucket": ".<bucket>", "context": ".<bucket>.<context>", "s3a": ""}
        start = "fs.s3a." if self.scope == "s3a" else ""
        return start + self.name + end.get(self.scope, "")

    def accepts(self, value: str) -> bool:
        """Whether a value requests what is done anyway."""
        return value.rpartition(".")[2].lower() in {each.lower() for each in self.accepted}


def _keys(
    scope: KeyScope, outcome: KeyOutcome, *rows: tuple[str, str] | tuple[str, str, tuple[str, ...]]
) -> tuple[HadoopKey, ...]:
    return tuple(HadoopKey(row[0], scope, outcome, row[1], *row[2:]) for row in rows)


HADOOP_KEYS: Final[tuple[HadoopKey, ...]] = (
    *_keys(
        "global",
        "effect",
        (f"{_DYNAMO}.hash.function.class", "`hash`; another class is refused"),
        ("fs.s3k.metastore.context.id", "the context, unless `S3K_CONTEXT` or `context=` is given"),
    ),
    *_keys(
        "bucket",
        "effect",
        (f"{_DYNAMO}.table", "`table`"),
        (f"{_DYNAMO}.suffix.count", "`suffix_count`"),
        (f"{_DYNAMO}.access", "`table_access_key_id`, with the secret key"),
        (f"{_DYNAMO}.secret", "`table_secret_access_key`, with the access key"),
        (f"{_DYNAMO}.endpoint", "`table_endpoint`, with the region"),
        (f"{_DYNAMO}.signing.region", "`table_region`, with the endpoint"),
        (f"{_OPLOG}.bucket", "`log_bucket`"),
        (f"{_OPLOG}.access", "`log_access_key_id`, with the secret key"),
        (f"{_OPLOG}.secret", "`log_secret_access_key`, with the access key"),
        (f"{_OPLOG}.endpoint", "`log_endpoint`, with the region"),
        (f"{_OPLOG}.signing.region", "`log_region`, with the endpoint"),
        (
            "fs.s3k.storage.underlying.filesystem.scheme",
            "`bucket`: that of the volume's name; only `s3`, `s3a`, `s3n` are accepted",
        ),
        (
            "fs.s3k.storage.underlying.fs.prop.marker.<key>",
            "as the S3A key, with precedence over it",
        ),
        ("fs.s3k.volume.kind", "`kind`; of this project"),
        ("fs.s3k.client.uid", "`uid`; of this project"),
        ("fs.s3k.client.gids", "`gids`; of this project"),
    ),
    *_keys(
        "context",
        "effect",
        (f"{_DYNAMO}.base.exponential.delay", "`retry_base`"),
        (f"{_DYNAMO}.max.exponential.delay", f"`retry_cap`, {_BOUNDED}"),
        (f"{_DYNAMO}.max.retries", f"`retry_attempts`, plus one, {_BOUNDED}"),
        (f"{_DYNAMO}.max.http.conn", "`table_max_connections`"),
        (f"{_OPLOG}.max.http.conn", "`log_max_connections`"),
        ("fs.s3k.metastore.operations.async", "false: `max_concurrency` = 1"),
        ("fs.s3k.thread.pool.size", "`max_concurrency`"),
    ),
    *_keys(
        "global",
        "refused",
        (
            "fs.s3k.metastore.factory.class",
            "the table is in DynamoDB",
            ("DynamoDBMetadataStoreFactory",),
        ),
        (
            "fs.s3k.metastore.operation.log.factory.class",
            "the log is that of S3-FileSystem 1.0, or disabled: `log_mode`",
            ("S3MetadataOperationLogFactory", "DisabledMetadataOperationLogFactory"),
        ),
        (
            "fs.s3k.storage.factory.class",
            "the data is that of S3-FileSystem 1.0",
            ("FileSystemPhysicalStorageFactory",),
        ),
        (
            "fs.s3k.configuration.context.class",
            "no class of the JVM gives the context: set `fs.s3k.metastore.context.id`",
            ("DefaultContextProvider",),
        ),
    ),
    *_keys(
        "global",
        "warned",
        (
            "fs.s3k.keyvalue.config.factory",
            "the keys are those of the given mapping: `--hadoop` takes several files",
            ("HadoopKeyValueConfigurationFactory",),
        ),
        (
            "fs.s3k.external.hadoop.config.factory.config.location",
            "no file is read: `--hadoop` takes several files",
        ),
        (
            "fs.s3k.metastore.operation.log.extended.factory.class",
            "of its fsck",
            ("S3MetadataOperationLogFactory",),
        ),
        (
            "fs.s3k.storage.path.translator.factory",
            "new keys are random",
            ("ToRandomPathTranslatorFactory",),
        ),
    ),
    *_keys(
        "context",
        "warned",
        (f"{_DYNAMO}.backoff.full.jitter", "delays have full jitter", ("true",)),
        (f"{_OPLOG}.backoff.full.jitter", "delays have full jitter", ("true",)),
        (f"{_OPLOG}.base.exponential.delay", "the log is retried like the table: `retry_base`"),
        (f"{_OPLOG}.max.exponential.delay", "the log is retried like the table: `retry_cap`"),
        (f"{_OPLOG}.max.retries", "the log is retried like the table: `retry_attempts`"),
        ("fs.s3k.thread.pool.max.tasks", "no thread pool: `max_concurrency` bounds the requests"),
    ),
    *_keys(
        "bucket",
        "warned",
        ("fs.s3k.metastore.update.object.retries", "S3-FileSystem 1.0 does not use it either"),
        (
            "fs.s3k.metastore.update.object.delay.between.retries",
            "S3-FileSystem 1.0 does not use it either",
        ),
        ("fs.s3k.storage.eventual.consistency.max.retries", "S3 is strongly consistent"),
        ("fs.s3k.storage.eventual.consistency.delay.retries.millis", "S3 is strongly consistent"),
    ),
    *_keys(
        "job",
        "warned",
        ("fs.s3k.fsck.root.path", "`s3k fsck` takes a path"),
        ("fs.s3k.fsck.s3.base.delay", "of its MapReduce job: `retry_base`"),
        ("fs.s3k.fsck.s3.max.delay", "of its MapReduce job: `retry_cap`"),
        ("fs.s3k.fsck.s3.retries", "of its MapReduce job: `retry_attempts`"),
        ("fs.s3k.fsck.s3.download.batch.size", "of its MapReduce job: `max_concurrency`"),
        ("fs.s3k.fsck.s3.max.connections", "of its MapReduce job: `data_max_connections`"),
        ("fs.s3k.fsck.parent.shuffle.cache.size", "of its MapReduce job"),
        ("fs.s3k.cmd.loader.s3.bucket", "of its MapReduce job"),
        ("fs.s3k.metastorescan.root.path", "of its MapReduce job"),
        ("fs.s3k.metastorescan.partition.count", "of its MapReduce job"),
        ("fs.s3k.raws3.scaninputformat.bucket", "of its MapReduce job"),
        ("fs.s3k.raws3.scaninputformat.partition.count", "of its MapReduce job"),
        ("dryRun", "commands that delete have `--dry-run`, or need `--yes`"),
        ("fs.s3k.purge.bucket.s3.base.delay", "of its MapReduce job: `retry_base`"),
        ("fs.s3k.purge.bucket.s3.max.delay", "of its MapReduce job: `retry_cap`"),
        ("fs.s3k.purge.bucket.s3.max.retries", "of its MapReduce job: `retry_attempts`"),
        ("fs.s3k.purge.bucket.s3.max.connections", "of its MapReduce job"),
    ),
    *_keys(
        "global",
        "jvm",
        ("fs.<scheme>.impl", "the class of the scheme"),
        ("fs.AbstractFileSystem.<scheme>.impl", "the class of the scheme"),
    ),
)
"""The keys of S3-FileSystem 1.0, and those of this project."""

S3A_KEYS: Final[tuple[HadoopKey, ...]] = (
    *_keys(
        "s3a",
        "effect",
        ("endpoint", "`data_endpoint`"),
        ("endpoint.region", "`data_region`"),
        ("access.key", "`data_access_key_id`, with the secret key"),
        ("secret.key", "`data_secret_access_key`, with the access key"),
        ("session.token", "`data_session_token`, of the same scope as the keys"),
        ("connection.maximum", "`data_max_connections`"),
        ("connection.establish.timeout", "`data_connect_timeout`; in ms, or with a unit"),
        ("connection.timeout", "`data_read_timeout`; in ms, or with a unit"),
        ("connection.ssl.enabled", "the scheme of an `endpoint` without one"),
        ("proxy.host", "`data_proxy`"),
        ("proxy.port", "`data_proxy`, with the host"),
        ("proxy.username", "`data_proxy`, with the host"),
        ("proxy.password", "`data_proxy`, with the host and the user"),
        ("proxy.ssl.enabled", "`data_proxy`, with the host: its scheme"),
        ("multipart.size", "`part_size`; K, M, G are powers of 1,024"),
        ("multipart.threshold", "`multipart_threshold`; K, M, G are powers of 1,024"),
        ("change.detection.mode", "`change_detection`"),
        ("create.storage.class", "`data_storage_class`; classes that cannot be read are refused"),
        ("requester.pays.enabled", "`data_requester_pays`"),
        (
            "delegation.token.binding",
            "`delegate_credentials`, for `SessionTokenBinding`; another class is refused",
        ),
        ("assumed.role.arn", "`data_role_arn`, with `AssumedRoleCredentialProvider`"),
        ("assumed.role.external.id", "`data_external_id`, with the role"),
        ("assumed.role.session.name", "`data_role_session_name`, with the role"),
        ("assumed.role.session.duration", "`data_role_duration`, with the role; with a unit"),
        ("assumed.role.sts.endpoint", "`data_sts_endpoint`, with the role"),
        ("encryption.algorithm", "`data_encryption`; writes are refused with CSE"),
        ("encryption.key", "`data_kms_key`, with SSE-C `data_customer_key`"),
        ("encryption.context", "writes are refused"),
        ("server-side-encryption-algorithm", "as `encryption.algorithm`"),
        ("server-side-encryption.key", "as `encryption.key`"),
        ("server-side-encryption-key", "as `encryption.key`"),
    ),
    *_keys(
        "s3a",
        "refused",
        (
            "aws.credentials.provider",
            "credentials are those of the settings, of a role or of the AWS default chain",
            (*_PROVIDERS, ASSUMED_ROLE),
        ),
        (
            "assumed.role.credentials.provider",
            "a role is assumed by the credentials of the settings or of the AWS default chain",
            _PROVIDERS,
        ),
        ("assumed.role.policy", "the credentials of a role have all of its permissions"),
        ("accesspoint.arn", "the data is in the bucket of the volume's name: use its name"),
    ),
    *_keys(
        "s3a",
        "warned",
        ("path.style.access", "path style with an `endpoint`, virtual hosts at AWS"),
        ("change.detection.source", "the entity tag is compared", ("etag",)),
        ("change.detection.version.required", "an object without a tag is accepted", ("false",)),
        ("attempts.maximum", "`retry_attempts`"),
        ("retry.limit", "`retry_attempts`"),
        ("retry.interval", "`retry_base`"),
        ("retry.throttle.limit", "`retry_attempts`"),
        ("retry.throttle.interval", "`retry_base`"),
        ("threads.max", "`max_concurrency`"),
        ("max.total.tasks", "`max_concurrency`"),
        ("block.size", "the reported size is 128 MiB"),
        ("readahead.range", "`read_ahead`"),
        ("experimental.input.fadvise", "readers detect sequential reading"),
        ("paging.maximum", "pages have 1,000 objects"),
        ("multiobjectdelete.enable", "objects are deleted in batches", ("true",)),
        ("acl.default", "objects have the bucket's default"),
        ("security.credential.provider.path", "no credential file of Hadoop is read"),
        ("user.agent.prefix", "no prefix is sent"),
        ("buffer.dir", "parts are in memory"),
        ("fast.upload.buffer", "parts are in memory", ("bytebuffer", "array")),
        ("list.version", "version 2", ("2",)),
        ("signing-algorithm", "signature version 4"),
        ("assumed.role.sts.endpoint.region", "the region of the data"),
    ),
)
"""Properties of S3A."""

JVM_KEYS: Final = frozenset({"fs.s3a.impl", "fs.s3a.downgrade.syncable.exceptions"})
"""Keys for the JVM alone, set by Spark in every session or by a cluster in every file."""
