"""The table of options. Keyword, environment variable, flag and configuration key share one
stem."""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias, get_args

from s3k_async.attributes import MAX_ID
from s3k_async.config import ENCRYPTIONS, AlertPolicy, LogMode, Secret, StorageClass
from s3k_async.errors import ConfigError
from s3k_async.model import HashName, LayoutName, VolumeKind

__all__ = [
    "CREDENTIALS",
    "DESCRIBING",
    "KINDS",
    "OPTIONS",
    "PARTS",
    "Option",
    "OptionType",
    "Scope",
    "Setting",
    "nearest",
    "parse",
]

OptionType: TypeAlias = Literal[
    "text", "path", "choice", "integer", "integers", "number", "size", "boolean", "secret"
]
Scope: TypeAlias = Literal["volume", "service", "client"]
Setting: TypeAlias = str | int | float | bool | tuple[int, ...] | Secret

PARTS: Final = ("table", "data", "log", "alerts")
"""The three parts of a volume, and alerts; an option of scope `service` exists once for all parts
and once for each of its parts."""
CREDENTIALS: Final = ("profile", "access_key_id", "secret_access_key", "session_token")
"""The credential options of a service, all from one source."""
DESCRIBING: Final = ("directory", "table")
"""Options that suffice to identify a volume."""
KINDS: Final = ("read", "write", "scan")
"""The three kinds of requests; every option of a retry policy exists once for all and once for
each."""


@dataclass(frozen=True, slots=True)
class Option:
    """One setting: keyword, environment variable, flag and configuration key."""

    name: str
    """The stem: keyword and key in the configuration file."""
    type: OptionType
    scope: Scope
    """Scope: `volume` (location, and the settings in the record), `service` (access to a service)
    or `client` (behaviour of this client)."""
    doc: str
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    part: str | None = None
    """For an option of one part: `table`, `data`, `log` or `alerts`; of one kind of requests:
    `read`, `write` or `scan`."""

    @property
    def env(self) -> str:
        """The environment variable."""
        return f"S3K_{self.name.upper()}"

    @property
    def flag(self) -> str | None:
        """The command-line flag; none for a secret, since other users of a machine can read command
        lines."""
        return None if self.type == "secret" else f"--{self.name.replace('_', '-')}"

    @property
    def stem(self) -> str:
        """The name without its part."""
        return self.name if self.part is None else self.name.removeprefix(f"{self.part}_")


_VOLUME: Final = (
    Option("name", "text", "volume", "Name of the volume: the authority of its URLs."),
    Option(
        "kind",
        "choice",
        "volume",
        "Format of the volume: native, or that of S3-FileSystem 1.0.",
        choices=get_args(VolumeKind),
    ),
    Option(
        "directory",
        "path",
        "volume",
        "Directory of an embedded volume: metadata.sqlite, data/ and oplog/.",
    ),
    Option("table", "text", "volume", "DynamoDB table, or sqlite:PATH, or memory://NAME."),
    Option(
        "table_prefix",
        "text",
        "volume",
        "Prefix of the volume in a table that it shares with other volumes.",
    ),
    Option("bucket", "text", "volume", "S3 bucket of the data."),
    Option("prefix", "text", "volume", "Prefix of the data in its bucket."),
    Option(
        "data_location",
        "text",
        "volume",
        "Location of the data: s3://BUCKET/PREFIX, a directory, or memory://NAME.",
    ),
    Option(
        "log_bucket",
        "text",
        "volume",
        "S3 bucket of the operation log; by default that of the data.",
    ),
    Option("log_prefix", "text", "volume", "Prefix of the operation log in its bucket."),
    Option(
        "log_location",
        "text",
        "volume",
        "Location of the operation log, written as that of the data.",
    ),
    Option(
        "suffix_count",
        "integer",
        "volume",
        "Number of partitions of each directory. Fixed at init; s3k reshard changes it.",
        minimum=1,
    ),
    Option(
        "hash",
        "choice",
        "volume",
        "Hash that distributes names to partitions. Fixed at init; s3k reshard changes it.",
        choices=get_args(HashName),
    ),
    Option(
        "layout",
        "choice",
        "volume",
        "Layout of the tree in the table, by default tree in an embedded volume and path in any "
        "other. Fixed at init; s3k migrate changes it.",
        choices=get_args(LayoutName),
    ),
    Option(
        "log_mode",
        "choice",
        "volume",
        "Mode of the operation log. Fixed at init.",
        choices=get_args(LogMode),
    ),
)

_SERVICE: Final = (
    Option("region", "text", "service", "AWS region."),
    Option("endpoint", "text", "service", "URL of an AWS-compatible service."),
    Option("profile", "text", "service", "Profile in the AWS configuration."),
    Option("access_key_id", "secret", "service", "Static credentials: access key id."),
    Option("secret_access_key", "secret", "service", "Static credentials: secret access key."),
    Option("session_token", "secret", "service", "Static credentials: session token."),
    Option("role_arn", "text", "service", "Role that is assumed, by AWS STS."),
    Option("external_id", "text", "service", "External id that the role requires."),
    Option("role_session_name", "text", "service", "Name of the session of the role."),
    Option(
        "role_duration",
        "integer",
        "service",
        "Seconds for which the credentials of the role are valid, 1800 to 43200.",
        minimum=1800,
        maximum=43200,
    ),
    Option(
        "web_identity_token_file",
        "path",
        "service",
        "File of the OpenID Connect token with which the role is assumed.",
    ),
    Option("sts_endpoint", "text", "service", "URL of a service compatible with AWS STS."),
    Option("max_connections", "integer", "service", "Connections kept to the service.", minimum=1),
    Option(
        "connect_timeout",
        "number",
        "service",
        "Timeout of a connection attempt, in seconds.",
        minimum=0.001,
    ),
    Option(
        "read_timeout", "number", "service", "Timeout of a response, in seconds.", minimum=0.001
    ),
    Option("ca_bundle", "path", "service", "File of trusted CA certificates."),
    Option(
        "verify_tls", "boolean", "service", "Whether to verify the TLS certificate of the service."
    ),
    Option("proxy", "text", "service", "URL of an HTTP proxy."),
)

_STORED: Final = (
    Option(
        "encryption",
        "choice",
        "service",
        "Server-side encryption of stored objects.",
        choices=ENCRYPTIONS,
    ),
    Option(
        "customer_key",
        "secret",
        "service",
        "Base64 of the key with which S3 encrypts stored objects (SSE-C).",
    ),
    Option("kms_key", "text", "service", "Id or ARN of the KMS key that encrypts stored objects."),
    Option(
        "bucket_key",
        "boolean",
        "service",
        "Whether encryption with KMS uses a bucket key, which saves requests to KMS.",
    ),
    Option(
        "storage_class",
        "choice",
        "service",
        "Storage class of new objects of the data.",
        choices=get_args(StorageClass),
    ),
    Option(
        "requester_pays",
        "boolean",
        "service",
        "Whether the caller pays for requests, in a bucket of another account.",
    ),
)
"""Options of objects in S3, for data and log."""

_RETRY: Final = (
    Option(
        "retry_attempts",
        "integer",
        "client",
        "Maximum attempts per request, including the first.",
        minimum=1,
    ),
    Option(
        "retry_base",
        "number",
        "client",
        "Upper bound of the first delay between attempts, in seconds.",
        minimum=0,
    ),
    Option(
        "retry_cap",
        "number",
        "client",
        "Upper bound of any delay between attempts, in seconds.",
        minimum=0,
    ),
    Option(
        "retry_deadline",
        "number",
        "client",
        "Time after its first failure in which a request is retried, in seconds.",
        minimum=0,
    ),
)


_KIND_TEXTS: Final = {"read": "reads", "write": "writes", "scan": "pages of listings and scans"}


def _of_kinds() -> Iterable[Option]:
    for kind in KINDS:
        for option in _RETRY:
            doc = f"For {_KIND_TEXTS[kind]} only: {option.doc[0].lower()}{option.doc[1:]}"
            yield replace(option, name=f"{kind}_{option.name}", doc=doc, part=kind)


_CLIENT: Final = (
    Option(
        "max_concurrency",
        "integer",
        "client",
        "Maximum number of requests in flight, for each of table, data and log.",
        minimum=1,
    ),
    *_RETRY,
    *_of_kinds(),
    Option(
        "retry_share",
        "number",
        "client",
        "Retry budget: retries per request, as a long-run average.",
        minimum=0,
    ),
    Option(
        "retry_burst",
        "number",
        "client",
        "Retry budget: retries beyond that in a burst.",
        minimum=0,
    ),
    Option(
        "retry_rate",
        "number",
        "client",
        "Retry budget: retries per second that are always allowed.",
        minimum=0,
    ),
    Option(
        "multipart_threshold",
        "size",
        "client",
        "Size above which content is uploaded in parts.",
        minimum=1,
    ),
    Option("part_size", "size", "client", "Size of a part of a multipart upload.", minimum=1),
    Option(
        "read_ahead",
        "size",
        "client",
        "Block size of sequential reads; two blocks are read ahead.",
        minimum=0,
    ),
    Option(
        "lease",
        "number",
        "client",
        "Longest time from opening a file for writing to publishing it, in seconds.",
        minimum=0.001,
    ),
    Option(
        "busy_timeout",
        "number",
        "client",
        "Seconds to wait for a concurrent change before BusyError.",
        minimum=0,
    ),
    Option(
        "close_timeout",
        "number",
        "client",
        "Seconds that closing the client waits for running calls.",
        minimum=0,
    ),
    Option(
        "directory_trust",
        "number",
        "client",
        "Layout tree: seconds for which reads trust directories above the parent, 0 to 60.",
        minimum=0,
        maximum=60,
    ),
    Option("cache", "path", "client", "Directory of a cache of data that was read."),
    Option("cache_size", "size", "client", "Most bytes in the cache.", minimum=0),
    Option(
        "cache_high",
        "number",
        "client",
        "Percentage of cache_size above which the cache evicts.",
        minimum=0,
        maximum=100,
    ),
    Option(
        "cache_low",
        "number",
        "client",
        "Percentage of cache_size to which the cache evicts.",
        minimum=0,
        maximum=100,
    ),
    Option(
        "cache_age",
        "number",
        "client",
        "Seconds without use after which the cache evicts a block.",
        minimum=0,
    ),
    Option(
        "cache_block",
        "size",
        "client",
        "Size of a block of the cache, the least that it fetches, up to 64 MiB.",
        minimum=1,
        maximum=64 * 2**20,
    ),
    Option(
        "cache_writes",
        "boolean",
        "client",
        "Whether small content that is written is added to the cache.",
    ),
    Option(
        "uid",
        "integer",
        "client",
        "User for whom the client acts where permissions are evaluated; 0 is the superuser.",
        minimum=0,
        maximum=MAX_ID,
    ),
    Option(
        "gids",
        "integers",
        "client",
        "Groups of that user, that of new entries first, separated by commas.",
        minimum=0,
        maximum=MAX_ID,
    ),
    Option(
        "change_detection",
        "choice",
        "client",
        "How to detect that another program has replaced stored data: server, client, warn or "
        "none.",
        choices=("server", "client", "warn", "none"),
    ),
    Option(
        "hot_writes",
        "choice",
        "client",
        "Where content is written in a volume with a hot location: back, to it alone until s3k "
        "tier run moves it; through, to the cold one, and small content to the hot one as well.",
        choices=("back", "through"),
    ),
    Option(
        "hot_reads",
        "choice",
        "client",
        "What a read of cold content does in a volume with a hot location: leave, nothing; fill, "
        "a copy to the hot location, in the background: of small content at once, of larger "
        "content when as much was read as it has.",
        choices=("leave", "fill"),
    ),
    Option(
        "log_verbs",
        "choice",
        "client",
        "Whether each call of a verb is logged by the logger s3k_async.operations: off, or at the "
        "level debug or info.",
        choices=("off", "debug", "info"),
    ),
    Option(
        "storage_rules",
        "text",
        "client",
        "Storage class and tags of new files in S3 below a path: PATH:CLASS,TAG=VALUE; several "
        "separated by spaces.",
    ),
    Option(
        "delegate_credentials",
        "boolean",
        "client",
        "Whether Spark tasks use temporary AWS credentials of the driver.",
    ),
)

_ALERTS: Final = (
    Option(
        "alerts",
        "text",
        "client",
        "Where fsck and gc send alerts: log:, https://HOST/PATH, sqs:QUEUE-URL, sns:TOPIC-ARN, "
        "cloudwatch:NAMESPACE; several separated by spaces.",
    ),
    Option(
        "alerts_on_error",
        "choice",
        "client",
        "What follows if alerts cannot be sent: error, warn or ignore.",
        choices=get_args(AlertPolicy),
    ),
    Option(
        "alerts_on_timeout",
        "choice",
        "client",
        "What follows if alerts cannot be sent in time: error, warn or ignore.",
        choices=get_args(AlertPolicy),
    ),
    Option(
        "alerts_deadline",
        "number",
        "client",
        "Seconds in which alerts have to be sent to each address.",
        minimum=0.001,
    ),
    Option("alerts_job", "text", "client", "Job id in alerts."),
    Option("alerts_email", "text", "client", "Address of a person or team in alerts."),
)


def _of_parts() -> Iterable[Option]:
    for part in PARTS:
        for option in (*_SERVICE, *(_STORED if part in ("data", "log") else ())):
            doc = (
                f"For the {part} only: "
                f"{option.doc[0].lower() if option.doc[1].islower() else option.doc[0]}"
            )
            yield replace(option, name=f"{part}_{option.name}", doc=doc + option.doc[1:], part=part)


OPTIONS: Final[Mapping[str, Option]] = {
    option.name: option
    for option in (*_VOLUME, *_SERVICE, *_STORED, *_of_parts(), *_CLIENT, *_ALERTS)
}
"""Every option by name."""

_UNITS: Final[Mapping[str, int]] = {"": 1} | {
    f"{letter}{binary}": base**power
    for binary, base in (("", 1000), ("i", 1024))
    for power, letter in enumerate("kmgt", 1)
}
_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "no", "off"})


def parse(option: Option, value: object, source: str) -> Setting:
    """The checked value of a keyword, text or TOML value. Raises ConfigError, with `source` and
    without secrets."""
    try:
        result = _typed(option, os.fspath(value) if isinstance(value, os.PathLike) else value)
    except (ValueError, OverflowError):
        shown = "the value" if option.type == "secret" else repr(value)
        raise ConfigError(f"{source}: {shown} is not {_wanted(option)}") from None
    for number in result if isinstance(result, tuple) else (result,):
        _check_range(option, number, value, source)
    return result


def _check_range(option: Option, number: Setting, value: object, source: str) -> None:
    if not isinstance(number, int | float):
        return
    if option.minimum is not None and not option.minimum <= number < math.inf:
        raise ConfigError(
            f"{source}: {value!r} is not {_wanted(option)} of at least {option.minimum}"
        )
    if option.maximum is not None and number > option.maximum:
        raise ConfigError(
            f"{source}: {value!r} is not {_wanted(option)} of at most {option.maximum}"
        )


def _wanted(option: Option) -> str:
    return {
        "choice": "one of " + ", ".join(option.choices),
        "integer": "a whole number",
        "integers": "a list of whole numbers",
        "number": "a number",
        "size": "a size (bytes, or like 8MiB)",
        "boolean": "true or false",
    }.get(option.type, "text that is not empty")


def _typed(option: Option, value: object) -> Setting:
    if option.type == "boolean":
        return _boolean(value)
    if isinstance(value, bool):
        raise ValueError  # noqa: TRY004 - the caller reports the expected type
    if option.type == "integer":
        return int(_text(value)) if isinstance(value, str) else _integer(value)
    if option.type == "integers":
        return _integers(value)
    if option.type == "number":
        return float(_text(value)) if isinstance(value, str) else float(_numeric(value))
    if option.type == "size":
        return _size(value) if isinstance(value, str) else _integer(value)
    if option.type == "secret":
        return value if isinstance(value, Secret) else Secret(_text(value))
    text = _text(value)
    if option.choices and text not in option.choices:
        raise ValueError
    return text


def _text(value: object) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError
    value.encode()
    return value


def _numeric(value: object) -> int | float:
    if not isinstance(value, int | float):
        raise ValueError  # noqa: TRY004 - the caller reports the expected type
    return value


def _integer(value: object) -> int:
    number = _numeric(value)
    if number != int(number):
        raise ValueError
    return int(number)


def _integers(value: object) -> tuple[int, ...]:
    if isinstance(value, str):
        return tuple(int(_text(each.strip())) for each in _text(value).split(","))
    if not isinstance(value, list | tuple) or any(isinstance(each, bool) for each in value):
        raise ValueError
    return tuple(_integer(each) for each in value)


def _size(text: str) -> int:
    match = re.fullmatch(r"\s*(\d+)\s*([kmgt]?i?)b?\s*", text.lower())
    if match is None or match[2] not in _UNITS:
        raise ValueError
    return int(match[1]) * _UNITS[match[2]]


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    text = _text(value).strip().lower()
    if text not in _TRUE | _FALSE:
        raise ValueError
    return text in _TRUE


def nearest(name: str, known: Iterable[str]) -> str:
    """The suggestion in a message about an unknown name."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
