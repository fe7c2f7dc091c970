"""Temporary credentials of the driver for tasks.

A session distributes them in a broadcast variable, to which a configuration for tasks refers. When
Spark pickles it with the function of a stage, the pickle contains the id of the broadcast variable,
and the driver first renews credentials after half of their lifetime, so that each stage begins with
fresh ones. Spark does not display the content of broadcast variables, and encrypts it with
`spark.io.encryption.enabled`.

The data source plans each read and write in a Python process without a Spark context, which obtains
credentials for it and ships them in the function of its tasks.

A client that a worker process keeps open uses the newest credentials that its tasks have received.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from pyspark.sql import SparkSession

from s3k_async._core.runtime import SYSTEM
from s3k_async._sync.loop_thread import current_bridge
from s3k_async.backends.aws.credential_source import TemporaryCredentials
from s3k_async.backends.location import Location
from s3k_async.config import AwsConfig, Secret, VolumeConfig
from s3k_async.errors import ConfigError, CredentialsError, S3kError
from s3k_async.settings import with_local_secrets

if TYPE_CHECKING:
    from pyspark import Broadcast, SparkContext

__all__ = [
    "DelegatedCredentials",
    "PlannedCredentials",
    "ReceivedCredentials",
    "delegating",
    "delegating_once",
    "need_undelegated",
]

_LOG = logging.getLogger(__name__)

Place = TypeVar("Place", bound=Location)
Source = TypeVar("Source", "DelegatedCredentials", "PlannedCredentials")
_Shipped: TypeAlias = tuple[int, str, str, str, int | None]
"""The serialized form: when the driver obtained the credentials, ms since 1970, the secrets, and
when they expire."""

_received: Final[dict[tuple[int, str], tuple[int, TemporaryCredentials]]] = {}
"""In tasks: by process id and identity, when the newest credentials were obtained, and these
credentials."""


class DelegatedCredentials:
    """Temporary credentials, on the driver. Pickled for tasks, they are ReceivedCredentials."""

    def __init__(self, context: SparkContext, config: AwsConfig) -> None:
        self.identity = _identity(config)
        self._context = context
        self._config = config
        self._lock = threading.Lock()
        self._issued: TemporaryCredentials | None = None
        self._broadcast: Broadcast[_Shipped] | None = None
        self._renew_ms = 0.0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.identity!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DelegatedCredentials) and other.identity == self.identity

    def __hash__(self) -> int:
        return hash((DelegatedCredentials, self.identity))

    def __reduce__(self) -> tuple[Any, ...]:
        self.current()
        return _receive, (self.identity, self._broadcast)

    def current(self) -> TemporaryCredentials:
        """As `CredentialSource.current`. They are renewed after half of their lifetime; a failed
        renewal is only a warning until they have expired."""
        with self._lock:
            if self._issued is None or SYSTEM.now_ms() >= self._renew_ms:
                try:
                    self._issue()
                except S3kError as error:
                    if self._issued is None or _has_expired(self._issued):
                        raise
                    _LOG.warning("the credentials for tasks cannot be renewed: %s", error)
            assert self._issued is not None
            return self._issued

    def _issue(self) -> None:
        issued, shipped = _obtained(self._config)
        self._broadcast = self._context.broadcast(shipped)
        self._issued = issued
        now, expires = SYSTEM.now_ms(), issued.expires_ms
        self._renew_ms = float("inf") if expires is None else (now + expires) / 2


class PlannedCredentials:
    """Temporary credentials for the tasks of one read or write, in the process that plans it.
    Pickled for tasks, they are ReceivedCredentials."""

    def __init__(self, config: AwsConfig) -> None:
        self.identity = _identity(config)
        self._config = config
        self._obtained: tuple[TemporaryCredentials, _Shipped] | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.identity!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlannedCredentials) and other.identity == self.identity

    def __hash__(self) -> int:
        return hash((PlannedCredentials, self.identity))

    def __reduce__(self) -> tuple[Any, ...]:
        self.current()
        assert self._obtained is not None
        return _keep, (self.identity, self._obtained[1])

    def current(self) -> TemporaryCredentials:
        """As `CredentialSource.current`."""
        if self._obtained is None:
            self._obtained = _obtained(self._config)
        return self._obtained[0]


class ReceivedCredentials:
    """Temporary credentials, in a task: the newest that this process has received."""

    def __init__(self, identity: str) -> None:
        self.identity = identity

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.identity!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReceivedCredentials) and other.identity == self.identity

    def __hash__(self) -> int:
        return hash((ReceivedCredentials, self.identity))

    def current(self) -> TemporaryCredentials:
        """As `CredentialSource.current`."""
        _, found = _received.get((os.getpid(), self.identity), (0, None))
        if found is None:
            raise CredentialsError(
                "this process has not received the credentials that the driver of Spark delegates: "
                "use the volume in the tasks for which it was pickled"
            )
        if _has_expired(found):
            assert found.expires_ms is not None
            when = datetime.fromtimestamp(found.expires_ms / 1000, UTC)
            raise CredentialsError(
                "the credentials that the driver of Spark delegated have expired, at "
                f"{when:%Y-%m-%d %H:%M:%S} UTC. Each stage receives new ones, but a DataFrame "
                "keeps those with which it was created or first planned: create or load it again, "
                "or use shorter stages, a longer role_duration, or credentials of the executors"
            )
        return found


def _receive(identity: str, broadcast: Broadcast[_Shipped]) -> ReceivedCredentials:
    """In a task: keep the credentials of a broadcast variable."""
    return _keep(identity, broadcast.value)


def _keep(identity: str, shipped: _Shipped) -> ReceivedCredentials:
    """In a task: keep the credentials, unless newer ones are known. Newer ones may expire
    earlier."""
    issued_ms, key, secret, token, expires = shipped
    found = TemporaryCredentials(Secret(key), Secret(secret), Secret(token), expires)
    place = os.getpid(), identity
    known_ms, _ = _received.get(place, (0, None))
    if known_ms <= issued_ms:
        _received[place] = issued_ms, found
    return ReceivedCredentials(identity)


def delegating(spark: SparkSession, config: VolumeConfig) -> VolumeConfig:
    """The configuration of tasks, with credentials of the driver if `delegate_credentials` is set.
    Raises ConfigError, CredentialsError, and errors of AWS STS."""
    return _delegating(config, lambda service: DelegatedCredentials(spark.sparkContext, service))


def delegating_once(config: VolumeConfig) -> VolumeConfig:
    """As `delegating`, for the tasks of one read or write, in the process that plans it."""
    return _delegating(config, PlannedCredentials)


def _delegating(config: VolumeConfig, source_of: Callable[[AwsConfig], Source]) -> VolumeConfig:
    if not config.tuning.delegate_credentials:
        return config
    sources: dict[str, Source] = {}

    def delegated(place: Place) -> Place:
        service = place.service
        if service is None or service.delegated or not place.uses_aws:
            return place
        source = source_of(service)
        source = sources.setdefault(source.identity, source)
        source.current()
        bare = replace(
            service.without_secrets(),
            endpoint=service.endpoint,
            proxy=service.proxy,
            profile=None,
            role_arn=None,
            external_id=None,
            role_session_name=None,
            role_duration=None,
            web_identity_token_file=None,
            sts_endpoint=None,
            delegated=source,
        )
        return place.with_service(bare)

    own = with_local_secrets(config)
    return replace(
        own,
        table=delegated(own.table),
        data=delegated(own.data),
        log=None if own.log is None else delegated(own.log),
    )


def need_undelegated(config: VolumeConfig) -> None:
    """Raises ConfigError if a configuration has the credentials of a session already, which the
    processes that plan reads and writes of the data source cannot receive."""
    places = (config.table, config.data, config.log)
    services = [place.service for place in places if place is not None]
    if any(service is not None and service.delegated for service in services):
        raise ConfigError(
            "the data source delegates credentials when it plans a read or write: pass the name "
            "or the VolumeConfig of the volume to register instead of the result of spark_volume"
        )


def _obtained(config: AwsConfig) -> tuple[TemporaryCredentials, _Shipped]:
    """New credentials, and what is shipped of them."""
    from s3k_async.backends.aws.temporary_credentials import temporary_credentials

    issued = current_bridge().run(lambda: temporary_credentials(config))
    secrets = issued.access_key_id, issued.secret_access_key, issued.session_token
    key, secret, token = (each.reveal() for each in secrets)
    return issued, (int(SYSTEM.now_ms()), key, secret, token, issued.expires_ms)


def _identity(config: AwsConfig) -> str:
    """Equal for settings with the same credentials, without revealing them."""
    parts = (
        config.access_key_id.reveal(),
        config.session_token.reveal(),
        config.profile,
        config.role_arn,
        config.external_id,
        config.web_identity_token_file,
        config.endpoint,
        config.sts_endpoint,
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _has_expired(credentials: TemporaryCredentials) -> bool:
    return credentials.expires_ms is not None and credentials.expires_ms <= SYSTEM.now_ms()
