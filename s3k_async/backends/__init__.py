"""Backends: where a volume's table, data and log can be.

Each is a package with a location class (a subclass of `TableLocation` or `BlobLocation`) and the
adapters that it opens, and one line of `registry`.
"""
