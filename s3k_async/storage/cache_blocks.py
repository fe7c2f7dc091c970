"""The file of a cached block: a digest, the block's identity, and its bytes.

```
magic, 8 bytes | XXH3-128 of what follows | length of the identity, 2 bytes | identity | bytes
```

The identity is that of the physical object and the position of the block in it. A file that is
truncated, damaged or that of another block is not valid.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Final

from s3k_async._native import Xxh3_128
from s3k_async.backends.ports.blobs import Buffer

__all__ = ["BLOCK_NAME", "HEAD_MOST", "TEMPORARY_NAME", "BlockName", "decode_block", "encode_head"]

_MAGIC: Final = b"s3kblk1\n"
_DIGEST_END: Final = len(_MAGIC) + 16
_LENGTH: Final = struct.Struct(">H")
_IDENTITY: Final = _DIGEST_END + _LENGTH.size
HEAD_MOST: Final = _IDENTITY + 2**16
"""Most bytes before those of the block."""

BLOCK_NAME: Final = re.compile(r"[0-9a-f]{32}")
"""The name of the file of a block."""
TEMPORARY_NAME: Final = re.compile(r"[0-9a-f]{32}\.[0-9a-f-]{36}\.tmp")
"""The name of a file that is being written."""


@dataclass(frozen=True, slots=True)
class BlockName:
    """A block of a physical object: `number` times `size` is its first byte."""

    scope: str
    """The prefix of the volume's keys, which contains the id of the volume."""
    key: str
    """The physical key."""
    size: int
    """Bytes of a block, except the last one of the object."""
    number: int

    @property
    def identity(self) -> bytes:
        """The text that the file of the block contains."""
        return f"{self.scope}{self.key}\n{self.size}\n{self.number}".encode()

    @property
    def file(self) -> str:
        """The name of its file: a digest of the identity, as keys may be longer than names of files
        and contain a `/`."""
        digest = Xxh3_128()
        digest.update(self.identity)
        return digest.hexdigest()


def encode_head(name: BlockName, data: Buffer) -> bytes:
    """What precedes the bytes of a block in its file."""
    identity = name.identity
    labelled = _LENGTH.pack(len(identity)) + identity
    return _MAGIC + _digest(labelled, data) + labelled


def decode_block(name: BlockName, content: memoryview) -> memoryview | None:
    """The bytes of a block in the content of its file; None unless it is valid."""
    if len(content) < _IDENTITY or bytes(content[: len(_MAGIC)]) != _MAGIC:
        return None
    if content[len(_MAGIC) : _DIGEST_END] != _digest(content[_DIGEST_END:]):
        return None
    (length,) = _LENGTH.unpack(content[_DIGEST_END:_IDENTITY])
    if content[_IDENTITY : _IDENTITY + length] != name.identity:
        return None
    return content[_IDENTITY + length :]


def _digest(*parts: Buffer) -> bytes:
    digest = Xxh3_128()
    for part in parts:
        digest.update(part)
    return bytes.fromhex(digest.hexdigest())
