"""Layout `path`: the key of an entry contains the path of its directory, as in S3-FileSystem 1.0.

An entry is read by one key, regardless of its ancestors. A directory is moved or removed entry by
entry.
"""
