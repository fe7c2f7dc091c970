"""URIs of physical objects: below a data location, and in other buckets of its service."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.backends.ports.other_buckets import in_bucket

__all__ = ["find_elsewhere", "key_below", "root_of"]

_URI: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>.*)", re.DOTALL)
_S3_SCHEMES: Final = frozenset({"s3", "s3a", "s3n"})


def root_of(place: BlobStore) -> str:
    """The URI of a store, which ends in the separator."""
    return place.uri("-").removesuffix("-")


def key_below(root: str, uri: str) -> str | None:
    """The key of a URI below that of a place, which ends in the separator; None if it lies
    elsewhere. Keys in S3 are not escaped; those of other URIs are."""
    there, own = _URI.fullmatch(uri), _URI.fullmatch(root)
    if there is None or own is None or not there["rest"].startswith(own["rest"]):
        return None
    if _family(own["scheme"]) != _family(there["scheme"]):
        return None
    key = there["rest"][len(own["rest"]) :]
    return key if _family(own["scheme"]) == "s3" else unquote(key)


def find_elsewhere(place: BlobStore, uri: str) -> tuple[BlobStore, str] | None:
    """Store and key of an object outside a data location, in any bucket of its service; None for
    another kind of service, and where there are no buckets. The URI supplies only the bucket and
    the key."""
    found = _URI.fullmatch(uri)
    if found is None:
        return None
    store = in_bucket(place, found["rest"].partition("/")[0])
    key = None if store is None else key_below(root_of(store), uri)
    return None if store is None or key is None else (store, key)


def _family(scheme: str) -> str:
    lower = scheme.lower()
    return "s3" if lower in _S3_SCHEMES else lower
