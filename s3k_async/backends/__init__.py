"""Backends: the engines that hold a volume's table, data and log.

Each is a package with a location class (a subclass of `TableLocation` or `BlobLocation`) and the
adapters that it opens, and one line of `registry`. The author of a backend needs the names of
`location` and the ports, `backends.ports.items` and `backends.ports.blobs`.
"""
