"""Interfaces of other libraries: fsspec, pyarrow, universal-pathlib, Hadoop's FileSystem."""
