"""The bytes of files: fresh physical keys, uploads with a checksum on the way, ranged reads,
copies."""
