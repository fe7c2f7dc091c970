"""The tree in the table: keys, entries, directories, files, recursive changes, the volume
record."""
