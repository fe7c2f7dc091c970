"""Signatures of S3 in the query of a URL.

Source: "Authenticating Requests: Using Query Parameters (AWS Signature Version 4)", Amazon S3 API
Reference.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

from s3k_async.backends.aws.credentials import Keys

__all__ = ["Presigning"]

_ALGORITHM = "AWS4-HMAC-SHA256"
_UNSIGNED = "UNSIGNED-PAYLOAD"


@dataclass(frozen=True, slots=True)
class Presigning:
    """What is the same for all URLs of one service: scheme, host and region, and the keys."""

    scheme: str
    host: str
    """With the port unless it is the scheme's own."""
    region: str
    keys: Keys

    def url(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str],
        seconds: int,
        time_ms: int,
        headers: Mapping[str, str] | None = None,
    ) -> str:
        """The URL, valid for `seconds` from a time in epoch milliseconds. `path` is URI-encoded,
        and `parameters`, the query beside the signature, are not. `headers`: those that the request
        has besides `Host`, by their names in lower case."""
        signed = {"host": self.host, **(headers or {})}
        names = ";".join(sorted(signed))
        now = datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
        scope = f"{now[:8]}/{self.region}/s3/aws4_request"
        fields = {
            **parameters,
            "X-Amz-Algorithm": _ALGORITHM,
            "X-Amz-Credential": f"{self.keys.access_key}/{scope}",
            "X-Amz-Date": now,
            "X-Amz-Expires": str(seconds),
            "X-Amz-SignedHeaders": names,
        }
        if self.keys.token:
            fields["X-Amz-Security-Token"] = self.keys.token
        encoded = sorted((_encoded(name), _encoded(value)) for name, value in fields.items())
        query = "&".join(f"{name}={value}" for name, value in encoded)
        lines = "".join(f"{name}:{signed[name]}\n" for name in sorted(signed))
        canonical = f"{method}\n{path}\n{query}\n{lines}\n{names}\n{_UNSIGNED}"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        signature = self._signature(scope, f"{_ALGORITHM}\n{now}\n{scope}\n{digest}")
        return f"{self.scheme}://{self.host}{path}?{query}&X-Amz-Signature={signature}"

    def _signature(self, scope: str, text: str) -> str:
        key = f"AWS4{self.keys.secret_key}".encode()
        for part in scope.split("/"):
            key = _mac(key, part)
        return _mac(key, text).hex()


def _mac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")


def _encoded(text: str) -> str:
    return quote(text, safe="-_.~")
