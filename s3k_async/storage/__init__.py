"""Storage of file data: physical keys, uploads with a checksum, ranged reads, copies."""
