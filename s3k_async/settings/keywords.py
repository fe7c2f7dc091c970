"""The settings that clients and other public functions take as keywords.

Generated from the table of options by `python -m tests.settings_keywords`; not to be edited.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal, TypedDict

from s3k_async.config import AlertPolicy, LogMode, Secret, StorageClass
from s3k_async.model import HashName, LayoutName, VolumeKind

__all__ = ["Settings"]


class Settings(TypedDict, total=False):
    """Options by name. None is the same as leaving an option out. A size is a number of bytes, or
    text such as `8MiB`.
    """

    name: str | None
    """Name of the volume: the authority of its URLs."""

    kind: VolumeKind | None
    """Format of the volume: native, or that of S3-FileSystem 1.0."""

    directory: str | os.PathLike[str] | None
    """Directory of an embedded volume: metadata.sqlite, data/ and oplog/."""

    table: str | None
    """DynamoDB table, or sqlite:PATH, or memory://NAME."""

    table_prefix: str | None
    """Prefix of the volume in a table that it shares with other volumes."""

    bucket: str | None
    """S3 bucket of the data."""

    prefix: str | None
    """Prefix of the data in its bucket."""

    data_location: str | os.PathLike[str] | None
    """Location of the data: s3://BUCKET/PREFIX, a directory, or memory://NAME."""

    log_bucket: str | None
    """S3 bucket of the operation log; by default that of the data."""

    log_prefix: str | None
    """Prefix of the operation log in its bucket."""

    log_location: str | os.PathLike[str] | None
    """Location of the operation log, written as that of the data."""

    suffix_count: int | None
    """Number of partitions of each directory. Fixed at init; s3k reshard changes it."""

    hash: HashName | None
    """Hash that distributes names to partitions. Fixed at init; s3k reshard changes it."""

    layout: LayoutName | None
    """Layout of the tree in the table, by default tree in an embedded volume and path in any other.
    Fixed at init; s3k migrate changes it.
    """

    log_mode: LogMode | None
    """Mode of the operation log. Fixed at init."""

    region: str | None
    """AWS region."""

    endpoint: str | None
    """URL of an AWS-compatible service."""

    profile: str | None
    """Profile in the AWS configuration."""

    access_key_id: str | Secret | None
    """Static credentials: access key id."""

    secret_access_key: str | Secret | None
    """Static credentials: secret access key."""

    session_token: str | Secret | None
    """Static credentials: session token."""

    role_arn: str | None
    """Role that is assumed, by AWS STS."""

    external_id: str | None
    """External id that the role requires."""

    role_session_name: str | None
    """Name of the session of the role."""

    role_duration: int | None
    """Seconds for which the credentials of the role are valid, 1800 to 43200."""

    web_identity_token_file: str | os.PathLike[str] | None
    """File of the OpenID Connect token with which the role is assumed."""

    sts_endpoint: str | None
    """URL of a service compatible with AWS STS."""

    max_connections: int | None
    """Connections kept to the service."""

    connect_timeout: float | None
    """Timeout of a connection attempt, in seconds."""

    read_timeout: float | None
    """Timeout of a response, in seconds."""

    ca_bundle: str | os.PathLike[str] | None
    """File of trusted CA certificates."""

    verify_tls: bool | None
    """Whether to verify the TLS certificate of the service."""

    proxy: str | None
    """URL of an HTTP proxy."""

    encryption: Literal["AES256", "aws:kms", "aws:kms:dsse"] | None
    """Server-side encryption of stored objects."""

    customer_key: str | Secret | None
    """Base64 of the key with which S3 encrypts stored objects (SSE-C)."""

    kms_key: str | None
    """Id or ARN of the KMS key that encrypts stored objects."""

    bucket_key: bool | None
    """Whether encryption with KMS uses a bucket key, which saves requests to KMS."""

    storage_class: StorageClass | None
    """Storage class of new objects of the data."""

    requester_pays: bool | None
    """Whether the caller pays for requests, in a bucket of another account."""

    table_region: str | None
    """For the table only: AWS region."""

    table_endpoint: str | None
    """For the table only: URL of an AWS-compatible service."""

    table_profile: str | None
    """For the table only: profile in the AWS configuration."""

    table_access_key_id: str | Secret | None
    """For the table only: static credentials: access key id."""

    table_secret_access_key: str | Secret | None
    """For the table only: static credentials: secret access key."""

    table_session_token: str | Secret | None
    """For the table only: static credentials: session token."""

    table_role_arn: str | None
    """For the table only: role that is assumed, by AWS STS."""

    table_external_id: str | None
    """For the table only: external id that the role requires."""

    table_role_session_name: str | None
    """For the table only: name of the session of the role."""

    table_role_duration: int | None
    """For the table only: seconds for which the credentials of the role are valid, 1800 to 43200.
    """

    table_web_identity_token_file: str | os.PathLike[str] | None
    """For the table only: file of the OpenID Connect token with which the role is assumed."""

    table_sts_endpoint: str | None
    """For the table only: URL of a service compatible with AWS STS."""

    table_max_connections: int | None
    """For the table only: connections kept to the service."""

    table_connect_timeout: float | None
    """For the table only: timeout of a connection attempt, in seconds."""

    table_read_timeout: float | None
    """For the table only: timeout of a response, in seconds."""

    table_ca_bundle: str | os.PathLike[str] | None
    """For the table only: file of trusted CA certificates."""

    table_verify_tls: bool | None
    """For the table only: whether to verify the TLS certificate of the service."""

    table_proxy: str | None
    """For the table only: URL of an HTTP proxy."""

    data_region: str | None
    """For the data only: AWS region."""

    data_endpoint: str | None
    """For the data only: URL of an AWS-compatible service."""

    data_profile: str | None
    """For the data only: profile in the AWS configuration."""

    data_access_key_id: str | Secret | None
    """For the data only: static credentials: access key id."""

    data_secret_access_key: str | Secret | None
    """For the data only: static credentials: secret access key."""

    data_session_token: str | Secret | None
    """For the data only: static credentials: session token."""

    data_role_arn: str | None
    """For the data only: role that is assumed, by AWS STS."""

    data_external_id: str | None
    """For the data only: external id that the role requires."""

    data_role_session_name: str | None
    """For the data only: name of the session of the role."""

    data_role_duration: int | None
    """For the data only: seconds for which the credentials of the role are valid, 1800 to 43200."""

    data_web_identity_token_file: str | os.PathLike[str] | None
    """For the data only: file of the OpenID Connect token with which the role is assumed."""

    data_sts_endpoint: str | None
    """For the data only: URL of a service compatible with AWS STS."""

    data_max_connections: int | None
    """For the data only: connections kept to the service."""

    data_connect_timeout: float | None
    """For the data only: timeout of a connection attempt, in seconds."""

    data_read_timeout: float | None
    """For the data only: timeout of a response, in seconds."""

    data_ca_bundle: str | os.PathLike[str] | None
    """For the data only: file of trusted CA certificates."""

    data_verify_tls: bool | None
    """For the data only: whether to verify the TLS certificate of the service."""

    data_proxy: str | None
    """For the data only: URL of an HTTP proxy."""

    data_encryption: Literal["AES256", "aws:kms", "aws:kms:dsse"] | None
    """For the data only: server-side encryption of stored objects."""

    data_customer_key: str | Secret | None
    """For the data only: base64 of the key with which S3 encrypts stored objects (SSE-C)."""

    data_kms_key: str | None
    """For the data only: id or ARN of the KMS key that encrypts stored objects."""

    data_bucket_key: bool | None
    """For the data only: whether encryption with KMS uses a bucket key, which saves requests to
    KMS.
    """

    data_storage_class: StorageClass | None
    """For the data only: storage class of new objects of the data."""

    data_requester_pays: bool | None
    """For the data only: whether the caller pays for requests, in a bucket of another account."""

    log_region: str | None
    """For the log only: AWS region."""

    log_endpoint: str | None
    """For the log only: URL of an AWS-compatible service."""

    log_profile: str | None
    """For the log only: profile in the AWS configuration."""

    log_access_key_id: str | Secret | None
    """For the log only: static credentials: access key id."""

    log_secret_access_key: str | Secret | None
    """For the log only: static credentials: secret access key."""

    log_session_token: str | Secret | None
    """For the log only: static credentials: session token."""

    log_role_arn: str | None
    """For the log only: role that is assumed, by AWS STS."""

    log_external_id: str | None
    """For the log only: external id that the role requires."""

    log_role_session_name: str | None
    """For the log only: name of the session of the role."""

    log_role_duration: int | None
    """For the log only: seconds for which the credentials of the role are valid, 1800 to 43200."""

    log_web_identity_token_file: str | os.PathLike[str] | None
    """For the log only: file of the OpenID Connect token with which the role is assumed."""

    log_sts_endpoint: str | None
    """For the log only: URL of a service compatible with AWS STS."""

    log_max_connections: int | None
    """For the log only: connections kept to the service."""

    log_connect_timeout: float | None
    """For the log only: timeout of a connection attempt, in seconds."""

    log_read_timeout: float | None
    """For the log only: timeout of a response, in seconds."""

    log_ca_bundle: str | os.PathLike[str] | None
    """For the log only: file of trusted CA certificates."""

    log_verify_tls: bool | None
    """For the log only: whether to verify the TLS certificate of the service."""

    log_proxy: str | None
    """For the log only: URL of an HTTP proxy."""

    log_encryption: Literal["AES256", "aws:kms", "aws:kms:dsse"] | None
    """For the log only: server-side encryption of stored objects."""

    log_customer_key: str | Secret | None
    """For the log only: base64 of the key with which S3 encrypts stored objects (SSE-C)."""

    log_kms_key: str | None
    """For the log only: id or ARN of the KMS key that encrypts stored objects."""

    log_bucket_key: bool | None
    """For the log only: whether encryption with KMS uses a bucket key, which saves requests to KMS.
    """

    log_storage_class: StorageClass | None
    """For the log only: storage class of new objects of the data."""

    log_requester_pays: bool | None
    """For the log only: whether the caller pays for requests, in a bucket of another account."""

    alerts_region: str | None
    """For the alerts only: AWS region."""

    alerts_endpoint: str | None
    """For the alerts only: URL of an AWS-compatible service."""

    alerts_profile: str | None
    """For the alerts only: profile in the AWS configuration."""

    alerts_access_key_id: str | Secret | None
    """For the alerts only: static credentials: access key id."""

    alerts_secret_access_key: str | Secret | None
    """For the alerts only: static credentials: secret access key."""

    alerts_session_token: str | Secret | None
    """For the alerts only: static credentials: session token."""

    alerts_role_arn: str | None
    """For the alerts only: role that is assumed, by AWS STS."""

    alerts_external_id: str | None
    """For the alerts only: external id that the role requires."""

    alerts_role_session_name: str | None
    """For the alerts only: name of the session of the role."""

    alerts_role_duration: int | None
    """For the alerts only: seconds for which the credentials of the role are valid, 1800 to 43200.
    """

    alerts_web_identity_token_file: str | os.PathLike[str] | None
    """For the alerts only: file of the OpenID Connect token with which the role is assumed."""

    alerts_sts_endpoint: str | None
    """For the alerts only: URL of a service compatible with AWS STS."""

    alerts_max_connections: int | None
    """For the alerts only: connections kept to the service."""

    alerts_connect_timeout: float | None
    """For the alerts only: timeout of a connection attempt, in seconds."""

    alerts_read_timeout: float | None
    """For the alerts only: timeout of a response, in seconds."""

    alerts_ca_bundle: str | os.PathLike[str] | None
    """For the alerts only: file of trusted CA certificates."""

    alerts_verify_tls: bool | None
    """For the alerts only: whether to verify the TLS certificate of the service."""

    alerts_proxy: str | None
    """For the alerts only: URL of an HTTP proxy."""

    max_concurrency: int | None
    """Maximum number of requests in flight, for each of table, data and log."""

    retry_attempts: int | None
    """Maximum attempts per request, including the first."""

    retry_base: float | None
    """Upper bound of the first delay between attempts, in seconds."""

    retry_cap: float | None
    """Upper bound of any delay between attempts, in seconds."""

    retry_deadline: float | None
    """Time after its first failure in which a request is retried, in seconds."""

    read_retry_attempts: int | None
    """For reads only: maximum attempts per request, including the first."""

    read_retry_base: float | None
    """For reads only: upper bound of the first delay between attempts, in seconds."""

    read_retry_cap: float | None
    """For reads only: upper bound of any delay between attempts, in seconds."""

    read_retry_deadline: float | None
    """For reads only: time after its first failure in which a request is retried, in seconds."""

    write_retry_attempts: int | None
    """For writes only: maximum attempts per request, including the first."""

    write_retry_base: float | None
    """For writes only: upper bound of the first delay between attempts, in seconds."""

    write_retry_cap: float | None
    """For writes only: upper bound of any delay between attempts, in seconds."""

    write_retry_deadline: float | None
    """For writes only: time after its first failure in which a request is retried, in seconds."""

    scan_retry_attempts: int | None
    """For pages of listings and scans only: maximum attempts per request, including the first."""

    scan_retry_base: float | None
    """For pages of listings and scans only: upper bound of the first delay between attempts, in
    seconds.
    """

    scan_retry_cap: float | None
    """For pages of listings and scans only: upper bound of any delay between attempts, in seconds.
    """

    scan_retry_deadline: float | None
    """For pages of listings and scans only: time after its first failure in which a request is
    retried, in seconds.
    """

    retry_share: float | None
    """Retry budget: retries per request, as a long-run average."""

    retry_burst: float | None
    """Retry budget: retries beyond that in a burst."""

    retry_rate: float | None
    """Retry budget: retries per second that are always allowed."""

    multipart_threshold: int | str | None
    """Size above which content is uploaded in parts."""

    part_size: int | str | None
    """Size of a part of a multipart upload."""

    read_ahead: int | str | None
    """Block size of sequential reads; two blocks are read ahead."""

    lease: float | None
    """Longest time from opening a file for writing to publishing it, in seconds."""

    busy_timeout: float | None
    """Seconds to wait for a concurrent change before BusyError."""

    close_timeout: float | None
    """Seconds that closing the client waits for running calls."""

    directory_trust: float | None
    """Layout tree: seconds for which reads trust directories above the parent, 0 to 60."""

    cache: str | os.PathLike[str] | None
    """Directory of a cache of data that was read."""

    cache_size: int | str | None
    """Most bytes in the cache."""

    cache_high: float | None
    """Percentage of cache_size above which the cache evicts."""

    cache_low: float | None
    """Percentage of cache_size to which the cache evicts."""

    cache_age: float | None
    """Seconds without use after which the cache evicts a block."""

    cache_block: int | str | None
    """Size of a block of the cache, the least that it fetches, up to 64 MiB."""

    cache_writes: bool | None
    """Whether small content that is written is added to the cache."""

    uid: int | None
    """User for whom the client acts where permissions are evaluated; 0 is the superuser."""

    gids: Sequence[int] | str | None
    """Groups of that user, that of new entries first, separated by commas."""

    change_detection: Literal["server", "client", "warn", "none"] | None
    """How to detect that another program has replaced stored data: server, client, warn or none."""

    hot_writes: Literal["back", "through"] | None
    """Where content is written in a volume with a hot location: back, to it alone until s3k tier
    run moves it; through, to the cold one, and small content to the hot one as well.
    """

    hot_reads: Literal["leave", "fill"] | None
    """What a read of cold content does in a volume with a hot location: leave, nothing; fill, a
    copy to the hot location, in the background: of small content at once, of larger content when
    as much was read as it has.
    """

    log_verbs: Literal["off", "debug", "info"] | None
    """Whether each call of a verb is logged by the logger s3k_async.operations: off, or at the
    level debug or info.
    """

    storage_rules: str | None
    """Storage class and tags of new files in S3 below a path: PATH:CLASS,TAG=VALUE; several
    separated by spaces.
    """

    delegate_credentials: bool | None
    """Whether Spark tasks use temporary AWS credentials of the driver."""

    alerts: str | None
    """Where fsck and gc send alerts: log:, https://HOST/PATH, sqs:QUEUE-URL, sns:TOPIC-ARN,
    cloudwatch:NAMESPACE; several separated by spaces.
    """

    alerts_on_error: AlertPolicy | None
    """What follows if alerts cannot be sent: error, warn or ignore."""

    alerts_on_timeout: AlertPolicy | None
    """What follows if alerts cannot be sent in time: error, warn or ignore."""

    alerts_deadline: float | None
    """Seconds in which alerts have to be sent to each address."""

    alerts_job: str | None
    """Job id in alerts."""

    alerts_email: str | None
    """Address of a person or team in alerts."""
