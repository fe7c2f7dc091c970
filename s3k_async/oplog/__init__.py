"""The operation log: formats, writer, reader, checkpoints, compaction."""
