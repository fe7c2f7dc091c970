"""Request statistics of a command, on standard error."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from s3k_async._core.metering import Requests
from s3k_async.cli.output import plural
from s3k_async.model import CacheStatistics

__all__ = ["tell"]


def tell(requests: Requests, cache: CacheStatistics, seconds: float, *, as_json: bool) -> None:
    """Print the requests by kind, with retries, bytes of content and seconds, and what a read cache
    did."""
    if as_json:
        document: dict[str, object] = {
            "requests": requests.as_dict(),
            "total": requests.total,
            "sent_again": requests.retries,
            "bytes": requests.bytes,
            "seconds": round(seconds, 3),
        }
        if cache != CacheStatistics():
            document["cache"] = asdict(cache)
        print(json.dumps({"stats": document}), file=sys.stderr)
        return
    for line in (*_lines(requests, seconds), *_cache_lines(cache)):
        print(line, file=sys.stderr)


def _lines(requests: Requests, seconds: float) -> list[str]:
    again = f"{requests.retries:,} of them sent again, " if requests.retries else ""
    parts = [] if not requests else [f"  {part}" for part in str(requests).split("; ")]
    size = plural(requests.bytes, "byte")
    return [f"{plural(requests.total, 'request')}, {again}{size}, {seconds:.2f} s", *parts]


def _cache_lines(cache: CacheStatistics) -> list[str]:
    if cache == CacheStatistics():
        return []
    hits = f"{plural(cache.hits, 'block')}, {plural(cache.hit_bytes, 'byte')} read"
    misses = f"{plural(cache.misses, 'block')}, {plural(cache.fetched_bytes, 'byte')} fetched"
    failures = f"; {plural(cache.failures, 'failure')}" if cache.failures else ""
    return [f"  cache: {hits}; {misses}{failures}"]
