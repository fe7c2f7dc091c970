"""Request statistics of a command, on standard error."""

from __future__ import annotations

import json
import sys

from s3k_async._core.metering import Requests
from s3k_async.cli.output import plural

__all__ = ["tell"]


def tell(requests: Requests, seconds: float, *, as_json: bool) -> None:
    """Print the requests by kind, with retries, bytes of content and seconds."""
    if as_json:
        document = {
            "requests": requests.as_dict(),
            "total": requests.total,
            "sent_again": requests.retries,
            "bytes": requests.bytes,
            "seconds": round(seconds, 3),
        }
        print(json.dumps({"stats": document}), file=sys.stderr)
        return
    for line in _lines(requests, seconds):
        print(line, file=sys.stderr)


def _lines(requests: Requests, seconds: float) -> list[str]:
    again = f"{requests.retries:,} of them sent again, " if requests.retries else ""
    parts = [] if not requests else [f"  {part}" for part in str(requests).split("; ")]
    size = plural(requests.bytes, "byte")
    return [f"{plural(requests.total, 'request')}, {again}{size}, {seconds:.2f} s", *parts]
