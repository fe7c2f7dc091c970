"""Addresses of sinks: `log:`, `https://HOST/PATH`, `sqs:QUEUE-URL`, `sns:TOPIC-ARN`,
`cloudwatch:NAMESPACE`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

from s3k_async.errors import ConfigError

__all__ = ["SinkAddress", "SinkScheme", "parse_sink", "parse_sinks"]

SinkScheme: TypeAlias = Literal["log", "webhook", "sqs", "sns", "cloudwatch"]

_TOPIC: Final = re.compile(
    r"arn:aws[a-z-]*:sns:([a-z0-9-]+):\d{12}:[A-Za-z0-9_-]{1,256}(\.fifo)?", re.ASCII
)
_NAMESPACE: Final = re.compile(r"(?!AWS/)[A-Za-z0-9._/#:-]{1,255}", re.ASCII)
_AWS_QUEUE: Final = re.compile(r"sqs\.([a-z0-9-]+)\.amazonaws\.com(\.cn)?", re.ASCII)
_REMEDY: Final = (
    "an address of alerts is log:, https://HOST/PATH, sqs:QUEUE-URL, sns:TOPIC-ARN or "
    "cloudwatch:NAMESPACE"
)


@dataclass(frozen=True, slots=True)
class SinkAddress:
    """Where alerts are sent. The path and query of a webhook may be secret, and are not shown."""

    scheme: SinkScheme
    target: str = field(default="", repr=False)
    """URL, ARN or namespace."""
    region: str | None = None
    """The region that the target names."""

    def __str__(self) -> str:
        if self.scheme == "webhook":
            parts = urlsplit(self.target)
            return f"{parts.scheme}://{parts.netloc}"
        return f"{self.scheme}:{self.target}"


def parse_sinks(text: str) -> tuple[SinkAddress, ...]:
    """The addresses in a text, separated by white space. Raises ConfigError."""
    return tuple(parse_sink(word) for word in text.split())


def parse_sink(text: str) -> SinkAddress:
    """One address. Raises ConfigError, which does not quote it, since it may be secret."""
    scheme, _, target = text.partition(":")
    match scheme.lower():
        case "log" if not target:
            return SinkAddress("log")
        case "http" | "https":
            return SinkAddress("webhook", _url(text))
        case "sqs":
            url = _url(target)
            found = _AWS_QUEUE.fullmatch(urlsplit(url).hostname or "")
            return SinkAddress("sqs", url, found[1] if found else None)
        case "sns" if topic := _TOPIC.fullmatch(target):
            if topic[2]:
                raise ConfigError("alerts: a topic of the type FIFO is not supported")
            return SinkAddress("sns", target, topic[1])
        case "cloudwatch" if _NAMESPACE.fullmatch(target):
            return SinkAddress("cloudwatch", target)
    raise ConfigError(f"alerts: not an address: {_REMEDY}")


def _url(text: str) -> str:
    """A checked URL. Raises ConfigError."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        usable = usable and (parts.port is None or parts.port > 0) and text.isascii()
    except ValueError:
        usable = False
    if not usable or not text.isprintable():
        raise ConfigError(f"alerts: not a URL of http or https: {_REMEDY}")
    if parts.username is not None or parts.password is not None:
        raise ConfigError("alerts: a URL with a user is not supported; its path may have a token")
    if text.startswith("http") and parts.path.endswith(".fifo"):
        raise ConfigError("alerts: a queue of the type FIFO is not supported")
    return text
